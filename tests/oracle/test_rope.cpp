// SPDX-License-Identifier: MIT
//
// The RoPE table and the functions it is made with, against the C library.
#include <cmath>
#include <cstdlib>

#include <minfer/logits_hash.h>
#include <minfer/math.h>
#include <minfer/rope.h>

#include "catch.h"

namespace minfer::test {
namespace {

/// How many floats lie between two, zeros counted as one.
long ulps_apart(float a, float b) {
  const auto place = [](float x) {
    const auto bits = static_cast<std::int32_t>(bits_from_float(x));
    return static_cast<long>(bits < 0 ? INT32_MIN - std::int64_t{bits} : std::int64_t{bits});
  };
  return std::labs(place(a) - place(b));
}

double ulp(double x) {
  return std::nextafter(std::fabs(x), INFINITY) - std::fabs(x);
}

TEST_CASE("pow, cos and sin are within an ulp of the C library's") {
  for (const int head_dim : {16, 64, 80, 96, 128, 256}) {
    for (const double base : {1.0, 1e4, 5e5, 1e6, 1e7}) {
      for (int i = 0; i < head_dim / 2; ++i) {
        const double exponent = -2.0 * i / head_dim;
        const double expected = std::pow(base, exponent);
        CHECK(std::fabs(exact::pow(base, exponent) - expected) <= ulp(expected));
      }
    }
  }
  for (int k = 0; k < 60000; ++k) {
    const double angle = k < 20000 ? k : std::fmod(k * 0.6180339887498949 * 1e5, 1048576.0);
    CAPTURE(angle);
    REQUIRE(std::fabs(exact::cos(angle) - std::cos(angle)) <= 1.5 * ulp(std::cos(angle)));
    REQUIRE(std::fabs(exact::sin(angle) - std::sin(angle)) <= 1.5 * ulp(std::sin(angle)));
  }
  CHECK(exact::cos(0) == 1);
  CHECK(exact::sin(0) == 0);
  CHECK(exact::pow(1e6, 0) == 1);
}

// Of all doubles up to 2^20 those closest to a multiple of pi/2. What is left of them is 10^-22 of
// the angle, so it takes all three parts of pi/2: two give the first cosine with 37 right bits.
TEST_CASE("cos and sin have all their bits where almost nothing is left of the angle") {
  struct Case {
    double angle, sine, cosine;  // from pi to 80 digits
  };
  const Case cases[] = {{0x1.39c6fd67805a7p+18, -1.0, -0x1.988efe18ff83fp-55},
                        {0x1.39c6fd67805a7p+19, 0x1.988efe18ff83fp-54, -1.0},
                        {0x1.a9adcc7f96cf0p+19, -1.0, -0x1.d2a4f27e8c119p-52},
                        {0x1.edb9bbd6273d1p+18, -1.0, 0x1.1fe663539c47dp-51}};
  for (const Case& c : cases) {
    CAPTURE(c.angle);
    CHECK(std::fabs(exact::sin(c.angle) - c.sine) <= ulp(c.sine));
    CHECK(std::fabs(exact::cos(c.angle) - c.cosine) <= ulp(c.cosine));
  }
}

TEST_CASE("the table is within a float's ulp of the C library's") {
  for (const std::uint32_t head_dim : {64u, 128u}) {
    const RopeTable table(head_dim, 1e6, 4096);
    REQUIRE(table.cos_table().size() == 4096 * head_dim / 2);
    for (std::uint32_t position = 0; position < 4096; ++position) {
      for (std::uint32_t i = 0; i < head_dim / 2; ++i) {
        const double angle = position * std::pow(1e6, -2.0 * i / head_dim);
        REQUIRE(ulps_apart(table.cos(position)[i], static_cast<float>(std::cos(angle))) <= 1);
        REQUIRE(ulps_apart(table.sin(position)[i], static_cast<float>(std::sin(angle))) <= 1);
      }
    }
  }
}

TEST_CASE("the table has the same bits everywhere") {
  const auto hash = [](std::uint32_t head_dim, double base, std::uint32_t positions) {
    const RopeTable table(head_dim, base, positions);
    LogitsHash hash;
    hash.add(0, table.cos_table().data(), table.cos_table().size());
    hash.add(1, table.sin_table().data(), table.sin_table().size());
    return hash.hex();
  };
  CHECK(hash(64, 1e6, 4096) == "c85e867bb736512f");   // 0.5B
  CHECK(hash(128, 1e6, 4096) == "6cf45834dc8b0069");  // 1.5B and 3B
  CHECK(hash(80, 1e4, 1000) == "3d4ae31a3c3fc21b");   // no power of two
}

}  // namespace
}  // namespace minfer::test
