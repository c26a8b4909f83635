// SPDX-License-Identifier: MIT
#pragma once

namespace minfer {

/// What a program's exit status says.
enum ExitStatus : int {
  kDone = 0,
  kFailed = 1,         ///< with one line on standard error
  kWrongUsage = 2,     ///< likewise
  kInterrupted = 130,  ///< stopped by Ctrl-C, as shells have it
  kReaderGone = 141,   ///< standard output's reader has gone: what a shell sees after SIGPIPE
  kTerminated = 143,   ///< stopped by SIGTERM, likewise
};

}  // namespace minfer
