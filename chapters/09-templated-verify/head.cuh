// SPDX-License-Identifier: MIT
//
// The lm_head: a quarter of the 1.5B's bytes in one matrix, in the format that LMHEAD names.
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include <minfer/engine.h>

#include "cuda/arena.h"
#include "gemv.cuh"

namespace minfer {

/// d = max |x| / 32512 over each run of 32, q = x / d rounded to nearest, half to even.
/// @pre n % 32 == 0
/// @why With int8 activations the head overturns 3 of 1174 predictions, all near ties, with these
/// none. A step 256 times finer costs no byte of W. 32512 is 127 * 256: above 32639 a value's high
/// byte is no int8.
__global__ void quantize_int16(std::int8_t* q,  ///< out [T, n/4, 2, 4], as Int16Vector has it
                               float* d,        ///< out [T, n/32]
                               const float* x,  ///< [T, n]
                               std::uint32_t n) {
  constexpr std::int32_t kLargest = 127 * 256;
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * n;
  if (i >= n) return;  // the whole warp
  const RunScale scale = scale_of_run(x[first + i], kLargest);
  const std::int32_t value =
      round_half_even_to_int(x[first + i] * scale.inverse, -kLargest, kLargest);
  const auto low = static_cast<std::int8_t>(value);
  std::int8_t* word = q + 2 * first + 8 * interleaved_word(i / 32, i % 32 / 4, n / 32);
  word[i % 4] = static_cast<std::int8_t>((value - low) / 256);
  word[i % 4 + 4] = low;
  if (i % 32 == 0) d[(first + i) / 32] = scale.d;
}

inline void launch_quantize_int16(const Step& s, const Int16Vector& y, const float* x,
                                  std::uint32_t n) {
  s.launch(quantize_int16, ceil_div(n, kThreads), kThreads, {s.n_tokens * (6ull * n + n / 8)}, y.q,
           y.d, x, n);
}

/// y[t] = W x[t] with W in int8 and x in int16, one warp a row, a lane a block, which it reads once
/// for all of kTokens tokens.
/// @pre K % 32 == 0
/// @why Nothing is unpacked, and what a warp loads lies together: a word of W each, 128 bytes, and
/// the two of x that it meets. Were a row's blocks one after the other, such a load would touch
/// 1024 bytes to use an eighth of them. On an H200 the 1.5B's head takes 70 us, as Q6_K in fp32
/// 346.
template <std::uint32_t kTokens>
__global__ void gemv_q8_0(float* y,                  ///< out [kTokens, M]
                          const std::int8_t* W_q,    ///< [M, K], as MatrixQ8_0 has it
                          const std::uint16_t* W_d,  ///< [M, K/32] fp16
                          const std::int8_t* x_q,  ///< [kTokens, K/4, 2, 4], as Int16Vector has it
                          const float* x_d,        ///< [kTokens, K/32]
                          std::uint32_t M, std::uint32_t K) {
  const std::uint32_t m = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (m >= M) return;  // the whole warp
  const int* row = reinterpret_cast<const int*>(W_q + std::size_t(m) * K);
  const int2* x = reinterpret_cast<const int2*>(x_q);
  float sums[kTokens] = {};
#pragma unroll 1  // lanes of one block a row and of two go together
  for (std::uint32_t b = lane; b < K / 32; b += 32) {
    int high[kTokens] = {}, low[kTokens] = {};
#pragma unroll
    for (std::uint32_t i = 0; i < 8; ++i) {
      const std::uint32_t word = interleaved_word(b, i, K / 32);
      const int w = row[word];
      for (std::uint32_t t = 0; t < kTokens; ++t) {
        const int2 pair = x[t * (K / 4) + word];  // one load of 8 bytes
        high[t] = __dp4a(w, pair.x, high[t]);
        low[t] = __dp4a(w, pair.y, low[t]);
      }
    }
    const float d = float_from_half(W_d[std::size_t(m) * (K / 32) + b]);
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      const auto dot = static_cast<float>(256 * high[t] + low[t]);
      sums[t] = fmaf(d * x_d[t * (K / 32) + b], dot, sums[t]);
    }
  }
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane == 0) y[t * M + m] = sum;
  }
}

