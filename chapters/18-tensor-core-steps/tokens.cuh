// SPDX-License-Identifier: MIT
//
// Rows times the activations of several tokens, on the tensor cores.
#pragma once

#include <cstdint>

#include <minfer/math.h>

#include "barrier.h"
#include "cuda/float4.h"
#include "cuda/ptx.h"
#include "cuda/reduce.h"
#include "cuda/shared.h"
#include "gemv.cuh"
#include "plan.h"
#include "quantize.cuh"
#include "ring.cuh"

namespace minfer {

/// A step's tokens: the first n of kMaxTokens, from a position on.
struct StepTokens {
  std::uint32_t position, n;
};

/// Where each warp's next tiles are, from TokensCta::memory on: two such tables take turns.
struct Offers {
  std::uint32_t at[2][kCtaWarps][kBatchTiles];
};
__device__ inline Offers& offers() {
  MINFER_SHARED(Offers, both);
  return both;
}

/// What a CTA goes through the phases of such steps with.
template <std::uint32_t kBatches>
struct TokensCta {
  GridBarrier barrier;
  SharedRing<kBatches> ring;
  const CtaUnits& units;
  unsigned char* const memory;  ///< the rings begin here
  float* const partials;        ///< [kCtaWarps, kMostSums], what each warp has added up
  const std::uint32_t zeros;    ///< where a tile is whose bytes are all 0, from `memory` on
  std::uint32_t turn = 0;       ///< which of offers() is next

  static constexpr std::uint32_t kMostSums = 4 * kCtaWarps * kMaxTokens;  ///< of four rows a warp
  static constexpr std::size_t kBytes = kCtaWarps * kMostSums * sizeof(float) + kTileBytes;

  /// @param all  of shared memory: the rings, and kBytes behind them
  /// @pre every thread of the CTA calls it; a barrier follows
  __device__ TokensCta(unsigned* arrived, unsigned char* all, const BatchSource& source,
                       const CtaUnits& of_cta)
      : barrier(arrived),
        ring(all, source),
        units(of_cta),
        memory(all),
        partials(reinterpret_cast<float*>(all + Ring<kBatches>::kBytes)),
        zeros(Ring<kBatches>::kBytes + kBytes - kTileBytes) {
    for (std::uint32_t i = threadIdx.x; i < kTileBytes; i += kCtaThreads) memory[zeros + i] = 0;
  }

  __device__ void arrive() { barrier.arrive(); }
  __device__ void wait() {
    ring.refill();
    barrier.wait();  // what was written before they arrived: by all CTAs, read by this one
  }
};

/// A block of all tokens' activations, as lane l holds it: of token l / 4 the numbers, of tokens
/// 2 (l % 4) and 2 (l % 4) + 1, whose sums the lane makes, scales and eights.
/// @tparam kPlanes  1: int8. 2: int16, the high bytes and then the low ones
template <std::uint32_t kPlanes>
struct Fragment {
  std::uint32_t numbers[kPlanes][2];
  float2 d;
  int2 eights;  ///< what is too much: a nibble n stands for n - 8

  /// Adds a block of 16 rows to their sums, in the lane's rows l / 4 and l / 4 + 8.
  /// @param w       four bytes of each of the two
  /// @param scales  of the two
  __device__ void add_to(float (&sums)[4], const std::uint32_t (&w)[2],
                         const float (&scales)[2]) const {
    const std::uint32_t a[4] = {w[0] & kLowNibbles, w[1] & kLowNibbles, w[0] >> 4 & kLowNibbles,
                                w[1] >> 4 & kLowNibbles};
    int dots[4] = {eights.x, eights.y, eights.x, eights.y};
    if constexpr (kPlanes == 2) {
      int high[4] = {0, 0, 0, 0};
      mma_m16n8k32_s8(high, a, numbers[0], high);
      for (int i = 0; i < 4; ++i) dots[i] += 256 * high[i];
    }
    mma_m16n8k32_s8(dots, a, numbers[kPlanes - 1], dots);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float scale = scales[i / 2] * (i % 2 == 0 ? d.x : d.y);
      sums[i] = fmaf(scale, static_cast<float>(dots[i]), sums[i]);
    }
  }
};

