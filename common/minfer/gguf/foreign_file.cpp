// SPDX-License-Identifier: MIT
#include <minfer/gguf/foreign_file.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include <minfer/error.h>

namespace minfer {
namespace {

bool starts_with_no_case(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(), [](char p, char t) {
           return p == std::tolower(static_cast<unsigned char>(t));
         });
}

bool is_web_page(std::string_view head) {
  if (head.substr(0, 3) == "\xef\xbb\xbf") head.remove_prefix(3);  // a byte order mark
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  return starts_with_no_case(head, "<!doctype html") || starts_with_no_case(head, "<html") ||
         starts_with_no_case(head, "<head") || starts_with_no_case(head, "<!--");
}

/// A safetensors file is a 64-bit length, and a JSON object of that length.
bool is_safetensors(std::string_view head, std::uint64_t file_size) {
  if (head.size() < 10 || head[8] != '{' || (head[9] != '"' && head[9] != ' ' && head[9] != '}')) {
    return false;
  }
  std::uint64_t length;
  std::memcpy(&length, head.data(), sizeof length);
  return length >= 2 && length <= std::max<std::uint64_t>(file_size, 1u << 28);
}

}  // namespace

std::string describe_foreign_file(std::string_view head, std::uint64_t file_size) {
  if (is_web_page(head)) {
    return "this is a web page, expected a GGUF file: use the /resolve/ link";
  }
  if (starts_with_no_case(head, "version https://git-lfs")) {
    return "this is a git-lfs pointer, expected the GGUF file itself: run git lfs pull";
  }
  if (is_safetensors(head, file_size)) {
    return "this is a safetensors file, expected a GGUF file: convert it first";
  }
  if (starts_with_no_case(head, "fugg")) {
    return "has a byte-swapped magic: it is big-endian, expected a little-endian GGUF file";
  }
  for (const std::string_view old : {"lmgg", "fmgg", "tjgg", "algg"}) {
    if (starts_with_no_case(head, old)) {
      return "this is a GGML file from before GGUF, expected a GGUF file: convert it first";
    }
  }
  const bool gzip = head.substr(0, 2) == "\x1f\x8b";
  const bool zstd = head.substr(0, 4) == "\x28\xb5\x2f\xfd";
  const bool xz = head.substr(0, 4) ==
                  "\xfd"
                  "7zX";
  const bool bzip2 = head.substr(0, 3) == "BZh";
  if (head.substr(0, 4) == "PK\x03\x04" || gzip || zstd || xz || bzip2) {
    return "this is an archive or a compressed file, expected a GGUF file: unpack it first";
  }
  return "begins with " + quoted(head.substr(0, 4)) + ", expected \"GGUF\"";
}

}  // namespace minfer
