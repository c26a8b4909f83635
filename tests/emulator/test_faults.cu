// SPDX-License-Identifier: MIT
// Every mistake that the emulator finds by itself, and the line that it reports.
#undef NDEBUG
#include <cassert>

#include "cuda/emulator/sanitizer.h"
#include "cuda/graph.h"
#include "cuda/ptx.h"
#include "cuda/shared.h"
#include "cuda/spin.h"
#include "faults.h"

using namespace minfer;

namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void exits_before_barrier(unsigned which) {
  if (threadIdx.x == which) return;
  __syncthreads();
}

__global__ void exits_from_loop(int* out) {
  for (unsigned i = 0; i < 4; ++i) {
    __syncthreads();
    out[threadIdx.x] = static_cast<int>(i);
    if (threadIdx.x == 9 && i == 2) return;
  }
}

__global__ void diverges(int* out) {
  if (threadIdx.x % 2 == 0) {
    out[threadIdx.x] = __syncthreads_or(1);
  } else {
    out[threadIdx.x] = __syncthreads_or(0);
  }
}

__global__ void waits_elsewhere() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else if (threadIdx.x == 32) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

__global__ void leaves_itself_out() {
  if (threadIdx.x < 16) __syncwarp(threadIdx.x == 3 ? 0xfff0u : 0xffffu);
}

__global__ void shuffles_with_exited(float* out) {
  if (threadIdx.x == 40) return;
  out[threadIdx.x] = __shfl_xor_sync(kAll, 1.0f, 1);
}

__global__ void shuffles_in_branch(float* out) {
  float value = 1.0f;
  if (threadIdx.x != 7) value = __shfl_xor_sync(kAll, value, 1);
  __syncthreads();
  out[threadIdx.x] = value;
}

__global__ void shuffles_differently(float* out) {
  float value = 1.0f;
  if (threadIdx.x % 32 < 16) {
    value = __shfl_xor_sync(kAll, value, 1);
  } else {
    value = __shfl_xor_sync(kAll, value, 2);
  }
  out[threadIdx.x] = value;
}

__global__ void votes_and_shuffles(int* out) {
  out[threadIdx.x] = threadIdx.x < 5 ? __any_sync(kAll, 1) : __shfl_sync(kAll, 1, 0);
}

__global__ void reads_absent_lane(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);
}

__global__ void votes(int* out) {
  out[threadIdx.x] = __any_sync(kAll, 1);
}

__global__ void waits_for_flag(unsigned* flag) {
  if (blockIdx.x == 1 && threadIdx.x == 3) {
    while (load_acquire(flag) == 0) spin_wait();
  }
}

__global__ void waits_for_other_block(unsigned* flags) {
  flags[blockIdx.x] = 1;
  __syncthreads();
  while (load_acquire(&flags[1 - blockIdx.x]) == 0) spin_wait();
}

__global__ void takes_lock_twice(unsigned* lock) {
  while (atomicCAS(lock, 0u, 1u) != 0) spin_wait();
  while (atomicCAS(lock, 0u, 1u) != 0) spin_wait();
}

__global__ void throws() {
  if (threadIdx.x == 2) throw std::runtime_error("no");
}

__global__ void traps() {
  if (threadIdx.y == 1) __trap();
}

__global__ void asserts(int n) {
  assert(n < 5 && "too many");
}

__global__ void declares_little(float* out) {
  MINFER_SHARED(float, little);
  if (threadIdx.x == 0) little = 1;
  __syncthreads();
  out[threadIdx.x] = little;
}

__global__ void declares_too_much(float* out) {
  MINFER_SHARED(float, small, [1024]);
  MINFER_SHARED(float, large, [11265]);
  small[0] = large[0] = 0;
  out[0] = small[0];
}

__global__ void misaligns_copy(const float* in) {
  MINFER_SHARED(__align__(16) float, tile, [64]);
  cp_async<16>(&tile[threadIdx.x], in);
}

__device__ int descend(volatile int* out, int depth) {
  volatile char frame[512];
  for (volatile char& byte : frame) byte = static_cast<char>(depth | 1);
  out[0] = out[0] + 1;
  return depth == 0 ? frame[0] : descend(out, depth - 1) + frame[0];
}

__global__ void recurses(int* out, int depth) {
  out[1] = descend(out, depth);
}

__global__ void increments(int* counter) {
  atomicAdd(counter, 1);
}

__global__ void copies(int* to, const int* from) {
  if (threadIdx.x == 3) *to = *from;
}

template <int N>
__global__ void templated() {
  if (threadIdx.x == N) return;
  __syncthreads();
}

