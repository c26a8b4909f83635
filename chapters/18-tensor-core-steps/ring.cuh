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
    if (n_left_ == 0 && !turn()) return nullptr;
    n_left_ -= 1;
    const unsigned char* batch = at_;
    at_ += kBatchBytes;
    return batch;
  }

 private:
  /// To the head, or to the first layer again: where this warp has anything to read.
  /// @return false behind the last step
  __device__ bool turn() {
    for (; n_left_ == 0 && part_ < 2 * n_steps_; ++part_) {
      const bool is_head = part_ % 2 == 1;
      if (is_head && part_ / 2 < first_predicted_) continue;
      const WarpBatches own = weights_.warps[blockIdx.x * kCtaWarps + threadIdx.x / 32];
      const std::uint32_t first = own.first + (is_head ? own.of_layers : 0);
      at_ = weights_.batches + std::size_t(first) * kBatchBytes;
      n_left_ = is_head ? own.of_head : own.of_layers;
    }
    return n_left_ > 0;
  }

  const PackedWeights& weights_;
  const std::uint32_t n_steps_, first_predicted_;
  std::uint32_t part_ = 0;  ///< the next: of each step the layers, then the head
  std::uint32_t n_left_ = 0;
  const unsigned char* at_ = nullptr;
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

/// A warp's ring of batches. They are copied 16 bytes a lane, and a group of copies is a batch.
template <std::uint32_t kBatches>
class Ring {
 public:
  static constexpr std::size_t kBytes = kCtaWarps * kBatches * kBatchBytes;  ///< of a CTA's rings
  static_assert(kBatches > 1, "one is read while the next is copied");

  /// @param memory  the CTA's, of kBytes
  __device__ Ring(unsigned char* memory, const BatchSource& source)
      : tiles_(memory + threadIdx.x / 32 * kBatches * kBatchBytes), source_(source) {
    refill();
  }

  /// The lane's blocks of the next tiles.
  template <std::uint32_t kCount>
  __device__ void take(Block (&blocks)[kCount]) {
    static_assert(kCount <= kBatchTiles, "of two batches at most, and one of them is through");
    refill();
    cp_async_wait<kBatches - 2>();  // the two oldest, of which the others may be under way
    __syncwarp();                   // tiles: written by the copies, read by all lanes
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      blocks[i] = block_at(tile(i), place(threadIdx.x % 32, threadIdx.x / 32));
    }
    go_to(next_ + kCount);
  }

  /// Begins the copies into places that are through.
  /// @why Apart from take(): before a CTA waits for the others, it costs nothing.
  __device__ void refill() {
    fill_all_but(0);
  }

  /// Leaves what is left of a batch: behind the layers, and behind the head.
  __device__ void finish_batch() {
    if (next_ % kBatchTiles != 0) go_to((next_ / kBatchTiles + 1) * kBatchTiles);
  }

  /// Waits for copies that nobody has taken, which write to shared memory.
  __device__ void drain() {
    cp_async_wait<0>();
  }

 protected:
  static constexpr std::uint32_t kTiles = kBatches * kBatchTiles;

  /// Where tile i from the next on is.
  __device__ const unsigned char* tile(std::uint32_t i) const {
    return tiles_ + (next_ + i < kTiles ? next_ + i : next_ + i - kTiles) * kTileBytes;
  }

  /// Begins the copies into all places that are through but the last few.
  __device__ void fill_all_but(std::uint32_t few) {
    if (n_free_ <= few) return;
    __syncwarp();  // the batches: read by all lanes, written by the next copies
#pragma unroll 1
    for (; n_free_ > few; --n_free_) {
      const std::uint32_t batch = next_ / kBatchTiles + kBatches - n_free_;
      fill(batch < kBatches ? batch : batch - kBatches);
    }
  }
  __device__ void fill(std::uint32_t place) {
    const unsigned char* batch = source_.next();
    unsigned char* to = tiles_ + place * kBatchBytes;
    if (batch != nullptr) {
#pragma unroll
      for (std::uint32_t i = 16 * (threadIdx.x % 32); i < kBatchBytes; i += 16 * 32) {
        cp_async<16>(to + i, batch + i);
      }
    }
    cp_async_commit();  // an empty group as well: they are counted
  }

  /// To a tile of this batch or of the next.
  __device__ void go_to(std::uint32_t tile) {
    n_free_ += tile / kBatchTiles - next_ / kBatchTiles;
    next_ = tile < kTiles ? tile : tile - kTiles;
  }

  unsigned char* const tiles_;  ///< [kBatches, kBatchBytes]
  BatchSource source_;
  std::uint32_t next_ = 0;           ///< tile
  std::uint32_t n_free_ = kBatches;  ///< batches that are through, and not filled again
};

/// A ring whose tiles all warps of the CTA read. Of a batch that is through another copy begins
/// when all of them have read it.
template <std::uint32_t kBatches>
class SharedRing : public Ring<kBatches> {
  static_assert(kBatches > 2, "one is still read while two are waited for");

 public:
  using Ring<kBatches>::Ring;

  /// Waits for the warp's next tiles, and tells where each is, in bytes from `from` on.
  template <std::uint32_t kCount>
  __device__ void offer(std::uint32_t (&at)[kBatchTiles], const unsigned char* from) {
    static_assert(kCount <= kBatchTiles, "of two batches at most, and one of them is through");
    // The two oldest, of which the others may be under way: they are one fewer where a batch that
    // the others may be reading is not filled again.
    if (this->n_free_ == 0) {
      cp_async_wait<kBatches - 2>();
    } else {
      cp_async_wait<kBatches - 3>();
    }
    const std::uint32_t lane = threadIdx.x % 32;
    if (lane < kCount) at[lane] = static_cast<std::uint32_t>(this->tile(lane) - from);
    const std::uint32_t before = this->n_free_;
    this->go_to(this->next_ + kCount);
    n_offered_ = this->n_free_ - before;
  }
  /// After a barrier of the CTA behind offer(): what was offered the last time is read.
  __device__ void refill_read() {
    this->fill_all_but(n_offered_);
    n_offered_ = 0;
  }

 private:
  std::uint32_t n_offered_ = 0;  ///< batches that are through when all have read the last offer
};

/// What a CTA goes through its phases with.
template <std::uint32_t kBatches>
struct Cta {
  GridBarrier barrier;
  Ring<kBatches> ring;
  const CtaUnits& units;  ///< in shared memory: registers would be held, or spilt, all the time

  __device__ void arrive() { barrier.arrive(); }
  /// Behind what a phase asks for beforehand: those loads are not to queue up behind the weights.
  __device__ void wait() {
    ring.refill();
    barrier.wait();  // what was written before they arrived: by all CTAs, read by this one
  }
};

}  // namespace minfer
