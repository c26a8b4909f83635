// SPDX-License-Identifier: MIT
//
// RMSNorm, sums, SwiGLU and argmax, named as the oracle's functions are, each with its launch below
// it. T is the tokens of the step, and numbers are f32 where no type is given.
#pragma once

#include <minfer/engine.h>
#include <minfer/math.h>

#include "cuda/reduce.h"
#include "cuda/step.h"

namespace minfer {

/// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * w.
/// @why One block a token: the sum needs every value, and a vector of 2048 is too small to share
/// out. A thread's loads are on their way together. In a step of the 0.5B on an H200 it takes 2.1
/// us, and took 4.0 when they waited for each other. Without __restrict__ a store of y would keep
/// the next load of w back.
__global__ void rmsnorm(float* __restrict__ y,        ///< out [T, n]
                        const float* __restrict__ x,  ///< [T, n]
                        const float* __restrict__ w,  ///< [n]
                        std::uint32_t n, float eps) {
  const std::uint32_t row = blockIdx.y * n;
  float squares = 0;
  for_each_of_thread<kThreads>(
      x, row, n, [&](std::uint32_t, float value) { squares = fmaf(value, value, squares); });
  const float mean = block_sum<kThreads>(squares) / static_cast<float>(n);
  const float scale = rsqrt_f32(mean + eps);
  for_each_of_thread<kThreads>(
      x, row, n, [&](std::uint32_t i, float value) { y[row + i] = value * scale * w[i]; });
}

inline void launch_rmsnorm(const Step& s, float* y, const float* x, const float* w, std::uint32_t n,
                           float eps) {
  s.launch(rmsnorm, 1, kThreads, {4ull * n * (2 * s.n_tokens + 1)}, y, x, w, n, eps);
}

/// y[t] += x[t]: a residual; or x[0], a bias.
/// @why A kernel of its own, so that every intermediate can be compared with the oracle's.
__global__ void add(float* y,        ///< in, out [T, n]
                    const float* x,  ///< [T, n], or [n] where x_stride is 0
                    std::uint32_t n, std::uint32_t x_stride) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
  if (i < n) y[t * n + i] += x[t * x_stride + i];
}

inline void launch_add(const Step& s, float* y, const float* x, std::uint32_t n) {
  s.launch(add, ceil_div(n, kThreads), kThreads, {s.n_tokens * 12ull * n}, y, x, n, n);
}

inline void launch_add_bias(const Step& s, float* y, const float* bias, std::uint32_t n) {
  s.launch(add, ceil_div(n, kThreads), kThreads, {4ull * n * (2 * s.n_tokens + 1)}, y, bias, n, 0);
}

/// gate = silu(gate) * up.
__global__ void swiglu(float* gate,      ///< in, out [T, n]
                       const float* up,  ///< [T, n]
                       std::uint32_t n) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, at = blockIdx.y * n + i;
  if (i < n) gate[at] = silu_f32(gate[at]) * up[at];
}

inline void launch_swiglu(const Step& s, float* gate, const float* up, std::uint32_t n) {
  s.launch(swiglu, ceil_div(n, kThreads), kThreads, {s.n_tokens * 12ull * n}, gate, up, n);
}

inline constexpr std::uint32_t kArgmaxThreads = 1024;

/// The token with the largest logit, -1 where every logit is NaN or -inf, and by how much it leads.
/// The last one and the position behind the step are the next step's input.
/// @why One block a token, of the largest size, and no second kernel to merge several: the plainest
/// form. On an H200 it takes 17 us in a step for 600 KB, where a small kernel takes 1. It took 39
/// when a thread waited for each of its 148 loads, and 24 when it branched on each: in a step some
/// lane of a warp nearly always has a larger one.
__global__ void argmax(Prediction* predictions,  ///< out [T]
                       StepInput* input,         ///< in, out [1]
                       const float* logits,      ///< [T, n]: real tokens, no UNUSED ones
                       std::uint32_t n, std::uint32_t step_tokens) {
  MINFER_SHARED(Top2, best, [kArgmaxThreads]);
  Top2 mine = {-INFINITY, -INFINITY, -1};
  for_each_of_thread<kArgmaxThreads>(logits, blockIdx.y * n, n,
                                     [&](std::uint32_t i, float logit) { insert(mine, logit, i); });
  best[threadIdx.x] = mine;
  for (std::uint32_t width = kArgmaxThreads / 2; width > 0; width /= 2) {
    sync_level(width);
    if (threadIdx.x < width)
      best[threadIdx.x] = merge(best[threadIdx.x], best[threadIdx.x + width]);
  }
  if (threadIdx.x == 0) {
    predictions[blockIdx.y] = {best[0].id, best[0].first - best[0].second};
    if (blockIdx.y + 1 == gridDim.y) {  // the only block that touches it
      input->ids[0] = best[0].id;
      input->position += step_tokens;
    }
  }
}

/// @param step_tokens  by which the position goes on
inline void launch_argmax(const Step& s, Prediction* predictions, const float* logits,
                          std::uint32_t n, std::uint32_t step_tokens) {
  s.launch(argmax, 1, kArgmaxThreads, {s.n_tokens * 4ull * n}, predictions, s.input, logits, n,
           step_tokens);
}

}  // namespace minfer
