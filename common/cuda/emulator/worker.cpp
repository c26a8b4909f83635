// SPDX-License-Identifier: MIT
#include "cuda/emulator/worker.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "cuda/emulator/fault.h"
#include "cuda/emulator/hooks.h"
#include "cuda/emulator/observer.h"
#include "cuda/emulator/sanitizer.h"
#include "cuda/emulator/settings.h"

__thread uint3 threadIdx;
__thread uint3 blockIdx;
__thread uint3 blockDim;
__thread uint3 gridDim;

namespace minfer::emulator {

__thread bool is_shuffled = false;
__thread unsigned current_lane = 0;

namespace {

__thread Worker* current_worker = nullptr;

/// Blocks that run at once where the launch does not say so: more than one only to be shuffled.
constexpr std::size_t kShuffledBlocks = 4;

std::string describe_endless_spin(Site site) {
  return "deadlock: it spins at " + to_string(site) + ", and nothing happens that could end it";
}

}  // namespace

Worker* Worker::current() {
  return current_worker;
}

const Thread* Worker::running() {
  return current_worker == nullptr ? nullptr : current_worker->thread_;
}

// ---------------------------------------------------------------------------- blocks

void Worker::run(Grid& grid, unsigned number) {
  grid_ = &grid;
  activity_ = &grid.activities()[number];
  stack_bytes_ = settings().stack_bytes;
  random_ = Random(grid.seed.value_or(0));
  slow_warps_ = random_.next();
  spins_seen_.assign(grid.activities().size(), 0);
  progress_seen_ = 0;
  fruitless_checks_ = 0;
  turn_ = 0;
  current_worker = this;
  is_shuffled = grid.seed.has_value();
  blockDim = grid.shape.block;
  gridDim = grid.shape.grid;

  const std::uint64_t workers = grid.activities().size();
  const std::uint64_t blocks = grid.shape.blocks();
  const std::uint64_t share = blocks / workers + (number < blocks % workers ? 1 : 0);
  admit(grid.shape.cooperative ? share : is_shuffled ? kShuffledBlocks : 1);
  thread_ = nullptr;
  if (Thread* first = choose()) {
    prepare(first->fiber, stacks_.take(stack_bytes_), run_threads);
    become(*first);
    switch_fiber(main_, first->fiber);  // back when there is nothing left to run
  }
  reclaim_stacks();
  is_shuffled = false;
  current_worker = nullptr;
  activity_->finished.store(true);
}

void Worker::admit(std::size_t count) {
  resident_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    if (i >= pool_.size()) pool_.push_back(std::make_unique<Cta>());
    if (!begin_next(*pool_[i])) break;
    resident_.push_back(pool_[i].get());
  }
}

bool Worker::begin_next(Cta& cta) {
  const std::optional<uint3> index = grid_->next_block();
  if (!index) return false;
  cta.begin(*index, grid_->shape.block, grid_->shape.shared_bytes);
  if (observer != nullptr) observer->block_begins(cta);
  return true;
}

void Worker::reclaim_stacks() {
  for (Cta* cta : resident_) {  // empty unless the grid was stopped
    for (Thread& thread : cta->threads()) {
      if (thread.fiber.stack.bottom != nullptr) stacks_.give_abandoned(thread.fiber.stack);
      thread.fiber.stack = {};
    }
    cta->shared.end();
  }
  resident_.clear();
}

// ---------------------------------------------------------------------------- threads

/// Where every stack begins: runs the current thread, and then whichever is next to begin.
void Worker::run_threads(Transfer transfer) {
  finish_switch(transfer, nullptr);
  Worker& self = *current_worker;
  for (;;) {
    self.run_kernel();
    Thread& done = *self.thread_;
    const Stack stack = done.fiber.stack;
    if (StackPool::overflown(stack)) self.fail("the kernel has used up the thread's stack");
    self.retire(done);
    done.fiber.stack = {};

    Thread* next = self.grid_->stopped() ? nullptr : self.choose();
    if (next == nullptr) {
      self.stacks_.give(stack);
      leave_fiber(self.main_);
    }
    self.become(*next);
    if (next->fiber.stack.bottom == nullptr) {
      next->fiber.stack = stack;  // it begins right here
      continue;
    }
    self.stacks_.give(stack);
    leave_fiber(next->fiber);
  }
}

