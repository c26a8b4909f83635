// SPDX-License-Identifier: MIT
//
// Rotary embedding, the KV cache and attention.
#pragma once

#include "reduce.cuh"

namespace minfer {

/// Rotates each head's pairs (i, i + head_dim/2), in place: RoPE as GPT-NeoX has it.
/// @param[in,out] x         [n_heads, head_dim] f32
/// @param[in]     cosines   [context, head_dim/2] f32: of each position's and pair's angle
/// @param[in]     sines     [context, head_dim/2] f32
/// @param[in]     position  [1] below context
/// @param[in]     head_dim  even
/// @launch{grid n_heads\, block head_dim/2}
/// @traffic{4*n_heads*head_dim + 4*head_dim read\, 4*n_heads*head_dim written}
/// @why{The table is made on the host in double\, once: no sine or cosine is the same everywhere.}
__global__ void rope(float* x,                       // [n_heads, head_dim]
                     const float* cosines,           // [context, head_dim/2]
                     const float* sines,             // [context, head_dim/2]
                     const std::uint32_t* position,  // [1]
                     std::uint32_t head_dim) {
  const std::uint32_t half = head_dim / 2;
  const std::uint32_t i = threadIdx.x;
  const std::size_t angle = std::size_t(*position) * half + i;
  float* head = x + std::size_t(blockIdx.x) * head_dim;
  const float a = head[i], b = head[i + half];
  head[i] = a * cosines[angle] - b * sines[angle];
  head[i + half] = a * sines[angle] + b * cosines[angle];
}

inline void launch_rope(cudaStream_t stream, float* x, const float* cosines, const float* sines,
                        const std::uint32_t* position, std::uint32_t n_heads,
                        std::uint32_t head_dim) {
  launch(rope, n_heads, head_dim / 2, 0, stream, x, cosines, sines, position, head_dim);
}

constexpr std::uint64_t rope_traffic(std::uint64_t n_heads, std::uint64_t head_dim) {
  return 8 * n_heads * head_dim + 4 * head_dim;
}

/// Writes one position's K and V into a layer's cache.
/// @param[out] k_cache   [context, d_kv] f32
/// @param[out] v_cache   [context, d_kv] f32
/// @param[in]  k         [d_kv] f32, rotated
/// @param[in]  v         [d_kv] f32
/// @param[in]  position  [1] below context
/// @param[in]  d_kv      n_kv_heads * head_dim
/// @launch{grid ceil(d_kv/128)\, block 128}
/// @traffic{8*d_kv read\, 8*d_kv written}
/// @why{A position's heads lie together\, so one position is one run of memory.}
__global__ void append_kv(float* k_cache,                 // [context, d_kv]
                          float* v_cache,                 // [context, d_kv]
                          const float* k,                 // [d_kv]
                          const float* v,                 // [d_kv]
                          const std::uint32_t* position,  // [1]
                          std::uint32_t d_kv) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= d_kv) return;
  k_cache[std::size_t(*position) * d_kv + i] = k[i];
  v_cache[std::size_t(*position) * d_kv + i] = v[i];
}

inline void launch_append_kv(cudaStream_t stream, float* k_cache, float* v_cache, const float* k,
                             const float* v, const std::uint32_t* position, std::uint32_t d_kv) {
  launch(append_kv, ceil_div(d_kv, kThreads), kThreads, 0, stream, k_cache, v_cache, k, v, position,
         d_kv);
}

constexpr std::uint64_t append_kv_traffic(std::uint64_t d_kv) {
  return 16 * d_kv;
}

/// What the attention kernel needs to know of the model.
struct AttentionShape {
  std::uint32_t n_heads, n_kv_heads, head_dim;
  std::uint32_t context;  ///< positions that a row of scores has room for

  constexpr std::uint64_t d_q() const { return n_heads * head_dim; }
  constexpr std::uint64_t d_kv() const { return n_kv_heads * head_dim; }
};

inline constexpr std::uint32_t kMaxHeadDim = 128;

