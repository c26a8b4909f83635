// SPDX-License-Identifier: MIT
//
// Activations: normed and quantized by each CTA for itself, into shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <minfer/math.h>

#include "cuda/float4.h"
#include "cuda/reduce.h"
#include "cuda/shared.h"
#include "plan.h"

namespace minfer {

/// Where unit i of block b stands in a row of n_blocks blocks of kUnits units of 16 bytes, for a
/// warp whose lanes take a block each: first every lane's unit 0, then every lane's unit 1, and so
/// on; the row's last blocks may be fewer than a warp.
template <std::uint32_t kUnits>
MINFER_HD constexpr std::uint32_t interleaved(std::uint32_t b, std::uint32_t i,
                                              std::uint32_t n_blocks) {
  const std::uint32_t first = b / 32 * 32;
  const std::uint32_t width = n_blocks - first < 32 ? n_blocks - first : 32;
  return first * kUnits + i * width + (b - first);
}

/// N activations: every 32 share a scale. In int8 a block is two units of 16 values; in int16 it is
/// four, of 8 values: of each four the high bytes, then the low.
template <std::uint32_t N, std::uint32_t kUnits>
struct __align__(16) Quantized {
  uint4 q[N / 32 * kUnits];  ///< interleaved<kUnits>
  float d[N / 32];
  std::int32_t sums[N / 32];  ///< of 32 whole numbers
};
template <std::uint32_t N>
using Int8 = Quantized<N, 2>;
template <std::uint32_t N>
using Int16 = Quantized<N, 4>;

/// N activations of each of kMaxTokens tokens, in int8, as the tensor cores take them: lane l of a
/// warp has, of token l / 4, values 4 (l % 4) to 4 (l % 4) + 3 of a block, and those 16 on.
template <std::uint32_t N>
struct __align__(16) Int8Tokens {
  uint2 q[N / 32][32];
  float d[N / 32][kMaxTokens];
  std::int32_t sums[N / 32][kMaxTokens];  ///< of 32 whole numbers
};

/// What takes a run of 32 values to whole numbers up to a largest, and back.
struct RunScale {
  float d;        ///< value = d * number; NaN if a value is: it is an error, and has to be seen
  float inverse;  ///< 0 where d is
};

/// Quantizes value i: d = max |x| / 127 over its run of 32, q = x / d rounded to nearest, half to
/// even. @pre a warp's lanes have a run
/// @param store  is given the whole number, d, and the run's sum
template <class Store>
__device__ inline void quantize_run(float x, Store store) {
  // Magnitudes are ordered as their bits are, and a NaN is above all of them.
  const float most = float_from_bits(__reduce_max_sync(0xffffffffu, bits_from_float(fabsf(x))));
  const float d = most / 127.0f, inverse = d > 0 ? 1.0f / d : 0.0f;
  const std::int32_t value = round_half_even_to_int(x * inverse, -127, 127);
  const std::int32_t sum = __reduce_add_sync(0xffffffffu, value);
  store(static_cast<std::int8_t>(value), d, sum);
}
template <std::uint32_t N>
__device__ inline void quantize(Int8<N>& y, std::uint32_t i, float x) {
  quantize_run(x, [&](std::int8_t value, float d, std::int32_t sum) {
    reinterpret_cast<std::int8_t*>(y.q)[interleaved<2>(i / 32, i % 32 / 16, N / 32) * 16 + i % 16] =
        value;
    if (i % 32 != 0) return;
    y.d[i / 32] = d;
    y.sums[i / 32] = sum;
  });
}
/// The same of a token of several.
template <std::uint32_t N>
__device__ inline void quantize(Int8Tokens<N>& y, std::uint32_t token, std::uint32_t i, float x) {
  quantize_run(x, [&](std::int8_t value, float d, std::int32_t sum) {
    uint2& own = y.q[i / 32][4 * token + i % 16 / 4];
    reinterpret_cast<std::int8_t*>(&own)[i % 32 / 16 * 4 + i % 4] = value;
    if (i % 32 != 0) return;
    y.d[i / 32][token] = d;
    y.sums[i / 32][token] = sum;
  });
}

/// The scale of a run of which eight neighbours of a warp have four values each.
/// @pre every lane of the warp calls it
__device__ inline RunScale scale_of_run(const float4& x, float largest) {
  const float most = max_f32(max_f32(fabsf(x.x), fabsf(x.y)), max_f32(fabsf(x.z), fabsf(x.w)));
  const float d = warp_max<8>(most) / largest;
  const bool is_nan = x.x != x.x || x.y != x.y || x.z != x.z || x.w != x.w;
  const std::uint32_t nans = __ballot_sync(0xffffffffu, is_nan) >> (threadIdx.x & 24) & 255;
  return {nans != 0 ? NAN : d, d > 0 ? 1.0f / d : 0.0f};
}

/// Quantizes a thread's four values, from i on, which may be past the end.
/// @pre every lane of the warp calls it
template <std::uint32_t N, std::uint32_t kUnits>
__device__ inline void quantize(Quantized<N, kUnits>& y, std::uint32_t i, const float4& x) {
  constexpr std::int32_t kLargest = kUnits == 2 ? 127 : 127 * 256;
  const RunScale scale = scale_of_run(x, kLargest);
  const float values[4] = {x.x, x.y, x.z, x.w};
  std::uint32_t high = 0, low = 0;
  std::int32_t sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int32_t v = round_half_even_to_int(values[j] * scale.inverse, -kLargest, kLargest);
    const auto low_byte = static_cast<std::int8_t>(v);
    low |= static_cast<std::uint32_t>(v & 255) << (8 * j);
    high |= static_cast<std::uint32_t>((v - low_byte) / 256 & 255) << (8 * j);
    sum += v;
  }
  sum = warp_sum<8>(sum);
  if (i >= N) return;
  std::uint32_t* words = reinterpret_cast<std::uint32_t*>(y.q);
  if constexpr (kUnits == 2) {
    words[4 * interleaved<2>(i / 32, i % 32 / 16, N / 32) + i % 16 / 4] = low;
  } else {
    std::uint32_t* unit = words + 4 * interleaved<4>(i / 32, i % 32 / 8, N / 32);
    unit[i % 8 / 4 * 2] = high;
    unit[i % 8 / 4 * 2 + 1] = low;
  }
  if (i % 32 == 0) {
    y.d[i / 32] = scale.d;
    y.sums[i / 32] = sum;
  }
}

