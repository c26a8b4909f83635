// SPDX-License-Identifier: MIT
//
// A warp's weights on their way: a ring of tiles in shared memory, filled ahead through all
// barriers, layers and tokens. No other warp touches it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "barrier.h"
#include "cuda/ptx.h"
#include "plan.h"

namespace minfer {

/// All matrices, packed: of each warp what it reads of all layers, and behind that what of the
/// head, each in whole batches.
struct PackedWeights {
  const unsigned char* batches;  ///< [n_batches, kBatchBytes]
  const WarpBatches* warps;      ///< [CTAs, kCtaWarps]
};

/// The addresses of a warp's batches, one after the other, to the end of the last step.
class BatchSource {
 public:
  /// @param first_predicted  the first step that reads the head
  __device__ BatchSource(const PackedWeights& weights, std::uint32_t n_steps,
                         std::uint32_t first_predicted)
      : weights_(weights), n_steps_(n_steps), first_predicted_(first_predicted) {}

  /// The next one's; null behind the last.
  __device__ const unsigned char* next() {
    if (at_ == end_) turn();
    const unsigned char* batch = at_;
    if (batch != nullptr) at_ += kBatchBytes;
    return batch;
  }

 private:
  /// To the head, or to the first layer again: where this warp has anything to read.
  __device__ void turn() {
    const WarpBatches own = weights_.warps[blockIdx.x * kCtaWarps + threadIdx.x / 32];
    const unsigned char* first = weights_.batches + std::size_t(own.first) * kBatchBytes;
    do {
      is_in_head_ = !is_in_head_ && step_ >= first_predicted_;
      if (!is_in_head_) step_ += 1;
      if (step_ == n_steps_) {
        at_ = end_ = nullptr;
        step_ -= 1;  // the next call comes here again
        is_in_head_ = true;
        return;
      }
      at_ = first + (is_in_head_ ? std::size_t(own.of_layers) * kBatchBytes : 0);
      end_ = at_ + std::size_t(is_in_head_ ? own.of_head : own.of_layers) * kBatchBytes;
    } while (at_ == end_);
  }

  const PackedWeights& weights_;
  const std::uint32_t n_steps_, first_predicted_;
  std::uint32_t step_ = ~0u;  ///< none yet
  bool is_in_head_ = true;
  const unsigned char *at_ = nullptr, *end_ = nullptr;
};

/// A lane's block of a tile.
struct Block {
  uint4 q;          ///< 32 nibbles
  std::uint16_t d;  ///< fp16
};

__device__ inline Block block_at(const unsigned char* tile, const Place& place) {
  return {reinterpret_cast<const uint4*>(tile)[place.nibbles],
          reinterpret_cast<const std::uint16_t*>(tile + kTileScales)[place.scale]};
}

/// Copied a batch at a time by one lane; barriers in shared memory count the bytes. sm_90.
/// @why Once begun, a copy needs no register and no lane, and what the lanes load meanwhile does
/// not queue up behind it.
class BulkCopies {
 public:
  static constexpr std::size_t kBytesABatch = kBatchBytes + sizeof(std::uint64_t);

  /// @param memory  the CTA's, for kCtaWarps rings of n_batches
  __device__ BulkCopies(unsigned char* memory, std::uint32_t n_batches)
      : arrived_(reinterpret_cast<std::uint64_t*>(memory + kCtaWarps * n_batches * kBatchBytes) +
                 threadIdx.x / 32 * n_batches) {
    if (threadIdx.x % 32 == 0) {
      for (std::uint32_t i = 0; i < n_batches; ++i) bulk_init(&arrived_[i]);
    }
    __syncwarp();  // arrived: written by the first lane, used by all
  }

  /// Begins to copy a batch to place i of the ring.
  __device__ void begin(std::uint32_t i, unsigned char* to, const unsigned char* batch) {
    if (batch != nullptr && threadIdx.x % 32 == 0) bulk_copy(to, batch, kBatchBytes, &arrived_[i]);
  }
  /// Waits for the copy to place i. @param parity  of how often it was copied to before
  __device__ void await(std::uint32_t i, std::uint32_t parity) { bulk_wait(&arrived_[i], parity); }

 private:
  std::uint64_t* const arrived_;  ///< [n_batches]
};

/// Copied 16 bytes a lane, which sm_80 can do as well. A group of copies is a batch.
/// @tparam kOwed  batches that may be through without another's copy having begun
template <std::uint32_t kBatches, std::uint32_t kOwed = 0>
class LaneCopies {
  static_assert(kBatches >= 2 + kOwed, "a take needs two of them");

 public:
  static constexpr std::size_t kBytesABatch = kBatchBytes;

  __device__ LaneCopies(unsigned char*, std::uint32_t) {}

  __device__ void begin(std::uint32_t, unsigned char* to, const unsigned char* batch) {
    if (batch != nullptr) {
#pragma unroll
      for (std::uint32_t i = 16 * (threadIdx.x % 32); i < kBatchBytes; i += 16 * 32) {
        cp_async<16>(to + i, batch + i);
      }
    }
    cp_async_commit();  // an empty group as well: they are counted
  }
  /// Whichever it is: it and the one before it are the oldest.
  __device__ void await(std::uint32_t, std::uint32_t) {
    cp_async_wait<kBatches - 2 - kOwed>();
  }
};

/// A warp's ring. @tparam Copies  how it is filled
template <class Copies>
class Ring {
 public:
  static constexpr std::size_t kBytesABatch = kCtaWarps * Copies::kBytesABatch;

