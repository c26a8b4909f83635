// SPDX-License-Identifier: MIT
#pragma once

#include <minfer/engine.h>

namespace minfer {

/// What a program's exit status says.
enum ExitStatus : int {
  kDone = 0,
  kFailed = 1,         ///< with one line on standard error
  kWrongUsage = 2,     ///< likewise
  kInterrupted = 130,  ///< stopped by Ctrl-C, as shells have it
  kReaderGone = 141,   ///< standard output's reader has gone: what a shell sees after SIGPIPE
};

/// The command line of a chapter's program, over its engine: everything `PROGRAM --help` tells.
/// Answers go to standard output, all else to standard error.
/// @return the exit status
int run_cli(int argc, char** argv, const EngineInfo& info, EngineFactory make_engine);

}  // namespace minfer
