// SPDX-License-Identifier: MIT
//
// Shared memory, declared in a way that the emulator can follow.
//
// CUDA's `__shared__ float tile[32]` names storage of which every CTA that is running has one. On a
// CPU no storage class says that: `static` is one for the program, `static thread_local` one for an
// operating-system thread, which runs several CTAs at once when a cooperative grid needs them all;
// and AddressSanitizer sees no overrun of a thread-local array. So the emulator must make the
// storage itself, from the declaration's type, name and place: those are the arguments of
// MINFER_SHARED. It cannot be a function, since two arrays of one type must be two arrays.
#pragma once

#include <cuda_runtime.h>

#if defined(MINFER_EMULATOR)

#include "cuda/emulator/shared_arena.h"

#define MINFER_SHARED(type, name, ...)                                 \
  typedef type name##_shared_type __VA_ARGS__;                         \
  static ::minfer::emulator::SharedVariable name##_shared_variable(    \
      #name, sizeof(name##_shared_type), alignof(name##_shared_type)); \
  name##_shared_type& name = *static_cast<name##_shared_type*>(        \
      ::minfer::emulator::shared_variable(name##_shared_variable))

#else

/// Declares a static shared variable: MINFER_SHARED(float, tile, [32][33]) is
/// `__shared__ float tile[32][33]`, and MINFER_SHARED(int, count) is `__shared__ int count`.
#define MINFER_SHARED(type, name, ...) __shared__ type name __VA_ARGS__

#endif

namespace minfer {

/// The CTA's dynamic shared memory, of the size given at launch, as an array of T. It is one array,
/// whatever T: a kernel that keeps several things there places them itself.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  static_assert(alignof(T) <= 16, "dynamic shared memory is aligned to 16 bytes");
#if defined(MINFER_EMULATOR)
  return static_cast<T*>(emulator::dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char minfer_dynamic_shared[];
  return reinterpret_cast<T*>(minfer_dynamic_shared);
#endif
}

}  // namespace minfer
