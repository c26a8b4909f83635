// SPDX-License-Identifier: MIT
//
// Attention: of some query heads that share a K/V head to a chunk of positions, a CTA.
#pragma once

#include <cstddef>
#include <cstdint>

#include <minfer/math.h>

#include "barrier.h"
#include "cuda/float4.h"
#include "cuda/ptx.h"
#include "cuda/reduce.h"
#include "cuda/shared.h"
#include "gemv.cuh"
#include "model.h"
#include "plan.h"
#include "quantize.cuh"

namespace minfer {

inline constexpr std::uint32_t kTeam = 8;     ///< lanes that make a score together
inline constexpr std::uint32_t kLoads = 8;    ///< of 16 bytes that a thread has under way at once
inline constexpr std::uint32_t kChunk = 256;  ///< positions that a CTA attends to at once
static_assert(kChunk <= kCtaThreads, "softmax: a thread a position");

/// Chunks of so many positions, the last one begun.
MINFER_HD constexpr std::uint32_t chunks_of(std::uint32_t n_positions) {
  return (n_positions + kChunk - 1) / kChunk;
}

/// A CTA's part of a layer's attention.
template <class S>
struct AttentionPart {
  const float4* k;            ///< of the K/V head; position p begins at p * kStride
  const float4* v;            ///< likewise
  std::uint32_t first, last;  ///< positions
  std::uint32_t head;         ///< the first query head
  static constexpr std::uint32_t kStride = S::kKv / 4;
};

/// Four values each of several positions, that a thread has under way.
template <class S>
struct Loaded {
  static constexpr std::uint32_t kVectors = S::kHeadDim / 4;
  static constexpr std::uint32_t kShare = kVectors / kTeam;  ///< of a key, a lane's
  static constexpr std::uint32_t kKeys = kLoads / kShare;    ///< a team's at once
  static constexpr std::uint32_t kTeams = kCtaThreads / kTeam;
  static constexpr std::uint32_t kParts = kCtaThreads / kVectors;  ///< threads that share a value
  static constexpr std::uint32_t kValues =                         ///< of those, a thread's at once
      kLoads * kParts > kChunk ? kChunk / kParts : kLoads;
  static constexpr std::uint32_t kScored = kKeys * kTeams;  ///< positions at once
  static constexpr std::uint32_t kRounds = kChunk > kScored ? kChunk / kScored : 1;  ///< of a chunk
  static_assert(kVectors % kTeam == 0 && kLoads % kShare == 0, "a team has whole keys");
  float4 v[kLoads] = {};

  /// A team's keys from position `first` on, every kTeams-th; past `last` that one again: loads
  /// that depend on nothing go all at once.
  __device__ void load_keys(const AttentionPart<S>& part, std::uint32_t first, std::uint32_t last,
                            std::uint32_t thread) {
    const std::uint32_t team = thread / kTeam, lane = thread % kTeam;
#pragma unroll
    for (std::uint32_t j = 0; j < kKeys; ++j) {
      const std::uint32_t p = min_of(first + j * kTeams + team, last);
#pragma unroll
      for (std::uint32_t c = 0; c < kShare; ++c) {
        v[j * kShare + c] = part.k[p * part.kStride + lane + c * kTeam];
      }
    }
  }
  /// Likewise of the values every kParts-th.
  __device__ void load_values(const AttentionPart<S>& part, std::uint32_t first, std::uint32_t last,
                              std::uint32_t thread) {
#pragma unroll
    for (std::uint32_t j = 0; j < kValues; ++j) {
      const std::uint32_t p = min_of(first + thread / kVectors + j * kParts, last);
      v[j] = part.v[p * part.kStride + thread % kVectors];
    }
  }

