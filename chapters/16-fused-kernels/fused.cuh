// SPDX-License-Identifier: MIT
//
// The kernels of a layer that read weights: what comes before the matrix and behind it is done by
// the blocks that multiply. Each loads its weights before it waits for the kernel before it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <minfer/math.h>

#include "cuda/float4.h"
#include "cuda/ptx.h"
#include "cuda/reduce.h"
#include "cuda/step.h"
#include "gemv.cuh"
#include "layout.h"

namespace minfer {

inline constexpr std::uint32_t kFusedThreads = 256;
inline constexpr std::uint32_t kFusedWarps = kFusedThreads / 32;
inline constexpr std::uint32_t kNormColumns = 4 * kFusedThreads;  ///< four values a thread

/// Of kRows rows of W, one below the other, the lane's blocks: every 32nd, kSteps of each.
template <std::uint32_t kRows, std::uint32_t kSteps>
struct RowBlocks {
  uint4 q[kRows][kSteps];
  std::uint16_t d[kRows][kSteps];

  /// From block `first` on, of the rows from `row` on.
  __device__ void load(const MatrixQ4_0& W, std::uint32_t row, std::uint32_t first) {
    const std::uint32_t n_blocks = W.cols / 32;
#pragma unroll
    for (std::uint32_t r = 0; r < kRows; ++r) {
#pragma unroll
      for (std::uint32_t i = 0; i < kSteps; ++i) {
        const std::uint32_t b = first + 32 * i;
        const std::size_t at = std::size_t(row + r) * n_blocks + b;
        q[r][i] = b < n_blocks ? W.q[at] : uint4{0, 0, 0, 0};
        d[r][i] = b < n_blocks ? W.d[at] : 0;
      }
    }
  }

