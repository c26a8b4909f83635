// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include <minfer/engine.h>

namespace minfer::features {

/// data[i] = data[i] * factor + add for i < n.
void scale_and_add(float* data, int n, float factor, float add, cudaStream_t stream);
/// *value += amount, by one thread.
void advance(int* value, int amount, cudaStream_t stream);
/// Writes 1, 2, ... n to `ring`, and each time their number to `*count`, visible to the host.
void fill_ring(unsigned* ring, unsigned* count, unsigned n, cudaStream_t stream);
/// advance() in a grid and with blocks of any size, for launches that are refused.
void advance_by(int* value, dim3 grid, dim3 block, std::size_t shared_bytes, bool cooperative);

/// Times a step of three launches: scale_and_add() on n values between two of advance().
/// An advance() moves 8 bytes, and 3 more a position; a scale_and_add() 8 a value.
StepCost time_three_launches(float* data, int n, int* value, std::uint32_t passes,
                             std::uint64_t n_positions, cudaStream_t stream);

/// short_kernel_name(), which only what nvcc compiles can include.
std::string short_name(const std::string& name);

}  // namespace minfer::features
