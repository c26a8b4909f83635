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

/// y = W x, one block a row; a thread takes every 128th run of 32 weights.
/// @param[out] y  [M] f32
/// @param[in]  W  [M, K] blocks of any type, row-major
/// @param[in]  x  [K] f32
/// @param[in]  K  a multiple of 32
/// @launch{grid M\, block 128}
/// @traffic{W and 4*K read\, 4*M written}
/// @why{The loop of the CPU\, with its rows dealt to blocks: the simplest thing that is parallel.
///      It is slow in two ways\, and both are the next chapter's subject. A row of 1536 has 48
///      runs\, so 80 of 128 threads have nothing to do; and neighbouring threads read x 128 bytes
///      apart.}
template <class Block>
__global__ void gemv(float* y,        // [M]
                     const Block* W,  // [M, K]
                     const float* x,  // [K]
                     std::uint32_t K) {
  const Block* row = W + std::size_t(blockIdx.x) * (K / kBlockElements<Block>);
  float sum = 0;
  for (std::uint32_t run = threadIdx.x; run < K / 32; run += kThreads) {
    for (std::uint32_t i = run * 32; i < run * 32 + 32; ++i) sum = fmaf(element(row, i), x[i], sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

inline void launch_gemv(cudaStream_t stream, float* y, const Matrix& W, const float* x) {
  visit_blocks(W.type, W.data, [&](const auto* blocks) {
    launch(gemv<std::decay_t<decltype(*blocks)>>, W.rows, kThreads, 0, stream, y, blocks, x,
           W.cols);
  });
}

constexpr std::uint64_t gemv_traffic(std::uint64_t matrix_bytes, std::uint64_t M, std::uint64_t K) {
  return matrix_bytes + 4 * K + 4 * M;
}

}  // namespace minfer
