// SPDX-License-Identifier: MIT
// The order in which threads run: fixed by a seed, another for every seed, and no matter for a
// kernel that is right.
#include <minfer/math.h>

#include <cstring>
#include <set>

#include "cuda/emulator/grid.h"
#include "cuda/ptx.h"
#include "cuda/reduce.h"
#include "cuda/shared.h"
#include "cuda/spin.h"
#include "faults.h"

using namespace minfer;

namespace {

constexpr unsigned kAll = 0xffffffffu;

/// Each thread notes its number when it begins and after a barrier.
__global__ void trace(unsigned* log, unsigned* length) {
  const unsigned number = blockIdx.x * blockDim.x + threadIdx.x;
  log[atomicAdd(length, 1u)] = number;
  __syncthreads();
  log[atomicAdd(length, 1u)] = number;
}

/// y[row] = sum of x[row][.] / n in an order that the shape alone sets: by lane, warp, block.
__global__ void row_means(float* y, const float* x, int rows, int n) {
  MINFER_SHARED(float, partial, [4]);
  for (int row = static_cast<int>(blockIdx.x); row < rows; row += static_cast<int>(gridDim.x)) {
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      sum = fmaf(x[row * n + i], exp_f32(x[i]), sum);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();  // partial: written by lane 0 of each warp, read by thread 0
    if (threadIdx.x == 0) y[row] = (partial[0] + partial[1] + (partial[2] + partial[3])) / n;
    __syncthreads();  // partial: read by thread 0, written in the next row
  }
}

/// The reductions of common/cuda/reduce.h, each twice in a row, in rounds: ok[r] is 1 where every
/// thread has what it should.
__global__ void reduce_rounds(int* ok, int rounds) {
  const float x = static_cast<float>(threadIdx.x + 1);
  for (int r = 1; r <= rounds; ++r) {
    const float f = static_cast<float>(r);
    const float sum = block_sum<128>(f * x), next_sum = block_sum<128>(-x);
    const float max = block_max<128>(f * x), next_max = block_max<128>(-f * x);
    const bool right =
        sum == f * 8256.0f && next_sum == -8256.0f && max == f * 128.0f && next_max == -f;
    if (!right) atomicAnd(&ok[r - 1], 0);
  }
}

/// The mistake of row_means without its second barrier: a fast warp overwrites what thread 0 reads.
__global__ void row_means_racy(float* y, const float* x, int rows, int n) {
  MINFER_SHARED(float, partial, [4]);
  for (int row = static_cast<int>(blockIdx.x); row < rows; row += static_cast<int>(gridDim.x)) {
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
      sum = fmaf(x[row * n + i], exp_f32(x[i]), sum);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) y[row] = (partial[0] + partial[1] + (partial[2] + partial[3])) / n;
  }
}

/// Thread i reads what thread i - 1 has written, with or without a barrier in between. In order,
/// the barrier is not missed.
__global__ void pass_on(float* out, bool with_barrier) {
  MINFER_SHARED(float, values, [128]);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (with_barrier) __syncthreads();
  out[threadIdx.x] = threadIdx.x == 0 ? 0.0f : values[threadIdx.x - 1];
}

/// The same in one warp.
__global__ void pass_on_in_warp(float* out, bool with_barrier) {
  MINFER_SHARED(float, values, [32]);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (with_barrier) __syncwarp();
  out[threadIdx.x] = threadIdx.x == 0 ? 0.0f : values[threadIdx.x - 1];
}

/// A counter that is read, and written after a fence: an update is lost if another thread comes in
/// between, and a fence does not keep it out.
__global__ void count_unsafely(unsigned* counter) {
  const unsigned value = *counter;
  __threadfence();
  *counter = value + 1;
}

/// Shared memory as the CTA finds it.
__global__ void read_unwritten(float* out) {
  MINFER_SHARED(float, fixed, [4]);
  float* dynamic = dynamic_shared<float>();
  if (threadIdx.x < 4) {
    out[blockIdx.x * 8 + threadIdx.x] = fixed[threadIdx.x];
    out[blockIdx.x * 8 + 4 + threadIdx.x] = dynamic[threadIdx.x];
  }
  __syncthreads();  // both: read by all, and then written
  fixed[threadIdx.x % 4] = 1.0f;
  dynamic[threadIdx.x % 4] = 1.0f;
}

/// Two CTAs hand a token to and fro.
__global__ void play_ping_pong(unsigned* token, unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round) {
    while (load_acquire(token) != 2 * round + blockIdx.x) spin_wait();
    store_release(token, 2 * round + blockIdx.x + 1);
  }
}

std::vector<unsigned> traced() {
  DeviceBuffer<unsigned> log(2 * 6 * 64), length(1);
  length.zero();
  launch(trace, 6, 64, 0, nullptr, log.data(), length.data());
  std::vector<unsigned> result(log.size());
  log.download(result.data(), result.size());
  return result;
}

