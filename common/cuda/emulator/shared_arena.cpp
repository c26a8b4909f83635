// SPDX-License-Identifier: MIT
#include "cuda/emulator/shared_arena.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "cuda/emulator/device_limits.h"
#include "cuda/emulator/fault.h"
#include "cuda/emulator/sanitizer.h"
#include "cuda/emulator/settings.h"

namespace minfer::emulator {
namespace {

constexpr std::size_t kDynamicAlignment = 16;
constexpr int kUninitialized = 0xff;

std::string describe_excess(const SharedVariable& variable, const char* which, std::size_t bytes,
                            std::size_t most) {
  return "shared variable " + std::string(variable.name) + " (" + to_string(variable.site) +
         ") brings the block's " + which + "shared memory to " + std::to_string(bytes) +
         " bytes; at most " + std::to_string(most) + " are allowed";
}

}  // namespace

int SharedVariable::assign_id() {
  static std::atomic<int> count{0};
  int expected = -1;
  // Two workers may come here at once; the second keeps what the first has set.
  id_.compare_exchange_strong(expected, count.fetch_add(1));
  return id_.load();
}

void SharedArena::Free::operator()(char* memory) const {
  std::free(memory);
}

void SharedArena::allocate(Block& block, std::size_t bytes, std::size_t alignment) {
  // AddressSanitizer's granule is 8 bytes, so an alignment of 8 that is none of 16 is the least.
  const std::size_t skipped = alignment < kDynamicAlignment ? kGap + 8 : kGap;
  const std::size_t total = skipped + bytes + kGap;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, kDynamicAlignment), total) != 0) {
    throw std::bad_alloc();
  }
  poison(memory, total);
  block.memory.reset(static_cast<char*>(memory));
  block.begin = block.memory.get() + skipped;
  block.bytes = bytes;
}

void SharedArena::begin(std::size_t dynamic_bytes) {
  ++generation_;
  static_bytes_ = 0;
  if (dynamic_.memory == nullptr || dynamic_.bytes != dynamic_bytes) {
    allocate(dynamic_, dynamic_bytes, kDynamicAlignment);
  }
  unpoison(dynamic_.begin, dynamic_.bytes);
  std::memset(dynamic_.begin, kUninitialized, dynamic_.bytes);
}

void SharedArena::end() {
  if constexpr (kAddressSanitizer) {
    poison(dynamic_.begin, dynamic_.bytes);
    for (const Block& block : blocks_) poison(block.begin, block.bytes);
  }
}

void* SharedArena::begin_variable(SharedVariable& variable, std::size_t id) {
  static_bytes_ += variable.bytes;
  if (static_bytes_ > kStaticSharedBytes) {
    fail(describe_excess(variable, "static ", static_bytes_, kStaticSharedBytes));
  }
  const std::size_t both = static_bytes_ + dynamic_.bytes;
  if (const std::size_t most = opt_in_shared_bytes(settings().sm_count); both > most) {
    fail(describe_excess(variable, "static and dynamic ", both, most));
  }
  if (id >= blocks_.size()) blocks_.resize(id + 1);
  Block& block = blocks_[id];
  if (block.memory == nullptr) {
    allocate(block, variable.bytes, variable.alignment);
    block.variable = &variable;
  }
  block.generation = generation_;
  unpoison(block.begin, block.bytes);
  std::memset(block.begin, kUninitialized, block.bytes);
  return block.begin;
}

bool SharedArena::is_around(const Block& block, const void* address) {
  const auto begin = reinterpret_cast<std::uintptr_t>(block.begin);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return block.memory != nullptr && at + kGap >= begin && at < begin + block.bytes + kGap;
}

SharedArena::Place SharedArena::around(const void* address) const {
  if (is_around(dynamic_, address)) return {dynamic_.begin, dynamic_.bytes, true};
  for (const Block& block : blocks_) {
    if (!is_around(block, address)) continue;
    return {block.begin, block.bytes, block.generation == generation_};
  }
  return {};
}

std::vector<SharedArena::Place> SharedArena::places() const {
  std::vector<Place> result = {{dynamic_.begin, dynamic_.bytes, true}};
  for (const Block& block : blocks_) {
    if (block.generation == generation_) result.push_back({block.begin, block.bytes, true});
  }
  return result;
}

std::string SharedArena::describe(const Block& block, const void* address) {
  if (!is_around(block, address)) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(block.begin);
  const auto end = begin + block.bytes;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  std::string place = std::to_string(at - begin) + " bytes into";
  if (at < begin) place = std::to_string(begin - at) + " bytes before";
  if (at >= end) place = std::to_string(at - end) + " bytes after";
  const std::string size = std::to_string(block.bytes) + " bytes";
  if (block.variable == nullptr) return place + " the dynamic shared memory of " + size;
  return place + " shared variable " + block.variable->name + " of " + size + " (" +
         to_string(block.variable->site) + ")";
}

std::string SharedArena::describe(const void* address) const {
  std::string result = describe(dynamic_, address);
  for (const Block& block : blocks_) {
    if (result.empty()) result = describe(block, address);
  }
  return result;
}

}  // namespace minfer::emulator
