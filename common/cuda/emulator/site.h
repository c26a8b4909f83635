// SPDX-License-Identifier: MIT
#pragma once

namespace minfer::emulator {

/// A place in a kernel's source. As a default argument, `Site::here()` is the caller's place.
struct Site {
  const char* file = "";
  int line = 0;

  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace minfer::emulator
