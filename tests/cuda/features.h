// SPDX-License-Identifier: MIT
//
// Kernels that each use one feature of CUDA, behind functions that run them and return what they
// wrote. The tests compare that with what the CUDA C++ Programming Guide and the PTX manual
// promise, on a GPU and in the emulator.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/buffer.h"
#include "cuda/stream.h"

namespace minfer::features {

/// A buffer with the elements of `values`.
template <class T>
DeviceBuffer<T> on_device(const std::vector<T>& values, cudaStream_t stream) {
  DeviceBuffer<T> buffer(values.size());
  buffer.upload(values.data(), values.size(), stream);
  return buffer;
}

/// The elements of `buffer`, after all work of `stream`.
template <class T>
std::vector<T> on_host(const DeviceBuffer<T>& buffer, cudaStream_t stream) {
  std::vector<T> values(buffer.size());
  buffer.download(values.data(), values.size(), stream);
  return values;
}

// grid.cu

/// What a thread knows of itself.
struct Place {
  uint3 thread, block, block_dim, grid_dim;
};
/// Of each thread, in the order of its number in the grid.
std::vector<Place> places(dim3 grid, dim3 block);
/// [rows, cols] -> [cols, rows] through tiles of static shared memory.
std::vector<float> transpose(const std::vector<float>& in, unsigned rows, unsigned cols);
/// Reversed by one CTA, through dynamic shared memory, with four bytes of static.
std::vector<int> reverse(const std::vector<int>& in);
/// table[i] + offset for each i, of a __constant__ table and a __device__ offset.
std::vector<int> add_constants(const std::vector<int>& table, int offset);
/// Each CTA adds its number to a __device__ counter; what the host then reads of it.
unsigned long long count_blocks(unsigned blocks);
inline constexpr std::size_t kTableSize = 64;
/// A kernel with parameters of several sizes, one a struct.
struct Parameters {
  int a[5];
  double b;
};
std::vector<double> parameters(char c, const Parameters& p, float f, long long n);

// warp.cu

enum class Shuffle { index, up, down, exclusive_or };
/// values[i] as lane i receives it, of one warp.
std::vector<int> shuffle(Shuffle kind, const std::vector<int>& values, int argument, int width);
std::vector<double> shuffle_wide(const std::vector<double>& values, int lane_mask);
/// {ballot, any, all, match_any, reduce_add, reduce_min, reduce_max, reduce_and, reduce_or,
/// reduce_xor} of each lane of one warp.
std::vector<std::array<unsigned, 10>> votes(const std::vector<unsigned>& values);
/// The sum of 1 to n for lane % 8 = n, where each group of 8 lanes loops n = 1 + lane / 8 times.
std::vector<int> uneven_groups();

// sync.cu

/// __syncthreads_count, _or and _and of "thread number < limit" in a block of `threads`.
std::array<int, 3> barrier_votes(unsigned threads, unsigned limit);
/// The sums of each thread's neighbours' values over some rounds, double-buffered with barriers.
std::vector<int> relax(unsigned threads, int rounds);
/// {add, sub, min, max, and, or, xor, inc, dec, exch, cas, 64-bit add, 64-bit max} of all threads.
std::vector<unsigned long long> atomics(unsigned blocks, unsigned threads);
/// Rounds of a grid barrier: each CTA adds up what every CTA wrote in the round before.
std::vector<unsigned> grid_rounds(int blocks, unsigned threads, unsigned rounds);
/// As many CTAs as fit at once.
int largest_grid(unsigned threads);
/// The last CTA to finish adds up what the others have left.
unsigned last_block_sum(unsigned blocks);

// instructions.cu

/// d of one mma, with the fragments gathered from row-major a [16,32], b [32,8], c [16,8].
std::vector<int> mma(const std::vector<std::int8_t>& a, const std::vector<std::int8_t>& b,
                     const std::vector<int>& c);
/// Copied in tiles, two in flight; words beyond `valid` read as 0.
std::vector<unsigned> pipelined_copy(const std::vector<unsigned>& in, std::size_t valid);
/// {popc, clz, ffs, brev, byte_perm, funnelshift_l, funnelshift_r, mulhi, umulhi, dp4a, dp4a
/// unsigned}.
std::vector<std::array<unsigned, 11>> bit_operations(const std::vector<uint4>& in);
/// Every half as float bits, and every 2^16th float as half bits.
std::vector<unsigned> floats_of_halves();
std::vector<unsigned> halves_of_floats(const std::vector<float>& in);
/// exp_f32, silu_f32, rsqrt_f32, x/y, round_half_even_to_int, fmaf of each x (y is some other
/// number).
std::vector<std::array<unsigned, 6>> arithmetic(const std::vector<float>& in);
/// {lane id, lanes below} of each thread of a block.
std::vector<std::array<unsigned, 2>> lanes(unsigned threads);
/// 16 bytes at a time, by the streaming load.
std::vector<uint4> streamed(const std::vector<uint4>& in);

}  // namespace minfer::features
