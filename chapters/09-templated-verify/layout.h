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
#include "cuda/step.h"

namespace minfer {

inline constexpr std::uint32_t kThreads = 128;  ///< a block, unless a kernel says otherwise
inline constexpr std::uint32_t kWarps = kThreads / 32;

/// Activations in int8: every 32 values share a scale, so value i of a token is d[i / 32] * q[i].
struct QuantizedVector {
  std::int8_t* q;  ///< [T, n]
  float* d;        ///< [T, n/32]
};

/// Where word i of block b stands in a row of n_blocks blocks of eight words, for a warp whose
/// lanes take a block each: first every lane's word 0, then every lane's word 1, up to 7; the row's
/// last blocks may be fewer than a warp.
MINFER_HD constexpr std::uint32_t interleaved_word(std::uint32_t b, std::uint32_t i,
                                                   std::uint32_t n_blocks) {
  const std::uint32_t first = b / 32 * 32;
  const std::uint32_t width = n_blocks - first < 32 ? n_blocks - first : 32;
  return first * 8 + i * width + (b - first);
}

/// A Q8_0 matrix as a warp reads it: quants and scales apart, the quants' words interleaved.
struct MatrixQ8_0 {
  std::uint32_t rows, cols;
  std::int8_t* q;    ///< [rows, cols], a row as interleaved_word() says
  std::uint16_t* d;  ///< [rows, cols/32] fp16

  std::uint64_t bytes() const { return std::uint64_t{rows} * cols / 32 * 34; }
};

/// Activations in int16, as __dp4a takes them: every 32 values share a scale, and value i is
/// d[i / 32] * (256 * high + low), both of them int8: of four values the high bytes, then the low.
struct Int16Vector {
  std::int8_t* q;  ///< [T, n/4, 2, 4], interleaved
  float* d;        ///< [T, n/32]
};

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
