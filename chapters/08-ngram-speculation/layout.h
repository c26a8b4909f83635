// SPDX-License-Identifier: MIT
//
// Quantized matrices and vectors, as they lie in device memory.
#pragma once

#include <cstdint>

#include <minfer/math.h>

namespace minfer {

/// Activations in int8: every 32 values share a scale, so value i of a token is d[i / 32] * q[i].
struct QuantizedVector {
  std::int8_t* q;  ///< [T, n]
  float* d;        ///< [T, n/32]
};

/// Where word i of block b stands in a row of n_blocks blocks of eight words, for a warp whose
/// lanes take a block each: first every lane's word 0, then every lane's word 1, up to 7; the row's
/// last blocks may be fewer than a warp.
MINFER_HD constexpr std::uint32_t interleaved_word(std::uint32_t b, std::uint32_t i,
                                                   std::uint32_t n_blocks) {
  const std::uint32_t first = b / 32 * 32;
  const std::uint32_t width = n_blocks - first < 32 ? n_blocks - first : 32;
  return first * 8 + i * width + (b - first);
}

/// A Q8_0 matrix as a warp reads it: quants and scales apart, the quants' words interleaved.
struct MatrixQ8_0 {
  std::uint32_t rows, cols;
  std::int8_t* q;    ///< [rows, cols], a row as interleaved_word() says
  std::uint16_t* d;  ///< [rows, cols/32] fp16

  std::uint64_t bytes() const { return std::uint64_t{rows} * cols / 32 * 34; }
};

/// Activations in int16, as __dp4a takes them: every 32 values share a scale, and value i is
/// d[i / 32] * (256 * high + low), both of them int8: of four values the high bytes, then the low.
struct Int16Vector {
  std::int8_t* q;  ///< [T, n/4, 2, 4], interleaved
  float* d;        ///< [T, n/32]
};

}  // namespace minfer
