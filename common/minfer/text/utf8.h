// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace minfer {

/// U+FFFD, which stands for bytes that are no character.
inline constexpr char32_t kReplacementCharacter = 0xFFFD;
/// The same as UTF-8.
inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

/// The bytes at one place of a text, read as UTF-8.
struct Utf8Char {
  enum class Kind : std::uint8_t {
    kComplete,   ///< a well-formed character
    kTruncated,  ///< the text ends inside what may yet become a character
    kMalformed,  ///< bytes that begin no character, whatever follows
  };
  char32_t code_point;  ///< kReplacementCharacter unless complete
  std::uint8_t size;    ///< bytes taken, 1 to 4
  Kind kind;
};

/// Reads the character that begins at `pos`. What is not well-formed is taken as Unicode's
/// "maximal subpart" (Core Specification, 3.9): the longest run that begins a well-formed sequence,
/// or else one byte. Rust, Python and browsers replace each such run by one U+FFFD.
/// @pre pos < text.size()
Utf8Char read_utf8(std::string_view text, std::size_t pos);

/// Appends one code point as UTF-8. @pre it is no surrogate and at most U+10FFFF
void append_utf8(std::string& text, char32_t code_point);

/// Puts token bytes together so that no character is handed on in halves.
class Utf8Stream {
 public:
  /// Takes a token's bytes; returns what is complete now. Bytes that can begin no character are
  /// handed on as U+FFFD.
  std::string push(std::string_view bytes);
  /// What is left at the end: U+FFFD for an unfinished character, else nothing.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace minfer
