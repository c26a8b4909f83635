// SPDX-License-Identifier: MIT
#include <minfer/text/special_tokens.h>

#include <algorithm>

namespace minfer {
namespace {

constexpr Token kNoToken = -1;

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) {
  for (std::uint32_t i = 0; i < vocabulary.n_tokens(); ++i) {
    const auto id = static_cast<Token>(i);
    if (vocabulary.type(id) == TokenType::kNormal) continue;
    const std::string_view name = vocabulary.name(id);
    entries_.push_back({std::string(name), id});
    is_first_byte_[static_cast<unsigned char>(name[0])] = true;
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
}

SpecialTokens::Match SpecialTokens::find(std::string_view text, std::size_t pos) const {
  for (; pos < text.size(); ++pos) {
    if (!is_first_byte_[static_cast<unsigned char>(text[pos])]) continue;
    const Match match = longest_at(text, pos);
    if (match.id != kNoToken) return match;
  }
  return {text.size(), text.size(), kNoToken};
}

/// Narrows the sorted names down to those that agree with the text, one byte after the other.
SpecialTokens::Match SpecialTokens::longest_at(std::string_view text, std::size_t pos) const {
  Match longest = {pos, pos, kNoToken};
  auto begin = entries_.begin();
  auto end = entries_.end();
  for (std::size_t length = 0; begin != end; ++length) {
    // All names in [begin, end) agree with the text so far; a name that ends here comes first.
    if (begin->name.size() == length) longest = {pos, pos + length, (begin++)->id};
    if (pos + length == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[pos + length]);
    const auto byte_of = [length](const Entry& entry) {
      return static_cast<unsigned char>(entry.name[length]);
    };
    begin = std::lower_bound(
        begin, end, byte, [&](const Entry& entry, unsigned char b) { return byte_of(entry) < b; });
    end = std::upper_bound(begin, end, byte,
                           [&](unsigned char b, const Entry& entry) { return b < byte_of(entry); });
  }
  return longest;
}

Token SpecialTokens::id_of(std::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, std::string_view n) { return entry.name < n; });
  return found != entries_.end() && found->name == name ? found->id : kNoToken;
}

}  // namespace minfer
