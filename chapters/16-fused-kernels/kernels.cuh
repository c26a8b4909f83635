// SPDX-License-Identifier: MIT
//
// RMSNorm and argmax, named as the oracle's functions are, each with its launch below it. T is the
// tokens of the step, and numbers are f32 where no type is given.
#pragma once

#include <stdexcept>
#include <string>

#include <minfer/engine.h>
#include <minfer/math.h>

#include "cuda/ptx.h"
#include "cuda/reduce.h"
#include "cuda/step.h"

namespace minfer {

/// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * w.
/// @pre n <= kValues * kThreads
/// @why One block a token: the sum needs every value, and a vector of 2048 is too small to share
/// out. All that a thread reads is on its way before it adds anything up, and is kept: of w, which
/// comes from memory, nothing waits for the sum.
template <std::uint32_t kValues>
__global__ void rmsnorm(float* y,        ///< out [T, n]
                        const float* x,  ///< [T, n]
                        const float* w,  ///< [n]
                        std::uint32_t n, float eps) {
  const std::uint32_t row = blockIdx.y * n;
  float values[kValues], weights[kValues], squares = 0;
  for (std::uint32_t j = 0; j < kValues; ++j) {
    const std::uint32_t i = threadIdx.x + j * kThreads;
    values[j] = i < n ? x[row + i] : 0;
    weights[j] = i < n ? w[i] : 0;
  }
  for (const float value : values) squares = fmaf(value, value, squares);
  const float mean = block_sum<kThreads>(squares) / static_cast<float>(n);
  const float scale = rsqrt_f32(mean + eps);
  for (std::uint32_t j = 0; j < kValues; ++j) {
    const std::uint32_t i = threadIdx.x + j * kThreads;
    if (i < n) y[row + i] = values[j] * scale * weights[j];
  }
}

inline void launch_rmsnorm(const Step& s, float* y, const float* x, const float* w, std::uint32_t n,
                           float eps) {
  const std::uint32_t values = n <= 8 * kThreads ? 8 : n <= 16 * kThreads ? 16 : 32;
  if (n > 32 * kThreads) {
    throw std::invalid_argument("rmsnorm: " + std::to_string(n) + " values, and a block keeps " +
                                std::to_string(32 * kThreads));
  }
  with_constant<8, 16, 32>(values, [&](auto kept) {
    s.launch(rmsnorm<kept>, 1, kThreads, {4ull * n * (2 * s.n_tokens + 1)}, y, x, w, n, eps);
  });
}

inline constexpr std::uint32_t kArgmaxThreads = 256;
inline constexpr std::uint32_t kArgmaxBlocks = 128;  ///< a token

/// What the blocks of argmax leave for the last of them.
struct ArgmaxNotes {
  Top2* best;           ///< [T, kArgmaxBlocks]
  std::uint32_t* done;  ///< [T] blocks that have left theirs: 0 between steps
};

/// The block's sets as one, to its first thread; to each other thread its own.
/// @pre every thread calls it
__device__ inline Top2 block_top(const Top2& mine) {
  MINFER_SHARED(Top2, best, [kArgmaxThreads]);
  best[threadIdx.x] = mine;
  for (std::uint32_t width = kArgmaxThreads / 2; width > 0; width /= 2) {
    sync_level(width);
    if (threadIdx.x < width)
      best[threadIdx.x] = merge(best[threadIdx.x], best[threadIdx.x + width]);
  }
  return threadIdx.x == 0 ? best[0] : mine;
}

/// The token with the largest logit, -1 where every logit is NaN or -inf, and by how much it leads.
/// The last one and the position behind the step are the next step's input.
/// @why The block that is done last merges: which one that is changes nothing, and no second kernel
/// is launched for it. One block took 20 us for 600 KB on an H200.
__global__ void argmax(Prediction* predictions,  ///< out [T]
                       ArgmaxNotes notes,        ///< in, out
                       StepInput* input,         ///< in, out [1]
                       const float* logits,      ///< [T, n]: real tokens, no UNUSED ones
                       std::uint32_t n, std::uint32_t step_tokens) {
  MINFER_SHARED(bool, is_last);
  const std::uint32_t t = blockIdx.y, slice = (n + kArgmaxBlocks - 1) / kArgmaxBlocks;
  const std::uint32_t begin = blockIdx.x * slice;
  wait_for_previous_kernel();
  Top2 mine = {-INFINITY, -INFINITY, -1};
  if (begin < n) {
    for_each_of_thread<kArgmaxThreads>(
        logits, t * n + begin, slice < n - begin ? slice : n - begin,
        [&](std::uint32_t i, float logit) { insert(mine, logit, begin + i); });
  }
  mine = block_top(mine);
  if (threadIdx.x == 0) {
    notes.best[t * kArgmaxBlocks + blockIdx.x] = mine;
    __threadfence();  // best: seen by whoever sees the count
    is_last = atomicAdd(&notes.done[t], 1u) == kArgmaxBlocks - 1;
  }
  __syncthreads();  // is_last: written by the first thread, read by all
  if (!is_last) return;
  __threadfence();  // the count, and then best
  mine = {-INFINITY, -INFINITY, -1};
  if (threadIdx.x < kArgmaxBlocks) mine = notes.best[t * kArgmaxBlocks + threadIdx.x];
  mine = block_top(mine);
  if (threadIdx.x == 0) {
    predictions[t] = {mine.id, mine.first - mine.second};
    notes.done[t] = 0;
    if (t + 1 == gridDim.y) {
      input->ids[0] = mine.id;
      input->position += step_tokens;
    }
  }
}

/// @param step_tokens  by which the position goes on
inline void launch_argmax(const Step& s, Prediction* predictions, const ArgmaxNotes& notes,
                          const float* logits, std::uint32_t n, std::uint32_t step_tokens) {
  static_assert(kArgmaxBlocks <= kArgmaxThreads, "the last block's threads take one set each");
  launch(s.begin, argmax, {kArgmaxBlocks, s.n_tokens}, kArgmaxThreads, 0,
         Traffic{s.n_tokens * 4ull * n}, s.stream, predictions, notes, s.input, logits, n,
         step_tokens);
}

}  // namespace minfer
