// SPDX-License-Identifier: MIT
//
// What may come next, taken from what came before, and whether guessing it pays.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <minfer/span.h>
#include <minfer/token.h>

#include "cuda/step.h"

namespace minfer {

inline constexpr std::uint32_t kMaxDrafts = kMaxTokens - 1;  ///< a step's first token is known
inline constexpr std::uint32_t kLongestMatch = 3;

/// Where a text went on after it had ended as it ends now: draft i is what stands at i there.
struct Match {
  std::size_t end = 0;       ///< of what was read when it was made
  std::size_t from = 0;      ///< where the text went on
  std::uint32_t length = 0;  ///< tokens before it that are equal; 0: it never ended so

  /// A text that repeats itself within the draft is taken to go on doing so.
  Token draft(const std::vector<Token>& text, std::size_t i) const {
    return text[from + i % (end - from)];
  }
};

/// The latest place where the text's last three tokens stood before, else its last two, else one.
inline Match find_match(const std::vector<Token>& text) {
  const std::size_t n = text.size();
  Match best = {n, n, 0};
  for (std::size_t from = n; from-- > 1 && best.length < kLongestMatch;) {
    std::uint32_t length = 0;
    while (length < std::min<std::size_t>(from, kLongestMatch) &&
           text[from - 1 - length] == text[n - 1 - length]) {
      ++length;
    }
    if (length > best.length) best = {n, from, length};
  }
  return best;
}

/// Drafts for the tokens to come.
/// @why A draft is worth the tokens that it saves, less what the longer step takes. Both are known:
/// steps are timed, and how often a draft is right is counted by the length of its match, also
/// where none was tried: the next tokens tell all the same.
class Speculation {
 public:
  /// @param times  of a step, [0] that of one token; they say which drafts pay. None: all do
  explicit Speculation(std::vector<double> times = {}) : times_(std::move(times)) {}

  /// Reads what stands from a position on; the text that it read there before is forgotten.
  void read(Span<const Token> ids, std::size_t position) {
    if (position < text_.size()) {
      text_.resize(position);
      judged_ = {};
    }
    for (const Token id : ids) {
      judge(id);
      text_.push_back(id);
    }
  }

  /// The text's last token, and as many drafts, up to `limit`, as make the most tokens a second of
  /// a step: often none.
  std::vector<Token> next(std::size_t limit) {
    std::vector<Token> ids = {text_.back()};
    if (limit == 0) return ids;
    const Match match = find_match(text_);
    if (judged_.length == 0) judged_ = match;
    if (match.length == 0) return ids;
    const std::size_t n = best_number(records_[match.length].rate(), limit);
    while (ids.size() <= n) ids.push_back(match.draft(text_, ids.size() - 1));
    return ids;
  }

 private:
  /// How often drafts were right: of the last thirty or so, since a text changes.
  struct Record {
    double right, judged;
    double rate() const { return right / judged; }
    void add(bool is_right) {
      constexpr double kMemory = 1 - 1.0 / 32;
      right = right * kMemory + (is_right ? 1 : 0);
      judged = judged * kMemory + 1;
    }
  };

  /// Says of a draft, one at a time, how long it stays right.
  void judge(Token next) {
    if (judged_.length == 0) return;
    const std::size_t i = text_.size() - judged_.end;
    const bool is_right = next == judged_.draft(text_, i);
    records_[judged_.length].add(is_right);
    if (!is_right || i + 1 == kMaxDrafts) judged_ = {};
  }

  /// So many drafts of which each is right with probability `rate` make the most tokens a second.
  std::size_t best_number(double rate, std::size_t limit) const {
    if (times_.empty()) return std::min<std::size_t>(limit, kMaxDrafts);
    constexpr double kMargin = 1.05;  // the rate is a guess, and what a wrong one costs is certain
    std::size_t best = 0;
    double reached = 1, tokens = 1, best_speed = kMargin / times_[0];
    for (std::size_t n = 1; n <= limit && n < times_.size(); ++n) {
      reached *= rate;  // so likely are n drafts right, and bring one token more
      tokens += reached;
      if (tokens / times_[n] > best_speed) {
        best = n;
        best_speed = tokens / times_[n];
      }
    }
    return best;
  }

  std::vector<double> times_;
  std::vector<Token> text_;
  Match judged_;
  /// By the length of a match; a longer one is trusted more before anything is known.
  std::array<Record, kLongestMatch + 1> records_ = {{{0, 1}, {1, 4}, {1.5, 4}, {2, 4}}};
};

}  // namespace minfer
