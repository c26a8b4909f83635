// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

namespace minfer {

/// Lines of any length typed in a terminal, with the keys, the history (of this run alone) and the
/// ~/.editrc of libedit. Until it goes, what is typed ahead is neither shown nor cut at the 4,095
/// bytes of a terminal's own line.
class LineEditor {
 public:
  /// None where standard input or error is no terminal that can be written to at will, and in a
  /// program built without libedit.
  static std::unique_ptr<LineEditor> make(const char* prompt);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// The next line, its newline left out. @return false at the input's end and on Ctrl-C or SIGTERM
  bool read(std::string& line);

 private:
  struct Impl;
  explicit LineEditor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minfer
