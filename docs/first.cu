// SPDX-License-Identifier: MIT
// With a GPU: nvcc docs/first.cu -o first && ./first. Without one: ./minfer try first
#include <cuda_runtime.h>

#include <cstdio>

constexpr unsigned kThreads = 128;

/// sums[b] = the sum of the b-th 128 values.
__global__ void add_up(const int* values, int* sums) {
  __shared__ int partial[kThreads];
  partial[threadIdx.x] = values[blockIdx.x * kThreads + threadIdx.x];
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();  // partial: written by twice as many threads as read it now
    if (threadIdx.x < width) partial[threadIdx.x] += partial[threadIdx.x + width];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

int main() {
  constexpr unsigned kBlocks = 4;
  int values[kBlocks * kThreads], sums[kBlocks];
  for (unsigned i = 0; i < kBlocks * kThreads; ++i) values[i] = int(i);
  int *gpu_values, *gpu_sums;
  if (cudaMalloc(&gpu_values, sizeof values) != cudaSuccess) return std::puts("there is no GPU");
  cudaMalloc(&gpu_sums, sizeof sums);
  cudaMemcpy(gpu_values, values, sizeof values, cudaMemcpyHostToDevice);
  add_up<<<kBlocks, kThreads>>>(gpu_values, gpu_sums);
  cudaMemcpy(sums, gpu_sums, sizeof sums, cudaMemcpyDeviceToHost);  // waits for the kernel
  for (int sum : sums) std::printf("%d\n", sum);
  cudaFree(gpu_values);
  cudaFree(gpu_sums);
}