/// The blocks of K activations whose terms warp w adds up: w, 16 + w, 32 + w, and so on.
template <std::uint32_t K>
struct WarpsBlocks {
  static constexpr std::uint32_t kBlocks = K / 32;
  static constexpr std::uint32_t kCount = (kBlocks + kCtaWarps - 1) / kCtaWarps;
  static_assert(kCtaWarps == 16, "two blocks of a set");

  __device__ static std::uint32_t block(std::uint32_t i) {
    return i * kCtaWarps + threadIdx.x / 32;
  }
  __device__ static bool has(std::uint32_t i) {
    return (i + 1) * kCtaWarps <= kBlocks || block(i) < kBlocks;
  }
};

/// Activations in device memory, a block at a time.
template <std::uint32_t K>
struct StoredTokens {
  static constexpr std::uint32_t kPlanes = 1;
  const Int8Tokens<K>& y;

  __device__ Fragment<1> of(std::uint32_t i) const {
    Fragment<1> x = {};
    if (!WarpsBlocks<K>::has(i)) return x;
    const std::uint32_t lane = threadIdx.x % 32, block = WarpsBlocks<K>::block(i);
    const uint2 numbers = y.q[block][lane];
    x.numbers[0][0] = numbers.x;
    x.numbers[0][1] = numbers.y;
    x.d = reinterpret_cast<const float2*>(y.d[block])[lane % 4];
    const int2 sums = reinterpret_cast<const int2*>(y.sums[block])[lane % 4];
    x.eights = {-8 * sums.x, -8 * sums.y};
    return x;
  }
};

/// Activations in registers: x / sqrt(mean(x^2) + eps) * w, quantized.
template <std::uint32_t K, std::uint32_t kWidth>
struct KeptTokens {
  static constexpr std::uint32_t kPlanes = kWidth;
  using Own = WarpsBlocks<K>;
  Fragment<kPlanes> fragments[Own::kCount];

  __device__ const Fragment<kPlanes>& of(std::uint32_t i) const { return fragments[i]; }

  /// @param x  gives four values of a token, from one on
  /// @param w  the norm's weights
  /// @pre every thread of the CTA calls it
  template <class X>
  __device__ KeptTokens(const StepTokens& step, X x, const float* w, float eps) {
    MINFER_SHARED(float, scales, [kMaxTokens]);
    const std::uint32_t warp = threadIdx.x / 32, token = threadIdx.x % 32 / 4;
    float4 own[Own::kCount][2];
#pragma unroll
    for (std::uint32_t i = 0; i < Own::kCount; ++i) {
#pragma unroll
      for (std::uint32_t half = 0; half < 2; ++half) {
        const bool has = Own::has(i) && token < step.n;
        own[i][half] = has ? x(token, first(i, half)) : float4{0, 0, 0, 0};
      }
    }
    const float sum = sum_of_squares(step.n, x);
    if (warp < kMaxTokens && threadIdx.x % 32 == 0) {
      scales[warp] = rsqrt_f32(sum / static_cast<float>(K) + eps);
    }
    __syncthreads();  // scales: written by a warp a token, read by all
    const float scale = scales[token];
#pragma unroll
    for (std::uint32_t i = 0; i < Own::kCount; ++i) {
      float values[8];
#pragma unroll
      for (std::uint32_t half = 0; half < 2; ++half) {
        const float4 norm = Own::has(i) ? by_four(w)[first(i, half) / 4] : float4{0, 0, 0, 0};
        const float4 four = own[i][half];
        values[4 * half] = four.x * scale * norm.x;
        values[4 * half + 1] = four.y * scale * norm.y;
        values[4 * half + 2] = four.z * scale * norm.z;
        values[4 * half + 3] = four.w * scale * norm.w;
      }
      quantize(fragments[i], values);
    }
    // scales: read; whoever writes them again comes from a barrier of the CTA
  }

 private:
  /// The lane's four values of a half of a block.
  __device__ static std::uint32_t first(std::uint32_t i, std::uint32_t half) {
    return 32 * Own::block(i) + 16 * half + 4 * (threadIdx.x % 4);
  }

