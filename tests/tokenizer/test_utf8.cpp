// SPDX-License-Identifier: MIT
// UTF-8 read character by character, and put together from tokens that cut it anywhere.
#include <minfer/text/tokenizer.h>
#include <minfer/text/utf8.h>

#include <string>
#include <string_view>
#include <vector>

#include "catch.h"

namespace minfer {
namespace {

using Kind = Utf8Char::Kind;

/// What is replaced by U+FFFD, character by character.
std::string repaired(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = read_utf8(text, pos);
    if (c.kind == Kind::kComplete) {
      out += text.substr(pos, c.size);
    } else {
      out += kReplacementUtf8;
    }
    pos += c.size;
  }
  return out;
}

/// The same through a stream that gets `step` bytes at a time.
std::string streamed(std::string_view text, std::size_t step) {
  Utf8Stream stream;
  std::string out;
  for (std::size_t pos = 0; pos < text.size(); pos += step) {
    out += stream.push(text.substr(pos, step));
  }
  return out + stream.finish();
}

bool is_surrogate(char32_t c) {
  return c >= 0xD800 && c <= 0xDFFF;
}

TEST_CASE("every code point is read as it was written") {
  int wrong = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (is_surrogate(c)) continue;
    std::string text = "<";
    append_utf8(text, c);
    const Utf8Char read = read_utf8(text, 1);
    wrong += read.code_point != c || read.size + 1u != text.size() || read.kind != Kind::kComplete;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the sizes of UTF-8 are as the standard has them") {
  const auto size_of = [](char32_t c) {
    std::string text;
    append_utf8(text, c);
    return text.size();
  };
  CHECK(size_of(0x00) == 1);
  CHECK(size_of(0x7F) == 1);
  CHECK(size_of(0x80) == 2);
  CHECK(size_of(0x7FF) == 2);
  CHECK(size_of(0x800) == 3);
  CHECK(size_of(0xFFFF) == 3);
  CHECK(size_of(0x10000) == 4);
  CHECK(size_of(0x10FFFF) == 4);
}

TEST_CASE("bytes that are no character are taken as maximal subparts") {
  struct Case {
    std::string_view bytes;
    int size;
    Kind kind;
  };
  const std::vector<Case> cases = {
      {"\x80", 1, Kind::kMalformed},              // a continuation byte
      {"\xC0\x80", 1, Kind::kMalformed},          // overlong, 2 bytes
      {"\xC1\xBF", 1, Kind::kMalformed},          //
      {"\xE0\x9F\xBF", 1, Kind::kMalformed},      // overlong, 3 bytes
      {"\xF0\x8F\xBF\xBF", 1, Kind::kMalformed},  // overlong, 4 bytes
      {"\xED\xA0\x80", 1, Kind::kMalformed},      // a surrogate
      {"\xF4\x90\x80\x80", 1, Kind::kMalformed},  // beyond U+10FFFF
      {"\xF5\x80\x80\x80", 1, Kind::kMalformed},  //
      {"\xFF", 1, Kind::kMalformed},              //
      {"\xC3(", 1, Kind::kMalformed},             // broken off by another character
      {"\xE4\xBD(", 2, Kind::kMalformed},         //
      {"\xF0\x9F\x98(", 3, Kind::kMalformed},     //
      {"\xE4\xBD\xE4", 2, Kind::kMalformed},      // by another beginning
      {"\xC3", 1, Kind::kTruncated},              // broken off by the end
      {"\xE4\xBD", 2, Kind::kTruncated},          //
      {"\xF0\x9F\x98", 3, Kind::kTruncated},      //
      {"\xF4\x8F", 2, Kind::kTruncated},          //
  };
  for (const Case& c : cases) {
    CAPTURE(c.bytes.size(), int(static_cast<unsigned char>(c.bytes[0])));
    const Utf8Char read = read_utf8(c.bytes, 0);
    CHECK(read.code_point == kReplacementCharacter);
    CHECK(int(read.size) == c.size);
    CHECK(read.kind == c.kind);
  }
}

TEST_CASE("a stream hands on characters when they are complete, and not before") {
  Utf8Stream stream;
  CHECK(stream.push("a\xF0\x9F") == "a");
  CHECK(stream.push("\x98").empty());
  CHECK(stream.push("\x80") == "\xF0\x9F\x98\x80");
  CHECK(stream.push("").empty());
  CHECK(stream.push("\xE4\xBD\xA0\xE5") == "\xE4\xBD\xA0");
  CHECK(stream.finish() == "\xEF\xBF\xBD");
  CHECK(stream.finish().empty());
}

TEST_CASE("a stream goes on after an unfinished character") {
  Utf8Stream stream;
  CHECK(stream.push("\xE4\xBD").empty());
  CHECK(stream.push("b") ==
        "\xEF\xBF\xBD"
        "b");
  CHECK(stream.push("\xFF\xC3") == "\xEF\xBF\xBD");
  CHECK(stream.push("\xA9") == "\xC3\xA9");
  CHECK(stream.finish().empty());
}

TEST_CASE("how a text is cut makes no difference to a stream") {
  // One byte of each kind that the standard tells apart, in every sequence of four.
  const std::string kinds = "a\x80\x8F\x90\xA0\xC0\xC3\xE0\xE4\xED\xF0\xF1\xF4\xF5";
  const std::size_t n = kinds.size();
  int wrong = 0;
  for (std::size_t i = 0; i < n * n * n * n; ++i) {
    const std::string text = {kinds[i % n], kinds[i / n % n], kinds[i / n / n % n],
                              kinds[i / n / n / n]};
    const std::string expected = repaired(text);
    for (const std::size_t step : {1, 2, 3, 4}) wrong += streamed(text, step) != expected;
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace minfer
