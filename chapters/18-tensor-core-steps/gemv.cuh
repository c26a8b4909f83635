// SPDX-License-Identifier: MIT
//
// A warp's rows times the activations.
#pragma once

#include <cstdint>

#include <minfer/math.h>

#include "cuda/ptx.h"
#include "cuda/reduce.h"
#include "plan.h"
#include "quantize.cuh"
#include "ring.cuh"

namespace minfer {

/// What a block adds to its row: scale * dot.
struct Term {
  float scale, dot;
};

/// The low nibbles of 16 bytes, a byte each; of the high ones 16 times that, which needs no shift.
__device__ inline uint4 masked(const uint4& q, std::uint32_t mask) {
  return {q.x & mask, q.y & mask, q.z & mask, q.w & mask};
}
inline constexpr std::uint32_t kLowNibbles = 0x0f0f0f0f, kHighNibbles = 0xf0f0f0f0;

__device__ inline int dot(const uint4& w, const uint4& x, int sum) {
  return dp4a_unsigned(
      w.w, x.w, dp4a_unsigned(w.z, x.z, dp4a_unsigned(w.y, x.y, dp4a_unsigned(w.x, x.x, sum))));
}

/// A lane's activations in int8, those that meet its block of a set.
struct Activations8 {
  uint4 low, high;  ///< values 0 to 15, which the low nibbles meet, and 16 to 31
  float d;
  std::int32_t eights;  ///< what is too much: a nibble n stands for n - 8

  template <std::uint32_t N>
  __device__ void load(const Int8<N>& x, std::uint32_t block) {
    low = x.q[interleaved<2>(block, 0, N / 32)];
    high = x.q[interleaved<2>(block, 1, N / 32)];
    d = x.d[block];
    eights = -8 * x.sums[block];
  }

  __device__ Term times(const Block& w) const {
    const int sum =
        dot(masked(w.q, kLowNibbles), low, eights) + (dot(masked(w.q, kHighNibbles), high, 0) >> 4);
    return {float_from_half(w.d) * d, static_cast<float>(sum)};
  }
};

/// The same in int16: values are 256 * high + low.
struct Activations16 {
  uint4 units[4];
  float d;
  std::int32_t eights;

  template <std::uint32_t N>
  __device__ void load(const Int16<N>& x, std::uint32_t block) {
    for (std::uint32_t i = 0; i < 4; ++i) units[i] = x.q[interleaved<4>(block, i, N / 32)];
    d = x.d[block];
    eights = -8 * x.sums[block];
  }

  __device__ Term times(const Block& w) const {
    const uint4 n[2] = {masked(w.q, kLowNibbles), masked(w.q, kHighNibbles)};
    int high[2] = {0, 0}, low[2] = {0, 0};
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      const uint4 &a = units[2 * i], &b = units[2 * i + 1];
      high[i] = dp4a_unsigned(n[i].y, a.z, dp4a_unsigned(n[i].x, a.x, high[i]));
      low[i] = dp4a_unsigned(n[i].y, a.w, dp4a_unsigned(n[i].x, a.y, low[i]));
      high[i] = dp4a_unsigned(n[i].w, b.z, dp4a_unsigned(n[i].z, b.x, high[i]));
      low[i] = dp4a_unsigned(n[i].w, b.w, dp4a_unsigned(n[i].z, b.y, low[i]));
    }
    const int sum = 256 * (high[0] + (high[1] >> 4)) + low[0] + (low[1] >> 4) + eights;
    return {float_from_half(w.d) * d, static_cast<float>(sum)};
  }
};

/// A lane's activations of all sets, in registers.
template <std::uint32_t K, class Activations>
struct Kept {
  Activations of_set[Tiles<K>::kSets];

  template <class X>
  __device__ explicit Kept(const X& x) {
    const std::uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (std::uint32_t set = 0; set < Tiles<K>::kSets; ++set) {
      of_set[set] = {};
      if (Tiles<K>::has(set, lane)) of_set[set].load(x, Tiles<K>::block(set, lane));
    }
  }
  __device__ Term times(const Block& w, std::uint32_t set) const {
    return of_set[set].times(w);
  }
};

/// Of rows with many sets, read from shared memory where they are needed.
template <std::uint32_t K>
struct Shared {
  const Int8<K>& x;

  __device__ Term times(const Block& w, std::uint32_t set) const {
    const std::uint32_t lane = threadIdx.x % 32;
    Activations8 a = {};
    if (Tiles<K>::has(set, lane)) a.load(x, Tiles<K>::block(set, lane));
    return a.times(w);
  }
};

/// Adds up rows of K weights, block by block in each lane, over the warp's next tiles.
template <std::uint32_t K, std::uint32_t kRows>
struct RowSums {
  using T = Tiles<K>;
  static constexpr std::uint32_t kTiles = T::of_rows(kRows);
  static_assert(kRows % T::kRows == 0, "rows that share a tile go together");
  float of_lane[kRows] = {};
  Term lent = {0, 0};  ///< of a shared tile, what is the second row's: it comes behind its others

  /// Tiles kFirst on, as many as there are but four at most; and those behind them.
  template <std::uint32_t kFirst = 0, class Ring, class X>
  __device__ void add(Ring& ring, const X& x) {
    constexpr std::uint32_t kCount = kTiles - kFirst < 4 ? kTiles - kFirst : 4;
    Block blocks[kCount];
    ring.take(blocks);
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) add_tile(kFirst + i, blocks[i], x);
    if constexpr (kFirst + kCount < kTiles) add<kFirst + kCount>(ring, x);
  }

  template <class X>
  __device__ void add_tile(std::uint32_t j, const Block& w, const X& x) {
    const std::uint32_t lane = threadIdx.x % 32, set = T::set(j), row = T::row(j);
    const Term term = x.times(w, set);
    if constexpr (!T::kShares) {
      if (T::has(set, lane)) of_lane[row] = fmaf(term.scale, term.dot, of_lane[row]);
    } else {
      const bool has_tail = lane < T::kTail;
      if (!T::is_shared(j) || has_tail) of_lane[row] = fmaf(term.scale, term.dot, of_lane[row]);
      if (T::is_shared(j)) {
        lent = {__shfl_down_sync(0xffffffffu, term.scale, 16),
                __shfl_down_sync(0xffffffffu, term.dot, 16)};
      }
      const bool is_last = j % T::kEach + 1 == T::kEach;
      if (is_last && has_tail) {
        const std::uint32_t second = j / T::kEach * 2 + 1;
        of_lane[second] = fmaf(lent.scale, lent.dot, of_lane[second]);
      }
    }
  }
};

/// The sums of kCount values a lane over each kWidth neighbours of a warp: that of value i to their
/// lanes i * kWidth / kCount and up. Each is added up in warp_sum's order.
/// @why A lane gives away half of its values at each step, so four take 6 shuffles and not 20.
template <std::uint32_t kWidth = 32, std::uint32_t kCount>
__device__ inline float warp_sums(float (&values)[kCount]) {
  static_assert(kCount <= kWidth, "a lane keeps one");
  const std::uint32_t lane = threadIdx.x % 32;
  std::uint32_t distance = kWidth / 2;
#pragma unroll
  for (std::uint32_t half = kCount / 2; half > 0; half /= 2, distance /= 2) {
    const bool is_upper = (lane & distance) != 0;
#pragma unroll
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

}  // namespace minfer
