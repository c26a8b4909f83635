// SPDX-License-Identifier: MIT
// Warp operations and instructions, on a GPU and in the emulator.
#include <minfer/math.h>

#include <cstring>
#include <numeric>

#include "catch.h"
#include "features.h"

using namespace minfer;
using namespace minfer::features;

namespace {

/// Numbers that repeat on every machine.
std::vector<std::uint32_t> noise(std::size_t n) {
  std::vector<std::uint32_t> result(n);
  std::uint32_t state = 12345;
  for (auto& value : result) {
    state = state * 1664525u + 1013904223u;
    value = state ^ (state >> 16);
  }
  return result;
}

/// The lane that `lane` reads, by the programming guide.
int source_lane(Shuffle kind, int lane, int argument, int width) {
  const int first = lane / width * width;
  const int last = first + width - 1;
  switch (kind) {
    case Shuffle::index:
      return first + (argument & (width - 1));
    case Shuffle::up:
      return lane - argument < first ? lane : lane - argument;
    case Shuffle::down:
      return lane + argument > last ? lane : lane + argument;
    case Shuffle::exclusive_or:
      return (lane ^ argument) > last ? lane : lane ^ argument;
  }
  return lane;
}

std::uint32_t reversed(std::uint32_t x) {
  std::uint32_t result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
  return result;
}

}  // namespace

TEST_CASE("shuffles read the lane that they say") {
  std::vector<int> values(32);
  std::iota(values.begin(), values.end(), 100);
  const auto kinds = {Shuffle::index, Shuffle::up, Shuffle::down, Shuffle::exclusive_or};
  for (const Shuffle kind : kinds) {
    for (const int width : {4, 16, 32}) {
      for (const int argument : {0, 1, 3, 5, 16, 31}) {
        std::vector<int> expected(32);
        for (int lane = 0; lane < 32; ++lane) {
          expected[lane] = values[source_lane(kind, lane, argument, width)];
        }
        INFO("kind " << static_cast<int>(kind) << " width " << width << " by " << argument);
        CHECK(shuffle(kind, values, argument, width) == expected);
      }
    }
  }
}

TEST_CASE("shuffles move 64 bits") {
  std::vector<double> values(32);
  for (int i = 0; i < 32; ++i) values[i] = 1.0 / (i + 1);
  auto expected = values;
  for (int i = 0; i < 32; ++i) expected[i] = values[i ^ 9];
  CHECK(shuffle_wide(values, 9) == expected);
}

TEST_CASE("votes and reductions see all lanes") {
  std::vector<unsigned> values(32);
  for (unsigned i = 0; i < 32; ++i) values[i] = i * i % 11 + (i == 20 ? 0x80000000u : 0u);
  std::array<unsigned, 10> common{};
  common[1] = 0;
  common[2] = 1;
  common[5] = 0x7fffffff;
  common[6] = 0x80000000u;
  common[7] = 0xffffffffu;
  for (unsigned i = 0; i < 32; ++i) {
    common[0] |= (values[i] % 2) << i;
    common[1] |= values[i] == 7;
    common[2] &= values[i] < 100;
    common[4] += values[i];
    common[5] = static_cast<unsigned>(std::min<int>(common[5], static_cast<int>(values[i])));
    common[6] = static_cast<unsigned>(std::max<int>(common[6], static_cast<int>(values[i])));
    common[7] &= values[i];
    common[8] |= values[i];
    common[9] ^= values[i];
  }
  const auto results = votes(values);
  for (unsigned lane = 0; lane < 32; ++lane) {
    auto expected = common;
    for (unsigned i = 0; i < 32; ++i) expected[3] |= unsigned{values[i] == values[lane]} << i;
    CHECK(results[lane] == expected);
  }
}

TEST_CASE("parts of a warp shuffle among themselves") {
  const auto sums = uneven_groups();
  for (int lane = 0; lane < 32; ++lane) CHECK(sums[lane] == 28 * (lane / 8 + 1));
}

TEST_CASE("mma multiplies matrices of signed bytes") {
  const auto random = noise(16 * 32 + 32 * 8 + 16 * 8);
  auto next = random.begin();
  std::vector<std::int8_t> a(16 * 32), b(32 * 8);
  std::vector<int> c(16 * 8);
  for (auto& x : a) x = static_cast<std::int8_t>(*next++);
  for (auto& x : b) x = static_cast<std::int8_t>(*next++);
  for (auto& x : c) x = static_cast<int>(*next++ % 2000) - 1000;
  a[0] = b[0] = -128;
  std::vector<int> expected = c;
  for (int row = 0; row < 16; ++row)
    for (int col = 0; col < 8; ++col)
      for (int k = 0; k < 32; ++k) expected[row * 8 + col] += a[row * 32 + k] * b[k * 8 + col];
  CHECK(mma(a, b, c) == expected);
}

TEST_CASE("asynchronous copies arrive when they are waited for, zeros included") {
  const auto in = noise(64 * 4 * 7);
  for (const std::size_t valid : {in.size(), in.size() - 1, in.size() - 258, std::size_t{3}}) {
    auto expected = in;
    std::fill(expected.begin() + static_cast<std::ptrdiff_t>(valid), expected.end(), 0u);
    CHECK(pipelined_copy(in, valid) == expected);
  }
}

