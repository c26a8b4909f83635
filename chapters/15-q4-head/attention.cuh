// SPDX-License-Identifier: MIT
//
// Rotary embedding, the KV cache and attention.
#pragma once

#include <functional>
#include <vector>

#include <minfer/engine.h>
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
__global__ void append_kv(KvLayerF32 cache,        ///< out
                          const float* k,          ///< [T, d_kv], rotated
                          const float* v,          ///< [T, d_kv]
                          const StepInput* input,  ///< [1]
                          std::uint32_t d_kv) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
  if (i < d_kv) cache.append(input->position + t, i, k[t * d_kv + i], v[t * d_kv + i]);
}

inline void launch_append_kv(const Step& s, const KvLayerF32& cache, const float* k, const float* v,
                             const AttentionShape& shape) {
  s.launch(append_kv, ceil_div(shape.d_kv(), kThreads), kThreads,
           {s.n_tokens * 16ull * shape.d_kv()}, cache, k, v, s.input, shape.d_kv());
}

/// The same in int8: of a head's values d = max |x| / 127, rounded to fp16, and q = x / d rounded
/// to nearest, half to even. One warp a head of K and of V.
__global__ void append_kv_q8(KvLayerQ8 cache,         ///< out
                             const float* k,          ///< [T, d_kv], rotated
                             const float* v,          ///< [T, d_kv]
                             const StepInput* input,  ///< [1]
                             std::uint32_t head_dim) {
  const std::uint32_t kv_head = blockIdx.x / 2, t = blockIdx.y, lane = threadIdx.x;
  const bool is_v = blockIdx.x % 2 != 0;
  const float* x = (is_v ? v : k) + t * cache.d_kv + kv_head * head_dim;
  const std::size_t position = input->position + t;
  float largest = 0;
  bool is_nan = false;
  for (std::uint32_t i = lane; i < head_dim; i += 32) {
    largest = max_f32(largest, fabsf(x[i]));
    is_nan = is_nan || x[i] != x[i];
  }
  const std::uint16_t d = half_from_float(warp_max(largest) / 127.0f);
  const float inverse = d != 0 ? 1.0f / float_from_half(d) : 0.0f;
  std::int8_t* q = (is_v ? cache.v : cache.k) + position * cache.d_kv + kv_head * head_dim;
  for (std::uint32_t i = lane; i < head_dim; i += 32) {
    q[i] = static_cast<std::int8_t>(round_half_even_to_int(x[i] * inverse, -127, 127));
  }
  constexpr std::uint16_t kNan = 0x7e00;  // a NaN has to reach the logits: see scale_of_run
  const bool any_nan = __any_sync(0xffffffffu, is_nan);
  if (lane == 0) {
    (is_v ? cache.v_d : cache.k_d)[position * cache.n_kv_heads + kv_head] = any_nan ? kNan : d;
  }
}

inline void launch_append_kv(const Step& s, const KvLayerQ8& cache, const float* k, const float* v,
                             const AttentionShape& shape) {
  s.launch(append_kv_q8, 2 * shape.n_kv_heads, 32,
           {s.n_tokens * (10ull * shape.d_kv() + 4 * shape.n_kv_heads)}, cache, k, v, s.input,
           shape.head_dim);
}

inline constexpr std::uint32_t kAttentionThreads = 512;
inline constexpr std::uint32_t kTeam = 8;   ///< lanes that make a score together
inline constexpr std::uint32_t kLoads = 8;  ///< of 16 bytes that a thread has under way at once
static_assert(32 % kTeam == 0, "a team is within a warp");
static_assert(kAttentionThreads % 128 == 0, "every head_dim divides the block");

inline constexpr std::uint32_t kChunk = 256;  ///< positions that a block attends to

/// Chunks of so many positions, the last one begun.
MINFER_HD constexpr std::uint32_t chunks_of(std::uint32_t n_positions) {
  return (n_positions + kChunk - 1) / kChunk;
}

/// For how many chunks a step's blocks are launched: the next power of two, so that a graph serves
/// until the context has doubled.
inline std::uint32_t launched_chunks(std::uint32_t n_positions) {
  std::uint32_t chunks = 1;
  while (chunks < chunks_of(n_positions)) chunks *= 2;
  return chunks;
}

