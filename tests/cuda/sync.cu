// SPDX-License-Identifier: MIT
#include "cuda/launch.h"
#include "cuda/ptx.h"
#include "cuda/shared.h"
#include "cuda/spin.h"
#include "features.h"

namespace minfer::features {
namespace {

__global__ void vote_at_barrier(int* out, unsigned limit) {
  const bool below = threadIdx.x < limit;
  const int count = __syncthreads_count(below);
  const int any = __syncthreads_or(below);
  const int all = __syncthreads_and(below);
  if (threadIdx.x == blockDim.x - 1) {
    out[0] = count;
    out[1] = any != 0;
    out[2] = all != 0;
  }
}

__global__ void relax_block(int* values, int rounds) {
  MINFER_SHARED(int, state, [2][256]);
  const unsigned n = blockDim.x;
  const unsigned i = threadIdx.x;
  state[0][i] = values[i];
  for (int round = 0; round < rounds; ++round) {
    __syncthreads();  // state[round % 2]: written by each thread, read by its neighbours
    const int* from = state[round % 2];
    state[(round + 1) % 2][i] = from[(i + 1) % n] + from[(i + n - 1) % n];
  }
  values[i] = state[rounds % 2][i];  // its own: no barrier
}

__global__ void update_all(unsigned long long* wide, unsigned* narrow) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&narrow[0], i);
  atomicSub(&narrow[1], i);
  atomicMin(&narrow[2], i + 5);
  atomicMax(&narrow[3], i);
  atomicAnd(&narrow[4], ~(1u << (i % 8)));
  atomicOr(&narrow[5], 1u << (i % 16));
  atomicXor(&narrow[6], i);
  atomicInc(&narrow[7], 9u);
  atomicDec(&narrow[8], 9u);
  if (i == 3) atomicExch(&narrow[9], 77u);
  atomicCAS(&narrow[10], 0u, i + 1);  // the first one wins
  atomicAdd(&wide[0], 1ull << 32);
  atomicMax(&wide[1], (1ull << 40) + i);
}

/// A barrier over the grid: a counter that only goes up.
__device__ void grid_barrier(unsigned* arrived, unsigned round) {
  __syncthreads();  // all writes of the CTA come before its arrival
  if (threadIdx.x == 0) {
    atomic_add_acq_rel(arrived, 1);
    while (load_acquire(arrived) < round * gridDim.x) spin_wait();
  }
  __syncthreads();  // no thread goes on before thread 0 has seen all CTAs arrive
}

/// slots [2][gridDim.x]: what the CTAs wrote in this round and the last.
__global__ void run_rounds(unsigned* out, unsigned* slots, unsigned* arrived, unsigned rounds) {
  MINFER_SHARED(unsigned, sum);
  unsigned value = blockIdx.x + 1;
  for (unsigned round = 1; round <= rounds; ++round) {
    unsigned* current = slots + round % 2 * gridDim.x;
    if (threadIdx.x == 0) {
      current[blockIdx.x] = value;
      sum = 0;
    }
    grid_barrier(arrived, round);  // current: written by every CTA, read by all
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
      atomicAdd(&sum, __ldcg(&current[i]));
    }
    __syncthreads();  // sum: added to by all, read by all
    value = sum % 1000003u + blockIdx.x;
    __syncthreads();  // sum: read by all, reset by thread 0
  }
  if (threadIdx.x == 0) out[blockIdx.x] = value;
}

__global__ void sum_by_last(unsigned* out, unsigned* partial, unsigned* finished) {
  MINFER_SHARED(bool, is_last);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = blockIdx.x * blockIdx.x;
    __threadfence();  // partial: before the count that announces it
    is_last = atomicAdd(finished, 1u) == gridDim.x - 1;
  }
  __syncthreads();  // is_last: written by thread 0, read by all
  if (!is_last) return;
  unsigned sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += __ldcg(&partial[i]);
  atomicAdd(out, sum);
}

}  // namespace

std::array<int, 3> barrier_votes(unsigned threads, unsigned limit) {
  Stream stream;
  DeviceBuffer<int> out(3);
  launch(vote_at_barrier, 1, threads, 0, stream, out.data(), limit);
  const auto values = on_host(out, stream);
  return {values[0], values[1], values[2]};
}

std::vector<int> relax(unsigned threads, int rounds) {
  Stream stream;
  std::vector<int> values(threads);
  for (unsigned i = 0; i < threads; ++i) values[i] = static_cast<int>(i % 3);
  const auto data = on_device(values, stream);
  launch(relax_block, 1, threads, 0, stream, data.data(), rounds);
  return on_host(data, stream);
}

std::vector<unsigned long long> atomics(unsigned blocks, unsigned threads) {
  Stream stream;
  std::vector<unsigned> start(11, 0);
  start[2] = start[4] = 0xffffffffu;
  const auto narrow = on_device(start, stream);
  const auto wide = on_device(std::vector<unsigned long long>(2, 0), stream);
  launch(update_all, blocks, threads, 0, stream, wide.data(), narrow.data());
  std::vector<unsigned long long> result;
  for (const unsigned value : on_host(narrow, stream)) result.push_back(value);
  for (const unsigned long long value : on_host(wide, stream)) result.push_back(value);
  return result;
}

std::vector<unsigned> grid_rounds(int blocks, unsigned threads, unsigned rounds) {
  Stream stream;
  const auto count = static_cast<unsigned>(blocks);
  DeviceBuffer<unsigned> out(count), slots(2 * count), arrived(1);
  arrived.zero(stream);
  launch_cooperative(run_rounds, count, threads, 0, stream, out.data(), slots.data(),
                     arrived.data(), rounds);
  return on_host(out, stream);
}

int largest_grid(unsigned threads) {
  return cooperative_grid_limit(run_rounds, static_cast<int>(threads), 0);
}

unsigned last_block_sum(unsigned blocks) {
  Stream stream;
  DeviceBuffer<unsigned> out(1), partial(blocks), finished(1);
  out.zero(stream);
  finished.zero(stream);
  launch(sum_by_last, blocks, 64, 0, stream, out.data(), partial.data(), finished.data());
  return on_host(out, stream)[0];
}

}  // namespace minfer::features
