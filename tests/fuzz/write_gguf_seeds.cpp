// SPDX-License-Identifier: MIT
// Writes the seeds of fuzz_gguf: small files that are taken, or nearly, so that what is fuzzed from
// them gets far.
//
//     write_gguf_seeds tests/fuzz/corpus/fuzz_gguf
#include <cstdio>
#include <fstream>
#include <string>

#include "gguf/builder.h"
#include "tokenizer/small_vocabulary.h"

namespace minfer::test {
namespace {

GgufBuilder every_value_type() {
  GgufBuilder b;
  for (std::uint32_t type = 0; type <= 12; ++type) {
    const auto value_type = static_cast<ValueType>(type);
    if (value_bytes(value_type) == 0) continue;
    const std::string value(value_bytes(value_type), '\1');
    b.raw(value_type_name(value_type), value_type, value);
    b.raw(value_type_name(value_type) + std::string("s"), ValueType::kArray,
          GgufBuilder::array_head(value_type, 2) + value + value);
  }
  b.set("text", "some text");
  b.set("texts", std::vector<std::string>{"a", "", "text"});
  return b;
}

GgufBuilder every_tensor_type() {
  GgufBuilder b;
  b.set("general.alignment", 64u);
  b.alignment = 64;
  for (const TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ4_0, TensorType::kQ4_1,
        TensorType::kQ5_0, TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K}) {
    b.add_tensor(type_name(type), {block_shape(type).elements, 2}, type);
  }
  return b;
}

GgufBuilder whole_model() {
  const SmallVocabulary words = small_vocabulary();
  SmallShape shape;
  shape.n_vocab = static_cast<std::uint32_t>(words.tokens.size());
  GgufBuilder b = small_model(shape);
  b.set("tokenizer.ggml.tokens", words.tokens);
  b.set("tokenizer.ggml.token_type", words.types);
  b.set("tokenizer.ggml.merges", words.merges);
  return b;
}

void write(const std::string& path, GgufBuilder b) {
  const std::string bytes = b.build();
  std::ofstream file(path, std::ios::binary);
  if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw std::runtime_error("cannot write " + path);
  }
}

void write_all(const std::string& folder) {
  write(folder + "/values.gguf", every_value_type());
  write(folder + "/tensors.gguf", every_tensor_type());
  GgufBuilder small = small_model();
  write(folder + "/small.gguf", small);
  small.version = 2;
  small.erase_tensor("output.weight");
  write(folder + "/tied-v2.gguf", small);
  SmallShape mixed;
  mixed.matrices = TensorType::kQ4_1;
  mixed.head = TensorType::kF16;
  write(folder + "/mixed.gguf", small_model(mixed));
  write(folder + "/whole.gguf", whole_model());
}

}  // namespace
}  // namespace minfer::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_gguf_seeds FOLDER\n");
    return 2;
  }
  minfer::test::write_all(argv[1]);
}
