// SPDX-License-Identifier: MIT
#include "cuda/launch.h"
#include "cuda/shared.h"
#include "features.h"

namespace minfer::features {
namespace {

__global__ void write_places(Place* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  Place place;
  place.thread = make_uint3(threadIdx.x, threadIdx.y, threadIdx.z);
  place.block = make_uint3(blockIdx.x, blockIdx.y, blockIdx.z);
  place.block_dim = make_uint3(blockDim.x, blockDim.y, blockDim.z);
  place.grid_dim = make_uint3(gridDim.x, gridDim.y, gridDim.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = place;
}

constexpr unsigned kTile = 32;

__global__ void __launch_bounds__(kTile * 8)
    transpose_tiles(float* out, const float* in, unsigned rows, unsigned cols) {
  MINFER_SHARED(float, tile, [kTile][kTile + 1]);
  const unsigned col = blockIdx.x * kTile + threadIdx.x;
  for (unsigned i = threadIdx.y; i < kTile; i += blockDim.y) {
    const unsigned row = blockIdx.y * kTile + i;
    if (row < rows && col < cols) tile[i][threadIdx.x] = in[row * cols + col];
  }
  __syncthreads();  // tile: a row written by each thread row, a column read
  const unsigned out_col = blockIdx.y * kTile + threadIdx.x;
  for (unsigned i = threadIdx.y; i < kTile; i += blockDim.y) {
    const unsigned out_row = blockIdx.x * kTile + i;
    if (out_row < cols && out_col < rows) out[out_row * rows + out_col] = tile[threadIdx.x][i];
  }
}

__global__ void reverse_block(int* data, unsigned n) {
  MINFER_SHARED(unsigned, last);
  int* copy = dynamic_shared<int>();
  if (threadIdx.x == 0) last = n - 1;
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) copy[i] = data[i];
  __syncthreads();  // copy: written by all threads, read by others; last: by the first
  for (unsigned i = threadIdx.x; i < n; i += blockDim.x) data[i] = copy[last - i];
}

__constant__ int table[kTableSize];
__device__ int offset;
__device__ unsigned long long counter;

__global__ void add_to_table(int* out) {
  out[threadIdx.x] = table[threadIdx.x] + offset;
}

__global__ void add_block_number() {
  if (threadIdx.x == 0) atomicAdd(&counter, static_cast<unsigned long long>(blockIdx.x));
}

__global__ void copy_parameters(double* out, char c, const Parameters p, float f, long long n) {
  out[0] = c;
  out[1] = p.a[0] + 10 * p.a[4];
  out[2] = p.b;
  out[3] = f;
  out[4] = static_cast<double>(n);
}

}  // namespace

std::vector<Place> places(dim3 grid, dim3 block) {
  Stream stream;
  DeviceBuffer<Place> out(std::size_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z);
  launch(write_places, grid, block, 0, stream, out.data());
  return on_host(out, stream);
}

std::vector<float> transpose(const std::vector<float>& in, unsigned rows, unsigned cols) {
  Stream stream;
  const auto from = on_device(in, stream);
  DeviceBuffer<float> to(in.size());
  const dim3 grid((cols + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
  launch(transpose_tiles, grid, dim3(kTile, 8), 0, stream, to.data(), from.data(), rows, cols);
  return on_host(to, stream);
}

std::vector<int> reverse(const std::vector<int>& in) {
  Stream stream;
  const auto data = on_device(in, stream);
  launch(reverse_block, 1, 256, in.size() * sizeof(int), stream, data.data(), in.size());
  return on_host(data, stream);
}

std::vector<int> add_constants(const std::vector<int>& values, int add) {
  Stream stream;
  CUDA_CHECK(cudaMemcpyToSymbol(table, values.data(), values.size() * sizeof(int)));
  CUDA_CHECK(cudaMemcpyToSymbol(offset, &add, sizeof add));
  DeviceBuffer<int> out(values.size());
  launch(add_to_table, 1, static_cast<unsigned>(values.size()), 0, stream, out.data());
  return on_host(out, stream);
}

unsigned long long count_blocks(unsigned blocks) {
  Stream stream;
  void* address = nullptr;
  CUDA_CHECK(cudaGetSymbolAddress(&address, counter));
  CUDA_CHECK(cudaMemsetAsync(address, 0, sizeof(unsigned long long), stream));
  launch(add_block_number, blocks, 32, 0, stream);
  stream.synchronize();
  unsigned long long result = 0;
  CUDA_CHECK(cudaMemcpyFromSymbol(&result, counter, sizeof result));
  return result;
}

std::vector<double> parameters(char c, const Parameters& p, float f, long long n) {
  Stream stream;
  DeviceBuffer<double> out(5);
  launch(copy_parameters, 1, 1, 0, stream, out.data(), c, p, f, n);
  return on_host(out, stream);
}

}  // namespace minfer::features
