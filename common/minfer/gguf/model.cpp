// SPDX-License-Identifier: MIT
#include <minfer/gguf/model.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <minfer/threads.h>

namespace minfer {
namespace {

constexpr const char* kArchitecture = "qwen2";
constexpr std::uint32_t kBlock = 32;               // activations are quantized in blocks of 32
constexpr std::int32_t kUnusedToken = 5;           // LLAMA_TOKEN_TYPE_UNUSED
constexpr std::size_t kRowsAPiece = 64;            // of a matrix, for a thread to requantize
constexpr std::uint32_t kMaxDimension = 1u << 20;  // keeps every product of two in 64 bits

std::string float_text(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
  return text;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

/// The hyperparameters of a file, each checked by itself and then against the others.
class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file) {}

  ModelConfig read() {
    check_architecture();
    check_nothing_else();
    ModelConfig c;
    c.n_layers = positive("block_count");
    c.d_model = dimension("embedding_length");
    c.d_ff = dimension("feed_forward_length");
    c.n_heads = positive("attention.head_count");
    c.n_kv_heads = has("attention.head_count_kv") ? positive("attention.head_count_kv") : c.n_heads;
    c.context_length = positive("context_length");
    c.rope_base = positive_float("rope.freq_base");
    c.rms_eps = positive_float("attention.layer_norm_rms_epsilon");
    check_heads(c);
    c.head_dim = c.d_model / c.n_heads;
    check_head_dim(c);
    return c;
  }

 private:
  static std::string key(const std::string& name) {
    return std::string(kArchitecture) + "." + name;
  }
  bool has(const std::string& name) const { return file_.has(key(name)); }
  std::uint32_t get(const std::string& name) const { return file_.get_u32(key(name)); }

  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw FileError(file_.path(), "key " + quoted(key(name)) + " " + what);
  }

  void check_architecture() const {
    const std::string found = file_.get_string("general.architecture");
    if (found != kArchitecture) {
      throw FileError(file_.path(),
                      "key \"general.architecture\" is " + quoted(found) + ", expected \"qwen2\"");
    }
  }

  std::uint32_t positive(const std::string& name) const {
    const std::uint32_t value = get(name);
    if (value == 0) fail(name, "is 0, expected 1 or more");
    return value;
  }

  std::uint32_t dimension(const std::string& name) const {
    const std::uint32_t value = positive(name);
    if (value % kBlock != 0) {
      fail(name, "is " + std::to_string(value) + ", expected a multiple of 32");
    }
    if (value > kMaxDimension) {
      fail(name, "is " + std::to_string(value) + ", expected no more than " +
                     std::to_string(kMaxDimension));
    }
    return value;
  }

  float positive_float(const std::string& name) const {
    const float value = file_.get_f32(key(name));
    if (!(value > 0) || !std::isfinite(value)) {
      fail(name, "is " + float_text(value) + ", expected a positive number");
    }
    return value;
  }

  void check_heads(const ModelConfig& c) const {
    if (c.d_model % c.n_heads != 0) {
      fail("embedding_length", "is " + std::to_string(c.d_model) + ", expected a multiple of the " +
                                   std::to_string(c.n_heads) + " heads");
    }
    if (c.n_heads % c.n_kv_heads != 0) {
      fail("attention.head_count", "is " + std::to_string(c.n_heads) +
                                       ", expected a multiple of the " +
                                       std::to_string(c.n_kv_heads) + " K/V heads");
    }
  }