/// Runs the kernel as the current thread. No exception may leave a fiber.
void Worker::run_kernel() {
  std::string escaped;
  thread_->kernel_caller = __builtin_frame_address(0);
  try {
    grid_->call.run_thread();
    return;
  } catch (const std::exception& error) {
    escaped = error.what();
  } catch (...) {
    escaped = "unknown";
  }
  fail("an exception has left the kernel: " + std::exchange(escaped, {}));
}

/// The thread has returned from the kernel.
void Worker::retire(Thread& thread) {
  Cta& cta = *thread.cta;
  thread.state = State::exited;
  thread.warp->exited |= 1u << thread.lane();
  if (cta.barrier.arrived > 0 || !thread.warp->collectives.empty()) check_exit(thread);
  note_progress();
  if (--cta.live > 0) return;
  if (observer != nullptr) observer->block_ends(cta);
  cta.shared.end();
  if (!begin_next(cta)) resident_.erase(std::find(resident_.begin(), resident_.end(), &cta));
}

void Worker::become(Thread& thread) {
  ++ticks_;
  thread_ = &thread;
  current_lane = thread.lane();
  threadIdx = thread.index;
  blockIdx = thread.cta->index;
}

/// Runs other threads until the current one is chosen again.
void Worker::suspend() {
  if (grid_->stopped()) abandon();
  Thread& self = *thread_;
  Cta& own = *self.cta;
  // Nearly always choose() would say the same, by a longer way.
  const bool has_next = !is_shuffled && own.ready.size() > own.spinning;
  Thread* next = has_next ? &own.pop_runnable() : choose();
  if (next == &self) return;
  if (next->fiber.stack.bottom == nullptr) {
    prepare(next->fiber, stacks_.take(stack_bytes_), run_threads);
  }
  become(*next);
  switch_fiber(self.fiber, next->fiber);
}

void Worker::abandon() {
  leave_fiber(main_);
}

// ---------------------------------------------------------------------------- the schedule

/// The thread that runs next, or nullptr where none is left.
Thread* Worker::choose() {
  if (resident_.empty()) return nullptr;
  if (turn_ >= resident_.size()) turn_ = 0;
  Cta& cta = *resident_[turn_];
  if (!cta.can_run()) fail(cta.describe_deadlock());
  return is_shuffled ? choose_at_random() : choose_in_order();
}

/// Stays with a CTA as long as it gets on, since its stacks are in the cache.
Thread* Worker::choose_in_order() {
  if (!resident_[turn_]->can_advance() && ++turn_ == resident_.size()) turn_ = 0;
  Cta& cta = *resident_[turn_];
  const bool only_spinning = cta.ready.size() == cta.spinning;
  if (only_spinning && cta.unstarted() > 0) return &cta.start();
  return &cta.pop_runnable();
}

/// Any thread that can run, but for a while some warps are passed over: if all threads got on at
/// about the same pace, a race that needs one warp to be far ahead of another would hardly ever be
/// seen.
Thread* Worker::choose_at_random() {
  constexpr std::uint64_t kStay = 4;         // leave the CTA one time in so many
  constexpr std::uint64_t kSamePace = 2048;  // choose other slow warps one time in so many
  constexpr int kDraws = 16;                 // then a slow one has its turn
  if (!resident_[turn_]->can_advance() || random_.below(kStay) == 0) {
    turn_ = random_.below(resident_.size());
  }
  if (random_.below(kSamePace) == 0) slow_warps_ = random_.next();
  Cta& cta = *resident_[turn_];
  std::size_t choice = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    choice = random_.below(cta.choices());
    const bool is_slow = (slow_warps_ >> cta.peek(choice) / kWarpSize % 64 & 1) != 0;
    if (!is_slow) break;
  }
  return &cta.take(choice);
}

