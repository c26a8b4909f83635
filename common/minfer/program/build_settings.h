// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace minfer {

/// How this program was built, as names and values: build type, flags and GPU architectures under
/// CMake's names for them, and the compilers. What was not set is left out. A program that is
/// carried to another machine says by itself what a record has to have.
std::vector<std::pair<std::string, std::string>> build_settings();

/// The version of a program of this name, and below it how it was built.
std::string version_text(const std::string& program);

}  // namespace minfer
