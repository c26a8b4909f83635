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

/// y[t] = W x[t], one block a row; a thread takes every 128th run of 32 weights.
/// @pre K % 32 == 0
/// @why The loop of the CPU, with its rows dealt to blocks: the simplest thing that is parallel. It
/// is slow in two ways, and both are the next chapter's subject. A row of 1536 has 48 runs, so 80
/// of 128 threads have nothing to do; and neighbouring threads read x 128 bytes apart.
template <class Block>
__global__ void gemv(float* y,        ///< out [T, M]
                     const Block* W,  ///< [M, K] blocks, row-major
                     const float* x,  ///< [T, K]
                     std::uint32_t M, std::uint32_t K) {
  const std::uint32_t m = blockIdx.x, t = blockIdx.y;
  const Block* row = W + std::size_t(m) * (K / kBlockElements<Block>);
  float sum = 0;
  for (std::uint32_t run = threadIdx.x; run < K / 32; run += kThreads) {
    for (std::uint32_t i = run * 32; i < run * 32 + 32; ++i)
      sum = fmaf(element(row, i), x[t * K + i], sum);
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) y[t * M + m] = sum;
}

inline void launch_gemv(const Step& s, float* y, const Matrix& W, const float* x) {
  const Traffic traffic = {W.bytes() + s.n_tokens * 4 * (std::uint64_t{W.rows} + W.cols)};
  visit_blocks(W.type, W.data, [&](const auto* blocks) {
    s.launch(gemv<std::decay_t<decltype(*blocks)>>, W.rows, kThreads, traffic, y, blocks, x, W.rows,
             W.cols);
  });
}

}  // namespace minfer
