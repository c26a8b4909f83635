// SPDX-License-Identifier: MIT
//
// Stands in for the CUDA toolkit's header of this name: half-precision numbers as a storage format.
// Arithmetic on them is left out; the project computes in float.
#pragma once

#include <cuda_runtime.h>
#include <minfer/math.h>

struct __half {
  std::uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
using half = __half;
using half2 = __half2;

inline float __half2float(__half h) {
  return minfer::float_from_half(h.bits);
}
inline __half __float2half_rn(float f) {
  return {minfer::half_from_float(f)};
}
inline __half __float2half(float f) {
  return __float2half_rn(f);
}
inline unsigned short __half_as_ushort(__half h) {
  return h.bits;
}
inline __half __ushort_as_half(unsigned short bits) {
  return {bits};
}

inline __half2 __halves2half2(__half x, __half y) {
  return {x, y};
}
inline __half __low2half(__half2 h) {
  return h.x;
}
inline __half __high2half(__half2 h) {
  return h.y;
}
inline float __low2float(__half2 h) {
  return __half2float(h.x);
}
inline float __high2float(__half2 h) {
  return __half2float(h.y);
}
inline float2 __half22float2(__half2 h) {
  return {__low2float(h), __high2float(h)};
}
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline __half2 __float22half2_rn(float2 f) {
  return __floats2half2_rn(f.x, f.y);
}
