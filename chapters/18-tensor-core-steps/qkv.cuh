// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "barrier.h"
#include "gemv.cuh"
#include "model.h"
#include "plan.h"

namespace minfer {

/// What a pair of q, k or v needs besides its sums.
struct PairNotes {
  float2 bias;   ///< of the two
  float2 angle;  ///< cosine and sine
};

template <class S>
__device__ inline PairNotes pair_notes(const DeviceModel& m, std::uint32_t layer,
                                       std::uint32_t unit, std::uint32_t position) {
  using U = Units<S, Stage::kQkv>;
  const float* bias = m.bias + layer * (2 * U::kCount);
  const std::size_t angle = std::size_t(position) * U::kHalf + unit % U::kHalf;
  return {{bias[U::row(unit, 0)], bias[U::row(unit, 1)]}, {m.cosines[angle], m.sines[angle]}};
}

/// q = W_q norm(x) + b_q, rotated, and k and v likewise, v as it is; k and v to their place in the
/// cache. A warp makes two values that RoPE pairs.
/// @param x_of_thread  waits for the residual stream, and gives the thread's four values of it
template <class S, class Cta, class XAt>
__device__ inline void qkv(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                           std::uint32_t layer, std::uint32_t position, XAt x_of_thread) {
  using U = Units<S, Stage::kQkv>;
  const std::uint32_t lane = threadIdx.x % 32;
  const Range units = cta.units[Stage::kQkv];
  const float4 norm = four_of_thread<S::kModel>(m.attn_norm + layer * S::kModel);
  std::uint32_t unit = units.first + threadIdx.x / 32;
  PairNotes notes = {};
  if (unit < units.last) notes = pair_notes<S>(m, layer, unit, position);

  const float4 four = x_of_thread();
  const Kept<S::kModel, Activations8> kept(normed<S::kModel, 2>(four, norm, m.eps));
#pragma unroll 1
  for (; unit < units.last; unit += kCtaWarps) {
    RowSums<S::kModel, 2> sums;
    sums.add(cta.ring, kept);
    // The first half of the warp has the pair's first value, the other its second.
    const bool is_second = lane >= 16;
    float value = warp_sums(sums.of_lane) + (is_second ? notes.bias.y : notes.bias.x);
    const float partner = __shfl_xor_sync(0xffffffffu, value, 16);
    const std::uint32_t row = U::row(unit, 0);
    if (row < S::kQ + S::kKv) {
      const float across = partner * notes.angle.y;
      value = value * notes.angle.x + (is_second ? across : -across);
    }
    const std::size_t cached = (std::size_t(layer) * m.context + position) * S::kKv;
    float* out = row < S::kQ            ? work.q + row
                 : row < S::kQ + S::kKv ? work.k + cached + (row - S::kQ)
                                        : work.v + cached + (row - S::kQ - S::kKv);
    if (lane % 16 == 0) out[is_second ? U::kHalf : 0] = value;
    if (unit + kCtaWarps < units.last) {
      notes = pair_notes<S>(m, layer, unit + kCtaWarps, position);
    }
  }
  cta.arrive();
}

}  // namespace minfer
