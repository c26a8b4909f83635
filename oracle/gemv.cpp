// SPDX-License-Identifier: MIT
//
// gemv() in its two forms. A row's products are summed in 32 lanes (oracle/lanes.h); lanes do not
// meet before the end, so they may be worked off in any grouping: all 32 of one row at once where
// one token is multiplied, eight lanes of four rows and three tokens at a time where there are
// more.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "oracle/decode.h"
#include "oracle/ops.h"

namespace minfer::oracle {
namespace {

template <class Block>
const Block* row_of(const Matrix& w, std::size_t row) {
  const std::uint64_t bytes = row_bytes(w.type, w.cols);
  return reinterpret_cast<const Block*>(w.data + row * bytes);
}

// --- one token ---------------------------------------------------------------------------------

/// One row's dot product, each group of 32 weights used as soon as it is decoded.
template <class Block>
float row_dot(const Block* row, const float* x, std::size_t n) {
  F32x8 lanes[4] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};
  for (const float* end = x + n; x != end; ++row) {
    for (int group = 0; group < kGroups<Block>; ++group, x += kLanes) {
      F32x8 w[4];
      decode(*row, group, w);
      for (int j = 0; j < 4; ++j) lanes[j] = fma(w[j], load(x + 8 * j), lanes[j]);
    }
  }
  return sum_lanes(lanes[0], lanes[1], lanes[2], lanes[3]);
}

/// Rows that a thread takes at a time: few pieces, because dealing one out is a cache line's way
/// from core to core (pieces of 16 rows gave 27 tokens/s where these give 41, on two cores), but
/// several, so that a thread that is held up leaves its share to the others.
std::size_t rows_per_piece(const Matrix& w, const ThreadPool& pool) {
  constexpr std::size_t kPiecesPerThread = 3, kLeastWeights = 1 << 14;
  return 1 + std::max(kLeastWeights / w.cols, w.rows / (kPiecesPerThread * pool.size()));
}

template <class Block>
void one_token(const Matrix& w, const float* bias, const float* x, float* y, ThreadPool& pool) {
  pool.parallel_for(w.rows, rows_per_piece(w, pool), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      y[r] = row_dot(row_of<Block>(w, r), x, w.cols);
      if (bias) y[r] += bias[r];
    }
  });
}

// --- several tokens ----------------------------------------------------------------------------

/// The register tile: 4 rows by 3 tokens of 8 lanes are 12 accumulators, which with 3 registers of
/// activations and one of weights are all 16 that AVX2 has; 7 loads feed 12 multiply-adds.
constexpr std::size_t kTileRows = 4;
constexpr std::size_t kTileTokens = 3;
/// Rows that a thread decodes at a time: they are multiplied with all tokens while in its cache.
constexpr std::size_t kPanelRows = 4 * kTileRows;

/// Where a panel keeps lanes 8g .. 8g+7 of its `width` rows (or tokens): for a register tile these
/// lie in a row, [g][k / 32][i][8], so that the innermost loop reads memory straight on.
std::size_t packed_index(std::size_t g, std::size_t step, std::size_t i, std::size_t steps,
                         std::size_t width) {
  return ((g * steps + step) * width + i) * 8;
}

std::size_t tiles(std::size_t n, std::size_t tile) {
  return (n + tile - 1) / tile;
}

/// Packs x into tiles of kTileTokens tokens; the last is filled up with zeros.
std::vector<float> pack_tokens(const float* x, std::size_t n_tokens, std::size_t n) {
  const std::size_t steps = n / kLanes;
  std::vector<float> packed(tiles(n_tokens, kTileTokens) * kTileTokens * n);
  for (std::size_t t = 0; t < n_tokens; ++t) {
    float* tile = packed.data() + t / kTileTokens * kTileTokens * n;
    for (std::size_t step = 0; step < steps; ++step) {
      for (std::size_t g = 0; g < 4; ++g) {
        store(tile + packed_index(g, step, t % kTileTokens, steps, kTileTokens),
              load(x + t * n + step * kLanes + 8 * g));
      }
    }
  }
  return packed;
}