/// y[h] = softmax(q[h] k^T / sqrt(head_dim)) v, one block a query head.
/// @param[out] y         [n_heads, head_dim] f32
/// @param[out] scores    [n_heads, context] f32: the block's notes, exp(score - max) at the end
/// @param[in]  q         [n_heads, head_dim] f32, rotated
/// @param[in]  k_cache   [context, n_kv_heads, head_dim] f32
/// @param[in]  v_cache   [context, n_kv_heads, head_dim] f32
/// @param[in]  position  [1] below context
/// @param[in]  shape     of the model
/// @pre head_dim divides 128
/// @launch{grid n_heads\, block 128}
/// @traffic{4*d_q + 8*d_kv*(position+1) read\, 4*d_q written}
/// @why{The softmax was a thread a head\, and is now all threads of the block: a thread a
/// position\,
///      then a tree. What the block computes never leaves its SM: q is in shared memory\, the
///      scores in L1. exp stays the exact one: an approximate one is not what costs\, and moves
///      tokens.}
__global__ void attention(float* y,                       // [n_heads, head_dim]
                          float* scores,                  // [n_heads, context]
                          const float* q,                 // [n_heads, head_dim]
                          const float* k_cache,           // [context, n_kv_heads, head_dim]
                          const float* v_cache,           // [context, n_kv_heads, head_dim]
                          const std::uint32_t* position,  // [1]
                          AttentionShape shape) {
  MINFER_SHARED(float, q_head, [kMaxHeadDim]);
  MINFER_SHARED(float, parts, [kThreads]);
  const std::uint32_t head = blockIdx.x;
  const std::uint32_t kv_head = head / (shape.n_heads / shape.n_kv_heads);
  const std::uint32_t d_kv = shape.n_kv_heads * shape.head_dim;
  const std::uint32_t n = *position + 1;
  const float scale = rsqrt_f32(static_cast<float>(shape.head_dim));
  float* row = scores + std::size_t(head) * shape.context;

  if (threadIdx.x < shape.head_dim) q_head[threadIdx.x] = q[head * shape.head_dim + threadIdx.x];
  __syncthreads();  // q_head: written by the first threads, read by all

  float max = -INFINITY;
  for (std::uint32_t t = threadIdx.x; t < n; t += kThreads) {
    const float* k = k_cache + std::size_t(t) * d_kv + kv_head * shape.head_dim;
    float dot = 0;
    for (std::uint32_t i = 0; i < shape.head_dim; ++i) dot = fmaf(q_head[i], k[i], dot);
    row[t] = dot * scale;
    max = max_f32(max, dot * scale);
  }
  max = block_max(max);

  float sum = 0;
  for (std::uint32_t t = threadIdx.x; t < n; t += kThreads) {
    const float weight = exp_f32(row[t] - max);
    row[t] = weight;
    sum += weight;
  }
  sum = block_sum(sum);  // its barriers publish row as well: written by all, read by all below

  // A thread a value of the output, and what threads are left take every second or fourth position.
  const std::uint32_t i = threadIdx.x % shape.head_dim, part = threadIdx.x / shape.head_dim;
  const std::uint32_t n_parts = kThreads / shape.head_dim;
  const float* v = v_cache + kv_head * shape.head_dim + i;
  // Counted by ones, since steps of n_parts are not unrolled: that keeps 16 loads of V in flight.
  const std::uint32_t n_mine = (n - 1 - part + n_parts) / n_parts;
  float value = 0;
#pragma unroll 16
  for (std::uint32_t j = 0; j < n_mine; ++j) {
    const std::size_t t = part + j * n_parts;
    value = fmaf(row[t], v[t * d_kv], value);
  }
  parts[threadIdx.x] = value;
  __syncthreads();  // parts: written by all, read by those that take the first
  if (part > 0) return;
  for (std::uint32_t p = 1; p < n_parts; ++p) value += parts[p * shape.head_dim + i];
  y[head * shape.head_dim + i] = value / sum;
}

inline void launch_attention(cudaStream_t stream, float* y, float* scores, const float* q,
                             const float* k_cache, const float* v_cache,
                             const std::uint32_t* position, const AttentionShape& shape) {
  launch(attention, shape.n_heads, kThreads, 0, stream, y, scores, q, k_cache, v_cache, position,
         shape);
}

/// @param n positions, this one included
constexpr std::uint64_t attention_traffic(const AttentionShape& shape, std::uint64_t n) {
  return 8 * (shape.d_q() + n * shape.d_kv());
}

}  // namespace minfer
