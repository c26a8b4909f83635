// SPDX-License-Identifier: MIT
//
// Rotary embedding, the KV cache and attention.
#pragma once

#include <type_traits>

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

inline constexpr std::uint32_t kAttentionThreads = 512;
inline constexpr std::uint32_t kTeam = 8;  ///< lanes that make a score together
inline constexpr std::uint32_t kTeams = kAttentionThreads / kTeam;
inline constexpr std::uint32_t kLoads = 8;  ///< of 16 bytes that a thread has under way at once
static_assert(32 % kTeam == 0, "a team is within a warp");
static_assert(kAttentionThreads % 128 == 0, "every head_dim divides the block");

/// Four values that lie together. @pre aligned to 16 bytes
__device__ inline const float4* by_four(const float* values) {
  return reinterpret_cast<const float4*>(values);
}

/// q . k, from each lane's chunks of it, to all lanes of a team.
/// @param[in] q  the lane's first chunk of the query; the next ones are kTeam on
template <std::uint32_t kChunks>
__device__ inline float team_dot(const float4* q, const float4 (&k)[kChunks]) {
  float sum = 0;
  for (std::uint32_t c = 0; c < kChunks; ++c) {
    const float4 a = q[c * kTeam], b = k[c];
    sum = fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
  }
  return warp_sum<kTeam>(sum);
}

/// sum + weight * v.
__device__ inline float4 axpy(float weight, const float4& v, const float4& sum) {
  return {fmaf(weight, v.x, sum.x), fmaf(weight, v.y, sum.y), fmaf(weight, v.z, sum.z),
          fmaf(weight, v.w, sum.w)};
}

