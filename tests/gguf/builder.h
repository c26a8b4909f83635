// SPDX-License-Identifier: MIT
//
// Builds GGUF files in memory, valid ones and ones that are wrong in exactly one place: every
// number that a reader might trust can be set apart from what it describes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <minfer/gguf/gguf.h>
#include <minfer/gguf/metadata.h>
#include <minfer/gguf/quant.h>

namespace minfer::test {

/// A number's bytes as GGUF has them.
template <class T>
std::string number_bytes(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string string_bytes(std::string_view text) {
  return number_bytes<std::uint64_t>(text.size()) + std::string(text);
}

/// A field of a built file, for tests that overwrite it.
struct Field {
  std::size_t offset;
  std::size_t bytes;
};

/// A key-value pair. `key_length` and `type` say what the file says, whatever the rest is.
struct PairSpec {
  std::string key;
  std::uint32_t type = 0;
  std::string value;
  std::optional<std::uint64_t> key_length;
};

/// A tensor. Unless it is told otherwise it has its shape's size of data behind the tensor before.
struct TensorSpec {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint32_t type = 0;
  std::string data;
  std::optional<std::uint64_t> name_length;
  std::optional<std::uint32_t> n_dims;
  std::optional<std::uint64_t> offset;
};

/// A GGUF file to be.
struct GgufBuilder {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> n_tensors;
  std::optional<std::uint64_t> n_pairs;
  std::uint64_t alignment = 32;  ///< that the layout keeps; the key is another matter
  std::vector<PairSpec> pairs;
  std::vector<TensorSpec> tensors;
  std::vector<Field> fields;  ///< of what build() made last

  PairSpec& raw(std::string_view key, ValueType type, std::string value) {
    erase(key);
    pairs.push_back({std::string(key), static_cast<std::uint32_t>(type), std::move(value), {}});
    return pairs.back();
  }
  PairSpec& set(std::string_view key, std::uint32_t value) {
    return raw(key, ValueType::kUint32, number_bytes(value));
  }
  PairSpec& set(std::string_view key, float value) {
    return raw(key, ValueType::kFloat32, number_bytes(value));
  }
  PairSpec& set(std::string_view key, bool value) {
    return raw(key, ValueType::kBool, number_bytes<std::uint8_t>(value));
  }
  PairSpec& set(std::string_view key, const char* value) {
    return raw(key, ValueType::kString, string_bytes(value));
  }
  PairSpec& set(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = array_head(ValueType::kString, values.size());
    for (const std::string& value : values) bytes += string_bytes(value);
    return raw(key, ValueType::kArray, std::move(bytes));
  }
  PairSpec& set(std::string_view key, const std::vector<std::int32_t>& values) {
    std::string bytes = array_head(ValueType::kInt32, values.size());
    for (const std::int32_t value : values) bytes += number_bytes(value);
    return raw(key, ValueType::kArray, std::move(bytes));
  }

  static std::string array_head(ValueType type, std::uint64_t n) {
    return number_bytes(static_cast<std::uint32_t>(type)) + number_bytes(n);
  }

  void erase(std::string_view key) {
    for (auto pair = pairs.begin(); pair != pairs.end();) {
      pair = pair->key == key ? pairs.erase(pair) : pair + 1;
    }
  }

  /// Adds a tensor whose data repeat the bytes 0x31, 0x32, ...: harmless as any type.
  TensorSpec& add_tensor(std::string name, std::vector<std::uint64_t> shape, TensorType type) {
    std::uint64_t elements = 1;
    for (const std::uint64_t dimension : shape) elements *= dimension;
    TensorSpec spec;
    spec.name = std::move(name);
    spec.shape = std::move(shape);
    spec.type = static_cast<std::uint32_t>(type);
    spec.data.resize(row_bytes(type, elements));
    for (std::size_t i = 0; i < spec.data.size(); ++i) {
      spec.data[i] = static_cast<char>(0x31 + i % 8);
    }
    tensors.push_back(std::move(spec));
    return tensors.back();
  }

  TensorSpec& tensor(std::string_view name) {
    for (TensorSpec& spec : tensors) {
      if (spec.name == name) return spec;
    }
    throw std::out_of_range("no tensor " + std::string(name));
  }
  void erase_tensor(std::string_view name) {
    for (auto spec = tensors.begin(); spec != tensors.end();) {
      spec = spec->name == name ? tensors.erase(spec) : spec + 1;
    }
  }

  /// The file's bytes.
  std::string build() {
    fields.clear();
    std::string out;
    append(out, magic);
    append(out, number_bytes(version));
    append(out, number_bytes(n_tensors.value_or(tensors.size())));
    append(out, number_bytes(n_pairs.value_or(pairs.size())));
    for (const PairSpec& pair : pairs) {
      append(out, number_bytes(pair.key_length.value_or(pair.key.size())));
      append(out, pair.key);
      append(out, number_bytes(pair.type));
      append_value(out, pair);
    }
    append_tensors(out);
    return out;
  }

 private:
  void append(std::string& out, const std::string& bytes) {
    fields.push_back({out.size(), bytes.size()});
    out += bytes;
  }

  /// A string's length and an array's type and length are fields of their own.
  void append_value(std::string& out, const PairSpec& pair) {
    std::size_t done = 0;
    const auto part = [&](std::size_t bytes) {
      append(out, pair.value.substr(done, bytes));
      done += bytes;
    };
    if (pair.type == static_cast<std::uint32_t>(ValueType::kString) && pair.value.size() >= 8) {
      part(8);
    }
    if (pair.type == static_cast<std::uint32_t>(ValueType::kArray) && pair.value.size() >= 12) {
      part(4);
      part(8);
    }
    part(pair.value.size() - done);
  }

  void append_tensors(std::string& out) {
    std::uint64_t end = 0;
    for (const TensorSpec& spec : tensors) {
      const std::uint64_t offset = padded(end);
      append(out, number_bytes(spec.name_length.value_or(spec.name.size())));
      append(out, spec.name);
      append(out,
             number_bytes(spec.n_dims.value_or(static_cast<std::uint32_t>(spec.shape.size()))));
      for (const std::uint64_t dimension : spec.shape) append(out, number_bytes(dimension));
      append(out, number_bytes(spec.type));
      append(out, number_bytes(spec.offset.value_or(offset)));
      end = offset + spec.data.size();
    }
    if (tensors.empty()) return;
    out.resize(padded(out.size()), '\0');
    const std::size_t data_begin = out.size();
    for (const TensorSpec& spec : tensors) {
      out.resize(data_begin + padded(out.size() - data_begin), '\0');
      append(out, spec.data);
    }
  }

  std::uint64_t padded(std::uint64_t n) const {
    return (n + alignment - 1) / alignment * alignment;
  }
};

/// The shape of small_model().
struct SmallShape {
  std::uint32_t n_layers = 1;
  std::uint32_t d_model = 32;
  std::uint32_t d_ff = 64;
  std::uint32_t n_heads = 4;
  std::uint32_t n_kv_heads = 2;
  std::uint32_t n_vocab = 8;
  TensorType matrices = TensorType::kQ4_0;
  TensorType head = TensorType::kQ8_0;
};

/// The smallest file that Model::load takes: all its keys and tensors, 6 real tokens and 2 UNUSED.
inline GgufBuilder small_model(const SmallShape& s = {}) {
  GgufBuilder b;
  b.set("general.architecture", "qwen2");
  b.set("qwen2.block_count", s.n_layers);
  b.set("qwen2.context_length", 128u);
  b.set("qwen2.embedding_length", s.d_model);
  b.set("qwen2.feed_forward_length", s.d_ff);
  b.set("qwen2.attention.head_count", s.n_heads);
  b.set("qwen2.attention.head_count_kv", s.n_kv_heads);
  b.set("qwen2.rope.freq_base", 1e6f);
  b.set("qwen2.attention.layer_norm_rms_epsilon", 1e-6f);
  b.set("tokenizer.ggml.model", "gpt2");
  b.set("tokenizer.ggml.pre", "qwen2");
  std::vector<std::string> tokens{"a", "b", "ab", "<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<std::int32_t> types{1, 1, 1, 3, 3, 3};
  while (tokens.size() < s.n_vocab) {
    tokens.push_back("[PAD" + std::to_string(tokens.size()) + "]");
    types.push_back(5);
  }
  b.set("tokenizer.ggml.tokens", tokens);
  b.set("tokenizer.ggml.token_type", types);
  b.set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  b.set("tokenizer.ggml.eos_token_id", 5u);
  b.set("tokenizer.ggml.add_bos_token", false);

  const std::uint64_t d_kv = std::uint64_t{s.d_model} / s.n_heads * s.n_kv_heads;
  b.add_tensor("token_embd.weight", {s.d_model, s.n_vocab}, s.matrices);
  for (std::uint32_t i = 0; i < s.n_layers; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    b.add_tensor(p + "attn_norm.weight", {s.d_model}, TensorType::kF32);
    b.add_tensor(p + "attn_q.weight", {s.d_model, s.d_model}, s.matrices);
    b.add_tensor(p + "attn_k.weight", {s.d_model, d_kv}, s.matrices);
    b.add_tensor(p + "attn_v.weight", {s.d_model, d_kv}, s.matrices);
    b.add_tensor(p + "attn_output.weight", {s.d_model, s.d_model}, s.matrices);
    b.add_tensor(p + "attn_q.bias", {s.d_model}, TensorType::kF32);
    b.add_tensor(p + "attn_k.bias", {d_kv}, TensorType::kF32);
    b.add_tensor(p + "attn_v.bias", {d_kv}, TensorType::kF32);
    b.add_tensor(p + "ffn_norm.weight", {s.d_model}, TensorType::kF32);
    b.add_tensor(p + "ffn_gate.weight", {s.d_model, s.d_ff}, s.matrices);
    b.add_tensor(p + "ffn_up.weight", {s.d_model, s.d_ff}, s.matrices);
    b.add_tensor(p + "ffn_down.weight", {s.d_ff, s.d_model}, s.matrices);
  }
  b.add_tensor("output_norm.weight", {s.d_model}, TensorType::kF32);
  b.add_tensor("output.weight", {s.d_model, s.n_vocab}, s.head);
  return b;
}

}  // namespace minfer::test