/// The rest of the line after what every fault begins with.
std::string place(const char* kernel, const char* block, const char* thread) {
  return std::string("emulator: kernel (anonymous namespace)::") + kernel + ", block " + block +
         ", thread " + thread + ": ";
}

}  // namespace

TEST_CASE("a barrier that a thread does not reach") {
  CHECK_THAT(fault_of([] { launch(exits_before_barrier, 3, 64, 0, nullptr, 10u); }),
             ContainsSubstring(place("exits_before_barrier(unsigned int)", "(0,0,0)", "(10,0,0)") +
                               "has exited, but others wait for it in __syncthreads at "
                               "test_faults.cu:"));
  // The first thread to come is the one that finds it, where it was the first to run that left.
  CHECK_THAT(fault_of([] { launch(exits_before_barrier, 1, 64, 0, nullptr, 0u); }),
             ContainsSubstring("thread (1,0,0): __syncthreads at test_faults.cu:") &&
                 ContainsSubstring("is not reached by every thread: thread (0,0,0) has exited"));
  DeviceBuffer<int> out(64);
  CHECK_THAT(fault_of([&] { launch(exits_from_loop, 1, 64, 0, nullptr, out.data()); }),
             ContainsSubstring("thread (9,0,0): has exited, but others wait"));
  CHECK_THAT(fault_of([] { launch(templated<5>, 1, 64, 0, nullptr); }),
             ContainsSubstring("templated<5>()"));
}

TEST_CASE("threads that meet at different barriers") {
  DeviceBuffer<int> out(64);
  CHECK_THAT(
      fault_of([&] { launch(diverges, 1, 64, 0, nullptr, out.data()); }),
      ContainsSubstring("divergent barrier: arrives in __syncthreads_or at test_faults.cu:") &&
          ContainsSubstring(", where others wait in __syncthreads_or at test_faults.cu:"));
  CHECK_THAT(fault_of([] { launch(waits_elsewhere, 1, 64, 0, nullptr); }),
             ContainsSubstring("divergent barrier"));
}

TEST_CASE("masks that are not the lanes that come") {
  DeviceBuffer<float> out(64);
  DeviceBuffer<int> ints(64);
  CHECK_THAT(fault_of([] { launch(leaves_itself_out, 1, 32, 0, nullptr); }),
             ContainsSubstring("thread (3,0,0): __syncwarp at test_faults.cu:") &&
                 ContainsSubstring("has the mask 0x0000fff0, which leaves out lane 3, the caller"));
  CHECK_THAT(fault_of([&] { launch(shuffles_with_exited, 1, 64, 0, nullptr, out.data()); }),
             ContainsSubstring("thread (40,0,0): has exited, but others wait for it in "
                               "__shfl_xor_sync at test_faults.cu:"));
  CHECK_THAT(
      fault_of([&] { launch(votes, 1, 40, 0, nullptr, ints.data()); }),
      ContainsSubstring("has the mask 0xffffffff, which names lane 8, which the block lacks"));
  CHECK_THAT(fault_of([&] { launch(reads_absent_lane, 1, 32, 0, nullptr, ints.data()); }),
             ContainsSubstring("__shfl_sync at test_faults.cu:") &&
                 ContainsSubstring("reads lane 20, which does not take part"));
}

TEST_CASE("a lane that is missing") {
  DeviceBuffer<float> out(64);
  DeviceBuffer<int> ints(64);
  CHECK_THAT(fault_of([&] { launch(shuffles_in_branch, 1, 64, 0, nullptr, out.data()); }),
             ContainsSubstring("deadlock: thread (0,0,0) waits in __shfl_xor_sync at "
                               "test_faults.cu:") &&
                 ContainsSubstring("but thread (7,0,0) waits in __syncthreads at test_faults.cu:"));
  CHECK_THAT(fault_of([&] { launch(shuffles_differently, 1, 64, 0, nullptr, out.data()); }),
             ContainsSubstring("thread (16,0,0): divergent warp operation"));
  CHECK_THAT(
      fault_of([&] { launch(votes_and_shuffles, 1, 64, 0, nullptr, ints.data()); }),
      ContainsSubstring("arrives in __shfl_sync") && ContainsSubstring("wait in __any_sync"));
}

