// SPDX-License-Identifier: MIT
//
// Stacks, and switching between them. A fiber is a stack with a computation suspended on it;
// Boost's fcontext does the switch (it saves the callee-saved registers and swaps the stack
// pointer), and AddressSanitizer is told of it.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <memory>
#include <vector>

#include "cuda/emulator/sanitizer.h"

namespace minfer::emulator {

/// A stack from a StackPool, growing down from its end.
struct Stack {
  char* bottom = nullptr;
  std::size_t bytes = 0;
};

/// Stacks of one size for reuse, the latest one given back first, since that is still in the cache.
/// Memory is asked for in chunks and only touched pages become real.
class StackPool {
 public:
  /// @throws std::bad_alloc if the system has no address space left
  Stack take(std::size_t bytes);
  void give(Stack stack) { free_.push_back(stack); }
  /// Gives back a stack whose computation never came to its end.
  void give_abandoned(Stack stack);

  /// True if something has written to the last word of the stack. (A page without access below each
  /// stack would be surer, but a large cooperative grid has more stacks than Linux allows mappings:
  /// vm.max_map_count.)
  static bool overflown(Stack stack);

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(char* chunk) const;
  };

  void add_chunk();

  std::size_t stack_bytes_ = 0;
  std::vector<Stack> free_;
  std::vector<std::unique_ptr<char, Unmap>> chunks_;
};

/// A suspended computation, or the place to keep one.
struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;
  bool is_new = false;         // prepared, and not switched to yet
  void* fake_stack = nullptr;  // AddressSanitizer's, while suspended
  Stack stack;
};

/// Makes `fiber` run `entry` on `stack` when it is first switched to. `entry` is handed what
/// finish_switch() needs, and must never return.
using Transfer = boost::context::detail::transfer_t;
inline void prepare(Fiber& fiber, Stack stack, void (*entry)(Transfer)) {
  fiber.stack = stack;
  fiber.is_new = true;
  fiber.context =
      boost::context::detail::make_fcontext(stack.bottom + stack.bytes, stack.bytes, entry);
}

/// Completes a switch on the side that goes on: `fake_stack` is what it had when it was left.
inline void finish_switch(Transfer transfer, void* fake_stack) {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  announce_arrival(fake_stack, &bottom, &bytes);
  auto* from = static_cast<Fiber*>(transfer.data);
  if (from == nullptr) return;  // it was left for good
  from->context = transfer.fctx;
  // The operating system's own stack becomes known only here.
  if (kAddressSanitizer) from->stack = {const_cast<char*>(static_cast<const char*>(bottom)), bytes};
}

/// Suspends the running computation in `from` and resumes `to`; returns when `from` is resumed.
///
/// ontop_fcontext() with a function that does nothing, and not jump_fcontext(): that one resumes
/// with a jump, which leaves the processor's stack of predicted returns one entry off, so that
/// every return after a switch is mispredicted. A function that returns to the resumed code keeps
/// them in step. A new fiber has no code to return to, and is entered with the jump: only that
/// hands `entry` its argument whatever the function that does nothing leaves in the registers.
inline void switch_fiber(Fiber& from, Fiber& to) {
  announce_switch(&from.fake_stack, to.stack.bottom, to.stack.bytes);
  const auto nothing = [](Transfer transfer) { return transfer; };
  const bool is_new = to.is_new;
  to.is_new = false;
  finish_switch(is_new ? boost::context::detail::jump_fcontext(to.context, &from)
                       : boost::context::detail::ontop_fcontext(to.context, &from, nothing),
                from.fake_stack);
}

/// Resumes `to` and gives up the running computation for good.
[[noreturn]] void leave_fiber(Fiber& to);

}  // namespace minfer::emulator
