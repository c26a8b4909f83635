// SPDX-License-Identifier: MIT
#pragma once

#include <minfer/gguf/model.h>

#include <string>
#include <string_view>

#include "builder.h"
#include "catch.h"
#include "temp_file.h"

namespace minfer::test {

/// What `load` said when it refused the file: the message without the path that it must begin
/// with, or "accepted".
template <class Load>
std::string refusal_by(const std::string& path, Load load) {
  try {
    load(path);
  } catch (const FileError& error) {
    const std::string message = error.what();
    REQUIRE(message.substr(0, path.size() + 2) == path + ": ");
    return message.substr(path.size() + 2);
  }
  return "accepted";
}

/// The refusal of a file by GgufFile::open, which has to be the same however its bytes come in.
inline std::string refusal_of(std::string_view bytes) {
  TempDir dir;
  const std::string path = dir.write("file.gguf", bytes);
  const auto open = [&](ReadMode mode) {
    return refusal_by(path, [mode](const std::string& p) { GgufFile::open(p, mode); });
  };
  const std::string mapped = open(ReadMode::kMap);
  REQUIRE(open(ReadMode::kRead) == mapped);
  return mapped;
}

inline std::string refusal_of(GgufBuilder builder) {
  return refusal_of(builder.build());
}

/// The refusal of a file by Model::load, in both modes.
inline std::string model_refusal_of(GgufBuilder builder) {
  TempDir dir;
  const std::string path = dir.write("file.gguf", builder.build());
  const auto load = [&](ReadMode mode) {
    return refusal_by(path, [mode](const std::string& p) { Model::load(p, {mode, false}); });
  };
  const std::string mapped = load(ReadMode::kMap);
  REQUIRE(load(ReadMode::kRead) == mapped);
  return mapped;
}

}  // namespace minfer::test