/// The thread's four of N values, from 4 * threadIdx.x on; past the end 0.
template <std::uint32_t N>
__device__ inline float4 four_of_thread(const float* values) {
  static_assert(N <= 4 * kCtaThreads, "four values a thread are all");
  return 4 * threadIdx.x < N ? by_four(values)[threadIdx.x] : float4{0, 0, 0, 0};
}

/// Four values a thread in shared memory, for whoever needs them between two barriers of the grid.
__device__ inline float4* fours() {
  MINFER_SHARED(float4, four, [kCtaThreads]);
  return four;
}

/// x / sqrt(mean(x^2) + eps) * w, quantized into shared memory. Warps that have no value wait.
/// @param x  the thread's four values, and w those of the norm's weights
/// @pre every thread of the CTA calls it
/// @why The sum of squares is added up by 128 threads, as the kernel rmsnorm of the first engine
/// does it, so that the bits are its. What each adds was loaded by others.
template <std::uint32_t N, std::uint32_t kUnits>
__device__ inline const Quantized<N, kUnits>& normed(const float4& x, const float4& w, float eps) {
  using Vector = Quantized<N, kUnits>;
  constexpr std::uint32_t kSummed = 128;
  MINFER_SHARED(Vector, result);
  MINFER_SHARED(float, squares, [kSummed]);
  constexpr std::uint32_t kThreads = (N + 127) / 128 * 32;  // of the warps that have values
  const std::uint32_t lane = threadIdx.x % 32;
  if (threadIdx.x < kThreads) fours()[threadIdx.x] = x;
  __syncthreads();  // fours: written by all, read by the threads that add up
  if (threadIdx.x < kSummed) {
    const float* values = reinterpret_cast<const float*>(fours());
    float sum = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < N; i += kSummed) {
      const float value = values[i + threadIdx.x];  // past the end 0
      sum = fmaf(value, value, sum);
    }
    squares[threadIdx.x] = sum;
  }
  __syncthreads();  // squares: written by those, read by all
  if (threadIdx.x < kThreads) {
    const float sum =
        warp_sum((squares[lane] + squares[lane + 64]) + (squares[lane + 32] + squares[lane + 96]));
    const float scale = rsqrt_f32(sum / static_cast<float>(N) + eps);
    quantize(result, 4 * threadIdx.x,
             {x.x * scale * w.x, x.y * scale * w.y, x.z * scale * w.z, x.w * scale * w.w});
  }
  __syncthreads();  // result: written by all, read by all
  return result;
}

}  // namespace minfer
