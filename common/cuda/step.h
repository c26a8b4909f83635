// SPDX-License-Identifier: MIT
//
// A step of the engine: some tokens at once, as kernels and their launches take them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <minfer/token.h>

#include "cuda/launch.h"

namespace minfer {

constexpr std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) {
  return (a + b - 1) / b;
}

inline constexpr std::uint32_t kThreads = 128;  ///< a block, unless a kernel says otherwise
inline constexpr std::uint32_t kWarps = kThreads / 32;
inline constexpr std::uint32_t kMaxTokens = 8;  ///< that a step carries

/// What a step consumes: token t of it stands at position + t.
struct StepInput {
  std::uint32_t position;
  Token ids[kMaxTokens];
};

/// A step, as launches take it.
struct Step {
  cudaStream_t stream;
  StepInput* input;  ///< in device memory
  std::uint32_t n_tokens;
  Begin begin = Begin::kBehind;  ///< of kernels that can do either

  /// Launches so many blocks for each token: to a kernel, tokens are the grid's second dimension.
  template <class... P, class... A>
  void launch(void (*kernel)(P...), std::uint32_t blocks, std::uint32_t threads,
              const Traffic& traffic, A&&... args) const {
    minfer::launch(kernel, {blocks, n_tokens}, threads, 0, traffic, stream,
                   std::forward<A>(args)...);
  }
};

/// Calls f with n as a constant, where it is one of kValues: for a template's argument.
template <std::uint32_t... kValues, class F>
void with_constant(std::uint32_t n, F f) {
  (void)((n == kValues && (f(std::integral_constant<std::uint32_t, kValues>()), true)) || ...);
}

/// Calls f with a head's size as a constant: 32, 64 or 128.
/// @throws std::invalid_argument where that is no multiple of kPart, by which a kernel reads it
template <std::uint32_t kPart, class F>
void with_head_dim(std::uint32_t head_dim, F f) {
  with_constant<32, 64, 128>(head_dim, [&](auto size) {
    if constexpr (size % kPart == 0) {
      f(size);
    } else {
      throw std::invalid_argument("attention heads of " + std::to_string(size) +
                                  ": expected a multiple of " + std::to_string(kPart));
    }
  });
}

}  // namespace minfer
