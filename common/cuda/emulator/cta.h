// SPDX-License-Identifier: MIT
//
// The state of a CTA (a thread block) that is being run: its threads, their barrier, its warps'
// pending operations, its shared memory. What moves threads from one state to another is the
// Worker.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emulator/device_limits.h"
#include "cuda/emulator/fiber.h"
#include "cuda/emulator/shared_arena.h"
#include "cuda/emulator/site.h"
#include "cuda/emulator/vector_types.h"

namespace minfer::emulator {

class Cta;
struct Warp;

/// Where a thread was last seen. One that is in the queue of those that can run keeps the state it
/// waited in until it runs.
enum class State : std::uint8_t {
  unstarted,
  runnable,
  spinning,    // in the queue, but only to look again
  at_barrier,  // waits for the other threads of its CTA
  in_warp,     // waits for other lanes in a warp operation
  exited,
};

/// cp.async copies that a thread has issued: the open group and those committed and not waited for.
/// They are done when they are waited for, as late as the hardware may do them.
class AsyncCopies {
 public:
  void add(void* to, const void* from, std::size_t bytes, std::size_t zeros);
  void commit() { groups_.emplace_back(std::move(open_)), open_.clear(); }
  /// Does the copies of all but the latest `pending` groups.
  void wait(std::size_t pending);
  /// Does all copies, committed or not.
  void wait_all();
  void clear() { groups_.clear(), open_.clear(); }

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
    std::size_t zeros;
  };
  using Group = std::vector<Copy>;
  static void perform(const Group& group);

  Group open_;
  std::vector<Group> groups_;
};

/// A CUDA thread. Aligned, and what a switch needs comes first: it is fetched for every switch.
struct alignas(64) Thread {
  Fiber fiber;          // while it has been started
  uint3 index{};        // threadIdx
  unsigned number = 0;  // x + y * blockDim.x + z * blockDim.x * blockDim.y
  Cta* cta = nullptr;
  State state = State::unstarted;
  void* kernel_caller = nullptr;  // the stack frame that the kernel is called from

  Warp* warp = nullptr;
  std::uint32_t waits_for = 0;  // in_warp: lanes
  const char* operation = "";   // what it waits in, and where; for messages
  Site site;

  unsigned lane() const { return number % kWarpSize; }

  /// True if this thread waits for `other`, among others.
  bool awaits(const Thread& other) const {
    if (state == State::at_barrier) return other.state != State::at_barrier;
    return state == State::in_warp && warp == other.warp && (waits_for >> other.lane() & 1u) != 0;
  }
};

/// A warp operation that some lanes of `mask` have arrived at, or have completed and not all read.
struct Collective {
  static constexpr std::size_t kSlotBytes = 32;

  std::uint32_t mask = 0;
  std::uint32_t arrived = 0;
  std::uint32_t unread = 0;  // lanes that have yet to read; 0: this object is free
  const char* operation = "";
  Site site;
  alignas(16) std::array<std::array<unsigned char, kSlotBytes>, kWarpSize> slots;

  bool is_complete() const { return arrived == mask; }
  bool is_open() const { return unread != 0 && !is_complete(); }
};

/// 32 consecutive threads, or the rest of them. Lanes that take part in different operations (other
/// masks) wait in different Collectives; a lane that is fast may be in the next while others still
/// read the last.
struct Warp {
  std::uint32_t exists = 0;  // lanes that the block has
  std::uint32_t exited = 0;
  std::vector<std::unique_ptr<Collective>> collectives;

  /// True if the lanes of `mask` are all there, `caller` among them.
  bool has_all(std::uint32_t mask, std::uint32_t caller) const {
    return (mask & caller) != 0 && (mask & ~exists) == 0 && (mask & exited) == 0;
  }
  /// The operation with `mask` that is still being arrived at, or nullptr.
  Collective* pending(std::uint32_t mask) const;
  /// An unused Collective.
  Collective& take();
};

/// __syncthreads() and its counting forms.
struct Barrier {
  unsigned arrived = 0;
  unsigned predicates = 0;  // of the arrived threads, those with a true predicate
  unsigned result = 0;      // `predicates` of the last completed barrier
  const char* operation = "";
  Site site;
};

/// First in, first out, of thread numbers; each at most once.
class ReadyQueue {
 public:
  void reset(std::size_t threads);
  bool empty() const { return head_ == tail_; }
  std::size_t size() const { return tail_ - head_; }
  void push(unsigned number) { ring_[tail_++ & mask_] = number; }
  unsigned pop() { return ring_[head_++ & mask_]; }
  /// The i-th element, from the front.
  unsigned peek(std::size_t i) const { return ring_[(head_ + i) & mask_]; }
  /// Moves the i-th element to the front, in exchange for the first.
  void bring_forward(std::size_t i) { std::swap(ring_[head_ & mask_], ring_[(head_ + i) & mask_]); }

 private:
  std::vector<unsigned> ring_;
  std::size_t mask_ = 0;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

class Cta {
 public:
  /// Makes this object the block `index` of a grid. Threads are started later, one by one.
  void begin(uint3 index, dim3 extent, std::size_t dynamic_shared_bytes);

  /// The next thread that has not been started, in the order of their numbers.
  Thread& start() { return threads_[order_[started_++]]; }

  /// How many threads could run next: those in the ready queue, and those not started.
  std::size_t choices() const { return ready.size() + unstarted(); }
  /// The number of the thread that is the i-th of them.
  unsigned peek(std::size_t i) const {
    return i < ready.size() ? ready.peek(i) : order_[started_ + i - ready.size()];
  }
  /// Takes the i-th of them.
  Thread& take(std::size_t i) {
    if (i < ready.size()) {
      ready.bring_forward(i);
      return pop_runnable();
    }
    std::swap(order_[started_], order_[started_ + i - ready.size()]);
    return start();
  }

  void make_runnable(const Thread& thread) { ready.push(thread.number); }
  Thread& pop_runnable() {
    Thread& thread = threads_[ready.pop()];
    if (thread.state == State::spinning) --spinning;
    thread.state = State::runnable;
    return thread;
  }

  /// The cp.async copies of a thread.
  AsyncCopies& copies(const Thread& thread) {
    if (copies_.empty()) copies_.resize(threads_.size());
    return copies_[thread.number];
  }

  std::size_t unstarted() const { return size_ - started_; }
  bool can_run() const { return unstarted() > 0 || !ready.empty(); }
  /// True if some thread can do more than look at what it spins on.
  bool can_advance() const { return unstarted() > 0 || ready.size() > spinning; }

  /// Why no thread of this CTA can go on.
  std::string describe_deadlock() const;

  std::vector<Thread>& threads() { return threads_; }
  const std::vector<Thread>& threads() const { return threads_; }
  unsigned size() const { return size_; }

  uint3 index{};
  Barrier barrier;
  SharedArena shared;
  ReadyQueue ready;
  unsigned live = 0;      // threads that have not exited
  unsigned spinning = 0;  // of those in the ready queue, the ones that spin

 private:
  void shape(dim3 extent);

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<AsyncCopies> copies_;  // empty until a thread has some
  std::vector<unsigned> order_;      // of starting
  std::size_t started_ = 0;
  unsigned size_ = 0;
  uint3 extent_{};
};

/// "thread (1,0,0) waits in __syncthreads at softmax.cu:12" and the like.
std::string describe(const Thread& thread);

}  // namespace minfer::emulator
