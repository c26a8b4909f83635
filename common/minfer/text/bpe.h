// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <minfer/token.h>

namespace minfer {

/// One rule of byte-pair encoding: `left` and `right` side by side become `result`. Of all rules
/// that apply, the one of the lowest rank (its place in the model's list) is applied first.
struct Merge {
  Token left;
  Token right;
  Token result;
  std::uint32_t rank;
};

/// All merges of a model, found by the pair that they put together.
///
/// A lookup goes from `left` straight to its merges, and from there by binary search: unlike a hash
/// table this has no bad case that a hostile file could be made for.
class MergeTable {
 public:
  MergeTable() = default;
  /// @pre 0 <= left < n_vocab for every merge
  MergeTable(std::vector<Merge> merges, std::uint32_t n_vocab);

  /// The merge of this pair, or null. @pre 0 <= left < n_vocab
  const Merge* find(Token left, Token right) const;
  /// A merge whose pair another one has too, or null.
  const Merge* find_duplicate() const;

 private:
  std::vector<Merge> merges_;         // by left, then right, then rank
  std::vector<std::uint32_t> first_;  // [n_vocab + 1] where in merges_ those of a left token begin
};

/// The token of each single byte.
using ByteTokens = std::array<Token, 256>;

/// Byte-pair encoding of one piece of text at a time. Keeps its memory from piece to piece, so one
/// object serves one thread.
class BpeEncoder {
 public:
  /// Both must outlive the encoder.
  BpeEncoder(const ByteTokens& byte_tokens, const MergeTable& merges)
      : byte_tokens_(&byte_tokens), merges_(&merges) {}

  /// Appends the ids of `piece` to `ids`: its bytes, merged until no merge applies. Of merges with
  /// one rank the leftmost goes first. Takes O(n log n) time and 24 bytes of memory a byte or so,
  /// for a word of any length. @pre piece.size() < 2^31
  void append(std::string_view piece, std::vector<Token>& ids);

 private:
  /// A token of the piece, in a list that is linked in both directions.
  struct Symbol {
    Token id;  // kGone after it was merged into the one before it
    std::int32_t previous;
    std::int32_t next;  // kNone at the ends
  };
  /// A merge that applied to symbols_[position] and its successor when it was queued.
  struct Candidate {
    std::uint32_t rank;
    std::int32_t position;
    Token result;
  };
  static bool is_later(const Candidate& a, const Candidate& b);

  void split_into_bytes(std::string_view piece);
  const Merge* merge_at(std::int32_t position) const;
  void queue(std::int32_t position);
  void apply(const Candidate& candidate);

  const ByteTokens* byte_tokens_;
  const MergeTable* merges_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace minfer
