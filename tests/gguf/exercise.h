// SPDX-License-Identifier: MIT
#pragma once

#include <minfer/gguf/model.h>
#include <minfer/text/tokenizer.h>

#include <cmath>
#include <string>
#include <vector>

namespace minfer::test {

/// Reads every value that a tensor holds: all its bytes, as its type has them.
inline void read_all(const Tensor& tensor) {
  const std::uint64_t columns = tensor.shape[0];
  const std::uint64_t bytes = row_bytes(tensor.type, columns);
  std::vector<float> row(columns);
  for (std::uint64_t done = 0; done < tensor.bytes; done += bytes) {
    dequantize_row(tensor.type, tensor.data + done, columns, row.data());
  }
}

/// Does with a file what a program does before it computes, and looks at every byte it was given.
/// @throws FileError when the file is refused
inline void exercise(const std::string& path, ReadMode mode) {
  const GgufFile file = GgufFile::open(path, mode);
  for (const Tensor& tensor : file.tensors()) read_all(tensor);

  const Model model = Model::load(path, {mode, true});
  const auto use = [&](const Matrix& m) {
    std::vector<float> row(m.cols);
    dequantize_row(m.type, m.data + (m.rows - 1) * row_bytes(m.type, m.cols), m.cols, row.data());
  };
  volatile float sum = 0;
  for (const LayerWeights& layer : model.layers()) {
    for (const Matrix* m : {&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o, &layer.w_gate,
                            &layer.w_up, &layer.w_down}) {
      use(*m);
    }
    sum = sum + layer.b_q[model.config().d_q() - 1] + layer.b_k[model.config().d_kv() - 1] +
          layer.b_v[model.config().d_kv() - 1] + layer.ffn_norm[model.config().d_model - 1];
  }
  use(model.token_embedding());
  use(model.lm_head());
  if (model.describe().empty() || model.bytes_per_token() == 0) throw std::logic_error("nothing");
  for (const Tensor& tensor : model.file().tensors()) model.file().release(tensor);
  for (const Tensor& tensor : model.file().tensors()) read_all(tensor);

  const Tokenizer tokenizer(model.file());
  const std::string text = "ab\xc3\xa9 <|im_end|>\n";
  const std::vector<Token> ids = tokenizer.encode_with_specials(text);
  if (tokenizer.decode(tokenizer.encode(text)) != text) throw std::logic_error("text was lost");
  tokenizer.decode(ids);
}

}  // namespace minfer::test
