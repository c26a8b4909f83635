// SPDX-License-Identifier: MIT
//
// What code calls that is compiled with `-fsanitize=thread`: a function before every load and
// store, and one in place of every atomic operation. The names are the compiler's, the bodies the
// lab's.
#include <cstddef>
#include <cstdint>

#include "cuda/emulator/lab/lab.h"

using minfer::emulator::Kind;

namespace {

inline void access(const volatile void* address, std::size_t bytes, Kind kind, void* frame,
                   std::size_t unit) {
  if (!minfer::emulator::is_looking) return;
  auto* lab = static_cast<minfer::emulator::Lab*>(minfer::emulator::observer);
  lab->access(reinterpret_cast<std::uintptr_t>(address), bytes, kind, frame, unit);
}

/// Of an access that is aligned less than it is long, the pieces that the compiler can count on: of
/// 4 bytes, as far as their addresses allow that.
constexpr std::size_t kUnaligned = 4;

}  // namespace

// Every function is called by a kernel's: its own frame begins the walk up the stack.
#define MINFER_LAB_FRAME __builtin_frame_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_read_range(void* address, std::size_t bytes) {
  access(address, bytes, Kind::read, MINFER_LAB_FRAME, bytes);
}
void __tsan_write_range(void* address, std::size_t bytes) {
  access(address, bytes, Kind::write, MINFER_LAB_FRAME, bytes);
}

#define MINFER_LAB_ACCESS(bytes)                                               \
  void __tsan_read##bytes(void* address) {                                     \
    access(address, bytes, Kind::read, MINFER_LAB_FRAME, bytes);               \
  }                                                                            \
  void __tsan_write##bytes(void* address) {                                    \
    access(address, bytes, Kind::write, MINFER_LAB_FRAME, bytes);              \
  }                                                                            \
  void __tsan_unaligned_read##bytes(void* address) {                           \
    access(address, bytes, Kind::read, MINFER_LAB_FRAME, bytes | kUnaligned);  \
  }                                                                            \
  void __tsan_unaligned_write##bytes(void* address) {                          \
    access(address, bytes, Kind::write, MINFER_LAB_FRAME, bytes | kUnaligned); \
  }                                                                            \
  void __tsan_volatile_read##bytes(void* address) {                            \
    access(address, bytes, Kind::read, MINFER_LAB_FRAME, bytes);               \
  }                                                                            \
  void __tsan_volatile_write##bytes(void* address) {                           \
    access(address, bytes, Kind::write, MINFER_LAB_FRAME, bytes);              \
  }
MINFER_LAB_ACCESS(1)
MINFER_LAB_ACCESS(2)
MINFER_LAB_ACCESS(4)
MINFER_LAB_ACCESS(8)
MINFER_LAB_ACCESS(16)
#undef MINFER_LAB_ACCESS

// The order that was asked for is not looked at: the strongest will do.
#define MINFER_LAB_FETCH(bits, name, builtin)                                             \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* address, \
                                                   std::uint##bits##_t value, int) {      \
    access(address, bits / 8, Kind::atomic, MINFER_LAB_FRAME, bits / 8);                  \
    return builtin(address, value, __ATOMIC_SEQ_CST);                                     \
  }
#define MINFER_LAB_ATOMIC(bits)                                                               \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* address, \
                                                 int) {                                       \
    access(address, bits / 8, Kind::atomic_read, MINFER_LAB_FRAME, bits / 8);                 \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                        \
  }                                                                                           \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* address,                     \
                                   std::uint##bits##_t value, int) {                          \
    access(address, bits / 8, Kind::atomic, MINFER_LAB_FRAME, bits / 8);                      \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                       \
  }                                                                                           \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* address,   \
                                                     std::uint##bits##_t* expected,           \
                                                     std::uint##bits##_t value, int, int) {   \
    access(address, bits / 8, Kind::atomic, MINFER_LAB_FRAME, bits / 8);                      \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST,     \
                                       __ATOMIC_SEQ_CST);                                     \
  }                                                                                           \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* address,     \
                                                   std::uint##bits##_t* expected,             \
                                                   std::uint##bits##_t value, int, int) {     \
    access(address, bits / 8, Kind::atomic, MINFER_LAB_FRAME, bits / 8);                      \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST,     \
                                       __ATOMIC_SEQ_CST);                                     \
  }                                                                                           \
  MINFER_LAB_FETCH(bits, exchange, __atomic_exchange_n)                                       \
  MINFER_LAB_FETCH(bits, fetch_add, __atomic_fetch_add)                                       \
  MINFER_LAB_FETCH(bits, fetch_sub, __atomic_fetch_sub)                                       \
  MINFER_LAB_FETCH(bits, fetch_and, __atomic_fetch_and)                                       \
  MINFER_LAB_FETCH(bits, fetch_or, __atomic_fetch_or)                                         \
  MINFER_LAB_FETCH(bits, fetch_xor, __atomic_fetch_xor)                                       \
  MINFER_LAB_FETCH(bits, fetch_nand, __atomic_fetch_nand)
MINFER_LAB_ATOMIC(8)
MINFER_LAB_ATOMIC(16)
MINFER_LAB_ATOMIC(32)
MINFER_LAB_ATOMIC(64)
#undef MINFER_LAB_ATOMIC
#undef MINFER_LAB_FETCH

void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
