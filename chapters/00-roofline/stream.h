// SPDX-License-Identifier: MIT
//
// Reading a buffer once, as fast as the GPU's memory gives it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <minfer/math.h>

namespace minfer {

/// Threads of a CTA.
inline constexpr int kStreamThreads = 256;

/// How many 16-byte loads a thread may have under way before it uses the first: the choices.
inline constexpr std::array<int, 5> kLoadsInFlight = {1, 2, 4, 8, 16};

/// How a read is spread over the GPU.
struct StreamShape {
  int ctas = 1;
  int loads_in_flight = 1;  ///< one of kLoadsInFlight
  /// Lets a CTA take so much shared memory that no second one fits on its SM.
  bool one_cta_an_sm = false;
};

/// The 32-bit word that the buffer has at `index`.
MINFER_HD constexpr std::uint32_t pattern_word(std::size_t index) {
  return static_cast<std::uint32_t>(index) * 2654435761u;
}

/// The sum of pattern_word(0) to pattern_word(count - 1) modulo 2^32. Both factors of
/// count (count - 1) / 2 wrap, so the even one is halved first.
constexpr std::uint32_t pattern_sum(std::size_t count) {
  if (count == 0) return 0;
  const std::size_t even = count % 2 == 0 ? count : count - 1;
  const std::size_t odd = count % 2 == 0 ? count - 1 : count;
  return pattern_word(1) * static_cast<std::uint32_t>(even / 2) * static_cast<std::uint32_t>(odd);
}

/// The most CTAs of that many loads in flight that an SM holds at once.
/// @throws CudaError @throws std::invalid_argument if the number is not one of kLoadsInFlight
int ctas_that_fit_an_sm(int loads_in_flight);

/// Sets words[i] = pattern_word(first + i) for n 16-byte words (4 n words of 32 bits), on the GPU.
/// @param words [n] uint4 on the device
/// @param first index of the first 32-bit word
/// @throws CudaError
void fill_pattern(uint4* words, std::size_t n, std::size_t first, cudaStream_t stream);

/// Reads n 16-byte words once and leaves what each CTA has summed up.
/// @param sums  [shape.ctas] u32 on the device, modulo 2^32
/// @param words [n] uint4 on the device
/// @throws CudaError @throws std::invalid_argument for a shape that there is not
void stream_read(std::uint32_t* sums, const uint4* words, std::size_t n, const StreamShape& shape,
                 cudaStream_t stream);

}  // namespace minfer
