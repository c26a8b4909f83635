// SPDX-License-Identifier: MIT
//
// The kernel: a loop over tokens around a loop over layers.
#pragma once

#include <cstdint>

#include "attention.cuh"
#include "barrier.h"
#include "cuda/launch.h"
#include "cuda/shared.h"
#include "head.cuh"
#include "mlp.cuh"
#include "model.h"
#include "qkv.cuh"
#include "ring.cuh"

namespace minfer {

/// Asks for norms and biases, those of this layer's second half and of the next one, to L2.
/// @why They are read once a token, and by then the weights have driven them out. Every CTA reads
/// all of a norm, so each asks for a part.
template <class S>
__device__ inline void prefetch_small(const DeviceModel& m, std::uint32_t layer) {
  if (threadIdx.x > 0) return;
  const auto prefetch = [](const float* values, std::uint32_t n) {
    constexpr std::uint32_t kLine = 32;
    for (std::uint32_t i = kLine * blockIdx.x; i < n; i += kLine * gridDim.x) {
      prefetch_l2(values + i);
    }
  };
  const std::uint32_t next = layer + 1;
  const bool is_last = next == m.n_layers;
  prefetch(m.ffn_norm + layer * S::kModel, S::kModel);
  prefetch(is_last ? m.output_norm : m.attn_norm + next * S::kModel, S::kModel);
  if (!is_last) prefetch(m.bias + next * (S::kQ + 2 * S::kKv), S::kQ + 2 * S::kKv);
}

/// The token's row of the embedding: the thread's four values, and those of the rows that this CTA
/// adds to in O to their place in x.
template <class S, class Cta>
__device__ inline float4 embed(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                               Token token) {
  using U = Units<S, Stage::kO>;
  float* values = reinterpret_cast<float*>(fours());
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < S::kModel; i += kCtaThreads) {
    values[i] = m.embedding.value(token, i, S::kModel);
  }
  __syncthreads();  // values: written by all, read by all
  const Range units = cta.units[Stage::kO];
  for (std::uint32_t i = U::row(units.first, 0) + threadIdx.x; i < U::row(units.last, 0);
       i += kCtaThreads) {
    work.x[i] = values[i];
  }
  const float4 own = 4 * threadIdx.x < S::kModel ? fours()[threadIdx.x] : float4{0, 0, 0, 0};
  __syncthreads();  // values: read by all; the norm writes there
  return own;
}

/// Steps of one token each, all of them in one launch.
/// @tparam kBatches  of a warp's ring, which is dynamic shared memory
/// @tparam kHeads    that attention takes at once
template <class S, std::uint32_t kBatches, std::uint32_t kHeads>
__global__ void __launch_bounds__(kCtaThreads, 1)
    persistent(const DeviceModel m, const Workspace<S> work, const Request request) {
  MINFER_SHARED(CtaUnits, units);
  if (threadIdx.x == 0) units = cta_units<S>(m.n_tokens, blockIdx.x, gridDim.x);
  __syncthreads();  // units: written by the first thread, read by all
  Cta<kBatches> cta = {GridBarrier(work.arrived),
                       {dynamic_shared<unsigned char>(),
                        BatchSource(m.packed, request.n_steps, request.first_predicted)},
                       units};
  Token token = request.given[0];
#pragma unroll 1
  for (std::uint32_t step = 0; step < request.n_steps; ++step) {
    const std::uint32_t position = request.position + step;
    const float4 embedded = embed<S>(cta, m, work, token);
#pragma unroll 1
    for (std::uint32_t layer = 0; layer < m.n_layers; ++layer) {
      qkv<S>(cta, m, work, layer, position, [&] {
        if (layer == 0) return embedded;
        cta.wait();  // x: written by the warps of down, read by all
        return four_of_thread<S::kModel>(work.x);
      });
      prefetch_small<S>(m, layer);
      attention<S, kHeads>(cta, m, work, layer, position);
      add_rows<S, Stage::kO>(cta, work, *work.attended);
      gate_up<S>(cta, m, work, layer);
      add_rows<S, Stage::kDown>(cta, work, *work.hidden);
    }
    cta.ring.finish_batch();
    if (step < request.first_predicted) {
      cta.wait();  // as in head: x is written, though nobody reads it
      token = request.given[step + 1];
      continue;
    }
    head<S>(cta, m, work, request, request.keeps_logits);
    cta.ring.finish_batch();
    token = choose(cta, work, request.predictions + (step - request.first_predicted));
    if (token < 0) break;
    if (step + 1 < request.n_given) token = request.given[step + 1];
  }
  cta.ring.drain();
}

}  // namespace minfer
