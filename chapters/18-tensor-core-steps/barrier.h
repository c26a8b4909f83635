// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/ptx.h"
#include "cuda/spin.h"

namespace minfer {

/// Where all CTAs of a grid meet: what any of them wrote before it arrived is seen by each that has
/// waited. They arrive and wait in turns.
/// @pre the CTAs run at once
/// @why It only counts up, so nothing is ever set back, and the last arrival is itself what the
/// others wait for. Arriving and waiting are two calls, since what lies between them costs nothing.
class GridBarrier {
 public:
  /// @param count  in device memory: 0 at the launch
  __device__ explicit GridBarrier(unsigned* count) : count_(count) {}

  __device__ void arrive() {
    __syncthreads();  // what others read: written by all, published by one
    if (speaks()) add_release(count_, 1);
    target_ += gridDim.x;
  }

  __device__ void wait() {
    if (speaks()) {
      while (load_acquire(count_) < target_) spin_wait();
    }
    __syncthreads();  // what all CTAs wrote: acquired by one, read by all
  }

 private:
  /// @why A release waits for what its warp has under way, and the last warp has the fewest rows.
  __device__ static bool speaks() { return threadIdx.x == blockDim.x - 32; }

  unsigned* const count_;
  unsigned target_ = 0;
};

}  // namespace minfer