  /// sums[r][t] += the blocks of row from + r times those of x[t], [kTokens, n].
  /// @why A nibble n stands for n - 8, and the 8 is taken off a block at once: the sum of (n - 8) x
  /// is that of n x, less 8 times that of x.
  template <std::uint32_t kSums, std::uint32_t kTokens>
  __device__ void multiply(float (&sums)[kSums][kTokens], std::uint32_t from,
                           const QuantizedVector& x, std::uint32_t n, std::uint32_t first) const {
    const uint4* x_q = reinterpret_cast<const uint4*>(x.q);
#pragma unroll
    for (std::uint32_t i = 0; i < kSteps; ++i) {
      const std::uint32_t b = first + 32 * i;
      if (b >= n / 32) break;
#pragma unroll
      for (std::uint32_t t = 0; t < kTokens; ++t) {
        const uint4 x_low = x_q[t * (n / 16) + interleaved<2>(b, 0, n / 32)];
        const uint4 x_high = x_q[t * (n / 16) + interleaved<2>(b, 1, n / 32)];
        const float x_d = x.d[t * (n / 32) + b];
        const std::int32_t eights = -8 * x.sums[t * (n / 32) + b];
#pragma unroll
        for (std::uint32_t r = 0; r < kSums; ++r) {
          const uint4& w = q[from + r][i];
          const int sum = dot(nibbles(w, 4), x_high, dot(nibbles(w, 0), x_low, eights));
          const float scale = float_from_half(d[from + r][i]) * x_d;
          sums[r][t] = fmaf(scale, static_cast<float>(sum), sums[r][t]);
        }
      }
    }
  }
};

/// Four values of a run of 32, quantized as `quantize` does it.
struct QuantizedFour {
  std::uint32_t q;  ///< a byte each
  float d;          ///< of the run
  std::int32_t sum;
};

/// @pre eight neighbours of a warp have a run; every lane of the warp calls it
__device__ inline QuantizedFour quantize_four(const float4& x) {
  const float largest = max_f32(max_f32(fabsf(x.x), fabsf(x.y)), max_f32(fabsf(x.z), fabsf(x.w)));
  const float d = warp_max<8>(largest) / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f;
  const bool is_nan = x.x != x.x || x.y != x.y || x.z != x.z || x.w != x.w;
  const std::uint32_t nans = __ballot_sync(0xffffffffu, is_nan) >> (threadIdx.x & 24) & 255;
  const auto whole = [&](float value) {
    return round_half_even_to_int(value * inverse, -127, 127);
  };
  const std::int32_t q[4] = {whole(x.x), whole(x.y), whole(x.z), whole(x.w)};
  std::uint32_t bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= static_cast<std::uint32_t>(q[i] & 255) << (8 * i);
  return {bytes, nans != 0 ? NAN : d, warp_sum<8>(q[0] + q[1] + q[2] + q[3])};
}

/// rmsnorm of each token's x, quantized: by a whole block for itself, into shared memory.
/// @param w  the norm's weights, of each kNormColumns the thread's four
/// @why The sum of squares is rmsnorm's, added up in the same order, by 128 threads a token: the
/// bits are those of the kernels that it replaces.
template <std::uint32_t kTokens, std::uint32_t kSteps>
__device__ inline QuantizedVector normed_and_quantized(const float* x, const float4 (&w)[kSteps],
                                                       std::uint32_t n, float eps) {
  static_assert(kThreads == 128, "what the tree below adds up");
  MINFER_SHARED(float, squares, [kTokens][kThreads]);
  MINFER_SHARED(float, scales, [kTokens]);
  MINFER_SHARED(uint4, q, [kTokens * kSteps * kNormColumns / 16]);
  MINFER_SHARED(float, d, [kTokens * kSteps * kNormColumns / 32]);
  MINFER_SHARED(std::int32_t, sums, [kTokens * kSteps * kNormColumns / 32]);
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto scale_of = [&](std::uint32_t t) {
    const float* s = squares[t];
    const float sum = warp_sum((s[lane] + s[lane + 64]) + (s[lane + 32] + s[lane + 96]));
    return rsqrt_f32(sum / static_cast<float>(n) + eps);
  };
  for (std::uint32_t t = threadIdx.x / kThreads; t < kTokens; t += kFusedThreads / kThreads) {
    float values[8 * kSteps], sum = 0;
#pragma unroll
    for (std::uint32_t j = 0; j < 8 * kSteps; ++j) {
      const std::uint32_t i = threadIdx.x % kThreads + j * kThreads;
      values[j] = i < n ? x[t * n + i] : 0;
    }
    for (const float value : values) sum = fmaf(value, value, sum);
    squares[t][threadIdx.x % kThreads] = sum;
  }
  __syncthreads();    // squares: written by all, read by all
  if (kTokens > 1) {  // for one token a barrier costs more than each warp's own sum
    const float scale = warp < kTokens ? scale_of(warp) : 0;
    if (lane == 0 && warp < kTokens) scales[warp] = scale;
    __syncthreads();  // scales: written by each warp's first lane, read by all
  }
#pragma unroll 4
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    const float scale = kTokens > 1 ? scales[t] : scale_of(t);
#pragma unroll
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      const std::uint32_t i = step * kNormColumns + 4 * threadIdx.x, run = (t * n + i) / 32;
      const float4 v = i < n ? by_four(x)[(t * n + i) / 4] : float4{0, 0, 0, 0};
      const QuantizedFour y = quantize_four({v.x * scale * w[step].x, v.y * scale * w[step].y,
                                             v.z * scale * w[step].z, v.w * scale * w[step].w});
      if (i >= n) continue;
      reinterpret_cast<std::uint32_t*>(
          q)[t * (n / 4) + i % 16 / 4 + 4 * interleaved<2>(i / 32, i % 32 / 16, n / 32)] = y.q;
      if (i % 32 == 0) {
        d[run] = y.d;
        sums[run] = y.sum;
      }
    }
  }
  __syncthreads();  // q, d, sums: written by all, read by all
  return {reinterpret_cast<std::int8_t*>(q), d, sums};
}

