// SPDX-License-Identifier: MIT
#include "runtime.h"

#include "cuda/launch.h"
#include "cuda/ptx.h"
#include "cuda/step_cost.h"

namespace minfer::features {
namespace {

__global__ void scale_and_add_kernel(float* data, int n, float factor, float add) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) data[i] = data[i] * factor + add;
}

__global__ void advance_kernel(int* value, int amount) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *value += amount;
}

__global__ void fill_ring_kernel(unsigned* ring, unsigned* count, unsigned n) {
  for (unsigned i = 0; i < n; ++i) {
    ring[i] = i + 1;
    store_release_system(count, i + 1);
  }
}

}  // namespace

void scale_and_add(float* data, int n, float factor, float add, cudaStream_t stream) {
  launch(scale_and_add_kernel, static_cast<unsigned>((n + 127) / 128), 128, 0,
         Traffic{8 * static_cast<std::uint64_t>(n)}, stream, data, n, factor, add);
}

void advance(int* value, int amount, cudaStream_t stream) {
  launch(advance_kernel, 1, 1, 0, Traffic{8, 3}, stream, value, amount);
}

void fill_ring(unsigned* ring, unsigned* count, unsigned n, cudaStream_t stream) {
  launch(fill_ring_kernel, 1, 1, 0, stream, ring, count, n);
}

void advance_by(int* value, dim3 grid, dim3 block, std::size_t shared_bytes, bool cooperative) {
  if (cooperative) {
    launch_cooperative(advance_kernel, grid, block, shared_bytes, nullptr, value, 1);
  } else {
    launch(advance_kernel, grid, block, shared_bytes, nullptr, value, 1);
  }
}

StepCost time_three_launches(float* data, int n, int* value, std::uint32_t passes,
                             std::uint64_t n_positions, cudaStream_t stream) {
  return time_step(stream, passes, n_positions, [&] {
    advance(value, 1, stream);
    scale_and_add(data, n, 1.0f, 0.0f, stream);
    advance(value, 1, stream);
  });
}

std::string short_name(const std::string& name) {
  return short_kernel_name(name);
}

}  // namespace minfer::features
