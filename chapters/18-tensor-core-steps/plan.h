// SPDX-License-Identifier: MIT
//
// Who does what. The work of each matrix is cut by its shape into units, and those are dealt to
// however many CTAs there are. The weights are packed accordingly: what a warp reads of a layer
// lies together, in the order in which it reads it, in tiles.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include <minfer/math.h>

#include "cuda/step.h"

namespace minfer {

inline constexpr std::uint32_t kCtaThreads = 512, kCtaWarps = kCtaThreads / 32;

/// A warp's next 32 blocks of Q4_0, a block a lane: their nibbles, then their scales.
inline constexpr std::uint32_t kTileScales = 32 * 16, kTileBytes = kTileScales + 32 * 2;
/// Tiles are copied to shared memory in batches.
inline constexpr std::uint32_t kBatchTiles = 4, kBatchBytes = kBatchTiles * kTileBytes;

/// Where a lane's block stands in a tile of a warp: its nibbles, in 16 bytes, and its scale.
/// @why Lanes of any warp read the blocks of one lane of eight warps at once, for the tensor cores:
/// at the same place in each tile, all eight would be in the same banks of shared memory.
struct Place {
  std::uint32_t nibbles, scale;
};
MINFER_HD constexpr Place place(std::uint32_t lane, std::uint32_t warp) {
  return {lane ^ warp % 8, 2 * (lane % 16 ^ warp % 8) + lane / 16};
}

/// How rows of K weights are cut into tiles. Lane l takes blocks l, 32 + l, and so on, as a warp
/// does that adds up a row by itself. Where the last tile of a row would be half empty, two rows
/// share it: the first has lanes 0 to 15, the second lanes 16 to 31.
template <std::uint32_t K>
struct Tiles {
  static constexpr std::uint32_t kBlocks = K / 32, kFull = kBlocks / 32, kTail = kBlocks % 32;
  static constexpr bool kShares = kTail > 0 && kTail <= 16;
  static constexpr std::uint32_t kSets =
      kFull + (kTail > 0);                                 ///< blocks that a lane takes of a row
  static constexpr std::uint32_t kRows = kShares ? 2 : 1;  ///< that are cut together
  static constexpr std::uint32_t kEach = kShares ? 2 * kFull + 1 : kSets;  ///< tiles of those

  MINFER_HD static constexpr std::uint32_t of_rows(std::uint32_t rows) {
    return rows / kRows * kEach;
  }

  /// Tile j of some rows: those before the shared one are the first row's, those behind it the
  /// second's.
  MINFER_HD static constexpr bool is_shared(std::uint32_t j) {
    return kShares && j % kEach == kFull;
  }
  MINFER_HD static constexpr std::uint32_t row(std::uint32_t j) {
    return j / kEach * kRows + (kShares && j % kEach > kFull);
  }
  MINFER_HD static constexpr std::uint32_t set(std::uint32_t j) {
    return kShares && j % kEach > kFull ? j % kEach - kFull - 1 : j % kEach;
  }

