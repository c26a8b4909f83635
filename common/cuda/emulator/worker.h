// SPDX-License-Identifier: MIT
//
// A worker runs CTAs in one operating-system thread.
//
// A CUDA thread runs as a fiber until it has to wait: at a barrier, in a warp operation, in a spin
// loop. It then switches straight to the next thread that can run, without a scheduler in between.
// A thread that ends hands its stack on: the next thread to begin is begun on it, so a kernel in
// which nothing waits is a plain loop over its threads on one stack, with no switch at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emulator/cta.h"
#include "cuda/emulator/fiber.h"
#include "cuda/emulator/grid.h"
#include "cuda/emulator/random.h"
#include "cuda/emulator/site.h"

namespace minfer::emulator {

class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs blocks of `grid` until there are no more, or the grid is stopped. A cooperative grid's
  /// blocks are shared out evenly at the start.
  /// @param number which of the grid's workers this is
  void run(Grid& grid, unsigned number);

  /// The worker of this operating-system thread, while it runs a grid.
  static Worker* current();
  /// The thread that runs there, or nullptr where none does.
  static const Thread* running();

  Thread& thread() { return *thread_; }
  Cta& cta() { return *thread_->cta; }

  /// The current thread arrives at a barrier, and goes on when all threads of its CTA have.
  /// @return how many of them came with a true predicate
  unsigned barrier(const char* operation, bool predicate, Site site);

  /// The current thread arrives at a warp operation with `bytes` of `value`, and goes on when all
  /// lanes of `mask` have. The caller reads the slots it wants, and then counts `unread` down.
  Collective& arrive(const char* operation, std::uint32_t mask, const void* value,
                     std::size_t bytes, Site site);
  /// The current thread lets others run before it looks again.
  void spin(Site site);

  /// With a seed, now and then lets another thread run.
  void preempt();

  /// Tells that something happened that a spinning thread may wait for.
  void note_progress();

  /// Stops the grid with a fault of the current thread.
  [[noreturn]] void fail(std::string what);

  /// "kernel K, block (0,0,0), thread (0,0,0)".
  std::string whereabouts() const;

  /// Counts up with every switch, and every time that it is asked; what clock64() returns.
  std::uint64_t ticks() { return ++ticks_; }

 private:
  [[noreturn]] static void run_threads(Transfer transfer);
  void run_kernel();
  void admit(std::size_t count);
  bool begin_next(Cta& cta);
  void retire(Thread& thread);
  void check_exit(const Thread& thread);

  Thread* choose();
  Thread* choose_in_order();
  Thread* choose_at_random();
  Thread& take(Cta& cta, std::uint64_t choice);
  void suspend();
  void become(Thread& thread);
  [[noreturn]] void abandon();
  void reclaim_stacks();
  bool is_deadlocked();

  Grid* grid_ = nullptr;
  Grid::Activity* activity_ = nullptr;
  std::vector<std::unique_ptr<Cta>> pool_;  // all that were ever needed
  std::vector<Cta*> resident_;              // those that run
  std::size_t turn_ = 0;
  Thread* thread_ = nullptr;
  Fiber main_;  // run()'s own computation
  StackPool stacks_;
  std::size_t stack_bytes_ = 0;
  Random random_;
  std::uint64_t slow_warps_ = 0;  // bit n: warps n, n + 64, ... of each CTA are passed over
  std::uint64_t ticks_ = 0;

  // Evidence of a deadlock, see is_deadlocked().
  std::uint64_t progress_seen_ = 0;
  std::vector<std::uint64_t> spins_seen_;
  int fruitless_checks_ = 0;
};

}  // namespace minfer::emulator
