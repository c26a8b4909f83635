// SPDX-License-Identifier: MIT
//
// Where threads wait for each other: the CTA's barrier, and operations of a warp. Every mistake
// that would make them wait for ever, or not together, is found here or when the last of them can't
// go on.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "cuda/emulator/fault.h"
#include "cuda/emulator/hooks.h"
#include "cuda/emulator/observer.h"
#include "cuda/emulator/worker.h"

namespace minfer::emulator {
namespace {

bool same_operation(const char* a, Site at, const char* b, Site bt) {
  const bool same_name = a == b || std::strcmp(a, b) == 0;
  const bool same_file = at.file == bt.file || std::strcmp(at.file, bt.file) == 0;
  return same_name && same_file && at.line == bt.line;
}

// What a fault says. Each text is made by a function, and nothing else is on the stack when fail()
// takes it: fail() leaves the stack without destroying anything on it.

std::string describe(const char* operation, Site site) {
  return std::string(operation) + " at " + to_string(site);
}

std::string describe_exit(const char* operation, Site site) {
  return "has exited, but others wait for it in " + describe(operation, site);
}

std::string describe_missing(const char* operation, Site site, const Thread& exited) {
  return describe(operation, site) + " is not reached by every thread: " + describe(exited);
}

std::string describe_divergence(const char* what, const char* operation, Site site,
                                const char* others_operation, Site others_site) {
  return "divergent " + std::string(what) + ": arrives in " + describe(operation, site) +
         ", where others wait in " + describe(others_operation, others_site);
}

std::string describe_bad_mask(const char* operation, std::uint32_t mask, Site site,
                              const Thread& thread) {
  const Warp& warp = *thread.warp;
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  const std::string start = describe(operation, site) + " has the mask " + text + ", which ";
  const auto lowest = [](std::uint32_t lanes) { return std::to_string(__builtin_ctz(lanes)); };
  if ((mask >> thread.lane() & 1u) == 0) {
    return start + "leaves out lane " + std::to_string(thread.lane()) + ", the caller";
  }
  const std::uint32_t absent = mask & ~warp.exists;
  if (absent != 0) return start + "names lane " + lowest(absent) + ", which the block lacks";
  return start + "names lane " + lowest(mask & warp.exited) + ", which has exited";
}

}  // namespace

std::string describe_absent_lane(const char* operation, Site site, unsigned lane) {
  return std::string(operation) + " at " + to_string(site) + " reads lane " + std::to_string(lane) +
         ", which does not take part";
}

unsigned Worker::barrier(const char* operation, bool predicate, Site site) {
  Thread& self = *thread_;
  Cta& own = *self.cta;
  Barrier& barrier = own.barrier;
  if (own.live < own.size()) {
    const auto exited = std::find_if(own.threads().begin(), own.threads().end(),
                                     [](const Thread& t) { return t.state == State::exited; });
    fail(describe_missing(operation, site, *exited));
  }
  if (barrier.arrived > 0 && !same_operation(operation, site, barrier.operation, barrier.site)) {
    fail(describe_divergence("barrier", operation, site, barrier.operation, barrier.site));
  }
  barrier.operation = operation;
  barrier.site = site;
  barrier.predicates += predicate ? 1 : 0;
  if (++barrier.arrived < own.size()) {
    self.state = State::at_barrier;
    self.operation = operation;
    self.site = site;
    suspend();
    return barrier.result;
  }
  barrier.result = std::exchange(barrier.predicates, 0u);
  barrier.arrived = 0;
  for (unsigned i = 0; i < own.size(); ++i) {
    if (i != self.number) own.ready.push(i);
  }
  if (observer != nullptr) observer->barrier_passed(own, operation, site);
  note_progress();
  if (is_shuffled) preempt();
  return barrier.result;
}

Collective& Worker::arrive(const char* operation, std::uint32_t mask, const void* value,
                           std::size_t bytes, Site site) {
  Thread& self = *thread_;
  Warp& warp = *self.warp;
  const std::uint32_t bit = 1u << self.lane();
  if (!warp.has_all(mask, bit)) fail(describe_bad_mask(operation, mask, site, self));
  Collective* collective = warp.pending(mask);
  if (collective == nullptr) {
    collective = &warp.take();
    collective->mask = mask;
    collective->arrived = 0;
    collective->unread = static_cast<std::uint32_t>(__builtin_popcount(mask));
    collective->operation = operation;
    collective->site = site;
  } else if (!same_operation(operation, site, collective->operation, collective->site)) {
    fail(describe_divergence("warp operation", operation, site, collective->operation,
                             collective->site));
  }
  if (bytes > 0) std::memcpy(collective->slots[self.lane()].data(), value, bytes);
  collective->arrived |= bit;
  if (!collective->is_complete()) {
    self.state = State::in_warp;
    self.operation = operation;
    self.site = site;
    self.waits_for = mask;
    suspend();
    return *collective;
  }
  if (observer != nullptr) observer->lanes_met(self, mask, operation, site);
  Thread* lanes = &self - self.lane();
  for (std::uint32_t others = mask & ~bit; others != 0; others &= others - 1) {
    self.cta->make_runnable(lanes[__builtin_ctz(others)]);
  }
  note_progress();
  if (is_shuffled) preempt();
  return *collective;
}

/// A thread that exits must not be waited for.
void Worker::check_exit(const Thread& thread) {
  const Barrier& barrier = thread.cta->barrier;
  if (barrier.arrived > 0) fail(describe_exit(barrier.operation, barrier.site));
  for (const auto& collective : thread.warp->collectives) {
    const bool is_awaited = collective->is_open() && (collective->mask >> thread.lane() & 1u) != 0;
    if (is_awaited) fail(describe_exit(collective->operation, collective->site));
  }
}

}  // namespace minfer::emulator
