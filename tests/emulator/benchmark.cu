// SPDX-License-Identifier: MIT
// How fast the emulator is: what a CUDA thread, a switch between threads and a launch cost, in
// processor time of all workers together.
//
//   benchmark_emulator
//   MINFER_EMULATOR_WORKERS=1 benchmark_emulator   without the cost of sharing the work
#include <benchmark/benchmark.h>

#include "cuda/buffer.h"
#include "cuda/graph.h"
#include "cuda/launch.h"
#include "cuda/ptx.h"
#include "cuda/shared.h"
#include "cuda/spin.h"
#include "cuda/stream.h"

using namespace minfer;

namespace {

constexpr int kRounds = 100;
constexpr unsigned kAll = 0xffffffffu;

__global__ void write_index(unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = i;
}

__global__ void meet(int rounds) {
  for (int i = 0; i < rounds; ++i) __syncthreads();
}

__global__ void shuffle(float* out, int rounds) {
  float value = static_cast<float>(threadIdx.x);
  for (int i = 0; i < rounds; ++i) value = __shfl_xor_sync(kAll, value, 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void multiply(int* out, int rounds) {
  const unsigned a[4] = {threadIdx.x, 1, 2, 3};
  const unsigned b[2] = {threadIdx.x, 4};
  int c[4] = {};
  for (int i = 0; i < rounds; ++i) mma_m16n8k32_s8(c, a, b, c);
  out[threadIdx.x] = c[0] + c[1] + c[2] + c[3];
}

__global__ void meet_in_grid(unsigned* arrived, int rounds) {
  for (int i = 1; i <= rounds; ++i) {
    __syncthreads();  // as a kernel would: its writes come before its arrival
    if (threadIdx.x == 0) {
      atomic_add_acq_rel(arrived, 1);
      while (load_acquire(arrived) < static_cast<unsigned>(i) * gridDim.x) spin_wait();
    }
    __syncthreads();  // and no thread goes on before thread 0 has seen all CTAs
  }
}

/// Reports the processor time of one of `count` things that happen in an iteration.
void report(benchmark::State& state, const char* what, double count) {
  state.counters[what] = benchmark::Counter(
      count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void threads(benchmark::State& state) {
  const auto block = static_cast<unsigned>(state.range(0));
  DeviceBuffer<unsigned> out(std::size_t{256} * block);
  for (auto _ : state) launch(write_index, 256, block, 0, nullptr, out.data());
  report(state, "thread", 256.0 * block);
}
BENCHMARK(threads)->Arg(32)->Arg(256)->MeasureProcessCPUTime();

void barriers(benchmark::State& state) {
  const auto block = static_cast<unsigned>(state.range(0));
  for (auto _ : state) launch(meet, 8, block, 0, nullptr, kRounds);
  report(state, "thread_at_barrier", 8.0 * block * kRounds);
}
BENCHMARK(barriers)->Arg(32)->Arg(256)->Arg(1024)->MeasureProcessCPUTime();

void shuffles(benchmark::State& state) {
  DeviceBuffer<float> out(8 * 256);
  for (auto _ : state) launch(shuffle, 8, 256, 0, nullptr, out.data(), kRounds);
  report(state, "lane_of_shuffle", 8.0 * 256 * kRounds);
}
BENCHMARK(shuffles)->MeasureProcessCPUTime();

void tensor_core(benchmark::State& state) {
  DeviceBuffer<int> out(32);
  for (auto _ : state) launch(multiply, 1, 32, 0, nullptr, out.data(), kRounds);
  report(state, "mma", kRounds);
}
BENCHMARK(tensor_core)->MeasureProcessCPUTime();

void grid_barriers(benchmark::State& state) {
  const auto blocks = static_cast<unsigned>(state.range(0));
  DeviceBuffer<unsigned> arrived(1);
  for (auto _ : state) {
    arrived.zero();
    launch_cooperative(meet_in_grid, blocks, 256, 0, nullptr, arrived.data(), kRounds);
  }
  report(state, "grid_barrier", kRounds);
}
BENCHMARK(grid_barriers)->Arg(1)->Arg(8)->MeasureProcessCPUTime();

void launches(benchmark::State& state) {
  DeviceBuffer<unsigned> out(32);
  for (auto _ : state) launch(write_index, 1, 32, 0, nullptr, out.data());
}
BENCHMARK(launches)->MeasureProcessCPUTime();

void graph_launches(benchmark::State& state) {
  Stream stream;
  DeviceBuffer<unsigned> out(32);
  const Graph graph = Graph::capture(stream, [&] {
    for (int i = 0; i < kRounds; ++i) launch(write_index, 1, 32, 0, stream, out.data());
  });
  for (auto _ : state) graph.launch(stream);
  report(state, "node", kRounds);
}
BENCHMARK(graph_launches)->MeasureProcessCPUTime();

}  // namespace

BENCHMARK_MAIN();
