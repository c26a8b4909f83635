// SPDX-License-Identifier: MIT
//
// How matrices and vectors are laid out, written a second time for the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "cuda/arena.h"
#include "gemv.cuh"
#include "gguf/builder.h"
#include "gguf/memory_file.h"
#include "kernel_testing.h"
#include "layout.h"

namespace minfer {

/// The units of a row of n values, 16 bytes each and so many a block, in the order in which a warp
/// reads them.
inline std::vector<std::uint32_t> interleaved_units(std::uint32_t n, std::uint32_t units) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t first = 0; first < n / 32; first += 32) {
    for (std::uint32_t i = 0; i < units; ++i) {
      for (std::uint32_t b = first; b < std::min(first + 32, n / 32); ++b) {
        order.push_back(b * units + i);
      }
    }
  }
  return order;
}

/// Rows of n values with their units in that order.
inline std::vector<std::int8_t> rearranged(const std::vector<std::int8_t>& bytes, std::uint32_t n,
                                           std::uint32_t units) {
  std::vector<std::int8_t> result;
  const std::vector<std::uint32_t> order = interleaved_units(n, units);
  for (auto row = bytes.begin(); row != bytes.end(); row += 16 * order.size()) {
    for (const std::uint32_t unit : order) {
      result.insert(result.end(), row + 16 * unit, row + 16 * unit + 16);
    }
  }
  return result;
}

/// A vector with another from an element on.
template <class T>
std::vector<T> overwritten(std::vector<T> whole, std::size_t from, const std::vector<T>& part) {
  std::copy(part.begin(), part.end(), whole.begin() + from);
  return whole;
}

/// The sum of each 32.
inline std::vector<std::int32_t> sums_of_runs(const std::vector<std::int8_t>& q) {
  std::vector<std::int32_t> sums(q.size() / 32);
  for (std::size_t i = 0; i < q.size(); ++i) sums[i / 32] += q[i];
  return sums;
}

/// Activations in int8 on the device.
struct DeviceQuantized {
  explicit DeviceQuantized(std::size_t n) : q(n), d(n / 32), sums(n / 32) {}
  /// @param n  values of a token
  DeviceQuantized(const HostQuantized& x, std::uint32_t n)
      : q(to_device(rearranged(x.q, n, 2))),
        d(to_device(x.d)),
        sums(to_device(sums_of_runs(x.q))) {}
  QuantizedVector vector() { return {q.data(), d.data(), sums.data()}; }
  std::uint64_t bytes() const { return q.bytes() + d.bytes() + sums.bytes(); }
  DeviceBuffer<std::int8_t> q;
  DeviceBuffer<float> d;
  DeviceBuffer<std::int32_t> sums;
};

/// They have the bits of the quantization of x, [T, n].
inline void require_quantized(const Stream& stream, const DeviceQuantized& found,
                              const std::vector<float>& x, std::uint32_t n) {
  const HostQuantized expected(x);
  REQUIRE(to_host(stream, found.q) == rearranged(expected.q, n, 2));
  REQUIRE(to_host(stream, found.d) == expected.d);
  REQUIRE(to_host(stream, found.sums) == sums_of_runs(expected.q));
}

/// A matrix of Q4_0 blocks as upload_q4_0 lays it out.
struct DeviceQ4_0 {
  DeviceQ4_0(const TestMatrix& from, Shape shape) {
    std::vector<uint4> nibbles;
    std::vector<std::uint16_t> scales;
    for (std::size_t i = 0; i < from.bytes.size(); i += sizeof(BlockQ4_0)) {
      BlockQ4_0 block;
      std::memcpy(&block, &from.bytes[i], sizeof block);
      nibbles.emplace_back();
      std::memcpy(&nibbles.back(), block.qs, 16);
      scales.push_back(block.d);
    }
    q = to_device(nibbles);
    d = to_device(scales);
    matrix = {shape.rows, shape.cols, q.data(), d.data()};
  }
  DeviceBuffer<uint4> q;
  DeviceBuffer<std::uint16_t> d;
  MatrixQ4_0 matrix;
};

/// Some matrices as upload_q4_0 leaves them.
struct UploadedQ4_0 {
  template <class RowAt>
  UploadedQ4_0(const std::vector<Matrix>& from, RowAt row_at) {
    const test::MemoryFile file;  // a model, whose file none of the matrices is from
    file.write(test::small_model().build());
    const Model model = Model::load(file.path());
    Arena size;
    upload_q4_0(size, model, from, row_at);
    arena = Arena(size.used());
    matrix = upload_q4_0(arena, model, from, row_at);
    CUDA_CHECK(cudaDeviceSynchronize());
  }
  Arena arena;
  MatrixQ4_0 matrix;
};

/// W x[t], [T, rows], added up as a warp does it: a lane takes every 32nd block, and then adds the
/// lane's that is 16 on, 8 on, down to 1.
inline std::vector<float> warp_gemv(const TestMatrix& w, const HostQuantized& x) {
  const std::uint32_t n_blocks = w.host.cols / 32;
  const auto* blocks = reinterpret_cast<const BlockQ4_0*>(w.bytes.data());
  std::vector<float> y;
  for (std::size_t run = 0; run < x.d.size(); run += n_blocks) {
    for (std::uint32_t m = 0; m < w.host.rows; ++m) {
      float lanes[32] = {};
      for (std::uint32_t b = 0; b < n_blocks; ++b) {
        const BlockQ4_0& block = blocks[m * n_blocks + b];
        const std::int8_t* x_q = &x.q[(run + b) * 32];
        int sum = 0;
        for (std::uint32_t i = 0; i < 16; ++i) {
          sum += (block.qs[i] % 16 - 8) * x_q[i] + (block.qs[i] / 16 - 8) * x_q[i + 16];
        }
        const float scale = float_from_half(block.d) * x.d[run + b];
        lanes[b % 32] = fmaf(scale, static_cast<float>(sum), lanes[b % 32]);
      }
      for (std::uint32_t distance = 16; distance > 0; distance /= 2) {
        for (std::uint32_t i = 0; i < distance; ++i) lanes[i] += lanes[i + distance];
      }
      y.push_back(lanes[0]);
    }
  }
  return y;
}

}  // namespace minfer
