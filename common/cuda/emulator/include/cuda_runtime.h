// SPDX-License-Identifier: MIT
//
// Stands in for the CUDA toolkit's header of this name where kernels are compiled for the emulator,
// so that the same sources compile as C++.
#pragma once

// Before the macros below: libstdc++ writes __attribute__((__noinline__)) in these.
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <tuple>
#include <type_traits>

#include <math.h>

#include "cuda/emulator/atomics.h"
#include "cuda/emulator/intrinsics.h"
#include "cuda/emulator/runtime_api.h"
#include "cuda/emulator/sync.h"
#include "cuda/emulator/vector_types.h"
#include "cuda/emulator/warp.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

/// A CTA's own memory can't be made from this declaration alone: see cuda/shared.h.
#define __shared__ \
  _Pragma("GCC error \"declare it by MINFER_SHARED or dynamic_shared (cuda/shared.h)\"")
