// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <minfer/tokenizer.h>

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
  /// Reads the default system message out of the file's own template.
  /// @throws FileError when the template is not ChatML
  ChatTemplate(const GgufFile& file, const Tokenizer& tokenizer);

  /// The ids of a whole conversation up to where the assistant's answer begins.
  std::vector<Token> encode(const std::vector<Message>& messages) const;
  /// The same as text, for people and for tests.
  std::string render(const std::vector<Message>& messages) const;
  const std::string& default_system() const { return default_system_; }

 private:
  const Tokenizer* tokenizer_;
  std::string default_system_;
};

}  // namespace minfer
