// SPDX-License-Identifier: MIT
//
// The kernels that read quantized weights.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include <minfer/gguf/model.h>
#include <minfer/gguf/quant.h>

#include "cuda/arena.h"
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

/// d = max |x| / 127 over each run of 32, q = x / d rounded to nearest, half to even.
/// @pre n % 32 == 0
/// @why A run is a warp, its maximum five shuffles. The scale stays fp32: it is one in 32 values,
/// and rounding it to fp16 would put an error on all of them.
__global__ void quantize(std::int8_t* q,      ///< out [T, n], interleaved<2>
                         float* d,            ///< out [T, n/32]
                         std::int32_t* sums,  ///< out [T, n/32]
                         const float* x,      ///< [T, n]
                         std::uint32_t n) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, at = blockIdx.y * n + i;
  if (i >= n) return;  // the whole warp
  const RunScale scale = scale_of_run(x[at], 127.0f);
  const std::int32_t value = round_half_even_to_int(x[at] * scale.inverse, -127, 127);
  const std::int32_t sum = warp_sum(value);
  const std::uint32_t unit = interleaved<2>(i / 32, i % 32 / 16, n / 32);
  q[blockIdx.y * n + unit * 16 + i % 16] = static_cast<std::int8_t>(value);
  if (i % 32 == 0) {
    d[at / 32] = scale.d;
    sums[at / 32] = sum;
  }
}

inline void launch_quantize(const Step& s, const QuantizedVector& y, const float* x,
                            std::uint32_t n) {
  s.launch(quantize, ceil_div(n, kThreads), kThreads, {s.n_tokens * (5ull * n + n / 4)}, y.q, y.d,
           y.sums, x, n);
}

/// A Q4_0 matrix on the device, as a warp reads it.
inline MatrixQ4_0 upload_q4_0(Arena& arena, const Model& model, const Matrix& from) {
  const MatrixQ4_0 w = {from.rows, from.cols, arena.take<uint4>(from.rows, from.cols / 32),
                        arena.take<std::uint16_t>(from.rows, from.cols / 32)};
  if (!arena.is_placed()) return w;
  const auto* blocks = reinterpret_cast<const BlockQ4_0*>(from.data);
  std::vector<uint4> q(std::size_t(from.rows) * (from.cols / 32));
  std::vector<std::uint16_t> d(q.size());
  for (std::size_t b = 0; b < q.size(); ++b) {
    std::memcpy(&q[b], blocks[b].qs, sizeof q[b]);
    d[b] = blocks[b].d;
  }
  arena.copy(w.q, q);
  arena.copy(w.d, d);
  model.release(from);
  return w;
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

/// y[t] = W x[t] with both in small integers, one warp a row, a lane a block: each block's dot
/// product is exact in int32, and is scaled once. A lane reads and unpacks a block of W once, and
/// meets the activations of each of kTokens tokens with it. A nibble n stands for n - 8, and the
/// 8 is taken off a block at once: the sum of (n - 8) x is that of n x, less 8 times that of x.
/// @pre K % 32 == 0
/// @why What a lane reads of a block is a load of 16 bytes, and two a token, and the lanes' lie
/// together. In the file's blocks of 18 bytes it was 16 loads of 2 and 4: an SM takes a load
/// instruction of a warp each few cycles, however little it brings. kTokens is a constant, so the
/// loop over tokens leaves no branch and no index behind. One token is a step like any other.
template <std::uint32_t kTokens>
__global__ void gemv_q4_0(float* y,                    ///< out [kTokens, M]
                          const uint4* W_q,            ///< [M, K/32], as MatrixQ4_0 has it
                          const std::uint16_t* W_d,    ///< [M, K/32] fp16
                          const std::int8_t* x_q,      ///< [kTokens, K], interleaved<2>
                          const float* x_d,            ///< [kTokens, K/32]
                          const std::int32_t* x_sums,  ///< [kTokens, K/32]
                          std::uint32_t M, std::uint32_t K) {
  const std::uint32_t m = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (m >= M) return;  // the whole warp
  const std::size_t row = std::size_t(m) * (K / 32);
  const uint4* x = reinterpret_cast<const uint4*>(x_q);
  float sums[kTokens] = {};
#pragma unroll 1  // lanes of one block a row and of two go together
  for (std::uint32_t b = lane; b < K / 32; b += 32) {
    const uint4 q = W_q[row + b], low = nibbles(q, 0), high = nibbles(q, 4);
    const float d = float_from_half(W_d[row + b]);
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      const uint4 first = x[t * (K / 16) + interleaved<2>(b, 0, K / 32)];
      const uint4 second = x[t * (K / 16) + interleaved<2>(b, 1, K / 32)];
      const int sum = dot(high, second, dot(low, first, -8 * x_sums[t * (K / 32) + b]));
      sums[t] = fmaf(d * x_d[t * (K / 32) + b], static_cast<float>(sum), sums[t]);
    }
  }
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane == 0) y[t * M + m] = sum;
  }
}

inline void launch_gemv_q4_0(const Step& s, float* y, const MatrixQ4_0& W,
                             const QuantizedVector& x) {
  const std::uint64_t M = W.rows, K = W.cols;
  const Traffic traffic = {W.bytes() + s.n_tokens * (K + K / 4 + 4 * M)};
  with_constant<1, 2, 3, 4, 5, 6, 7, 8>(s.n_tokens, [&](auto n) {
    launch(gemv_q4_0<n>, ceil_div(W.rows, kWarps), kThreads, 0, traffic, s.stream, y, W.q, W.d, x.q,
           x.d, x.sums, W.rows, W.cols);
  });
}

}  // namespace minfer
