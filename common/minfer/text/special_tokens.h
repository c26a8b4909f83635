// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <minfer/text/vocabulary.h>
#include <minfer/token.h>

namespace minfer {

/// Finds the names of control and user-defined tokens in a text. Where several begin at one place
/// the longest counts, and of those that overlap the one that begins first.
class SpecialTokens {
 public:
  SpecialTokens() = default;
  explicit SpecialTokens(const Vocabulary& vocabulary);

  /// A token's name, found at `begin`; `id` is -1 and `begin` the text's end where there is none.
  struct Match {
    std::size_t begin;
    std::size_t end;
    Token id;
  };
  /// The first match that begins at `pos` or later.
  Match find(std::string_view text, std::size_t pos) const;

  /// The special token of this name, or -1.
  Token id_of(std::string_view name) const;

 private:
  struct Entry {
    std::string name;
    Token id;
  };
  Match longest_at(std::string_view text, std::size_t pos) const;

  std::vector<Entry> entries_;    // by name
  bool is_first_byte_[256] = {};  // of some name
};

}  // namespace minfer
