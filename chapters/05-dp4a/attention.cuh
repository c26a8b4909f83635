// SPDX-License-Identifier: MIT
//
// Rotary embedding, the KV cache and attention.
#pragma once

#include <minfer/math.h>

#include "cache.h"
#include "cuda/step.h"

namespace minfer {

/// Rotates each head's pairs (i, i + head_dim/2) in place: RoPE as GPT-NeoX has it.
/// @pre head_dim is even; one block a head, one thread a pair
/// @why The table is made on the host in double, once: no sine or cosine is the same everywhere.
__global__ void rope(float* x,                ///< in, out [T, n_heads, head_dim]
                     const float* cosines,    ///< [context, head_dim/2] of each pair's angle
                     const float* sines,      ///< [context, head_dim/2]
                     const StepInput* input,  ///< [1]
                     std::uint32_t head_dim) {
  const std::uint32_t half = head_dim / 2, i = threadIdx.x, t = blockIdx.y;
  const std::size_t angle = std::size_t(input->position + t) * half + i;
  float* head = x + (t * gridDim.x + blockIdx.x) * head_dim;
  const float a = head[i], b = head[i + half];
  head[i] = a * cosines[angle] - b * sines[angle];
  head[i + half] = a * sines[angle] + b * cosines[angle];
}

inline void launch_rope(const Step& s, float* x, const float* cosines, const float* sines,
                        std::uint32_t n_heads, std::uint32_t head_dim) {
  const Traffic traffic = {s.n_tokens * 4ull * head_dim * (2 * n_heads + 1)};
  s.launch(rope, n_heads, head_dim / 2, traffic, x, cosines, sines, s.input, head_dim);
}

/// Writes the step's K and V into a layer's cache.
/// @why A position's heads lie together, so one position is one run of memory.
__global__ void append_kv(KvLayer cache,           ///< out
                          const float* k,          ///< [T, d_kv], rotated
                          const float* v,          ///< [T, d_kv]
                          const StepInput* input,  ///< [1]
                          std::uint32_t d_kv) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
  if (i < d_kv) cache.append(input->position + t, i, k[t * d_kv + i], v[t * d_kv + i]);
}

inline void launch_append_kv(const Step& s, const KvLayer& cache, const float* k, const float* v) {
  s.launch(append_kv, ceil_div(cache.d_kv, kThreads), kThreads, {s.n_tokens * 16ull * cache.d_kv},
           cache, k, v, s.input, cache.d_kv);
}

/// scores[t][h][p] = q[t][h] . k[p] / sqrt(head_dim), for every position p up to t's own.
/// @why A thread a position: it reads q and its row of K alone, as the CPU's loop does.
__global__ void attention_scores(float* scores,           ///< out [T, n_heads, context]
                                 const float* q,          ///< [T, n_heads, head_dim], rotated
                                 KvLayer cache,           ///< its K
                                 const StepInput* input,  ///< [1]
                                 AttentionShape shape, std::uint32_t context) {
  const std::uint32_t head = blockIdx.x, t = blockIdx.y, n = input->position + t + 1;
  const float scale = rsqrt_f32(static_cast<float>(shape.head_dim));
  const float* q_head = q + t * shape.d_q() + head * shape.head_dim;
  const float* k_head = cache.k + head / shape.group() * shape.head_dim;
  float* row = scores + std::size_t(t * shape.n_heads + head) * context;
  for (std::uint32_t p = threadIdx.x; p < n; p += kThreads) {
    const float* k = k_head + std::size_t(p) * cache.d_kv;
    float sum = 0;
    for (std::uint32_t i = 0; i < shape.head_dim; ++i) sum = fmaf(q_head[i], k[i], sum);
    row[p] = sum * scale;
  }
}

inline void launch_attention_scores(const Step& s, float* scores, const float* q,
                                    const KvLayer& cache, const AttentionShape& shape,
                                    std::uint32_t context) {
  const Traffic traffic = {s.n_tokens * 4ull * shape.d_q(),
                           4ull * (shape.d_kv() + s.n_tokens * shape.n_heads)};
  s.launch(attention_scores, shape.n_heads, kThreads, traffic, scores, q, cache, s.input, shape,
           context);
}

/// Turns each head's scores into weights that sum to one, in place:
/// scores[t][h][p] = exp(scores[t][h][p] - max) / sum.
/// @why A thread a head, walking its scores three times. The maximum comes off first, so that no
/// exp overflows.
__global__ void attention_softmax(float* scores,           ///< in, out [T, n_heads, context]
                                  const StepInput* input,  ///< [1]
                                  std::uint32_t n_heads, std::uint32_t context) {
  const std::uint32_t head = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
  const std::uint32_t n = input->position + t + 1;
  if (head < n_heads) {
    float* row = scores + std::size_t(t * n_heads + head) * context;
    float max = row[0], sum = 0;
    for (std::uint32_t p = 1; p < n; ++p) max = max_f32(max, row[p]);
    for (std::uint32_t p = 0; p < n; ++p) {
      row[p] = exp_f32(row[p] - max);
      sum += row[p];
    }
    for (std::uint32_t p = 0; p < n; ++p) row[p] /= sum;
  }
}

inline void launch_attention_softmax(const Step& s, float* scores, std::uint32_t n_heads,
                                     std::uint32_t context) {
  s.launch(attention_softmax, ceil_div(n_heads, kThreads), kThreads,
           {0, s.n_tokens * 8ull * n_heads}, scores, s.input, n_heads, context);
}

/// y[t][h] = the sum over p of scores[t][h][p] * v[p].
/// @why A thread a value of the output, so that neighbours read neighbours of V.
__global__ void attention_values(float* y,                ///< out [T, n_heads, head_dim]
                                 const float* scores,     ///< [T, n_heads, context]: weights
                                 KvLayer cache,           ///< its V
                                 const StepInput* input,  ///< [1]
                                 AttentionShape shape, std::uint32_t context) {
  const std::uint32_t head = blockIdx.x, t = blockIdx.y, n = input->position + t + 1;
  const float* weights = scores + std::size_t(t * shape.n_heads + head) * context;
  const float* v = cache.v + head / shape.group() * shape.head_dim + threadIdx.x;
  float sum = 0;
  for (std::uint32_t p = 0; p < n; ++p, v += cache.d_kv) sum = fmaf(weights[p], *v, sum);
  y[t * shape.d_q() + head * shape.head_dim + threadIdx.x] = sum;
}

inline void launch_attention_values(const Step& s, float* y, const float* scores,
                                    const KvLayer& cache, const AttentionShape& shape,
                                    std::uint32_t context) {
  const Traffic traffic = {s.n_tokens * 4ull * shape.d_q(),
                           4ull * (shape.d_kv() + s.n_tokens * shape.n_heads)};
  s.launch(attention_values, shape.n_heads, shape.head_dim, traffic, y, scores, cache, s.input,
           shape, context);
}

/// y = softmax(q k^T / sqrt(head_dim)) v for each query head, over the positions up to its own.
inline void launch_attention(const Step& s, float* y, float* scores, const float* q,
                             const KvLayer& cache, const AttentionShape& shape,
                             std::uint32_t context) {
  launch_attention_scores(s, scores, q, cache, shape, context);
  launch_attention_softmax(s, scores, shape.n_heads, context);
  launch_attention_values(s, y, scores, cache, shape, context);
}

}  // namespace minfer
