// SPDX-License-Identifier: MIT
// Catch2 by either of its headers: 3.x where it is installed, else 2.13 (Debian 12, Ubuntu 22.04).
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
inline auto ContainsSubstring(const std::string& text) {
  return Catch::Matchers::Contains(text);
}
#endif
