// SPDX-License-Identifier: MIT
#include <minfer/text/jinja.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <tuple>
#include <utility>
#include <variant>

#include <minfer/error.h>

namespace minfer {
namespace {

using Tag = JinjaTemplate::Tag;

constexpr std::string_view kBlanks = " \t\n\r";
constexpr std::string_view kNameCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::size_t kMostTags = 1000;  // Qwen2.5's template has 55; blocks nest half as deeply
constexpr int kMostBrackets = 20;        // one within the other

[[noreturn]] void refuse(const std::string& what) {
  throw JinjaError(what);
}

// --- tags ----------------------------------------------------------------------------------------

/// The place after the string literal that begins at `pos`.
std::size_t skip_literal(std::string_view text, std::size_t pos) {
  const char quote = text[pos++];
  while (pos < text.size() && text[pos] != quote) pos += text[pos] == '\\' ? 2 : 1;
  if (pos >= text.size()) refuse("has a string that is not closed");
  return pos + 1;
}

/// The place of the two characters that close a tag: outside of strings and of other brackets; of a
/// comment, the first.
std::size_t end_of_tag(std::string_view source, std::size_t pos, char kind) {
  const char close[] = {kind == '{' ? '}' : kind, '}', '\0'};
  for (int depth = 0; pos < source.size();) {
    if (depth == 0 && source.substr(pos, 2) == close) return pos;
    const char c = kind == '#' ? ' ' : source[pos];
    pos = c == '\'' || c == '"' ? skip_literal(source, pos) : pos + 1;
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    if (depth < 0 || depth > kMostBrackets) refuse("has brackets that do not fit");
  }
  refuse("has a tag that is not closed");
}

/// Cuts a template into its tags. What stands between two is white space that a hyphen within a
/// bracket removes, or else is refused.
std::vector<Tag> cut(std::string_view source) {
  std::vector<Tag> tags;
  bool stripped = false;
  const auto check_between = [&](std::string_view text) {
    const bool blank = text.find_first_not_of(kBlanks) == std::string_view::npos;
    if (!text.empty() && !(stripped && blank)) refuse("prints text between its tags");
  };
  std::size_t pos = 0;
  for (std::size_t begin = 0; begin + 1 < source.size(); ++begin) {
    const char kind = source[begin + 1];
    if (source[begin] != '{' || (kind != '{' && kind != '%' && kind != '#')) continue;
    const std::size_t end = end_of_tag(source, begin + 2, kind);
    std::string_view inside = source.substr(begin + 2, end - (begin + 2));
    const bool plus = !inside.empty() && (inside.front() == '+' || inside.back() == '+');
    if (plus) refuse("has a tag with +");
    const bool strips_before = !inside.empty() && inside.front() == '-';
    if (strips_before) inside.remove_prefix(1);
    stripped = stripped || strips_before;
    check_between(source.substr(pos, begin - pos));
    stripped = !inside.empty() && inside.back() == '-';
    if (stripped) inside.remove_suffix(1);
    if (kind != '#') tags.push_back({kind == '{', std::string(inside)});
    if (tags.size() > kMostTags) refuse("has more than 1000 tags");
    pos = end + 2;
    begin = pos - 1;
  }
  const std::string_view rest = source.substr(pos);
  check_between(rest == "\n" ? "" : rest);  // Jinja drops the last newline
  return tags;
}

// --- expressions ---------------------------------------------------------------------------------

using Text = std::vector<TextPart>;
struct Undefined {};
struct None {};
struct Messages {};
struct Loop {};
using Value =
    std::variant<Undefined, None, bool, std::size_t, Text, const Message*, Messages, Loop>;

/// What rendering one conversation knows.
struct State {
  const std::vector<Message>& messages;
  std::string variable;   // of the loop over them; empty outside of it
  std::size_t index = 0;  // of its message
};

std::string joined(const Text& text) {
  std::string all;
  for (const TextPart& part : text) all += part.text;
  return all;
}

/// Evaluates what stands in a tag, from the left. Jinja leaves out what stands to the right of an
/// `and` or `or` that is decided; here that is evaluated, which changes nothing but that more is
/// refused.
class Expression {
 public:
  Expression(std::string_view text, const State& state) : text_(text), state_(state) {}

  /// The rest of the tag as a value.
  Value value() {
    Value value = either();
    skip_blanks();
    if (pos_ < text_.size()) fail(quoted(text_.substr(pos_)));
    return value;
  }

