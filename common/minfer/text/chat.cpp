// SPDX-License-Identifier: MIT
#include <minfer/text/chat.h>

#include <minfer/error.h>

namespace minfer {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw FileError(
      path, "key " + quoted(kTemplateKey) + " " + what + "; run --raw leaves the template out");
}

[[noreturn]] void fail(const std::string& path, const JinjaError& error) {
  fail(path, std::string(error.what()) + ", which is not rendered here");
}

JinjaTemplate read_template(const GgufFile& file) {
  if (!file.has(kTemplateKey)) fail(file.path(), "is missing");
  try {
    return JinjaTemplate(file.get_string(kTemplateKey));
  } catch (const JinjaError& error) {
    fail(file.path(), error);
  }
}

}  // namespace

ChatTemplate::ChatTemplate(const GgufFile& file, const Tokenizer& tokenizer)
    : path_(file.path()), template_(read_template(file)), tokenizer_(&tokenizer) {
  tokenizer.special("<|im_start|>");
  parts({{Role::kUser, "?"}, {Role::kAssistant, "!"}, {Role::kUser, "?"}});
}

std::vector<TextPart> ChatTemplate::parts(const std::vector<Message>& messages) const {
  try {
    std::vector<TextPart> parts = template_.render(messages);
    std::vector<std::string_view> said, wanted;
    for (const TextPart& part : parts) {
      if (!part.specials && !part.text.empty()) said.push_back(part.text);
    }
    for (const Message& message : messages) {
      if (!message.content.empty()) wanted.push_back(message.content);
    }
    if (said != wanted) fail(path_, "does not print every message once, in order");
    return parts;
  } catch (const JinjaError& error) {
    fail(path_, error);
  }
}

std::vector<Token> ChatTemplate::encode(const std::vector<Message>& messages) const {
  return tokenizer_->encode(parts(messages));
}

std::string ChatTemplate::render(const std::vector<Message>& messages) const {
  std::string text;
  for (const TextPart& part : parts(messages)) text += part.text;
  return text;
}

}  // namespace minfer
