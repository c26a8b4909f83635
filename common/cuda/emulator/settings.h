// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace minfer::emulator {

/// What the emulated device is, and how its threads are scheduled. Read at every launch and query,
/// so a test can change it between launches.
struct Settings {
  /// Streaming multiprocessors (MINFER_EMULATOR_SMS).
  int sm_count = 8;
  /// A seed makes the schedule deterministic and shuffled: one CTA runs at a time, and at barriers,
  /// warp operations, atomics, fences and spins the seed says which thread of which CTA goes on
  /// (MINFER_EMULATOR_SEED). Without one, threads run in order, and CTAs in parallel.
  std::optional<std::uint64_t> seed;
  /// Operating-system threads that run CTAs (MINFER_EMULATOR_WORKERS); with a seed always one.
  int workers = 1;
  /// Device memory in bytes (MINFER_EMULATOR_MEMORY).
  std::size_t memory_bytes = std::size_t{8} << 30;
  /// The device shares its memory with the host, as a Jetson does.
  bool is_integrated = false;
  /// So many allocations of device memory fail, whatever is free, as they do on a Jetson whose
  /// memory is full of cached files.
  int failing_allocations = 0;
  /// The program was built for the device's architecture; if not, no kernel can be launched.
  bool has_kernel_image = true;
  /// Bytes of a CUDA thread's stack.
  std::size_t stack_bytes = 64 << 10;
  /// A grid in which every thread that can run has spun this often in a row, while nothing else
  /// happened, is taken for a deadlock.
  std::uint64_t spin_limit = 2000;
};

/// The settings in force; at the start, those of the environment.
/// @throws std::invalid_argument if a variable of the environment is not a number in its range
Settings& settings();

}  // namespace minfer::emulator
