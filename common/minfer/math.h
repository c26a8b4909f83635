// SPDX-License-Identifier: MIT
//
// Deterministic arithmetic for host and device: the same bits from g++ and clang on x86-64 and
// aarch64 and from nvcc on every GPU.
//
// Every function here is a fixed sequence of IEEE 754 binary32 operations (add, multiply, divide,
// square root, explicit fused multiply-add, compare, and moves between float and integer bits),
// each rounded to nearest even. That sequence has one meaning only if nothing fuses or reorders it:
// device code is compiled with --fmad=false, host code with -ffp-contract=off, and neither with
// fast-math. All functions are branch-free (a select, never a jump), so that a host compiler can
// vectorize a loop around them and a warp does not diverge in them.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
/// Marks a function for host and device under a CUDA compiler, and means nothing elsewhere.
#define MINFER_HD __host__ __device__
#else
#define MINFER_HD
#endif

#if defined(__FAST_MATH__)
#error "minfer's numerics need IEEE arithmetic: build without -ffast-math"
#endif
#if !defined(__CUDACC__) && FLT_EVAL_METHOD != 0
#error "minfer's numerics need float arithmetic in float precision (on x86: SSE, not x87)"
#endif

namespace minfer {

/// The float whose IEEE 754 representation is `bits`.
MINFER_HD inline float float_from_bits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

/// The IEEE 754 representation of `value`; a NaN keeps its sign and payload.
MINFER_HD inline std::uint32_t bits_from_float(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

/// The one NaN that these functions return: quiet, positive, no payload.
inline constexpr std::uint32_t kNanBits = 0x7fc00000u;

/// `a > b ? a : b`: the second argument where they compare equal (so of +0 and -0) and where either
/// is a NaN. Unlike fmaxf this is one rule on every machine; a reduction that must not lose a NaN
/// has to look for it itself.
MINFER_HD inline float max_f32(float a, float b) {
  return a > b ? a : b;
}

/// `a < b ? a : b`, with the same rule for ties and NaN as max_f32().
MINFER_HD inline float min_f32(float a, float b) {
  return a < b ? a : b;
}

/// x rounded to the nearest integer, ties to even, clamped to [lo, hi]; a NaN gives 0 (or the bound
/// nearest to it), so that `0 * inf`, which a block with an underflowing scale produces, stays 0.
/// @pre -2^22 <= lo <= hi <= 2^22
/// @note Adding 1.5 * 2^23 leaves a float whose unit in the last place is 1, so the addition itself
///       rounds to an integer, in the default rounding mode half to even. The integer then stands
///       in the low mantissa bits. rintf() would do, but is a call or an instruction by compiler
///       flags.
MINFER_HD inline std::int32_t round_half_even_to_int(float x, std::int32_t lo, std::int32_t hi) {
  constexpr float kShift = 0x1.8p23f;
  constexpr std::uint32_t kShiftBits = 0x4b400000u;
  const float number = x == x ? x : 0.0f;
  const float at_least_lo = max_f32(number, static_cast<float>(lo));
  const float clamped = min_f32(at_least_lo, static_cast<float>(hi));
  return static_cast<std::int32_t>(bits_from_float(clamped + kShift) - kShiftBits);
}

/// e^x, with an error of at most 0.80 ulp over all floats, denormal results included (there an ulp
/// is 2^-149). exp(-inf) = 0, exp(+inf) = inf; overflows to inf above 88.7228; a NaN gives
/// kNanBits.
///
/// e^x = 2^n e^r with n = round(x / ln 2) and r = x - n ln 2, |r| <= ln(2)/2. ln 2 is taken off in
/// two parts, each in a fused multiply-add, because one float of it would leave an error of n *
/// 2^-25. e^r = 1 + r + r^2 q(r), where q is the minimax polynomial of degree 4 for the relative
/// error of e^r (0.05 ulp with exact coefficients). 1 + r is summed with its rounding error kept,
/// which takes the error from 0.99 ulp to 0.80. 2^n is multiplied in two halves: 2^128 and 2^-150
/// are no floats, and this way overflow and denormals come out of the last multiplication, rounded
/// once.
MINFER_HD inline float exp_f32(float x) {
  constexpr float kLargest = 89.0f;     // e^89 > FLT_MAX
  constexpr float kSmallest = -104.0f;  // e^-104 < 2^-150, half of the least denormal
  constexpr float kShift = 0x1.8p23f;   // as in round_half_even_to_int()
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e43p-1f;
  constexpr float kLn2Low = -0x1.05c61p-29f;

  // Both selects pass a NaN on.
  const float below = x > kLargest ? kLargest : x;
  const float clamped = below < kSmallest ? kSmallest : below;

  const float shifted = fmaf(clamped, kLog2E, kShift);
  const float n = shifted - kShift;
  const float r_high = fmaf(n, -kLn2High, clamped);
  const float r = fmaf(n, -kLn2Low, r_high);

  float q = 0x1.6a2434p-10f;
  q = fmaf(q, r, 0x1.1239e2p-7f);
  q = fmaf(q, r, 0x1.5558f2p-5f);
  q = fmaf(q, r, 0x1.555492p-3f);
  q = fmaf(q, r, 0x1.fffffcp-2f);

  const float sum = 1.0f + r;
  const float sum_error = (1.0f - sum) + r;
  const float mantissa = sum + fmaf(r * r, q, sum_error);

  // Unsigned arithmetic: the bits of a NaN are an arbitrary number, whose overflow must be defined.
  const std::uint32_t exponent = bits_from_float(shifted) - bits_from_float(kShift);
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(exponent) >> 1);
  const float scale_1 = float_from_bits((half + 127u) << 23);
  const float scale_2 = float_from_bits((exponent - half + 127u) << 23);
  const float result = (mantissa * scale_1) * scale_2;
  return x == x ? result : float_from_bits(kNanBits);
}

/// SiLU, x / (1 + e^-x). Below -88.7 the result is -0; silu(-inf) is a NaN, as -inf / inf is.
MINFER_HD inline float silu_f32(float x) {
  return x / (1.0f + exp_f32(-x));
}

/// 1 / sqrt(x), both operations rounded by IEEE 754. rsqrtf() is an approximation that differs
/// between GPUs and does not exist on the host.
MINFER_HD inline float rsqrt_f32(float x) {
  return 1.0f / sqrtf(x);
}

/// The value of the IEEE 754 binary16 number `half`, exactly; denormals, infinities included. The
/// payload of a NaN is not specified (the GPU's conversion drops it).
MINFER_HD inline float float_from_half(std::uint16_t half) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(half));
#else
  // Moving exponent and mantissa to their place in a binary32 leaves a number 2^112 times too
  // small; scaling it is exact, and normalizes the binary16 denormals on the way.
  const std::uint32_t magnitude = (half & 0x7fffu) << 13;
  const float scaled = float_from_bits(magnitude) * 0x1p112f;
  const bool is_special = (half & 0x7c00u) == 0x7c00u;  // infinity or NaN
  const std::uint32_t bits = is_special ? (magnitude | 0x7f800000u) : bits_from_float(scaled);
  return float_from_bits(bits | (static_cast<std::uint32_t>(half & 0x8000u) << 16));
#endif
}

/// `value` rounded to the nearest IEEE 754 binary16 number, ties to even: from 65520 on an
/// infinity, below 2^-14 a denormal. A NaN gives 0x7fff, as the GPU's conversion does.
MINFER_HD inline std::uint16_t half_from_float(float value) {
#if defined(__CUDA_ARCH__)
  return __half_as_ushort(__float2half_rn(value));
#else
  const std::uint32_t bits = bits_from_float(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;

  // Normal results: move the exponent's bias from 127 to 15, and round off 13 bits of the mantissa.
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  const std::uint32_t rounded = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  const std::uint32_t normal = rounded < 0x7c00u ? rounded : 0x7c00u;

  // Denormal results: 0.5 has an ulp of 2^-24, the unit of binary16 denormals, so the sum rounds.
  const float sum = float_from_bits(magnitude) + 0.5f;
  const std::uint32_t denormal = bits_from_float(sum) - 0x3f000000u;

  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t number = (magnitude < 0x38800000u ? denormal : normal) | sign;
  return static_cast<std::uint16_t>(magnitude > 0x7f800000u ? 0x7fffu : number);
#endif
}

}  // namespace minfer
