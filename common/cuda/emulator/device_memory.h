// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace minfer::emulator {

/// A block of device memory, and what of it no kernel may touch.
struct DeviceBlock {
  struct Gap {
    std::size_t begin;  ///< from the block's first byte
    std::size_t bytes;
  };

  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  std::size_t margin = 0;  ///< on each side, where nothing else lies
  std::vector<Gap> gaps;   ///< in the order of their places
};

/// All blocks, by address.
std::vector<DeviceBlock> device_blocks();

/// Makes a part of device memory, between arrays of it, one that no kernel may touch, until the
/// memory is freed.
void forbid(void* begin, std::size_t bytes);

/// What an address within or close to device memory is, for a message; empty for any other.
std::string describe_device_memory(const void* pointer);

}  // namespace minfer::emulator