TEST_CASE("a spin that nothing ends") {
  ScopedSettings settings;
  settings->spin_limit = 200;
  DeviceBuffer<unsigned> flags(2);
  for (const int workers : {1, 3}) {
    settings->workers = workers;
    flags.zero();
    CHECK_THAT(
        fault_of([&] { launch_cooperative(waits_for_flag, 8, 1024, 0, nullptr, flags.data()); }),
        ContainsSubstring(place("waits_for_flag(unsigned int*)", "(1,0,0)", "(3,0,0)") +
                          "deadlock: it spins at test_faults.cu:"));
    flags.zero();
    CHECK_THAT(fault_of([&] { launch(takes_lock_twice, 1, 1, 0, nullptr, flags.data()); }),
               ContainsSubstring("deadlock: it spins"));
  }
  // Blocks of an ordinary launch need not run at once, so they must not wait for each other.
  settings->workers = 1;
  flags.zero();
  CHECK_THAT(fault_of([&] { launch(waits_for_other_block, 2, 32, 0, nullptr, flags.data()); }),
             ContainsSubstring("deadlock: it spins"));
  flags.zero();
  launch_cooperative(waits_for_other_block, 2, 32, 0, nullptr, flags.data());
}

TEST_CASE("exceptions, traps and assertions in kernels") {
  CHECK_THAT(fault_of([] { launch(throws, 1, 8, 0, nullptr); }),
             ContainsSubstring("thread (2,0,0): an exception has left the kernel: no"));
  CHECK_THAT(fault_of([] { launch(traps, 1, dim3(8, 2), 0, nullptr); }),
             ContainsSubstring("thread (0,1,0): __trap() is called"));
  CHECK(fault_of([] { launch(asserts, 2, 8, 0, nullptr, 4); }).empty());
  CHECK_THAT(fault_of([] { launch(asserts, 2, 8, 0, nullptr, 5); }),
             ContainsSubstring("thread (0,0,0): assertion at test_faults.cu:") &&
                 ContainsSubstring("does not hold: n < 5 && \"too many\""));
}

TEST_CASE("shared memory beyond the limit, misaligned copies, a stack that is used up") {
  DeviceBuffer<float> floats(64);
  DeviceBuffer<int> ints(64);
  ints.zero();
  CHECK_THAT(fault_of([&] { launch(declares_too_much, 1, 8, 0, nullptr, floats.data()); }),
             ContainsSubstring("shared variable large (test_faults.cu:") &&
                 ContainsSubstring("static shared memory to 49156 bytes; at most 49152"));
  CHECK_THAT(fault_of([&] { launch(declares_little, 1, 8, 163 << 10, nullptr, floats.data()); }),
             ContainsSubstring("static and dynamic shared memory to 166916 bytes; at most 166912"));
  CHECK_THAT(fault_of([&] { launch(misaligns_copy, 1, 8, 0, nullptr, floats.data()); }),
             ContainsSubstring("thread (1,0,0): cp.async to a shared address"));
  ScopedSettings settings;
  settings->stack_bytes = 256 << 10;
  CHECK(fault_of([&] { launch(recurses, 1, 1, 0, nullptr, ints.data(), 20); }).empty());
  settings->stack_bytes = 64 << 10;
  CHECK_THAT(fault_of([&] { launch(recurses, 1, 1, 0, nullptr, ints.data(), 130); }),
             ContainsSubstring("the kernel has used up the thread's stack"));
}

TEST_CASE("an address where no memory is") {
  if (emulator::kAddressSanitizer) return;  // which ends the program: wrong_accesses.cu
  DeviceBuffer<int> there(1);
  int* far = reinterpret_cast<int*>(std::uintptr_t{0x5000});
  for (int i = 0; i < 3; ++i) {  // again after it was handled
    CHECK_THAT(fault_of([&] { launch(copies, 1, 32, 0, nullptr, there.data(), nullptr); }),
               ContainsSubstring(place("copies(int*, int const*)", "(0,0,0)", "(3,0,0)") +
                                 "reads or writes at a null pointer"));
    CHECK_THAT(fault_of([&] { launch(copies, 1, 32, 0, nullptr, far, there.data()); }),
               ContainsSubstring("reads or writes at 0x5000, where no memory is"));
  }
}

TEST_CASE("after a fault the device works as before") {
  DeviceBuffer<int> out(64);
  for (int i = 0; i < 50; ++i) {
    CHECK_FALSE(fault_of([&] { launch(diverges, 4, 64, 0, nullptr, out.data()); }).empty());
    out.zero();
    launch(increments, 100, 128, 0, nullptr, out.data());
    int value = 0;
    out.download(&value, 1);
    CHECK(value == 12800);
  }
}

TEST_CASE("faults come out of graphs and of other workers") {
  ScopedSettings settings;
  settings->workers = 4;
  Stream stream;
  const Graph graph =
      Graph::capture(stream, [&] { launch(exits_before_barrier, 64, 128, 0, stream, 77u); });
  for (int i = 0; i < 5; ++i) {
    CHECK_THAT(fault_of([&] { graph.launch(stream); }), ContainsSubstring("thread (77,0,0)"));
  }
}
