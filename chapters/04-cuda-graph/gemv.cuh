// SPDX-License-Identifier: MIT
//
// The kernels that read quantized weights.
#pragma once

#include <type_traits>

#include <minfer/gguf/model.h>
#include <minfer/gguf/quant.h>

#include "cuda/reduce.h"
#include "cuda/step.h"

namespace minfer {

/// x[t] = table[ids[t]].
/// @why One thread a value: a row is a few KB, and nothing is gained by anything cleverer.
template <class Block>
__global__ void embed(float* x,                ///< out [T, d_model]
                      const Block* table,      ///< [n_vocab, d_model] blocks, row-major
                      const StepInput* input,  ///< [1]
                      std::uint32_t d_model) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
  if (i < d_model) {
    const Block* row = table + std::size_t(input->ids[t]) * (d_model / kBlockElements<Block>);
    x[t * d_model + i] = element(row, i);
  }
}

inline void launch_embed(const Step& s, float* x, const Matrix& table) {
  const std::uint64_t bytes = row_bytes(table.type, table.cols) + 4 * table.cols;
  visit_blocks(table.type, table.data, [&](const auto* blocks) {
    s.launch(embed<std::decay_t<decltype(*blocks)>>, ceil_div(table.cols, kThreads), kThreads,
             {s.n_tokens * bytes}, x, blocks, s.input, table.cols);
  });
}

/// y[t] = W x[t], one warp a row; a lane takes every 32nd weight.
/// @pre K % 32 == 0
/// @why The lane is the element's place in its run of 32, so a warp reads 128 bytes of x that lie
/// together, and 16 bytes of nibbles likewise. A row is short enough for one warp, whose sum needs
/// no shared memory and no barrier. x moves along: an index would be added up in 64 bits at every
/// load. On an H200 the 0.5B's gate takes 6.8 us where a block a row took 25.1; its down, of few
/// rows, 24.7 where it took 22.4.
template <class Block>
__global__ void gemv(float* y,        ///< out [T, M]
                     const Block* W,  ///< [M, K] blocks, row-major
                     const float* x,  ///< [T, K]
                     std::uint32_t M, std::uint32_t K) {
  const std::uint32_t m = blockIdx.x * kWarps + threadIdx.x / 32, t = blockIdx.y;
  const std::uint32_t lane = threadIdx.x % 32;
  if (m >= M) return;  // the whole warp
  const Block* row = W + std::size_t(m) * (K / kBlockElements<Block>);
  float sum = 0;
  x += t * K + lane;
  for (std::uint32_t i = lane; i < K; i += 32, x += 32) sum = fmaf(element(row, i), *x, sum);
  sum = warp_sum(sum);
  if (lane == 0) y[t * M + m] = sum;
}

inline void launch_gemv(const Step& s, float* y, const Matrix& W, const float* x) {
  const Traffic traffic = {W.bytes() + s.n_tokens * 4 * (std::uint64_t{W.rows} + W.cols)};
  visit_blocks(W.type, W.data, [&](const auto* blocks) {
    s.launch(gemv<std::decay_t<decltype(*blocks)>>, ceil_div(W.rows, kWarps), kThreads, traffic, y,
             blocks, x, W.rows, W.cols);
  });
}

}  // namespace minfer
