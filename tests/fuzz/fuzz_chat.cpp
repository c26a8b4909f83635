// SPDX-License-Identifier: MIT
// Fuzzes the chat path: any template that a file may have, and any conversation.
//
// The input is a template and messages with a NUL between them. A message begins with its role, s
// or u (anything else is the assistant's).
#include <minfer/error.h>
#include <minfer/text/chat.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/memory_file.h"
#include "tokenizer/small_vocabulary.h"

namespace minfer::test {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Takes what stands before the first NUL off the input, and the NUL.
std::string_view take(std::string_view& input) {
  const std::string_view taken = input.substr(0, input.find('\0'));
  input.remove_prefix(std::min(taken.size() + 1, input.size()));
  return taken;
}

Role role_of(char c) {
  return c == 's' ? Role::kSystem : c == 'u' ? Role::kUser : Role::kAssistant;
}

/// What holds of every template that was accepted and every conversation.
void check(const ChatTemplate& chat, const Tokenizer& tokenizer,
           const std::vector<Message>& messages) {
  const std::vector<Token> ids = chat.encode(messages);
  std::string names;
  for (const Token id : ids) {
    names += tokenizer.bytes(id).empty() ? tokenizer.name(id) : tokenizer.bytes(id);
  }
  require(names == chat.render(messages), "ids and text of a conversation differ");
}

void fuzz(std::string_view input) {
  static const MemoryFile memory;
  GgufBuilder builder = small_vocabulary().builder();
  builder.set("tokenizer.chat_template", std::string(take(input)).c_str());
  memory.write(builder.build());

  std::vector<Message> messages;
  while (!input.empty()) {
    const std::string_view message = take(input);
    if (message.empty()) continue;
    messages.push_back({role_of(message[0]), std::string(message.substr(1))});
  }
  const GgufFile file = GgufFile::open(memory.path());
  const Tokenizer tokenizer(file);
  check(ChatTemplate(file, tokenizer), tokenizer, messages);
}

}  // namespace
}  // namespace minfer::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    minfer::test::fuzz({reinterpret_cast<const char*>(data), size});
  } catch (const minfer::FileError&) {
    // The one right way to refuse a template.
  }
  return 0;
}
