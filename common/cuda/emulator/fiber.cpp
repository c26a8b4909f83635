// SPDX-License-Identifier: MIT
#include "cuda/emulator/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <cstring>
#include <new>

#include "cuda/emulator/sanitizer.h"

namespace minfer::emulator {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t kStacksPerChunk = 64;

/// Stacks lie this much further apart than a power of two: at one, the tops of all stacks, which
/// are all that most of them use, would compete for the same few lines of the caches.
constexpr std::size_t kStagger = 5 * 64;

/// What a fiber tells the one that it switches to.
struct Departure {
  Fiber* from;  // nullptr: left for good
  Fiber* to;
};

/// Completes a switch on the side that goes on, whose AddressSanitizer state is `fake_stack`.
void arrive(context::transfer_t transfer, void* fake_stack) {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  announce_arrival(fake_stack, &bottom, &bytes);
  Fiber* from = static_cast<Departure*>(transfer.data)->from;
  if (from == nullptr) return;
  from->context = transfer.fctx;
  // The operating system's own stack becomes known only here.
  if (kAddressSanitizer) from->stack = {const_cast<char*>(static_cast<const char*>(bottom)), bytes};
}

/// The first function on a fresh stack.
void start(context::transfer_t transfer) {
  void (*entry)() = static_cast<Departure*>(transfer.data)->to->entry;
  arrive(transfer, nullptr);
  entry();
}

}  // namespace

void StackPool::Unmap::operator()(char* chunk) const {
  munmap(chunk, bytes);
}

void StackPool::add_chunk() {
  const std::size_t stride = stack_bytes_ + kStagger;
  const std::size_t bytes = stride * kStacksPerChunk;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes, MADV_NOHUGEPAGE);  // most of a stack is never touched
  char* chunk = static_cast<char*>(memory);
  chunks_.emplace_back(chunk, Unmap{bytes});
  for (std::size_t i = kStacksPerChunk; i-- > 0;) {
    free_.push_back({chunk + i * stride, stack_bytes_});
  }
}

Stack StackPool::take(std::size_t bytes) {
  if (bytes != stack_bytes_) {
    free_.clear();
    chunks_.clear();
    stack_bytes_ = bytes;
  }
  if (free_.empty()) add_chunk();
  const Stack stack = free_.back();
  free_.pop_back();
  return stack;
}

void StackPool::give_abandoned(Stack stack) {
  // Its frames did not return, and so left their redzones behind.
  unpoison(stack.bottom, stack.bytes);
  give(stack);
}

bool StackPool::overflown(Stack stack) {
  std::uint64_t last_word = 0;  // fresh pages are zero
  std::memcpy(&last_word, stack.bottom, sizeof last_word);
  return last_word != 0;
}

void prepare(Fiber& fiber, Stack stack, void (*entry)()) {
  fiber.entry = entry;
  fiber.stack = stack;
  fiber.context = context::make_fcontext(stack.bottom + stack.bytes, stack.bytes, start);
}

void switch_fiber(Fiber& from, Fiber& to) {
  Departure departure{&from, &to};
  announce_switch(&from.fake_stack, to.stack.bottom, to.stack.bytes);
  const context::transfer_t transfer = context::jump_fcontext(to.context, &departure);
  arrive(transfer, from.fake_stack);
}

void leave_fiber(Fiber& to) {
  Departure departure{nullptr, &to};
  announce_switch(nullptr, to.stack.bottom, to.stack.bytes);
  context::jump_fcontext(to.context, &departure);
  __builtin_unreachable();
}

}  // namespace minfer::emulator