  bool truth(const Value& value) const {
    if (const bool* b = std::get_if<bool>(&value)) return *b;
    if (const std::size_t* n = std::get_if<std::size_t>(&value)) return *n != 0;
    if (const Text* text = std::get_if<Text>(&value)) return !joined(*text).empty();
    if (std::holds_alternative<Messages>(value)) return !state_.messages.empty();
    return !std::holds_alternative<Undefined>(value) && !std::holds_alternative<None>(value);
  }

  /// A name or keyword; empty where there is none.
  std::string name() {
    skip_blanks();
    const std::size_t begin = pos_;
    pos_ = std::min(text_.find_first_not_of(kNameCharacters, pos_), text_.size());
    return std::string(text_.substr(begin, pos_ - begin));
  }

  /// Whether this sign or keyword comes next, which is then taken.
  bool take(std::string_view token) {
    skip_blanks();
    const std::size_t begin = pos_;
    const bool is_word = !name().empty();
    if (!is_word) pos_ = std::min(begin + token.size(), text_.size());
    if (text_.substr(begin, pos_ - begin) == token) return true;
    pos_ = begin;
    return false;
  }

  void expect(std::string_view token) {
    if (!take(token)) fail("no " + quoted(token));
  }

 private:
  char next() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  void skip_blanks() { pos_ = std::min(text_.find_first_not_of(kBlanks, pos_), text_.size()); }
  [[noreturn]] void fail(const std::string& what) const {
    refuse("has " + what + " in " + quoted(text_));
  }

  /// `a and b or c and d`, of which only the truth is of use here.
  Value either() {
    Value left = both();
    while (take("or")) left = truth(both()) || truth(left);
    return left;
  }

  Value both() {
    Value left = negation();
    while (take("and")) left = truth(negation()) && truth(left);
    return left;
  }

  Value negation() {
    if (take("not")) return !truth(comparison());
    return comparison();
  }

  Value comparison() {
    Value left = sum();
    const bool same = take("==");
    if (!same && !take("!=")) return left;
    const Value right = sum();
    const auto [a, b] = std::pair(std::get_if<Text>(&left), std::get_if<Text>(&right));
    if (a && b) return (joined(*a) == joined(*b)) == same;
    const auto [m, n] =
        std::pair(std::get_if<std::size_t>(&left), std::get_if<std::size_t>(&right));
    if (!m || !n) fail("a comparison of other things than strings");
    return (*m == *n) == same;
  }

  Value sum() {
    Value left = tested();
    while (take("+")) {
      const Value right = tested();
      Text* text = std::get_if<Text>(&left);
      const Text* more = std::get_if<Text>(&right);
      if (!text || !more) fail("a sum of other things than strings");
      text->insert(text->end(), more->begin(), more->end());
    }
    return left;
  }

  Value tested() {
    Value value = accessed();
    while (take("is")) {
      const bool negative = take("not");
      const std::string test = name();
      if (test != "none" && test != "defined") fail("the test " + quoted(test));
      value = (test == "none" ? std::holds_alternative<None>(value)
                              : !std::holds_alternative<Undefined>(value)) != negative;
    }
    return value;
  }

  /// A value with fields and elements after it.
  Value accessed() {
    Value value = primary();
    for (;;) {
      if (take(".")) {
        value = field(value, name());
      } else if (take("[")) {
        const Value key = either();
        expect("]");
        const Text* text = std::get_if<Text>(&key);
        value = text ? field(value, joined(*text)) : element(value, key);
      } else if (take("(")) {
        fail("a call");
      } else if (take("|")) {
        fail("the filter " + quoted(name()));
      } else {
        return value;
      }
    }
  }

  Value field(const Value& value, const std::string& name) const {
    if (const auto* message = std::get_if<const Message*>(&value)) {
      constexpr const char* kRoles[] = {"system", "user", "assistant"};
      if (name == "role") return Text{{kRoles[static_cast<int>((*message)->role)], true}};
      if (name == "content") return Text{{(*message)->content, false}};
      if (name == "tool_calls") return Undefined{};
    } else if (std::holds_alternative<Loop>(value)) {
      if (name == "first") return state_.index == 0;
      if (name == "last") return state_.index + 1 == state_.messages.size();
      if (name == "index0") return state_.index;
    }
    fail("the field " + quoted(name));
  }

  Value element(const Value& value, const Value& key) const {
    const std::size_t* index = std::get_if<std::size_t>(&key);
    if (!std::holds_alternative<Messages>(value) || !index) fail("an element of no list");
    if (*index >= state_.messages.size()) return Undefined{};
    return &state_.messages[*index];
  }

