// SPDX-License-Identifier: MIT
#include <minfer/rope.h>

#include <cmath>
#include <cstring>

namespace minfer {
namespace exact {
namespace {

/// An unevaluated sum hi + lo with |lo| below half an ulp of hi: about 106 bits.
struct DoubleDouble {
  double hi, lo;
};

/// a + b without loss. @pre |a| >= |b|, or a is 0
DoubleDouble fast_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

/// a * b without loss.
DoubleDouble two_product(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

constexpr DoubleDouble kLn2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
/// pi/2 in three parts, each a double: 159 bits.
constexpr double kHalfPi[3] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                               -0x1.f1976b7ed8fbcp-110};

/// Nearest integer, half to even: adding 1.5 * 2^52 leaves no bits for a fraction.
double round_to_integer(double x) {
  constexpr double kShift = 0x1.8p52;
  return (x + kShift) - kShift;
}

/// x = mantissa * 2^exponent with sqrt(1/2) <= mantissa < sqrt(2). @pre x positive and normal
double split_exponent(double x, int& exponent) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  double mantissa;
  std::memcpy(&mantissa, &bits, sizeof mantissa);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  return mantissa;
}

/// 2^n. @pre 2^n is a normal number
double power_of_two(int n) {
  const std::uint64_t bits = static_cast<std::uint64_t>(n + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// ln x = exponent ln 2 + 2 artanh(s), s = (mantissa - 1) / (mantissa + 1), |s| <= 0.172.
/// artanh(s) = s + s^3/3 + s^5/5 + ...: s is kept in two parts, the rest is at most 1 % of it.
DoubleDouble log(double x) {
  int exponent;
  const double m = split_exponent(x, exponent);
  const DoubleDouble denominator = fast_two_sum(m > 1 ? m : 1.0, m > 1 ? 1.0 : m);
  const double s = (m - 1.0) / denominator.hi;  // m - 1 is exact
  const double s_low =
      (std::fma(-s, denominator.hi, m - 1.0) - s * denominator.lo) / denominator.hi;
  const double s2 = s * s;
  double series = 0;
  for (int n = 27; n >= 3; n -= 2) series = std::fma(series, s2, 1.0 / n);
  const double tail = 2.0 * std::fma(s2 * s, series, s_low);

  const DoubleDouble whole = two_product(exponent, kLn2.hi);
  const DoubleDouble high =
      exponent == 0 ? DoubleDouble{2.0 * s, 0} : fast_two_sum(whole.hi, 2.0 * s);
  return fast_two_sum(high.hi, high.lo + whole.lo + exponent * kLn2.lo + tail);
}

/// e^(x.hi + x.lo) = 2^n e^r, |r| <= ln(2)/2, e^r by its Taylor series.
double exp(DoubleDouble x) {
  const double n = round_to_integer(x.hi / kLn2.hi);
  const DoubleDouble whole = two_product(n, kLn2.hi);
  // x.hi and whole.hi are within a factor of two of each other, or n is 0: their difference is
  // exact.
  const DoubleDouble r = fast_two_sum(x.hi - whole.hi, x.lo - whole.lo - n * kLn2.lo);
  double series = 0;                                 // 1/2! + r/3! + ... to r^20
  double factorial = 51090942171709440000.0 * 22.0;  // 22!
  for (int k = 22; k >= 2; --k) {
    series = std::fma(series, r.hi, 1.0 / factorial);
    factorial /= k;
  }
  const double tail = r.lo + r.hi * r.hi * series;
  const DoubleDouble sum = fast_two_sum(1.0, r.hi);
  return (sum.hi + (sum.lo + tail)) * power_of_two(static_cast<int>(n));
}

/// angle = quadrant * pi/2 + r, |r| <= pi/4. quadrant * kHalfPi[0] needs up to 73 bits, so the
/// product is taken in two parts; what is left after all three subtractions is exact to 2^-100.
DoubleDouble reduce(double angle, int& quadrant) {
  const double n = round_to_integer(angle / kHalfPi[0]);
  quadrant = static_cast<int>(n) & 3;
  const DoubleDouble first = two_product(n, kHalfPi[0]);
  const DoubleDouble second = two_product(n, kHalfPi[1]);
  const double high = angle - first.hi;  // exact: the two are close, or n is 0
  // high can be 0 or tiny: add what is larger first.
  const DoubleDouble a = std::fabs(high) > std::fabs(first.lo) ? fast_two_sum(high, -first.lo)
                                                               : fast_two_sum(-first.lo, high);
  const DoubleDouble b = std::fabs(a.hi) > std::fabs(second.hi) ? fast_two_sum(a.hi, -second.hi)
                                                                : fast_two_sum(-second.hi, a.hi);
  return fast_two_sum(b.hi, b.lo + a.lo - second.lo - n * kHalfPi[2]);
}

/// sin r = r - r^3/3! + r^5/5! - ..., |r| <= pi/4.
double sin_series(DoubleDouble r) {
  const double r2 = r.hi * r.hi;
  double series = 0;                        // -1/3! + r^2/5! - ...
  double factorial = 121645100408832000.0;  // 19!
  double sign = -1;
  for (int k = 19; k >= 3; k -= 2) {
    series = std::fma(series, r2, sign / factorial);
    factorial /= k * (k - 1);
    sign = -sign;
  }
  // d sin = cos r dr, where cos r = 1 - r^2/2 is enough for the low part.
  return r.hi + std::fma(r2 * r.hi, series, r.lo * (1.0 - 0.5 * r2));
}

/// cos r = 1 - r^2/2! + r^4/4! - ..., |r| <= pi/4.
double cos_series(DoubleDouble r) {
  const DoubleDouble r2 = two_product(r.hi, r.hi);
  double series = 0;                         // 1/4! - r^2/6! + ...
  double factorial = 2432902008176640000.0;  // 20!
  double sign = 1;
  for (int k = 20; k >= 4; k -= 2) {
    series = std::fma(series, r2.hi, sign / factorial);
    factorial /= k * (k - 1);
    sign = -sign;
  }
  const DoubleDouble head = fast_two_sum(1.0, -0.5 * r2.hi);
  return head.hi + (head.lo + (r2.hi * r2.hi * series - 0.5 * r2.lo - r.hi * r.lo));
}

}  // namespace

double pow(double base, double exponent) {
  const DoubleDouble ln = log(base);
  const DoubleDouble product = two_product(exponent, ln.hi);
  return exp(fast_two_sum(product.hi, std::fma(exponent, ln.lo, product.lo)));
}

double cos(double angle) {
  int quadrant;
  const DoubleDouble r = reduce(angle, quadrant);
  const double value = quadrant % 2 == 0 ? cos_series(r) : sin_series(r);
  return quadrant == 1 || quadrant == 2 ? -value : value;
}

double sin(double angle) {
  int quadrant;
  const DoubleDouble r = reduce(angle, quadrant);
  const double value = quadrant % 2 == 0 ? sin_series(r) : cos_series(r);
  return quadrant >= 2 ? -value : value;
}

}  // namespace exact

RopeTable::RopeTable(std::uint32_t head_dim, double base, std::uint32_t n_positions)
    : head_dim_(head_dim), n_positions_(n_positions) {
  const std::uint32_t half = head_dim / 2;
  std::vector<double> frequency(half);
  for (std::uint32_t i = 0; i < half; ++i) {
    frequency[i] = exact::pow(base, -2.0 * i / head_dim);
  }
  cos_.reserve(std::size_t{n_positions} * half);
  sin_.reserve(std::size_t{n_positions} * half);
  for (std::uint32_t position = 0; position < n_positions; ++position) {
    for (std::uint32_t i = 0; i < half; ++i) {
      const double angle = position * frequency[i];
      cos_.push_back(static_cast<float>(exact::cos(angle)));
      sin_.push_back(static_cast<float>(exact::sin(angle)));
    }
  }
}

}  // namespace minfer
