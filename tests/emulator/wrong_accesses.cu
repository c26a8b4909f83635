// SPDX-License-Identifier: MIT
// A program that makes the mistake that it is told to: what AddressSanitizer and UBSan must see.
// Built with both of them; each mistake is a test that expects their report.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "cuda/buffer.h"
#include "cuda/launch.h"
#include "cuda/ptx.h"
#include "cuda/shared.h"

using namespace minfer;

namespace {

constexpr unsigned kThreads = 40;

__global__ void write_global(float* data, int offset) {
  data[static_cast<int>(threadIdx.x) + offset] = 1.0f;
}

__global__ void read_global(float* out, const float* in, int offset) {
  out[threadIdx.x] = in[static_cast<int>(threadIdx.x) + offset];
}

__global__ void index_static(float* out, unsigned offset) {
  MINFER_SHARED(float, tile, [kThreads]);
  tile[threadIdx.x] = 1.0f;
  __syncthreads();  // tile: written by each thread, read by another
  out[threadIdx.x] = tile[threadIdx.x + offset];
}

__device__ __noinline__ void store(float* pointer, unsigned i) {
  pointer[i] = 1.0f;
}

__global__ void point_past_static(float* out, unsigned offset) {
  MINFER_SHARED(float, before, [kThreads]);
  MINFER_SHARED(float, tile, [kThreads]);
  MINFER_SHARED(float, after, [kThreads]);
  before[threadIdx.x] = after[threadIdx.x] = 0.0f;
  store(tile, threadIdx.x + offset);
  out[threadIdx.x] = tile[threadIdx.x] + before[0] + after[0];
}

__global__ void point_before_static(float* out) {
  MINFER_SHARED(float, tile, [kThreads]);
  store(&tile[threadIdx.x] - 1, 0);
  out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void point_past_dynamic(float* out, unsigned offset) {
  float* tile = dynamic_shared<float>();
  tile[threadIdx.x + offset] = 1.0f;
  out[threadIdx.x] = tile[0];
}

__device__ __noinline__ float sum_of_four(const void* address) {
  const float4* vector = static_cast<const float4*>(address);
  return vector->x + vector->y + vector->z + vector->w;
}

__global__ void widen_unaligned(float* out) {
  MINFER_SHARED(std::int8_t, bytes, [64]);
  bytes[threadIdx.x % 64] = 1;
  __syncthreads();  // bytes: written by all, read by all
  out[threadIdx.x] = sum_of_four(bytes);
}

__global__ void keep_shared(float** kept) {
  MINFER_SHARED(float, value);
  value = 1.0f;
  kept[0] = &value;
}

__global__ void read_kept(float* out, float** kept) {
  out[0] = *kept[0];
}

__global__ void copy_too_much(float* out, const float* in) {
  MINFER_SHARED(__align__(16) float, tile, [2]);
  cp_async<16>(tile, in);
  cp_async_commit();
  cp_async_wait<0>();
  out[threadIdx.x] = tile[0];
}

__global__ void overflow_int(int* out, int value) {
  out[threadIdx.x] = value + 1;
}

__global__ void nothing_wrong(float* out) {
  MINFER_SHARED(float, tile, [kThreads]);
  float* dynamic = dynamic_shared<float>();
  tile[threadIdx.x] = dynamic[threadIdx.x] = 1.0f;
  __syncthreads();  // both: written by each thread, read by others
  const unsigned other = kThreads - 1 - threadIdx.x;
  out[threadIdx.x] = tile[other] + dynamic[other];
}

const std::map<std::string, std::function<void(float*, float*)>> kMistakes = {
    {"none",
     [](float* a, float*) {
       launch(nothing_wrong, 3, kThreads, kThreads * sizeof(float), nullptr, a);
     }},
    {"global-write", [](float* a, float*) { launch(write_global, 1, kThreads, 0, nullptr, a, 1); }},
    {"global-read",
     [](float* a, float* b) { launch(read_global, 1, kThreads, 0, nullptr, a, b, 3); }},
    {"global-before",
     [](float* a, float* b) { launch(read_global, 1, kThreads, 0, nullptr, a, b, -1); }},
    {"global-freed",
     [](float* a, float*) {
       const float* freed = DeviceBuffer<float>(kThreads).data();
       launch(read_global, 1, kThreads, 0, nullptr, a, freed, 0);
     }},
    {"static-index",
     [](float* a, float*) { launch(index_static, 1, kThreads, 0, nullptr, a, 1u); }},
    {"static-pointer",
     [](float* a, float*) { launch(point_past_static, 2, kThreads, 0, nullptr, a, 1u); }},
    {"static-pointer-far",
     [](float* a, float*) { launch(point_past_static, 2, kThreads, 0, nullptr, a, 20u); }},
    {"static-pointer-before",
     [](float* a, float*) { launch(point_before_static, 1, kThreads, 0, nullptr, a); }},
    {"dynamic",
     [](float* a, float*) {
       launch(point_past_dynamic, 1, kThreads, kThreads * sizeof(float), nullptr, a, 1u);
     }},
    {"dynamic-none",
     [](float* a, float*) { launch(point_past_dynamic, 1, kThreads, 0, nullptr, a, 0u); }},
    {"alignment", [](float* a, float*) { launch(widen_unaligned, 1, kThreads, 0, nullptr, a); }},
    {"other-block",
     [](float* a, float*) {
       DeviceBuffer<float*> kept(1);
       launch(keep_shared, 1, 1, 0, nullptr, kept.data());
       launch(read_kept, 1, 1, 0, nullptr, a, kept.data());
     }},
    {"async-copy",
     [](float* a, float* b) { launch(copy_too_much, 1, kThreads, 0, nullptr, a, b); }},
    {"overflow",
     [](float* a, float*) {
       launch(overflow_int, 1, kThreads, 0, nullptr, reinterpret_cast<int*>(a), INT32_MAX);
     }},
};

}  // namespace

int main(int argc, char** argv) {
  const auto found = kMistakes.find(argc == 2 ? argv[1] : "");
  if (found == kMistakes.end()) {
    std::fprintf(stderr, "usage: %s MISTAKE\n", argv[0]);
    return 2;
  }
  DeviceBuffer<float> a(kThreads), b(kThreads);
  b.zero();
  found->second(a.data(), b.data());
  std::puts("nothing was found");
}