  /// Of the token that the warp's number is, 0 where there is none of the n; added up as 128
  /// threads and then their tree do it: a lane is four of them.
  /// @why Every warp adds, if only zeros: shuffles in a branch are slow where they might diverge.
  template <class X>
  __device__ static float sum_of_squares(std::uint32_t n, X x) {
    const std::uint32_t token = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (std::uint32_t i = 0; i < K; i += 128) {
      const bool has = token < n && i + 4 * lane < K;
      const float4 four = has ? x(token, i + 4 * lane) : float4{0, 0, 0, 0};
      sums[0] = fmaf(four.x, four.x, sums[0]);
      sums[1] = fmaf(four.y, four.y, sums[1]);
      sums[2] = fmaf(four.z, four.z, sums[2]);
      sums[3] = fmaf(four.w, four.w, sums[3]);
    }
#pragma unroll
    for (float& sum : sums) {
      for (const int distance : {16, 8, 4, 2, 1}) {
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      }
    }
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
  }

  /// Rounds eight values of a run of 32, of which four neighbours have as many each.
  __device__ static void quantize(Fragment<kPlanes>& y, const float (&values)[8]) {
    constexpr std::int32_t kLargest = kPlanes == 1 ? 127 : 127 * 256;
    const std::uint32_t lane = threadIdx.x % 32;
    float most = 0;
    int is_nan = 0;
    for (const float value : values) {
      most = max_f32(most, fabsf(value));
      is_nan |= value != value;
    }
    const float d = warp_max<4>(most) / static_cast<float>(kLargest);
    const float inverse = d > 0 ? 1.0f / d : 0.0f;
    const bool has_nan = (__ballot_sync(0xffffffffu, is_nan) >> (lane & 28) & 15) != 0;
    std::int32_t sum = 0;
#pragma unroll
    for (std::uint32_t half = 0; half < 2; ++half) {
      std::uint32_t high = 0, low = 0;
#pragma unroll
      for (std::uint32_t j = 0; j < 4; ++j) {
        const std::int32_t v =
            round_half_even_to_int(values[4 * half + j] * inverse, -kLargest, kLargest);
        const auto low_byte = static_cast<std::int8_t>(v);
        low |= static_cast<std::uint32_t>(v & 255) << (8 * j);
        high |= static_cast<std::uint32_t>((v - low_byte) / 256 & 255) << (8 * j);
        sum += v;
      }
      if (kPlanes == 2) y.numbers[0][half] = high;
      y.numbers[kPlanes - 1][half] = low;
    }
    sum = warp_sum<4>(sum);
    const float own = has_nan ? NAN : d;
    const int even = static_cast<int>(lane % 4 * 8), odd = even + 4;  // lanes of the two tokens
    y.d = {__shfl_sync(0xffffffffu, own, even), __shfl_sync(0xffffffffu, own, odd)};
    y.eights = {-8 * __shfl_sync(0xffffffffu, sum, even), -8 * __shfl_sync(0xffffffffu, sum, odd)};
  }
};

/// Adds up the rows of all warps' next units at once, kRows of each, for all tokens: warp w the
/// blocks that lanes w and 16 + w add up in a step of one token, in that order.
/// @why A unit's tiles are one to four rows, and the tensor cores want 16 at a time: those of 16
/// warps. So each warp reads some blocks of all rows, and what it reads of the activations fits
/// registers. Every sum of floats is the one that a lane makes by itself, and so are its bits.
template <std::uint32_t K, std::uint32_t kRows>
struct TokenSums {
  using T = Tiles<K>;
  static constexpr std::uint32_t kTiles = T::of_rows(kRows);
  static constexpr std::uint32_t kWhole = T::kShares ? kBatchTiles / T::kEach * T::kEach : 4;
  static constexpr std::uint32_t kTake = kTiles < kWhole ? kTiles : kWhole;
  static_assert(kTake > 0, "rows that share a tile are taken together");
  float of[kRows][2][4] = {};  ///< by row of a unit, lane or the one 16 on, and place in d of mma

