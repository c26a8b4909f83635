// SPDX-License-Identifier: MIT
//
// The shapes that the kernel is compiled for.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <minfer/gguf/model.h>

namespace minfer {

/// A model's shape, but for its layers and its tokens: those are loops.
template <std::uint32_t d_model, std::uint32_t d_ff, std::uint32_t n_heads,
          std::uint32_t n_kv_heads, std::uint32_t head_dim>
struct ModelShape {
  static constexpr std::uint32_t kModel = d_model, kFf = d_ff;
  static constexpr std::uint32_t kHeads = n_heads, kKvHeads = n_kv_heads, kHeadDim = head_dim;
  static constexpr std::uint32_t kGroup = n_heads / n_kv_heads;  ///< query heads of a K/V head
  static constexpr std::uint32_t kQ = n_heads * head_dim, kKv = n_kv_heads * head_dim;
  static_assert(kModel % 32 == 0 && kFf % 32 == 0 && kQ % 32 == 0, "rows are whole blocks");
  static_assert(n_heads % n_kv_heads == 0 && head_dim % 32 == 0, "a head is whole runs of 32");

  static bool is_of(const ModelConfig& c) {
    return c.d_model == d_model && c.d_ff == d_ff && c.n_heads == n_heads &&
           c.n_kv_heads == n_kv_heads && c.head_dim == head_dim;
  }
};

/// The first of these that is the model's, to f.
/// @throws std::runtime_error where none is: the kernel was not compiled for it
template <class First, class... Others, class F>
auto with_shape_of(const ModelConfig& c, F f) {
  if constexpr (sizeof...(Others) > 0) {
    if (!First::is_of(c)) return with_shape_of<Others...>(c, f);
  } else if (!First::is_of(c)) {
    const auto text = [](std::uint32_t n) { return std::to_string(n); };
    throw std::runtime_error("d_model " + text(c.d_model) + ", d_ff " + text(c.d_ff) + ", " +
                             text(c.n_heads) + " heads on " + text(c.n_kv_heads) + " of " +
                             text(c.head_dim) +
                             ": this kernel is compiled for the shapes of Qwen2.5 0.5B, 1.5B and "
                             "3B (earlier chapters take any: --chapter)");
  }
  return f(First());
}

/// Calls f with the model's shape. @throws std::runtime_error
template <class F>
auto with_shape(const ModelConfig& c, F f) {
  return with_shape_of<ModelShape<896, 4864, 14, 2, 64>,     // 0.5B
                       ModelShape<1536, 8960, 12, 2, 128>,   // 1.5B
                       ModelShape<2048, 11008, 16, 2, 128>,  // 3B
                       ModelShape<896, 1216, 14, 2, 64>,     // the lab's model
                       ModelShape<224, 352, 7, 1, 32>,       // tiny-a and on: for tests
                       ModelShape<192, 416, 3, 1, 64>,       //
                       ModelShape<256, 544, 2, 1, 128>,      //
                       ModelShape<160, 288, 5, 5, 32>,       //
                       ModelShape<1056, 288, 33, 11, 32>>(c, f);
}

}  // namespace minfer
