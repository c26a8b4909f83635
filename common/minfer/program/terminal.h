// SPDX-License-Identifier: MIT
//
// Standard input and output as the command line needs them: written through at once, errors told
// apart, and interrupted by Ctrl-C without losing the place.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace minfer {

/// Standard output can't be written: a full disk, a closed descriptor.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whoever read our output has gone (`| head -1`): no error, but a reason to stop without a word.
struct ReaderGone {};

/// Writes to standard output and returns when the system has taken all of it.
/// @throws OutputError @throws ReaderGone
void write_output(std::string_view text);

/// Makes a write beyond the limit on a file's size (`ulimit -f`) fail as one to a full disk does,
/// so that it is reported and no half of a file stays: by default, the system ends the program.
void report_file_size_limit();

/// All of standard input. @throws std::runtime_error when it can't be read
std::string read_all_input();

/// While it lives, Ctrl-C (SIGINT) only sets a flag that the main thread looks at. The third one in
/// a row, before anybody looked, ends the process: the way out when something hangs.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool requested();
  /// Forgets what was requested: the request is being answered.
  static void clear();
};

/// Threads that are started while it lives never get SIGINT, so that it reaches the thread that
/// waits for input.
class SigintBlock {
 public:
  SigintBlock();
  ~SigintBlock();
  SigintBlock(const SigintBlock&) = delete;
  SigintBlock& operator=(const SigintBlock&) = delete;
};

/// Reads standard input line by line.
class LineReader {
 public:
  enum class Result { kLine, kEnd, kInterrupted };
  /// Reads up to the next newline, which is left out; an unfinished last line counts as one.
  /// @throws std::runtime_error when standard input can't be read
  Result read(std::string& line);

 private:
  std::string buffer_;
};

}  // namespace minfer
