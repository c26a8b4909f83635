// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

namespace minfer::features {

/// data[i] = data[i] * factor + add for i < n.
void scale_and_add(float* data, int n, float factor, float add, cudaStream_t stream);
/// *value += amount, by one thread.
void advance(int* value, int amount, cudaStream_t stream);
/// Writes 1, 2, ... n to `ring`, and each time their number to `*count`, visible to the host.
void fill_ring(unsigned* ring, unsigned* count, unsigned n, cudaStream_t stream);
/// advance() in a grid and with blocks of any size, for launches that are refused.
void advance_by(int* value, dim3 grid, dim3 block, std::size_t shared_bytes, bool cooperative);

}  // namespace minfer::features
