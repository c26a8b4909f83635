// SPDX-License-Identifier: MIT
//
// The forward pass as kernels, one an operation, named as the oracle's functions are. Below each
// kernel stand its launch and its traffic: the bytes that it has to move at least, each array
// counted once, from which the benchmark prints GB/s.
#pragma once

#include "attention.cuh"
#include "gemv.cuh"
#include "reduce.cuh"

namespace minfer {

/// y = x / sqrt(mean(x^2) + eps) * w.
/// @param[out] y    [n] f32
/// @param[in]  x    [n] f32
/// @param[in]  w    [n] f32
/// @param[in]  n    values
/// @param[in]  eps  keeps the root from zero
/// @launch{grid 1\, block 128}
/// @traffic{8*n read\, 4*n written}
/// @why{One block: the sum needs every value\, and a vector of 2048 is too small to share out. A
///      thread's loads are on their way together. In a step of the 0.5B on an H200 it takes 2.0
///      us\, and took 4.0 when they waited for each other. Without __restrict__ a store of y would
///      keep the next load of w back.}
__global__ void rmsnorm(float* __restrict__ y,        // [n]
                        const float* __restrict__ x,  // [n]
                        const float* __restrict__ w,  // [n]
                        std::uint32_t n,              //
                        float eps) {
  float squares = 0;
  for_each_of_thread<kThreads>(
      x, n, [&](std::uint32_t, float value) { squares = fmaf(value, value, squares); });
  const float mean = block_sum(squares) / static_cast<float>(n);
  const float scale = rsqrt_f32(mean + eps);
  for_each_of_thread<kThreads>(x, n,
                               [&](std::uint32_t i, float value) { y[i] = value * scale * w[i]; });
}

inline void launch_rmsnorm(cudaStream_t stream, float* y, const float* x, const float* w,
                           std::uint32_t n, float eps) {
  launch(rmsnorm, 1, kThreads, 0, stream, y, x, w, n, eps);
}

constexpr std::uint64_t rmsnorm_traffic(std::uint64_t n) {
  return 12 * n;
}

/// y += x: a bias, or the residual.
/// @param[in,out] y  [n] f32
/// @param[in]     x  [n] f32
/// @param[in]     n  values
/// @launch{grid ceil(n/128)\, block 128}
/// @traffic{8*n read\, 4*n written}
/// @why{A kernel of its own\, so that every intermediate can be compared with the oracle's.}
__global__ void add(float* y,        // [n]
                    const float* x,  // [n]
                    std::uint32_t n) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i];
}

inline void launch_add(cudaStream_t stream, float* y, const float* x, std::uint32_t n) {
  launch(add, ceil_div(n, kThreads), kThreads, 0, stream, y, x, n);
}

constexpr std::uint64_t add_traffic(std::uint64_t n) {
  return 12 * n;
}

/// gate = silu(gate) * up.
/// @param[in,out] gate  [n] f32
/// @param[in]     up    [n] f32
/// @param[in]     n     values
/// @launch{grid ceil(n/128)\, block 128}
/// @traffic{8*n read\, 4*n written}
/// @why{One thread a value.}
__global__ void swiglu(float* gate,      // [n]
                       const float* up,  // [n]
                       std::uint32_t n) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) gate[i] = silu_f32(gate[i]) * up[i];
}

inline void launch_swiglu(cudaStream_t stream, float* gate, const float* up, std::uint32_t n) {
  launch(swiglu, ceil_div(n, kThreads), kThreads, 0, stream, gate, up, n);
}

constexpr std::uint64_t swiglu_traffic(std::uint64_t n) {
  return 12 * n;
}

inline constexpr std::uint32_t kArgmaxThreads = 1024;

/// The token with the largest logit, and by how much it leads. The token goes where the next step
/// finds it.
/// @param[out] prediction  [1] id (-1 when every logit is NaN or -inf) and top-1 minus top-2 logit
/// @param[out] ids         [context + 1] the sequence: its entry at this position is written
/// @param[in]  position    [1] at most context
/// @param[in]  logits      [n_tokens] f32
/// @param[in]  n_tokens    real tokens: the rows of UNUSED ones are not among the logits
/// @launch{grid 1\, block 1024}
/// @traffic{4*n_tokens read}
/// @why{One block of the largest size\, and no second kernel to merge several: the plainest form.
///      On an H200 it takes 12.5 us by itself for 600 KB\, where a small kernel takes 1: it took 39
///      when a thread waited for each of its 148 loads and merged every one.}
__global__ void argmax(Prediction* prediction,         // [1]
                       Token* ids,                     // [context + 1]
                       const std::uint32_t* position,  // [1]
                       const float* logits,            // [n_tokens]
                       std::uint32_t n_tokens) {
  MINFER_SHARED(Top2, best, [kArgmaxThreads]);
  Top2 mine = {-INFINITY, -INFINITY, -1};
  for_each_of_thread<kArgmaxThreads>(logits, n_tokens, [&](std::uint32_t i, float logit) {
    // What does not beat the second of a thread's two changes neither; nor does a NaN.
    if (logit > mine.second) mine = merge(mine, {logit, -INFINITY, static_cast<Token>(i)});
  });
  best[threadIdx.x] = mine;
  __syncthreads();  // every thread wrote its own; the tree's first level reads two
  for (std::uint32_t width = kArgmaxThreads / 2; width > 0; width /= 2) {
    if (threadIdx.x < width)
      best[threadIdx.x] = merge(best[threadIdx.x], best[threadIdx.x + width]);
    __syncthreads();  // this level is written; the next reads it
  }
  if (threadIdx.x == 0) {
    *prediction = {best[0].id, best[0].first - best[0].second};
    ids[*position] = best[0].id;
  }
}

inline void launch_argmax(cudaStream_t stream, Prediction* prediction, Token* ids,
                          const std::uint32_t* position, const float* logits,
                          std::uint32_t n_tokens) {
  launch(argmax, 1, kArgmaxThreads, 0, stream, prediction, ids, position, logits, n_tokens);
}

constexpr std::uint64_t argmax_traffic(std::uint64_t n_tokens) {
  return 4 * n_tokens;
}

/// Goes on to the next position.
/// @param[in,out] position  [1]
/// @launch{grid 1\, block 1}
/// @traffic{4 read\, 4 written}
/// @why{A kernel of its own: any block of any other kernel may read the position\, so it changes
///      only between kernels.}
__global__ void advance(std::uint32_t* position  // [1]
) {
  *position += 1;
}

inline void launch_advance(cudaStream_t stream, std::uint32_t* position) {
  launch(advance, 1, 1, 0, stream, position);
}

constexpr std::uint64_t advance_traffic() {
  return 8;
}

}  // namespace minfer
