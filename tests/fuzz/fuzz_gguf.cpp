// SPDX-License-Identifier: MIT
// Fuzzes what reads a model file: the GGUF reader, the model table, and the tokenizer's beginnings.
// Its seeds are written by write_gguf_seeds.cpp.
#include <minfer/error.h>

#include <cstdint>
#include <string>

#include "gguf/exercise.h"
#include "gguf/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using minfer::ReadMode;
  static const minfer::test::MemoryFile file;
  file.write({reinterpret_cast<const char*>(data), size});
  for (const ReadMode mode : {ReadMode::kMap, ReadMode::kRead}) {
    try {
      minfer::test::exercise(file.path(), mode);
    } catch (const minfer::FileError&) {
      // The one right way to refuse a file.
    }
  }
  return 0;
}
