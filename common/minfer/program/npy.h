// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>

namespace minfer {

/// Writes a matrix as an .npy file (NumPy's format 1.0, '<f4', C order), by way of PATH.partial,
/// which is renamed when it is complete.
/// @param[in] data [rows, cols] f32
/// @throws std::runtime_error naming the file
void write_npy(const std::string& path, const float* data, std::size_t rows, std::size_t cols);

}  // namespace minfer
