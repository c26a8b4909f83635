// SPDX-License-Identifier: MIT
#pragma once

#include <minfer/engine.h>

namespace minfer {

/// The command line of a chapter's program, over its engine: everything `PROGRAM --help` tells.
/// Answers go to standard output, all else to standard error.
/// @return the exit status
int run_cli(int argc, char** argv, const EngineInfo& info, EngineFactory make_engine);

}  // namespace minfer
