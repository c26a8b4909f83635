// SPDX-License-Identifier: MIT
//
// The phases of a step of several tokens: what the files of one token's phases do, by all warps of
// a CTA together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention.cuh"
#include "barrier.h"
#include "head.cuh"
#include "model.h"
#include "plan.h"
#include "qkv.cuh"
#include "tokens.cuh"

namespace minfer {

/// Calls f(unit of the warp, whether there is one) for all warps' first units, then for their
/// second ones, and so on: as often in each warp.
template <class F>
__device__ inline void for_each_round(const Range& units, F f) {
#pragma unroll 1
  for (std::uint32_t first = units.first; first < units.last; first += kCtaWarps) {
    const std::uint32_t unit = first + threadIdx.x / 32;
    f(first, unit < units.last);
  }
}

/// Which of what TokenSums::leave() has left a thread adds up: a token's, of a warp's unit. Row i
/// of the unit is kRowStride on.
struct LeftAt {
  static constexpr std::uint32_t kRowStride = kCtaWarps * kMaxTokens;
  const std::uint32_t token = threadIdx.x % kMaxTokens;
  const std::uint32_t warp = threadIdx.x / kMaxTokens % kCtaWarps;
  const std::uint32_t row = threadIdx.x / kRowStride;
  const std::uint32_t first = threadIdx.x % kRowStride;
};

/// x = the tokens' rows of the embedding, each CTA its share.
template <class S>
__device__ inline void embed_tokens(const DeviceModel& m, const Workspace<S>& work,
                                    const StepTokens& step, const Token* tokens) {
#pragma unroll 1
  for (std::uint32_t i = blockIdx.x * kCtaThreads + threadIdx.x; i < step.n * S::kModel;
       i += gridDim.x * kCtaThreads) {
    work.x[i] = m.embedding.value(tokens[i / S::kModel], i % S::kModel, S::kModel);
  }
}

/// qkv() of several tokens. @param x  gives four values of a token, from one on
template <class S, class Cta, class X>
__device__ inline void qkv_tokens(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                                  std::uint32_t layer, const StepTokens& step, X x) {
  using U = Units<S, Stage::kQkv>;
  cta.wait();  // x: written by the CTAs of down or by all of them before, read by all
  const KeptTokens<S::kModel, 1> kept(step, x, m.attn_norm + layer * S::kModel, m.eps);
  const Range units = cta.units[Stage::kQkv];
  for_each_round(units, [&](std::uint32_t first_unit, bool has_unit) {
    const LeftAt at;
    const std::uint32_t unit = first_unit + at.warp, position = step.position + at.token;
    const bool is_own = at.row == 0 && unit < units.last && at.token < step.n;
    PairNotes notes = {};
    if (is_own) notes = pair_notes<S>(m, layer, unit, position);
    TokenSums<S::kModel, 2> sums;
    sums.add(cta, has_unit, kept);
    sums.leave(cta);
    if (!is_own) return;
    float first = sum_of_warps(cta, at.first) + notes.bias.x;
    float second = sum_of_warps(cta, at.first + at.kRowStride) + notes.bias.y;
    const std::uint32_t row = U::row(unit, 0);
    if (row < S::kQ + S::kKv) {
      const float rotated = first * notes.angle.x - second * notes.angle.y;
      second = first * notes.angle.y + second * notes.angle.x;
      first = rotated;
    }
    const std::size_t cached = (std::size_t(layer) * m.context + position) * S::kKv;
    float* out = row < S::kQ            ? work.q + at.token * S::kQ + row
                 : row < S::kQ + S::kKv ? work.k + cached + (row - S::kQ)
                                        : work.v + cached + (row - S::kQ - S::kKv);
    out[0] = first;
    out[U::kHalf] = second;
  });
  cta.arrive();
}

/// add_rows() of several tokens.
template <class S, Stage kStage, class Cta>
__device__ inline void add_rows_tokens(Cta& cta, const Workspace<S>& work,
                                       const Int8Tokens<Units<S, kStage>::K>& y,
                                       const StepTokens& step) {
  using U = Units<S, kStage>;
  const Range units = cta.units[kStage];
  bool has_waited = false;
  for_each_round(units, [&](std::uint32_t first_unit, bool has_unit) {
    const LeftAt at;
    const std::uint32_t unit = first_unit + at.warp;
    const bool is_own = at.row < U::kRows && unit < units.last && at.token < step.n;
    const std::uint32_t row = U::row(unit, at.row);
    float x = 0;
    if (is_own) x = work.x[at.token * S::kModel + row];
    if (!has_waited) cta.wait();  // y: written by the phase before, read by all
    has_waited = true;
    TokenSums<U::K, U::kRows> sums;
    sums.add(cta, has_unit, StoredTokens<U::K>{y});
    sums.leave(cta);
    if (is_own) {
      work.x[at.token * S::kModel + row] = x + sum_of_warps(cta, at.first + at.row * at.kRowStride);
    }
  });
  if (!has_waited) cta.wait();  // the same y, written by others; this CTA reads none of it
  cta.arrive();
}

/// gate_up() of several tokens: a round of units is a run of 32 values, and a warp a token
/// quantizes it.
template <class S, class Cta, class X>
__device__ inline void gate_up_tokens(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                                      std::uint32_t layer, const StepTokens& step, X x) {
  using U = Units<S, Stage::kGateUp>;
  static_assert(U::kRows * LeftAt::kRowStride == kCtaThreads, "a thread a sum");
  MINFER_SHARED(float, sums_of, [kMaxTokens][U::kRows * kCtaWarps]);
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  cta.wait();  // x: written by the CTAs of O, read by all
  const KeptTokens<S::kModel, 1> kept(step, x, m.ffn_norm + layer * S::kModel, m.eps);
  for_each_round(cta.units[Stage::kGateUp], [&](std::uint32_t first_unit, bool has_unit) {
    TokenSums<S::kModel, U::kRows> sums;
    sums.add(cta, has_unit, kept);
    sums.leave(cta);
    const LeftAt at;
    sums_of[at.token][at.warp * U::kRows + at.row] = sum_of_warps(cta, threadIdx.x);
    __syncthreads();  // sums_of: written by all, read by a warp a token
    if (warp < step.n) {
      const float value = silu_f32(sums_of[warp][2 * lane]) * sums_of[warp][2 * lane + 1];
      quantize(*work.hidden_tokens, warp, first_unit * 2 + lane, value);
    }
    // sums_of: read; whoever writes them again comes from the barriers of add() and leave()
  });
  cta.arrive();
}

/// head() of several tokens.
template <class S, class Cta, class X>
__device__ inline void head_tokens(Cta& cta, const DeviceModel& m, const Workspace<S>& work,
                                   const StepTokens& step, bool keeps_logits, X x) {
  using U = Units<S, Stage::kHead>;
  static_assert(U::kRows * LeftAt::kRowStride == kCtaThreads, "a thread a sum");
  MINFER_SHARED(Top2, tops, [kCtaWarps][kMaxTokens]);
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  cta.wait();  // x: written by the CTAs of down, read by all
  const KeptTokens<S::kModel, 2> kept(step, x, m.output_norm, m.eps);
  const Range units = cta.units[Stage::kHead];
  const LeftAt at;
  Top2 top = no_top();
  for_each_round(units, [&](std::uint32_t first_unit, bool has_unit) {
    TokenSums<S::kModel, U::kRows> sums;
    sums.add(cta, has_unit, kept);
    sums.leave(cta);
    const std::uint32_t unit = first_unit + at.warp, row = U::row(unit, at.row);
    if (unit >= units.last || row >= m.n_tokens || at.token >= step.n) return;
    const float logit = sum_of_warps(cta, threadIdx.x);
    insert(top, logit, row);
    if (keeps_logits) work.logits[std::size_t(at.token) * m.n_tokens + row] = logit;
  });
  // Lanes kMaxTokens apart have the same token.
  top = warp_top<kMaxTokens>(top);
  if (lane < kMaxTokens) tops[warp][lane] = top;
  __syncthreads();  // tops: written by each warp's first lanes, read by the first warp
  if (threadIdx.x < kMaxTokens) {
    for (std::uint32_t w = 1; w < kCtaWarps; ++w) top = merge(top, tops[w][lane]);
    work.best[blockIdx.x * kMaxTokens + lane] = top;
  }
  cta.arrive();
}

/// Tells the host each token's largest logit, from token `first` on: the first CTA does it, a warp
/// a token.
template <class S, class Cta>
__device__ inline void tell(Cta& cta, const Workspace<S>& work, const StepTokens& step,
                            std::uint32_t first, std::uint64_t* predictions) {
  cta.wait();  // best: written by each CTA's first warp, read by the first CTA
  const std::uint32_t token = threadIdx.x / 32;
  if (blockIdx.x > 0 || token < first || token >= step.n) return;
  Top2 top = no_top();
  for (std::uint32_t i = threadIdx.x % 32; i < gridDim.x; i += 32) {
    top = merge(top, work.best[i * kMaxTokens + token]);
  }
  top = warp_top(top);
  if (threadIdx.x % 32 == 0) {
    store_relaxed_system(predictions + (token - first), packed(top.id, top.first - top.second));
  }
}

}  // namespace minfer
