// SPDX-License-Identifier: MIT
//
// Eight fp32 numbers at once, and the one summation order of the oracle.
//
// A compiler vectorizes plain loops over float[8] as well, but not dependably: with loops, or loops
// under `omp simd`, the q4_0 GEMV ran at 1.0 to 2.7 billion weights a second on one core (g++ 12,
// clang 14, Zen 4), and it runs at 12 so. Hence this little type, with the instructions of
// x86-64-v3 and of aarch64 beside their portable meaning. All three give the same bits: each
// operation is exact or rounds each lane once, by IEEE 754, and lanes never meet but in
// sum_lanes(). Tests compare them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <minfer/math.h>

#if !defined(MINFER_PORTABLE_LANES) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define MINFER_LANES_AVX2
#include <immintrin.h>
#elif !defined(MINFER_PORTABLE_LANES) && defined(__aarch64__)
#define MINFER_LANES_NEON
#include <arm_neon.h>
#endif

namespace minfer::oracle {

#if defined(MINFER_LANES_AVX2)

struct F32x8 {
  __m256 v;
};
inline F32x8 load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline void store(float* p, F32x8 a) {
  _mm256_storeu_ps(p, a.v);
}
inline F32x8 broadcast(float a) {
  return {_mm256_set1_ps(a)};
}
inline F32x8 add(F32x8 a, F32x8 b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline F32x8 sub(F32x8 a, F32x8 b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline F32x8 mul(F32x8 a, F32x8 b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline F32x8 fma(F32x8 a, F32x8 b, F32x8 c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline F32x8 from_i8(const std::int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}

inline F32x8 from_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline float from_f16(std::uint16_t half) {
  return _cvtsh_ss(half);
}

#elif defined(MINFER_LANES_NEON)

struct F32x8 {
  float32x4_t lo, hi;
};
inline F32x8 load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4)};
}
inline void store(float* p, F32x8 a) {
  vst1q_f32(p, a.lo);
  vst1q_f32(p + 4, a.hi);
}
inline F32x8 broadcast(float a) {
  return {vdupq_n_f32(a), vdupq_n_f32(a)};
}
inline F32x8 add(F32x8 a, F32x8 b) {
  return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)};
}
inline F32x8 sub(F32x8 a, F32x8 b) {
  return {vsubq_f32(a.lo, b.lo), vsubq_f32(a.hi, b.hi)};
}
inline F32x8 mul(F32x8 a, F32x8 b) {
  return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}
inline F32x8 fma(F32x8 a, F32x8 b, F32x8 c) {
  return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}
inline F32x8 from_i8(const std::int8_t* p) {
  const int16x8_t wide = vmovl_s8(vld1_s8(p));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))),
          vcvtq_f32_s32(vmovl_s16(vget_high_s16(wide)))};
}
inline F32x8 from_f16(const std::uint16_t* p) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_f32_f16(vget_high_f16(halves))};
}
inline float from_f16(std::uint16_t half) {
  return float_from_half(half);
}

#else

struct F32x8 {
  float v[8];
};
/// The eight numbers from p on. No alignment is asked for.
inline F32x8 load(const float* p) {
  F32x8 a;
  std::memcpy(a.v, p, sizeof a.v);
  return a;
}
inline void store(float* p, const F32x8& a) {
  std::memcpy(p, a.v, sizeof a.v);
}
inline F32x8 broadcast(float a) {
  return {{a, a, a, a, a, a, a, a}};
}
inline F32x8 add(F32x8 a, const F32x8& b) {
  for (int i = 0; i < 8; ++i) a.v[i] += b.v[i];
  return a;
}
inline F32x8 sub(F32x8 a, const F32x8& b) {
  for (int i = 0; i < 8; ++i) a.v[i] -= b.v[i];
  return a;
}
inline F32x8 mul(F32x8 a, const F32x8& b) {
  for (int i = 0; i < 8; ++i) a.v[i] *= b.v[i];
  return a;
}
/// a * b + c, rounded once.
inline F32x8 fma(const F32x8& a, const F32x8& b, F32x8 c) {
  for (int i = 0; i < 8; ++i) c.v[i] = std::fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
/// Eight signed bytes as floats, exactly.
inline F32x8 from_i8(const std::int8_t* p) {
  F32x8 a;
  for (int i = 0; i < 8; ++i) a.v[i] = static_cast<float>(p[i]);
  return a;
}
/// Eight IEEE 754 binary16 numbers as floats, exactly (of a NaN only that it is one).
inline F32x8 from_f16(const std::uint16_t* p) {
  F32x8 a;
  for (int i = 0; i < 8; ++i) a.v[i] = float_from_half(p[i]);
  return a;
}
inline float from_f16(std::uint16_t half) {
  return float_from_half(half);
}

#endif

/// Partial sums of a dot product: lane i takes the elements whose index is i modulo 32. Four
/// registers of eight keep two FMA units with a latency of four cycles half busy on one row; the
/// next rows' work fills the rest.
inline constexpr std::size_t kLanes = 32;

/// The sum of 32 lanes, always in this order: halves onto each other, 16, 8, 4, 2, 1.
inline float sum_lanes(const F32x8& a, const F32x8& b, const F32x8& c, const F32x8& d) {
  float s[8];
  store(s, add(add(a, c), add(b, d)));
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/// sum of a[i] * b[i], i < n: 32 lanes of fused multiply-adds, in ascending order each, then
/// sum_lanes(). This order is the oracle's only one: every sum over a row, a head or a context has
/// it.
inline float dot(const float* a, const float* b, std::size_t n) {
  F32x8 lanes[4] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};
  std::size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int j = 0; j < 4; ++j) lanes[j] = fma(load(a + k + 8 * j), load(b + k + 8 * j), lanes[j]);
  }
  if (k < n) {
    float rest_a[kLanes] = {}, rest_b[kLanes] = {};
    std::memcpy(rest_a, a + k, (n - k) * sizeof(float));
    std::memcpy(rest_b, b + k, (n - k) * sizeof(float));
    for (int j = 0; j < 4; ++j)
      lanes[j] = fma(load(rest_a + 8 * j), load(rest_b + 8 * j), lanes[j]);
  }
  return sum_lanes(lanes[0], lanes[1], lanes[2], lanes[3]);
}

/// sum of a[i], i < n, in the order of dot().
inline float sum(const float* a, std::size_t n) {
  F32x8 lanes[4] = {broadcast(0), broadcast(0), broadcast(0), broadcast(0)};
  std::size_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int j = 0; j < 4; ++j) lanes[j] = add(lanes[j], load(a + k + 8 * j));
  }
  if (k < n) {
    float rest[kLanes] = {};
    std::memcpy(rest, a + k, (n - k) * sizeof(float));
    for (int j = 0; j < 4; ++j) lanes[j] = add(lanes[j], load(rest + 8 * j));
  }
  return sum_lanes(lanes[0], lanes[1], lanes[2], lanes[3]);
}

}  // namespace minfer::oracle