void Worker::preempt() {
  constexpr std::uint64_t kGoOn = 4;  // lets others run one time in so many
  if (random_.below(kGoOn) != 0) return;
  cta().make_runnable(*thread_);
  suspend();
}

void Worker::spin(Site site) {
  Thread& self = *thread_;
  Cta& own = *self.cta;
  self.state = State::spinning;
  self.site = site;
  ++own.spinning;
  own.ready.push(self.number);

  const std::uint64_t spins = activity_->idle_spins.load(std::memory_order_relaxed) + 1;
  activity_->idle_spins.store(spins, std::memory_order_relaxed);
  const bool has_others = grid_->activities().size() > 1;
  if (has_others && spins % resident_.size() == 0) std::this_thread::yield();
  if (spins % (grid_->spin_limit * (resident_.size() + own.spinning)) == 0 && is_deadlocked()) {
    fail(describe_endless_spin(site));
  }
  suspend();
}

void Worker::note_progress() {
  const std::uint64_t count = activity_->progress.load(std::memory_order_relaxed) + 1;
  activity_->progress.store(count, std::memory_order_relaxed);
  activity_->idle_spins.store(0, std::memory_order_relaxed);
}

/// Asked after many fruitless spins. A deadlock is when no worker has made progress between several
/// of these questions, while each was seen to spin: one that computes for long is not spinning.
bool Worker::is_deadlocked() {
  constexpr int kChecks = 3;
  std::uint64_t progress = 0;
  bool all_spin = true;
  for (std::size_t i = 0; i < grid_->activities().size(); ++i) {
    const Grid::Activity& activity = grid_->activities()[i];
    const std::uint64_t spins = activity.idle_spins.load(std::memory_order_relaxed);
    progress += activity.progress.load(std::memory_order_relaxed);
    if (!activity.finished.load() && spins == spins_seen_[i]) all_spin = false;
    spins_seen_[i] = spins;
  }
  fruitless_checks_ = all_spin && progress == progress_seen_ ? fruitless_checks_ + 1 : 0;
  progress_seen_ = progress;
  return fruitless_checks_ >= kChecks;
}

// ---------------------------------------------------------------------------- faults

std::string Worker::whereabouts() const {
  std::string result = "kernel " + function_name(grid_->call.function());
  if (thread_ == nullptr) return result;
  return result + ", block " + to_string(thread_->cta->index) + ", thread " +
         to_string(thread_->index);
}

void Worker::fail(std::string what) {
  grid_->stop("emulator: " + whereabouts() + ": " + what);
  std::string().swap(what);  // nothing on this stack is destroyed
  abandon();
}

// ---------------------------------------------------------------------------- hooks

unsigned arrive_at_barrier(const char* operation, bool predicate, Site site) {
  return current_worker->barrier(operation, predicate, site);
}

Collective& arrive_in_warp(const char* operation, std::uint32_t mask, const void* value,
                           std::size_t bytes, Site site) {
  return current_worker->arrive(operation, mask, value, bytes, site);
}

void spin(Site site) {
  current_worker->spin(site);
}
void preempt_slowly() {
  current_worker->preempt();
}
void note_progress() {
  current_worker->note_progress();
}
AsyncCopies& async_copies() {
  return current_worker->cta().copies(current_worker->thread());
}
std::uint64_t ticks() {
  return current_worker->ticks();
}
void* shared_variable(SharedVariable& variable) {
  return current_worker->cta().shared.variable(variable);
}
void* dynamic_shared() {
  return current_worker->cta().shared.dynamic();
}

}  // namespace minfer::emulator
