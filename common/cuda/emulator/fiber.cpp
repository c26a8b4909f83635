// SPDX-License-Identifier: MIT
#include "cuda/emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace minfer::emulator {
namespace {

constexpr std::size_t kStacksPerChunk = 64;

/// Stacks lie this much further apart than a power of two: at one, the tops of all stacks, which
/// are all that most of them use, would compete for the same few lines of the caches.
constexpr std::size_t kStagger = 5 * 64;

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
  for (std::size_t i = 0; i < kStacksPerChunk; ++i) {  // the last, which is the highest, goes first
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
  if (overflown(stack)) std::memset(stack.bottom, 0, sizeof(std::uint64_t));
  give(stack);
}

bool StackPool::overflown(Stack stack) {
  std::uint64_t last_word = 0;  // fresh pages are zero
  std::memcpy(&last_word, stack.bottom, sizeof last_word);
  return last_word != 0;
}

void leave_fiber(Fiber& to) {
  announce_switch(nullptr, to.stack.bottom, to.stack.bytes);
  boost::context::detail::jump_fcontext(to.context, nullptr);
  __builtin_unreachable();
}

}  // namespace minfer::emulator
