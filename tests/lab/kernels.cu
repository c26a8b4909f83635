// SPDX-License-Identifier: MIT
//
// Small kernels whose figures can be worked out by hand, and kernels with mistakes, each run in the
// lab: prints what the lab found. `check_lab.py` knows what that is to be.
//   lab_kernels count|check NAME
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "cuda/arena.h"
#include "cuda/buffer.h"
#include "cuda/emulator/fault.h"
#include "cuda/emulator/lab/lab.h"
#include "cuda/launch.h"
#include "cuda/ptx.h"
#include "cuda/shared.h"
#include "cuda/spin.h"
#include "cuda/stream.h"
#include "reduce_as_it_is.h"
#include "reduce_without_first_barrier.h"
#include "reduce_without_last_barrier.h"
#include "reduce_without_second_barrier.h"
#include "reduce_without_warp_barrier.h"

namespace minfer {
namespace {

/// As a file has them: 18 bytes.
struct Block18 {
  std::uint16_t d;
  std::uint8_t qs[16];
};

struct Three {
  float a, b, c;
};

// ------------------------------------------------------------------------------ figures

__global__ void copy_float4(float4* to, const float4* from) {
  to[threadIdx.x] = from[threadIdx.x];
}

__global__ void copy_pairs(float* to, const int2* from) {
  const int2 pair = from[threadIdx.x];
  to[threadIdx.x] = static_cast<float>(pair.x + pair.y);
}

__global__ void read_every_second(float* to, const float* from) {
  to[threadIdx.x] = from[2 * threadIdx.x];
}

__global__ void read_one(float* to, const float* from) {
  to[threadIdx.x] = from[5];
}

__global__ void read_misaligned(float* to, const float* from) {
  to[threadIdx.x] = from[threadIdx.x + 1];
}

/// A lane a block.
__global__ void read_block_scales(float* to, const Block18* from) {
  to[threadIdx.x] = from[threadIdx.x].d;
}

/// A lane a byte, of two blocks.
__global__ void read_block_bytes(float* to, const Block18* from) {
  to[threadIdx.x] = from[threadIdx.x / 16].qs[threadIdx.x % 16];
}

__global__ void copy_three(Three* to, const Three* from) {
  to[threadIdx.x] = from[threadIdx.x];
}

/// Lane i reads i + 1 values: 32 requests, of ever fewer lanes.
__global__ void read_triangle(float* to, const float* from) {
  float sum = 0;
  for (unsigned i = 0; i <= threadIdx.x; ++i) sum += from[i];
  to[threadIdx.x] = sum;
}

/// Half of the lanes leave out the first turn; they meet before the second.
__global__ void read_after_meeting(float* to, const float* from) {
  float sum = 0;
  for (unsigned turn = 0; turn < 2; ++turn) {
    if (turn == 1 || threadIdx.x < 16) sum += from[32 * turn + threadIdx.x];
    __syncwarp();
  }
  to[threadIdx.x] = sum;
}

template <unsigned kStride>
__global__ void read_shared(float* to) {
  MINFER_SHARED(float, tile, [32 * kStride]);
  for (unsigned i = threadIdx.x; i < 32 * kStride; i += 32) tile[i] = 1;
  __syncthreads();  // tile: written by all, read by all
  to[threadIdx.x] = tile[threadIdx.x * kStride];
}

__global__ void read_shared_one(float* to) {
  MINFER_SHARED(float, tile, [32]);
  tile[threadIdx.x] = 1;
  __syncthreads();  // tile: written by all, read by all
  to[threadIdx.x] = tile[7];
}

__global__ void copy_shared_float4(float4* to) {
  MINFER_SHARED(float4, tile, [32]);
  const float4 value = {1, 2, 3, 4};
  tile[threadIdx.x] = value;
  __syncthreads();  // tile: written by all, read by all
  to[threadIdx.x] = tile[threadIdx.x];
}

/// Lane i reads the first half of the i-th 16 bytes.
__global__ void read_shared_int2(float* to) {
  MINFER_SHARED(int2, tile, [64]);
  const int2 ones = {1, 1};
  tile[threadIdx.x] = ones;
  tile[threadIdx.x + 32] = ones;
  __syncthreads();  // tile: written by all, read by all
  const int2 pair = tile[2 * threadIdx.x];
  to[threadIdx.x] = static_cast<float>(pair.x + pair.y);
}

__global__ void count_all(unsigned* counter) {
  atomicAdd(counter, 1u);
}

__global__ void copy_async(float4* to, const float4* from) {
  MINFER_SHARED(float4, tile, [32]);
  cp_async<16>(&tile[threadIdx.x], &from[threadIdx.x], threadIdx.x == 0 ? 16 : 0);
  cp_async_commit();
  cp_async_wait<0>();
  to[threadIdx.x] = tile[threadIdx.x];
}

// ------------------------------------------------------------------------------ races

__global__ void reverse(float* out) {
  MINFER_SHARED(float, tile, [64]);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

__global__ void reverse_with_barrier(float* out) {
  MINFER_SHARED(float, tile, [64]);
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();  // tile: written by all, read by all
  out[blockIdx.x * 64 + threadIdx.x] = tile[63 - threadIdx.x];
}

/// Within a warp: a shuffle makes lanes meet, and orders no memory.
__global__ void exchange_by_shuffle(float* out) {
  MINFER_SHARED(float, tile, [32]);
  tile[threadIdx.x] = 1;
  const float one = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  out[threadIdx.x] = tile[threadIdx.x ^ 1] + one;
}

__global__ void exchange_by_syncwarp(float* out) {
  MINFER_SHARED(float, tile, [32]);
  tile[threadIdx.x] = 1;
  __syncwarp();  // tile: written and read within the warp
  out[threadIdx.x] = tile[threadIdx.x ^ 1];
}

/// Each lane of a half meets its own half alone.
__global__ void exchange_across_halves(float* out) {
  MINFER_SHARED(float, tile, [32]);
  tile[threadIdx.x] = 1;
  __syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);
  out[threadIdx.x] = tile[threadIdx.x ^ 16];
}

/// Read by all, then overwritten: a warp may be late to read.
__global__ void overwrite(float* out) {
  MINFER_SHARED(float, value, [1]);
  if (threadIdx.x == 0) value[0] = 1;
  __syncthreads();  // value: written by the first thread, read by all
  out[threadIdx.x] = value[0];
  if (threadIdx.x == 0) value[0] = 2;
}

/// Neighbouring bytes of a word are no race.
__global__ void write_bytes(unsigned char* out) {
  out[blockIdx.x * 32 + threadIdx.x] = 1;
}

__global__ void read_neighbour(float* out) {
  out[blockIdx.x] = static_cast<float>(blockIdx.x);
  out[blockIdx.x + 2] = out[1 - blockIdx.x];
}

__global__ void write_both(float* out) {
  out[0] = static_cast<float>(blockIdx.x);
}

/// The last block to come adds up what all have written.
__global__ void add_in_last_block(float* out, unsigned* arrived, bool with_atomic) {
  if (threadIdx.x == 0) out[blockIdx.x] = 1;
  __syncthreads();  // out: written by the first thread
  MINFER_SHARED(unsigned, order);
  if (threadIdx.x == 0) {
    __threadfence();
    order = with_atomic ? atomicAdd(arrived, 1u) : blockIdx.x;
  }
  __syncthreads();  // order: written by the first thread
  if (order + 1 != gridDim.x) return;
  float sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) sum += out[i];
  if (threadIdx.x == 0) out[gridDim.x] = sum;
}

__global__ void meet_in_grid(float* out, unsigned* arrived) {
  if (threadIdx.x == 0) {
    out[blockIdx.x] = 1;
    atomic_add_acq_rel(arrived, 1u);
    while (load_acquire(arrived) < gridDim.x) spin_wait();
  }
  __syncthreads();  // the grid has met
  if (threadIdx.x == 1) out[gridDim.x + blockIdx.x] = out[(blockIdx.x + 1) % gridDim.x];
}

template <class Sum>
__device__ void sum_twice(float* out, Sum sum) {
  const float first = sum(static_cast<float>(threadIdx.x));
  out[blockIdx.x * 128 + threadIdx.x] = first + sum(1.0f);
}

__global__ void sum_as_it_is(float* out) {
  sum_twice(out, as_it_is::block_sum<128>);
}
__global__ void sum_without_first_barrier(float* out) {
  sum_twice(out, without_first_barrier::block_sum<128>);
}
__global__ void sum_without_warp_barrier(float* out) {
  sum_twice(out, without_warp_barrier::block_sum<128>);
}
__global__ void sum_without_second_barrier(float* out) {
  sum_twice(out, without_second_barrier::block_sum<128>);
}
__global__ void sum_without_last_barrier(float* out) {
  sum_twice(out, without_last_barrier::block_sum<128>);
}

// ------------------------------------------------------------------------------ out of bounds

__global__ void write_past(float* out, unsigned n) {
  if (threadIdx.x <= n) out[threadIdx.x] = 1;
}

__global__ void read_past_static(float* out) {
  MINFER_SHARED(float, tile, [64]);
  tile[threadIdx.x] = 1;
  __syncthreads();  // tile: written by all, read by all
  out[threadIdx.x] = tile[threadIdx.x + 32];
}

__global__ void write_past_dynamic(float* out) {
  float* tile = dynamic_shared<float>();
  tile[threadIdx.x] = 1;
  out[threadIdx.x] = tile[threadIdx.x];
}

// ------------------------------------------------------------------------------ the program

void run(const std::string& name) {
  const Stream stream;
  const DeviceBuffer<float> in(1024), out(1024);
  const DeviceBuffer<unsigned> counter(1);
  CUDA_CHECK(cudaMemset(in.data(), 0, in.bytes()));
  CUDA_CHECK(cudaMemset(out.data(), 0, out.bytes()));
  CUDA_CHECK(cudaMemset(counter.data(), 0, counter.bytes()));
  float* to = out.data();
  const float* from = in.data();
  const auto as = [](auto* type, auto* pointer) {
    return reinterpret_cast<decltype(type)>(pointer);
  };
  const float4* from4 = as((const float4*)nullptr, from);
  const Block18* blocks = as((const Block18*)nullptr, from);
  Arena arena(3 * 512);
  float* array = arena.take<float>(40);
  arena.take<float>(40);

  const std::map<std::string, std::function<void()>> runs = {
      {"copy_float4", [&] { launch(copy_float4, 2, 64, 0, stream, (float4*)to, from4); }},
      {"copy_pairs", [&] { launch(copy_pairs, 1, 32, 0, stream, to, (const int2*)from); }},
      {"read_every_second", [&] { launch(read_every_second, 1, 32, 0, stream, to, from); }},
      {"read_one", [&] { launch(read_one, 1, 32, 0, stream, to, from); }},
      {"read_misaligned", [&] { launch(read_misaligned, 1, 32, 0, stream, to, from); }},
      {"read_block_scales", [&] { launch(read_block_scales, 1, 32, 0, stream, to, blocks); }},
      {"read_block_bytes", [&] { launch(read_block_bytes, 1, 32, 0, stream, to, blocks); }},
      {"copy_three", [&] { launch(copy_three, 1, 32, 0, stream, (Three*)to, (const Three*)from); }},
      {"read_triangle", [&] { launch(read_triangle, 1, 32, 0, stream, to, from); }},
      {"read_after_meeting", [&] { launch(read_after_meeting, 1, 32, 0, stream, to, from); }},
      {"read_shared_1", [&] { launch(read_shared<1>, 1, 32, 0, stream, to); }},
      {"read_shared_2", [&] { launch(read_shared<2>, 1, 32, 0, stream, to); }},
      {"read_shared_32", [&] { launch(read_shared<32>, 1, 32, 0, stream, to); }},
      {"read_shared_33", [&] { launch(read_shared<33>, 1, 32, 0, stream, to); }},
      {"read_shared_one", [&] { launch(read_shared_one, 1, 32, 0, stream, to); }},
      {"copy_shared_float4", [&] { launch(copy_shared_float4, 1, 32, 0, stream, (float4*)to); }},
      {"read_shared_int2", [&] { launch(read_shared_int2, 1, 32, 0, stream, to); }},
      {"copy_async", [&] { launch(copy_async, 1, 32, 0, stream, (float4*)to, from4); }},
      {"count_all", [&] { launch(count_all, 2, 64, 0, stream, counter.data()); }},
      {"reverse", [&] { launch(reverse, 1, 64, 0, stream, to); }},
      {"reverse_with_barrier", [&] { launch(reverse_with_barrier, 3, 64, 0, stream, to); }},
      {"exchange_by_shuffle", [&] { launch(exchange_by_shuffle, 1, 32, 0, stream, to); }},
      {"exchange_by_syncwarp", [&] { launch(exchange_by_syncwarp, 1, 32, 0, stream, to); }},
      {"exchange_across_halves", [&] { launch(exchange_across_halves, 1, 32, 0, stream, to); }},
      {"overwrite", [&] { launch(overwrite, 1, 64, 0, stream, to); }},
      {"write_bytes", [&] { launch(write_bytes, 2, 32, 0, stream, (unsigned char*)to); }},
      {"read_neighbour", [&] { launch(read_neighbour, 2, 1, 0, stream, to); }},
      {"write_both", [&] { launch(write_both, 2, 1, 0, stream, to); }},
      {"add_in_last_block",
       [&] { launch(add_in_last_block, 4, 64, 0, stream, to, counter.data(), true); }},
      {"add_in_some_block",
       [&] { launch(add_in_last_block, 4, 64, 0, stream, to, counter.data(), false); }},
      {"meet_in_grid",
       [&] { launch_cooperative(meet_in_grid, 4, 64, 0, stream, to, counter.data()); }},
      {"sum_as_it_is", [&] { launch(sum_as_it_is, 2, 128, 0, stream, to); }},
      {"sum_without_first_barrier",
       [&] { launch(sum_without_first_barrier, 1, 128, 0, stream, to); }},
      {"sum_without_warp_barrier",
       [&] { launch(sum_without_warp_barrier, 1, 128, 0, stream, to); }},
      {"sum_without_second_barrier",
       [&] { launch(sum_without_second_barrier, 1, 128, 0, stream, to); }},
      {"sum_without_last_barrier",
       [&] { launch(sum_without_last_barrier, 1, 128, 0, stream, to); }},
      {"write_past", [&] { launch(write_past, 1, 64, 0, stream, array, 40u); }},
      {"write_past_buffer", [&] { launch(write_past, 1, 32, 0, stream, to + 1000, 31u); }},
      {"read_past_static", [&] { launch(read_past_static, 1, 64, 0, stream, to); }},
      {"write_past_dynamic", [&] { launch(write_past_dynamic, 1, 64, 128, stream, to); }},
  };
  runs.at(name)();
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  using namespace minfer;
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s count|check NAME\n", argv[0]);
    return 2;
  }
  using Task = emulator::Lab::Task;
  const Task task = std::strcmp(argv[1], "count") == 0 ? Task::count : Task::check;
  emulator::Lab lab([&](const emulator::KernelCall&) { return task; });
  std::string fault;
  try {
    run(argv[2]);
  } catch (const emulator::Fault& found) {
    fault = found.what();
  }
  lab.print(stdout, fault);
  return 0;
}
