// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include <minfer/engine.h>

#include "oracle/forward.h"

namespace minfer::oracle {

/// The fp32 reference as an engine: what the other engines are compared with.
class OracleEngine : public Engine {
 public:
  /// The model must outlive it. @throws std::runtime_error when memory does not suffice
  OracleEngine(const Model& model, const EngineOptions& options);

  std::string describe() const override;
  std::uint32_t context() const override { return context_; }
  std::uint32_t position() const override { return position_; }
  void truncate(std::uint32_t position) override { position_ = position; }
  void prefill(Span<const Token> ids) override;
  std::uint32_t decode(std::uint32_t n, const TokenSink& sink) override;
  void force(Span<const Token> ids, const LogitsSink& sink) override;
  std::uint64_t bytes_per_token(std::uint32_t position) const override;
  void set_probe(Probe probe) override { probe_ = std::move(probe); }

 private:
  /// The prediction after the last token of the last run. @return false: the probe stopped it
  bool predict(std::size_t batch);

  ModelConfig config_;
  std::uint64_t weight_bytes_;  ///< that a step reads
  std::uint32_t n_tokens_;
  std::uint32_t context_;
  std::uint32_t force_batch_;  ///< tokens that force() runs at a time
  std::uint32_t position_ = 0;
  ThreadPool pool_;
  Forward forward_;
  Probe probe_;
  std::vector<float> logits_;  ///< [n_tokens] of the last prediction
  Prediction prediction_;
};

/// What `run_cli` is to know of it.
EngineInfo engine_info(const std::string& name);

}  // namespace minfer::oracle