TEST_CASE("bit operations and dot products of bytes") {
  auto random = noise(64 * 3);
  random[0] = 0;
  random[3] = 1;
  random[6] = 0x80000000u;
  random[9] = random[10] = 0x80808080u;  // -128 four times
  std::vector<uint4> in(64);
  for (std::size_t i = 0; i < 64; ++i) {
    in[i] = make_uint4(random[3 * i], random[3 * i + 1], random[3 * i + 2], 0);
  }
  const auto results = bit_operations(in);
  for (std::size_t i = 0; i < 64; ++i) {
    const auto [x, y, z, w] = in[i];
    const std::uint64_t both = std::uint64_t{y} << 32 | x;
    unsigned count = 0, leading = 0, perm = 0;
    for (int bit = 0; bit < 32; ++bit) count += x >> bit & 1u;
    while (leading < 32 && (x >> (31 - leading) & 1u) == 0) ++leading;
    unsigned first = 0;
    while (first < 32 && (x >> first & 1u) == 0) ++first;
    int dot = 0;
    unsigned dot_unsigned = 0;
    for (int byte = 0; byte < 4; ++byte) {
      const unsigned choice = z >> (4 * byte) & 7u;
      perm |= (static_cast<unsigned>(both >> (8 * choice)) & 255u) << (8 * byte);
      dot += static_cast<std::int8_t>(x >> (8 * byte)) * static_cast<std::int8_t>(y >> (8 * byte));
      dot_unsigned += (x >> (8 * byte) & 255u) * (y >> (8 * byte) & 255u);
    }
    const auto high =
        static_cast<unsigned>(std::int64_t{static_cast<int>(x)} * static_cast<int>(y) >> 32);
    const std::array<unsigned, 11> expected = {count,
                                               leading,
                                               x == 0 ? 0 : first + 1,
                                               reversed(x),
                                               perm,
                                               static_cast<unsigned>(both << (z % 32) >> 32),
                                               static_cast<unsigned>(both >> (z % 32)),
                                               high,
                                               static_cast<unsigned>(std::uint64_t{x} * y >> 32),
                                               z + static_cast<unsigned>(dot),
                                               z + dot_unsigned};
    INFO("input " << i);
    CHECK(results[i] == expected);
    CHECK(w == 0);
  }
}

TEST_CASE("all halves as floats, and floats as halves") {
  const auto floats = floats_of_halves();
  for (unsigned i = 0; i < (1u << 16); ++i) {
    const unsigned expected = bits_from_float(float_from_half(static_cast<std::uint16_t>(i)));
    const bool is_nan = (i & 0x7fffu) > 0x7c00u;
    const bool ok = is_nan ? (floats[i] & 0x7fffffffu) > 0x7f800000u : floats[i] == expected;
    if (!ok) FAIL("half " << i << " gives " << floats[i]);
  }
  std::vector<float> in;
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 65521) {
    in.push_back(float_from_bits(static_cast<std::uint32_t>(bits)));
  }
  const auto halves = halves_of_floats(in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (halves[i] != half_from_float(in[i])) FAIL("float " << in[i] << " gives " << halves[i]);
  }
}

TEST_CASE("arithmetic has the host's bits") {
  std::vector<float> in;
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 65413) {
    in.push_back(float_from_bits(static_cast<std::uint32_t>(bits)));
  }
  for (float x = -127.5f; x <= 127.5f; x += 0.25f) in.push_back(x);
  const auto results = arithmetic(in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float x = in[i];
    const float y = in[in.size() - 1 - i];
    const std::array<float, 6> expected = {exp_f32(x), silu_f32(x), rsqrt_f32(x),
                                           x / y,      0.0f,        std::fmaf(x, y, x)};
    for (std::size_t k = 0; k < expected.size(); ++k) {
      if (k == 4) continue;
      const float got = float_from_bits(results[i][k]);
      const bool ok =
          expected[k] == expected[k] ? results[i][k] == bits_from_float(expected[k]) : got != got;
      if (!ok) FAIL("operation " << k << " of " << x << ", " << y << " gives " << got);
    }
    if (results[i][4] != static_cast<unsigned>(round_half_even_to_int(x, -127, 127))) {
      FAIL("rounding " << x << " gives " << static_cast<int>(results[i][4]));
    }
  }
}

TEST_CASE("lanes know their number") {
  const auto results = lanes(70);
  for (unsigned i = 0; i < 70; ++i) {
    CHECK(results[i] == std::array<unsigned, 2>{i % 32, (1u << i % 32) - 1});
  }
}

TEST_CASE("streaming loads load") {
  const auto random = noise(4 * 64);
  std::vector<uint4> in(64);
  std::memcpy(in.data(), random.data(), 64 * sizeof(uint4));
  const auto out = streamed(in);
  CHECK(std::memcmp(in.data(), out.data(), 64 * sizeof(uint4)) == 0);
}
