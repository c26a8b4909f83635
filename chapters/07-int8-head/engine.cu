// SPDX-License-Identifier: MIT
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <minfer/argmax.h>
#include <minfer/rope.h>

#include "attention.cuh"
#include "cuda/device.h"
#include "cuda/graph.h"
#include "cuda/step_cost.h"
#include "cuda/stream.h"
#include "gemv.cuh"
#include "head.cuh"
#include "kernels.cuh"
#include "memory.h"

namespace minfer {
namespace {

/// Greedy decoding on a GPU, a kernel an operation. A step is recorded once, as a graph that finds
/// its tokens and its position in device memory and leaves the next ones there.
class GpuEngine final : public Engine {
 public:
  GpuEngine(const Model& model, const EngineOptions& options)
      : config_(config_with_heads(model, {32, 64, 128})),
        context_(options.context),
        step_tokens_(options.value("TCHUNK", kMaxTokens)),
        device_("the model with a context of " + std::to_string(context_) + " tokens", model,
                options, RopeTable(config_.head_dim, config_.rope_base, context_)) {}

  std::string describe() const override {
    return engine_info().name + " (" + Device::current().name + ")";
  }
  std::uint32_t context() const override { return context_; }
  std::uint32_t position() const override { return position_; }
  void truncate(std::uint32_t position) override { position_ = position; }

  void prefill(Span<const Token> ids) override {
    while (!ids.empty()) {
      const Span<const Token> now = ids.take_front(step_tokens_);
      set_input(now);
      step(now.size(), ids.empty() ? 1 : 0);
    }
    fetch_predictions(1);
  }

  std::uint32_t decode(std::uint32_t n, const TokenSink& sink) override {
    set_input({&prediction_.id, 1});
    for (std::uint32_t emitted = 0; emitted < n; ++emitted) {
      if (emitted > 0) {
        if (position_ == context_) return emitted;
        step(1, 1);
        fetch_predictions(1);
      }
      if (!sink(prediction_.id)) return emitted + 1;
    }
    return n;
  }

  void force(Span<const Token> ids, const LogitsSink& sink) override {
    std::vector<float> logits;
    while (!ids.empty()) {
      const Span<const Token> now = ids.take_front(step_tokens_);
      const std::size_t n = now.size();
      set_input(now);
      step(n, n);
      fetch_predictions(n);
      logits.resize(n * config_.n_tokens);
      stream_.download(logits.data(), device_->work.logits, logits.size());
      for (std::size_t t = 0; t < n; ++t) {
        sink(position_ - n + t, logits.data() + t * config_.n_tokens);
      }
    }
  }

  std::uint64_t bytes_per_token(std::uint32_t position) const override {
    return device_->model.layer_bytes() + device_->head.bytes + device_->cache.bytes(position + 1);
  }

  std::optional<StepCost> time_kernels(std::uint32_t passes) override {
    set_input({&prediction_.id, 1});
    return time_step(stream_, passes, position_ + 1, [&] { launch_step(1, 1); });
  }

 private:
  /// Takes a step's predictions. @throws std::runtime_error when no logit of one is a number
  void fetch_predictions(std::size_t n) {
    Prediction predictions[kMaxTokens];
    stream_.download(predictions, device_->work.predictions, n);
    for (std::size_t t = 0; t < n; ++t) require_token(predictions[t]);
    prediction_ = predictions[n - 1];
  }

  /// The tokens that the next step finds, at the position.
  void set_input(Span<const Token> ids) {
    input_.position = position_;
    std::copy(ids.begin(), ids.end(), input_.ids);
    stream_.upload(device_->work.input, &input_, 1);
  }

  /// Consumes n_tokens of the input, and predicts what follows each of the last n_predicted.
  void step(std::uint32_t n_tokens, std::uint32_t n_predicted) {
    Graph& graph = graphs_[{n_tokens, n_predicted}];
    if (graph.nodes() == 0) {
      graph = Graph::capture(stream_, [&] { launch_step(n_tokens, n_predicted); });
    }
    graph.launch(stream_);
    position_ += n_tokens;
  }

  void launch_step(std::uint32_t n_tokens, std::uint32_t n_predicted) {
    forward({stream_, device_->work.input, n_tokens});
    const float* x = device_->work.x + (n_tokens - n_predicted) * config_.d_model;
    if (n_predicted > 0) predict({stream_, device_->work.input, n_predicted}, x, n_tokens);
  }

