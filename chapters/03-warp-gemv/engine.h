// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>

#include "cuda/buffer.h"
#include "cuda/stream.h"

namespace minfer {

/// What this engine is called and which options it honours.
EngineInfo engine_info();

/// The engine of this chapter. @throws FileError @throws CudaError @throws std::runtime_error
std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options);

/// A model's tables with every pointer into device memory: the file's bytes, still quantized, in
/// one allocation.
struct DeviceWeights {
  DeviceBuffer<std::byte> arena;
  Matrix token_embedding;  ///< [n_vocab, d_model]
  std::vector<LayerWeights> layers;
  const float* output_norm = nullptr;  ///< [d_model]
  Matrix lm_head;                      ///< [n_tokens, d_model]: the rows of real tokens
  bool tied = false;                   ///< the head is the embedding's rows
};

/// What a step writes, and the KV cache. The pointers are into `storage`.
struct Workspace {
  std::vector<DeviceBuffer<std::byte>> storage;  ///< an allocation for each of the arrays
  float* cosines = nullptr;                      ///< [context, head_dim/2]: RoPE's table
  float* sines = nullptr;                        ///< [context, head_dim/2]
  float* k_cache = nullptr;                      ///< [n_layers, context, d_kv]
  float* v_cache = nullptr;                      ///< [n_layers, context, d_kv]
  float* x = nullptr;                            ///< [d_model]: the residual stream
  float* normed = nullptr;                       ///< [d_model]
  float* q = nullptr;                            ///< [d_q]
  float* k = nullptr;                            ///< [d_kv]
  float* v = nullptr;                            ///< [d_kv]
  float* scores = nullptr;                       ///< [n_heads, context]
  float* attended = nullptr;                     ///< [d_q]
  float* gate = nullptr;                         ///< [d_ff]
  float* up = nullptr;                           ///< [d_ff]
  float* projected = nullptr;        ///< [d_model]: what a block adds to the residual stream
  float* logits = nullptr;           ///< [n_tokens]
  Prediction* prediction = nullptr;  ///< [1]
};

/// Greedy decoding on a GPU, a token at a time, a kernel an operation.
class GpuEngine final : public Engine {
 public:
  /// Uploads the weights, and gives the file's pages back as it goes.
  /// @throws std::runtime_error when the GPU has too little memory, before any of it is taken
  GpuEngine(const Model& model, const EngineOptions& options);

  std::string describe() const override;
  std::uint32_t context() const override { return context_; }
  std::uint32_t position() const override { return position_; }
  void truncate(std::uint32_t position) override { position_ = position; }
  void prefill(Span<const Token> ids) override;
  std::uint32_t decode(std::uint32_t n, const TokenSink& sink) override;
  void force(Span<const Token> ids, const LogitsSink& sink) override;
  std::uint64_t bytes_per_token(std::uint32_t position) const override;
  std::optional<StepCost> time_kernels(std::uint32_t passes) override;

 private:
  /// Takes the memory for weights and workspace, if there is enough for both.
  void allocate();
  /// Copies every array of the weights into the arena and turns its pointer to it, giving the
  /// file's pages back; then RoPE's table.
  void upload(const Model& model);
  /// Copies n values to the device; they have arrived when it returns.
  template <class T>
  void to_device(T* device, const T* host, std::size_t n);
  /// Fetches n values when the kernels launched so far are done.
  template <class T>
  void to_host(T* host, const T* device, std::size_t n);
  /// Takes the prediction from the device. @throws std::runtime_error when no logit is a number
  void fetch_prediction();

  /// Consumes one token: the layers leave their output in x.
  void forward(Token token);
  /// x += W_o attention(norm(x)), with this position's K and V added to the cache.
  void attention_block(const LayerWeights& w, std::uint32_t layer);
  /// x += W_down swiglu(W_gate norm(x), W_up norm(x)).
  void feed_forward_block(const LayerWeights& w);
  /// Logits and their argmax, from x.
  void predict();

  ModelConfig config_;
  std::uint32_t context_ = 0;
  std::uint32_t position_ = 0;
  std::uint64_t weight_bytes_ = 0;  ///< that a step reads
  Prediction prediction_;
  Stream stream_;
  DeviceWeights weights_;
  Workspace work_;
};

}  // namespace minfer
