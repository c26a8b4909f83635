// SPDX-License-Identifier: MIT
#pragma once

#include "catch.h"
#include "cuda/buffer.h"
#include "cuda/emulator/fault.h"
#include "cuda/emulator/settings.h"
#include "cuda/launch.h"
#include "cuda/stream.h"

namespace minfer {

/// Settings for one test; the old ones come back at its end.
class ScopedSettings {
 public:
  ScopedSettings() : saved_(emulator::settings()) {}
  ~ScopedSettings() { emulator::settings() = saved_; }
  ScopedSettings(const ScopedSettings&) = delete;
  ScopedSettings& operator=(const ScopedSettings&) = delete;

  emulator::Settings* operator->() { return &emulator::settings(); }

 private:
  emulator::Settings saved_;
};

/// The text of the fault that `run` ends in; an empty string if it ends well.
template <class Run>
std::string fault_of(Run&& run) {
  try {
    run();
  } catch (const emulator::Fault& fault) {
    return fault.what();
  }
  return {};
}

}  // namespace minfer
