// SPDX-License-Identifier: MIT
// The same file in every chapter: the command line, over the chapter's engine.
#include <minfer/engine.h>
#include <minfer/program/cli.h>

int main(int argc, char** argv) {
  return minfer::run_cli(argc, argv, minfer::engine_info(), &minfer::make_engine);
}