/// One query head at one token: what its block works on.
template <std::uint32_t kHeadDim, class Rows>
struct AttentionHead {
  const float4* q;  ///< [kHeadDim / 4]
  Rows k, v;
  std::uint32_t first, last;  ///< positions
  float* row;                 ///< [context]: notes, the block's from first to last

  /// Past the end the last position is read again: loads that depend on nothing go all at once.
  __device__ std::uint32_t or_last(std::uint32_t p) const { return p < last ? p : last; }
};

/// q . k, from each lane's chunks of it, to all lanes of a team.
/// @param q  the lane's first chunk of the query; the next ones are kTeam on
template <class Rows, std::uint32_t kChunks>
__device__ inline float team_dot(const float4* q, const typename Rows::Loaded (&k)[kChunks]) {
  float sum = 0;
  for (std::uint32_t c = 0; c < kChunks; ++c) {
    sum = dot(q[c * kTeam], Rows::value(k[c]), sum);
  }
  return warp_sum<kTeam>(sum);
}

/// row[p] = q . k[p] / sqrt(head_dim), a team a position.
/// @return the largest that this thread's team made
template <std::uint32_t kHeadDim, class Rows>
__device__ inline float scores(const AttentionHead<kHeadDim, Rows>& h) {
  constexpr std::uint32_t kChunks = kHeadDim / 4 / kTeam;  // of a head, a lane's share
  constexpr std::uint32_t kPositions = kLoads / kChunks;   // a team's at once
  constexpr std::uint32_t kTeams = kAttentionThreads / kTeam;
  static_assert(kHeadDim / 4 % kTeam == 0 && kLoads % kChunks == 0);
  const std::uint32_t team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam;
  const float scale = rsqrt_f32(static_cast<float>(kHeadDim));
  float max = -INFINITY;
  for (std::uint32_t first = h.first; first <= h.last; first += kPositions * kTeams) {
    typename Rows::Loaded keys[kPositions][kChunks];
    for (std::uint32_t j = 0; j < kPositions; ++j) {
      const std::uint32_t p = h.or_last(first + j * kTeams + team);
      for (std::uint32_t c = 0; c < kChunks; ++c) keys[j][c] = h.k.load(p, lane + c * kTeam);
    }
    for (std::uint32_t j = 0; j < kPositions; ++j) {
      const std::uint32_t p = first + j * kTeams + team;
      const float score = team_dot<Rows>(h.q + lane, keys[j]) * scale;
      if (lane == 0 && p <= h.last) h.row[p] = score;
      max = max_f32(max, score);
    }
  }
  return max;
}

/// row[p] = exp(row[p] - max): the softmax, but for its sum.
template <std::uint32_t kHeadDim, class Rows>
__device__ inline void softmax(const AttentionHead<kHeadDim, Rows>& h, float max) {
  for (std::uint32_t p = h.first + threadIdx.x; p <= h.last; p += kAttentionThreads) {
    h.row[p] = exp_f32(h.row[p] - max);
  }
}

/// What a block's positions add to the output's value i, and to what it is divided by.
struct WeightedSum {
  float output, total;
};

/// The sum of row[p] v[p], value threadIdx.x of it, and that of row[p], to the first kHeadDim
/// threads. A thread takes four values of the output, at every kParts-th position.
template <std::uint32_t kHeadDim, class Rows>
__device__ inline WeightedSum values(const AttentionHead<kHeadDim, Rows>& h) {
  constexpr std::uint32_t kVectors = kHeadDim / 4, kParts = kAttentionThreads / kVectors;
  MINFER_SHARED(float4, parts, [kAttentionThreads]);
  MINFER_SHARED(float, sums, [kParts]);
  const std::uint32_t part = threadIdx.x / kVectors, i = threadIdx.x % kVectors;
  float4 value = {0, 0, 0, 0};
  float sum = 0;
  for (std::uint32_t first = h.first + part; first <= h.last; first += kLoads * kParts) {
    float weights[kLoads];
    typename Rows::Loaded loaded[kLoads];
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t p = h.or_last(first + j * kParts);
      weights[j] = h.row[p];
      loaded[j] = h.v.load(p, i);
    }
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const float weight = first + j * kParts <= h.last ? weights[j] : 0;
      value = axpy(weight, Rows::value(loaded[j]), value);
      sum += weight;
    }
  }
  parts[threadIdx.x] = value;
  if (i == 0) sums[part] = sum;
  __syncthreads();  // parts, sums: written by all, read by the threads that add them up
  WeightedSum result = {0, 0};
  if (threadIdx.x < kHeadDim) {
    const float* merged = reinterpret_cast<const float*>(parts);  // [kParts, kHeadDim]
    for (std::uint32_t p = 0; p < kParts; ++p) {
      result.output += merged[p * kHeadDim + threadIdx.x];
      result.total += sums[p];
    }
  }
  __syncthreads();  // read; the next call writes them
  return result;
}

