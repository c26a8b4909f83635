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

/// Steps of one token each, all of them in one launch.
/// @param n_batches  of a warp's ring, which is dynamic shared memory
template <class S, class Copies, std::uint32_t kHeads>
__global__ void __launch_bounds__(kCtaThreads, 1)
    persistent(const DeviceModel m, const Workspace<S> work, const Request request,
               std::uint32_t n_batches) {
  MINFER_SHARED(CtaUnits, units);
  if (threadIdx.x == 0) units = cta_units<S>(m.n_tokens, blockIdx.x, gridDim.x);
  __syncthreads();  // units: written by the first thread, read by all
  Cta<Copies> cta = {GridBarrier(work.arrived),
                     {dynamic_shared<unsigned char>(), n_batches,
                      BatchSource(m.packed, request.n_steps, request.first_predicted)},
                     units};
  Token token = request.given[0];
#pragma unroll 1
  for (std::uint32_t step = 0; step < request.n_steps; ++step) {
    const std::uint32_t position = request.position + step;
    const auto embedded = [&](std::uint32_t i) { return m.embedding.value(token, i, S::kModel); };
#pragma unroll 1
    for (std::uint32_t layer = 0; layer < m.n_layers; ++layer) {
      qkv<S>(cta, m, work, layer, position, [&] {
        if (layer > 0) {
          cta.barrier.wait();  // x: written by the warps of down, read by all
          return four_of_thread<S::kModel>(work.x);
        }
        const std::uint32_t i = 4 * threadIdx.x;
        if (i >= S::kModel) return float4{0, 0, 0, 0};
        return float4{embedded(i), embedded(i + 1), embedded(i + 2), embedded(i + 3)};
      });
      attention<S, kHeads>(cta.barrier, m, work, layer, position);
      add_rows<S, Stage::kO>(cta, work, *work.attended,
                             [&](std::uint32_t i) { return layer > 0 ? work.x[i] : embedded(i); });
      gate_up<S>(cta, m, work, layer);
      add_rows<S, Stage::kDown>(cta, work, *work.hidden,
                                [&](std::uint32_t i) { return work.x[i]; });
    }
    cta.ring.finish_batch();
    if (step < request.first_predicted) {
      cta.barrier.wait();  // as in head: x is written, though nobody reads it
      token = request.given[step + 1];
      continue;
    }
    head<S>(cta, m, work, request, request.keeps_logits);
    cta.ring.finish_batch();
    token = choose(cta.barrier, work, request.predictions + (step - request.first_predicted));
    if (token < 0) break;
    if (step + 1 < request.n_given) token = request.given[step + 1];
  }
  cta.ring.drain();
}

/// Steps of up to kMaxTokens tokens, all of which are given: their bits are those of steps of one.
/// @param n_batches  of a warp's ring, which is dynamic shared memory, and TokensCta::kBytes behind
/// the rings
template <class S, class Copies, std::uint32_t kHeads>
__global__ void __launch_bounds__(kCtaThreads, 1)
    persistent_tokens(const DeviceModel m, const Workspace<S> work, const Request request,
                      std::uint32_t n_batches) {
  MINFER_SHARED(CtaUnits, units);
  using Tokens = TokensCta<Copies>;
  auto* memory = dynamic_shared<unsigned char>();
  auto* partials = reinterpret_cast<float*>(memory + n_batches * SharedRing<Copies>::kBytesABatch);
  auto* zeros = reinterpret_cast<unsigned char*>(partials + kCtaWarps * Tokens::kMostSums);
  if (threadIdx.x == 0) units = cta_units<S>(m.n_tokens, blockIdx.x, gridDim.x);
  for (std::uint32_t i = threadIdx.x; i < kTileBytes; i += kCtaThreads) zeros[i] = 0;
  __syncthreads();  // units, zeros: written by the first thread and by all, read by all
  const std::uint32_t first_predicted = request.first_predicted / request.step_tokens;
  Tokens cta = {GridBarrier(work.arrived),
                {memory, n_batches, BatchSource(m.packed, request.n_steps, first_predicted)},
                units,
                memory,
                partials,
                static_cast<std::uint32_t>(zeros - memory)};
#pragma unroll 1
  for (std::uint32_t i = 0; i < request.n_steps; ++i) {
    const std::uint32_t first = i * request.step_tokens, left = request.n_given - first;
    const StepTokens step = {request.position + first,
                             left < request.step_tokens ? left : request.step_tokens};
    embed_tokens<S>(m, work, step, request.given + first);
    cta.barrier.arrive();
    const auto x = [&](std::uint32_t t, std::uint32_t i) {
      return by_four(work.x + t * S::kModel)[i / 4];
    };
#pragma unroll 1
    for (std::uint32_t layer = 0; layer < m.n_layers; ++layer) {
      qkv_tokens<S>(cta, m, work, layer, step, x);
      attention<S, kHeads>(cta.barrier, m, work, layer, step.position, step.n,
                           [&](std::uint32_t t, std::uint32_t i, float value) {
                             quantize(*work.attended_tokens, t, i, value);
                           });
      add_rows_tokens<S, Stage::kO>(cta, work, *work.attended_tokens, step);
      gate_up_tokens<S>(cta, m, work, layer, step, x);
      add_rows_tokens<S, Stage::kDown>(cta, work, *work.hidden_tokens, step);
    }
    cta.ring.finish_batch();
    if (i < first_predicted) {
      cta.barrier.wait();  // as in head_tokens: x is written, though nobody reads it
      continue;
    }
    head_tokens<S>(cta, m, work, step, request.keeps_logits, x);
    cta.ring.finish_batch();
    const std::uint32_t predicted =
        request.first_predicted > first ? request.first_predicted - first : 0;
    tell(cta.barrier, work, step, predicted,
         request.predictions + (first + predicted - request.first_predicted));
  }
  cta.ring.drain();
}

}  // namespace minfer
