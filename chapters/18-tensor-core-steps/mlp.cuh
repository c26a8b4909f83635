// SPDX-License-Identifier: MIT
//
// The matrices behind attention: O, gate and up, down.
#pragma once

#include <cstddef>
#include <cstdint>

#include "barrier.h"
#include "gemv.cuh"
#include "model.h"
#include "plan.h"

namespace minfer {

/// x += W y, for W_o and W_down. Each row of x has one warp that adds to it.
/// @param y  the vector, quantized, in device memory
template <class S, Stage kStage, class Cta>
__device__ inline void add_rows(Cta& cta, const Workspace<S>& work,
                                const Int8<Units<S, kStage>::K>& y) {
  using U = Units<S, kStage>;
  using Y = Int8<U::K>;
  MINFER_SHARED(Y, copy);
  static_assert(sizeof(Y) % 16 == 0, "copied by 16 bytes");
  constexpr std::uint32_t kLanes = 32 / U::kRows, kVectors = sizeof(Y) / 16;
  const std::uint32_t lane = threadIdx.x % 32;
  const Range units = cta.units[kStage];
  std::uint32_t unit = units.first + threadIdx.x / 32;
  float x = 0;
  if (unit < units.last) x = work.x[U::row(unit, lane / kLanes)];
  cta.wait();  // y: written by the phase before, read by all
#pragma unroll
  for (std::uint32_t first = 0; first < kVectors; first += kCtaThreads) {
    const std::uint32_t i = first + threadIdx.x;
    if (i < kVectors) reinterpret_cast<uint4*>(&copy)[i] = reinterpret_cast<const uint4*>(&y)[i];
  }
  __syncthreads();  // copy: written by all, read by all
#pragma unroll 1
  for (; unit < units.last; unit += kCtaWarps) {
    RowSums<U::K, U::kRows> sums;
    sums.add(cta.ring, Shared<U::K>{copy});
    const float sum = warp_sums(sums.of_lane);
    if (lane % kLanes == 0) work.x[U::row(unit, lane / kLanes)] = x + sum;
    if (unit + kCtaWarps < units.last) {
      x = work.x[U::row(unit + kCtaWarps, lane / kLanes)];
    }
  }
  cta.arrive();
}

/// silu(W_gate norm(x)) * (W_up norm(x)), quantized: a CTA makes whole runs of 32 values, of each a
/// warp two.
template <class S, class Cta>
__device__ inline void gate_up(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                               std::uint32_t layer) {
  using U = Units<S, Stage::kGateUp>;
  constexpr std::uint32_t kAtOnce = 4;  // runs
  MINFER_SHARED(float, rows, [kAtOnce][kCtaWarps * U::kRows]);
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Range units = cta.units[Stage::kGateUp];
  const Range runs = {units.first / kCtaWarps, units.last / kCtaWarps};
  const float4 norm = four_of_thread<S::kModel>(m.ffn_norm + layer * S::kModel);
  cta.wait();  // x: written by the warps of O, read by all
  const float4 four = four_of_thread<S::kModel>(work.x);
  const Kept<S::kModel, Activations8> kept(normed<S::kModel, 2>(four, norm, m.eps));
#pragma unroll 1
  for (std::uint32_t first = runs.first; first < runs.last; first += kAtOnce) {
    const std::uint32_t n = runs.last - first < kAtOnce ? runs.last - first : kAtOnce;
#pragma unroll 1
    for (std::uint32_t i = 0; i < n; ++i) {
      RowSums<S::kModel, U::kRows> sums;
      sums.add(cta.ring, kept);
      const float sum = warp_sums(sums.of_lane);
      constexpr std::uint32_t kLanes = 32 / U::kRows;
      if (lane % kLanes == 0) rows[i][warp * U::kRows + lane / kLanes] = sum;
    }
    __syncthreads();  // rows: written by all warps, read by a warp a run
    if (warp < n) {
      const float value = silu_f32(rows[warp][2 * lane]) * rows[warp][2 * lane + 1];
      quantize(*work.hidden, (first + warp) * 32 + lane, value);
    }
    if (first + kAtOnce < runs.last) __syncthreads();  // rows: read; the next ones are written
  }
  cta.arrive();
}

}  // namespace minfer
