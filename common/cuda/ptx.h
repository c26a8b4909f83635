// SPDX-License-Identifier: MIT
//
// The PTX instructions that kernels use, as functions. No other file contains PTX. Beside each
// stands what it means on any machine, which is what the emulator runs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#if defined(MINFER_EMULATOR)
#include "cuda/emulator/ptx.h"
#endif

namespace minfer {

// ---------------------------------------------------------------------------- tensor cores

/// d = a b + c on the tensor cores: a is 16x32 and b 32x8, both signed bytes, c and d 16x8, 32-bit
/// integers modulo 2^32. All 32 lanes take part; each holds four bytes a register. With g = lane /
/// 4 and t = lane % 4:
///
///     a[0] row g,     columns 4t .. 4t+3       a[2] row g,     columns 16+4t .. 16+4t+3
///     a[1] row g + 8, columns 4t .. 4t+3       a[3] row g + 8, columns 16+4t .. 16+4t+3
///     b[0] column g,  rows    4t .. 4t+3       b[1] column g,  rows    16+4t .. 16+4t+3
///     c[0], c[1] row g,     columns 2t, 2t+1   c[2], c[3] row g + 8, columns 2t, 2t+1
///
/// d is laid out as c, and may be c. PTX: mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32
__device__ __forceinline__ void mma_m16n8k32_s8(int (&d)[4], const std::uint32_t (&a)[4],
                                                const std::uint32_t (&b)[2], const int (&c)[4]) {
#if defined(MINFER_EMULATOR)
  emulator::mma_m16n8k32_s8(d, a, b, c);
#else
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
#endif
}

// ---------------------------------------------------------------------------- asynchronous copies

/// Begins to copy `Bytes` bytes from global to shared memory; of them, the last `zeros` are set to
/// 0 instead. The copy is done when this thread has waited for its group, and not before; other
/// threads see it after a barrier that follows. `Bytes` is 4, 8 or 16, and both addresses are
/// multiples of it. 16 bytes bypass L1. PTX: cp.async.ca.shared.global, cp.async.cg.shared.global
template <int Bytes>
__device__ __forceinline__ void cp_async(void* shared, const void* global, int zeros = 0) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#if defined(MINFER_EMULATOR)
  emulator::cp_async(shared, global, Bytes, zeros);
#else
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int from_global = Bytes - zeros;
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(to), "l"(global), "n"(Bytes), "r"(from_global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(to), "l"(global), "n"(Bytes), "r"(from_global)
                 : "memory");
  }
#endif
}

/// Makes a group of the copies that this thread has begun since the last one. PTX:
/// cp.async.commit_group
__device__ __forceinline__ void cp_async_commit() {
#if defined(MINFER_EMULATOR)
  emulator::async_copies().commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until of this thread's groups at most the latest `Pending` are not done.
/// PTX: cp.async.wait_group
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
#if defined(MINFER_EMULATOR)
  emulator::async_copies().wait(Pending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

// ---------------------------------------------------------------------------- bulk copies

// One instruction of one thread copies any number of bytes, and a barrier in shared memory counts
// them as they arrive. sm_90 and newer: can_copy_in_bulk().

/// Whether GPUs of this compute capability do it. The emulator always does.
constexpr bool can_copy_in_bulk(int compute_major) {
#if defined(MINFER_EMULATOR)
  return compute_major > 0;
#else
  return compute_major >= 9;
#endif
}

/// Makes a barrier whose phases end when one thread has said what it expects, and that has come.
/// The first phase has the parity 0. Other threads may use it after a barrier of the block that
/// follows. PTX: mbarrier.init, fence.mbarrier_init
__device__ __forceinline__ void bulk_init(std::uint64_t* barrier) {
#if defined(MINFER_EMULATOR)
  __atomic_store_n(barrier, 0, __ATOMIC_RELAXED);
#elif __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  __trap();
#endif
}

/// Begins to copy `bytes` bytes from global to shared memory, which end a phase of `barrier`. The
/// addresses and `bytes` are multiples of 16. Who has read what was there before must be ordered
/// before. PTX: mbarrier.arrive.expect_tx, cp.async.bulk.shared::cluster.global
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, unsigned bytes,
                                          std::uint64_t* barrier) {
#if defined(MINFER_EMULATOR)
  emulator::bulk_copy(shared, global, bytes, barrier);
#elif __CUDA_ARCH__ >= 900
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(global), "r"(bytes), "r"(at)
      : "memory");
#else
  __trap();
#endif
}

