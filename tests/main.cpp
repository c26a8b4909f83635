// SPDX-License-Identifier: MIT
// Catch2's main, compiled once: in 2.13 it is part of the header, in 3 of a library.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
