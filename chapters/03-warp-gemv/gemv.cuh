// SPDX-License-Identifier: MIT
//
// The kernels that read quantized weights.
#pragma once

#include <type_traits>

#include <minfer/gguf/model.h>

#include "cuda/dequantize.h"
#include "reduce.cuh"

namespace minfer {

/// x = the embedding of one token.
/// @param[out] x        [d_model] f32
/// @param[in]  table    [n_vocab, d_model] blocks of any type, row-major
/// @param[in]  token    below n_vocab
/// @param[in]  d_model  a multiple of the block's elements
/// @launch{grid ceil(d_model/128)\, block 128}
/// @traffic{one row read\, 4*d_model written}
/// @why{One thread a value: a row is a few KB\, and nothing is gained by anything cleverer.}
template <class Block>
__global__ void embed(float* x,            // [d_model]
                      const Block* table,  // [n_vocab, d_model]
                      Token token,         //
                      std::uint32_t d_model) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= d_model) return;
  const Block* row = table + std::size_t(token) * (d_model / kBlockElements<Block>);
  x[i] = element(row, i);
}

inline void launch_embed(cudaStream_t stream, float* x, const Matrix& table, Token token) {
  visit_blocks(table.type, table.data, [&](const auto* blocks) {
    launch(embed<std::decay_t<decltype(*blocks)>>, ceil_div(table.cols, kThreads), kThreads, 0,
           stream, x, blocks, token, table.cols);
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

}  // namespace minfer
