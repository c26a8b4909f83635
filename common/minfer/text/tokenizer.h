// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <minfer/gguf/gguf.h>
#include <minfer/span.h>
#include <minfer/token.h>

namespace minfer {

/// A part of a text: with `specials`, control and user-defined tokens are recognised in it.
struct TextPart {
  std::string text;
  bool specials;
};

/// Byte-level BPE as Qwen2.5 uses it, read from a GGUF file's vocabulary and merges: the ids are
/// those of the `tokenizers` package set up with the same. It adds no BOS and, as llama.cpp,
/// normalizes nothing (the hub's tokenizer applies NFC).
///
/// It keeps nothing of the file, and may be used by several threads at once.
class Tokenizer {
 public:
  /// @throws FileError when the vocabulary is missing, of another kind, or contradicts itself; also
  ///         when UNUSED tokens stand before others, since ids of real tokens have no gaps here
  explicit Tokenizer(const GgufFile& file);
  Tokenizer(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// The ids of a text, in which `<|im_end|>` and its like are plain characters. Bytes that are
  /// not UTF-8 are encoded as the bytes they are. @throws std::length_error from 2^31 bytes on
  std::vector<Token> encode(std::string_view text) const;
  /// The same, with control and user-defined tokens recognised where they stand in the text: the
  /// one that begins first, and of those that begin there the longest.
  std::vector<Token> encode_with_specials(std::string_view text) const;
  /// The same for one text in parts: plain tokens may reach over the ends of parts.
  std::vector<Token> encode(Span<const TextPart> parts) const;

  /// The bytes of one token; empty for control tokens and for ids that name none. Bytes, not
  /// characters: see Utf8Stream.
  std::string_view bytes(Token id) const;
  /// A token as text to look at, control tokens by name.
  std::string_view name(Token id) const;
  /// The bytes of all tokens in a row.
  std::string decode(Span<const Token> ids) const;

  std::uint32_t n_vocab() const;   ///< entries of the list, UNUSED ones included
  std::uint32_t n_tokens() const;  ///< real tokens: ids 0 .. n_tokens-1
  bool is_valid(Token id) const { return id >= 0 && std::uint32_t(id) < n_tokens(); }
  /// Ends an answer: `<|im_end|>`, `<|endoftext|>` and the file's own eos.
  bool is_stop(Token id) const;
  /// The id of a special token by its text. @throws FileError when there is none
  Token special(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minfer