  /// @param has_unit  whether the warp has one
  template <std::uint32_t kFirst = 0, class Cta, class X>
  __device__ void add(Cta& cta, bool has_unit, const X& x) {
    constexpr std::uint32_t kCount = kTiles - kFirst < kTake ? kTiles - kFirst : kTake;
    Fragment<X::kPlanes> fragments[kCount][2];
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      fragments[i][0] = x.of(2 * T::set(kFirst + i));
      if (has_second(kFirst + i)) fragments[i][1] = x.of(2 * T::set(kFirst + i) + 1);
    }
    const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    std::uint32_t(&own)[kBatchTiles] = offers().at[cta.turn][warp];
    if (has_unit) {
      cta.ring.template offer<kCount>(own, cta.memory);
    } else if (lane < kBatchTiles) {
      own[lane] = cta.zeros;
    }
    __syncthreads();  // offers, tiles: written by each warp and its copies, read by all warps
    cta.ring.refill_read();
    const std::uint32_t row = lane / 4;
    const unsigned char* tiles[kCount][2];
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      tiles[i][0] = cta.memory + offers().at[cta.turn][row][i];
      tiles[i][1] = cta.memory + offers().at[cta.turn][row + 8][i];
    }
    cta.turn ^= 1;
    // A shared tile's upper half is the second row's, and comes behind its others.
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const std::uint32_t j = kFirst + i, own_block = 2 * T::set(j);
      add_block(of[T::row(j)][0], tiles[i], 0, fragments[i][0], own_block);
      if (has_second(j)) add_block(of[T::row(j)][1], tiles[i], 1, fragments[i][1], own_block + 1);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const std::uint32_t j = kFirst + i;
      if (!T::is_shared(j)) continue;
      const std::uint32_t second = (T::row(j) + 1) % kRows;
      add_block(of[second][0], tiles[i], 1, fragments[i][0], 2 * T::set(j));
    }
    if constexpr (kFirst + kCount < kTiles) add<kFirst + kCount>(cta, has_unit, x);
  }

  /// Leaves the sums for who adds up those of all warps: row i of warp w's unit for token t at
  /// (i * kCtaWarps + w) * kMaxTokens + t. @pre every thread of the CTA calls it
  template <class Cta>
  __device__ void leave(Cta& cta) {
    const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto* own = reinterpret_cast<float2*>(cta.partials + warp * Cta::kMostSums);
#pragma unroll
    for (std::uint32_t i = 0; i < kRows; ++i) {
      float sums[4];
      for (std::uint32_t c = 0; c < 4; ++c) sums[c] = of[i][0][c] + of[i][1][c];
      own[i * 64 + lane] = {sums[0], sums[1]};
      own[i * 64 + 32 + lane] = {sums[2], sums[3]};
    }
    __syncthreads();  // partials: written by all warps, read by the threads that add them up
    cta.ring.refill();
  }

 private:
  /// Whether lanes 16 and up have blocks of the row that the lower ones have.
  __device__ static constexpr bool has_second(std::uint32_t j) {
    return !T::is_shared(j) && 2 * T::set(j) + 1 < WarpsBlocks<K>::kCount;
  }

  template <class F>
  __device__ static void add_block(float (&sums)[4], const unsigned char* const (&tiles)[2],
                                   std::uint32_t half, const F& x, std::uint32_t own_block) {
    if (!WarpsBlocks<K>::has(own_block)) return;
    const std::uint32_t lane = threadIdx.x % 32, row = lane / 4;
    const Place at = place(threadIdx.x / 32 + 16 * half, row);
    std::uint32_t w[2];
    float scales[2];
#pragma unroll
    for (std::uint32_t i = 0; i < 2; ++i) {
      w[i] = reinterpret_cast<const std::uint32_t*>(tiles[i])[4 * at.nibbles + lane % 4];
      const auto* d = reinterpret_cast<const std::uint16_t*>(tiles[i] + kTileScales);
      scales[i] = float_from_half(d[at.scale]);
    }
    x.add_to(sums, w, scales);
  }
};

/// The sum over all warps of what they have left at i, in warp_sum's order.
template <class Cta>
__device__ inline float sum_of_warps(const Cta& cta, std::uint32_t i) {
  float sums[kCtaWarps];
#pragma unroll
  for (std::uint32_t w = 0; w < kCtaWarps; ++w) sums[w] = cta.partials[w * Cta::kMostSums + i];
#pragma unroll
  for (std::uint32_t distance = kCtaWarps / 2; distance > 0; distance /= 2) {
    for (std::uint32_t w = 0; w < distance; ++w) sums[w] += sums[w + distance];
  }
  return sums[0];
}

}  // namespace minfer
