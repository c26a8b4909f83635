// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

namespace minfer {

/// Stands in the body of every loop that waits for another thread's write:
///
///     while (load_acquire(&arrived) < target) spin_wait();
///
/// On a GPU it is nothing: the hardware runs other warps while this one's load is under way, and a
/// pause only adds to the latency. In the emulator it lets the thread run that is waited for.
#if defined(MINFER_EMULATOR)
inline void spin_wait(emulator::Site site = emulator::Site::here()) {
  emulator::spin(site);
}
#else
__device__ __forceinline__ void spin_wait() {}
#endif

}  // namespace minfer
