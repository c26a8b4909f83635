// SPDX-License-Identifier: MIT
//
// What the device functions of the emulator need of its scheduler. Called by CUDA threads only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/emulator/cta.h"
#include "cuda/emulator/fault.h"
#include "cuda/emulator/site.h"
#include "cuda/emulator/vector_types.h"

namespace minfer::emulator {

/// True in a thread whose schedule is shuffled by a seed.
extern __thread bool is_shuffled;

/// The current thread arrives at the CTA's barrier, and goes on when all threads have.
/// @return how many of them came with a true predicate
unsigned arrive_at_barrier(const char* operation, bool predicate, Site site);

/// The current thread arrives at a warp operation with `bytes` of `value`, and goes on when all
/// lanes of `mask` have. The caller counts down Collective::unread when it has read.
Collective& arrive_in_warp(const char* operation, std::uint32_t mask, const void* value,
                           std::size_t bytes, Site site);

/// The current thread lets others run before it looks again at what it waits for.
void spin(Site site);

/// Lets another thread run now and then, if the schedule is shuffled.
void preempt_slowly();
inline void preempt() {
  if (is_shuffled) preempt_slowly();
}

/// Tells that something happened that a spinning thread may wait for.
void note_progress();

/// The current thread's number within its warp.
extern __thread unsigned current_lane;
inline unsigned lane() {
  return current_lane;
}

/// The current thread's pending cp.async copies.
AsyncCopies& async_copies();

/// A number that goes up with every switch, and every time that it is asked.
std::uint64_t ticks();

/// The message of a fault.
std::string describe_absent_lane(const char* operation, Site site, unsigned lane);

/// A warp operation in which every lane of `mask` brings a value, and can then read the others'.
template <class T>
class WarpExchange {
 public:
  WarpExchange(const char* operation, std::uint32_t mask, const T& value, Site site)
      : operation_(operation),
        site_(site),
        collective_(arrive_in_warp(operation, mask, &value, sizeof(T), site)) {
    static_assert(sizeof(T) <= Collective::kSlotBytes, "the value does not fit a lane's slot");
  }
  WarpExchange(const WarpExchange&) = delete;
  WarpExchange& operator=(const WarpExchange&) = delete;
  ~WarpExchange() { --collective_.unread; }

  bool has(unsigned lane) const { return (collective_.mask >> lane & 1u) != 0; }
  std::uint32_t mask() const { return collective_.mask; }

  /// What `lane` has brought.
  T operator[](unsigned lane) const {
    if (!has(lane)) fail(describe_absent_lane(operation_, site_, lane));
    T value;
    std::memcpy(&value, collective_.slots[lane].data(), sizeof(T));
    return value;
  }

 private:
  const char* operation_;
  Site site_;
  Collective& collective_;
};

}  // namespace minfer::emulator

/// CUDA's built-in variables. (They are set at every switch, in the operating-system thread that
/// runs the CTA; a CTA never moves to another.)
extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread uint3 blockDim;
extern __thread uint3 gridDim;
inline constexpr int warpSize = 32;
