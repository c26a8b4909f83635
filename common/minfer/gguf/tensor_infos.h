// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include <minfer/gguf/gguf.h>
#include <minfer/gguf/metadata.h>

namespace minfer {

/// What a file says of its tensors: names, types, shapes, and where their data lie.
struct TensorInfos {
  std::vector<Tensor> tensors;         ///< in the file's order, `data` not set yet
  std::vector<std::uint64_t> offsets;  ///< of each tensor's data from data_begin
  std::vector<std::uint32_t> by_name;  ///< indices of the tensors in the order of their names
  std::uint64_t data_begin = 0;        ///< where in the file the data begin
};

/// Reads `n` tensor infos and checks them: names are unique, sizes do not overflow, all data lie
/// inside the file, none inside another's. Data behind the last tensor do no harm.
/// @pre n is checked against the bytes left; alignment is a power of two
/// @throws FileError
TensorInfos read_tensor_infos(FrontReader& reader, std::uint64_t n, std::uint64_t alignment);

}  // namespace minfer
