// SPDX-License-Identifier: MIT
#include <minfer/text/jinja_expressions.h>

#include <cstddef>

namespace minfer {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view strip(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// The place after the string literal that begins at `pos`; the end where it is not closed.
std::size_t skip_literal(std::string_view text, std::size_t pos) {
  const char quote = text[pos++];
  while (pos < text.size() && text[pos] != quote) pos += text[pos] == '\\' ? 2 : 1;
  return pos < text.size() ? pos + 1 : text.size();
}

/// `{{ ... }}`, `{% ... %}` or `{# ... #}`. A hyphen within a bracket removes the white space
/// outside of it.
struct Tag {
  char kind;  // '{', '%' or '#'
  std::size_t begin;
  std::size_t end;
  std::string_view inside;
  bool strips_before;
  bool strips_after;
};

/// The first tag at `pos` or later; false if there is none. An unclosed one goes to the end.
bool find_tag(std::string_view source, std::size_t pos, Tag& tag) {
  for (;; ++pos) {
    pos = source.find('{', pos);
    if (pos == std::string_view::npos || pos + 1 >= source.size()) return false;
    tag.kind = source[pos + 1];
    if (tag.kind == '{' || tag.kind == '%' || tag.kind == '#') break;
  }
  const std::string close = {tag.kind == '{' ? '}' : tag.kind, '}'};
  std::size_t i = pos + 2;
  while (i < source.size() && source.substr(i, 2) != close) {
    const bool is_quote = tag.kind != '#' && (source[i] == '\'' || source[i] == '"');
    i = is_quote ? skip_literal(source, i) : i + 1;
  }
  tag.begin = pos;
  tag.end = i < source.size() ? i + 2 : source.size();
  tag.inside = source.substr(pos + 2, i - (pos + 2));
  tag.strips_before = !tag.inside.empty() && tag.inside.front() == '-';
  if (tag.strips_before) tag.inside.remove_prefix(1);
  tag.strips_after = !tag.inside.empty() && tag.inside.back() == '-';
  if (tag.strips_after) tag.inside.remove_suffix(1);
  return true;
}

/// The text of a whole string literal, its escapes resolved.
std::string unescape(std::string_view literal) {
  std::string text;
  for (std::size_t i = 1; i + 1 < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 2 >= literal.size()) {
      text += literal[i];
      continue;
    }
    switch (literal[++i]) {
      case 'n':
        text += '\n';
        break;
      case 't':
        text += '\t';
        break;
      case '\\':
      case '\'':
      case '"':
        text += literal[i];
        break;
      default:  // an escape that no chat template needs
        return JinjaExpressions::kOther;
    }
  }
  return text;
}

/// True of `message.role` and `message['role']`, for any name of the variable.
bool is_field(std::string_view term, const std::string& field) {
  const std::size_t name_end = term.find_first_of(".[");
  if (name_end == 0 || name_end == std::string_view::npos) return false;
  for (const char c : term.substr(0, name_end)) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!is_letter) return false;
  }
  const std::string_view access = term.substr(name_end);
  return access == "." + field || access == "['" + field + "']" || access == "[\"" + field + "\"]";
}

std::string read_term(std::string_view term) {
  if (!term.empty() && (term.front() == '\'' || term.front() == '"')) {
    return skip_literal(term, 0) == term.size() ? unescape(term) : JinjaExpressions::kOther;
  }
  if (is_field(term, "role")) return JinjaExpressions::kRole;
  if (is_field(term, "content")) return JinjaExpressions::kContent;
  return JinjaExpressions::kOther;
}

/// Reads `term + term + ...`.
std::string read_sum(std::string_view sum) {
  std::string text;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= sum.size();) {
    if (i == sum.size() || sum[i] == '+') {
      text += read_term(strip(sum.substr(begin, i - begin)));
      begin = ++i;
    } else if (sum[i] == '\'' || sum[i] == '"') {
      i = skip_literal(sum, i);
    } else {
      ++i;
    }
  }
  return text;
}

/// Whether the text between two tags, or before the first or after the last, prints nothing.
bool vanishes(std::string_view text, bool stripped, bool at_end) {
  if (text.empty() || (at_end && text == "\n")) return true;  // Jinja drops the last newline
  return stripped && strip(text).empty();
}

}  // namespace

JinjaExpressions read_jinja_expressions(std::string_view source) {
  JinjaExpressions outputs;
  std::size_t pos = 0;
  bool stripped = false;
  Tag tag;
  while (find_tag(source, pos, tag)) {
    const std::string_view between = source.substr(pos, tag.begin - pos);
    if (!vanishes(between, stripped || tag.strips_before, false)) {
      outputs.prints_text_between_tags = true;
    }
    if (tag.kind == '{') outputs.expressions.push_back(read_sum(tag.inside));
    pos = tag.end;
    stripped = tag.strips_after;
  }
  if (!vanishes(source.substr(pos), stripped, true)) outputs.prints_text_between_tags = true;
  return outputs;
}

}  // namespace minfer