/// What attention to some positions leaves: with other positions' it makes the whole.
/// @why A softmax over all positions is a sum of those over some, each weighted by how far its
/// largest score is below the largest of all.
struct Partials {
  float* output;  ///< [T, n_heads, chunks, head_dim], not yet divided
  float* max;     ///< [T, n_heads, chunks], the largest score
  float* total;   ///< [T, n_heads, chunks], of the weights
};

/// A query head's attention to the positions of one chunk, or to all where `partials` has none.
/// @pre head_dim is kHeadDim; a layer's cache is aligned to 16 bytes, and below 64 GiB
/// @why 512 threads with eight loads of 16 bytes each under way wait once for every 128 positions
/// of K, and of V: on an H200 4.6 us on the 1.5B's shape at position 128. At 4,096 a block waits 32
/// times as often, and 14 blocks leave 118 of 132 SMs idle. A chunk's place is fixed by its
/// positions, so what is added to what does not depend on the GPU. What a block computes never
/// leaves its SM: q is in shared memory, the scores in L1.
template <std::uint32_t kHeadDim, class Layer>
__global__ void __launch_bounds__(kAttentionThreads, 1)  // a block an SM: up to 128 registers
    attention(float* y,                                  ///< out [T, n_heads, head_dim], or null
              Partials partials,                         ///< out, where y is null
              float* notes,                              ///< out [T, n_heads, context]
              const float* q,                            ///< [T, n_heads, head_dim], rotated
              Layer cache,                               ///< the layer's
              const StepInput* input,                    ///< [1]
              AttentionShape shape, std::uint32_t context) {
  constexpr std::uint32_t kVectors = kHeadDim / 4;
  MINFER_SHARED(float4, q_head, [kVectors]);
  const std::uint32_t t = blockIdx.y, chunk = blockIdx.x / shape.n_heads;
  const std::uint32_t q_head_id = blockIdx.x % shape.n_heads, row = t * shape.n_heads + q_head_id;
  const std::uint32_t kv_head = q_head_id / shape.group();
  const std::uint32_t first = chunk * kChunk, own = input->position + t;
  if (first > own) return;  // the whole block: a graph has blocks for more positions than there are
  const AttentionHead<kHeadDim, decltype(cache.keys(0, 0))> head = {
      q_head,
      cache.keys(kv_head, kHeadDim),
      cache.values(kv_head, kHeadDim),
      first,
      y == nullptr && own >= first + kChunk ? first + kChunk - 1 : own,
      notes + std::size_t(row) * context};
  if (threadIdx.x < kVectors) q_head[threadIdx.x] = by_four(q)[row * kVectors + threadIdx.x];
  __syncthreads();  // q_head: written by the first threads, read by all
  const float max = block_max<kAttentionThreads>(scores(head));  // publishes row, to all
  softmax(head, max);
  __syncthreads();  // row: written by all, read by all
  const WeightedSum sum = values(head);
  const std::uint32_t i = threadIdx.x;
  if (y != nullptr) {
    if (i < kHeadDim) y[row * kHeadDim + i] = sum.output / sum.total;
    return;
  }
  const std::uint32_t part = row * (gridDim.x / shape.n_heads) + chunk;
  if (i < kHeadDim) partials.output[part * kHeadDim + i] = sum.output;
  if (i == 0) {
    partials.max[part] = max;
    partials.total[part] = sum.total;
  }
}

