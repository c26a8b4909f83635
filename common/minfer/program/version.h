// SPDX-License-Identifier: MIT
#pragma once

namespace minfer {

/// The project's version: the same as in CMakeLists.txt, which a test compares.
inline constexpr const char kVersion[] = "0.1.0";

}  // namespace minfer
