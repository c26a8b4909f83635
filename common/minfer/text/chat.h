// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
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

/// ChatML, with the bytes of the models' own template and `add_generation_prompt`. What a message
/// says is plain text: a special token's name typed by a user stays text.
class ChatTemplate {
 public:
  /// Reads the default system message out of the file's own template. The tokenizer must outlive
  /// the object, and stay where it is.
  /// @throws FileError when the template is not ChatML (no turn of role and content, no answer to
  ///         begin, other text around them), or the special tokens are missing
  ChatTemplate(const GgufFile& file, const Tokenizer& tokenizer);

  /// The ids of a whole conversation up to where the assistant's answer begins. Where its first
  /// message is none of the system's, the default system message comes first.
  std::vector<Token> encode(const std::vector<Message>& messages) const;
  /// The same as text, for people and for tests.
  std::string render(const std::vector<Message>& messages) const;
  /// The system message that the template adds where there is none; empty if it adds none.
  std::string default_system() const { return default_system_.value_or(""); }

 private:
  std::vector<Message> with_system(const std::vector<Message>& messages) const;

  const Tokenizer* tokenizer_;
  std::optional<std::string> default_system_;
};

}  // namespace minfer
