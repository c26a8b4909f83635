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

}  // namespace minfer
