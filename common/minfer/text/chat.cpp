// SPDX-License-Identifier: MIT
#include <minfer/text/chat.h>

#include <optional>
#include <string_view>

#include <minfer/error.h>
#include <minfer/text/jinja_expressions.h>

namespace minfer {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";
constexpr std::string_view kBegin = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

[[noreturn]] void fail(const GgufFile& file, const std::string& what) {
  throw FileError(file.path(), "key " + quoted(kTemplateKey) + " " + what +
                                   ", expected ChatML; --raw leaves the template out");
}

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      break;
  }
  return "assistant";
}

/// What stands between a turn's two special tokens.
std::string turn_text(const Message& message) {
  return role_name(message.role) + ("\n" + message.content);
}

/// What begins the assistant's answer, after its special token.
constexpr std::string_view kAnswer = "assistant\n";

/// `text` without `prefix` and `suffix`; false where it has not both.
bool cut(std::string_view& text, std::string_view prefix, std::string_view suffix) {
  if (text.size() < prefix.size() + suffix.size()) return false;
  if (text.substr(0, prefix.size()) != prefix) return false;
  if (text.substr(text.size() - suffix.size()) != suffix) return false;
  text = text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
  return true;
}

/// The default system message, if `expression` prints a system turn with one.
std::optional<std::string> system_message(std::string_view expression) {
  if (!cut(expression, "<|im_start|>system\n", "<|im_end|>\n")) return std::nullopt;
  const bool is_plain = expression.find('\xFF') == std::string_view::npos &&
                        expression.find(kBegin) == std::string_view::npos &&
                        expression.find(kEnd) == std::string_view::npos;
  if (!is_plain) return std::nullopt;
  return std::string(expression);
}

}  // namespace

ChatTemplate::ChatTemplate(const GgufFile& file, const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer) {
  if (!file.has(kTemplateKey)) fail(file, "is missing");
  tokenizer.special(kBegin);
  tokenizer.special(kEnd);

  const JinjaExpressions outputs = read_jinja_expressions(file.get_string(kTemplateKey));
  if (outputs.prints_text_between_tags) fail(file, "prints text between its tags");

  const std::string turn = std::string(kBegin) + JinjaExpressions::kRole + "\n" +
                           JinjaExpressions::kContent + std::string(kEnd) + "\n";
  const std::string answer = std::string(kBegin) + std::string(kAnswer);
  bool has_turn = false;
  bool has_answer = false;
  for (const std::string& expression : outputs.expressions) {
    has_turn = has_turn || expression == turn;
    has_answer = has_answer || expression == answer;
    const std::optional<std::string> system = system_message(expression);
    if (!system) continue;
    if (default_system_ && *default_system_ != *system) {
      fail(file, "has two default system messages");
    }
    default_system_ = system;
  }
  if (!has_turn) fail(file, "prints no turn of <|im_start|>, role, content and <|im_end|>");
  if (!has_answer) fail(file, "does not begin the answer with <|im_start|>assistant");
}

std::vector<Message> ChatTemplate::with_system(const std::vector<Message>& messages) const {
  std::vector<Message> turns;
  const bool has_system = !messages.empty() && messages.front().role == Role::kSystem;
  if (!has_system && default_system_) turns.push_back({Role::kSystem, *default_system_});
  turns.insert(turns.end(), messages.begin(), messages.end());
  return turns;
}

std::vector<Token> ChatTemplate::encode(const std::vector<Message>& messages) const {
  const Token begin = tokenizer_->special(kBegin);
  const Token end = tokenizer_->special(kEnd);
  std::vector<Token> ids;
  const auto append = [&](std::string_view text) {
    const std::vector<Token> more = tokenizer_->encode(text);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  for (const Message& message : with_system(messages)) {
    ids.push_back(begin);
    append(turn_text(message));  // in one go: a token may reach over the end of the role's line
    ids.push_back(end);
    append("\n");
  }
  ids.push_back(begin);
  append(kAnswer);
  return ids;
}

std::string ChatTemplate::render(const std::vector<Message>& messages) const {
  std::string text;
  for (const Message& message : with_system(messages)) {
    text.append(kBegin).append(turn_text(message)).append(kEnd).append("\n");
  }
  return text.append(kBegin).append(kAnswer);
}

}  // namespace minfer
