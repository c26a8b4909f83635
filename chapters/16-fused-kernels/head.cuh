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
__global__ void quantize_int16(std::int8_t* q,      ///< out [T, n/4, 2, 4], as Int16Vector has it
                               float* d,            ///< out [T, n/32]
                               std::int32_t* sums,  ///< out [T, n/32]
                               const float* x,      ///< [T, n]
                               std::uint32_t n) {
  constexpr std::int32_t kLargest = 127 * 256;
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * n;
  if (i >= n) return;  // the whole warp
  const RunScale scale = scale_of_run(x[first + i], kLargest);
  const std::int32_t value =
      round_half_even_to_int(x[first + i] * scale.inverse, -kLargest, kLargest);
  const std::int32_t sum = warp_sum(value);
  const auto low = static_cast<std::int8_t>(value);
  std::int8_t* unit = q + 2 * first + 16 * interleaved<4>(i / 32, i % 32 / 8, n / 32);
  std::int8_t* word = unit + i % 8 / 4 * 8;
  word[i % 4] = static_cast<std::int8_t>((value - low) / 256);
  word[i % 4 + 4] = low;
  if (i % 32 == 0) {
    d[(first + i) / 32] = scale.d;
    sums[(first + i) / 32] = sum;
  }
}

inline void launch_quantize_int16(const Step& s, const Int16Vector& y, const float* x,
                                  std::uint32_t n) {
  s.launch(quantize_int16, ceil_div(n, kThreads), kThreads, {s.n_tokens * (6ull * n + n / 4)}, y.q,
           y.d, y.sums, x, n);
}

/// y[t] = W x[t] with W in int8 and x in int16, one warp a row, a lane a block, which it reads once
/// for all of kTokens tokens.
/// @pre K % 32 == 0
/// @why Nothing is unpacked, and what a warp loads lies together: 16 bytes of W a lane, 512 a load,
/// and the four times 16 of x that a block of W meets. On an H200 the 1.5B's head took 70 us with
/// loads of 4 and 8 bytes.
template <std::uint32_t kTokens>
__global__ void gemv_q8_0(float* y,                  ///< out [kTokens, M]
                          const std::int8_t* W_q,    ///< [M, K], as MatrixQ8_0 has it
                          const std::uint16_t* W_d,  ///< [M, K/32] fp16
                          const std::int8_t* x_q,  ///< [kTokens, K/4, 2, 4], as Int16Vector has it
                          const float* x_d,        ///< [kTokens, K/32]
                          std::uint32_t M, std::uint32_t K) {
  const std::uint32_t m = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (m >= M) return;  // the whole warp
  const uint4* row = reinterpret_cast<const uint4*>(W_q + std::size_t(m) * K);
  const uint4* x = reinterpret_cast<const uint4*>(x_q);
  float sums[kTokens] = {};
#pragma unroll 1  // lanes of one block a row and of two go together
  for (std::uint32_t b = lane; b < K / 32; b += 32) {
    int high[kTokens] = {}, low[kTokens] = {};
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const uint4 w = row[interleaved<2>(b, i / 2, K / 32)];
      const auto first = static_cast<int>(i % 2 == 0 ? w.x : w.z);
      const auto second = static_cast<int>(i % 2 == 0 ? w.y : w.w);
      for (std::uint32_t t = 0; t < kTokens; ++t) {
        const uint4 unit = x[t * (K / 8) + interleaved<4>(b, i, K / 32)];
        high[t] = __dp4a(first, static_cast<int>(unit.x), high[t]);
        low[t] = __dp4a(first, static_cast<int>(unit.y), low[t]);
        high[t] = __dp4a(second, static_cast<int>(unit.z), high[t]);
        low[t] = __dp4a(second, static_cast<int>(unit.w), low[t]);
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

/// The products of four weights with four int16 values, those of their high and of their low bytes.
struct HighLow {
  int high, low;
  __device__ void add(std::uint32_t w, std::uint32_t x_high, std::uint32_t x_low) {
    high = __dp4a(static_cast<int>(w), static_cast<int>(x_high), high);
    low = __dp4a(static_cast<int>(w), static_cast<int>(x_low), low);
  }
};

/// y[t] = W x[t] with W in Q4_0 and x in int16: gemv_q4_0 with a second sum. A nibble n stands for
/// n - 8, and the 8 is taken off a block at once.
/// @pre K % 32 == 0
/// @why Half the bytes of Q8_0, and the same activations: what the head loses in tokens is its
/// weights' rounding alone.
template <std::uint32_t kTokens>
__global__ void gemv_q4_0_int16(float* y,                  ///< out [kTokens, M]
                                const uint4* W_q,          ///< [M, K/32], as MatrixQ4_0 has it
                                const std::uint16_t* W_d,  ///< [M, K/32] fp16
                                const std::int8_t* x_q,    ///< [kTokens, K/4, 2, 4], as Int16Vector
                                const float* x_d,          ///< [kTokens, K/32]
                                const std::int32_t* x_sums,  ///< [kTokens, K/32]
                                std::uint32_t M, std::uint32_t K) {
  const std::uint32_t m = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (m >= M) return;  // the whole warp
  const std::size_t row = std::size_t(m) * (K / 32);
  const uint4* x = reinterpret_cast<const uint4*>(x_q);
  float sums[kTokens] = {};
#pragma unroll 1  // lanes of one block a row and of two go together
  for (std::uint32_t b = lane; b < K / 32; b += 32) {
    const uint4 q = W_q[row + b], w[2] = {nibbles(q, 0), nibbles(q, 4)};
    const float d = float_from_half(W_d[row + b]);
    for (std::uint32_t t = 0; t < kTokens; ++t) {
      HighLow dot = {0, 0};
      for (std::uint32_t i = 0; i < 2; ++i) {
        const uint4 first = x[t * (K / 8) + interleaved<4>(b, 2 * i, K / 32)];
        const uint4 second = x[t * (K / 8) + interleaved<4>(b, 2 * i + 1, K / 32)];
        dot.add(w[i].x, first.x, first.y);
        dot.add(w[i].y, first.z, first.w);
        dot.add(w[i].z, second.x, second.y);
        dot.add(w[i].w, second.z, second.w);
      }
      const int sum = 256 * dot.high + dot.low - 8 * x_sums[t * (K / 32) + b];
      sums[t] = fmaf(d * x_d[t * (K / 32) + b], static_cast<float>(sum), sums[t]);
    }
  }
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane == 0) y[t * M + m] = sum;
  }
}

inline void launch_gemv_q4_0_int16(const Step& s, float* y, const MatrixQ4_0& W,
                                   const Int16Vector& x) {
  const std::uint64_t K = W.cols;
  const Traffic traffic = {W.bytes() + s.n_tokens * (2 * K + K / 4 + 4ull * W.rows)};
  with_constant<1, 2, 3, 4, 5, 6, 7, 8>(s.n_tokens, [&](auto n) {
    launch(gemv_q4_0_int16<n>, ceil_div(W.rows, kWarps), kThreads, 0, traffic, s.stream, y, W.q,
           W.d, x.q, x.d, x.sums, W.rows, W.cols);
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
      for (std::uint32_t i = 0; i < 2; ++i) {
        const std::uint32_t unit = interleaved<2>(b % n_blocks, i, n_blocks);
        std::memcpy(row + 16 * unit, blocks[b].qs + 16 * i, 16);
      }
      d[b] = blocks[b].d;
    }
    arena.copy(w.q + first * 32, q);
    arena.copy(w.d + first, d);
  });
  return w;
}