  Value primary() {
    if (take("(")) {
      Value value = either();
      expect(")");
      return value;
    }
    skip_blanks();
    if (next() == '\'' || next() == '"') return literal();
    if (next() >= '0' && next() <= '9') return number();
    const std::string found = name();
    const bool in_loop = !state_.variable.empty();
    if (in_loop && found == state_.variable) return &state_.messages[state_.index];
    if (in_loop && found == "loop") return Loop{};
    if (found == "messages") return Messages{};
    if (found == "add_generation_prompt" || found == "true") return true;
    if (found == "false") return false;
    if (found == "tools" || found == "none") return None{};
    fail(found.empty() ? "no value" : "the name " + quoted(found));
  }

  Value number() {
    std::size_t value = 0;
    const std::string digits = name();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || *end != '\0') fail("the number " + quoted(digits));
    return value;
  }

  /// A string, its escapes resolved.
  Value literal() {
    const std::size_t end = skip_literal(text_, pos_);
    std::string text;
    for (++pos_; pos_ + 1 < end; ++pos_) {
      const bool is_escape = next() == '\\';
      if (is_escape) ++pos_;
      const char c = next();
      if (c == '\r' ||
          (is_escape && std::string_view("nt\\'\"").find(c) == std::string_view::npos)) {
        fail("an unknown escape");
      }
      text += is_escape && c == 'n' ? '\n' : is_escape && c == 't' ? '\t' : c;
    }
    pos_ = end;
    return Text{{text, true}};
  }

  std::string_view text_;
  const State& state_;
  std::size_t pos_ = 0;
};

// --- statements ----------------------------------------------------------------------------------

class Renderer {
 public:
  Renderer(const std::vector<Tag>& tags, const std::vector<Message>& messages)
      : tags_(tags), state_{messages, "", 0} {}

  Text render() {
    const std::string end = block(true);
    if (!end.empty()) refuse("has {% " + end + " %} that ends nothing");
    return std::move(printed_);
  }

 private:
  /// Renders up to the statement that ends or divides a block, and gives its keyword; empty at the
  /// template's end. What is not live is passed by.
  std::string block(bool live) {
    for (; at_ < tags_.size(); ++at_) {
      Expression tag(tags_[at_].text, state_);
      if (tags_[at_].prints) {
        if (live) print(tag);
        continue;
      }
      const std::string keyword = tag.name();
      if (keyword == "if") {
        conditional(live);
      } else if (keyword == "for") {
        loop(tag, live);
      } else if (keyword == "elif" || keyword == "else" || keyword == "endif" ||
                 keyword == "endfor") {
        return keyword;
      } else if (live || keyword == "raw") {
        refuse("has {% " + keyword + " %}");
      }
    }
    return "";
  }

  void print(Expression& tag) {
    const Value value = tag.value();
    const Text* text = std::get_if<Text>(&value);
    if (!text) refuse("prints what is no string");
    printed_.insert(printed_.end(), text->begin(), text->end());
  }

  void conditional(bool live) {
    bool done = !live;
    for (std::string keyword = "if"; keyword != "endif";) {
      Expression tag(tags_[at_++].text, state_);
      tag.name();
      const bool taken = !done && (keyword == "else" || tag.truth(tag.value()));
      done = done || taken;
      keyword = block(taken);
      if (keyword.empty() || keyword == "endfor") refuse("has an {% if %} without {% endif %}");
    }
  }

  void loop(Expression& tag, bool live) {
    const std::string variable = tag.name();
    if (live) {
      tag.expect("in");
      const bool over_messages = std::holds_alternative<Messages>(tag.value());
      if (!over_messages) refuse("has a loop over other things than messages");
      if (!state_.variable.empty()) refuse("has a loop in a loop");
    }
    const std::size_t body = at_ + 1, count = live ? state_.messages.size() : 0;
    for (std::size_t i = 0; i == 0 || i < count; ++i) {
      if (count > 0) std::tie(state_.variable, state_.index) = std::tie(variable, i);
      at_ = body;
      std::string end = block(count > 0);
      while (end == "else" && !live) end = (++at_, block(false));
      if (end != "endfor") refuse("has {% " + end + " %} where {% endfor %} belongs");
    }
    if (live) state_.variable.clear();
  }

  const std::vector<Tag>& tags_;
  State state_;
  std::size_t at_ = 0;
  Text printed_;
};

}  // namespace

JinjaTemplate::JinjaTemplate(std::string_view source) : tags_(cut(source)) {}

std::vector<TextPart> JinjaTemplate::render(const std::vector<Message>& messages) const {
  return Renderer(tags_, messages).render();
}

}  // namespace minfer