/// y[h] = softmax(q[h] k^T / sqrt(head_dim)) v, one block a query head.
/// @param[out] y         [n_heads, head_dim] f32
/// @param[out] scores    [n_heads, context] f32: the block's notes, exp(score - max) at the end
/// @param[in]  q         [n_heads, head_dim] f32, rotated
/// @param[in]  k_cache   [context, n_kv_heads, head_dim] f32
/// @param[in]  v_cache   [context, n_kv_heads, head_dim] f32
/// @param[in]  position  [1] below context
/// @param[in]  shape     of the model
/// @pre head_dim is kHeadDim; a layer's cache is aligned to 16 bytes, and below 64 GiB
/// @launch{grid n_heads\, block kAttentionThreads}
/// @traffic{4*d_q + 8*d_kv*(position+1) read\, 4*d_q written}
/// @why{At position 128 a block reads 132 KB\, too little for its bandwidth to matter: what counts
///      is how often it waits for memory. 512 threads with eight loads of 16 bytes each under way
///      wait once for every 128 positions of K\, and of V. On an H200 that takes 4.5 us on the
///      1.5B's shape\, where 128 threads with a row of K each took 34.1\, and three kernels 42.
///      What the block computes never leaves its SM: q is in shared memory\, the scores in L1. exp
///      stays the exact one: an approximate one is not what costs\, and moves tokens.}
template <std::uint32_t kHeadDim>
__global__ void __launch_bounds__(kAttentionThreads, 1)  // a block an SM: up to 128 registers
    attention(float* y,                                  // [n_heads, head_dim]
              float* scores,                             // [n_heads, context]
              const float* q,                            // [n_heads, head_dim]
              const float* k_cache,                      // [context, n_kv_heads, head_dim]
              const float* v_cache,                      // [context, n_kv_heads, head_dim]
              const std::uint32_t* position,             // [1]
              AttentionShape shape) {
  constexpr std::uint32_t kVectors = kHeadDim / 4;        // of four values, in a head
  constexpr std::uint32_t kChunks = kVectors / kTeam;     // of these, a lane's share of a score
  constexpr std::uint32_t kPositions = kLoads / kChunks;  // a team's at once
  constexpr std::uint32_t kParts = kAttentionThreads / kVectors;  // that share the sum over V
  static_assert(kVectors % kTeam == 0 && kLoads % kChunks == 0);
  MINFER_SHARED(float4, q_head, [kVectors]);
  MINFER_SHARED(float4, parts, [kAttentionThreads]);
  MINFER_SHARED(float, sums, [kParts]);
  const std::uint32_t thread = threadIdx.x, head = blockIdx.x, last = *position;
  const std::uint32_t kv_head = head / (shape.n_heads / shape.n_kv_heads);
  const std::uint32_t stride = shape.n_kv_heads * kVectors;  // from a position to the next
  const float4* k = by_four(k_cache) + kv_head * kVectors;
  const float4* v = by_four(v_cache) + kv_head * kVectors;
  float* row = scores + std::size_t(head) * shape.context;
  // Past the end the last position is read again: loads that depend on nothing go all at once.
  const auto or_last = [last](std::uint32_t t) { return t < last ? t : last; };

  if (thread < kVectors) q_head[thread] = by_four(q)[head * kVectors + thread];
  __syncthreads();  // q_head: written by the first threads, read by all

  const std::uint32_t team = thread / kTeam, lane = thread % kTeam;
  const float scale = rsqrt_f32(static_cast<float>(kHeadDim));
  float max = -INFINITY;
  for (std::uint32_t first = 0; first <= last; first += kPositions * kTeams) {
    float4 keys[kPositions][kChunks];
    for (std::uint32_t j = 0; j < kPositions; ++j) {
      const float4* key = k + or_last(first + j * kTeams + team) * stride + lane;
      for (std::uint32_t c = 0; c < kChunks; ++c) keys[j][c] = key[c * kTeam];
    }
    for (std::uint32_t j = 0; j < kPositions; ++j) {
      const std::uint32_t t = first + j * kTeams + team;
      const float score = team_dot(q_head + lane, keys[j]) * scale;
      if (lane == 0 && t <= last) row[t] = score;
      max = max_f32(max, score);
    }
  }
  max = block_max<kAttentionThreads>(max);  // publishes row: written by lane 0s, read by all

  for (std::uint32_t t = thread; t <= last; t += kAttentionThreads) row[t] = exp_f32(row[t] - max);
  __syncthreads();  // row: written by all, read by all

  // A thread takes four values of the output, at every kParts-th position.
  const std::uint32_t part = thread / kVectors, i = thread % kVectors;
  float4 value = {0, 0, 0, 0};
  float sum = 0;
  for (std::uint32_t first = part; first <= last; first += kLoads * kParts) {
    float weights[kLoads];
    float4 values[kLoads];
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t t = or_last(first + j * kParts);
      weights[j] = row[t];
      values[j] = v[t * stride + i];
    }
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const float weight = first + j * kParts <= last ? weights[j] : 0;
      value = axpy(weight, values[j], value);
      sum += weight;
    }
  }
  parts[thread] = value;
  if (i == 0) sums[part] = sum;
  __syncthreads();  // parts, sums: written by all, read by the threads that add them up

  if (thread >= kHeadDim) return;
  const float* merged = reinterpret_cast<const float*>(parts);  // [kParts, head_dim]
  float output = 0, total = 0;
  for (std::uint32_t p = 0; p < kParts; ++p) {
    output += merged[p * kHeadDim + thread];
    total += sums[p];
  }
  y[head * kHeadDim + thread] = output / total;
}

/// @pre head_dim is 32, 64 or 128
inline void launch_attention(cudaStream_t stream, float* y, float* scores, const float* q,
                             const float* k_cache, const float* v_cache,
                             const std::uint32_t* position, const AttentionShape& shape) {
  const auto launch_for = [&](auto head_dim) {
    launch(attention<head_dim>, shape.n_heads, kAttentionThreads, 0, stream, y, scores, q, k_cache,
           v_cache, position, shape);
  };
  if (shape.head_dim == 128) return launch_for(std::integral_constant<std::uint32_t, 128>());
  if (shape.head_dim == 64) return launch_for(std::integral_constant<std::uint32_t, 64>());
  launch_for(std::integral_constant<std::uint32_t, 32>());
}

/// @param n positions, this one included
constexpr std::uint64_t attention_traffic(const AttentionShape& shape, std::uint64_t n) {
  return 8 * (shape.d_q() + n * shape.d_kv());
}

}  // namespace minfer
