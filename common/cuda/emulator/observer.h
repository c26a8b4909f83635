// SPDX-License-Identifier: MIT
//
// Is told what the emulator does: how the lab (lab/) learns where a thread stands when it touches
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/emulator/cta.h"
#include "cuda/emulator/grid.h"
#include "cuda/emulator/site.h"

namespace minfer::emulator {

class Observer {
 public:
  virtual ~Observer() = default;

  /// @return whether it looks at this launch, whose blocks one worker runs then, in order
  virtual bool launch_begins(const KernelCall& call, const GridShape& shape) = 0;
  virtual void launch_ends() = 0;
  virtual void block_begins(Cta& cta) = 0;
  virtual void block_ends(Cta& cta) = 0;
  /// All threads of a block have arrived at a barrier, and none has gone on.
  virtual void barrier_passed(Cta& cta, const char* operation, Site site) = 0;
  /// The lanes of `mask` have arrived in a warp operation, `last` the last, and none has gone on.
  virtual void lanes_met(Thread& last, std::uint32_t mask, const char* operation, Site site) = 0;
};

/// The one that is told, or nullptr. Set before memory is allocated: with an observer there is a
/// gap around each block of it.
extern Observer* observer;

}  // namespace minfer::emulator
