// SPDX-License-Identifier: MIT
//
// A warp's weights on their way: a ring of tiles in shared memory, filled ahead through all
// barriers, layers and tokens. No other warp touches it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/ptx.h"
#include "plan.h"

namespace minfer {

/// Of a step, which tiles are read: all layers', and behind them the head's, from a step on.
struct PackedWeights {
  const unsigned char* layers;  ///< [n_layers, layer_tiles, kTileBytes]
  const unsigned char* head;    ///< [head_tiles, kTileBytes]
  const WarpTiles* warps;       ///< [CTAs, kCtaWarps]
  std::uint32_t n_layers, layer_tiles;
};

/// The addresses of a warp's tiles, one after the other, to the end of the last step.
class TileSource {
 public:
  __device__ TileSource(const PackedWeights& weights, std::uint32_t n_steps,
                        std::uint32_t first_predicted)
      : weights_(weights),
        tiles_(weights.warps[blockIdx.x * kCtaWarps + threadIdx.x / 32]),
        n_steps_(n_steps),
        first_predicted_(first_predicted) {
    enter();
  }

  /// The next one's; null behind the last.
  __device__ const unsigned char* next() {
    const unsigned char* tile = at_;
    if (left_ == 0) return nullptr;
    at_ += kTileBytes;
    left_ -= 1;
    if (left_ == 0) {
      part_ += 1;
      enter();
    }
    return tile;
  }

 private:
  /// Goes to the next part, a layer or the head, that has tiles for this warp.
  __device__ void enter() {
    for (; step_ < n_steps_; part_ += 1) {
      if (part_ > weights_.n_layers) {
        part_ = 0;
        step_ += 1;
        if (step_ == n_steps_) return;
      }
      const bool is_head = part_ == weights_.n_layers;
      left_ = !is_head ? tiles_.layer_count : step_ >= first_predicted_ ? tiles_.head_count : 0;
      const std::size_t tile =
          is_head ? tiles_.head_first
                  : std::size_t(part_) * weights_.layer_tiles + tiles_.layer_first;
      at_ = (is_head ? weights_.head : weights_.layers) + tile * kTileBytes;
      if (left_ > 0) return;
    }
  }

  const PackedWeights& weights_;
  const WarpTiles tiles_;
  const std::uint32_t n_steps_, first_predicted_;
  std::uint32_t step_ = 0, part_ = 0, left_ = 0;
  const unsigned char* at_ = nullptr;
};

/// A lane's block of a tile.
struct Block {
  uint4 q;          ///< 32 nibbles
  std::uint16_t d;  ///< fp16
};

__device__ inline Block block_of_lane(const unsigned char* tile, std::uint32_t lane) {
  return {reinterpret_cast<const uint4*>(tile)[lane],
          reinterpret_cast<const std::uint16_t*>(tile + kTileScales)[lane]};
}

/// Where a warp is in its ring.
class Slots {
 public:
  __device__ explicit Slots(std::uint32_t n) : n_(n) {}

  /// The next slot, of which the parity says in which round it is.
  __device__ std::uint32_t next() {
    const std::uint32_t slot = slot_;
    slot_ += 1;
    if (slot_ == n_) {
      slot_ = 0;
      parity_ ^= 1;
    }
    return slot;
  }
  __device__ std::uint32_t parity() const { return parity_; }

 private:
  const std::uint32_t n_;
  std::uint32_t slot_ = 0, parity_ = 0;
};

/// Copied a tile at a time by one lane; barriers in shared memory count the bytes. sm_90.
/// @why Once begun, a copy needs no register and no lane, and what the lanes load meanwhile does
/// not queue up behind it.
class BulkRing {
 public:
  static constexpr std::size_t kSlotBytes = kTileBytes + sizeof(std::uint64_t);