inline void launch_gemv_q8_0(const Step& s, float* y, const MatrixQ8_0& W, const Int16Vector& x) {
  const std::uint64_t K = W.cols;
  const Traffic traffic = {W.bytes() + s.n_tokens * (2 * K + K / 8 + 4ull * W.rows)};
  with_constant<1, 2, 3, 4, 5, 6, 7, 8>(s.n_tokens, [&](auto n) {
    launch(gemv_q8_0<n>, ceil_div(W.rows, kWarps), kThreads, 0, traffic, s.stream, y, W.q, W.d, x.q,
           x.d, W.rows, W.cols);
  });
}

/// The lm_head in one format: logits[t] = W x[t].
struct Head {
  std::uint64_t bytes;  ///< that a step reads
  std::function<void(const Step& s, float* logits, const float* x)> launch;
};

/// LMHEAD=0: the file's head, in fp32.
inline Head head_of_file(Arena& arena, const Model& model, const Matrix& token_embedding) {
  const Matrix w = upload_head(arena, model, token_embedding);
  return {w.bytes(),
          [w](const Step& s, float* logits, const float* x) { launch_gemv(s, logits, w, x); }};
}

/// A matrix's rows in Q8_0, on the device.
inline MatrixQ8_0 upload_q8_0(Arena& arena, const Matrix& from) {
  const std::uint32_t n_blocks = from.cols / 32;
  const MatrixQ8_0 w = {from.rows, from.cols, arena.take<std::int8_t>(from.rows, from.cols),
                        arena.take<std::uint16_t>(from.rows, n_blocks)};
  if (!arena.is_placed()) return w;
  for_each_as_q8_0(from, [&](std::size_t first, Span<const BlockQ8_0> blocks) {
    std::vector<std::int8_t> q(blocks.size() * 32);
    std::vector<std::uint16_t> d(blocks.size());
    for (std::size_t b = 0; b < d.size(); ++b) {
      std::int8_t* row = &q[b / n_blocks * w.cols];
      for (std::uint32_t i = 0; i < 8; ++i) {
        const std::uint32_t word = interleaved_word(b % n_blocks, i, n_blocks);
        std::memcpy(row + 4 * word, blocks[b].qs + 4 * i, 4);
      }
      d[b] = blocks[b].d;
    }
    arena.copy(w.q + first * 32, q);
    arena.copy(w.d + first, d);
  });
  return w;
}

/// LMHEAD=8: requantized to Q8_0, with int16 activations.
inline Head head_q8_0(Arena& arena, const Model& model) {
  const MatrixQ8_0 w = upload_q8_0(arena, model.lm_head());
  if (arena.is_placed()) model.release(model.lm_head());
  const Int16Vector x_int16 = {arena.take<std::int8_t>(kMaxTokens, 2, w.cols),
                               arena.take<float>(kMaxTokens, w.cols / 32)};
  return {w.bytes(), [w, x_int16](const Step& s, float* logits, const float* x) {
            launch_quantize_int16(s, x_int16, x, w.cols);
            launch_gemv_q8_0(s, logits, w, x_int16);
          }};
}

inline EngineOption head_option() {
  return {"LMHEAD", {0, 8}, "lm_head: 0 the file's, in fp32; 8 Q8_0 (default)"};
}

/// The head that was asked for. @param token_embedding  on the device: what a tied head is
inline Head make_head(Arena& arena, const Model& model, const Matrix& token_embedding,
                      const EngineOptions& options) {
  if (options.value("LMHEAD", 8) == 0) return head_of_file(arena, model, token_embedding);
  return head_q8_0(arena, model);
}

}  // namespace minfer
