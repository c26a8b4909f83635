// SPDX-License-Identifier: MIT
//
// What the engine keeps in device memory: each array is taken where it is declared.
#pragma once

#include <vector>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>
#include <minfer/rope.h>

#include "cache.h"
#include "cuda/arena.h"
#include "cuda/step.h"

namespace minfer {

struct DeviceLayer {
  Arena& arena;
  const Model& model;
  const LayerWeights& host;
  const ModelConfig& c = model.config();

  const float* attn_norm = arena.upload(host.attn_norm, c.d_model);
  Matrix w_q = upload(arena, model, host.w_q);  ///< [d_q, d_model]
  Matrix w_k = upload(arena, model, host.w_k);  ///< [d_kv, d_model]
  Matrix w_v = upload(arena, model, host.w_v);  ///< [d_kv, d_model]
  const float* b_q = arena.upload(host.b_q, c.d_q());
  const float* b_k = arena.upload(host.b_k, c.d_kv());
  const float* b_v = arena.upload(host.b_v, c.d_kv());
  Matrix w_o = upload(arena, model, host.w_o);  ///< [d_model, d_q]
  const float* ffn_norm = arena.upload(host.ffn_norm, c.d_model);
  Matrix w_gate = upload(arena, model, host.w_gate);  ///< [d_ff, d_model]
  Matrix w_up = upload(arena, model, host.w_up);      ///< [d_ff, d_model]
  Matrix w_down = upload(arena, model, host.w_down);  ///< [d_model, d_ff]
};

/// What a step writes: a row a token.
struct Workspace {
  Arena& arena;
  const ModelConfig& c;
  const std::uint32_t context;

  StepInput* input = arena.take<StepInput>();
  float* x = arena.take<float>(kMaxTokens, c.d_model);  ///< the residual stream
  float* normed = arena.take<float>(kMaxTokens, c.d_model);
  float* q = arena.take<float>(kMaxTokens, c.d_q());
  float* k = arena.take<float>(kMaxTokens, c.d_kv());
  float* v = arena.take<float>(kMaxTokens, c.d_kv());
  float* scores = arena.take<float>(kMaxTokens, c.n_heads, context);
  float* attended = arena.take<float>(kMaxTokens, c.d_q());
  float* gate = arena.take<float>(kMaxTokens, c.d_ff);
  float* up = arena.take<float>(kMaxTokens, c.d_ff);
  float* projected = arena.take<float>(kMaxTokens, c.d_model);  ///< what a block adds to x
  float* logits = arena.take<float>(kMaxTokens, c.n_tokens);
  Prediction* predictions = arena.take<Prediction>(kMaxTokens);
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
  Matrix lm_head = upload_head(arena, model, token_embedding);  ///< [n_tokens, d_model]
  KvCache cache = {arena, c, options.context};
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
