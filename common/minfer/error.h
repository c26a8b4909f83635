// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace minfer {

/// A refusal of a file, with one line that names it, the key or tensor, what was found and what
/// was expected.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// "path: what", the path made fit for a terminal.
  FileError(const std::string& path, const std::string& what);
};

/// A name out of a file, for a message: in double quotes, everything but printable ASCII written
/// as `\xNN`, and cut after 96 bytes, so that no file can write to the terminal what it likes.
std::string quoted(std::string_view name);

/// Text as a terminal may have it: control characters but for newline and tab are written as
/// `\xNN`.
std::string shown_text(std::string_view text);

/// A path for a message: as it is, but with control characters, newline and tab too, written as
/// `\xNN`, so that the message stays one line.
std::string shown_path(std::string_view path);

}  // namespace minfer
