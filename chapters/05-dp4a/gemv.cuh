// SPDX-License-Identifier: MIT
//
// The kernels that read quantized weights.
#pragma once

#include <type_traits>

#include <minfer/gguf/model.h>

#include "cuda/dequantize.h"
#include "engine.h"
#include "reduce.cuh"

namespace minfer {

/// x = the embedding of the token at this position.
/// @param[out] x         [d_model] f32
/// @param[in]  table     [n_vocab, d_model] blocks of any type, row-major
/// @param[in]  ids       [context + 1] the sequence
/// @param[in]  position  [1] below context
/// @param[in]  d_model   a multiple of the block's elements
/// @launch{grid ceil(d_model/128)\, block 128}
/// @traffic{one row read\, 4*d_model written}
/// @why{One thread a value: a row is a few KB\, and nothing is gained by anything cleverer.}
template <class Block>
__global__ void embed(float* x,                       // [d_model]
                      const Block* table,             // [n_vocab, d_model]
                      const Token* ids,               // [context + 1]
                      const std::uint32_t* position,  // [1]
                      std::uint32_t d_model) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= d_model) return;
  const Block* row = table + std::size_t(ids[*position]) * (d_model / kBlockElements<Block>);
  x[i] = element(row, i);
}

inline void launch_embed(cudaStream_t stream, float* x, const Matrix& table, const Token* ids,
                         const std::uint32_t* position) {
  visit_blocks(table.type, table.data, [&](const auto* blocks) {
    launch(embed<std::decay_t<decltype(*blocks)>>, ceil_div(table.cols, kThreads), kThreads, 0,
           stream, x, blocks, ids, position, table.cols);
  });
}

constexpr std::uint64_t embed_traffic(std::uint64_t row_bytes, std::uint64_t d_model) {
  return row_bytes + 4 * d_model;
}

/// y = W x, one warp a row; a lane takes every 32nd weight.
/// @param[out] y  [M] f32
/// @param[in]  W  [M, K] blocks of any type, row-major
/// @param[in]  x  [K] f32
/// @param[in]  M  rows
/// @param[in]  K  a multiple of 32
/// @launch{grid ceil(M/4)\, block 128}
/// @traffic{W and 4*K read\, 4*M written}
/// @why{The lane is the element's place in its run of 32\, so a warp reads 128 bytes of x that lie
///      together\, and 16 bytes of nibbles likewise. A row is short enough for one warp\, whose sum
///      needs no shared memory and no barrier. On an H200 the 0.5B's gate takes 7.7 us where a
///      block a row took 25.1\; its down\, of few rows\, 29.4 where it took 22.3.}
template <class Block>
__global__ void gemv(float* y,         // [M]
                     const Block* W,   // [M, K]
                     const float* x,   // [K]
                     std::uint32_t M,  //
                     std::uint32_t K) {
  const std::uint32_t m = blockIdx.x * kWarps + threadIdx.x / 32;
  const std::uint32_t lane = threadIdx.x % 32;
  if (m >= M) return;  // the whole warp
  const Block* row = W + std::size_t(m) * (K / kBlockElements<Block>);
  float sum = 0;
  for (std::uint32_t i = lane; i < K; i += 32) sum = fmaf(element(row, i), x[i], sum);
  sum = warp_sum(sum);
  if (lane == 0) y[m] = sum;
}

inline void launch_gemv(cudaStream_t stream, float* y, const Matrix& W, const float* x) {
  visit_blocks(W.type, W.data, [&](const auto* blocks) {
    launch(gemv<std::decay_t<decltype(*blocks)>>, ceil_div(W.rows, kWarps), kThreads, 0, stream, y,
           blocks, x, W.rows, W.cols);
  });
}

constexpr std::uint64_t gemv_traffic(std::uint64_t matrix_bytes, std::uint64_t M, std::uint64_t K) {
  return matrix_bytes + 4 * K + 4 * M;
}

