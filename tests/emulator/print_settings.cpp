// SPDX-License-Identifier: MIT
// Prints the emulator's settings as the environment makes them.
#include <cstdio>
#include <exception>

#include "cuda/emulator/settings.h"

int main() {
  try {
    const auto& settings = minfer::emulator::settings();
    std::printf("sms %d, seed %lld, workers %d, memory %zu\n", settings.sm_count,
                static_cast<long long>(settings.seed.value_or(0)), settings.workers,
                settings.memory_bytes);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
