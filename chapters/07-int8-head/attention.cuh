// SPDX-License-Identifier: MIT
//
// Rotary embedding, the KV cache and attention.
#pragma once

#include <minfer/math.h>

#include "cache.h"
#include "cuda/float4.h"
#include "cuda/reduce.h"
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

inline constexpr std::uint32_t kAttentionThreads = 512;
inline constexpr std::uint32_t kTeam = 8;   ///< lanes that make a score together
inline constexpr std::uint32_t kLoads = 8;  ///< of 16 bytes that a thread has under way at once
static_assert(32 % kTeam == 0, "a team is within a warp");
static_assert(kAttentionThreads % 128 == 0, "every head_dim divides the block");

/// One query head at one token: what its block works on.
template <std::uint32_t kHeadDim>
struct AttentionHead {
  const float4* q;       ///< [kHeadDim / 4]
  const float4* k;       ///< position p begins at p * stride
  const float4* v;       ///< likewise
  std::uint32_t stride;  ///< in vectors
  std::uint32_t last;    ///< position, its own
  float* row;            ///< [context]: the block's notes

  /// Past the end the last position is read again: loads that depend on nothing go all at once.
  __device__ std::uint32_t or_last(std::uint32_t p) const { return p < last ? p : last; }
};

/// q . k, from each lane's chunks of it, to all lanes of a team.
/// @param q  the lane's first chunk of the query; the next ones are kTeam on
template <std::uint32_t kChunks>
__device__ inline float team_dot(const float4* q, const float4 (&k)[kChunks]) {
  float sum = 0;
  for (std::uint32_t c = 0; c < kChunks; ++c) {
    sum = dot(q[c * kTeam], k[c], sum);
  }
  return warp_sum<kTeam>(sum);
}

/// row[p] = q . k[p] / sqrt(head_dim), a team a position.
/// @return the largest that this thread's team made
template <std::uint32_t kHeadDim>
__device__ inline float scores(const AttentionHead<kHeadDim>& h) {
  constexpr std::uint32_t kChunks = kHeadDim / 4 / kTeam;  // of a head, a lane's share
  constexpr std::uint32_t kPositions = kLoads / kChunks;   // a team's at once
  constexpr std::uint32_t kTeams = kAttentionThreads / kTeam;
  static_assert(kHeadDim / 4 % kTeam == 0 && kLoads % kChunks == 0);
  const std::uint32_t team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam;
  const float scale = rsqrt_f32(static_cast<float>(kHeadDim));
  float max = -INFINITY;
  for (std::uint32_t first = 0; first <= h.last; first += kPositions * kTeams) {
    float4 keys[kPositions][kChunks];
    for (std::uint32_t j = 0; j < kPositions; ++j) {
      const float4* key = h.k + h.or_last(first + j * kTeams + team) * h.stride + lane;
      for (std::uint32_t c = 0; c < kChunks; ++c) keys[j][c] = key[c * kTeam];
    }
    for (std::uint32_t j = 0; j < kPositions; ++j) {
      const std::uint32_t p = first + j * kTeams + team;
      const float score = team_dot(h.q + lane, keys[j]) * scale;
      if (lane == 0 && p <= h.last) h.row[p] = score;
      max = max_f32(max, score);
    }
  }
  return max;
}

/// row[p] = exp(row[p] - max): the softmax, but for its sum.
template <std::uint32_t kHeadDim>
__device__ inline void softmax(const AttentionHead<kHeadDim>& h, float max) {
  for (std::uint32_t p = threadIdx.x; p <= h.last; p += kAttentionThreads) {
    h.row[p] = exp_f32(h.row[p] - max);
  }
}

