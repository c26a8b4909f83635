// SPDX-License-Identifier: MIT
//
// The head and the choice of the next token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "barrier.h"
#include "gemv.cuh"
#include "model.h"
#include "plan.h"

namespace minfer {

/// The sets of lanes that are kWidth apart as one, to all of them: of all lanes unless told.
template <int kWidth = 1>
__device__ inline Top2 warp_top(Top2 top) {
  for (int distance = 16; distance >= kWidth; distance /= 2) {
    const Top2 other = {__shfl_xor_sync(0xffffffffu, top.first, distance),
                        __shfl_xor_sync(0xffffffffu, top.second, distance),
                        __shfl_xor_sync(0xffffffffu, top.id, distance)};
    top = merge(top, other);
  }
  return top;
}

__device__ inline Top2 no_top() {
  return {-INFINITY, -INFINITY, -1};
}

/// The logits of norm(x), of which each CTA leaves the best of its rows.
/// @why With int8 activations the head overturns 3 of 1174 predictions, all near ties, with int16
/// none, and no byte of W is added.
template <class S, class Cta>
__device__ inline void head(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                            const Request& request, bool keeps_logits) {
  using U = Units<S, Stage::kHead>;
  MINFER_SHARED(Top2, tops, [kCtaWarps]);
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Range units = cta.units[Stage::kHead];
  const float4 norm = four_of_thread<S::kModel>(m.output_norm);
  cta.wait();  // x: written by the warps of down, read by all
  const float4 four = four_of_thread<S::kModel>(work.x);
  const Kept<S::kModel, Activations16> kept(normed<S::kModel, 4>(four, norm, m.eps));
  Top2 top = no_top();
#pragma unroll 1
  for (std::uint32_t unit = units.first + warp; unit < units.last; unit += kCtaWarps) {
    RowSums<S::kModel, U::kRows> sums;
    sums.add(cta.ring, kept);
    const float logit = warp_sums(sums.of_lane);
    constexpr std::uint32_t kLanes = 32 / U::kRows;
    const std::uint32_t row = U::row(unit, lane / kLanes);
    if (row < m.n_tokens) {
      insert(top, logit, row);
      if (keeps_logits && lane % kLanes == 0) work.logits[row] = logit;
    }
  }
  // Eight lanes have the same rows: one set of each counts, or a logit would be its own rival.
  if (lane % (32 / U::kRows) != 0) top = no_top();
  top = warp_top(top);
  if (lane == 0) tops[warp] = top;
  __syncthreads();  // tops: written by each warp's first lane, read by the first warp
  if (warp == 0) {
    top = warp_top(lane < kCtaWarps ? tops[lane] : no_top());
    if (lane == 0) work.best[blockIdx.x] = top;
  }
  if (blockIdx.x == 0 && threadIdx.x == 32) *work.stops = load_relaxed_system(request.stop);
  cta.arrive();
}

/// The token with the largest logit, -1 where every logit is NaN or -inf: each CTA finds it for
/// itself. The first tells the host.
/// @return the token, -1 as well where decoding is to stop
template <class S, class Cta>
__device__ inline Token choose(Cta& cta, const Workspace<S>& work, std::uint64_t* prediction) {
  MINFER_SHARED(Token, chosen);
  cta.wait();  // best, stops: written by each CTA's first warps, read by all CTAs
  if (threadIdx.x < 32) {
    const unsigned stops = *work.stops;
    Top2 top = no_top();
    for (std::uint32_t i = threadIdx.x; i < gridDim.x; i += 32) top = merge(top, work.best[i]);
    top = warp_top(top);
    if (threadIdx.x == 0) {
      chosen = stops != 0 ? -1 : top.id;
      if (blockIdx.x == 0) store_relaxed_system(prediction, packed(top.id, top.first - top.second));
    }
  }
  __syncthreads();  // chosen: written by the first thread, read by all
  return chosen;
}

}  // namespace minfer