/// The thread's of a norm's n weights.
template <std::uint32_t kSteps>
__device__ inline void load_norm(float4 (&w)[kSteps], const float* norm, std::uint32_t n) {
#pragma unroll
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    const std::uint32_t i = step * kNormColumns + 4 * threadIdx.x;
    w[step] = i < n ? by_four(norm)[i / 4] : float4{0, 0, 0, 0};
  }
}

/// Where a step's K and V go.
struct KvRows {
  float *k, *v;
  std::uint32_t d_kv;
  bool at_position;  ///< token t's row is its position; or t
};

/// q = W_q norm(x) + b_q, rotated, and k and v likewise, v as it is. A block makes kQkvRows rows, a
/// warp each.
/// @pre d_model <= kSteps * kNormColumns; head_dim % kQkvRows == 0
template <std::uint32_t kTokens, std::uint32_t kSteps>
__global__ void __launch_bounds__(kFusedThreads)
    qkv(float* q,                ///< out [kTokens, d_q]
        KvRows kv,               ///< out
        MatrixQ4_0 W,            ///< [d_q + 2 d_kv, d_model], by qkv_row
        const float* bias,       ///< [d_q + 2 d_kv]
        const float* x,          ///< [kTokens, d_model]
        const float* norm,       ///< [d_model]
        const float* cosines,    ///< [context, head_dim/2]
        const float* sines,      ///< [context, head_dim/2]
        const StepInput* input,  ///< [1]
        AttentionShape shape, float eps) {
  MINFER_SHARED(float, y, [kTokens][kQkvRows]);
  static_assert(kQkvRows == kFusedWarps);
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = W.cols;
  let_next_kernel_begin();
  RowBlocks<1, kSteps> row;
  float4 norm_of_thread[kSteps];
  row.load(W, blockIdx.x * kQkvRows + warp, lane);
  load_norm(norm_of_thread, norm, n);

  // What a thread of the end needs, which stands there before the step: a pair's two biases, and
  // its angle.
  constexpr std::uint32_t kPairs = kQkvRows / 2;
  const std::uint32_t t = threadIdx.x / kPairs, half = shape.head_dim / 2;
  const std::uint32_t head = blockIdx.x * kQkvRows / shape.head_dim;
  const std::uint32_t i = blockIdx.x * kPairs % half + threadIdx.x % kPairs;
  const std::uint32_t position = input->position + t;
  float2 biases = {}, angle = {1, 0};
  if (t < kTokens) {
    biases = {bias[head * shape.head_dim + i], bias[head * shape.head_dim + i + half]};
    if (head < shape.n_heads + shape.n_kv_heads) {
      angle = {cosines[std::size_t(position) * half + i], sines[std::size_t(position) * half + i]};
    }
  }

  wait_for_previous_kernel();
  const QuantizedVector normed = normed_and_quantized<kTokens>(x, norm_of_thread, n, eps);
  float sums[1][kTokens] = {};
  row.multiply(sums, 0, normed, n, lane);
  for (std::uint32_t of = 0; of < kTokens; ++of) {
    const float sum = warp_sum(sums[0][of]);
    if (lane == 0) y[of][warp] = sum;
  }
  __syncthreads();  // y: written by each warp's first lane, read by the threads of the end
  if (t >= kTokens) return;
  float first = y[t][threadIdx.x % kPairs] + biases.x;
  float second = y[t][threadIdx.x % kPairs + kPairs] + biases.y;
  float* out = q + (t * shape.n_heads + head) * shape.head_dim;
  if (head >= shape.n_heads) {
    const std::uint32_t kv_head = (head - shape.n_heads) % shape.n_kv_heads;
    float* rows = head < shape.n_heads + shape.n_kv_heads ? kv.k : kv.v;
    out = rows + std::size_t(kv.at_position ? position : t) * kv.d_kv + kv_head * shape.head_dim;
  }
  if (head < shape.n_heads + shape.n_kv_heads) {
    const float rotated = first * angle.x - second * angle.y;
    second = first * angle.y + second * angle.x;
    first = rotated;
  }
  out[i] = first;
  out[i + half] = second;
}

