// SPDX-License-Identifier: MIT
#include "cuda/emulator/settings.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <minfer/threads.h>

#include "cuda/emulator/sanitizer.h"

namespace minfer::emulator {
namespace {

/// The number that the environment variable `name` holds, if it is set.
std::optional<std::uint64_t> number(const char* name, std::uint64_t least, std::uint64_t most) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  const bool is_number = *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
  if (!is_number || value < least || value > most) {
    throw std::invalid_argument(std::string(name) + "=" + text + ": expected an integer from " +
                                std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

Settings from_environment() {
  Settings result;
  result.sm_count = static_cast<int>(number("MINFER_EMULATOR_SMS", 1, 1024).value_or(8));
  result.seed = number("MINFER_EMULATOR_SEED", 0, UINT64_MAX);
  result.workers = static_cast<int>(
      number("MINFER_EMULATOR_WORKERS", 1, 256).value_or(std::min(usable_cpus(), 8U)));
  result.memory_bytes =
      number("MINFER_EMULATOR_MEMORY", 0, std::uint64_t{1} << 46).value_or(result.memory_bytes);
  // AddressSanitizer's redzones make frames several times larger.
  if (kAddressSanitizer) result.stack_bytes = 256 << 10;
  return result;
}

}  // namespace

Settings& settings() {
  static Settings instance = from_environment();
  return instance;
}

}  // namespace minfer::emulator
