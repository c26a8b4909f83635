// SPDX-License-Identifier: MIT
#include "oracle/forward.h"

#include <unistd.h>

#include <new>
#include <stdexcept>

#include "oracle/ops.h"

namespace minfer::oracle {

const std::vector<std::string>& op_names() {
  static const std::vector<std::string> names = {
      "embed",  "attn_norm", "q",        "k",        "v",           "q_rope",
      "k_rope", "attention", "attn_out", "attn_add", "ffn_norm",    "gate",
      "up",     "swiglu",    "down",     "ffn_add",  "output_norm", "logits"};
  return names;
}

// --- KV cache ----------------------------------------------------------------------------------

namespace {

std::unique_ptr<float[]> reserve(std::uint64_t floats, std::uint32_t context) {
  const std::uint64_t bytes = floats * sizeof(float);
  const std::uint64_t memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                               static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes <= memory) {
    // Not initialised, so that no page of it exists before it is written.
    if (float* data = new (std::nothrow) float[floats]) return std::unique_ptr<float[]>(data);
  }
  throw std::runtime_error("a context of " + std::to_string(context) + " positions needs " +
                           std::to_string(bytes >> 20) + " MiB for its KV cache, more than the " +
                           std::to_string(memory >> 20) +
                           " MiB of memory allow: choose a smaller one with -c");
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, std::uint32_t context)
    : context_(context),
      d_kv_(config.d_kv()),
      data_(reserve(2 * std::uint64_t{config.n_layers} * context * config.d_kv(), context)) {}

float* KvCache::k(std::size_t layer, std::size_t position) {
  return data_.get() + (2 * layer * context_ + position) * d_kv_;
}

float* KvCache::v(std::size_t layer, std::size_t position) {
  return data_.get() + ((2 * layer + 1) * context_ + position) * d_kv_;
}

// --- the pass ----------------------------------------------------------------------------------

Forward::Forward(const Model& model, std::uint32_t context, ThreadPool& pool)
    : model_(model),
      config_(model.config()),
      pool_(pool),
      rope_(config_.head_dim, static_cast<double>(config_.rope_base), context),
      cache_(config_, context) {}

void Forward::make_room(std::size_t n_tokens) {
  if (x_.size() >= n_tokens * config_.d_model) return;
  x_.resize(n_tokens * config_.d_model);
  normed_.resize(n_tokens * config_.d_model);
  q_.resize(n_tokens * config_.d_q());
  heads_.resize(n_tokens * config_.d_q());
  residual_.resize(n_tokens * config_.d_model);
  gate_.resize(n_tokens * config_.d_ff);
  up_.resize(n_tokens * config_.d_ff);
}

bool Forward::run(Span<const Token> ids, std::uint32_t first_position, const Probe& probe) {
  make_room(ids.size());
  first_position_ = first_position;
  embed(model_.token_embedding(), ids, x_.data());
  if (probe && !probe({"embed", 0, first_position, ids.size(), config_.d_model, x_.data()})) {
    return false;
  }
  for (std::uint32_t i = 0; i < config_.n_layers; ++i) {
    if (!layer(i, ids.size(), first_position, probe)) return false;
  }
  return true;
}

bool Forward::layer(std::uint32_t index, std::size_t n, std::uint32_t position,
                    const Probe& probe) {
  const LayerWeights& w = model_.layers()[index];
  const std::size_t d_model = config_.d_model, d_q = config_.d_q(), d_kv = config_.d_kv();
  const std::size_t d_ff = config_.d_ff;
  float* k = cache_.k(index, position);  // this batch's rows of the cache
  float* v = cache_.v(index, position);
  const auto seen = [&](const char* op, const float* data, std::size_t cols) {
    return !probe || probe({op, index, position, n, cols, data});
  };

  rmsnorm(x_.data(), w.attn_norm, config_.rms_eps, n, d_model, normed_.data());
  if (!seen("attn_norm", normed_.data(), d_model)) return false;

  gemv(w.w_q, w.b_q, normed_.data(), n, q_.data(), pool_);
  if (!seen("q", q_.data(), d_q)) return false;
  gemv(w.w_k, w.b_k, normed_.data(), n, k, pool_);
  if (!seen("k", k, d_kv)) return false;
  gemv(w.w_v, w.b_v, normed_.data(), n, v, pool_);
  if (!seen("v", v, d_kv)) return false;

  rope(q_.data(), rope_, position, n, config_.n_heads);
  if (!seen("q_rope", q_.data(), d_q)) return false;
  rope(k, rope_, position, n, config_.n_kv_heads);
  if (!seen("k_rope", k, d_kv)) return false;

  attention(config_, q_.data(), cache_.k(index), cache_.v(index), position, n, heads_.data(),
            pool_);
  if (!seen("attention", heads_.data(), d_q)) return false;
  gemv(w.w_o, nullptr, heads_.data(), n, residual_.data(), pool_);
  if (!seen("attn_out", residual_.data(), d_model)) return false;
  add(x_.data(), residual_.data(), n * d_model);
  if (!seen("attn_add", x_.data(), d_model)) return false;

  rmsnorm(x_.data(), w.ffn_norm, config_.rms_eps, n, d_model, normed_.data());
  if (!seen("ffn_norm", normed_.data(), d_model)) return false;
  gemv(w.w_gate, nullptr, normed_.data(), n, gate_.data(), pool_);
  if (!seen("gate", gate_.data(), d_ff)) return false;
  gemv(w.w_up, nullptr, normed_.data(), n, up_.data(), pool_);
  if (!seen("up", up_.data(), d_ff)) return false;
  swiglu(gate_.data(), up_.data(), n * d_ff, gate_.data());
  if (!seen("swiglu", gate_.data(), d_ff)) return false;
  gemv(w.w_down, nullptr, gate_.data(), n, residual_.data(), pool_);
  if (!seen("down", residual_.data(), d_model)) return false;
  add(x_.data(), residual_.data(), n * d_model);
  return seen("ffn_add", x_.data(), d_model);
}

bool Forward::logits(std::size_t first, std::size_t count, float* out, const Probe& probe) {
  const std::size_t d_model = config_.d_model;
  const auto position = static_cast<std::uint32_t>(first_position_ + first);
  rmsnorm(x_.data() + first * d_model, model_.output_norm(), config_.rms_eps, count, d_model,
          normed_.data());
  if (probe && !probe({"output_norm", 0, position, count, d_model, normed_.data()})) return false;
  gemv(model_.lm_head(), nullptr, normed_.data(), count, out, pool_);
  return !probe || probe({"logits", 0, position, count, config_.n_tokens, out});
}

}  // namespace minfer::oracle