/// Asks for `bytes` bytes to be brought to L2. The address and `bytes` are multiples of 16.
/// PTX: cp.async.bulk.prefetch.L2
__device__ __forceinline__ void bulk_prefetch(const void* global, unsigned bytes) {
#if defined(MINFER_EMULATOR)
  (void)global, (void)bytes;
#elif __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
#else
  __trap();
#endif
}

/// Waits for the end of the barrier's phase of this parity: what was copied is there.
/// PTX: mbarrier.try_wait.parity
__device__ __forceinline__ void bulk_wait(std::uint64_t* barrier, unsigned parity) {
#if defined(MINFER_EMULATOR)
  emulator::bulk_wait(barrier, parity);
#elif __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(at),
      "r"(parity)
      : "memory");
#else
  __trap();
#endif
}

// ---------------------------------------------------------------------------- arithmetic

/// sum + the products of a's four unsigned bytes with b's four signed ones. PTX: dp4a.u32.s32
__device__ __forceinline__ int dp4a_unsigned(unsigned a, unsigned b, int sum) {
#if defined(MINFER_EMULATOR)
  for (int i = 0; i < 32; i += 8) {
    sum += static_cast<int>(a >> i & 255) * static_cast<std::int8_t>(b >> i & 255);
  }
  return sum;
#else
  int result;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  return result;
#endif
}

// ---------------------------------------------------------------------------- loads with a hint

/// 16 bytes that no kernel writes and that are read once: through the read-only path, not kept in
/// L1. PTX: ld.global.nc.L1::no_allocate.v4.u32
__device__ __forceinline__ uint4 load_streaming(const uint4* address) {
#if defined(MINFER_EMULATOR)
  return *address;
#else
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
#endif
}

/// Asks for the cache line of `address` to be brought to L2. PTX: prefetch.global.L2
__device__ __forceinline__ void prefetch_l2(const void* address) {
#if defined(MINFER_EMULATOR)
  __builtin_prefetch(address);
#else
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

// ---------------------------------------------------------------------------- signals

/// Reads what another CTA has written; what it wrote before by store_release() (or a fence and an
/// atomic) is then seen as well. PTX: ld.acquire.gpu.global.u32
__device__ __forceinline__ unsigned load_acquire(const unsigned* address) {
#if defined(MINFER_EMULATOR)
  return __atomic_load_n(address, __ATOMIC_ACQUIRE);
#else
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
#endif
}

/// Reads what another CTA has written, and nothing of what it wrote before is promised: for a poll
/// that a fence follows. PTX: ld.relaxed.gpu.global.u32
__device__ __forceinline__ unsigned load_relaxed(const unsigned* address) {
#if defined(MINFER_EMULATOR)
  return __atomic_load_n(address, __ATOMIC_RELAXED);
#else
  unsigned v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
#endif
}

/// Writes for load_acquire() in other CTAs. PTX: st.release.gpu.global.u32
__device__ __forceinline__ void store_release(unsigned* address, unsigned value) {
#if defined(MINFER_EMULATOR)
  emulator::store_release(address, value);
#else
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
#endif
}

/// load_acquire() of what the host has written to mapped memory. PTX: ld.acquire.sys.global.u32
__device__ __forceinline__ unsigned load_acquire_system(const unsigned* address) {
#if defined(MINFER_EMULATOR)
  return __atomic_load_n(address, __ATOMIC_ACQUIRE);
#else
  unsigned v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
#endif
}

/// store_release() that the host sees, in mapped memory. PTX: st.release.sys.global.u32
__device__ __forceinline__ void store_release_system(unsigned* address, unsigned value) {
#if defined(MINFER_EMULATOR)
  emulator::store_release(address, value);
#else
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
#endif
}

/// Adds to a counter that others poll with load_acquire(); what this thread (and, after a barrier,
/// its CTA) wrote before is seen by who sees the sum. Returns the sum before. PTX:
/// atom.add.acq_rel.gpu
__device__ __forceinline__ unsigned atomic_add_acq_rel(unsigned* address, unsigned value) {
#if defined(MINFER_EMULATOR)
  return atomicAdd(address, value);
#else
  unsigned old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(value)
               : "memory");
  return old;
#endif
}

