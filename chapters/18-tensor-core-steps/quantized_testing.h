// SPDX-License-Identifier: MIT
//
// What quantized activations stand for, written a second time for the tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include <minfer/threads.h>

#include "kernel_testing.h"
#include "memory.h"
#include "quantize.cuh"

namespace minfer {

constexpr std::uint32_t kGrids[] = {1, 2, 8};  ///< CTAs

/// The values that whole numbers stand for.
template <std::uint32_t N>
std::vector<float> values_of(const Int8<N>& y) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < N; ++i) {
    const auto* unit =
        reinterpret_cast<const std::int8_t*>(&y.q[interleaved<2>(i / 32, i % 32 / 16, N / 32)]);
    values.push_back(y.d[i / 32] * static_cast<float>(unit[i % 16]));
  }
  return values;
}
template <std::uint32_t N>
std::vector<float> values_of(const Int16<N>& y) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < N; ++i) {
    const auto* unit =
        reinterpret_cast<const std::int8_t*>(&y.q[interleaved<4>(i / 32, i % 32 / 8, N / 32)]);
    const std::int8_t* word = unit + i % 8 / 4 * 8 + i % 4;
    values.push_back(y.d[i / 32] * static_cast<float>(256 * word[0] + word[4]));
  }
  return values;
}

/// W x, added up as a warp does it that has a row for itself: a lane takes every 32nd block, and
/// then adds the lane's that is 16 on, 8 on, down to 1.
inline std::vector<float> warp_gemv(const TestMatrix& w, const HostQuantized& x) {
  const std::uint32_t n_blocks = w.host.cols / 32;
  const auto* blocks = reinterpret_cast<const BlockQ4_0*>(w.bytes.data());
  std::vector<float> y;
  for (std::uint32_t m = 0; m < w.host.rows; ++m) {
    float lanes[32] = {};
    for (std::uint32_t b = 0; b < n_blocks; ++b) {
      const BlockQ4_0& block = blocks[m * n_blocks + b];
      int sum = 0;
      for (std::uint32_t i = 0; i < 16; ++i) {
        sum += (block.qs[i] % 16 - 8) * x.q[b * 32 + i];
        sum += (block.qs[i] / 16 - 8) * x.q[b * 32 + i + 16];
      }
      const float scale = float_from_half(block.d) * x.d[b];
      lanes[b % 32] = fmaf(scale, static_cast<float>(sum), lanes[b % 32]);
    }
    for (std::uint32_t distance = 16; distance > 0; distance /= 2) {
      for (std::uint32_t i = 0; i < distance; ++i) lanes[i] += lanes[i + distance];
    }
    y.push_back(lanes[0]);
  }
  return y;
}

/// Activations as the kernels have them.
template <std::uint32_t N>
Int8<N> on_device(const HostQuantized& x) {
  Int8<N> y;
  for (std::uint32_t b = 0; b < N / 32; ++b) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      std::memcpy(&y.q[interleaved<2>(b, i, N / 32)], &x.q[b * 32 + i * 16], 16);
    }
    y.d[b] = x.d[b];
    y.sums[b] = std::accumulate(&x.q[b * 32], &x.q[b * 32] + 32, 0);
  }
  return y;
}

/// Rows of a matrix as a CTA's warps read them that has all units of a stage.
class PackedRows {
 public:
  template <class S, Stage kStage>
  struct Of {};

  template <class S, Stage kStage>
  PackedRows(const TestMatrix& w, Of<S, kStage>) {
    using U = Units<S, kStage>;
    ThreadPool pool(1);
    const Rows rows({w.host}, pool);
    std::vector<unsigned char> bytes;
    std::vector<WarpBatches> warps;
    const Range all = {0, U::kCount};
    for (std::uint32_t warp = 0; warp < kCtaWarps; ++warp) {
      const std::uint32_t n = warps_tiles<S, kStage>(all, warp);
      const std::size_t first = bytes.size();
      warps.push_back(
          {static_cast<std::uint32_t>(first / kBatchBytes), ceil_div(n, kBatchTiles), 0});
      bytes.resize(first + warps.back().of_layers * kBatchBytes);
      unsigned char* end = pack_units<S, kStage>(bytes.data() + first, rows, all, warp);
      REQUIRE(end == bytes.data() + first + n * kTileBytes);
    }
    bytes_ = to_device(bytes);
    warps_ = to_device(warps);
  }
  PackedWeights weights() const { return {bytes_.data(), warps_.data()}; }

 private:
  DeviceBuffer<unsigned char> bytes_{0};
  DeviceBuffer<WarpBatches> warps_{0};
};

}  // namespace minfer