  /// From `position` on only: what was not there when the others were asked for. Of one token it is
  /// the last.
  template <std::uint32_t kMost>
  __device__ void load_new_keys(const AttentionPart<S>& part, std::uint32_t position,
                                std::uint32_t thread) {
    const std::uint32_t team = thread / kTeam, lane = thread % kTeam;
#pragma unroll
    for (std::uint32_t j = 0; j < kKeys; ++j) {
      const std::uint32_t own = part.first + j * kTeams + team;
      if (own < (kMost == 1 ? part.last : position)) continue;
      const std::uint32_t p = kMost == 1 ? part.last : min_of(own, part.last);
#pragma unroll
      for (std::uint32_t c = 0; c < kShare; ++c) {
        v[j * kShare + c] = part.k[p * part.kStride + lane + c * kTeam];
      }
    }
  }
  template <std::uint32_t kMost>
  __device__ void load_new_values(const AttentionPart<S>& part, std::uint32_t position,
                                  std::uint32_t thread) {
#pragma unroll
    for (std::uint32_t j = 0; j < kValues; ++j) {
      const std::uint32_t own = part.first + thread / kVectors + j * kParts;
      if (own < (kMost == 1 ? part.last : position)) continue;
      const std::uint32_t p = kMost == 1 ? part.last : min_of(own, part.last);
      v[j] = part.v[p * part.kStride + thread % kVectors];
    }
  }

 private:
  __device__ static std::uint32_t min_of(std::uint32_t a, std::uint32_t b) {
    return a < b ? a : b;
  }
};

/// rows[h][p] = exp(q[h] . k[p] / sqrt(head_dim) - the largest of them), 0 past the last position.
/// @param keys  the first   @return the largest, a head each, to all threads
/// @pre every thread of the CTA calls it
template <class S, std::uint32_t kHeads>
__device__ inline void weights(float (&rows)[kHeads][kChunk], float (&max)[kHeads], const float4* q,
                               const AttentionPart<S>& part, Loaded<S>& keys,
                               std::uint32_t thread) {
  using L = Loaded<S>;
  constexpr std::uint32_t kSame = kTeam / L::kKeys;  // lanes that keep one score
  MINFER_SHARED(float, largest, [kHeads][kCtaWarps]);
  const std::uint32_t team = thread / kTeam, lane = thread % kTeam;
  const std::uint32_t own = lane / kSame * L::kTeams + team;  // of the position that a lane keeps
  const float scale = rsqrt_f32(static_cast<float>(S::kHeadDim));
  float score[L::kRounds][kHeads];
#pragma unroll
  for (std::uint32_t round = 0; round < L::kRounds; ++round) {
    const std::uint32_t first = part.first + round * L::kScored;
    if (round > 0 && first > part.last) {
      for (std::uint32_t h = 0; h < kHeads; ++h) score[round][h] = score[0][h];
      continue;
    }
    if (round > 0) keys.load_keys(part, first, part.last, thread);
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      float4 query[L::kShare];
      for (std::uint32_t c = 0; c < L::kShare; ++c) {
        query[c] = q[(part.head + h) * L::kVectors + lane + c * kTeam];
      }
      float sums[L::kKeys] = {};
#pragma unroll
      for (std::uint32_t j = 0; j < L::kKeys; ++j) {
        for (std::uint32_t c = 0; c < L::kShare; ++c) {
          sums[j] = dot(query[c], keys.v[j * L::kShare + c], sums[j]);
        }
      }
      score[round][h] = warp_sums<kTeam>(sums) * scale;
    }
  }
#pragma unroll
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    // Past the last position it is scored again: no other is the largest.
    max[h] = score[0][h];
    for (std::uint32_t round = 1; round < L::kRounds; ++round) {
      max[h] = max_f32(max[h], score[round][h]);
    }
    max[h] = warp_max(max[h]);
    if (thread % 32 == 0) largest[h][thread / 32] = max[h];
  }
  __syncthreads();  // largest: written by each warp's first lane, read by all
#pragma unroll
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    max[h] = warp_max<kCtaWarps>(largest[h][thread % kCtaWarps]);
#pragma unroll
    for (std::uint32_t round = 0; round < L::kRounds; ++round) {
      const std::uint32_t p = round * L::kScored + own;
      const float weight = exp_f32(score[round][h] - max[h]);
      if (lane % kSame == 0 && p < kChunk) rows[h][p] = part.first + p <= part.last ? weight : 0;
    }
  }
  __syncthreads();  // rows: written by a lane a position, read by all
}

