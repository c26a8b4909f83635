// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace minfer::emulator {

/// SplitMix64: small, and the same numbers on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// A number below `bound`, which is at least 1. (The bias of the modulus does not matter here.)
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace minfer::emulator
