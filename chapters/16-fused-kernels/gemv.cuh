// SPDX-License-Identifier: MIT
//
// Embedding, the file's head in fp32, and what the fused kernels share: matrices as they are
// uploaded, vectors as they are quantized.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include <minfer/gguf/model.h>
#include <minfer/gguf/quant.h>
#include <minfer/threads.h>

#include "cuda/arena.h"
#include "cuda/ptx.h"
#include "cuda/reduce.h"
#include "cuda/step.h"
#include "layout.h"

namespace minfer {

/// x[t] = table[ids[t]].
/// @why One thread a value: a row is a few KB, and nothing is gained by anything cleverer.
template <class Block>
__global__ void embed(float* x,                ///< out [T, d_model]
                      const Block* table,      ///< [n_vocab, d_model] blocks, row-major
                      const StepInput* input,  ///< [1]
                      std::uint32_t d_model) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
  let_next_kernel_begin();
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

/// What takes a run of 32 values to whole numbers up to a largest, and back.
struct RunScale {
  float d;        ///< value = d * number; NaN if a value is
  float inverse;  ///< 0 where d is
};

/// @param x  the lane's value of the run. @pre every lane of the warp calls it
__device__ inline RunScale scale_of_run(float x, float largest) {
  const float d = warp_max(fabsf(x)) / largest;
  // A NaN loses every comparison and rounds to 0. It is an error, so it has to reach the logits.
  return {__any_sync(0xffffffffu, x != x) ? NAN : d, d > 0 ? 1.0f / d : 0.0f};
}

/// Quantizes the value i of token t, of n: d = max |x| / 127 over its run of 32, q = x / d rounded
/// to nearest, half to even. @pre a warp's lanes have a run
__device__ inline void quantize(const QuantizedVector& y, std::uint32_t t, std::uint32_t n,
                                std::uint32_t i, float x) {
  const RunScale scale = scale_of_run(x, 127.0f);
  const std::int32_t value = round_half_even_to_int(x * scale.inverse, -127, 127);
  const std::int32_t sum = warp_sum(value);
  y.q[t * n + interleaved<2>(i / 32, i % 32 / 16, n / 32) * 16 + i % 16] =
      static_cast<std::int8_t>(value);
  if (i % 32 == 0) {
    y.d[(t * n + i) / 32] = scale.d;
    y.sums[(t * n + i) / 32] = sum;
  }
}

/// Matrices on the device in Q4_0, one below the other, requantized where they are in another
/// format. @param row_at  which of their rows stands at a place
template <class RowAt>
MatrixQ4_0 upload_q4_0(Arena& arena, const Model& model, const std::vector<Matrix>& from,
                       RowAt row_at) {
  const std::uint32_t n_blocks = from[0].cols / 32;
  std::uint32_t n_rows = 0;
  for (const Matrix& m : from) n_rows += m.rows;
  const MatrixQ4_0 w = {n_rows, from[0].cols, arena.take<uint4>(n_rows, n_blocks),
                        arena.take<std::uint16_t>(n_rows, n_blocks)};
  if (!arena.is_placed()) return w;
  ThreadPool pool(0);
  std::vector<BlockQ4_0> blocks;
  for (const Matrix& m : from) {
    const std::vector<std::byte> bytes = requantized(m, TensorType::kQ4_0, pool);
    const auto* first = reinterpret_cast<const BlockQ4_0*>(bytes.data());
    blocks.insert(blocks.end(), first, first + std::size_t(m.rows) * n_blocks);
    model.release(m);
  }
  std::vector<uint4> q(blocks.size());
  std::vector<std::uint16_t> d(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const BlockQ4_0& block = blocks[row_at(i / n_blocks) * std::size_t(n_blocks) + i % n_blocks];
    std::memcpy(&q[i], block.qs, sizeof q[i]);
    d[i] = block.d;
  }
  arena.copy(w.q, q);
  arena.copy(w.d, d);
  return w;
}

/// One matrix as it is.
inline MatrixQ4_0 upload_q4_0(Arena& arena, const Model& model, const Matrix& from) {
  return upload_q4_0(arena, model, {from}, [](std::uint32_t place) { return place; });
}

/// sum + the products of a word's four bytes with another's, for each of the four words.
__device__ inline int dot(const uint4& a, const uint4& b, int sum) {
  sum = __dp4a(static_cast<int>(a.x), static_cast<int>(b.x), sum);
  sum = __dp4a(static_cast<int>(a.y), static_cast<int>(b.y), sum);
  sum = __dp4a(static_cast<int>(a.z), static_cast<int>(b.z), sum);
  return __dp4a(static_cast<int>(a.w), static_cast<int>(b.w), sum);
}

/// The low nibbles of 16 bytes, a byte each, or with a shift of 4 the high ones.
__device__ inline uint4 nibbles(const uint4& q, int shift) {
  constexpr std::uint32_t kMask = 0x0f0f0f0f;
  return {q.x >> shift & kMask, q.y >> shift & kMask, q.z >> shift & kMask, q.w >> shift & kMask};
}

}  // namespace minfer
