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

/// What the attention kernels need to know of the model.
struct AttentionShape {
  std::uint32_t n_heads, n_kv_heads, head_dim;
  std::uint32_t context;  ///< positions that a row of scores has room for

  constexpr std::uint64_t d_q() const { return n_heads * head_dim; }
  constexpr std::uint64_t d_kv() const { return n_kv_heads * head_dim; }
};

/// scores[h, t] = q[h] . k[t] / sqrt(head_dim), for every position t up to this one.
/// @param[out] scores    [n_heads, context] f32
/// @param[in]  q         [n_heads, head_dim] f32, rotated
/// @param[in]  k_cache   [context, n_kv_heads, head_dim] f32
/// @param[in]  position  [1] below context
/// @param[in]  shape     of the model
/// @launch{grid n_heads\, block 128}
/// @traffic{4*d_q + 4*d_kv*(position+1) read\, 4*n_heads*(position+1) written}
/// @why{A thread a position: it reads q and its row of K alone\, as the CPU's loop does.}
__global__ void attention_scores(float* scores,                  // [n_heads, context]
                                 const float* q,                 // [n_heads, head_dim]
                                 const float* k_cache,           // [context, n_kv_heads, head_dim]
                                 const std::uint32_t* position,  // [1]
                                 AttentionShape shape) {
  const std::uint32_t head = blockIdx.x;
  const std::uint32_t kv_head = head / (shape.n_heads / shape.n_kv_heads);
  const std::uint32_t n = *position + 1;
  const float scale = rsqrt_f32(static_cast<float>(shape.head_dim));
  const float* q_head = q + head * shape.head_dim;
  for (std::uint32_t t = threadIdx.x; t < n; t += kThreads) {
    const float* k = k_cache + (std::size_t(t) * shape.n_kv_heads + kv_head) * shape.head_dim;
    float sum = 0;
    for (std::uint32_t i = 0; i < shape.head_dim; ++i) sum = fmaf(q_head[i], k[i], sum);
    scores[std::size_t(head) * shape.context + t] = sum * scale;
  }
}

inline void launch_attention_scores(cudaStream_t stream, float* scores, const float* q,
                                    const float* k_cache, const std::uint32_t* position,
                                    const AttentionShape& shape) {
  launch(attention_scores, shape.n_heads, kThreads, 0, stream, scores, q, k_cache, position, shape);
}

constexpr std::uint64_t attention_scores_traffic(const AttentionShape& shape, std::uint64_t n) {
  return 4 * (shape.d_q() + n * shape.d_kv() + n * shape.n_heads);
}

/// Turns each head's scores into weights that sum to one, in place:
/// scores[h, t] = exp(scores[h, t] - max) / sum.
/// @param[in,out] scores    [n_heads, context] f32
/// @param[in]     position  [1] below context
/// @param[in]     shape     of the model
/// @launch{grid ceil(n_heads/128)\, block 128}
/// @traffic{4*n_heads*(position+1) read\, as many written}
/// @why{A thread a head\, walking its scores three times. The maximum comes off first\, so that no
///      exp overflows.}
__global__ void attention_softmax(float* scores,                  // [n_heads, context]
                                  const std::uint32_t* position,  // [1]
                                  AttentionShape shape) {
  const std::uint32_t head = blockIdx.x * blockDim.x + threadIdx.x;
  if (head >= shape.n_heads) return;
  const std::uint32_t n = *position + 1;
  float* row = scores + std::size_t(head) * shape.context;
  float max = row[0];
  for (std::uint32_t t = 1; t < n; ++t) max = max_f32(max, row[t]);
  float sum = 0;
  for (std::uint32_t t = 0; t < n; ++t) {
    row[t] = exp_f32(row[t] - max);
    sum += row[t];
  }
  for (std::uint32_t t = 0; t < n; ++t) row[t] /= sum;
}

inline void launch_attention_softmax(cudaStream_t stream, float* scores,
                                     const std::uint32_t* position, const AttentionShape& shape) {
  launch(attention_softmax, ceil_div(shape.n_heads, kThreads), kThreads, 0, stream, scores,
         position, shape);
}

constexpr std::uint64_t attention_softmax_traffic(const AttentionShape& shape, std::uint64_t n) {
  return 8 * n * shape.n_heads;
}

/// y[h] = the sum over t of scores[h, t] * v[t].
/// @param[out] y         [n_heads, head_dim] f32
/// @param[in]  scores    [n_heads, context] f32, the softmax's weights
/// @param[in]  v_cache   [context, n_kv_heads, head_dim] f32
/// @param[in]  position  [1] below context
/// @param[in]  shape     of the model
/// @launch{grid n_heads\, block head_dim}
/// @traffic{4*n_heads*(position+1) + 4*d_kv*(position+1) read\, 4*d_q written}
/// @why{A thread a value of the output\, so that neighbours read neighbours of V.}
__global__ void attention_values(float* y,                       // [n_heads, head_dim]
                                 const float* scores,            // [n_heads, context]
                                 const float* v_cache,           // [context, n_kv_heads, head_dim]
                                 const std::uint32_t* position,  // [1]
                                 AttentionShape shape) {
  const std::uint32_t head = blockIdx.x;
  const std::uint32_t kv_head = head / (shape.n_heads / shape.n_kv_heads);
  const std::uint32_t d_kv = shape.n_kv_heads * shape.head_dim;
  const std::uint32_t n = *position + 1;
  const float* row = scores + std::size_t(head) * shape.context;
  const float* v = v_cache + kv_head * shape.head_dim + threadIdx.x;
  float sum = 0;
  for (std::uint32_t t = 0; t < n; ++t) sum = fmaf(row[t], v[std::size_t(t) * d_kv], sum);
  y[head * shape.head_dim + threadIdx.x] = sum;
}

inline void launch_attention_values(cudaStream_t stream, float* y, const float* scores,
                                    const float* v_cache, const std::uint32_t* position,
                                    const AttentionShape& shape) {
  launch(attention_values, shape.n_heads, shape.head_dim, 0, stream, y, scores, v_cache, position,
         shape);
}

constexpr std::uint64_t attention_values_traffic(const AttentionShape& shape, std::uint64_t n) {
  return 4 * (n * shape.n_heads + n * shape.d_kv() + shape.d_q());
}

/// y = softmax(q k^T / sqrt(head_dim)) v for each query head, over the positions up to this one.
inline void launch_attention(cudaStream_t stream, float* y, float* scores, const float* q,
                             const float* k_cache, const float* v_cache,
                             const std::uint32_t* position, const AttentionShape& shape) {
  launch_attention_scores(stream, scores, q, k_cache, position, shape);
  launch_attention_softmax(stream, scores, position, shape);
  launch_attention_values(stream, y, scores, v_cache, position, shape);
}

/// @param n positions, this one included
constexpr std::uint64_t attention_traffic(const AttentionShape& shape, std::uint64_t n) {
  return attention_scores_traffic(shape, n) + attention_softmax_traffic(shape, n) +
         attention_values_traffic(shape, n);
}

}  // namespace minfer
