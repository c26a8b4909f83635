// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>
#include <minfer/rope.h>
#include <minfer/threads.h>

namespace minfer::oracle {

/// Names of a pass's intermediates, in order: "embed", then a layer's from "attn_norm" to "ffn_add"
/// layer by layer, then "output_norm" and "logits" (these two of the last token only).
const std::vector<std::string>& op_names();

/// K and V of every layer and position. Its pages are only reserved: memory is taken as the
/// positions are written.
class KvCache {
 public:
  /// @throws std::runtime_error when the machine has not that much memory
  KvCache(const ModelConfig& config, std::uint32_t context);
  float* k(std::size_t layer, std::size_t position = 0);  ///< [context - position, d_kv] f32
  float* v(std::size_t layer, std::size_t position = 0);  ///< [context - position, d_kv] f32

 private:
  std::size_t context_, d_kv_;
  std::unique_ptr<float[]> data_;  // [n_layers, 2, context, d_kv]
};

/// The forward pass: the model's operations in their order, over a batch of tokens of one sequence.
class Forward {
 public:
  /// The model and the pool must outlive it.
  Forward(const Model& model, std::uint32_t context, ThreadPool& pool);

  /// Runs all layers over `ids`, which stand at first_position and after, and writes their K and V.
  /// @return false when the probe stopped the pass
  /// @pre first_position + ids.size() <= context; positions before are written
  bool run(Span<const Token> ids, std::uint32_t first_position, const Probe& probe);

  /// The logits of `count` tokens of the last run, from its `first` on.
  /// @param[out] out [count, n_tokens] f32: real tokens only, UNUSED rows are left out
  /// @return false when the probe stopped the pass
  bool logits(std::size_t first, std::size_t count, float* out, const Probe& probe);

 private:
  bool layer(std::uint32_t index, std::size_t n_tokens, std::uint32_t position, const Probe& probe);
  void make_room(std::size_t n_tokens);

  const Model& model_;
  const ModelConfig& config_;
  ThreadPool& pool_;
  RopeTable rope_;
  KvCache cache_;
  std::uint32_t first_position_ = 0;  ///< of the last run

  // Activations of the batch, a row a token.
  std::vector<float> x_;         ///< [T, d_model] the residual stream
  std::vector<float> normed_;    ///< [T, d_model]
  std::vector<float> q_;         ///< [T, d_q]
  std::vector<float> heads_;     ///< [T, d_q] attention's output
  std::vector<float> residual_;  ///< [T, d_model] what a half-layer adds to x
  std::vector<float> gate_;      ///< [T, d_ff], then gate and up combined
  std::vector<float> up_;        ///< [T, d_ff]
};

}  // namespace minfer::oracle
