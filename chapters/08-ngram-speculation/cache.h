// SPDX-License-Identifier: MIT
//
// The KV cache, as it lies in device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <minfer/gguf/model.h>

#include "cuda/arena.h"

namespace minfer {

/// K and V of one layer, position by position.
struct KvLayer {
  float* k;  ///< [context, d_kv], rotated
  float* v;  ///< [context, d_kv]
  std::uint32_t d_kv;

  /// Writes value i of a position.
  __device__ void append(std::uint32_t position, std::uint32_t i, float k_i, float v_i) const {
    k[std::size_t(position) * d_kv + i] = k_i;
    v[std::size_t(position) * d_kv + i] = v_i;
  }
};

/// K and V of all layers.
struct KvCache {
  Arena& arena;
  const ModelConfig& c;
  const std::uint32_t context;

  float* k = arena.take<float>(c.n_layers, context, c.d_kv());
  float* v = arena.take<float>(c.n_layers, context, c.d_kv());

  KvLayer layer(std::uint32_t i) const {
    const std::size_t begin = std::size_t(i) * context * c.d_kv();
    return {k + begin, v + begin, c.d_kv()};
  }
  /// What attention reads of n positions, in all layers.
  std::uint64_t bytes(std::uint64_t n) const { return 8 * n * c.n_layers * c.d_kv(); }
};

}  // namespace minfer
