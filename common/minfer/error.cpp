// SPDX-License-Identifier: MIT
#include <minfer/error.h>

namespace minfer {
namespace {

constexpr std::size_t kLongestName = 96;

void append_escaped(std::string& out, unsigned char byte) {
  constexpr char kHex[] = "0123456789abcdef";
  out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
}

bool is_control(unsigned char byte) {
  return byte < 0x20 || byte == 0x7f;
}

/// `text` with control characters but for those in `kept` written as `\xNN`.
std::string escaped(std::string_view text, std::string_view kept) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned char byte = text[i];
    // Terminals take U+0080..U+009F, in UTF-8 C2 80..C2 9F, for control characters as well.
    const bool is_c1 = byte == 0xc2 && i + 1 < text.size() &&
                       static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                       static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1 || (is_control(byte) && kept.find(text[i]) == std::string_view::npos)) {
      append_escaped(out, byte);
      if (is_c1) append_escaped(out, text[++i]);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

FileError::FileError(const std::string& path, const std::string& what)
    : std::runtime_error(shown_path(path) + ": " + what) {}

std::string quoted(std::string_view name) {
  std::string out = "\"";
  for (const unsigned char byte : name.substr(0, kLongestName)) {
    if (is_control(byte) || byte >= 0x80) {
      append_escaped(out, byte);
    } else {
      if (byte == '"' || byte == '\\') out += '\\';
      out += static_cast<char>(byte);
    }
  }
  out += '"';
  if (name.size() > kLongestName) out += "... (" + std::to_string(name.size()) + " bytes)";
  return out;
}

std::string shown_text(std::string_view text) {
  return escaped(text, "\n\t");
}

std::string shown_path(std::string_view path) {
  return path.empty() ? "\"\"" : escaped(path, "");
}

}  // namespace minfer
