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
#include "tokens_phases.cuh"

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

/// Steps of up to kMaxTokens tokens, all of which are given: their bits are those of steps of one.
/// @tparam kBatches  of a warp's ring; they are in dynamic shared memory, and TokensCta::kBytes
/// behind them
template <class S, std::uint32_t kBatches, std::uint32_t kHeads>
__global__ void __launch_bounds__(kCtaThreads, 1)
    persistent_tokens(const DeviceModel m, const Workspace<S> work, const Request request) {
  MINFER_SHARED(CtaUnits, units);
  if (threadIdx.x == 0) units = cta_units<S>(m.n_tokens, blockIdx.x, gridDim.x);
  const std::uint32_t first_predicted = request.first_predicted / request.step_tokens;
  TokensCta<kBatches> cta(work.arrived, dynamic_shared<unsigned char>(),
                          BatchSource(m.packed, request.n_steps, first_predicted), units);
  __syncthreads();  // units, zeros: written by the first thread and by all, read by all
#pragma unroll 1
  for (std::uint32_t i = 0; i < request.n_steps; ++i) {
    const std::uint32_t first = i * request.step_tokens, left = request.n_given - first;
    const StepTokens step = {request.position + first,
                             left < request.step_tokens ? left : request.step_tokens};
    embed_tokens<S>(m, work, step, request.given + first);
    cta.arrive();
    const auto x = [&](std::uint32_t t, std::uint32_t i) {
      return by_four(work.x + t * S::kModel)[i / 4];
    };
#pragma unroll 1
    for (std::uint32_t layer = 0; layer < m.n_layers; ++layer) {
      qkv_tokens<S>(cta, m, work, layer, step, x);
      prefetch_small<S>(m, layer);
      attention<S, kHeads, kMaxTokens>(cta, m, work, layer, step.position, step.n,
                                       [&](std::uint32_t t, std::uint32_t i, float value) {
                                         quantize(*work.attended_tokens, t, i, value);
                                       });
      add_rows_tokens<S, Stage::kO>(cta, work, *work.attended_tokens, step);
      gate_up_tokens<S>(cta, m, work, layer, step, x);
      add_rows_tokens<S, Stage::kDown>(cta, work, *work.hidden_tokens, step);
    }
    cta.ring.finish_batch();
    if (i < first_predicted) {
      cta.wait();  // as in head_tokens: x is written, though nobody reads it
      continue;
    }
    head_tokens<S>(cta, m, work, step, request.keeps_logits, x);
    cta.ring.finish_batch();
    const std::uint32_t predicted =
        request.first_predicted > first ? request.first_predicted - first : 0;
    tell(cta, work, step, predicted,
         request.predictions + (first + predicted - request.first_predicted));
  }
  cta.ring.drain();
}

}  // namespace minfer
