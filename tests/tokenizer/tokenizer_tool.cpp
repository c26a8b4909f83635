// SPDX-License-Identifier: MIT
// The tokenizer of a GGUF file as a program that tests written in Python talk to: many requests on
// standard input, an answer to each on standard output.
//
//     tokenizer_tool MODEL
//
// A request is an operation (one byte), the length of its argument (u32, little-endian as all
// numbers here) and the argument; an answer is a length and that many bytes.
//
//     e text    ids of plain text                    answer: i32 each
//     s text    ids, special tokens recognised       answer: i32 each
//     p text    where the pre-tokenizer's pieces end answer: u32 each
//     d ids     bytes of the tokens in a row
//     u ids     the same, each token through a Utf8Stream
//     r turns   a conversation as the chat template prints it
//     c turns   its ids                              answer: i32 each
//     t         the same with a template of its own, which a NUL ends; answer: + and the text, or
//               - and why it is not rendered
//
// A conversation is a sequence of role (one byte: s, u or a), length (u32) and content.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <minfer/text/chat.h>
#include <minfer/text/pretokenizer.h>
#include <minfer/text/tokenizer.h>
#include <minfer/text/utf8.h>

namespace minfer {
namespace {

std::uint32_t number_at(std::string_view bytes) {
  if (bytes.size() < 4) throw std::runtime_error("a request ends inside a number");
  std::uint32_t number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

template <class T>
std::string as_bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

std::vector<Token> read_ids(std::string_view bytes) {
  std::vector<Token> ids;
  for (; !bytes.empty(); bytes.remove_prefix(4)) {
    ids.push_back(static_cast<Token>(number_at(bytes)));
  }
  return ids;
}

std::vector<Message> read_turns(std::string_view bytes) {
  std::vector<Message> messages;
  while (!bytes.empty()) {
    const Role role = bytes[0] == 's'   ? Role::kSystem
                      : bytes[0] == 'u' ? Role::kUser
                                        : Role::kAssistant;
    bytes.remove_prefix(1);
    const std::uint32_t size = number_at(bytes);
    bytes.remove_prefix(4);
    if (bytes.size() < size) throw std::runtime_error("a request ends inside a message");
    messages.push_back({role, std::string(bytes.substr(0, size))});
    bytes.remove_prefix(size);
  }
  return messages;
}

std::string render(std::string_view source, std::string_view turns) {
  std::string text = "+";
  try {
    for (const TextPart& part : JinjaTemplate(source).render(read_turns(turns))) text += part.text;
  } catch (const JinjaError& error) {
    return std::string("-") + error.what();
  }
  return text;
}

std::string piece_ends(std::string_view text) {
  std::vector<std::uint32_t> ends;
  for (std::size_t end = 0; end < text.size();) {
    end = piece_end(text, end);
    ends.push_back(static_cast<std::uint32_t>(end));
  }
  return as_bytes(ends);
}

std::string stream(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  Utf8Stream stream;
  std::string text;
  for (const Token id : ids) text += stream.push(tokenizer.bytes(id));
  return text + stream.finish();
}

class Service {
 public:
  explicit Service(const std::string& path)
      : file_(GgufFile::open(path)), tokenizer_(file_), chat_(file_, tokenizer_) {}

  std::string answer(char operation, std::string_view argument) const {
    switch (operation) {
      case 'e':
        return as_bytes(tokenizer_.encode(argument));
      case 's':
        return as_bytes(tokenizer_.encode_with_specials(argument));
      case 'p':
        return piece_ends(argument);
      case 'd':
        return tokenizer_.decode(read_ids(argument));
      case 'u':
        return stream(tokenizer_, read_ids(argument));
      case 'r':
        return chat_.render(read_turns(argument));
      case 'c':
        return as_bytes(chat_.encode(read_turns(argument)));
      case 't':
        return render(argument.substr(0, argument.find('\0')),
                      argument.substr(argument.find('\0') + 1));
      default:
        throw std::runtime_error("a request has an unknown operation");
    }
  }

 private:
  GgufFile file_;
  Tokenizer tokenizer_;
  ChatTemplate chat_;
};

/// Reads exactly `size` bytes; false at the end of the input.
bool read_bytes(std::string& bytes, std::size_t size) {
  bytes.resize(size);
  return std::fread(bytes.data(), 1, size, stdin) == size;
}

void serve(const std::string& path) {
  const Service service(path);
  std::string head;
  std::string argument;
  while (read_bytes(head, 5) && read_bytes(argument, number_at(std::string_view(head).substr(1)))) {
    const std::string answer = service.answer(head[0], argument);
    const auto size = static_cast<std::uint32_t>(answer.size());
    std::fwrite(&size, 1, sizeof size, stdout);
    std::fwrite(answer.data(), 1, answer.size(), stdout);
  }
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL\n", argv[0]);
    return 2;
  }
  try {
    minfer::serve(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
