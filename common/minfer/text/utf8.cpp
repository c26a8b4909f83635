// SPDX-License-Identifier: MIT
#include <minfer/text/utf8.h>

namespace minfer {
namespace {

/// What a lead byte announces: how long the sequence is, and which second bytes are allowed.
/// (The bounds on the second byte rule out overlong forms, surrogates, and what lies beyond
/// U+10FFFF; all later bytes are 80..BF.)
struct Lead {
  std::uint8_t size;  // 0: begins nothing
  std::uint8_t second_min;
  std::uint8_t second_max;
};

constexpr Lead lead_of(std::uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char read_utf8(std::string_view text, std::size_t pos) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const Lead lead = lead_of(byte(pos));
  if (lead.size == 1) return {byte(pos), 1, Utf8Char::Kind::kComplete};
  if (lead.size == 0) return {kReplacementCharacter, 1, Utf8Char::Kind::kMalformed};

  // The lead byte's own bits lie below its mark 110, 1110 or 11110.
  char32_t code_point = byte(pos) & (0x7Fu >> lead.size);
  for (std::uint8_t i = 1; i < lead.size; ++i) {
    if (pos + i == text.size()) return {kReplacementCharacter, i, Utf8Char::Kind::kTruncated};
    const std::uint8_t next = byte(pos + i);
    const std::uint8_t min = i == 1 ? lead.second_min : 0x80;
    const std::uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (next < min || next > max) return {kReplacementCharacter, i, Utf8Char::Kind::kMalformed};
    code_point = code_point << 6 | (next & 0x3Fu);
  }
  return {code_point, lead.size, Utf8Char::Kind::kComplete};
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::size_t pos = 0;
  while (pos < pending_.size()) {
    const Utf8Char c = read_utf8(pending_, pos);
    if (c.kind == Utf8Char::Kind::kTruncated) break;
    if (c.kind == Utf8Char::Kind::kComplete) {
      out.append(pending_, pos, c.size);
    } else {
      out += kReplacementUtf8;
    }
    pos += c.size;
  }
  pending_.erase(0, pos);
  return out;
}

std::string Utf8Stream::finish() {
  // What is pending is one truncated character: push() has handed on everything before it.
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? std::string(kReplacementUtf8) : std::string();
}

}  // namespace minfer