  /// @param memory  the CTA's, of n_batches * kBytesABatch. @pre n_batches > 1
  __device__ Ring(unsigned char* memory, std::uint32_t n_batches, const BatchSource& source)
      : tiles_(memory + threadIdx.x / 32 * n_batches * kBatchBytes),
        n_tiles_(n_batches * kBatchTiles),
        copies_(memory, n_batches),
        source_(source) {
    for (std::uint32_t i = 0; i < n_batches; ++i) fill(i);
  }

  /// The lane's blocks of the next tiles. Of the batch that is through another copy begins.
  template <std::uint32_t kCount>
  __device__ void take(Block (&blocks)[kCount]) {
    static_assert(kCount <= kBatchTiles, "of two batches at most, and one of them is through");
    const bool is_through = await(kCount);
    __syncwarp();  // tiles: written by the copies, read by all lanes
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      blocks[i] = block_at(tile(i), place(threadIdx.x % 32, threadIdx.x / 32));
    }
    if (is_through) finish(next_ / kBatchTiles);
    next_ += kCount;
    wrap();
  }

  /// Leaves what is left of a batch: behind the layers, and behind the head.
  __device__ void finish_batch() {
    if (next_ % kBatchTiles == 0) return;
    const std::uint32_t first = next_ / kBatchTiles;
    next_ = (first + 1) * kBatchTiles;
    finish(first);
    wrap();
  }

  /// Waits for copies that nobody has taken, which write to shared memory.
  __device__ void drain() {
    for (; n_under_way_ > 0; --n_under_way_) {
      copies_.await(next_ / kBatchTiles, parity_);
      next_ += kBatchTiles;
      wrap();
    }
  }

 protected:
  /// Where tile i from the next on is.
  __device__ const unsigned char* tile(std::uint32_t i) const {
    const std::uint32_t at = next_ + i;
    return tiles_ + (at < n_tiles_ ? at : at - n_tiles_) * kTileBytes;
  }
  /// Waits for the next n tiles. @return whether the batch that they begin in is through with them
  __device__ bool await(std::uint32_t n) {
    const std::uint32_t first = next_ / kBatchTiles, end = next_ + n;
    const std::uint32_t last = (end - 1) / kBatchTiles;
    const bool is_over = last * kBatchTiles == n_tiles_;  // the last is in the ring's next round
    copies_.await(first, parity_);
    if (last != first) copies_.await(is_over ? 0 : last, is_over ? parity_ ^ 1 : parity_);
    return end / kBatchTiles != first;
  }
  __device__ void fill(std::uint32_t i) {
    const unsigned char* batch = source_.next();
    n_under_way_ += batch != nullptr;
    copies_.begin(i, tiles_ + i * kBatchBytes, batch);
  }
  __device__ void finish(std::uint32_t i) {
    __syncwarp();  // the batch: read by all lanes, written by the next copy
    n_under_way_ -= 1;
    fill(i);
  }
  __device__ void wrap() {
    if (next_ < n_tiles_) return;
    next_ -= n_tiles_;
    parity_ ^= 1;
  }

  unsigned char* const tiles_;  ///< [n_tiles, kTileBytes]
  const std::uint32_t n_tiles_;
  Copies copies_;
  BatchSource source_;
  std::uint32_t next_ = 0, parity_ = 0;  ///< tile, and of how often the ring was gone round
  std::uint32_t n_under_way_ = 0;        ///< batches that are not through
};

/// A ring whose tiles all warps of the CTA read. Of a batch that is through another copy begins
/// when all of them have read it.
/// @pre n_batches > 2
template <class Copies>
class SharedRing : public Ring<Copies> {
 public:
  using Ring<Copies>::Ring;

  /// Waits for the warp's next tiles, and tells where each is, in bytes from `from` on.
  template <std::uint32_t kCount>
  __device__ void offer(std::uint32_t (&at)[kBatchTiles], const unsigned char* from) {
    static_assert(kCount <= kBatchTiles, "of two batches at most, and one of them is through");
    const bool is_through = this->await(kCount);
    const std::uint32_t lane = threadIdx.x % 32;
    if (lane < kCount) at[lane] = static_cast<std::uint32_t>(this->tile(lane) - from);
    taken_ = is_through ? this->next_ / kBatchTiles : kNone;
    this->next_ += kCount;
    this->wrap();
  }
  /// After a barrier of the CTA behind offer(): what was offered the last time is read.
  __device__ void refill() {
    if (read_ != kNone) this->finish(read_);
    read_ = taken_;
    taken_ = kNone;
  }
  /// After a barrier of the CTA: all that was offered is read.
  __device__ void refill_all() {
    refill();
    refill();
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;
  std::uint32_t taken_ = kNone, read_ = kNone;  ///< batches to be filled again
};

/// What a CTA goes through its phases with.
template <class Copies>
struct Cta {
  GridBarrier barrier;
  Ring<Copies> ring;
  const CtaUnits& units;  ///< in shared memory: registers would be held, or spilt, all the time
};

}  // namespace minfer
