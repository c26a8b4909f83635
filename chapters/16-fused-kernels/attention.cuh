// SPDX-License-Identifier: MIT
//
// The KV cache and attention.
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

#include <minfer/engine.h>
#include <minfer/math.h>

#include "cache.h"
#include "cuda/float4.h"
#include "cuda/reduce.h"
#include "cuda/step.h"
#include "fused.cuh"

namespace minfer {

/// Writes the step's K and V into a layer's cache in int8: of a head's values d = max |x| / 127,
/// rounded to fp16, and q = x / d rounded to nearest, half to even. One warp a head of K and of V.
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
static_assert(kChunk <= kAttentionThreads, "softmax: a thread a position");

inline constexpr std::uint32_t kNoEnd = ~0u;  ///< of positions: no position is so large

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
  float* row;                 ///< [kChunk] in shared memory: notes, of position first + i

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

/// What a thread has under way of K: a share of several positions' keys.
template <std::uint32_t kHeadDim, class Rows>
struct Keys {
  static constexpr std::uint32_t kChunks = kHeadDim / 4 / kTeam;  ///< of a head, a lane's share
  static constexpr std::uint32_t kPositions = kLoads / kChunks;   ///< a team's at once
  static constexpr std::uint32_t kTeams = kAttentionThreads / kTeam;
  static_assert(kHeadDim / 4 % kTeam == 0 && kLoads % kChunks == 0);
  typename Rows::Loaded keys[kPositions][kChunks];

  /// Those from position `first` on, as far as they are in [from, to).
  __device__ void load(const AttentionHead<kHeadDim, Rows>& h, std::uint32_t first,
                       std::uint32_t from = 0, std::uint32_t to = kNoEnd) {
    const std::uint32_t team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam;
    for (std::uint32_t j = 0; j < kPositions; ++j) {
      const std::uint32_t p = h.or_last(first + j * kTeams + team);
      if (p < from || p >= to) continue;
      for (std::uint32_t c = 0; c < kChunks; ++c) keys[j][c] = h.k.load(p, lane + c * kTeam);
    }
  }
};

/// row[p] = q . k[p] / sqrt(head_dim), a team a position. @param batch  the first
/// @return the largest that this thread's team made
template <std::uint32_t kHeadDim, class Rows>
__device__ inline float scores(const AttentionHead<kHeadDim, Rows>& h,
                               Keys<kHeadDim, Rows>& batch) {
  using Batch = Keys<kHeadDim, Rows>;
  const std::uint32_t team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam;
  const float scale = rsqrt_f32(static_cast<float>(kHeadDim));
  float max = -INFINITY;
  for (std::uint32_t first = h.first; first <= h.last; first += Batch::kPositions * Batch::kTeams) {
    if (first > h.first) batch.load(h, first);
    for (std::uint32_t j = 0; j < Batch::kPositions; ++j) {
      const std::uint32_t p = first + j * Batch::kTeams + team;
      const float score = team_dot<Rows>(h.q + lane, batch.keys[j]) * scale;
      if (lane == 0 && p <= h.last) h.row[p - h.first] = score;
      max = max_f32(max, score);
    }
  }
  return max;
}

/// row[i] = exp(row[i] - max): the softmax, but for its sum.
template <std::uint32_t kHeadDim, class Rows>
__device__ inline void softmax(const AttentionHead<kHeadDim, Rows>& h, float max) {
  const std::uint32_t i = threadIdx.x;
  if (h.first + i <= h.last) h.row[i] = exp_f32(h.row[i] - max);
}

/// What a block's positions add to the output's value i, and to what it is divided by.
struct WeightedSum {
  float output, total;
};

/// What a thread has under way of V: four values of several positions, every kParts-th.
template <std::uint32_t kHeadDim, class Rows>
struct Values {
  static constexpr std::uint32_t kVectors = kHeadDim / 4, kParts = kAttentionThreads / kVectors;
  typename Rows::Loaded values[kLoads];

  /// Those from position `first` on, as far as they are in [from, to).
  __device__ void load(const AttentionHead<kHeadDim, Rows>& h, std::uint32_t first,
                       std::uint32_t from = 0, std::uint32_t to = kNoEnd) {
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const std::uint32_t p = h.or_last(first + threadIdx.x / kVectors + j * kParts);
      if (p >= from && p < to) values[j] = h.v.load(p, threadIdx.x % kVectors);
    }
  }
};

