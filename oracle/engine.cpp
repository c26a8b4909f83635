// SPDX-License-Identifier: MIT
#include "oracle/engine.h"

#include <stdexcept>

#include <minfer/logits_hash.h>

#include "oracle/ops.h"

namespace minfer::oracle {
namespace {

/// Tokens of a prompt that run together. A row of weights is dequantized once for all of them,
/// which then costs 3 % of the row's multiplications; a multiple of the matrix product's three
/// tokens.
constexpr std::size_t kBatch = 96;
/// Under teacher forcing every token's logits are kept at once: 16 times 151,665 are 9.7 MB.
constexpr std::uint32_t kForceBatch = 16;

}  // namespace

OracleEngine::OracleEngine(const Model& model, const EngineOptions& options)
    : config_(model.config()),
      weight_bytes_(model.bytes_per_token()),
      n_tokens_(config_.n_tokens),
      context_(options.context),
      force_batch_(static_cast<std::uint32_t>(options.value("TCHUNK", kForceBatch))),
      pool_(options.threads),
      forward_(model, options.context, pool_),
      logits_(n_tokens_) {}

std::string OracleEngine::describe() const {
  return "oracle (CPU, fp32, " + std::to_string(pool_.size()) +
         (pool_.size() == 1 ? " thread)" : " threads)");
}

std::uint64_t OracleEngine::bytes_per_token(std::uint32_t position) const {
  return weight_bytes_ + 8 * (position + std::uint64_t{1}) * config_.n_layers * config_.d_kv();
}

bool OracleEngine::predict(std::size_t batch) {
  if (!forward_.logits(batch - 1, 1, logits_.data(), probe_)) return false;
  require_finite(position_ + static_cast<std::uint32_t>(batch) - 1, logits_.data(), n_tokens_);
  prediction_ = argmax(logits_.data(), n_tokens_);
  return true;
}

void OracleEngine::prefill(Span<const Token> ids) {
  const std::uint32_t start = position_;
  while (!ids.empty()) {
    const Span<const Token> now = ids.take_front(kBatch);
    if (!forward_.run(now, position_, probe_) || (ids.empty() && !predict(now.size()))) {
      position_ = start;
      return;
    }
    position_ += static_cast<std::uint32_t>(now.size());
  }
}

std::uint32_t OracleEngine::decode(std::uint32_t n, const TokenSink& sink) {
  for (std::uint32_t emitted = 0; emitted < n;) {
    const Token id = prediction_.id;
    ++emitted;
    if (!sink(id) || emitted == n || position_ == context_) return emitted;
    prefill(Span<const Token>(&id, 1));
  }
  return 0;
}

void OracleEngine::force(Span<const Token> ids, const LogitsSink& sink) {
  std::vector<float> logits;
  while (!ids.empty()) {
    const Span<const Token> now = ids.take_front(force_batch_);
    const std::size_t batch = now.size();
    logits.resize(batch * n_tokens_);
    if (!forward_.run(now, position_, probe_) ||
        !forward_.logits(0, batch, logits.data(), probe_)) {
      return;
    }
    for (std::size_t t = 0; t < batch; ++t) {
      const float* row = logits.data() + t * n_tokens_;
      sink(position_ + static_cast<std::uint32_t>(t), row);
      prediction_ = argmax(row, n_tokens_);
    }
    position_ += static_cast<std::uint32_t>(batch);
  }
}

EngineInfo engine_info(const std::string& name) {
  EngineInfo info;
  info.name = name;
  info.options = {{"TCHUNK", {}, "tokens in a teacher-forced step"}};
  info.ops = op_names();
  return info;
}

}  // namespace minfer::oracle