/// Decodes rows first .. first+count-1 into tiles of kTileRows rows.
template <class Block>
void pack_rows(const Matrix& w, std::size_t first, std::size_t count, float* packed) {
  const std::size_t steps = w.cols / kLanes;
  for (std::size_t r = 0; r < count; ++r) {
    float* tile = packed + r / kTileRows * kTileRows * w.cols;
    const Block* block = row_of<Block>(w, first + r);
    for (std::size_t step = 0; step < steps; ++block) {
      for (int group = 0; group < kGroups<Block>; ++group, ++step) {
        F32x8 v[4];
        decode(*block, group, v);
        for (std::size_t g = 0; g < 4; ++g) {
          store(tile + packed_index(g, step, r % kTileRows, steps, kTileRows), v[g]);
        }
      }
    }
  }
}

/// Eight lanes of a register tile: lanes[r][t] = sum over steps of w[step][r] * x[step][t].
void multiply_tile(const float* w, const float* x, std::size_t steps,
                   F32x8 (&lanes)[kTileRows][kTileTokens]) {
  for (auto& row : lanes) {
    for (F32x8& lane : row) lane = broadcast(0);
  }
  for (std::size_t step = 0; step < steps; ++step) {
    F32x8 tokens[kTileTokens];
    for (std::size_t t = 0; t < kTileTokens; ++t) tokens[t] = load(x + 8 * t);
    for (std::size_t r = 0; r < kTileRows; ++r) {
      const F32x8 weights = load(w + 8 * r);
      for (std::size_t t = 0; t < kTileTokens; ++t) {
        lanes[r][t] = fma(weights, tokens[t], lanes[r][t]);
      }
    }
    w += 8 * kTileRows;
    x += 8 * kTileTokens;
  }
}

/// All 32 lanes of a register tile, summed: sums[r][t].
void tile_sums(const float* w, const float* x, std::size_t steps,
               float (&sums)[kTileRows][kTileTokens]) {
  F32x8 lanes[4][kTileRows][kTileTokens];
  for (std::size_t g = 0; g < 4; ++g) {
    multiply_tile(w + packed_index(g, 0, 0, steps, kTileRows),
                  x + packed_index(g, 0, 0, steps, kTileTokens), steps, lanes[g]);
  }
  for (std::size_t r = 0; r < kTileRows; ++r) {
    for (std::size_t t = 0; t < kTileTokens; ++t) {
      sums[r][t] = sum_lanes(lanes[0][r][t], lanes[1][r][t], lanes[2][r][t], lanes[3][r][t]);
    }
  }
}

template <class Block>
void many_tokens(const Matrix& w, const float* bias, const float* x, std::size_t n_tokens, float* y,
                 ThreadPool& pool) {
  const std::size_t steps = w.cols / kLanes;
  const std::vector<float> tokens = pack_tokens(x, n_tokens, w.cols);
  pool.parallel_for(w.rows, kPanelRows, [&](std::size_t begin, std::size_t end) {
    std::vector<float> rows(kPanelRows * w.cols);  // zeros where the last panel has no rows
    for (std::size_t first = begin; first < end; first += kPanelRows) {
      const std::size_t count = std::min(kPanelRows, end - first);
      pack_rows<Block>(w, first, count, rows.data());
      for (std::size_t t0 = 0; t0 < n_tokens; t0 += kTileTokens) {
        for (std::size_t r0 = 0; r0 < count; r0 += kTileRows) {
          float sums[kTileRows][kTileTokens];
          tile_sums(rows.data() + r0 * w.cols, tokens.data() + t0 * w.cols, steps, sums);
          for (std::size_t r = r0; r < std::min(r0 + kTileRows, count); ++r) {
            for (std::size_t t = t0; t < std::min(t0 + kTileTokens, n_tokens); ++t) {
              const float sum = sums[r - r0][t - t0];
              y[t * w.rows + first + r] = bias ? sum + bias[first + r] : sum;
            }
          }
        }
      }
    }
  });
}

}  // namespace

void gemv(const Matrix& w, const float* bias, const float* x, std::size_t n_tokens, float* y,
          ThreadPool& pool) {
  visit_blocks(w.type, w.data, [&](const auto* blocks) {
    using Block = Chunk<std::decay_t<decltype(*blocks)>>;
    if (n_tokens == 1) {
      one_token<Block>(w, bias, x, y, pool);
    } else {
      many_tokens<Block>(w, bias, x, n_tokens, y, pool);
    }
  });
}

}  // namespace minfer::oracle
