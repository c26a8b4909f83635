// SPDX-License-Identifier: MIT
//
// Atomic operations on 32- and 64-bit integers. There are none on floating-point numbers: their sum
// depends on the order of the threads. An operation that changes memory is progress, which a
// spinning thread may wait for; a failed compare-and-swap is not.
#pragma once

#include <type_traits>

#include "cuda/emulator/hooks.h"

namespace minfer::emulator {

template <class T>
struct Identity {
  using type = T;
};
/// A parameter that takes no part in template argument deduction.
template <class T>
using NotDeduced = typename Identity<T>::type;

template <class T>
inline constexpr bool kIsAtomic = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);
#define MINFER_EMULATOR_CHECK_ATOMIC(T) \
  static_assert(                        \
      minfer::emulator::kIsAtomic<T>,   \
      "atomics are for integers of 32 or 64 bits: floating-point ones have no fixed order")

/// The type that T's sums wrap around in; T where there is none, which is refused.
template <class T>
using Wrapping =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, Identity<T>>::type;

inline void after_atomic(bool changed) {
  if (changed) note_progress();
  preempt();
}

/// old = *address; *address = change(old); in one step.
template <class T, class Change>
T atomic_update(T* address, Change change) {
  MINFER_EMULATOR_CHECK_ATOMIC(T);
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  T desired = change(old);
  while (!__atomic_compare_exchange_n(address, &old, desired, true, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
    desired = change(old);
  }
  after_atomic(desired != old);
  return old;
}

}  // namespace minfer::emulator

template <class T>
T atomicCAS(T* address, minfer::emulator::NotDeduced<T> compare,
            minfer::emulator::NotDeduced<T> value) {
  MINFER_EMULATOR_CHECK_ATOMIC(T);
  T old = compare;
  const bool swapped =
      __atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  minfer::emulator::after_atomic(swapped && compare != value);
  return old;
}

// atomicInc and atomicDec wrap at `v`, as CUDA has them.
#define MINFER_EMULATOR_ATOMIC(name, expression)                                      \
  template <class T>                                                                  \
  T name(T* address, minfer::emulator::NotDeduced<T> v) {                             \
    return minfer::emulator::atomic_update(                                           \
        address, [=]([[maybe_unused]] T old) { return static_cast<T>(expression); }); \
  }                                                                                   \
  template <class T>                                                                  \
  T name##_block(T* address, minfer::emulator::NotDeduced<T> v) {                     \
    return name(address, v);                                                          \
  }                                                                                   \
  template <class T>                                                                  \
  T name##_system(T* address, minfer::emulator::NotDeduced<T> v) {                    \
    return name(address, v);                                                          \
  }
MINFER_EMULATOR_ATOMIC(atomicAdd, static_cast<minfer::emulator::Wrapping<T>>(old) +
                                      static_cast<minfer::emulator::Wrapping<T>>(v))
MINFER_EMULATOR_ATOMIC(atomicSub, static_cast<minfer::emulator::Wrapping<T>>(old) -
                                      static_cast<minfer::emulator::Wrapping<T>>(v))
MINFER_EMULATOR_ATOMIC(atomicExch, v)
MINFER_EMULATOR_ATOMIC(atomicMin, v < old ? v : old)
MINFER_EMULATOR_ATOMIC(atomicMax, v > old ? v : old)
MINFER_EMULATOR_ATOMIC(atomicAnd, old& v)
MINFER_EMULATOR_ATOMIC(atomicOr, old | v)
MINFER_EMULATOR_ATOMIC(atomicXor, old ^ v)
MINFER_EMULATOR_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
MINFER_EMULATOR_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef MINFER_EMULATOR_ATOMIC

template <class T>
T atomicCAS_block(T* address, minfer::emulator::NotDeduced<T> compare,
                  minfer::emulator::NotDeduced<T> value) {
  return atomicCAS(address, compare, value);
}

template <class T>
T atomicCAS_system(T* address, minfer::emulator::NotDeduced<T> compare,
                   minfer::emulator::NotDeduced<T> value) {
  return atomicCAS(address, compare, value);
}
#undef MINFER_EMULATOR_CHECK_ATOMIC
