// SPDX-License-Identifier: MIT
//
// A vocabulary small enough to be read: the 256 bytes, some merges, some special tokens, and two
// UNUSED rows. Tests change what they are about before they build a file of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/builder.h"
#include "gguf/temp_file.h"

namespace minfer::test {

/// A byte as byte-level BPE spells it, told apart by its own list: the 68 bytes that are not
/// visible in Latin-1 (controls, space, delete, no-break space, soft hyphen) are U+0100 and on.
inline std::string byte_letter(unsigned byte) {
  unsigned code_point = byte;
  if (byte <= 0x20) {
    code_point = 0x100 + byte;
  } else if (byte >= 0x7F && byte <= 0xA0) {
    code_point = 0x121 + (byte - 0x7F);
  } else if (byte == 0xAD) {
    code_point = 0x143;
  }
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

/// Text as byte-level BPE spells it.
inline std::string spelt(const std::string& text) {
  std::string name;
  for (const unsigned char byte : text) name += byte_letter(byte);
  return name;
}

struct SmallVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<std::string> merges;

  /// Adds a token of GGUF's type `type`; returns its id.
  std::int32_t add(const std::string& name, std::int32_t type) {
    tokens.push_back(name);
    types.push_back(type);
    return static_cast<std::int32_t>(tokens.size()) - 1;
  }
  /// Adds a merge, spelt in plain text, and its result unless that is there.
  void merge(const std::string& left, const std::string& right) {
    merges.push_back(spelt(left) + " " + spelt(right));
    for (const std::string& token : tokens) {
      if (token == spelt(left + right)) return;
    }
    add(spelt(left + right), 1);
  }

  GgufBuilder builder() const {
    GgufBuilder b;
    b.set("general.architecture", "qwen2");
    b.set("tokenizer.ggml.model", "gpt2");
    b.set("tokenizer.ggml.pre", "qwen2");
    b.set("tokenizer.ggml.tokens", tokens);
    b.set("tokenizer.ggml.token_type", types);
    b.set("tokenizer.ggml.merges", merges);
    b.set("tokenizer.ggml.add_bos_token", false);
    return b;
  }
};

/// Token b is the byte b, and that is all.
inline SmallVocabulary byte_vocabulary() {
  SmallVocabulary v;
  for (unsigned byte = 0; byte < 256; ++byte) v.add(byte_letter(byte), 1);
  return v;
}

/// The bytes, the merges' results in order, the special tokens, two UNUSED rows.
inline SmallVocabulary small_vocabulary() {
  SmallVocabulary v = byte_vocabulary();
  v.merge("h", "e");          // 256
  v.merge("l", "l");          // 257
  v.merge("he", "ll");        // 258
  v.merge("hell", "o");       // 259
  v.merge(" ", "hello");      // 260
  v.merge("\xC3", "\xA9");    // 261, an e with an acute accent
  v.merge("a", "a");          // 262
  v.merge("aa", "aa");        // 263
  v.merge(" ", " ");          // 264
  v.merge("\n", "\n");        // 265
  v.add("<|endoftext|>", 3);  // 266
  v.add("<|im_start|>", 3);   // 267
  v.add("<|im_end|>", 3);     // 268
  v.add("<tool>", 4);         // 269
  v.add("<tool> call", 4);    // 270
  v.add("[PAD271]", 5);
  v.add("[PAD272]", 5);
  return v;
}

/// Opens a file that is built and thrown away again.
inline GgufFile open_built(GgufBuilder builder) {
  TempDir dir;
  return GgufFile::open(dir.write("small.gguf", builder.build()));
}

}  // namespace minfer::test
