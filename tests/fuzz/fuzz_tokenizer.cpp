// SPDX-License-Identifier: MIT
// Fuzzes the tokenizer: any text, and any vocabulary that a file may list.
//
// An input without a NUL is a text for a small vocabulary. Otherwise what stands before the first
// NUL lists a vocabulary, a line for each entry, and the text comes after it. A line begins with
// what it is: n a normal token, c a control token, u a user-defined one, x an UNUSED row, t a token
// of a type that most often doesn't exist, m a merge; a - takes the last token away.
#include <minfer/error.h>
#include <minfer/text/tokenizer.h>
#include <minfer/text/utf8.h>

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

std::string repaired(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

/// What holds of every text and every vocabulary that was accepted.
void check(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<Token> ids = tokenizer.encode(text);
  require(tokenizer.decode(ids) == text, "a text does not come back from its ids");

  Utf8Stream stream;
  std::string streamed;
  for (const Token id : ids) streamed += stream.push(tokenizer.bytes(id));
  require(streamed + stream.finish() == repaired(text), "a stream depends on how it is cut");

  std::string names;
  for (const Token id : tokenizer.encode_with_specials(text)) {
    require(tokenizer.is_valid(id), "an id is no real token's");
    names += tokenizer.bytes(id).empty() ? tokenizer.name(id) : tokenizer.bytes(id);
  }
  require(names == text, "a text with special tokens does not come back");
}

void add_line(SmallVocabulary& vocabulary, std::string_view line) {
  if (line.empty()) return;
  const std::string rest(line.substr(1));
  switch (line[0]) {
    case 'n':
      vocabulary.add(rest, 1);
      break;
    case 'c':
      vocabulary.add(rest, 3);
      break;
    case 'u':
      vocabulary.add(rest, 4);
      break;
    case 'x':
      vocabulary.add(rest, 5);
      break;
    case 't':
      vocabulary.add(rest, static_cast<std::int32_t>(rest.size()) - 3);
      break;
    case 'm':
      vocabulary.merges.push_back(rest);
      break;
    case '-':
      if (vocabulary.tokens.empty()) break;
      vocabulary.tokens.pop_back();
      vocabulary.types.pop_back();
      break;
    default:
      break;
  }
}

SmallVocabulary listed(std::string_view lines) {
  SmallVocabulary vocabulary = byte_vocabulary();
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    add_line(vocabulary, lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return vocabulary;
}

Tokenizer open(const SmallVocabulary& vocabulary) {
  static const MemoryFile file;
  file.write(vocabulary.builder().build());
  return Tokenizer(GgufFile::open(file.path()));
}

}  // namespace
}  // namespace minfer::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace minfer::test;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t nul = input.find('\0');
  if (nul == std::string_view::npos) {
    static const minfer::Tokenizer tokenizer = open(small_vocabulary());
    check(tokenizer, input);
    return 0;
  }
  try {
    check(open(listed(input.substr(0, nul))), input.substr(nul + 1));
  } catch (const minfer::FileError&) {
    // The one right way to refuse a vocabulary.
  }
  return 0;
}