/// The sum of row[p] v[p], value threadIdx.x of it, and that of row[p], to the first kHeadDim
/// threads. A thread takes four values of the output, at every kParts-th position.
/// @param batch  the first
template <std::uint32_t kHeadDim, class Rows>
__device__ inline WeightedSum values(const AttentionHead<kHeadDim, Rows>& h,
                                     Values<kHeadDim, Rows>& batch) {
  constexpr std::uint32_t kVectors = kHeadDim / 4, kParts = kAttentionThreads / kVectors;
  MINFER_SHARED(float4, parts, [kAttentionThreads]);
  MINFER_SHARED(float, sums, [kParts]);
  const std::uint32_t part = threadIdx.x / kVectors, i = threadIdx.x % kVectors;
  float4 value = {0, 0, 0, 0};
  float sum = 0;
  for (std::uint32_t first = h.first; first + part <= h.last; first += kLoads * kParts) {
    float weights[kLoads];
    for (std::uint32_t j = 0; j < kLoads; ++j)
      weights[j] = h.row[h.or_last(first + part + j * kParts) - h.first];
    batch.load(h, first);
    for (std::uint32_t j = 0; j < kLoads; ++j) {
      const float weight = first + part + j * kParts <= h.last ? weights[j] : 0;
      value = axpy(weight, Rows::value(batch.values[j]), value);
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

/// A query head's attention to the positions of one chunk.
/// @pre head_dim is kHeadDim; a layer's cache is aligned to 16 bytes, and below 64 GiB
/// @why 512 threads with eight loads of 16 bytes each under way wait once for every 128 positions
/// of K, and of V: on an H200 4.6 us on the 1.5B's shape at position 128. At 4,096 a block waits 32
/// times as often, and 14 blocks leave 118 of 132 SMs idle. A chunk's place is fixed by its
/// positions, so what is added to what does not depend on the GPU. What a block computes never
/// leaves its SM: q and the scores are in shared memory. The keys of earlier positions are under
/// way before q is there. The bound counts 128 threads too many: with at most 96 registers a
/// thread, an SM has room for this block while one of qkv still runs.
template <std::uint32_t kHeadDim, class Layer>
__global__ void __launch_bounds__(kAttentionThreads + 128, 1)
    attention(QuantizedVector y,       ///< out [T, d_q], or its q is null
              Partials partials,       ///< out, where y.q is null
              const float* q,          ///< [T, n_heads, head_dim], rotated
              Layer cache,             ///< the layer's
              const StepInput* input,  ///< [1]
              AttentionShape shape) {
  constexpr std::uint32_t kVectors = kHeadDim / 4;
  MINFER_SHARED(float4, q_head, [kVectors]);
  MINFER_SHARED(float, notes, [kChunk]);
  const std::uint32_t t = blockIdx.y, chunk = blockIdx.x / shape.n_heads;
  const std::uint32_t q_head_id = blockIdx.x % shape.n_heads, row = t * shape.n_heads + q_head_id;
  const std::uint32_t kv_head = q_head_id / shape.group();
  const std::uint32_t first = chunk * kChunk, cached = input->position, own = cached + t;
  let_next_kernel_begin();
  if (first > own) return;  // the whole block: a graph has blocks for more positions than there are
  using Rows = decltype(cache.keys(0, 0));
  const AttentionHead<kHeadDim, Rows> head = {q_head,
                                              cache.keys(kv_head, kHeadDim),
                                              cache.values(kv_head, kHeadDim),
                                              first,
                                              own >= first + kChunk ? first + kChunk - 1 : own,
                                              notes};
  Keys<kHeadDim, Rows> keys;
  Values<kHeadDim, Rows> batch;
  keys.load(head, first, 0, cached);
  wait_for_previous_kernel();
  keys.load(head, first, cached);
  if (threadIdx.x < kVectors) q_head[threadIdx.x] = by_four(q)[row * kVectors + threadIdx.x];
  __syncthreads();  // q_head: written by the first threads, read by all
  const float max = block_max<kAttentionThreads>(scores(head, keys));  // publishes row, to all
  softmax(head, max);
  __syncthreads();  // row: written by all, read by all
  const WeightedSum sum = values(head, batch);
  const std::uint32_t i = threadIdx.x;
  if (y.q != nullptr) {
    const std::uint32_t d_q = shape.n_heads * kHeadDim;
    if (i < kHeadDim) quantize(y, t, d_q, q_head_id * kHeadDim + i, sum.output / sum.total);
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
/// likewise, in the order of positions, and quantized. One chunk has the weight 1, and the bits
/// that it would have alone.
__global__ void attention_merge(QuantizedVector y,       ///< out [T, n_heads, head_dim]
                                Partials partials,       ///< [T, n_heads, chunks]
                                const StepInput* input,  ///< [1]
                                std::uint32_t chunks) {
  let_next_kernel_begin();
  wait_for_previous_kernel();
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
  quantize(y, blockIdx.y, gridDim.x * blockDim.x, blockIdx.x * blockDim.x + i, sum / weights);
}

/// @param chunks  of kChunk positions, by a block each, as many as the last position needs or more
template <class Layer>
void launch_attention(const Step& s, const QuantizedVector& y, const Partials& partials,
                      const float* q, const Layer& cache, const AttentionShape& shape,
                      std::uint32_t chunks) {
  // The partials are left out: they are a hundredth of the cache.
  const std::uint64_t q_bytes = s.n_tokens * 4ull * shape.d_q();
  const std::uint64_t y_bytes = s.n_tokens * (shape.d_q() + shape.d_q() / 4ull);
  with_head_dim<4 * kTeam>(shape.head_dim, [&](auto head_dim) {
    const Traffic traffic = {q_bytes + (chunks == 1 ? y_bytes : 0), Layer::bytes_a_position(shape)};
    launch(s.begin, attention<head_dim, Layer>, {chunks * shape.n_heads, s.n_tokens},
           kAttentionThreads, 0, traffic, s.stream, chunks == 1 ? y : QuantizedVector{}, partials,
           q, cache, s.input, shape);
  });
  if (chunks == 1) return;
  launch(s.begin, attention_merge, {shape.n_heads, s.n_tokens}, shape.head_dim, 0, Traffic{y_bytes},
         s.stream, y, partials, s.input, chunks);
}

/// K and V of all layers, in one format.
struct KvCache {
  std::uint64_t bytes_a_position;  ///< in all layers
  /// Where qkv leaves K and V.
  std::function<KvRows(std::uint32_t layer)> rows;
  /// Brings them into a layer's cache from there, if that is another place.
  std::function<void(const Step& s, std::uint32_t layer)> append;
  /// y = attention of q, [T, d_q], to what a layer has.
  std::function<void(const Step& s, std::uint32_t layer, const QuantizedVector& y,
                     const Partials& partials, const float* q, std::uint32_t chunks)>
      attend;
};

template <class Layer>
KvCache cache_of(Arena& arena, const ModelConfig& c, std::uint32_t context) {
  std::vector<Layer> layers;
  while (layers.size() < c.n_layers) layers.push_back(Layer::take(arena, c, context));
  KvCache cache;
  cache.bytes_a_position = c.n_layers * Layer::bytes_a_position(c);
  if constexpr (std::is_same_v<Layer, KvLayerF32>) {
    cache.rows = [layers](std::uint32_t layer) {
      return KvRows{layers[layer].k, layers[layer].v, layers[layer].d_kv, true};
    };
    cache.append = [](const Step&, std::uint32_t) {};
  } else {
    const KvRows rows = {arena.take<float>(kMaxTokens, c.d_kv()),
                         arena.take<float>(kMaxTokens, c.d_kv()), c.d_kv(), false};
    cache.rows = [rows](std::uint32_t) { return rows; };
    cache.append = [rows, layers, c](const Step& s, std::uint32_t layer) {
      launch_append_kv(s, layers[layer], rows.k, rows.v, c);
    };
  }
  cache.attend = [layers, c](const Step& s, std::uint32_t layer, const QuantizedVector& y,
                             const Partials& partials, const float* q, std::uint32_t chunks) {
    launch_attention(s, y, partials, q, layers[layer], c, chunks);
  };
  return cache;
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
