// SPDX-License-Identifier: MIT
// The arithmetic of minfer/math.h: its errors against the C library in double, and its bits against
// hashes that every machine and compiler must give.
//
//   test_math                every 4099th float
//   test_math [exhaustive]   all of them; some minutes
#include <minfer/math.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "catch.h"

using namespace minfer;

namespace {

constexpr std::uint64_t kFloats = std::uint64_t{1} << 32;
constexpr std::uint64_t kStride = 4099;  // prime to 2^32, so exponents and signs are all there

/// FNV-1a, a 32-bit word at a time.
class Hash {
 public:
  void add(std::uint32_t word) { state_ = (state_ ^ word) * 0x100000001b3u; }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

/// How far `y` is from `exact`, in units of the last place that a float of that size has.
double ulps(float y, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(y - exact) * std::ldexp(1.0, -std::max(exponent - 24, -149));
}

struct Result {
  std::uint64_t hash = 0;
  double worst = 0;  // error of exp_f32 in ulp
  float worst_at = 0;
};

/// exp_f32 of every `stride`-th float.
Result run_exp(std::uint64_t stride) {
  Result result;
  Hash hash;
  for (std::uint64_t bits = 0; bits < kFloats; bits += stride) {
    const float x = float_from_bits(static_cast<std::uint32_t>(bits));
    const float y = exp_f32(x);
    hash.add(bits_from_float(y));
    if (x != x) {
      if (bits_from_float(y) != kNanBits) FAIL("exp of a NaN, " << bits << ", is " << y);
      continue;
    }
    const double exact = std::exp(static_cast<double>(x));
    // What rounds to 2^128 or more is infinity.
    if (exact >= 0x1.ffffffp127) {
      if (y != std::numeric_limits<float>::infinity()) FAIL("exp of " << x << " is " << y);
      continue;
    }
    const double error = ulps(y, exact);
    if (error <= result.worst) continue;
    result.worst = error;
    result.worst_at = x;
  }
  result.hash = hash.value();
  return result;
}

/// One word a float, hashed over every `stride`-th one.
template <class Function>
std::uint64_t hash_of(std::uint64_t stride, Function&& word) {
  Hash hash;
  for (std::uint64_t bits = 0; bits < kFloats; bits += stride) {
    hash.add(word(float_from_bits(static_cast<std::uint32_t>(bits))));
  }
  return hash.value();
}

/// The bits of a float, all NaNs alike: of sums and quotients, machines differ in a NaN's sign.
std::uint32_t word_of(float y) {
  return y == y ? bits_from_float(y) : kNanBits;
}

int rounded(float x, int lo, int hi) {
  if (x != x) return std::clamp(0, lo, hi);
  const float whole = std::nearbyint(x);
  return static_cast<int>(std::clamp(whole, static_cast<float>(lo), static_cast<float>(hi)));
}

void check_rounding(std::uint64_t stride) {
  for (std::uint64_t bits = 0; bits < kFloats; bits += stride) {
    const float x = float_from_bits(static_cast<std::uint32_t>(bits));
    if (round_half_even_to_int(x, -127, 127) != rounded(x, -127, 127)) FAIL("rounding " << x);
  }
}

/// A half's value by its definition.
double value_of_half(unsigned half) {
  const int exponent = static_cast<int>(half >> 10 & 31u);
  const int mantissa = static_cast<int>(half & 1023u);
  const double sign = half >> 15 != 0 ? -1.0 : 1.0;
  if (exponent == 31) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

/// The half nearest to `x`, ties to even, by search among the halves below infinity.
unsigned nearest_half(float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  const unsigned sign = std::signbit(x) ? 0x8000u : 0u;
  if (magnitude >= 65520.0) return sign | 0x7c00u;
  unsigned low = 0, high = 0x7bffu;  // the last that is not above x
  while (low < high) {
    const unsigned middle = (low + high + 1) / 2;
    if (value_of_half(middle) <= magnitude) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const double below = magnitude - value_of_half(low);
  const double above = (low == 0x7bffu ? 65536.0 : value_of_half(low + 1)) - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return sign | (up ? low + 1 : low);
}

}  // namespace

TEST_CASE("exp_f32 errs by less than 0.8 ulp, and has the same bits everywhere") {
  const Result result = run_exp(kStride);
  INFO("worst at " << result.worst_at);
  CHECK(result.worst <= 0.8);
  CHECK(result.hash == 0xc73a11a2890bd4cfu);
}

TEST_CASE("exp_f32 at the ends of its range") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(exp_f32(0.0f) == 1.0f);
  CHECK(exp_f32(-0.0f) == 1.0f);
  CHECK(exp_f32(infinity) == infinity);
  CHECK(bits_from_float(exp_f32(-infinity)) == 0);
  CHECK(exp_f32(88.72283f) < infinity);
  CHECK(exp_f32(88.72284f) == infinity);
  CHECK(exp_f32(1e30f) == infinity);
  CHECK(bits_from_float(exp_f32(-103.97207f)) == 1);  // the least denormal
  CHECK(bits_from_float(exp_f32(-103.97209f)) == 0);
  CHECK(bits_from_float(exp_f32(-1e30f)) == 0);
  CHECK(bits_from_float(exp_f32(float_from_bits(0xffc12345u))) == kNanBits);
  for (float x = -110.0f; x < 100.0f; x += 0.0625f) CHECK(exp_f32(x) <= exp_f32(x + 0.0625f));
}

TEST_CASE("division, square root, fused multiply-add and silu have the same bits everywhere") {
  CHECK(hash_of(kStride, [](float x) { return word_of(1.0f / x); }) == 0xf9c3b05933a0d1d9u);
  CHECK(hash_of(kStride, [](float x) { return word_of(rsqrt_f32(x)); }) == 0x23b38002f414e5c7u);
  CHECK(hash_of(kStride, [](float x) { return word_of(fmaf(x, 0.3f, x)); }) == 0xc776b015dbea82d9u);
  CHECK(hash_of(kStride, [](float x) { return word_of(x * 0.3f + x); }) == 0x64615713f9291ecbu);
  CHECK(hash_of(kStride, [](float x) { return word_of(silu_f32(x)); }) == 0x5cbde7d0ce5c25b3u);
}

TEST_CASE("silu is close to its formula") {
  for (float x = -80.0f; x < 80.0f; x += 0.37f) {
    const double exact = x / (1.0 + std::exp(-static_cast<double>(x)));
    INFO("at " << x);
    CHECK(ulps(silu_f32(x), exact) <= 2.5);
  }
  CHECK(silu_f32(-1000.0f) == 0.0f);
  CHECK(silu_f32(1000.0f) == 1000.0f);
}

TEST_CASE("rounding to integers is half to even and clamped") {
  check_rounding(kStride);
  CHECK(round_half_even_to_int(0.5f, -127, 127) == 0);
  CHECK(round_half_even_to_int(1.5f, -127, 127) == 2);
  CHECK(round_half_even_to_int(-2.5f, -127, 127) == -2);
  CHECK(round_half_even_to_int(-126.5f, -127, 127) == -126);
  CHECK(round_half_even_to_int(1e30f, -127, 127) == 127);
  CHECK(round_half_even_to_int(-1e30f, -8, 7) == -8);
  const float nan = float_from_bits(0xffffffffu);
  CHECK(round_half_even_to_int(nan, -127, 127) == 0);
  CHECK(round_half_even_to_int(nan, 3, 9) == 3);
  CHECK(round_half_even_to_int(nan, -9, -3) == -3);
  CHECK(round_half_even_to_int(4194303.5f, -(1 << 22), 1 << 22) == 1 << 22);
  CHECK(round_half_even_to_int(-4194302.5f, -(1 << 22), 1 << 22) == -4194302);
}

TEST_CASE("max and min choose the second of equals, and where one is a NaN") {
  const float nan = float_from_bits(kNanBits);
  CHECK(max_f32(1.0f, 2.0f) == 2.0f);
  CHECK(min_f32(1.0f, 2.0f) == 1.0f);
  CHECK(bits_from_float(max_f32(0.0f, -0.0f)) == 0x80000000u);
  CHECK(bits_from_float(max_f32(-0.0f, 0.0f)) == 0);
  CHECK(max_f32(nan, 1.0f) == 1.0f);
  CHECK(std::isnan(max_f32(1.0f, nan)));
}

TEST_CASE("every half is the float that it should be, and comes back") {
  for (unsigned bits = 0; bits < 1u << 16; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float_from_half(half);
    if ((bits & 0x7fffu) > 0x7c00u) {
      if (value == value || half_from_float(value) != 0x7fffu) FAIL("NaN " << bits);
      continue;
    }
    const bool same = value == value_of_half(bits) && std::signbit(value) == (bits >> 15 != 0);
    if (!same || half_from_float(value) != half) FAIL("half " << bits << " is " << value);
  }
}

TEST_CASE("floats become the nearest half") {
  for (std::uint64_t bits = 0; bits < kFloats; bits += kStride) {
    const float x = float_from_bits(static_cast<std::uint32_t>(bits));
    const unsigned expected = x == x ? nearest_half(x) : 0x7fffu;
    if (half_from_float(x) != expected) FAIL(x << " becomes " << half_from_float(x));
  }
  // Around each half, and half-way between two.
  for (unsigned bits = 0; bits < 0x7bffu; ++bits) {
    const double between = (value_of_half(bits) + value_of_half(bits + 1)) / 2;
    const auto middle = static_cast<float>(between);
    for (const float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
      if (half_from_float(x) != nearest_half(x)) FAIL(x << " becomes " << half_from_float(x));
    }
  }
  CHECK(half_from_float(65519.996f) == 0x7bffu);
  CHECK(half_from_float(65520.0f) == 0x7c00u);
}

TEST_CASE("all floats", "[.][exhaustive]") {
  const Result result = run_exp(1);
  INFO("worst at " << result.worst_at);
  CHECK(result.worst <= 0.8);
  CHECK(result.hash == 0x52a876a258780505u);
  check_rounding(1);
  CHECK(hash_of(1, [](float x) { return half_from_float(x); }) == 0x9c881c138ff3a325u);
}
