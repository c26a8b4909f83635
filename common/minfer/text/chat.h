// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include <minfer/text/jinja.h>
#include <minfer/text/tokenizer.h>

namespace minfer {

/// Conversations as the model's own template has them, up to where the assistant's answer begins.
/// What a message says is plain text: a special token's name typed by a user stays text.
class ChatTemplate {
 public:
  /// The tokenizer must outlive the object, and stay where it is.
  /// @throws FileError when the file has no template or no `<|im_start|>`, or the template can't
  ///         render a conversation of three messages
  ChatTemplate(const GgufFile& file, const Tokenizer& tokenizer);

  /// The ids of a whole conversation. @throws FileError when the template has for it what is not
  /// evaluated here (see JinjaTemplate), or does not print every message once, in order
  std::vector<Token> encode(const std::vector<Message>& messages) const;
  /// The same as text, for people and for tests.
  std::string render(const std::vector<Message>& messages) const;

 private:
  std::vector<TextPart> parts(const std::vector<Message>& messages) const;

  std::string path_;
  JinjaTemplate template_;
  const Tokenizer* tokenizer_;
};

}  // namespace minfer