  /// The layers, which leave their output in x.
  void forward(const Step& s) {
    launch_embed(s, device_->work.x, device_->token_embedding);
    for (std::uint32_t layer = 0; layer < config_.n_layers; ++layer) {
      attention_block(s, device_->layers[layer], device_->cache.layer(layer));
      feed_forward_block(s, device_->layers[layer]);
    }
  }

  /// x += W_o attention(norm(x)), with the step's K and V added to the cache.
  void attention_block(const Step& s, const DeviceLayer& w, const KvLayer& cache) {
    const Workspace& work = device_->work;
    launch_rmsnorm(s, work.normed, work.x, w.attn_norm, config_.d_model, config_.rms_eps);
    launch_quantize(s, work.quantized, work.normed, config_.d_model);
    launch_gemv_q4_0(s, work.q, w.w_q, work.quantized);
    launch_gemv_q4_0(s, work.k, w.w_k, work.quantized);
    launch_gemv_q4_0(s, work.v, w.w_v, work.quantized);
    launch_add_bias(s, work.q, w.b_q, config_.d_q());
    launch_add_bias(s, work.k, w.b_k, config_.d_kv());
    launch_add_bias(s, work.v, w.b_v, config_.d_kv());
    launch_rope(s, work.q, device_->cosines, device_->sines, config_.n_heads, config_.head_dim);
    launch_rope(s, work.k, device_->cosines, device_->sines, config_.n_kv_heads, config_.head_dim);
    launch_append_kv(s, cache, work.k, work.v);
    launch_attention(s, work.attended, work.scores, work.q, cache, config_, context_);
    launch_quantize(s, work.quantized, work.attended, config_.d_q());
    launch_gemv_q4_0(s, work.projected, w.w_o, work.quantized);
    launch_add(s, work.x, work.projected, config_.d_model);
  }

  /// x += W_down swiglu(W_gate norm(x), W_up norm(x)).
  void feed_forward_block(const Step& s, const DeviceLayer& w) {
    const Workspace& work = device_->work;
    launch_rmsnorm(s, work.normed, work.x, w.ffn_norm, config_.d_model, config_.rms_eps);
    launch_quantize(s, work.quantized, work.normed, config_.d_model);
    launch_gemv_q4_0(s, work.gate, w.w_gate, work.quantized);
    launch_gemv_q4_0(s, work.up, w.w_up, work.quantized);
    launch_swiglu(s, work.gate, work.up, config_.d_ff);
    launch_quantize(s, work.quantized, work.gate, config_.d_ff);
    launch_gemv_q4_0(s, work.projected, w.w_down, work.quantized);
    launch_add(s, work.x, work.projected, config_.d_model);
  }

  /// Logits and their argmax, from rows of x; the last is the token that comes step_tokens on.
  void predict(const Step& s, const float* x, std::uint32_t step_tokens) {
    const Workspace& work = device_->work;
    launch_rmsnorm(s, work.normed, x, device_->output_norm, config_.d_model, config_.rms_eps);
    device_->head.launch(s, work.logits, work.normed);
    launch_argmax(s, work.predictions, work.logits, config_.n_tokens, step_tokens);
  }

  const ModelConfig& config_;
  const std::uint32_t context_;
  const std::uint32_t step_tokens_;  ///< of a prompt that a step carries
  std::uint32_t position_ = 0;
  Prediction prediction_;  ///< of what follows
  StepInput input_;        ///< what was copied last
  Stream stream_;
  const Placed<DeviceState> device_;
  /// By the tokens of a step and how many it predicts, each recorded when it is first needed.
  std::map<std::pair<std::uint32_t, std::uint32_t>, Graph> graphs_;
};

}  // namespace

EngineInfo engine_info() {
  EngineInfo info;
  info.name = MINFER_PROGRAM;
  info.options = {{"TCHUNK", {1, 2, 3, 4, 5, 6, 7, 8}, "tokens that a step carries"},
                  head_option()};
  info.requantizes = true;
  return info;
}

std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options) {
  return std::make_unique<GpuEngine>(model, options);
}

}  // namespace minfer