template <class Kernel>
std::vector<float> means(Kernel kernel, unsigned blocks) {
  const int rows = 37, n = 500;
  std::vector<float> x(static_cast<std::size_t>(rows) * n);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<std::uint32_t>(i * 2654435761u) >> 16) / 65535;
  }
  DeviceBuffer<float> in(x.size()), out(static_cast<std::size_t>(rows));
  in.upload(x.data(), x.size());
  launch(kernel, blocks, 128, 0, nullptr, out.data(), in.data(), rows, n);
  std::vector<float> result(out.size());
  out.download(result.data(), result.size());
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Whether out[i] = i - 1 came out of one of the two kernels above.
template <class Kernel>
bool passes_on(Kernel kernel, unsigned threads, bool with_barrier) {
  DeviceBuffer<float> out(threads);
  launch(kernel, 1, threads, 0, nullptr, out.data(), with_barrier);
  std::vector<float> result(threads);
  out.download(result.data(), threads);
  for (unsigned i = 1; i < threads; ++i) {
    if (result[i] != static_cast<float>(i - 1)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("without a seed, threads run in order") {
  ScopedSettings settings;
  settings->seed.reset();
  settings->workers = 1;
  const auto log = traced();
  std::vector<unsigned> expected;
  for (unsigned block = 0; block < 6; ++block) {
    for (unsigned i = 0; i < 64; ++i) expected.push_back(block * 64 + i);
    // The last to arrive at the barrier goes on first.
    expected.push_back(block * 64 + 63);
    for (unsigned i = 0; i < 63; ++i) expected.push_back(block * 64 + i);
  }
  CHECK(log == expected);
}

TEST_CASE("a seed sets the order, and every seed another") {
  ScopedSettings settings;
  std::set<std::vector<unsigned>> orders;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    settings->seed = seed;
    emulator::restart_schedule();
    const auto first = traced();
    const auto second = traced();
    emulator::restart_schedule();
    CHECK(traced() == first);
    CHECK(traced() == second);
    CHECK(first != second);
    orders.insert(first);
    orders.insert(second);
  }
  CHECK(orders.size() == 16);
}

TEST_CASE("blocks are interleaved by a seed") {
  ScopedSettings settings;
  settings->seed = 3;
  const auto log = traced();
  int changes = 0;
  for (std::size_t i = 1; i < log.size(); ++i) changes += log[i] / 64 != log[i - 1] / 64;
  CHECK(changes > 20);
}

TEST_CASE("seeds, SMs and workers change no bit of a right kernel") {
  ScopedSettings settings;
  settings->seed.reset();
  const auto expected = means(row_means, 8);
  for (const unsigned blocks : {1u, 8u, 132u}) {
    settings->sm_count = static_cast<int>(blocks);
    for (const int workers : {1, 4}) {
      settings->workers = workers;
      CHECK(same_bits(means(row_means, blocks), expected));
    }
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      settings->seed = seed;
      CHECK(same_bits(means(row_means, blocks), expected));
    }
    settings->seed.reset();
  }
}

TEST_CASE("a missing barrier shows under some seed") {
  ScopedSettings settings;
  settings->workers = 1;
  settings->seed.reset();
  const auto expected = means(row_means, 8);
  CHECK(passes_on(pass_on, 128, false));  // in order, the mistake is hidden
  CHECK(passes_on(pass_on_in_warp, 32, false));
  int found = 0, found_by_neighbour = 0, found_in_warp = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    settings->seed = seed;
    found += !same_bits(means(row_means_racy, 8), expected);
    found_by_neighbour += !passes_on(pass_on, 128, false);
    found_in_warp += !passes_on(pass_on_in_warp, 32, false);
    CHECK(passes_on(pass_on, 128, true));
    CHECK(passes_on(pass_on_in_warp, 32, true));
  }
  CHECK(found >= 6);  // of 8: which launch it is shuffles as well
  CHECK(found_by_neighbour >= 6);
  CHECK(found_in_warp >= 6);
}

TEST_CASE("an update that is not atomic is lost under some seed") {
  ScopedSettings settings;
  settings->workers = 1;
  DeviceBuffer<unsigned> counter(1);
  const auto count = [&] {
    counter.zero();
    launch(count_unsafely, 4, 64, 0, nullptr, counter.data());
    unsigned value = 0;
    counter.download(&value, 1);
    return value;
  };
  settings->seed.reset();
  CHECK(count() == 256);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    settings->seed = seed;
    CHECK(count() < 256);
  }
}

TEST_CASE("shared memory is NaN until it is written, in every block") {
  ScopedSettings settings;
  settings->workers = 1;
  DeviceBuffer<float> out(3 * 8);
  launch(read_unwritten, 3, 32, 4 * sizeof(float), nullptr, out.data());
  std::vector<float> values(out.size());
  out.download(values.data(), values.size());
  for (const float value : values) CHECK(value != value);
}

TEST_CASE("blocks of a cooperative grid answer each other") {
  ScopedSettings settings;
  settings->spin_limit = 100;
  DeviceBuffer<unsigned> token(1);
  for (const int seed : {-1, 1, 2}) {
    settings->seed.reset();
    if (seed >= 0) settings->seed = static_cast<std::uint64_t>(seed);
    token.zero();
    launch_cooperative(play_ping_pong, 2, 1, 0, nullptr, token.data(), 5000u);
    unsigned value = 0;
    token.download(&value, 1);
    CHECK(value == 10000);
  }
}

TEST_CASE("reductions may be called any number of times in a kernel") {
  ScopedSettings settings;
  settings->workers = 1;
  const std::vector<int> all(5, 1);
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    settings->seed = seed;
    DeviceBuffer<int> ok(all.size());
    ok.upload(all.data(), all.size());
    launch(reduce_rounds, 1, 128, 0, nullptr, ok.data(), 5);
    std::vector<int> found(all.size());
    ok.download(found.data(), found.size());
    CHECK(found == all);
  }
}
