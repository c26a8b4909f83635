// SPDX-License-Identifier: MIT
//
// Stacks, and switching between them. A fiber is a stack with a computation suspended on it;
// Boost's fcontext does the switch (it saves the callee-saved registers and swaps the stack
// pointer), and AddressSanitizer is told of it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

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
  void* context = nullptr;     // Boost's fcontext_t
  void (*entry)() = nullptr;   // where it begins
  void* fake_stack = nullptr;  // AddressSanitizer's, while suspended
  Stack stack;
};

/// Makes `fiber` run `entry` on `stack` when it is first switched to. `entry` must never return.
void prepare(Fiber& fiber, Stack stack, void (*entry)());

/// Suspends the running computation in `from` and resumes `to`; returns when `from` is resumed.
void switch_fiber(Fiber& from, Fiber& to);

/// Resumes `to` and gives up the running computation for good.
[[noreturn]] void leave_fiber(Fiber& to);

}  // namespace minfer::emulator