/// Calls f with the least kSteps for rows of n values.
template <class F>
void with_steps(std::uint32_t n, F f) {
  if (n > 2 * kNormColumns) {
    throw std::invalid_argument("d_model: " + std::to_string(n) + ", and a block keeps " +
                                std::to_string(2 * kNormColumns));
  }
  with_constant<1, 2>(ceil_div(n, kNormColumns), f);
}

inline void launch_qkv(const Step& s, float* q, const KvRows& kv, const MatrixQ4_0& W,
                       const float* bias, const float* x, const float* norm, const float* cosines,
                       const float* sines, const AttentionShape& shape, float eps) {
  const Traffic traffic = {W.bytes() + 4ull * (W.rows + W.cols) +
                           s.n_tokens * 4ull * (W.cols + W.rows + shape.head_dim)};
  with_constant<1, 2, 3, 4, 5, 6, 7, 8>(s.n_tokens, [&](auto tokens) {
    with_steps(W.cols, [&](auto steps) {
      launch(s.begin, qkv<tokens, steps>, W.rows / kQkvRows, kFusedThreads, 0, traffic, s.stream, q,
             kv, W, bias, x, norm, cosines, sines, s.input, shape, eps);
    });
  });
}

/// The sums of kCount values a lane over the warp: that of value i to the lanes i * 32 / kCount and
/// up. Each is added up in warp_sum's order.
/// @why A lane gives away half of its values at each step, so eight take 9 shuffles and not 40.
template <std::uint32_t kCount>
__device__ inline float warp_sums(float (&values)[kCount]) {
  const std::uint32_t lane = threadIdx.x % 32;
  std::uint32_t distance = 16;
  for (std::uint32_t half = kCount / 2; half > 0; half /= 2, distance /= 2) {
    const bool is_upper = (lane & distance) != 0;
    for (std::uint32_t i = 0; i < half; ++i) {
      const float kept = is_upper ? values[i + half] : values[i];
      const float given = is_upper ? values[i] : values[i + half];
      values[i] = kept + __shfl_xor_sync(0xffffffffu, given, distance);
    }
  }
  for (; distance > 0; distance /= 2) {
    values[0] += __shfl_xor_sync(0xffffffffu, values[0], distance);
  }
  return values[0];
}

inline constexpr std::uint32_t kGateUpRows = 64;  ///< of a block: a run of 32 values

/// y = silu(W_gate norm(x)) * (W_up norm(x)), quantized. A block makes a run of 32 values, a warp
/// four of them: eight rows.
/// @pre d_model <= kSteps * kNormColumns; d_ff % 32 == 0
template <std::uint32_t kTokens, std::uint32_t kSteps>
__global__ void __launch_bounds__(kFusedThreads, kTokens == 1 ? 3 : 1)
    gate_up(QuantizedVector y,  ///< out [kTokens, d_ff]
            MatrixQ4_0 W,       ///< [2 d_ff, d_model], by gate_up_row
            const float* x,     ///< [kTokens, d_model]
            const float* norm,  ///< [d_model]
            float eps) {
  constexpr std::uint32_t kWarpRows = kGateUpRows / kFusedWarps;
  constexpr std::uint32_t kRows = kWarpRows / kSteps;        // under way at once
  constexpr std::uint32_t kSums = kTokens == 1 ? kRows : 2;  // added up at once
  MINFER_SHARED(float, rows, [kTokens][kGateUpRows]);
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = W.cols;
  let_next_kernel_begin();
  RowBlocks<kRows, kSteps> blocks;
  float4 norm_of_thread[kSteps];
  blocks.load(W, blockIdx.x * kGateUpRows + warp * kWarpRows, lane);
  load_norm(norm_of_thread, norm, n);
  wait_for_previous_kernel();
  const QuantizedVector normed = normed_and_quantized<kTokens>(x, norm_of_thread, n, eps);
#pragma unroll 1
  for (std::uint32_t first = warp * kWarpRows; first < (warp + 1) * kWarpRows; first += kRows) {
    if (first > warp * kWarpRows) blocks.load(W, blockIdx.x * kGateUpRows + first, lane);
#pragma unroll
    for (std::uint32_t from = 0; from < kRows; from += kSums) {
      float sums[kSums][kTokens] = {};
      blocks.multiply(sums, from, normed, n, lane);
      for (std::uint32_t t = 0; t < kTokens; ++t) {
        float of_token[kSums];
        for (std::uint32_t r = 0; r < kSums; ++r) of_token[r] = sums[r][t];
        const float sum = warp_sums(of_token);
        constexpr std::uint32_t kLanes = 32 / kSums;
        if (lane % kLanes == 0) rows[t][first + from + lane / kLanes] = sum;
      }
    }
  }
  __syncthreads();  // rows: written by all warps, read by a warp a token
  static_assert(kTokens <= kFusedWarps);
  if (warp < kTokens) {
    const float value = silu_f32(rows[warp][2 * lane]) * rows[warp][2 * lane + 1];
    quantize(y, warp, W.rows / 2, blockIdx.x * 32 + lane, value);
  }
}

