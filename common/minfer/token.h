// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace minfer {

/// A token's id: its row in the embedding and in the lm_head.
using Token = std::int32_t;

}  // namespace minfer