/// y = the sum of row[p] v[p] over that of row[p]. A thread takes four values of the output, at
/// every kParts-th position.
template <std::uint32_t kHeadDim>
__device__ inline void values(float* y,  ///< out [kHeadDim]
                              const AttentionHead<kHeadDim>& h) {
  constexpr std::uint32_t kVectors = kHeadDim / 4, kParts = kAttentionThreads / kVectors;
  MINFER_SHARED(float4, parts, [kAttentionThreads]);
  MINFER_SHARED(float, sums, [kParts]);
  const std::uint32_t part = threadIdx.x / kVectors, i = threadIdx.x % kVectors;
  float4 value = {0, 0, 0, 0};
  float sum = 0;
  for (std::uint32_t first = part; first <= h.last; first += kLoads * kParts) {
    float weights[kLoads];
    float4 loaded[kLoads];
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t p = h.or_last(first + j * kParts);
      weights[j] = h.row[p];
      loaded[j] = h.v[p * h.stride + i];
    }
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const float weight = first + j * kParts <= h.last ? weights[j] : 0;
      value = axpy(weight, loaded[j], value);
      sum += weight;
    }
  }
  parts[threadIdx.x] = value;
  if (i == 0) sums[part] = sum;
  __syncthreads();  // parts, sums: written by all, read by the threads that add them up
  if (threadIdx.x < kHeadDim) {
    const float* merged = reinterpret_cast<const float*>(parts);  // [kParts, kHeadDim]
    float output = 0, total = 0;
    for (std::uint32_t p = 0; p < kParts; ++p) {
      output += merged[p * kHeadDim + threadIdx.x];
      total += sums[p];
    }
    y[threadIdx.x] = output / total;
  }
  __syncthreads();  // read; the next call writes them
}

/// y[t][h] = softmax(q[t][h] k^T / sqrt(head_dim)) v, one block a query head.
/// @pre head_dim is kHeadDim; a layer's cache is aligned to 16 bytes, and below 64 GiB
/// @why At position 128 a block reads 132 KB, too little for its bandwidth to matter: what counts
/// is how often it waits for memory. 512 threads with eight loads of 16 bytes each under way wait
/// once for every 128 positions of K, and of V. On an H200 that takes 4.6 us on the 1.5B's shape,
/// where 128 threads with a row of K each took 34.1, and three kernels 44. What the block computes
/// never leaves its SM: q is in shared memory, the scores in L1. exp stays the exact one: an
/// approximate one is not what costs, and moves tokens.
template <std::uint32_t kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads, 1)  // a block an SM: up to 128 registers
    attention(float* y,                                  ///< out [T, n_heads, head_dim]
              float* notes,                              ///< out [T, n_heads, context]
              const float* q,                            ///< [T, n_heads, head_dim], rotated
              KvLayer cache,                             ///< the layer's
              const StepInput* input,                    ///< [1]
              AttentionShape shape, std::uint32_t context) {
  constexpr std::uint32_t kVectors = kHeadDim / 4;
  MINFER_SHARED(float4, q_head, [kVectors]);
  const std::uint32_t t = blockIdx.y, row = t * shape.n_heads + blockIdx.x;
  const std::uint32_t kv_head = blockIdx.x / shape.group();
  const AttentionHead<kHeadDim> head = {q_head,
                                        by_four(cache.k) + kv_head * kVectors,
                                        by_four(cache.v) + kv_head * kVectors,
                                        shape.n_kv_heads * kVectors,
                                        input->position + t,
                                        notes + std::size_t(row) * context};
  if (threadIdx.x < kVectors) q_head[threadIdx.x] = by_four(q)[row * kVectors + threadIdx.x];
  __syncthreads();  // q_head: written by the first threads, read by all
  const float max = block_max<kAttentionThreads>(scores(head));  // publishes row, to all
  softmax(head, max);
  __syncthreads();  // row: written by all, read by all
  values(y + row * kHeadDim, head);
}

inline void launch_attention(const Step& s, float* y, float* notes, const float* q,
                             const KvLayer& cache, const AttentionShape& shape,
                             std::uint32_t context) {
  with_head_dim<4 * kTeam>(shape.head_dim, [&](auto head_dim) {
    s.launch(attention<head_dim>, shape.n_heads, kAttentionThreads,
             {s.n_tokens * 8ull * shape.d_q(), 8ull * shape.d_kv()}, y, notes, q, cache, s.input,
             shape, context);
  });
}

}  // namespace minfer