/// What quantize_int16 leaves, of vectors of n values.
inline Int16Vector take_int16(Arena& arena, std::uint32_t n) {
  return {arena.take<std::int8_t>(kMaxTokens, 2, n), arena.take<float>(kMaxTokens, n / 32),
          arena.take<std::int32_t>(kMaxTokens, n / 32)};
}

/// LMHEAD=8: requantized to Q8_0, with int16 activations.
inline Head head_q8_0(Arena& arena, const Model& model) {
  const MatrixQ8_0 w = upload_q8_0(arena, model.lm_head());
  if (arena.is_placed()) model.release(model.lm_head());
  const Int16Vector x_int16 = take_int16(arena, w.cols);
  return {w.bytes(), [w, x_int16](const Step& s, float* logits, const float* x) {
            launch_quantize_int16(s, x_int16, x, w.cols);
            launch_gemv_q8_0(s, logits, w, x_int16);
          }};
}

/// LMHEAD=4: requantized to Q4_0, with int16 activations.
inline Head head_q4_0(Arena& arena, const Model& model) {
  const MatrixQ4_0 w = upload_q4_0(arena, model, model.lm_head());
  const Int16Vector x_int16 = take_int16(arena, w.cols);
  return {w.bytes(), [w, x_int16](const Step& s, float* logits, const float* x) {
            launch_quantize_int16(s, x_int16, x, w.cols);
            launch_gemv_q4_0_int16(s, logits, w, x_int16);
          }};
}

inline EngineOption head_option() {
  return {"LMHEAD", {0, 4, 8}, "lm_head: 0 the file's, in fp32; 4 Q4_0 (default); 8 Q8_0"};
}

/// The head that was asked for. @param token_embedding  on the device: what a tied head is
inline Head make_head(Arena& arena, const Model& model, const Matrix& token_embedding,
                      const EngineOptions& options) {
  const int format = options.value("LMHEAD", 4);
  if (format == 0) return head_of_file(arena, model, token_embedding);
  return format == 8 ? head_q8_0(arena, model) : head_q4_0(arena, model);
}

}  // namespace minfer
