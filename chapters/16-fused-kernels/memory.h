// SPDX-License-Identifier: MIT
//
// What the engine keeps in device memory: each array is taken where it is declared.
#pragma once

#include <algorithm>
#include <vector>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>
#include <minfer/rope.h>

#include "attention.cuh"
#include "cuda/arena.h"
#include "cuda/step.h"
#include "head.cuh"
#include "kernels.cuh"

namespace minfer {

struct DeviceLayer {
  Arena& arena;
  const Model& model;
  const LayerWeights& host;
  const ModelConfig& c = model.config();

  const float* attn_norm = arena.upload(host.attn_norm, c.d_model);
  MatrixQ4_0 w_qkv = upload_qkv();                       ///< [d_q + 2 d_kv, d_model], by qkv_row
  const float* b_qkv = arena.upload(biases());           ///< [d_q + 2 d_kv]
  MatrixQ4_0 w_o = upload_q4_0(arena, model, host.w_o);  ///< [d_model, d_q]
  const float* ffn_norm = arena.upload(host.ffn_norm, c.d_model);
  MatrixQ4_0 w_gate_up = upload_gate_up();  ///< [2 d_ff, d_model], by gate_up_row
  MatrixQ4_0 w_down = upload_q4_0(arena, model, host.w_down);  ///< [d_model, d_ff]

  MatrixQ4_0 upload_qkv() const {
    return upload_q4_0(arena, model, {host.w_q, host.w_k, host.w_v},
                       [this](std::uint32_t place) { return qkv_row(place, c.head_dim); });
  }
  MatrixQ4_0 upload_gate_up() const {
    return upload_q4_0(arena, model, {host.w_gate, host.w_up},
                       [this](std::uint32_t place) { return gate_up_row(place, c.d_ff); });
  }
  std::vector<float> biases() const {
    std::vector<float> all(host.b_q, host.b_q + c.d_q());
    all.insert(all.end(), host.b_k, host.b_k + c.d_kv());
    all.insert(all.end(), host.b_v, host.b_v + c.d_kv());
    return all;
  }
};

/// What a step writes: a row a token.
struct Workspace {
  Arena& arena;
  const ModelConfig& c;
  const std::uint32_t context;

  StepInput* input = arena.take<StepInput>();
  float* x = arena.take<float>(kMaxTokens, c.d_model);       ///< the residual stream
  float* normed = arena.take<float>(kMaxTokens, c.d_model);  ///< before the head
  float* q = arena.take<float>(kMaxTokens, c.d_q());
  const std::uint32_t chunks = launched_chunks(context);
  Partials partials = {arena.take<float>(kMaxTokens, c.n_heads, chunks, c.head_dim),
                       arena.take<float>(kMaxTokens, c.n_heads, chunks),
                       arena.take<float>(kMaxTokens, c.n_heads, chunks)};
  const std::uint32_t longest = std::max(c.d_q(), c.d_ff);
  QuantizedVector quantized = {arena.take<std::int8_t>(kMaxTokens, longest),
                               arena.take<float>(kMaxTokens, longest / 32),
                               arena.take<std::int32_t>(kMaxTokens, longest / 32)};
  float* logits = arena.take<float>(kMaxTokens, c.n_tokens);
  ArgmaxNotes argmax = {arena.take<Top2>(kMaxTokens, kArgmaxBlocks), take_zeros()};
  Prediction* predictions = arena.take<Prediction>(kMaxTokens);

  std::uint32_t* take_zeros() const {
    auto* zeros = arena.take<std::uint32_t>(kMaxTokens);
    if (arena.is_placed()) arena.copy(zeros, std::vector<std::uint32_t>(kMaxTokens));
    return zeros;
  }
};

/// All of it.
struct DeviceState {
  Arena& arena;
  const Model& model;
  const EngineOptions& options;
  const RopeTable& rope;
  const ModelConfig& c = model.config();

  Matrix token_embedding = upload(arena, model, model.token_embedding());  ///< [n_vocab, d_model]
  std::vector<DeviceLayer> layers = upload_layers();
  const float* output_norm = arena.upload(model.output_norm(), c.d_model);
  Head head = make_head(arena, model, token_embedding, options);
  KvCache cache = make_cache(arena, c, options);
  const float* cosines = arena.upload(rope.cos_table());  ///< [context, head_dim/2]
  const float* sines = arena.upload(rope.sin_table());    ///< [context, head_dim/2]
  Workspace work = {arena, c, options.context};

  std::vector<DeviceLayer> upload_layers() const {
    std::vector<DeviceLayer> result;
    for (const LayerWeights& layer : model.layers()) result.push_back({arena, model, layer});
    return result;
  }
};

}  // namespace minfer