/// d = max |x| / 127 over each run of 32, q = x / d rounded to nearest, half to even.
/// @param[out] q  [n] int8
/// @param[out] d  [n/32] f32
/// @param[in]  x  [n] f32
/// @param[in]  n  a multiple of 32
/// @launch{grid ceil(n/128)\, block 128}
/// @traffic{4*n read\, n + n/8 written}
/// @why{A run is a warp\, its maximum five shuffles. The scale stays fp32: it is one in 32 values\,
///      and rounding it to fp16 would put an error on all of them.}
__global__ void quantize(std::int8_t* q,  // [n]
                         float* d,        // [n/32]
                         const float* x,  // [n]
                         std::uint32_t n) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;  // the whole warp
  const float scale = warp_max(fabsf(x[i])) / 127.0f;
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  q[i] = static_cast<std::int8_t>(round_half_even_to_int(x[i] * inverse, -127, 127));
  // A NaN loses every comparison and rounds to 0. It is an error, so it has to reach the logits.
  const bool has_nan = __any_sync(0xffffffffu, x[i] != x[i]);
  if (i % 32 == 0) d[i / 32] = has_nan ? NAN : scale;
}

inline void launch_quantize(cudaStream_t stream, const QuantizedVector& y, const float* x,
                            std::uint32_t n) {
  launch(quantize, ceil_div(n, kThreads), kThreads, 0, stream, y.q, y.d, x, n);
}

constexpr std::uint64_t quantize_traffic(std::uint64_t n) {
  return 4 * n + n + n / 8;
}

/// Four nibbles, each less 8, as the four signed bytes of a word.
__device__ inline int unpack_nibbles(const std::uint8_t* qs, int shift) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    const int value = ((qs[i] >> shift) & 15) - 8;
    word |= static_cast<std::uint32_t>(value & 255) << (8 * i);
  }
  return static_cast<int>(word);
}

/// y = W x with both in small integers, one warp a row, a lane a block: each block's dot product is
/// exact in int32, and is scaled once.
/// @param[out] y    [M] f32
/// @param[in]  W    [M, K/32] BlockQ4_0 of 18 B, row-major
/// @param[in]  x_q  [K] int8
/// @param[in]  x_d  [K/32] f32
/// @param[in]  M    rows
/// @param[in]  K    a multiple of 32
/// @launch{grid ceil(M/4)\, block 128}
/// @traffic{M*K/32*18 + K + K/8 read\, 4*M written}
/// @why{A block is 8 __dp4a of four products each where it was 32 multiplications of dequantized
///      weights\, and its 32 activations are 32 bytes where they were 128. On an H200 the 0.5B's
///      down takes 4.7 us\, in fp32 29.3.}
__global__ void gemv_q4_0(float* y,                // [M]
                          const BlockQ4_0* W,      // [M, K/32]
                          const std::int8_t* x_q,  // [K]
                          const float* x_d,        // [K/32]
                          std::uint32_t M,         //
                          std::uint32_t K) {
  const std::uint32_t m = blockIdx.x * kWarps + threadIdx.x / 32;
  const std::uint32_t lane = threadIdx.x % 32;
  if (m >= M) return;  // the whole warp
  const BlockQ4_0* row = W + std::size_t(m) * (K / 32);
  float sum = 0;
  for (std::uint32_t b = lane; b < K / 32; b += 32) {
    const int* x = reinterpret_cast<const int*>(x_q + b * 32);
    int dot = 0;
    for (int i = 0; i < 4; ++i) {
      dot = __dp4a(unpack_nibbles(row[b].qs + 4 * i, 0), x[i], dot);
      dot = __dp4a(unpack_nibbles(row[b].qs + 4 * i, 4), x[i + 4], dot);
    }
    sum = fmaf(float_from_half(row[b].d) * x_d[b], static_cast<float>(dot), sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) y[m] = sum;
}

/// @pre W is Q4_0
inline void launch_gemv_q4_0(cudaStream_t stream, float* y, const Matrix& W,
                             const QuantizedVector& x) {
  launch(gemv_q4_0, ceil_div(W.rows, kWarps), kThreads, 0, stream, y,
         reinterpret_cast<const BlockQ4_0*>(W.data), x.q, x.d, W.rows, W.cols);
}

constexpr std::uint64_t gemv_q4_0_traffic(std::uint64_t M, std::uint64_t K) {
  return M * K / 32 * 18 + K + K / 8 + 4 * M;
}

}  // namespace minfer
