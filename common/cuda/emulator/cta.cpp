// SPDX-License-Identifier: MIT
#include "cuda/emulator/cta.h"

#include <cstring>
#include <numeric>

#include "cuda/emulator/fault.h"

namespace minfer::emulator {

void AsyncCopies::add(void* to, const void* from, std::size_t bytes, std::size_t zeros) {
  open_.push_back({to, from, bytes, zeros});
}

void AsyncCopies::perform(const Group& group) {
  for (const Copy& copy : group) {
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
    std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
  }
}

void AsyncCopies::wait(std::size_t pending) {
  while (groups_.size() > pending) {
    perform(groups_.front());
    groups_.erase(groups_.begin());
  }
}

void AsyncCopies::wait_all() {
  wait(0);
  perform(open_);
  open_.clear();
}

Collective* Warp::pending(std::uint32_t mask) const {
  for (const auto& collective : collectives) {
    if (collective->is_open() && collective->mask == mask) return collective.get();
  }
  return nullptr;
}

Collective& Warp::take() {
  for (const auto& collective : collectives) {
    if (collective->unread == 0) return *collective;
  }
  collectives.push_back(std::make_unique<Collective>());
  return *collectives.back();
}

void ReadyQueue::reset(std::size_t threads) {
  std::size_t capacity = 1;
  while (capacity < threads) capacity *= 2;
  if (ring_.size() < capacity) ring_.resize(capacity);
  mask_ = ring_.size() - 1;
  head_ = tail_ = 0;
}

/// Sets what depends on the block's extent alone.
void Cta::shape(dim3 extent) {
  const unsigned count = extent.x * extent.y * extent.z;
  size_ = count;
  extent_ = extent;
  threads_ = std::vector<Thread>(count);
  warps_ = std::vector<Warp>((count + kWarpSize - 1) / kWarpSize);
  order_.resize(count);
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = threads_[i];
    thread.cta = this;
    thread.warp = &warps_[i / kWarpSize];
    thread.number = i;
    thread.index = {thread.number % extent.x, thread.number / extent.x % extent.y,
                    thread.number / extent.x / extent.y};
    thread.warp->exists |= 1u << thread.lane();
  }
}

void Cta::begin(uint3 block_index, dim3 extent, std::size_t dynamic_shared_bytes) {
  const bool same_extent = extent.x == extent_.x && extent.y == extent_.y && extent.z == extent_.z;
  if (!same_extent) shape(extent);
  for (Thread& thread : threads_) thread.state = State::unstarted;
  for (Warp& warp : warps_) {
    warp.exited = 0;
    for (auto& collective : warp.collectives) collective->unread = 0;
  }
  copies_.clear();
  std::iota(order_.begin(), order_.end(), 0u);
  index = block_index;
  barrier = {};
  ready.reset(size_);
  live = size_;
  spinning = 0;
  started_ = 0;
  shared.begin(dynamic_shared_bytes);
}

std::string Cta::describe_deadlock() const {
  // Tell of a thread that waits, and of one that it waits for and that is somewhere else.
  for (const Thread& waiting : threads_) {
    for (const Thread& other : threads_) {
      if (&waiting == &other || !waiting.awaits(other)) continue;
      const bool waits_along = waiting.state == other.state &&
                               waiting.waits_for == other.waits_for && other.awaits(waiting);
      if (!waits_along) return "deadlock: " + describe(waiting) + ", but " + describe(other);
    }
  }
  return "deadlock: no thread of the block can go on";
}

std::string describe(const Thread& thread) {
  const std::string name = "thread " + to_string(thread.index);
  const std::string place = std::string(thread.operation) + " at " + to_string(thread.site);
  switch (thread.state) {
    case State::unstarted:
      return name + " has not begun";
    case State::runnable:
      return name + " is running";
    case State::spinning:
      return name + " spins at " + to_string(thread.site);
    case State::at_barrier:
    case State::in_warp:
      return name + " waits in " + place;
    case State::exited:
      return name + " has exited";
  }
  return name;
}

}  // namespace minfer::emulator
