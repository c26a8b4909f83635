// SPDX-License-Identifier: MIT
//
// The meaning of those PTX instructions of cuda/ptx.h that take more than a line of C++.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "cuda/emulator/hooks.h"
#include "cuda/emulator/intrinsics.h"

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_read_range(void* address, long bytes);
extern "C" void __tsan_write_range(void* address, long bytes);
#endif

namespace minfer::emulator {

inline void mma_m16n8k32_s8(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                            const int (&c)[4], Site site = Site::here()) {
  struct Fragments {
    std::array<std::uint32_t, 4> a;
    std::array<std::uint32_t, 2> b;
  };
  const Fragments own{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const WarpExchange<Fragments> all("mma", 0xffffffffu, own, site);
  const unsigned group = lane() / 4;
  const unsigned pair = lane() % 4 * 2;
  int result[4];
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned lower = i / 2;  // rows 8 to 15
    const unsigned column = pair + i % 2;
    int sum = c[i];
    for (unsigned t = 0; t < 4; ++t) {
      const Fragments row = all[group * 4 + t];
      const Fragments col = all[column * 4 + t];
      sum = __dp4a(static_cast<int>(row.a[lower]), static_cast<int>(col.b[0]), sum);
      sum = __dp4a(static_cast<int>(row.a[lower + 2]), static_cast<int>(col.b[1]), sum);
    }
    result[i] = sum;
  }
  for (unsigned i = 0; i < 4; ++i) d[i] = result[i];
}

inline void cp_async(void* shared, const void* global, int bytes, int zeros) {
  const auto misaligned = [bytes](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % static_cast<unsigned>(bytes) != 0;
  };
  if (misaligned(shared)) fail("cp.async to a shared address that its size does not divide");
  if (misaligned(global)) fail("cp.async from a global address that its size does not divide");
  if (zeros < 0 || zeros > bytes) fail("cp.async that zeroes more than it copies");
#if defined(__SANITIZE_THREAD__)  // for the lab: the copy itself is done elsewhere
  if (bytes > zeros) __tsan_read_range(const_cast<void*>(global), bytes - zeros);
  __tsan_write_range(shared, bytes);
#endif
  async_copies().add(shared, global, static_cast<std::size_t>(bytes - zeros),
                     static_cast<std::size_t>(zeros));
}

// A barrier of bulk copies: below, the bytes that are expected; above, the phases that have ended.

inline void bulk_copy(void* shared, const void* global, unsigned bytes, std::uint64_t* barrier) {
  for (const auto place : {reinterpret_cast<std::uintptr_t>(shared),
                           reinterpret_cast<std::uintptr_t>(global), std::uintptr_t{bytes}}) {
    if (place % 16 != 0) fail("bulk copy with an address or a size that 16 does not divide");
  }
  __atomic_fetch_add(barrier, bytes, __ATOMIC_RELAXED);
#if defined(__SANITIZE_THREAD__)  // for the lab: memcpy itself is not looked at
  __tsan_read_range(const_cast<void*>(global), bytes);
  __tsan_write_range(shared, bytes);
#endif
  std::memcpy(shared, global, bytes);
  const std::uint64_t left = __atomic_sub_fetch(barrier, bytes, __ATOMIC_ACQ_REL);
  if (left % (std::uint64_t{1} << 32) == 0) {
    __atomic_fetch_add(barrier, std::uint64_t{1} << 32, __ATOMIC_ACQ_REL);
  }
  note_progress();
}

inline void bulk_wait(std::uint64_t* barrier, unsigned parity, Site site = Site::here()) {
  while ((__atomic_load_n(barrier, __ATOMIC_ACQUIRE) >> 32) % 2 == parity) spin(site);
}

inline void store_release(unsigned* address, unsigned value) {
  __atomic_store_n(address, value, __ATOMIC_RELEASE);
  note_progress();
  preempt();
}

inline std::uint64_t global_timer_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace minfer::emulator
