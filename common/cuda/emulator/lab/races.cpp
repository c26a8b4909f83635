// SPDX-License-Identifier: MIT
#include "cuda/emulator/lab/races.h"

#include <algorithm>

namespace minfer::emulator {

void RaceCheck::block_begins(const Cta& cta) {
  last_cta_ = nullptr;
  running_[&cta] = static_cast<std::uint32_t>(blocks_.size());
  Block block;
  block.index = cta.index;
  block.lanes.resize(cta.size());
  for (std::size_t i = 0; i < block.lanes.size(); ++i) block.lanes[i][i % kWarpSize] = 1;
  blocks_.push_back(std::move(block));
}

/// Its shared memory is forgotten as well: another block will use the bytes.
void RaceCheck::block_ends(const Cta& cta) {
  blocks_[number_of(cta)].lanes = {};
  for (const SharedArena::Place& place : cta.shared.places()) {
    const auto begin = reinterpret_cast<std::uintptr_t>(place.begin);
    for (std::uintptr_t at = begin; at < begin + place.bytes; ++at) page_of(at)[at % kPage] = {};
  }
}

std::uint32_t RaceCheck::number_of(const Cta& cta) {
  if (&cta == last_cta_) return last_number_;
  last_cta_ = &cta;
  return last_number_ = running_.at(&cta);
}

void RaceCheck::barrier_passed(const Cta& cta) {
  ++blocks_[number_of(cta)].epoch;
}

void RaceCheck::lanes_met(const Thread& thread, std::uint32_t mask) {
  Block& block = blocks_[number_of(*thread.cta)];
  auto* lanes = &block.lanes[thread.number - thread.lane()];
  std::array<std::uint32_t, kWarpSize> joined{};
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto& known = lanes[__builtin_ctz(rest)];
    for (unsigned i = 0; i < kWarpSize; ++i) joined[i] = std::max(joined[i], known[i]);
  }
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const int lane = __builtin_ctz(rest);
    lanes[lane] = joined;
    ++lanes[lane][static_cast<std::size_t>(lane)];
  }
}

void RaceCheck::learn(Clock& clock, std::uint32_t block, Known known) {
  const auto [found, is_new] = clock.try_emplace(block, known);
  Known& old = found->second;
  if (is_new || known.epoch < old.epoch) return;
  old.thread = known.epoch == old.epoch && known.thread != old.thread ? kNobody : known.thread;
  old.epoch = known.epoch;
}

void RaceCheck::join(Clock& into, const Clock& from) {
  for (const auto& [block, known] : from) learn(into, block, known);
}

void RaceCheck::synchronize(const Thread& thread, std::uintptr_t address, bool reads, bool writes) {
  const std::uint32_t number = number_of(*thread.cta);
  Block& block = blocks_[number];
  Clock& released = released_[address];
  if (reads) join(block.others, released);
  if (!writes) return;
  join(released, block.others);
  learn(released, number, {block.epoch, thread.number});
}

bool RaceCheck::is_ordered(const Stamp& before, const Thread& thread, std::uint32_t block) const {
  if (before.block == kNobody) return true;
  const Block& own = blocks_[block];
  if (before.block != block) {
    const auto known = own.others.find(before.block);
    if (known == own.others.end() || before.epoch > known->second.epoch) return false;
    const std::uint32_t who = known->second.thread;
    return before.epoch < known->second.epoch || who == kNobody || who == before.thread;
  }
  if (before.epoch < own.epoch || before.thread == thread.number) return true;
  const bool same_warp = before.thread / kWarpSize == thread.number / kWarpSize;
  return same_warp && own.lanes[thread.number][before.thread % kWarpSize] >= before.clock;
}

void RaceCheck::compare(const Stamp& before, const Thread& thread, const Stamp& now) {
  if (is_ordered(before, thread, now.block) || (before.is_atomic && now.is_atomic)) return;
  const Race race = {
      before.access, now.access, blocks_[before.block].index, blocks_[now.block].index,
      before.thread, now.thread};
  races_.emplace(std::make_pair(before.access, now.access), race);
}

void RaceCheck::keep_read(Byte& byte, const Thread& thread, const Stamp& now) const {
  const auto tells_more = [&](const Stamp& a, const Stamp& b) {  // than b does, beside `now`
    const auto distance = [&](const Stamp& s) {
      return s.block != now.block ? 2 : s.thread / kWarpSize != now.thread / kWarpSize ? 1 : 0;
    };
    return a.is_atomic != b.is_atomic ? !a.is_atomic : distance(a) > distance(b);
  };
  const bool is_first_over = is_ordered(byte.read, thread, now.block);
  const bool is_other_over = is_ordered(byte.other, thread, now.block);
  if (!is_first_over && (is_other_over || tells_more(byte.read, byte.other))) {
    byte.other = byte.read;
  } else if (is_other_over) {
    byte.other = {};
  }
  byte.read = now;
}

RaceCheck::Page& RaceCheck::page_of(std::uintptr_t address) {
  const std::uintptr_t number = address / kPage;
  if (last_ != nullptr && number == last_page_) return *last_;
  std::unique_ptr<Page>& page = pages_[number];
  if (page == nullptr) page = std::make_unique<Page>();
  last_page_ = number;
  last_ = page.get();
  return *last_;
}

void RaceCheck::access(const Thread& thread, std::uintptr_t address, std::size_t bytes,
                       std::uint32_t access, bool is_write, bool is_atomic) {
  const std::uint32_t number = number_of(*thread.cta);
  const Block& block = blocks_[number];
  Stamp now;
  now.block = number;
  now.epoch = block.epoch;
  now.clock = block.lanes[thread.number][thread.lane()];
  now.thread = static_cast<std::uint16_t>(thread.number);
  now.is_atomic = is_atomic;
  now.access = access;
  for (std::uintptr_t at = address; at < address + bytes; ++at) {
    Byte& byte = page_of(at)[at % kPage];
    compare(byte.write, thread, now);
    if (is_write) {
      for (Stamp* read : {&byte.read, &byte.other}) {
        compare(*read, thread, now);
        // One that races with this write may race with the next as well.
        if (is_ordered(*read, thread, number)) *read = {};
      }
      byte.write = now;
    } else {
      keep_read(byte, thread, now);
    }
  }
}

std::vector<Race> RaceCheck::races() const {
  std::vector<Race> result;
  for (const auto& [accesses, race] : races_) result.push_back(race);
  return result;
}

}  // namespace minfer::emulator