/// y = the chunks' outputs, each weighted by exp(its max - the largest), over their totals
/// likewise: in the order of positions. One chunk has the weight 1, and the bits that it would have
/// alone.
__global__ void attention_merge(float* y,                ///< out [T, n_heads, head_dim]
                                Partials partials,       ///< [T, n_heads, chunks]
                                const StepInput* input,  ///< [1]
                                std::uint32_t chunks) {
  const std::uint32_t row = blockIdx.y * gridDim.x + blockIdx.x, i = threadIdx.x;
  const std::uint32_t n = chunks_of(input->position + blockIdx.y + 1);
  const float* max = partials.max + row * chunks;
  const float* total = partials.total + row * chunks;
  const float* output = partials.output + row * chunks * blockDim.x;
  float largest = -INFINITY;
  for (std::uint32_t chunk = 0; chunk < n; ++chunk) largest = max_f32(largest, max[chunk]);
  float sum = 0, weights = 0;
  for (std::uint32_t chunk = 0; chunk < n; ++chunk) {
    const float weight = exp_f32(max[chunk] - largest);
    sum = fmaf(weight, output[chunk * blockDim.x + i], sum);
    weights = fmaf(weight, total[chunk], weights);
  }
  y[row * blockDim.x + i] = sum / weights;
}

/// @param chunks  of kChunk positions, by a block each, as many as the last position needs or more;
///                1: a block attends to all positions
template <class Layer>
void launch_attention(const Step& s, float* y, const Partials& partials, float* notes,
                      const float* q, const Layer& cache, const AttentionShape& shape,
                      std::uint32_t context, std::uint32_t chunks) {
  // The partials are left out: they are a hundredth of the cache.
  const std::uint64_t vector = s.n_tokens * 4ull * shape.d_q();
  with_head_dim<4 * kTeam>(shape.head_dim, [&](auto head_dim) {
    s.launch(attention<head_dim, Layer>, chunks * shape.n_heads, kAttentionThreads,
             {chunks == 1 ? 2 * vector : vector, Layer::bytes_a_position(shape)},
             chunks == 1 ? y : nullptr, partials, notes, q, cache, s.input, shape, context);
  });
  if (chunks == 1) return;
  s.launch(attention_merge, shape.n_heads, shape.head_dim, {vector}, y, partials, s.input, chunks);
}

/// K and V of all layers, in one format.
struct KvCache {
  std::uint64_t bytes_a_position;  ///< in all layers
  /// Writes the step's K and V, [T, d_kv], into a layer's.
  std::function<void(const Step& s, std::uint32_t layer, const float* k, const float* v)> append;
  /// y = attention of q, [T, d_q], to what a layer has.
  std::function<void(const Step& s, std::uint32_t layer, float* y, const Partials& partials,
                     float* notes, const float* q, std::uint32_t chunks)>
      attend;
};

template <class Layer>
KvCache cache_of(Arena& arena, const ModelConfig& c, std::uint32_t context) {
  std::vector<Layer> layers;
  while (layers.size() < c.n_layers) layers.push_back(Layer::take(arena, c, context));
  return {
      c.n_layers * Layer::bytes_a_position(c),
      [layers, c](const Step& s, std::uint32_t layer, const float* k, const float* v) {
        launch_append_kv(s, layers[layer], k, v, c);
      },
      [layers, c, context](const Step& s, std::uint32_t layer, float* y, const Partials& partials,
                           float* notes, const float* q, std::uint32_t chunks) {
        launch_attention(s, y, partials, notes, q, layers[layer], c, context, chunks);
      }};
}

inline EngineOption attention_option() {
  return {"ATTN", {0, 1}, "attention: 0 a block a head; 1 a block a head and chunk (default)"};
}

inline EngineOption cache_option() {
  return {"KVQ", {0, 1}, "KV cache: 0 fp32 (default); 1 int8"};
}

/// The cache that was asked for.
inline KvCache make_cache(Arena& arena, const ModelConfig& c, const EngineOptions& options) {
  if (options.value("KVQ", 0) == 1) return cache_of<KvLayerQ8>(arena, c, options.context);
  return cache_of<KvLayerF32>(arena, c, options.context);
}

}  // namespace minfer