  /// The block of a row that a lane has of a set, if it has one.
  MINFER_HD static constexpr std::uint32_t block(std::uint32_t set, std::uint32_t lane) {
    return 32 * set + (kShares && set == kFull ? lane % 16 : lane);
  }
  MINFER_HD static constexpr bool has(std::uint32_t set, std::uint32_t lane) {
    return set != kFull || block(set, lane) < kBlocks;
  }
};

/// Units first to last - 1.
struct Range {
  std::uint32_t first, last;
};

/// The units of a CTA, of n: as equal shares as can be.
MINFER_HD constexpr Range dealt(std::uint32_t n, std::uint32_t cta, std::uint32_t n_ctas) {
  return {static_cast<std::uint32_t>(std::uint64_t{n} * cta / n_ctas),
          static_cast<std::uint32_t>(std::uint64_t{n} * (cta + 1) / n_ctas)};
}

/// The matrices, in the order in which a step reads them.
enum class Stage { kQkv, kO, kGateUp, kDown, kHead };

/// A matrix's units: whole rows, a warp each.
template <class S, Stage kStage>
struct Units;

/// W_q, W_k and W_v: two rows that RoPE pairs.
template <class S>
struct Units<S, Stage::kQkv> {
  static constexpr std::uint32_t K = S::kModel, kRows = 2, kHalf = S::kHeadDim / 2;
  static constexpr std::uint32_t kCount = (S::kQ + 2 * S::kKv) / 2;
  MINFER_HD static constexpr std::uint32_t row(std::uint32_t unit, std::uint32_t i) {
    return unit / kHalf * S::kHeadDim + unit % kHalf + i * kHalf;
  }
};

/// W_o and W_down.
template <class S, std::uint32_t kCols>
struct AddedRows {
  static constexpr std::uint32_t K = kCols, kRows = Tiles<K>::kRows;
  static constexpr std::uint32_t kCount = S::kModel / kRows;
  MINFER_HD static constexpr std::uint32_t row(std::uint32_t unit, std::uint32_t i) {
    return unit * kRows + i;
  }
};
template <class S>
struct Units<S, Stage::kO> : AddedRows<S, S::kQ> {};
template <class S>
struct Units<S, Stage::kDown> : AddedRows<S, S::kFf> {};

/// W_gate and W_up: of two values the gate's row and the up's. A CTA has whole runs of 32 values,
/// which it quantizes: two of each for every warp.
template <class S>
struct Units<S, Stage::kGateUp> {
  static constexpr std::uint32_t K = S::kModel, kRows = 4, kRuns = S::kFf / 32;
  static constexpr std::uint32_t kCount = kRuns * kCtaWarps;
  static_assert(32 / kCtaWarps * 2 == kRows, "a run is a unit of each warp");
  MINFER_HD static constexpr std::uint32_t row(std::uint32_t unit, std::uint32_t i) {
    return unit * 2 + i / 2 + (i % 2 == 0 ? 0 : S::kFf);
  }
};

/// The head: four rows, of which those past the last token are 0.
template <class S>
struct Units<S, Stage::kHead> {
  static constexpr std::uint32_t K = S::kModel, kRows = 4;
  MINFER_HD static constexpr std::uint32_t count(std::uint32_t n_tokens) {
    return (n_tokens + 3) / 4;
  }
  MINFER_HD static constexpr std::uint32_t row(std::uint32_t unit, std::uint32_t i) {
    return unit * 4 + i;
  }
};

/// Of units first to last - 1, how many a warp takes, every kCtaWarps-th.
MINFER_HD constexpr std::uint32_t warps_share(const Range& units, std::uint32_t warp) {
  const std::uint32_t n = units.last - units.first;
  return n > warp ? (n - warp - 1) / kCtaWarps + 1 : 0;
}

/// The units of a CTA, of all stages.
struct CtaUnits {
  Range of[5];

  MINFER_HD const Range& operator[](Stage stage) const { return of[static_cast<int>(stage)]; }
};

template <class S>
MINFER_HD CtaUnits cta_units(std::uint32_t n_tokens, std::uint32_t cta, std::uint32_t n_ctas) {
  const Range runs = dealt(Units<S, Stage::kGateUp>::kRuns, cta, n_ctas);
  return {{dealt(Units<S, Stage::kQkv>::kCount, cta, n_ctas),
           dealt(Units<S, Stage::kO>::kCount, cta, n_ctas),
           {runs.first * kCtaWarps, runs.last * kCtaWarps},
           dealt(Units<S, Stage::kDown>::kCount, cta, n_ctas),
           dealt(Units<S, Stage::kHead>::count(n_tokens), cta, n_ctas)}};
}

/// What a warp reads: so many batches from one of them on.
struct WarpBatches {
  std::uint32_t first, of_layers, of_head;
};

}  // namespace minfer
