// SPDX-License-Identifier: MIT
#include "cuda/launch.h"
#include "features.h"

namespace minfer::features {
namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void shuffle_warp(int* out, const int* in, Shuffle kind, int argument, int width) {
  const int value = in[threadIdx.x];
  int result = 0;
  switch (kind) {
    case Shuffle::index:
      result = __shfl_sync(kAll, value, argument, width);
      break;
    case Shuffle::up:
      result = __shfl_up_sync(kAll, value, argument, width);
      break;
    case Shuffle::down:
      result = __shfl_down_sync(kAll, value, argument, width);
      break;
    case Shuffle::exclusive_or:
      result = __shfl_xor_sync(kAll, value, argument, width);
      break;
  }
  out[threadIdx.x] = result;
}

__global__ void shuffle_doubles(double* values, int lane_mask) {
  values[threadIdx.x] = __shfl_xor_sync(kAll, values[threadIdx.x], lane_mask);
}

__global__ void vote(std::array<unsigned, 10>* out, const unsigned* in) {
  const unsigned value = in[threadIdx.x];
  const int signed_value = static_cast<int>(value);
  unsigned* results = reinterpret_cast<unsigned*>(out + threadIdx.x);
  results[0] = __ballot_sync(kAll, value % 2 == 1);
  results[1] = __any_sync(kAll, value == 7);
  results[2] = __all_sync(kAll, value < 100);
  results[3] = __match_any_sync(kAll, value);
  results[4] = __reduce_add_sync(kAll, value);
  results[5] = static_cast<unsigned>(__reduce_min_sync(kAll, signed_value));
  results[6] = static_cast<unsigned>(__reduce_max_sync(kAll, signed_value));
  results[7] = __reduce_and_sync(kAll, value);
  results[8] = __reduce_or_sync(kAll, value);
  results[9] = __reduce_xor_sync(kAll, value);
}

/// Groups of 8 lanes go their own ways, each with its own mask and number of shuffles.
__global__ void sum_in_groups(int* out) {
  const unsigned lane = threadIdx.x;
  const unsigned group = lane / 8;
  const unsigned mask = 0xffu << (8 * group);
  int sum = 0;
  for (unsigned i = 0; i <= group; ++i) {
    int part = static_cast<int>(lane % 8);
    for (int step = 4; step > 0; step /= 2) part += __shfl_xor_sync(mask, part, step);
    sum += part;
    __syncwarp(mask);
  }
  out[lane] = sum;
}

}  // namespace

std::vector<int> shuffle(Shuffle kind, const std::vector<int>& values, int argument, int width) {
  Stream stream;
  const auto in = on_device(values, stream);
  DeviceBuffer<int> out(values.size());
  launch(shuffle_warp, 1, 32, 0, stream, out.data(), in.data(), kind, argument, width);
  return on_host(out, stream);
}

std::vector<double> shuffle_wide(const std::vector<double>& values, int lane_mask) {
  Stream stream;
  const auto data = on_device(values, stream);
  launch(shuffle_doubles, 1, 32, 0, stream, data.data(), lane_mask);
  return on_host(data, stream);
}

std::vector<std::array<unsigned, 10>> votes(const std::vector<unsigned>& values) {
  Stream stream;
  const auto in = on_device(values, stream);
  DeviceBuffer<std::array<unsigned, 10>> out(values.size());
  launch(vote, 1, 32, 0, stream, out.data(), in.data());
  return on_host(out, stream);
}

std::vector<int> uneven_groups() {
  Stream stream;
  DeviceBuffer<int> out(32);
  launch(sum_in_groups, 1, 32, 0, stream, out.data());
  return on_host(out, stream);
}

}  // namespace minfer::features
