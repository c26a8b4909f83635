// SPDX-License-Identifier: MIT
//
// What the engine keeps in device memory. The weights are packed when they are loaded, for a number
// of CTAs.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include <minfer/gguf/model.h>
#include <minfer/rope.h>
#include <minfer/threads.h>

#include "attention.cuh"
#include "cuda/arena.h"
#include "cuda/step.h"
#include "model.h"
#include "plan.h"

namespace minfer {

/// Matrices in Q4_0, one below the other, requantized where they are in another format.
class Rows {
 public:
  Rows(const std::vector<Matrix>& matrices, ThreadPool& pool) : n_blocks_(matrices[0].cols / 32) {
    for (const Matrix& m : matrices) {
      const std::vector<std::byte> bytes = requantized(m, TensorType::kQ4_0, pool);
      const auto* first = reinterpret_cast<const BlockQ4_0*>(bytes.data());
      blocks_.insert(blocks_.end(), first, first + std::size_t(m.rows) * n_blocks_);
    }
  }

  /// Null past the last row.
  const BlockQ4_0* block(std::uint32_t row, std::uint32_t b) const {
    const std::size_t i = std::size_t(row) * n_blocks_ + b;
    return i < blocks_.size() ? &blocks_[i] : nullptr;
  }

 private:
  std::uint32_t n_blocks_;
  std::vector<BlockQ4_0> blocks_;
};

/// Writes the tiles of a warp's unit, as RowSums and TokenSums read them. @return behind them
template <class S, Stage kStage>
unsigned char* pack_unit(unsigned char* out, const Rows& rows, std::uint32_t unit,
                         std::uint32_t warp) {
  using U = Units<S, kStage>;
  using T = Tiles<U::K>;
  for (std::uint32_t j = 0; j < T::of_rows(U::kRows); ++j, out += kTileBytes) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t row = T::row(j) + (T::is_shared(j) && lane >= 16);
      const std::uint32_t b = T::block(T::set(j), lane);
      const BlockQ4_0* block = b < T::kBlocks ? rows.block(U::row(unit, row), b) : nullptr;
      if (block == nullptr) continue;
      const Place to = place(lane, warp);
      std::memcpy(out + 16 * to.nibbles, block->qs, 16);
      std::memcpy(out + kTileScales + 2 * to.scale, &block->d, 2);
    }
  }
  return out;
}

/// A warp's units of a stage, in the order in which it takes them.
template <class S, Stage kStage>
unsigned char* pack_units(unsigned char* out, const Rows& rows, const Range& units,
                          std::uint32_t warp) {
  for (std::uint32_t unit = units.first + warp; unit < units.last; unit += kCtaWarps) {
    out = pack_unit<S, kStage>(out, rows, unit, warp);
  }
  return out;
}

template <class S, Stage kStage>
std::uint32_t warps_tiles(const Range& units, std::uint32_t warp) {
  using U = Units<S, kStage>;
  return warps_share(units, warp) * Tiles<U::K>::of_rows(U::kRows);
}

/// Which batches each warp of a grid reads.
template <class S>
struct Packing {
  const std::uint32_t n_ctas, n_layers, n_tokens;
  std::vector<WarpBatches> warps = {};  ///< [n_ctas, kCtaWarps]
  std::uint32_t n_batches = 0;

  Packing(std::uint32_t ctas, const ModelConfig& c)
      : n_ctas(ctas), n_layers(c.n_layers), n_tokens(c.n_tokens) {
    const auto batches = [](std::uint32_t tiles) { return ceil_div(tiles, kBatchTiles); };
    for (std::uint32_t i = 0; i < n_ctas * kCtaWarps; ++i) {
      const std::uint32_t cta = i / kCtaWarps, warp = i % kCtaWarps;
      const std::uint32_t head = tiles<Stage::kHead>(cta, warp);
      warps.push_back({n_batches, batches(n_layers * layer_tiles(cta, warp)), batches(head)});
      n_batches += warps.back().of_layers + warps.back().of_head;
    }
  }

  template <Stage kStage>
  std::uint32_t tiles(std::uint32_t cta, std::uint32_t warp) const {
    return warps_tiles<S, kStage>(units(cta)[kStage], warp);
  }
  std::uint32_t layer_tiles(std::uint32_t cta, std::uint32_t warp) const {
    return tiles<Stage::kQkv>(cta, warp) + tiles<Stage::kO>(cta, warp) +
           tiles<Stage::kGateUp>(cta, warp) + tiles<Stage::kDown>(cta, warp);
  }
  CtaUnits units(std::uint32_t cta) const { return cta_units<S>(n_tokens, cta, n_ctas); }

  /// Copies a layer to its place in each warp's batches.
  void upload_layer(const Arena& arena, unsigned char* batches, const LayerWeights& w,
                    std::uint32_t layer, ThreadPool& pool) const {
    const Rows qkv({w.w_q, w.w_k, w.w_v}, pool), o({w.w_o}, pool);
    const Rows gate_up({w.w_gate, w.w_up}, pool), down({w.w_down}, pool);
    upload(arena, batches, pool, [&](std::uint32_t cta, std::uint32_t warp) {
      const std::size_t bytes = std::size_t(layer_tiles(cta, warp)) * kTileBytes;
      Piece piece = {layer * bytes, std::vector<unsigned char>(bytes)};
      unsigned char* out = piece.bytes.data();
      out = pack<Stage::kQkv>(out, qkv, cta, warp);
      out = pack<Stage::kO>(out, o, cta, warp);
      out = pack<Stage::kGateUp>(out, gate_up, cta, warp);
      pack<Stage::kDown>(out, down, cta, warp);
      return piece;
    });
  }

