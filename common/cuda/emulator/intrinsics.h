// SPDX-License-Identifier: MIT
//
// CUDA's integer, conversion and rounding intrinsics, and its cached loads. Approximate ones
// (__expf, __fdividef, rsqrtf, ...) are left out: no CPU has their bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda/emulator/vector_types.h"

namespace minfer::emulator {

/// Stands for those approximate functions whose names the C library has for its own.
template <class... T>
float approximate(T...) {
  static_assert(sizeof...(T) == 0, "no CPU has the bits of this approximation: see minfer/math.h");
  return 0;
}

}  // namespace minfer::emulator

#define __expf minfer::emulator::approximate
#define __logf minfer::emulator::approximate
#define __powf minfer::emulator::approximate
#define __sinf minfer::emulator::approximate
#define __cosf minfer::emulator::approximate

inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
  return __builtin_ffsll(x);
}

inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= (x >> i & 1u) << (31 - i);
  return result;
}

/// Four bytes chosen from the eight of y:x by the low three bits of each nibble of `selector`; a
/// nibble's high bit spreads the chosen byte's sign instead.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 7u;  // the fourth bit is not looked at
    result |= (static_cast<unsigned>(bytes >> (8 * choice)) & 0xffu) << (8 * i);
  }
  return result;
}

inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31u) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31u));
}

inline int __mulhi(int a, int b) {
  return static_cast<int>(std::int64_t{a} * b >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}

/// c plus the dot product of four signed bytes with four signed bytes, modulo 2^32.
inline int __dp4a(int a, int b, int c) {
  unsigned sum = static_cast<unsigned>(c);
  for (int i = 0; i < 32; i += 8) {
    const int product = static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
    sum += static_cast<unsigned>(product);
  }
  return static_cast<int>(sum);
}

/// The same for unsigned bytes.
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 0xffu) * (b >> i & 0xffu);
  return c;
}

namespace minfer::emulator {

template <class To, class From>
To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

/// A float as an integer between lo and hi, for a float that is already rounded to one; 0 for a
/// NaN.
template <class T>
T saturate(float x, T lo, T hi) {
  if (x != x) return 0;
  if (x <= static_cast<float>(lo)) return lo;
  if (x >= static_cast<float>(hi)) return hi;
  return static_cast<T>(x);
}

}  // namespace minfer::emulator

inline int __float_as_int(float x) {
  return minfer::emulator::bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return minfer::emulator::bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
  return minfer::emulator::bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return minfer::emulator::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return minfer::emulator::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return minfer::emulator::bit_cast<double>(x);
}

inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fmaf(a, b, c);
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline float __frcp_rn(float a) {
  return 1.0f / a;
}

inline int __float2int_rn(float x) {
  return minfer::emulator::saturate(std::nearbyint(x), INT32_MIN, INT32_MAX);
}
inline int __float2int_rz(float x) {
  return minfer::emulator::saturate(std::trunc(x), INT32_MIN, INT32_MAX);
}
inline unsigned __float2uint_rn(float x) {
  return minfer::emulator::saturate(std::nearbyint(x), 0u, UINT32_MAX);
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}

// Loads and stores with a hint for the caches, which means nothing here.
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
T __ldlu(const T* address) {
  return *address;
}
template <class T>
T __ldcv(const T* address) {
  return *static_cast<const volatile T*>(address);
}
template <class T>
void __stcg(T* address, T value) {
  *address = value;
}
template <class T>
void __stcs(T* address, T value) {
  *address = value;
}
template <class T>
void __stwt(T* address, T value) {
  *address = value;
}

// CUDA declares these at global scope. Only for integers: max_f32() is the rule for floats.
inline int min(int a, int b) {
  return a < b ? a : b;
}
inline int max(int a, int b) {
  return a > b ? a : b;
}
inline unsigned min(unsigned a, unsigned b) {
  return a < b ? a : b;
}
inline unsigned max(unsigned a, unsigned b) {
  return a > b ? a : b;
}
inline long long min(long long a, long long b) {
  return a < b ? a : b;
}
inline long long max(long long a, long long b) {
  return a > b ? a : b;
}
inline unsigned long long min(unsigned long long a, unsigned long long b) {
  return a < b ? a : b;
}
inline unsigned long long max(unsigned long long a, unsigned long long b) {
  return a > b ? a : b;
}
