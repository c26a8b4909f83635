// SPDX-License-Identifier: MIT
//
// What kernels read and write, as it lies in device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>
#include <minfer/math.h>

#include "cuda/arena.h"
#include "cuda/float4.h"
#include "cuda/step.h"

namespace minfer {

inline constexpr std::uint32_t kThreads = 128;  ///< a block, unless a kernel says otherwise
inline constexpr std::uint32_t kWarps = kThreads / 32;

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

/// A Q4_0 matrix as a warp reads it: a block's 16 bytes of nibbles are a unit, its scale stands
/// apart.
struct MatrixQ4_0 {
  std::uint32_t rows, cols;
  uint4* q;          ///< [rows, cols/32]
  std::uint16_t* d;  ///< [rows, cols/32] fp16

  std::uint64_t bytes() const { return std::uint64_t{rows} * cols / 32 * 18; }
};

/// Activations in int8: every 32 values share a scale, and are two units of 16.
struct QuantizedVector {
  std::int8_t* q;      ///< [T, n], interleaved<2>
  float* d;            ///< [T, n/32]
  std::int32_t* sums;  ///< [T, n/32] of 32 values of q
};

/// A Q8_0 matrix likewise, of two units a block.
struct MatrixQ8_0 {
  std::uint32_t rows, cols;
  std::int8_t* q;    ///< [rows, cols], a row interleaved<2>
  std::uint16_t* d;  ///< [rows, cols/32] fp16

  std::uint64_t bytes() const { return std::uint64_t{rows} * cols / 32 * 34; }
};

/// Activations in int16, as __dp4a takes them: every 32 values share a scale, and value i is
/// d[i / 32] * (256 * high + low), both of them int8: of four values the high bytes, then the low.
struct Int16Vector {
  std::int8_t* q;      ///< [T, n/4, 2, 4], interleaved<4>
  float* d;            ///< [T, n/32]
  std::int32_t* sums;  ///< [T, n/32] of 32 values, 256 * high + low
};

/// K or V of one head in fp32, by four values.
struct RowsF32 {
  const float4* values;  ///< position p begins at p * stride
  std::uint32_t stride;

  using Loaded = float4;
  __device__ Loaded load(std::uint32_t p, std::uint32_t i) const { return values[p * stride + i]; }
  __device__ static float4 value(const Loaded& loaded) { return loaded; }
};

/// K and V of one layer in fp32, position by position.
struct KvLayerF32 {
  float* k;  ///< [context, d_kv], rotated
  float* v;  ///< [context, d_kv]
  std::uint32_t d_kv;

  static KvLayerF32 take(Arena& arena, const AttentionShape& shape, std::uint32_t context) {
    return {arena.take<float>(context, shape.d_kv()), arena.take<float>(context, shape.d_kv()),
            shape.d_kv()};
  }
  static std::uint64_t bytes_a_position(const AttentionShape& shape) { return 8 * shape.d_kv(); }

  __device__ RowsF32 keys(std::uint32_t kv_head, std::uint32_t head_dim) const {
    return {by_four(k) + kv_head * head_dim / 4, d_kv / 4};
  }
  __device__ RowsF32 values(std::uint32_t kv_head, std::uint32_t head_dim) const {
    return {by_four(v) + kv_head * head_dim / 4, d_kv / 4};
  }
};

/// K or V of one head in int8, by four values, with a scale for all of a position.
struct RowsQ8 {
  const std::uint32_t* q;  ///< position p begins at p * stride
  const std::uint16_t* d;  ///< at p * d_stride
  std::uint32_t stride, d_stride;

  struct Loaded {
    std::uint32_t q;
    std::uint16_t d;
  };
  __device__ Loaded load(std::uint32_t p, std::uint32_t i) const {
    return {q[p * stride + i], d[p * d_stride]};
  }
  __device__ static float4 value(const Loaded& loaded) {
    const float d = float_from_half(loaded.d);
    const auto byte = [&](int i) {
      return d * static_cast<float>(static_cast<std::int8_t>(loaded.q >> (8 * i)));
    };
    return {byte(0), byte(1), byte(2), byte(3)};
  }
};

/// K and V of one layer in int8, with a scale for each position and KV head.
struct KvLayerQ8 {
  std::int8_t* k;      ///< [context, d_kv], rotated
  std::int8_t* v;      ///< [context, d_kv]
  std::uint16_t* k_d;  ///< [context, n_kv_heads] fp16
  std::uint16_t* v_d;  ///< [context, n_kv_heads] fp16
  std::uint32_t d_kv, n_kv_heads;

  static KvLayerQ8 take(Arena& arena, const AttentionShape& shape, std::uint32_t context) {
    return {arena.take<std::int8_t>(context, shape.d_kv()),
            arena.take<std::int8_t>(context, shape.d_kv()),
            arena.take<std::uint16_t>(context, shape.n_kv_heads),
            arena.take<std::uint16_t>(context, shape.n_kv_heads),
            shape.d_kv(),
            shape.n_kv_heads};
  }
  static std::uint64_t bytes_a_position(const AttentionShape& shape) {
    return 2 * shape.d_kv() + 4 * shape.n_kv_heads;
  }

  __device__ RowsQ8 keys(std::uint32_t kv_head, std::uint32_t head_dim) const {
    return {reinterpret_cast<const std::uint32_t*>(k) + kv_head * head_dim / 4, k_d + kv_head,
            d_kv / 4, n_kv_heads};
  }
  __device__ RowsQ8 values(std::uint32_t kv_head, std::uint32_t head_dim) const {
    return {reinterpret_cast<const std::uint32_t*>(v) + kv_head * head_dim / 4, v_d + kv_head,
            d_kv / 4, n_kv_heads};
  }
};

}  // namespace minfer
