// SPDX-License-Identifier: MIT
#pragma once

#include <stdio.h>

#include <cstdlib>
#include <iostream>
#include <string>

namespace minfer::test {

/// The path of a model of models.json that this machine has. Without it the whole test program is
/// skipped, with status 77.
inline std::string real_model(const std::string& name) {
  const std::string command =
      "python3 \"" MINFER_SOURCE_DIR "/tools/get_model\" --offline --quiet " + name;
  FILE* pipe = popen(command.c_str(), "r");
  std::string path;
  char buffer[256];
  while (pipe != nullptr && fgets(buffer, sizeof buffer, pipe) != nullptr) path += buffer;
  const bool found = pipe != nullptr && pclose(pipe) == 0 && !path.empty();
  if (!found) {
    std::cerr << "skipped: no " << name << " on this machine (tools/get_model " << name << ")\n";
    std::exit(77);
  }
  return path.substr(0, path.find('\n'));
}

}  // namespace minfer::test