/// What positions add to the output's value, and to what it is divided by.
struct WeightedSum {
  float output, total;
};

/// sums[h] = the sum of rows[h][p] v[p], value threadIdx.x of it, and that of rows[h][p], to the
/// first head_dim threads. @param batch  the first values
template <class S, std::uint32_t kHeads>
__device__ inline void values(WeightedSum (&sums)[kHeads], const float (&rows)[kHeads][kChunk],
                              const AttentionPart<S>& part, Loaded<S>& batch,
                              std::uint32_t thread) {
  using L = Loaded<S>;
  float4* outputs = fours();
  MINFER_SHARED(float, totals, [L::kParts]);
  const std::uint32_t own = thread / L::kVectors, i = thread % L::kVectors;
  float4 output[kHeads];
  float total[kHeads];
  for (std::uint32_t h = 0; h < kHeads; ++h) output[h] = {0, 0, 0, 0}, total[h] = 0;
  const std::uint32_t n = part.last - part.first + 1;
#pragma unroll 1
  for (std::uint32_t first = 0; first < n; first += L::kValues * L::kParts) {
    if (first > 0) batch.load_values(part, part.first + first, part.last, thread);
#pragma unroll
    for (std::uint32_t h = 0; h < kHeads; ++h) {
#pragma unroll
      for (std::uint32_t j = 0; j < L::kValues; ++j) {
        const float weight = rows[h][first + own + j * L::kParts];
        output[h] = axpy(weight, batch.v[j], output[h]);
        total[h] += weight;
      }
    }
  }
#pragma unroll
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    outputs[thread] = output[h];
    if (i == 0) totals[own] = total[h];
    __syncthreads();  // outputs, totals: written by all, read by the threads that add them up
    sums[h] = {0, 0};
    if (thread < S::kHeadDim) {
      const float* merged = reinterpret_cast<const float*>(outputs);  // [kParts, head_dim]
#pragma unroll 8
      for (std::uint32_t p = 0; p < L::kParts; ++p) {
        sums[h].output += merged[p * S::kHeadDim + thread];
        sums[h].total += totals[p];
      }
    }
    if (h + 1 < kHeads) __syncthreads();  // read; the next head's are written
  }
}

/// Of a head whose chunks are all done, each output weighted by exp(its max - the largest), over
/// their totals likewise, in the order of positions.
template <class S>
__device__ inline float merged(const Partials& partials, std::uint32_t head,
                               std::uint32_t n_chunks) {
  const std::uint32_t row = head * partials.chunks;
  float largest = -INFINITY;
  for (std::uint32_t c = 0; c < n_chunks; ++c) largest = max_f32(largest, partials.max[row + c]);
  float sum = 0, weights = 0;
#pragma unroll 4
  for (std::uint32_t c = 0; c < n_chunks; ++c) {
    const float weight = exp_f32(partials.max[row + c] - largest);
    sum = fmaf(weight, partials.output[(row + c) * S::kHeadDim + threadIdx.x], sum);
    weights = fmaf(weight, partials.total[row + c], weights);
  }
  return sum / weights;
}

/// Leaves a chunk's share of a head, and where it is the last of them, the head.
/// @param store  is given value threadIdx.x of the head, for each of its values
template <class S, class Store>
__device__ inline void finish(const Partials& partials, std::uint32_t head, std::uint32_t chunk,
                              std::uint32_t n_chunks, float max, const WeightedSum& sum,
                              Store store) {
  MINFER_SHARED(bool, is_last);
  const std::uint32_t i = threadIdx.x;
  float value = sum.output / sum.total;
  if (n_chunks > 1) {
    const std::uint32_t row = head * partials.chunks + chunk;
    if (i < S::kHeadDim) partials.output[row * S::kHeadDim + i] = sum.output;
    if (i == 0) {
      partials.max[row] = max;
      partials.total[row] = sum.total;
    }
    __syncthreads();  // the partials: written by all, published by the first thread for who reads
    if (i == 0) {
      is_last = atomic_add_acq_rel(&partials.done[head], 1) == n_chunks - 1;
      if (is_last) partials.done[head] = 0;
    }
    __syncthreads();  // is_last: written by the first thread, read by all
    if (!is_last) return;
    if (i < S::kHeadDim) value = merged<S>(partials, head, n_chunks);
  }
  if (i < S::kHeadDim) store(value);
}