/// Adds to a counter that others poll with load_acquire(); what this thread (and, after a barrier,
/// its CTA) wrote before is seen by who sees the sum. PTX: red.add.release.gpu
__device__ __forceinline__ void add_release(unsigned* address, unsigned value) {
#if defined(MINFER_EMULATOR)
  atomicAdd(address, value);
#else
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
#endif
}

/// Reads what the host has written to mapped memory, and promises nothing of what it wrote before.
/// PTX: ld.relaxed.sys.global.u32
__device__ __forceinline__ unsigned load_relaxed_system(const unsigned* address) {
#if defined(MINFER_EMULATOR)
  return __atomic_load_n(address, __ATOMIC_RELAXED);
#else
  unsigned v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
  return v;
#endif
}

/// Writes eight bytes to mapped memory, which the host sees all at once; nothing waits for them.
/// PTX: st.relaxed.sys.global.u64
__device__ __forceinline__ void store_relaxed_system(std::uint64_t* address, std::uint64_t value) {
#if defined(MINFER_EMULATOR)
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
#else
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
#endif
}

// ---------------------------------------------------------------------------- kernels in a row

/// Waits until the kernel before this one on its stream has ended, and what it wrote is seen: for a
/// kernel that begins early. Each such kernel calls it, or the next one cannot rely on those
/// before. Nothing below sm_90, where none does. PTX: griddepcontrol.wait
__device__ __forceinline__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// From here on the next kernel on the stream may begin, as far as there is room.
/// PTX: griddepcontrol.launch_dependents
__device__ __forceinline__ void let_next_kernel_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// ---------------------------------------------------------------------------- special registers

/// This thread's number in its warp. PTX: %laneid
__device__ __forceinline__ unsigned lane_id() {
#if defined(MINFER_EMULATOR)
  return emulator::lane();
#else
  unsigned v;
  asm("mov.u32 %0, %%laneid;" : "=r"(v));
  return v;
#endif
}

/// threadIdx.x, read anew at each call: what a loop computes from it is computed again, and is not
/// kept in registers around the loop. PTX: %tid.x
__device__ __forceinline__ unsigned fresh_thread() {
#if defined(MINFER_EMULATOR)
  return threadIdx.x;
#else
  unsigned v;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v));
  return v;
#endif
}

/// The lanes before this one, as a mask. PTX: %lanemask_lt
__device__ __forceinline__ unsigned lane_mask_below() {
#if defined(MINFER_EMULATOR)
  return (1u << emulator::lane()) - 1;
#else
  unsigned v;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(v));
  return v;
#endif
}

/// Nanoseconds on a clock that all SMs share; its steps may be as wide as a microsecond.
/// PTX: %globaltimer
__device__ __forceinline__ std::uint64_t global_timer_ns() {
#if defined(MINFER_EMULATOR)
  return emulator::global_timer_ns();
#else
  std::uint64_t v;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
  return v;
#endif
}

}  // namespace minfer
