// SPDX-License-Identifier: MIT
//
// What kernels share: sums and maxima over a block or a warp, and the two largest of a set. Which
// thread adds what is set by the shape alone. A kernel may call any of it any number of times.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include <minfer/math.h>
#include <minfer/token.h>

#include "cuda/shared.h"

namespace minfer {

/// Calls f(i, values[row + i]) for each i that is this thread's, every kStride-th from threadIdx.x
/// on, in order. Eight loads are on their way before the first is used: a loop that uses each
/// before it asks for the next waits for memory once a value.
/// @param row  where the row of n values begins: an index of 32 bits, since a pointer that was
/// moved costs an addition of 64 at every load
template <std::uint32_t kStride, class F>
__device__ inline void for_each_of_thread(const float* values, std::uint32_t row, std::uint32_t n,
                                          F f) {
  constexpr std::uint32_t kInFlight = 8;
  for (std::uint32_t first = threadIdx.x; first < n; first += kInFlight * kStride) {
    float loaded[kInFlight];
    for (std::uint32_t j = 0; j < kInFlight; ++j) {
      const std::uint32_t i = first + j * kStride;
      loaded[j] = i < n ? values[row + i] : 0.0f;
    }
    for (std::uint32_t j = 0; j < kInFlight; ++j) {
      const std::uint32_t i = first + j * kStride;
      if (i < n) f(i, loaded[j]);
    }
  }
}

/// Waits before a level of a tree that `width` threads add up: what they read was written by their
/// own warp, if they are fewer than one.
__device__ inline void sync_level(std::uint32_t width) {
  if (width < 32) {
    __syncwarp();  // the level above: written and read by the first warp
  } else {
    __syncthreads();  // the level above: written by twice as many threads, read by these
  }
}

/// The sum of one value a thread over the block, as a binary tree, to all threads.
/// @pre blockDim.x == kBlock; every thread calls it
template <std::uint32_t kBlock>
__device__ inline float block_sum(float value) {
  static_assert((kBlock & (kBlock - 1)) == 0, "the tree halves its width");
  MINFER_SHARED(float, partial, [kBlock]);
  partial[threadIdx.x] = value;
  for (std::uint32_t width = kBlock / 2; width > 0; width /= 2) {
    sync_level(width);
    if (threadIdx.x < width) partial[threadIdx.x] += partial[threadIdx.x + width];
  }
  __syncthreads();  // partial[0]: written by the first thread, read by all
  const float sum = partial[0];
  __syncthreads();  // read by all; the next call writes it
  return sum;
}

/// The sum of one value a lane over each kWidth neighbours of a warp, to all of them: pairs
/// kWidth/2 lanes apart, then half as far, down to 1.
/// @pre every lane of the warp calls it
template <int kWidth = 32, class T>
__device__ inline T warp_sum(T value) {
  for (int distance = kWidth / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

/// The largest of one value a lane over each kWidth neighbours of a warp, to all of them.
/// @pre every lane of the warp calls it
template <int kWidth = 32>
__device__ inline float warp_max(float value) {
  for (int distance = kWidth / 2; distance > 0; distance /= 2) {
    value = max_f32(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  return value;
}

/// The largest of one value a thread over the block, to all threads.
/// @pre blockDim.x == kBlock; every thread calls it
template <std::uint32_t kBlock>
__device__ inline float block_max(float value) {
  static_assert(kBlock % 32 == 0 && kBlock <= 1024, "whole warps, and one can merge them");
  MINFER_SHARED(float, largest, [kBlock / 32]);
  const std::uint32_t lane = threadIdx.x % 32;
  value = warp_max(value);
  if (lane == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();  // largest: written by each warp's first lane, read by all
  value = warp_max(largest[lane % (kBlock / 32)]);
  __syncthreads();  // read by all; the next call writes it
  return value;
}

/// The two largest logits of a set, and whose the largest is.
struct Top2 {
  float first;
  float second;
  Token id;  ///< of the first; -1: none yet
};

/// Adds the logit of a higher id. A NaN changes nothing.
__device__ inline void insert(Top2& top, float logit, std::uint32_t id) {
  const float lesser = logit > top.first ? top.first : logit;
  top.second = lesser > top.second ? lesser : top.second;
  top.id = logit > top.first ? static_cast<Token>(id) : top.id;
  top.first = logit > top.first ? logit : top.first;
}

/// Puts two sets together. The result depends on the sets alone, not on the order of merging: equal
/// logits go to the lower id.
__device__ inline Top2 merge(const Top2& a, const Top2& b) {
  const bool a_wins =
      b.id < 0 || (a.id >= 0 && (a.first > b.first || (a.first == b.first && a.id < b.id)));
  const Top2& winner = a_wins ? a : b;
  const Top2& loser = a_wins ? b : a;
  return {winner.first, max_f32(winner.second, loser.first), winner.id};
}

}  // namespace minfer
