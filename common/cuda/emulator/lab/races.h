// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/emulator/cta.h"

namespace minfer::emulator {

/// Two accesses of the same bytes by different threads, at least one of them a write and not both
/// atomic, of which neither is ordered before the other.
struct Race {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  uint3 first_block{}, second_block{};
  unsigned first_thread = 0, second_thread = 0;  ///< Thread::number, of the first time
};

/// Finds the races of a launch: for each byte it keeps who has written it last and who has read it
/// since, and at each access whether that is ordered before it. What orders accesses: the block's
/// barrier; __syncwarp() for the lanes that meet there; and atomics on one address, from what a
/// block did before its atomic to what another does after its own (a fence is taken for granted).
/// Shuffles and votes order no memory. So whether a race is found does not depend on the schedule,
/// but for the branches that a kernel takes.
class RaceCheck {
 public:
  void block_begins(const Cta& cta);
  void block_ends(const Cta& cta);
  void barrier_passed(const Cta& cta);
  void lanes_met(const Thread& thread, std::uint32_t mask);

  /// The thread accesses [address, address + bytes).
  void access(const Thread& thread, std::uintptr_t address, std::size_t bytes, std::uint32_t access,
              bool is_write, bool is_atomic);
  /// The thread has read `address` in an atomic operation, or written it, or both.
  void synchronize(const Thread& thread, std::uintptr_t address, bool reads, bool writes);

  std::vector<Race> races() const;

 private:
  static constexpr std::uint32_t kNobody = ~0u;

  /// An access by a thread.
  struct Stamp {
    std::uint32_t block = kNobody;  ///< number in blocks_
    std::uint32_t epoch = 0;        ///< barriers that the block had passed
    std::uint32_t clock = 0;        ///< what the lane had met in, plus one
    std::uint32_t access = 0;
    std::uint16_t thread = 0;
    bool is_atomic = false;
  };
  /// A byte: its last write, and two of its reads since then: the last, and another that is not
  /// ordered before it, in another block or warp if there is one. A write that races with any read
  /// races with one of these, unless it is ordered after both by what does not order it after a
  /// third: a __syncwarp() of some lanes, an atomic that not all blocks have part in.
  struct Byte {
    Stamp write, read, other;
  };
  static constexpr std::size_t kPage = 4096;
  using Page = std::array<Byte, kPage>;

  /// What is known of another block: all before `epoch`, and in that epoch what `thread` did.
  struct Known {
    std::uint32_t epoch;
    std::uint32_t thread;  ///< kNobody: whatever was done
  };
  using Clock = std::unordered_map<std::uint32_t, Known>;

  struct Block {
    uint3 index{};
    std::uint32_t epoch = 0;
    /// By thread: what it knows of each lane of its warp; of its own, the time now.
    std::vector<std::array<std::uint32_t, kWarpSize>> lanes;
    Clock others;
  };

  static void join(Clock& into, const Clock& from);
  static void learn(Clock& clock, std::uint32_t block, Known known);
  bool is_ordered(const Stamp& before, const Thread& thread, std::uint32_t block) const;
  void compare(const Stamp& before, const Thread& thread, const Stamp& now);
  void keep_read(Byte& byte, const Thread& thread, const Stamp& now) const;
  Page& page_of(std::uintptr_t address);
  std::uint32_t number_of(const Cta& cta);

  std::vector<Block> blocks_;
  std::unordered_map<const Cta*, std::uint32_t> running_;  ///< numbers in blocks_
  const Cta* last_cta_ = nullptr;
  std::uint32_t last_number_ = 0;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::uintptr_t last_page_ = 0;
  Page* last_ = nullptr;
  std::unordered_map<std::uintptr_t, Clock> released_;  ///< by address of atomics
  std::map<std::pair<std::uint32_t, std::uint32_t>, Race> races_;
};

}  // namespace minfer::emulator