  void upload_head(const Arena& arena, unsigned char* batches, const Matrix& head,
                   ThreadPool& pool) const {
    const Rows rows({head}, pool);
    upload(arena, batches, pool, [&](std::uint32_t cta, std::uint32_t warp) {
      const WarpBatches& own = warps[cta * kCtaWarps + warp];
      Piece piece = {std::size_t(own.of_layers) * kBatchBytes,
                     std::vector<unsigned char>(std::size_t(own.of_head) * kBatchBytes)};
      pack_units<S, Stage::kHead>(piece.bytes.data(), rows, units(cta)[Stage::kHead], warp);
      return piece;
    });
  }

 private:
  /// Some of a warp's bytes, and where they begin.
  struct Piece {
    std::size_t first;
    std::vector<unsigned char> bytes;
  };

  template <Stage kStage>
  unsigned char* pack(unsigned char* out, const Rows& rows, std::uint32_t cta,
                      std::uint32_t warp) const {
    return pack_units<S, kStage>(out, rows, units(cta)[kStage], warp);
  }

  template <class Pack>
  void upload(const Arena& arena, unsigned char* batches, ThreadPool& pool, Pack pack) const {
    std::vector<Piece> pieces(warps.size());
    pool.parallel_for(warps.size(), 16, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) pieces[i] = pack(i / kCtaWarps, i % kCtaWarps);
    });
    for (std::size_t i = 0; i < warps.size(); ++i) {
      const std::size_t first = std::size_t(warps[i].first) * kBatchBytes + pieces[i].first;
      if (!pieces[i].bytes.empty()) arena.copy(batches + first, pieces[i].bytes);
    }
  }
};

/// All of it.
template <class S>
struct DeviceState {
  Arena& arena;
  const Model& model;
  const std::uint32_t context;
  const std::uint32_t n_ctas;
  const RopeTable& rope;
  const ModelConfig& c = model.config();

  const Packing<S> packing = {n_ctas, c};
  const PackedWeights packed = pack();
  const Matrix embedding = upload(arena, model, model.token_embedding());
  const DeviceModel weights = {packed,
                               {embedding.type, embedding.data},
                               upload_all(S::kModel, &LayerWeights::attn_norm),
                               upload_biases(),
                               upload_all(S::kModel, &LayerWeights::ffn_norm),
                               arena.upload(model.output_norm(), S::kModel),
                               arena.upload(rope.cos_table()),
                               arena.upload(rope.sin_table()),
                               c.n_layers,
                               c.n_tokens,
                               context,
                               c.rms_eps};
  const std::uint32_t chunks = chunks_of(context);
  const Workspace<S> work = {arena.take<float>(kMaxTokens, S::kModel),
                             arena.take<float>(kMaxTokens, S::kQ),
                             arena.take<float>(c.n_layers, context, S::kKv),
                             arena.take<float>(c.n_layers, context, S::kKv),
                             {arena.take<float>(kMaxTokens * S::kHeads, chunks, S::kHeadDim),
                              arena.take<float>(kMaxTokens* S::kHeads, chunks),
                              arena.take<float>(kMaxTokens* S::kHeads, chunks),
                              take_zeros<std::uint32_t>(kMaxTokens* S::kHeads), chunks},
                             take_zeros<Int8<S::kQ>>(),
                             take_zeros<Int8<S::kFf>>(),
                             take_zeros<Int8Tokens<S::kQ>>(),
                             take_zeros<Int8Tokens<S::kFf>>(),
                             arena.take<float>(kMaxTokens, c.n_tokens),
                             arena.take<Top2>(n_ctas, kMaxTokens),
                             arena.take<unsigned>(),
                             arena.take<unsigned>()};
  Token* given = arena.take<Token>(context);

  PackedWeights pack() const {
    unsigned char* batches = take_zeros<unsigned char>(packing.n_batches * kBatchBytes);
    const WarpBatches* warps = arena.upload(packing.warps);
    if (arena.is_placed()) {
      ThreadPool pool(0);
      for (std::uint32_t layer = 0; layer < c.n_layers; ++layer) {
        const LayerWeights& w = model.layers()[layer];
        packing.upload_layer(arena, batches, w, layer, pool);
        for (const Matrix* m : {&w.w_q, &w.w_k, &w.w_v, &w.w_o, &w.w_gate, &w.w_up, &w.w_down}) {
          if (m->tensor) model.file().release(*m->tensor);
        }
      }
      packing.upload_head(arena, batches, model.lm_head(), pool);
      if (model.lm_head().tensor) model.file().release(*model.lm_head().tensor);
    }
    return {batches, warps};
  }

  /// n values of each layer, one layer's behind the other's.
  const float* upload_all(std::uint32_t n, const float* LayerWeights::*values) const {
    std::vector<float> all;
    for (const LayerWeights& w : model.layers()) all.insert(all.end(), w.*values, w.*values + n);
    return arena.upload(all);
  }
  const float* upload_biases() const {
    std::vector<float> all;
    for (const LayerWeights& w : model.layers()) {
      all.insert(all.end(), w.b_q, w.b_q + S::kQ);
      all.insert(all.end(), w.b_k, w.b_k + S::kKv);
      all.insert(all.end(), w.b_v, w.b_v + S::kKv);
    }
    return arena.upload(all);
  }
  /// n of them, all bytes 0: what is copied is copied with its padding.
  template <class T>
  T* take_zeros(std::uint32_t n = 1) const {
    T* zeros = arena.take<T>(n);
    if (arena.is_placed()) CUDA_CHECK(cudaMemset(zeros, 0, n * sizeof(T)));
    return zeros;
  }
};

}  // namespace minfer
