// SPDX-License-Identifier: MIT
//
// Quantized matrices and vectors, as they lie in device memory.
#pragma once

#include <cstdint>

namespace minfer {

/// Activations in int8: every 32 values share a scale, so value i of a token is d[i / 32] * q[i].
struct QuantizedVector {
  std::int8_t* q;  ///< [T, n]
  float* d;        ///< [T, n/32]
};

}  // namespace minfer