  /// @param memory  the CTA's, of kCtaWarps rings of n_slots tiles
  __device__ BulkRing(unsigned char* memory, std::uint32_t n_slots, const TileSource& source)
      : tiles_(memory + threadIdx.x / 32 * n_slots * kTileBytes),
        arrived_(reinterpret_cast<std::uint64_t*>(memory + kCtaWarps * n_slots * kTileBytes) +
                 threadIdx.x / 32 * n_slots),
        source_(source),
        slots_(n_slots) {
    if (threadIdx.x % 32 == 0) {
      for (std::uint32_t i = 0; i < n_slots; ++i) bulk_init(&arrived_[i]);
    }
    __syncwarp();  // arrived: written by the first lane, used by all
    for (std::uint32_t i = 0; i < n_slots; ++i) fill(i);
  }

  /// The lane's blocks of the next tiles; copies of others take their place.
  template <std::uint32_t kCount>
  __device__ void take(Block (&blocks)[kCount]) {
    std::uint32_t slot[kCount];
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) slot[i] = await();
    __syncwarp();  // slots: written by the copies, read by all lanes
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      blocks[i] = block_of_lane(tiles_ + slot[i] * kTileBytes, threadIdx.x % 32);
    }
    __syncwarp();  // slots: read by all lanes, written by the next copies
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) fill(slot[i]);
  }

  /// Waits for copies that nobody has taken, which write to shared memory.
  __device__ void drain() {
    while (n_under_way_ > 0) await();
  }

 private:
  __device__ void fill(std::uint32_t slot) {
    const unsigned char* tile = source_.next();
    if (tile == nullptr) return;
    n_under_way_ += 1;
    if (threadIdx.x % 32 == 0) {
      bulk_copy(tiles_ + slot * kTileBytes, tile, kTileBytes, &arrived_[slot]);
    }
  }
  __device__ std::uint32_t await() {
    const std::uint32_t parity = slots_.parity(), slot = slots_.next();
    bulk_wait(&arrived_[slot], parity);
    n_under_way_ -= 1;
    return slot;
  }

  unsigned char* const tiles_;    ///< [n_slots, kTileBytes]
  std::uint64_t* const arrived_;  ///< [n_slots]
  TileSource source_;
  Slots slots_;
  std::uint32_t n_under_way_ = 0;
};

/// Copied 16 bytes a lane, which sm_80 can do as well. A group of copies is a tile.
template <std::uint32_t kSlots>
class AsyncRing {
 public:
  static constexpr std::size_t kSlotBytes = kTileBytes;

  __device__ AsyncRing(unsigned char* memory, std::uint32_t, const TileSource& source)
      : tiles_(memory + threadIdx.x / 32 * kSlots * kTileBytes), source_(source), slots_(kSlots) {
    for (std::uint32_t i = 0; i < kSlots; ++i) fill(i);
  }

  template <std::uint32_t kCount>
  __device__ void take(Block (&blocks)[kCount]) {
    static_assert(kCount <= kSlots, "they are there at once");
    cp_async_wait<kSlots - kCount>();
    __syncwarp();  // slots: written by each lane's copies, read by all
    std::uint32_t slot[kCount];
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      slot[i] = slots_.next();
      blocks[i] = block_of_lane(tiles_ + slot[i] * kTileBytes, threadIdx.x % 32);
    }
    __syncwarp();  // slots: read by all lanes, written by the next copies
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) fill(slot[i]);
  }

  __device__ void drain() { cp_async_wait<0>(); }

 private:
  __device__ void fill(std::uint32_t slot) {
    const unsigned char* tile = source_.next();
    const std::uint32_t lane = threadIdx.x % 32, scales = kTileScales + 16 * lane;
    if (tile != nullptr) {
      unsigned char* to = tiles_ + slot * kTileBytes;
      cp_async<16>(to + 16 * lane, tile + 16 * lane);
      if (scales < kTileBytes) cp_async<16>(to + scales, tile + scales);
    }
    cp_async_commit();  // an empty group, too, keeps the count
  }

  unsigned char* const tiles_;  ///< [kSlots, kTileBytes]
  TileSource source_;
  Slots slots_;
};

}  // namespace minfer
