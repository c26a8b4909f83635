// SPDX-License-Identifier: MIT
//
// Standard input and output as the command line needs them: written through at once, errors told
// apart, and interrupted by Ctrl-C or SIGTERM without losing the place.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include <minfer/program/line_editor.h>

namespace minfer {

/// Standard output can't be written: a full disk, a closed descriptor.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whoever read our output has gone (`| head -1`): no error, but a reason to stop without a word.
struct ReaderGone {};

/// Ctrl-C or SIGTERM, where it ends the command.
struct Interrupted {};

/// Writes to standard output and returns when the system has taken all of it. What reaches a
/// terminal has its control characters but for newline and tab written as `\xNN`, so that no model
/// can do to it what it likes. @pre no character is cut in halves @throws OutputError
/// @throws ReaderGone
void write_output(std::string_view text);

/// Makes a write beyond the limit on a file's size (`ulimit -f`) fail as one to a full disk does,
/// so that it is reported and no half of a file stays: by default, the system ends the program.
void report_file_size_limit();

/// All of standard input. @throws std::runtime_error when it can't be read @throws Interrupted
std::string read_all_input();

/// While it lives, Ctrl-C (SIGINT) and SIGTERM only set flags that the main thread looks at. The
/// third signal in a row, before anybody looked, ends the process: the way out when something
/// hangs.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();
  /// Whether SIGTERM came, which stays requested.
  static bool terminated();
  /// Forgets Ctrl-C: it is being answered.
  static void clear();
};

/// Threads that are started while it lives never get these signals, so that they reach the thread
/// that waits for input.
class InterruptBlock {
 public:
  InterruptBlock();
  ~InterruptBlock();
  InterruptBlock(const InterruptBlock&) = delete;
  InterruptBlock& operator=(const InterruptBlock&) = delete;
};

/// Waits until standard input has something to read; false where a signal came first.
bool wait_for_input();

/// Reads standard input line by line; from a terminal after a prompt, with LineEditor where that
/// is. The terminal's settings are given back at the end, however it comes.
class LineReader {
 public:
  explicit LineReader(const char* prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  enum class Result { kLine, kEnd, kInterrupted, kCut };
  /// Reads up to the next newline, which is left out, as is a carriage return before it; an
  /// unfinished last line counts as one. kCut: the terminal, which takes no more than 4,095 bytes
  /// of a line without LineEditor, may have cut it.
  /// @throws std::runtime_error when standard input can't be read
  Result read(std::string& line);

 private:
  Result read_unedited(std::string& line);

  const char* prompt_;  // null: not in a terminal
  std::unique_ptr<LineEditor> editor_;
  std::string buffer_;
};

}  // namespace minfer