  /// RoPE turns pairs of elements. A file that gives the head dimension gives the same.
  void check_head_dim(const ModelConfig& c) const {
    if (c.head_dim % 2 != 0) {
      fail("embedding_length",
           "makes heads of " + std::to_string(c.head_dim) + " elements, expected an even number");
    }
    for (const char* name :
         {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
      if (has(name) && get(name) != c.head_dim) {
        fail(name, "is " + std::to_string(get(name)) + ", expected " + std::to_string(c.head_dim) +
                       ", the embedding length over the number of heads");
      }
    }
  }

  /// What the forward pass does not do: stretched RoPE, attention in windows or to the future.
  void check_nothing_else() const {
    if (has("rope.scaling.type")) {
      const std::string type = file_.get_string(key("rope.scaling.type"));
      if (type != "none") fail("rope.scaling.type", "is " + quoted(type) + ", expected \"none\"");
    }
    for (const char* name : {"rope.scaling.factor", "rope.scale_linear"}) {
      if (has(name) && file_.get_f32(key(name)) != 1.0f) {
        fail(name, "is " + float_text(file_.get_f32(key(name))) + ", expected 1");
      }
    }
    if (has("attention.causal") && !file_.get_bool(key("attention.causal"))) {
      fail("attention.causal", "is false, expected true");
    }
    if (has("attention.sliding_window") && get("attention.sliding_window") != 0) {
      fail("attention.sliding_window",
           "is " + std::to_string(get("attention.sliding_window")) + ", expected 0");
    }
  }

  const GgufFile& file_;
};

/// How many rows are real tokens: all but the UNUSED ones at the end, which pad the matrix.
std::uint32_t count_tokens(const GgufFile& file, std::uint32_t n_vocab) {
  const auto check = [&](const char* key) {
    const std::uint64_t n = file.array_size(key);
    if (n != n_vocab) {
      throw FileError(file.path(), "key " + quoted(key) + " has " + std::to_string(n) +
                                       " elements, expected " + std::to_string(n_vocab) +
                                       ", the rows of token_embd.weight");
    }
  };
  check("tokenizer.ggml.tokens");
  if (!file.has("tokenizer.ggml.token_type")) return n_vocab;
  check("tokenizer.ggml.token_type");
  const std::vector<std::int32_t> types = file.get_i32s("tokenizer.ggml.token_type");
  const auto last = std::find_if(types.rbegin(), types.rend(),
                                 [](std::int32_t type) { return type != kUnusedToken; });
  if (last == types.rend()) {
    throw FileError(file.path(),
                    "key \"tokenizer.ggml.token_type\" has UNUSED tokens only, expected others");
  }
  return static_cast<std::uint32_t>(types.rend() - last);
}

void check_special_ids(const GgufFile& file, std::uint32_t n_tokens) {
  for (const char* name :
       {"bos", "eos", "eot", "eom", "unknown", "seperator", "separator", "padding", "cls", "mask",
        "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    if (!file.has(key)) continue;
    const std::uint32_t id = file.get_u32(key);
    if (id >= n_tokens) {
      throw FileError(file.path(), "key " + quoted(key) + " is " + std::to_string(id) +
                                       ", expected an id below " + std::to_string(n_tokens));
    }
  }
}

/// Takes tensors out of a file, each with its shape checked, and knows which it took.
class TensorReader {
 public:
  explicit TensorReader(const GgufFile& file) : file_(file) {}

  const float* vector(const std::string& name, std::uint32_t n) {
    const Tensor& tensor = take(name, {n});
    if (tensor.type != TensorType::kF32) {
      fail(name, std::string("has the type ") + type_name(tensor.type) + ", expected F32");
    }
    return reinterpret_cast<const float*>(tensor.data);
  }

  Matrix matrix(const std::string& name, std::uint32_t rows, std::uint32_t cols) {
    const Tensor& tensor = take(name, {cols, rows});
    return {tensor.type, rows, cols, tensor.data, &tensor};
  }

  /// The embedding says how large the vocabulary is: its number of rows is the file's to choose.
  Matrix embedding(std::uint32_t d_model) {
    const std::string name = "token_embd.weight";
    const std::vector<std::uint64_t>& shape = file_.tensor(name).shape;
    constexpr std::uint64_t kMaxRows = std::numeric_limits<std::int32_t>::max();  // ids are int32
    if (shape.size() != 2 || shape[0] != d_model || shape[1] > kMaxRows) {
      fail(name, "has the shape " + shape_text(shape) + ", expected [" + std::to_string(d_model) +
                     ", the number of tokens]");
    }
    return matrix(name, static_cast<std::uint32_t>(shape[1]), d_model);
  }

  LayerWeights layer(const ModelConfig& c, std::uint32_t index) {
    const std::string blk = "blk." + std::to_string(index) + ".";
    LayerWeights layer;
    layer.attn_norm = vector(blk + "attn_norm.weight", c.d_model);
    layer.w_q = matrix(blk + "attn_q.weight", c.d_q(), c.d_model);
    layer.w_k = matrix(blk + "attn_k.weight", c.d_kv(), c.d_model);
    layer.w_v = matrix(blk + "attn_v.weight", c.d_kv(), c.d_model);
    layer.w_o = matrix(blk + "attn_output.weight", c.d_model, c.d_q());
    layer.b_q = vector(blk + "attn_q.bias", c.d_q());
    layer.b_k = vector(blk + "attn_k.bias", c.d_kv());
    layer.b_v = vector(blk + "attn_v.bias", c.d_kv());
    layer.ffn_norm = vector(blk + "ffn_norm.weight", c.d_model);
    layer.w_gate = matrix(blk + "ffn_gate.weight", c.d_ff, c.d_model);
    layer.w_up = matrix(blk + "ffn_up.weight", c.d_ff, c.d_model);
    layer.w_down = matrix(blk + "ffn_down.weight", c.d_model, c.d_ff);
    return layer;
  }

  /// A tensor that nothing reads would change nothing, silently: layers beyond the announced ones,
  /// `rope_freqs.weight`, a bias or norm that Qwen2.5 has not.
  void check_all_taken(std::uint32_t n_layers) const {
    for (const Tensor& tensor : file_.tensors()) {
      if (taken_.count(&tensor) != 0) continue;
      throw FileError(file_.path(), "found " + std::to_string(file_.tensors().size()) +
                                        " tensors, expected " + std::to_string(taken_.size()) +
                                        " for \"qwen2.block_count\" " + std::to_string(n_layers) +
                                        ": " + quoted(tensor.name) + " is none of them");
    }
  }

 private:
  const Tensor& take(const std::string& name, const std::vector<std::uint64_t>& shape) {
    const Tensor& tensor = file_.tensor(name);
    if (tensor.shape != shape) {
      fail(name, "has the shape " + shape_text(tensor.shape) + ", expected " + shape_text(shape));
    }
    taken_.insert(&tensor);
    return tensor;
  }

  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw FileError(file_.path(), "tensor " + quoted(name) + " " + what);
  }

  const GgufFile& file_;
  std::set<const Tensor*> taken_;
};

template <class Layer, class Function>
void for_each_matrix(Layer& layer, Function f) {
  for (auto* m : {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o, &layer.w_gate, &layer.w_up,
                  &layer.w_down}) {
    f(*m);
  }
}

/// "Q4_0" or "Q4_0 and Q4_1", the type of the most matrices first.
std::string types_text(const std::map<TensorType, int>& counts) {
  std::vector<std::pair<TensorType, int>> order(counts.begin(), counts.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [type, count] : order) {
    text += (text.empty() ? "" : " and ") + std::string(type_name(type));
  }
  return text;
}

/// "6 Q4_1 matrices, 1 F16 matrix"
std::string counts_text(const std::map<TensorType, int>& counts) {
  std::string text;
  for (const auto& [type, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + type_name(type) +
            (count == 1 ? " matrix" : " matrices");
  }
  return text;
}

}  // namespace

std::vector<std::byte> requantized(const Matrix& m, TensorType type, ThreadPool& pool) {
  const std::uint64_t from_bytes = row_bytes(m.type, m.cols);
  const std::uint64_t to_bytes = row_bytes(type, m.cols);
  if (m.type == type) return {m.data, m.data + m.bytes()};
  std::vector<std::byte> out(m.rows * to_bytes);
  pool.parallel_for(m.rows, kRowsAPiece, [&](std::size_t begin, std::size_t end) {
    std::vector<float> row(m.cols);
    for (std::size_t r = begin; r < end; ++r) {
      dequantize_row(m.type, m.data + r * from_bytes, m.cols, row.data());
      quantize_row(type, row.data(), m.cols, out.data() + r * to_bytes);
    }
  });
  return out;
}

void for_each_as_q8_0(
    const Matrix& m,
    const std::function<void(std::size_t first, Span<const BlockQ8_0> blocks)>& f) {
  constexpr std::uint32_t kRows = 4096;  // at a time
  ThreadPool pool(0);
  const std::size_t row_blocks = m.cols / kBlockElements<BlockQ8_0>;
  for (std::uint32_t row = 0; row < m.rows; row += kRows) {
    const Matrix rows = m.slice(row, std::min(kRows, m.rows - row));
    const std::vector<std::byte> bytes = requantized(rows, TensorType::kQ8_0, pool);
    f(row * row_blocks, {reinterpret_cast<const BlockQ8_0*>(bytes.data()), rows.rows * row_blocks});
  }
}

Model Model::load(const std::string& path, const ModelOptions& options) {
  // Also a file that is to be read whole is mapped first: one that is refused costs no more than
  // the pages that were looked at.
  Model model(GgufFile::open(path, ReadMode::kMap));
  model.build_table();
  if (options.read_mode == ReadMode::kRead) {
    model = Model(GgufFile::open(path, ReadMode::kRead));
    model.build_table();
  }
  if (options.requantize_matrices) model.requantize_matrices();
  return model;
}

void Model::build_table() {
  config_ = ConfigReader(file_).read();
  TensorReader tensors(file_);
  token_embedding_ = tensors.embedding(config_.d_model);
  config_.n_vocab = token_embedding_.rows;
  config_.n_tokens = count_tokens(file_, config_.n_vocab);
  check_special_ids(file_, config_.n_tokens);
  for (std::uint32_t i = 0; i < config_.n_layers; ++i) {
    layers_.push_back(tensors.layer(config_, i));  // n_layers is unchecked until they are there
  }
  output_norm_ = tensors.vector("output_norm.weight", config_.d_model);
  lm_head_ = file_.find_tensor("output.weight") == nullptr
                 ? token_embedding_
                 : tensors.matrix("output.weight", config_.n_vocab, config_.d_model);
  tensors.check_all_taken(config_.n_layers);
  lm_head_.rows = config_.n_tokens;
}

void Model::requantize(Matrix& m, TensorType type, ThreadPool& pool) {
  requantized_types_[m.type] += 1;
  requantized_.push_back(requantized(m, type, pool));
  m.type = type;
  m.data = requantized_.back().data();
  m.tensor = nullptr;
}

void Model::requantize_matrices() {
  ThreadPool pool(0);
  for (LayerWeights& layer : layers_) {
    for_each_matrix(layer, [&](Matrix& m) {
      if (m.type == TensorType::kQ4_0) return;
      const Tensor& source = *m.tensor;
      requantize(m, TensorType::kQ4_0, pool);
      file_.release(source);
    });
  }
  const TensorType head = lm_head_.type;
  if (head != TensorType::kQ4_0 && head != TensorType::kQ6_K && head != TensorType::kQ8_0) {
    // Its source keeps its pages: it may be the token embedding as well.
    requantize(lm_head_, TensorType::kQ8_0, pool);
  }
}

std::uint64_t Model::layer_bytes() const {
  const std::uint64_t floats_per_layer = 2 * config_.d_model + config_.d_q() + 2 * config_.d_kv();
  std::uint64_t bytes = config_.d_model * sizeof(float);
  for (const LayerWeights& layer : layers_) {
    bytes += floats_per_layer * sizeof(float);
    for_each_matrix(layer, [&](const Matrix& m) { bytes += m.bytes(); });
  }
  return bytes;
}

std::string Model::describe() const {
  std::map<TensorType, int> types;
  for (const LayerWeights& layer : layers_) {
    for_each_matrix(layer, [&](const Matrix& m) { ++types[m.type]; });
  }
  std::string text = types_text(types) + " layers, " + type_name(lm_head_.type) +
                     (tied() ? " head (tied)" : " head");
  if (!requantized_types_.empty()) text += "; requantized: " + counts_text(requantized_types_);
  return text;
}

const ModelConfig& config_with_heads(const Model& model,
                                     std::initializer_list<std::uint32_t> sizes) {
  std::string expected;
  for (const std::uint32_t size : sizes) {
    if (model.config().head_dim == size) return model.config();
    const bool is_last = &size + 1 == sizes.end();
    expected += (expected.empty() ? "" : is_last ? " or " : ", ") + std::to_string(size);
  }
  throw FileError(model.file().path(), "head_dim is " + std::to_string(model.config().head_dim) +
                                           ", expected " + expected);
}

}  // namespace minfer
