// SPDX-License-Identifier: MIT
//
// The KV cache, as it lies in device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <minfer/gguf/model.h>
#include <minfer/math.h>

#include "cuda/arena.h"
#include "cuda/float4.h"

namespace minfer {

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

  /// Writes value i of a position.
  __device__ void append(std::uint32_t position, std::uint32_t i, float k_i, float v_i) const {
    k[std::size_t(position) * d_kv + i] = k_i;
    v[std::size_t(position) * d_kv + i] = v_i;
  }
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
