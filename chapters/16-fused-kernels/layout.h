// SPDX-License-Identifier: MIT
//
// Quantized matrices and vectors, as they lie in device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include <minfer/math.h>

namespace minfer {

/// Where unit i of block b stands in a row of n_blocks blocks of kUnits units of 16 bytes, for a
/// warp whose lanes take a block each: first every lane's unit 0, then every lane's unit 1, and so
/// on; the row's last blocks may be fewer than a warp.
template <std::uint32_t kUnits>
MINFER_HD constexpr std::uint32_t interleaved(std::uint32_t b, std::uint32_t i,
                                              std::uint32_t n_blocks) {
  const std::uint32_t first = b / 32 * 32;
  const std::uint32_t width = n_blocks - first < 32 ? n_blocks - first : 32;
  return first * kUnits + i * width + (b - first);
}

/// A Q4_0 matrix as a warp reads it: a block's 16 bytes of nibbles are a unit, its scale stands
/// apart.
struct MatrixQ4_0 {
  std::uint32_t rows, cols;
  uint4* q;          ///< [rows, cols/32]
  std::uint16_t* d;  ///< [rows, cols/32] fp16

  std::uint64_t bytes() const { return std::uint64_t{rows} * cols / 32 * 18; }
};

/// Activations in int8: every 32 values share a scale, and are two units of 16.
struct QuantizedVector {
  std::int8_t* q;      ///< [T, n], interleaved<2>
  float* d;            ///< [T, n/32]
  std::int32_t* sums;  ///< [T, n/32] of 32 values of q
};

/// A Q8_0 matrix likewise, of two units a block.
struct MatrixQ8_0 {
  std::uint32_t rows, cols;
  std::int8_t* q;    ///< [rows, cols], a row interleaved<2>
  std::uint16_t* d;  ///< [rows, cols/32] fp16

  std::uint64_t bytes() const { return std::uint64_t{rows} * cols / 32 * 34; }
};

/// Activations in int16, as __dp4a takes them: every 32 values share a scale, and value i is
/// d[i / 32] * (256 * high + low), both of them int8: of four values the high bytes, then the low.
struct Int16Vector {
  std::int8_t* q;      ///< [T, n/4, 2, 4], interleaved<4>
  float* d;            ///< [T, n/32]
  std::int32_t* sums;  ///< [T, n/32] of 32 values, 256 * high + low
};

/// The rows that a block of qkv makes: four values of a head, and those that RoPE pairs them with.
inline constexpr std::uint32_t kQkvRows = 8;

/// Of W_q, W_k and W_v, one below the other, the row that stands at `place`: a block's lie
/// together.
inline std::uint32_t qkv_row(std::uint32_t place, std::uint32_t head_dim) {
  constexpr std::uint32_t kPairs = kQkvRows / 2;
  const std::uint32_t in_head = place % head_dim, tile = in_head / kQkvRows, i = place % kQkvRows;
  return place - in_head + tile * kPairs + i % kPairs + (i < kPairs ? 0 : head_dim / 2);
}

/// Of W_gate and W_up, one below the other, likewise: in turns, a value's two rows lie together.
inline std::uint32_t gate_up_row(std::uint32_t place, std::uint32_t d_ff) {
  return place / 2 + (place % 2 == 0 ? 0 : d_ff);
}

}  // namespace minfer
