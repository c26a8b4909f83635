// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <minfer/gguf/gguf.h>
#include <minfer/text/bpe.h>
#include <minfer/token.h>

namespace minfer {

/// Kinds of tokens, with GGUF's own numbers. (2, unknown, and 6, byte, belong to other tokenizers.)
enum class TokenType : std::uint8_t {
  kNormal = 1,
  kControl = 3,      ///< begins or ends a turn and the like: no text
  kUserDefined = 4,  ///< text that is always one token
  kUnused = 5,       ///< a row of the matrices that stands for no token
};

/// A list of strings in one block of memory.
class StringList {
 public:
  void reserve(std::size_t count, std::size_t bytes);
  void push_back(std::string_view text);
  std::size_t size() const { return ends_.size(); }
  std::string_view operator[](std::size_t i) const;

 private:
  std::string text_;
  std::vector<std::uint32_t> ends_;  // [size()] where in text_ each ends
};

/// The tokens of a byte-level BPE model, by id and by text, read from a file and checked.
///
/// A normal token's text is spelt in an alphabet of 256 printable characters, one for each byte: a
/// byte that is a visible character of Latin-1 stands for itself, the other 68 for U+0100 and on
/// (GPT-2, `bytes_to_unicode`). So ` the` is listed as `Ġthe`. Other tokens are listed as they are.
class Vocabulary {
 public:
  /// @throws FileError when a list is missing or malformed, a token occurs twice, one of the 256
  ///         bytes has no token, a normal token is not spelt in the alphabet, or an UNUSED token
  ///         stands before one that is none (ids of real tokens are 0 .. n_tokens-1, without gaps)
  explicit Vocabulary(const GgufFile& file);

  std::uint32_t n_vocab() const { return static_cast<std::uint32_t>(types_.size()); }
  std::uint32_t n_tokens() const { return n_tokens_; }

  /// @pre 0 <= id < n_vocab(), in these three
  TokenType type(Token id) const { return types_[id]; }
  std::string_view name(Token id) const { return names_[id]; }   ///< as the file lists it
  std::string_view bytes(Token id) const { return bytes_[id]; }  ///< empty for kControl, kUnused

  /// The token that the file lists under this name, or -1. UNUSED ones are not found.
  Token find(std::string_view name) const;
  const ByteTokens& byte_tokens() const { return byte_tokens_; }

 private:
  /// A token of the index, which compares hashes before names.
  struct Entry {
    std::uint32_t hash;
    Token id;
  };

  void read_types(const GgufFile& file, std::size_t n_names);
  void read_names(const GgufFile& file, const std::vector<std::string_view>& names);
  void index_names(const GgufFile& file);
  void find_byte_tokens(const GgufFile& file);
  std::size_t bucket_of(std::uint32_t hash) const { return hash & (bucket_ends_.size() - 1); }

  std::uint32_t n_tokens_ = 0;
  std::vector<TokenType> types_;
  StringList names_;
  StringList bytes_;
  // By bucket, then hash, then name, and searched by halves: names that were chosen to collide are
  // compared, but never each with each.
  std::vector<Entry> entries_;              // [n_tokens]
  std::vector<std::uint32_t> bucket_ends_;  // [a power of two] where in entries_ each bucket ends
  ByteTokens byte_tokens_ = {};
};

}  // namespace minfer
