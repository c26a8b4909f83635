// SPDX-License-Identifier: MIT
//
// The kernels of the roofline: one writes a known pattern, one reads it back and adds it up.
#include "stream.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/ptx.h"
#include "cuda/shared.h"

namespace minfer {

/// words[i] = pattern_word(first + i), counted in 32-bit words.
/// @why A buffer that was never written may be backed by no memory at all, and a sum of zeros
///      proves nothing: every word must be its own.
__global__ void __launch_bounds__(kStreamThreads)
    fill_pattern_kernel(uint4* __restrict__ words,  ///< out [n], dense
                        std::size_t n,              //
                        std::size_t first) {        ///< index of the first 32-bit word
  const std::size_t step = std::size_t{gridDim.x} * kStreamThreads;
  for (std::size_t i = std::size_t{blockIdx.x} * kStreamThreads + threadIdx.x; i < n; i += step) {
    const std::size_t index = first + 4 * i;
    words[i] = make_uint4(pattern_word(index), pattern_word(index + 1), pattern_word(index + 2),
                          pattern_word(index + 3));
  }
}

void fill_pattern(uint4* words, std::size_t n, std::size_t first, cudaStream_t stream) {
  if (n == 0) return;
  const std::size_t ctas = (n + kStreamThreads - 1) / kStreamThreads;
  launch(fill_pattern_kernel, dim3(static_cast<unsigned>(std::min<std::size_t>(ctas, 4096))),
         kStreamThreads, 0, Traffic{n * sizeof(uint4)}, stream, words, n, first);
}

__device__ __forceinline__ std::uint32_t sum_of(uint4 v) {
  return v.x + v.y + v.z + v.w;
}

/// sums[c] = the sum, modulo 2^32, of the 32-bit words of the tiles c, c + gridDim.x, ... of
/// `words`; a tile is kInFlight * 256 words of 16 bytes, the last one may be shorter.
/// @why Memory has a latency of some 500 ns, and gives its bandwidth only if bandwidth times
///      latency bytes are asked for at any moment: about 50 KB on an Orin, 2.3 MB on an H200.
///      A thread that uses each load before it issues the next has 16 bytes under way. Here it
///      keeps a ring of kInFlight loads and asks for the next tile's word as soon as it has used
///      one. A ring because its words live from one round to the next: with a plain batch per round
///      the compiler interleaved loads and uses, and of 16 loads written 6 were under way. The sum
///      keeps the loads from being dropped, and proves that every word was read once.
template <int kInFlight>
__global__ void __launch_bounds__(kStreamThreads)
    stream_read_kernel(std::uint32_t* __restrict__ sums,  ///< out [gridDim.x]
                       const uint4* __restrict__ words,   ///< [n], dense
                       std::size_t n) {                   //
  constexpr std::size_t kTile = std::size_t{kInFlight} * kStreamThreads;
  const std::size_t tiles = n / kTile;
  std::uint32_t sum = 0;
  const uint4* mine = words + threadIdx.x;
  if (blockIdx.x < tiles) {
    uint4 word[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      word[i] = load_streaming(mine + blockIdx.x * kTile + i * kStreamThreads);
    }
    for (std::size_t tile = std::size_t{blockIdx.x} + gridDim.x; tile < tiles; tile += gridDim.x) {
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        sum += sum_of(word[i]);
        word[i] = load_streaming(mine + tile * kTile + i * kStreamThreads);
      }
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) sum += sum_of(word[i]);
  }
  // The short tile falls to the CTA whose turn it would be.
  if (tiles % gridDim.x == blockIdx.x) {
    for (std::size_t i = tiles * kTile + threadIdx.x; i < n; i += kStreamThreads) {
      sum += sum_of(load_streaming(words + i));
    }
  }

  MINFER_SHARED(std::uint32_t, partial, [kStreamThreads / 32]);
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  }
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();  // partial: written by lane 0 of each warp, read by thread 0
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kStreamThreads / 32; ++warp) sum += partial[warp];
    sums[blockIdx.x] = sum;
  }
}

namespace {

template <int kInFlight>
void launch_stream_read(std::uint32_t* sums, const uint4* words, std::size_t n,
                        const StreamShape& shape, cudaStream_t stream) {
  std::size_t shared_bytes = 0;
  if (shape.one_cta_an_sm) {
    const Device device = Device::current();
    shared_bytes = std::min(device.shared_bytes_per_sm / 2 + 1024, device.shared_bytes_per_block);
    // Static and dynamic shared memory together are what a CTA is limited to.
    shared_bytes -= kStreamThreads / 32 * sizeof(std::uint32_t);
  }
  const Traffic traffic = {n * sizeof(uint4)};  // the few sums left out
  launch(stream_read_kernel<kInFlight>, dim3(static_cast<unsigned>(shape.ctas)), kStreamThreads,
         shared_bytes, traffic, stream, sums, words, n);
}

/// Calls `use(constant)` with the number as a template argument can have it.
template <class Use>
auto with_loads_in_flight(int number, Use use) {
  switch (number) {
    case 1:
      return use(std::integral_constant<int, 1>());
    case 2:
      return use(std::integral_constant<int, 2>());
    case 4:
      return use(std::integral_constant<int, 4>());
    case 8:
      return use(std::integral_constant<int, 8>());
    case 16:
      return use(std::integral_constant<int, 16>());
    default:
      break;
  }
  throw std::invalid_argument("loads in flight: " + std::to_string(number) +
                              "; expected 1, 2, 4, 8 or 16");
}

}  // namespace

void stream_read(std::uint32_t* sums, const uint4* words, std::size_t n, const StreamShape& shape,
                 cudaStream_t stream) {
  if (shape.ctas < 1) {
    throw std::invalid_argument("a grid of " + std::to_string(shape.ctas) +
                                " CTAs; expected 1 or more");
  }
  with_loads_in_flight(shape.loads_in_flight, [&](auto in_flight) {
    launch_stream_read<in_flight.value>(sums, words, n, shape, stream);
  });
}

int ctas_that_fit_an_sm(int loads_in_flight) {
  return with_loads_in_flight(loads_in_flight, [](auto in_flight) {
    return cooperative_grid_limit(stream_read_kernel<in_flight.value>, kStreamThreads, 0) /
           Device::current().sm_count;
  });
}

}  // namespace minfer