inline void launch_gate_up(const Step& s, const QuantizedVector& y, const MatrixQ4_0& W,
                           const float* x, const float* norm, float eps) {
  const std::uint64_t d_ff = W.rows / 2;
  const Traffic traffic = {W.bytes() + 4ull * W.cols +
                           s.n_tokens * (4ull * W.cols + d_ff + d_ff / 4)};
  with_constant<1, 2, 3, 4, 5, 6, 7, 8>(s.n_tokens, [&](auto tokens) {
    with_steps(W.cols, [&](auto steps) {
      launch(s.begin, gate_up<tokens, steps>, W.rows / kGateUpRows, kFusedThreads, 0, traffic,
             s.stream, y, W, x, norm, eps);
    });
  });
}

/// y += W x: a row a warp. As many of its blocks as a lane keeps are on their way before x is
/// there.
template <std::uint32_t kTokens, std::uint32_t kSteps>
__global__ void __launch_bounds__(kFusedThreads, kTokens == 1 ? 1 : 2)
    add_gemv(float* y,             ///< in, out [kTokens, M]
             MatrixQ4_0 W,         ///< [M, K]
             QuantizedVector x) {  ///< [kTokens, K]
  const std::uint32_t lane = threadIdx.x % 32, m = blockIdx.x * kFusedWarps + threadIdx.x / 32;
  let_next_kernel_begin();
  if (m >= W.rows) return;  // the whole warp
  RowBlocks<1, kSteps> row;
  row.load(W, m, lane);
  wait_for_previous_kernel();
  float before = 0;  // of token `lane`
  if (lane < kTokens) before = y[lane * W.rows + m];
  float sums[1][kTokens] = {};
#pragma unroll 1
  for (std::uint32_t first = lane; first < W.cols / 32; first += 32 * kSteps) {
    if (first != lane) row.load(W, m, first);
    row.multiply(sums, 0, x, W.cols, first);
  }
  for (std::uint32_t t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sums[0][t]);
    if (lane == t) y[t * W.rows + m] = before + sum;
  }
}

inline void launch_add_gemv(const Step& s, float* y, const MatrixQ4_0& W,
                            const QuantizedVector& x) {
  const std::uint64_t M = W.rows, K = W.cols;
  const Traffic traffic = {W.bytes() + s.n_tokens * (K + K / 4 + 8 * M)};
  const std::uint32_t steps = ceil_div(W.cols, 1024);
  with_constant<1, 2, 3, 4, 5, 6, 7, 8>(s.n_tokens, [&](auto tokens) {
    with_constant<1, 2, 6, 12>(steps <= 2   ? steps
                               : steps <= 6 ? 6
                                            : 12,
                               [&](auto kept) {
                                 launch(s.begin, add_gemv<tokens, kept>,
                                        ceil_div(W.rows, kFusedWarps), kFusedThreads, 0, traffic,
                                        s.stream, y, W, x);
                               });
  });
}

}  // namespace minfer
