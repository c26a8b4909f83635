// SPDX-License-Identifier: MIT
//
// AddressSanitizer's interface, and its absence: without it every function here does nothing.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define MINFER_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MINFER_EMULATOR_ASAN 1
#endif
#endif

#if defined(MINFER_EMULATOR_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace minfer::emulator {

#if defined(MINFER_EMULATOR_ASAN)
inline constexpr bool kAddressSanitizer = true;

/// Makes every access to [begin, begin + bytes) an error.
inline void poison(const volatile void* begin, std::size_t bytes) {
  __asan_poison_memory_region(begin, bytes);
}

/// Allows accesses to [begin, begin + bytes) again.
inline void unpoison(const volatile void* begin, std::size_t bytes) {
  __asan_unpoison_memory_region(begin, bytes);
}

/// Announces that this stack is left for [bottom, bottom + bytes). `fake_stack` keeps what belongs
/// to this stack until it is resumed; nullptr if it never is.
inline void announce_switch(void** fake_stack, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
}

/// Announces the arrival on a stack, with what announce_switch() kept when it was left (nullptr the
/// first time), and tells which stack was left.
inline void announce_arrival(void* fake_stack, const void** bottom, std::size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
}
#else
inline constexpr bool kAddressSanitizer = false;
inline void poison(const volatile void*, std::size_t) {}
inline void unpoison(const volatile void*, std::size_t) {}
inline void announce_switch(void**, const void*, std::size_t) {}
inline void announce_arrival(void*, const void**, std::size_t*) {}
#endif

}  // namespace minfer::emulator
