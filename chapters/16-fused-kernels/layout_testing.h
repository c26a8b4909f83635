// SPDX-License-Identifier: MIT
//
// How matrices and vectors are laid out, written a second time for the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

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

}  // namespace minfer
