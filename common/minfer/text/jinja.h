// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <minfer/text/tokenizer.h>

namespace minfer {

enum class Role { kSystem, kUser, kAssistant };

struct Message {
  Role role;
  std::string content;
};

/// What a template has that is not evaluated here.
class JinjaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A chat template in the part of Jinja that Qwen2.5's takes: `if`, `for` over the messages, and
/// expressions of strings put together, compared, and asked for being defined. What is not reached
/// may be anything; all else is refused where it is reached, so that a conversation is rendered as
/// Jinja renders it, or not at all.
class JinjaTemplate {
 public:
  /// @throws JinjaError when it can't be cut into tags, or prints what stands between two
  explicit JinjaTemplate(std::string_view source);

  /// What is printed, in order, without tools and with `add_generation_prompt`: the template's own
  /// strings, in which special tokens are tokens, and what messages say, in which they are text.
  /// @throws JinjaError
  std::vector<TextPart> render(const std::vector<Message>& messages) const;

  struct Tag {
    bool prints;       ///< {{ }}, not {% %}
    std::string text;  ///< within the brackets
  };

 private:
  std::vector<Tag> tags_;
};

}  // namespace minfer
