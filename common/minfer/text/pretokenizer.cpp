// SPDX-License-Identifier: MIT
#include <minfer/text/pretokenizer.h>

#include <minfer/text/unicode_table.h>
#include <minfer/text/utf8.h>

namespace minfer {
namespace {

/// A character of the text, or (with size 0) the end of it.
struct Char {
  char32_t code_point = 0;
  std::size_t size = 0;
  CharClass char_class = CharClass::kOther;

  bool at_end() const { return size == 0; }
  bool is(CharClass c) const { return !at_end() && char_class == c; }
  bool is_newline() const { return !at_end() && (code_point == U'\n' || code_point == U'\r'); }
};

Char read(std::string_view text, std::size_t pos) {
  if (pos >= text.size()) return {};
  const Utf8Char c = read_utf8(text, pos);
  return {c.code_point, c.size, char_class(c.code_point)};
}

std::size_t skip(std::string_view text, std::size_t pos, CharClass char_class) {
  for (Char c = read(text, pos); c.is(char_class); c = read(text, pos)) pos += c.size;
  return pos;
}

std::size_t skip_newlines(std::string_view text, std::size_t pos) {
  while (pos < text.size() && (text[pos] == '\n' || text[pos] == '\r')) ++pos;
  return pos;
}

/// The lower-case letter that a character matches where case is ignored: besides the capitals,
/// U+017F, the long s, folds to s.
char32_t fold_case(char32_t c) {
  if (c >= U'A' && c <= U'Z') return c - U'A' + U'a';
  return c == U'\u017F' ? U's' : c;
}

/// The end of 's 't 'm 'd 're 've 'll at `begin`, or `begin`.
std::size_t match_contraction(std::string_view text, std::size_t begin) {
  if (text[begin] != '\'') return begin;
  const Char first = read(text, begin + 1);
  const std::size_t after_first = begin + 1 + first.size;
  switch (fold_case(first.code_point)) {
    case U's':
    case U't':
    case U'm':
    case U'd':
      return after_first;
    case U'r':
    case U'v':
    case U'l':
      break;
    default:
      return begin;
  }
  const Char second = read(text, after_first);
  const char32_t expected = fold_case(first.code_point) == U'l' ? U'l' : U'e';
  return fold_case(second.code_point) == expected ? after_first + second.size : begin;
}

/// The end of a run of letters with at most one character before it, or `begin`.
std::size_t match_word(std::string_view text, std::size_t begin, const Char& first) {
  if (first.is(CharClass::kNumber) || first.is_newline()) return begin;
  const std::size_t after_first = begin + first.size;
  const std::size_t end = skip(text, after_first, CharClass::kLetter);
  return end > after_first || first.is(CharClass::kLetter) ? end : begin;
}

/// The end of a run of signs, with a space before and newlines after it, or `begin`.
std::size_t match_signs(std::string_view text, std::size_t begin) {
  const std::size_t signs = begin + (text[begin] == ' ' ? 1 : 0);
  const std::size_t end = skip(text, signs, CharClass::kOther);
  return end > signs ? skip_newlines(text, end) : begin;
}

/// The end of white space. Up to its last newline, if it has one; else all of it at the text's end;
/// else all but its last character, which may belong to what follows, unless it is the only one.
/// A run is looked at three times at most: to its newline, without its last character, and that.
std::size_t match_space(std::string_view text, std::size_t begin) {
  std::size_t after_newline = begin;
  std::size_t last = begin;
  std::size_t end = begin;
  for (Char c = read(text, end); c.is(CharClass::kSpace); c = read(text, end)) {
    last = end;
    end += c.size;
    if (c.is_newline()) after_newline = end;
  }
  if (after_newline > begin) return after_newline;
  return end == text.size() || last == begin ? end : last;
}

}  // namespace

std::size_t piece_end(std::string_view text, std::size_t begin) {
  const std::size_t contraction = match_contraction(text, begin);
  if (contraction > begin) return contraction;

  const Char first = read(text, begin);
  const std::size_t word = match_word(text, begin, first);
  if (word > begin) return word;

  if (first.is(CharClass::kNumber)) return begin + first.size;

  const std::size_t signs = match_signs(text, begin);
  if (signs > begin) return signs;

  return match_space(text, begin);
}

}  // namespace minfer
