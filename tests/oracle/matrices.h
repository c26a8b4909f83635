// SPDX-License-Identifier: MIT
//
// Weights and models for the oracle's tests, the same bytes everywhere.
#pragma once

#include <string>
#include <vector>

#include <minfer/gguf/model.h>
#include <minfer/gguf/quant.h>
#include <minfer/math.h>

#include "gguf/builder.h"
#include "oracle/plain.h"

namespace minfer::test {

inline const std::vector<TensorType>& all_types() {
  static const std::vector<TensorType> types = {
      TensorType::kF32,  TensorType::kF16,  TensorType::kBF16, TensorType::kQ4_0, TensorType::kQ4_1,
      TensorType::kQ5_0, TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K};
  return types;
}

/// n values of `type`: random bits, with the scales (fp16 numbers at these places of a block) set
/// to between `scale` and twice that.
inline std::string random_blocks(TensorType type, std::size_t n, Random& random, float scale) {
  const BlockShape shape = block_shape(type);
  std::string bytes(row_bytes(type, n), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next());
  std::vector<std::size_t> scales;
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
      scales = {0};
      break;
    case TensorType::kQ4_1:
    case TensorType::kQ4_K:
      scales = {0, 2};
      break;
    case TensorType::kQ6_K:
      scales = {208};
      break;
    default:
      for (std::size_t i = 0; i < n; ++i) {
        const float value = random.number(scale);
        const std::uint32_t bits = bits_from_float(value);
        const std::uint16_t upper = type == TensorType::kF16
                                        ? half_from_float(value)
                                        : static_cast<std::uint16_t>(bits >> 16);
        const std::size_t size = shape.bytes;
        std::memcpy(&bytes[i * size], size == 4 ? static_cast<const void*>(&bits) : &upper, size);
      }
  }
  for (std::size_t block = 0; block < bytes.size(); block += shape.bytes) {
    for (const std::size_t at : scales) {
      const std::uint16_t half = half_from_float(scale * (1.5f + 0.5f * random.number()));
      std::memcpy(&bytes[block + at], &half, sizeof half);
    }
  }
  return bytes;
}

/// A matrix that owns its data.
struct OwnedMatrix {
  OwnedMatrix(TensorType type, std::uint32_t rows, std::uint32_t cols, Random& random,
              float scale = 0.01f)
      : bytes(random_blocks(type, std::size_t{rows} * cols, random, scale)) {
    matrix.type = type;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.data = reinterpret_cast<const std::byte*>(bytes.data());
  }
  OwnedMatrix(const OwnedMatrix&) = delete;
  OwnedMatrix& operator=(const OwnedMatrix&) = delete;

  std::string bytes;
  Matrix matrix;
};

/// A small model with random weights whose logits differ: the bytes of its GGUF file.
/// @param n_real how many of the vocabulary's rows are real tokens
inline std::string random_model(const SmallShape& shape, std::uint32_t n_real, std::uint64_t seed) {
  GgufBuilder b = small_model(shape);
  std::vector<std::string> tokens{"a", "b", "ab", "<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<std::int32_t> types{1, 1, 1, 3, 3, 3};
  while (tokens.size() < shape.n_vocab) {
    tokens.push_back("t" + std::to_string(tokens.size()));
    types.push_back(tokens.size() <= n_real ? 1 : 5);
  }
  b.set("tokenizer.ggml.tokens", tokens);
  b.set("tokenizer.ggml.token_type", types);
  Random random(seed);
  for (TensorSpec& spec : b.tensors) {
    const auto type = static_cast<TensorType>(spec.type);
    std::size_t n = 1;
    for (const std::uint64_t dimension : spec.shape) n *= dimension;
    if (spec.shape.size() == 1) {
      const bool is_norm = spec.name.find("norm") != std::string::npos;
      std::vector<float> values = random.numbers(n, 0.25f);
      for (float& value : values) value += is_norm ? 1.0f : 0.0f;
      spec.data.assign(reinterpret_cast<const char*>(values.data()), n * sizeof(float));
    } else {
      const std::vector<float> values = random.numbers(n, 0.5f);
      if (type == TensorType::kQ4_0 || type == TensorType::kQ8_0) {
        quantize_row(type, values.data(), n, reinterpret_cast<std::byte*>(spec.data.data()));
      } else {
        spec.data = random_blocks(type, n, random, 0.01f);
      }
    }
  }
  return b.build();
}

}  // namespace minfer::test