/// Attention of each of n tokens, the first at `position`, to all positions up to its own,
/// quantized. A unit is kHeads query heads that share a K/V head, a chunk of positions, and a
/// token.
/// @why Each K and V is read once for all of kHeads heads: all that share it where SMs are few, one
/// where they are many. The bits are the same. Those of earlier positions are under way before the
/// barrier.
/// @param store  is given a token, which of its values, and the value: by warps, a run of 32 each
/// @tparam kMost  tokens
template <class S, std::uint32_t kHeads, std::uint32_t kMost, class Cta, class Store>
__device__ inline void attention(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                                 std::uint32_t layer, std::uint32_t position, std::uint32_t n,
                                 Store store) {
  static_assert(S::kGroup % kHeads == 0, "the heads of a unit share their K/V head");
  constexpr std::uint32_t kUnitsAChunk = S::kHeads / kHeads;
  MINFER_SHARED(float, rows, [kHeads][kChunk]);
  const std::uint32_t n_units = n * chunks_of(position + n) * kUnitsAChunk;
  const std::size_t cached = std::size_t(layer) * m.context * S::kKv;
  const std::uint32_t thread = fresh_thread();
  bool has_waited = false;
#pragma unroll 1
  for (std::uint32_t unit = blockIdx.x; unit < n_units; unit += gridDim.x) {
    const std::uint32_t token = unit / kUnitsAChunk % n, chunk = unit / kUnitsAChunk / n;
    const std::uint32_t own = position + token, n_chunks = chunks_of(own + 1);
    if (chunk >= n_chunks) continue;  // where the last of the tokens begins another chunk
    const std::uint32_t head = unit % kUnitsAChunk * kHeads, end = (chunk + 1) * kChunk - 1;
    const std::size_t first = cached + head / S::kGroup * S::kHeadDim;
    const AttentionPart<S> part = {by_four(work.k + first), by_four(work.v + first), chunk * kChunk,
                                   own < end ? own : end, head};
    const bool is_newest = part.last >= position;
    Loaded<S> keys, batch;
    if (!is_newest || part.first < position) {
      const std::uint32_t last = is_newest ? position - 1 : part.last;
      keys.load_keys(part, part.first, last, thread);
      batch.load_values(part, part.first, last, thread);
    }
    if (!has_waited) cta.barrier.wait();  // q, k, v: written by qkv's warps, read by all
    has_waited = true;
    if (is_newest) {
      keys.template load_new_keys<kMost>(part, position, thread);
      batch.template load_new_values<kMost>(part, position, thread);
    }
    float max[kHeads];
    weights<S, kHeads>(rows, max, by_four(work.q + token * S::kQ), part, keys, thread);
    WeightedSum sums[kHeads];
    values<S, kHeads>(sums, rows, part, batch, thread);
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      finish<S>(work.partials, token * S::kHeads + head + h, chunk, n_chunks, max[h], sums[h],
                [&](float value) { store(token, (head + h) * S::kHeadDim + threadIdx.x, value); });
    }
    __syncthreads();  // rows, and what values() and finish() share: read; the next unit writes them
  }
  if (!has_waited) cta.wait();  // the same, of which this CTA reads nothing; wrote qkv's warps
  cta.arrive();
}

/// The same of one token.
template <class S, std::uint32_t kHeads, class Cta>
__device__ inline void attention(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                                 std::uint32_t layer, std::uint32_t position) {
  attention<S, kHeads, 1>(
      cta, m, work, layer, position, 1,
      [&](std::uint32_t, std::uint32_t i, float value) { quantize(*work.attended, i, value); });
}

}  // namespace minfer
