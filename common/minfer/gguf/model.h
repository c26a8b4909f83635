// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <minfer/gguf/gguf.h>
#include <minfer/gguf/quant.h>
#include <minfer/math.h>
#include <minfer/span.h>

namespace minfer {

class ThreadPool;

/// What attention knows of a model.
struct AttentionShape {
  std::uint32_t n_heads = 0;
  std::uint32_t n_kv_heads = 0;
  std::uint32_t head_dim = 0;

  MINFER_HD constexpr std::uint32_t d_q() const { return n_heads * head_dim; }
  MINFER_HD constexpr std::uint32_t d_kv() const { return n_kv_heads * head_dim; }
  /// Query heads that share one K/V head (GQA).
  MINFER_HD constexpr std::uint32_t group() const { return n_heads / n_kv_heads; }
};

/// The hyperparameters of a Qwen2.5 model, read from its file and checked against each other.
struct ModelConfig : AttentionShape {
  std::uint32_t n_layers = 0;
  std::uint32_t d_model = 0;
  std::uint32_t d_ff = 0;
  std::uint32_t n_vocab = 0;         ///< rows of the lm_head, UNUSED ones included
  std::uint32_t n_tokens = 0;        ///< rows that are real tokens: ids 0 .. n_tokens-1
  std::uint32_t context_length = 0;  ///< the longest context the model was made for
  float rope_base = 0;
  float rms_eps = 0;
};

/// A weight matrix in its file's quantization. Row r starts at data + r * row_bytes(type, cols).
struct Matrix {
  TensorType type = TensorType::kF32;
  std::uint32_t rows = 0;  ///< outputs
  std::uint32_t cols = 0;  ///< inputs
  const std::byte* data = nullptr;
  const Tensor* tensor = nullptr;  ///< where it came from; null for a requantized copy

  std::uint64_t bytes() const { return rows * row_bytes(type, cols); }
  /// n rows from `first` on.
  Matrix slice(std::uint32_t first, std::uint32_t n) const {
    return {type, n, cols, data + first * row_bytes(type, cols), nullptr};
  }
};

/// A matrix's rows in another type; copied, where they have it already.
std::vector<std::byte> requantized(const Matrix& m, TensorType type, ThreadPool& pool);

/// Calls f with a matrix's blocks in Q8_0, [rows, cols/32], those of some thousand rows at a time:
/// all at once need as much memory again. `first` is the first one's number.
void for_each_as_q8_0(
    const Matrix& m, const std::function<void(std::size_t first, Span<const BlockQ8_0> blocks)>& f);

/// One transformer layer's weights. Vectors are f32.
struct LayerWeights {
  const float* attn_norm = nullptr;  ///< [d_model]
  Matrix w_q, w_k, w_v, w_o;         ///< [d_q, d_model], [d_kv, d_model] twice, [d_model, d_q]
  const float* b_q = nullptr;        ///< [d_q]
  const float* b_k = nullptr;        ///< [d_kv]
  const float* b_v = nullptr;        ///< [d_kv]
  const float* ffn_norm = nullptr;   ///< [d_model]
  Matrix w_gate, w_up, w_down;       ///< [d_ff, d_model] twice, [d_model, d_ff]
};

struct ModelOptions {
  ReadMode read_mode = ReadMode::kMap;
  /// As the GPU engines need it: every layer matrix that is not Q4_0 is requantized to Q4_0, and an
  /// lm_head that is none of Q4_0, Q6_K and Q8_0 to Q8_0. The token embedding stays as it is.
  bool requantize_matrices = false;
};

/// The table of a model's weights: where each lies in the file, with its shape checked.
class Model {
 public:
  /// Opens a file and checks every tensor the forward pass reads; one that it does not read is
  /// refused. @throws FileError
  static Model load(const std::string& path, const ModelOptions& options = {});

  Model(Model&&) noexcept = default;
  Model& operator=(Model&&) noexcept = default;

  const ModelConfig& config() const { return config_; }
  const GgufFile& file() const { return file_; }
  const Matrix& token_embedding() const { return token_embedding_; }  ///< [n_vocab, d_model]
  const std::vector<LayerWeights>& layers() const { return layers_; }
  const float* output_norm() const { return output_norm_; }  ///< [d_model]
  const Matrix& lm_head() const { return lm_head_; }  ///< [n_tokens, d_model]: no UNUSED rows
  /// The lm_head is the token embedding itself, since the file has none of its own.
  bool tied() const { return lm_head_.data == token_embedding_.data; }
  /// Bytes of weights that one decode step reads before the lm_head: all layers, norms and biases.
  std::uint64_t layer_bytes() const;
  /// The same with the lm_head.
  std::uint64_t bytes_per_token() const { return layer_bytes() + lm_head_.bytes(); }
  /// Gives a matrix's pages of the file back to the system, which reads them again when asked for.
  void release(const Matrix& m) const {
    if (m.tensor) file_.release(*m.tensor);
  }
  /// "Q4_0 layers, Q6_K head; requantized: 6 Q4_1 matrices": for one line on standard error.
  std::string describe() const;

 private:
  explicit Model(GgufFile file) : file_(std::move(file)) {}
  void build_table();
  void requantize_matrices();
  void requantize(Matrix& m, TensorType type, ThreadPool& pool);

  GgufFile file_;
  ModelConfig config_;
  Matrix token_embedding_;
  std::vector<LayerWeights> layers_;
  const float* output_norm_ = nullptr;
  Matrix lm_head_;
  std::vector<std::vector<std::byte>> requantized_;  ///< owns what requantize_matrices made
  std::map<TensorType, int> requantized_types_;      ///< how many matrices had which other type
};

/// A model's shape, where its heads are of one of these sizes. @throws FileError
const ModelConfig& config_with_heads(const Model& model,
                                     std::initializer_list<std::uint32_t> sizes);

}  // namespace minfer
