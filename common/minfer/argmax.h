// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <limits>
#include <stdexcept>

#include <minfer/engine.h>

namespace minfer {

/// The index of the largest logit, the lowest among equals, and its lead over the second largest
/// (0 where two are equal, infinite where there is only one). A NaN is never larger than anything.
/// @param[in] logits [n] f32
/// @return id -1 when no logit is larger than -inf
inline Prediction argmax(const float* logits, std::size_t n) {
  Prediction best;
  float first = -std::numeric_limits<float>::infinity();
  float second = first;
  for (std::size_t i = 0; i < n; ++i) {
    if (logits[i] > first) {
      second = first;
      first = logits[i];
      best.id = static_cast<Token>(i);
    } else if (logits[i] > second) {
      second = logits[i];
    }
  }
  best.margin = first - second;
  return best;
}

/// @throws std::runtime_error when the prediction has no token
inline void require_token(const Prediction& prediction) {
  if (prediction.id < 0) throw std::runtime_error("the logits are not numbers: damaged weights?");
}

}  // namespace minfer
