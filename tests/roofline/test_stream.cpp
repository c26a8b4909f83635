// SPDX-License-Identifier: MIT
// The streaming kernels against what they should read: in the emulator and on a GPU.
#include "stream.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "catch.h"
#include "cuda/buffer.h"
#include "cuda/device.h"
#include "cuda/stream.h"

namespace {

using minfer::DeviceBuffer;
using minfer::StreamShape;

/// Ends the program as skipped where there is no GPU; the emulator always has one.
const bool kHasGpu = [] {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
  std::puts("skipped: no GPU");
  std::exit(77);
}();

std::uint32_t sum_read(const DeviceBuffer<uint4>& buffer, std::size_t first, std::size_t n,
                       const StreamShape& shape) {
  minfer::Stream stream;
  DeviceBuffer<std::uint32_t> device(static_cast<std::size_t>(shape.ctas));
  minfer::stream_read(device.data(), buffer.data() + first, n, shape, stream);
  std::vector<std::uint32_t> sums(device.size());
  device.download(sums.data(), sums.size(), stream);
  return std::accumulate(sums.begin(), sums.end(), std::uint32_t{0});
}

DeviceBuffer<uint4> patterned(std::size_t n) {
  minfer::Stream stream;
  DeviceBuffer<uint4> buffer(n);
  minfer::fill_pattern(buffer.data(), n, 0, stream);
  stream.synchronize();
  return buffer;
}

}  // namespace

TEST_CASE("pattern_sum is the sum of pattern_word") {
  std::uint32_t sum = 0;
  for (std::size_t n = 0; n < 100; ++n) {
    CHECK(minfer::pattern_sum(n) == sum);
    sum += minfer::pattern_word(n);
  }
}

TEST_CASE("pattern_sum of more words than 32 bits count") {
  // The sum from 0 to a + b - 1 is the sum to a - 1, and b words that are each a steps further on.
  const std::size_t a = (std::size_t{1} << 32) + 12345;
  for (const std::size_t b : {1, 2, 3, 1000}) {
    std::uint32_t expected = minfer::pattern_sum(a);
    for (std::size_t i = 0; i < b; ++i) expected += minfer::pattern_word(a + i);
    CHECK(minfer::pattern_sum(a + b) == expected);
  }
}

TEST_CASE("fill_pattern writes each word's own value, from any first index on") {
  const std::size_t n = 3 * 256 + 7;
  for (const std::size_t first : {std::size_t{0}, std::size_t{12345}, (std::size_t{1} << 32) - 5}) {
    minfer::Stream stream;
    DeviceBuffer<uint4> buffer(n + 1);
    buffer.zero(stream);
    minfer::fill_pattern(buffer.data(), n, first, stream);
    std::vector<uint4> words(n + 1);
    buffer.download(words.data(), n + 1, stream);
    for (std::size_t i = 0; i < n; ++i) {
      REQUIRE(words[i].x == minfer::pattern_word(first + 4 * i));
      REQUIRE(words[i].y == minfer::pattern_word(first + 4 * i + 1));
      REQUIRE(words[i].z == minfer::pattern_word(first + 4 * i + 2));
      REQUIRE(words[i].w == minfer::pattern_word(first + 4 * i + 3));
    }
    CHECK((words[n].x | words[n].y | words[n].z | words[n].w) == 0);  // and nothing behind them
  }
}

TEST_CASE("stream_read reads every word once, whatever the shape") {
  const DeviceBuffer<uint4> buffer = patterned(40000);
  for (const int loads : minfer::kLoadsInFlight) {
    const std::size_t tile = static_cast<std::size_t>(loads) * minfer::kStreamThreads;
    for (const int ctas : {1, 3, 8}) {
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, tile - 1, tile, tile + 1,
                                  2 * tile, 3 * tile + 5, 8 * tile, 9 * tile - 1}) {
        CAPTURE(loads, ctas, n);
        CHECK(sum_read(buffer, 0, n, {ctas, loads, false}) == minfer::pattern_sum(4 * n));
      }
    }
  }
}

TEST_CASE("stream_read reads from where it is told") {
  const DeviceBuffer<uint4> buffer = patterned(5000);
  for (const std::size_t first : {1, 777, 2048}) {
    const std::uint32_t expected =
        minfer::pattern_sum(4 * (first + 2000)) - minfer::pattern_sum(4 * first);
    CHECK(sum_read(buffer, first, 2000, {4, 4, false}) == expected);
  }
}

TEST_CASE("stream_read with one CTA an SM reads the same") {
  const int sms = minfer::Device::current().sm_count;
  const DeviceBuffer<uint4> buffer = patterned(20001);
  for (const int ctas : {1, 2, sms}) {
    CHECK(sum_read(buffer, 0, 20001, {ctas, 8, true}) == minfer::pattern_sum(4 * 20001));
  }
}

TEST_CASE("a missed word shows") {
  const DeviceBuffer<uint4> buffer = patterned(1000);
  CHECK(sum_read(buffer, 0, 999, {2, 2, false}) != minfer::pattern_sum(4 * 1000));
  CHECK(sum_read(buffer, 1, 1000 - 1, {2, 2, false}) != minfer::pattern_sum(4 * 999));
}

TEST_CASE("shapes that there are not are refused") {
  const DeviceBuffer<uint4> buffer = patterned(16);
  DeviceBuffer<std::uint32_t> sums(1);
  minfer::Stream stream;
  CHECK_THROWS_WITH(minfer::stream_read(sums.data(), buffer.data(), 16, {1, 3, false}, stream),
                    ContainsSubstring("loads in flight: 3; expected 1, 2, 4, 8 or 16"));
  CHECK_THROWS_WITH(minfer::stream_read(sums.data(), buffer.data(), 16, {0, 4, false}, stream),
                    ContainsSubstring("a grid of 0 CTAs"));
}

TEST_CASE("an SM holds at least one CTA of every kind") {
  for (const int loads : minfer::kLoadsInFlight) CHECK(minfer::ctas_that_fit_an_sm(loads) >= 1);
  CHECK_THROWS_AS(minfer::ctas_that_fit_an_sm(5), std::invalid_argument);
}
