// SPDX-License-Identifier: MIT
//
// What quantized activations stand for, written a second time for the tests.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace minfer
