// SPDX-License-Identifier: MIT
//
// What the kernel is made of, each part by itself: the barrier, the rings, how rows are dealt,
// packed and added up, the norm, and the choice of a token. On one CTA and on several.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include <minfer/threads.h>

#include "barrier.h"
#include "cuda/launch.h"
#include "gemv.cuh"
#include "head.cuh"
#include "kernel_testing.h"
#include "memory.h"
#include "oracle/ops.h"
#include "quantized_testing.h"
#include "shape.h"

namespace minfer {
namespace {

// ------------------------------------------------------------------------------ the barrier

/// In each round every CTA writes its place, and counts the places that another has not.
__global__ void meet(unsigned* arrived, unsigned* places, unsigned* missing, unsigned n_rounds) {
  GridBarrier barrier(arrived);
  for (unsigned round = 1; round <= n_rounds; ++round) {
    unsigned* own = places + round % 2 * gridDim.x;
    if (threadIdx.x == blockDim.x - 1) own[blockIdx.x] = round;
    barrier.arrive();
    barrier.wait();  // own: written by a thread of each CTA, read by all
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
      if (own[i] != round) atomicAdd(missing, 1u);
    }
  }
}

TEST_CASE("what a CTA writes before the barrier, all others see behind it") {
  for (const std::uint32_t n_ctas : kGrids) {
    const Stream stream;
    auto arrived = to_device(std::vector<unsigned>(1)),
         missing = to_device(std::vector<unsigned>(1));
    auto places = to_device(std::vector<unsigned>(2 * n_ctas));
    launch_cooperative(meet, n_ctas, 64, 0, stream, arrived.data(), places.data(), missing.data(),
                       20);
    REQUIRE(to_host(stream, missing)[0] == 0);
    REQUIRE(to_host(stream, arrived)[0] == 20 * n_ctas);
  }
}

// ------------------------------------------------------------------------------ the rings

/// A word of each block that each warp gets, in order.
/// @param n_taken  tiles of the layers, and as many of the head, that are taken; others are left
template <std::uint32_t kBatches>
__global__ void __launch_bounds__(kCtaThreads)
    read_tiles(PackedWeights weights, std::uint32_t n_steps, std::uint32_t first_predicted,
               std::uint32_t n_taken, std::uint32_t* words) {
  const std::uint32_t warp = blockIdx.x * kCtaWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  Ring<kBatches> ring(dynamic_shared<unsigned char>(),
                      BatchSource(weights, n_steps, first_predicted));
  const WarpBatches own = weights.warps[warp];
  std::uint32_t* out = words + warp * 2 * n_steps * n_taken * 32 + lane;
  for (std::uint32_t step = 0; step < n_steps; ++step) {
    for (std::uint32_t part = 0; part < 2; ++part) {
      const std::uint32_t n = part == 0 ? own.of_layers : step >= first_predicted ? own.of_head : 0;
      for (std::uint32_t i = 0; i < n_taken && n > 0; i += 3) {
        Block blocks[3];
        ring.take(blocks);
        for (const Block& block : blocks) {
          *out = block.q.x + block.d;
          out += 32;
        }
      }
      if (n > 0) ring.finish_batch();
    }
  }
  ring.drain();
}

/// Two CTAs, whose warps have no batches or two of the layers, and none or two of the head: some
/// have nothing at all, and some come to the end before the ring is full.
template <std::uint32_t kBatches>
void check_ring(std::uint32_t n_steps, std::uint32_t first_predicted) {
  constexpr std::uint32_t kTaken = 6, kWords = kBatchBytes / 4, kTileWords = kTileBytes / 4;
  std::vector<WarpBatches> warps;
  std::uint32_t n = 0;
  for (std::uint32_t w = 0; w < 2 * kCtaWarps; ++w) {
    warps.push_back({n, w % 3 == 0 ? 0u : 2u, 2 * (w % 2)});
    n += warps[w].of_layers + warps[w].of_head;
  }
  std::vector<std::uint32_t> content(n * kWords);
  std::iota(content.begin(), content.end(), 0u);
  const auto device_content = to_device(content);
  const auto device_warps = to_device(warps);
  auto words = to_device(std::vector<std::uint32_t>(warps.size() * 2 * n_steps * kTaken * 32));
  const Stream stream;
  launch(read_tiles<kBatches>, 2, kCtaThreads, Ring<kBatches>::kBytes, stream,
         PackedWeights{reinterpret_cast<const unsigned char*>(device_content.data()),
                       device_warps.data()},
         n_steps, first_predicted, kTaken, words.data());
  const std::vector<std::uint32_t> found = to_host(stream, words);
  for (std::uint32_t w = 0; w < warps.size(); ++w) {
    INFO("warp " << w << ", " << kBatches << " batches, " << n_steps << " steps");
    std::vector<std::uint32_t> expected;
    for (std::uint32_t step = 0; step < n_steps; ++step) {
      for (std::uint32_t part = 0; part < 2; ++part) {
        const std::uint32_t first = warps[w].first + (part == 0 ? 0 : warps[w].of_layers);
        const std::uint32_t count = part == 0                 ? warps[w].of_layers
                                    : step >= first_predicted ? warps[w].of_head
                                                              : 0;
        for (std::uint32_t i = 0; count > 0 && i < kTaken; ++i) {
          const std::uint32_t* tile = &content[first * kWords + i * kTileWords];
          const auto* d = reinterpret_cast<const std::uint16_t*>(tile + kTileScales / 4);
          for (std::uint32_t lane = 0; lane < 32; ++lane) {
            const Place at = place(lane, w % kCtaWarps);
            expected.push_back(tile[4 * at.nibbles] + d[at.scale]);
          }
        }
      }
    }
    expected.resize(2 * n_steps * kTaken * 32);
    const auto begin = found.begin() + w * expected.size();
    REQUIRE(std::vector<std::uint32_t>(begin, begin + expected.size()) == expected);
  }
}

TEST_CASE("a ring hands out what the layers have and what the head has, in order, to the end") {
  const bool has_room = Ring<5>::kBytes <= Device::current().shared_bytes_per_block;
  for (const std::uint32_t n_steps : {1u, 2u, 4u}) {
    check_ring<2>(n_steps, 0);
    check_ring<3>(n_steps, 0);
    check_ring<4>(n_steps, n_steps - 1);
    if (has_room) check_ring<5>(n_steps, 0);
  }
}

/// Takes one tile and leaves.
template <std::uint32_t kBatches>
__global__ void __launch_bounds__(kCtaThreads) leave(PackedWeights weights, std::uint32_t* words) {
  Ring<kBatches> ring(dynamic_shared<unsigned char>(), BatchSource(weights, 9, 0));
  Block block[1];
  ring.take(block);
  words[threadIdx.x] = block[0].q.x;
  ring.drain();
}

TEST_CASE("a ring may be left before its end") {
  std::vector<std::uint32_t> content(4 * kBatchBytes / 4);
  std::iota(content.begin(), content.end(), 0u);
  const auto device_content = to_device(content);
  const auto device_warps = to_device(std::vector<WarpBatches>(kCtaWarps, {0, 3, 1}));
  const PackedWeights weights = {reinterpret_cast<const unsigned char*>(device_content.data()),
                                 device_warps.data()};
  const Stream stream;
  DeviceBuffer<std::uint32_t> words(kCtaThreads);
  launch(leave<2>, 1, kCtaThreads, Ring<2>::kBytes, stream, weights, words.data());
  REQUIRE(to_host(stream, words)[33] == content[4 * place(1, 1).nibbles]);
  launch(leave<4>, 1, kCtaThreads, Ring<4>::kBytes, stream, weights, words.data());
  REQUIRE(to_host(stream, words)[33] == content[4 * place(1, 1).nibbles]);
}

// ------------------------------------------------------------------------------ rows

TEST_CASE("units are dealt in equal shares, each once") {
  for (const std::uint32_t n : {1u, 7u, 152u, 448u, 37917u}) {
    for (const std::uint32_t n_ctas : {1u, 2u, 8u, 131u, 132u, 400u}) {
      std::uint32_t next = 0;
      for (std::uint32_t cta = 0; cta < n_ctas; ++cta) {
        const Range units = dealt(n, cta, n_ctas);
        REQUIRE(units.first == next);
        REQUIRE(units.last - units.first <= n / n_ctas + 1);
        next = units.last;
      }
      REQUIRE(next == n);
    }
  }
}

/// W x by the units of a stage, a warp each. Activations are kept, or read where they are needed.
template <class S, Stage kStage, bool kKeeps>
__global__ void __launch_bounds__(kCtaThreads)
    multiply(float* y, PackedWeights weights, const Int8<Units<S, kStage>::K>* x) {
  using U = Units<S, kStage>;
  using X = Int8<U::K>;
  Ring<3> ring(dynamic_shared<unsigned char>(), BatchSource(weights, 1, 0));
  MINFER_SHARED(X, copy);
  if (threadIdx.x == 0) copy = *x;
  __syncthreads();  // copy: written by the first thread, read by all
  for (std::uint32_t unit = threadIdx.x / 32; unit < U::kCount; unit += kCtaWarps) {
    RowSums<U::K, U::kRows> sums;
    if constexpr (kKeeps) {
      sums.add(ring, Kept<U::K, Activations8>(copy));
    } else {
      sums.add(ring, Shared<U::K>{copy});
    }
    for (std::uint32_t r = 0; r < U::kRows; ++r) {
      const float sum = warp_sum(sums.of_lane[r]);
      if (threadIdx.x % 32 == 0) y[U::row(unit, r)] = sum;
    }
  }
}

template <class S, Stage kStage>
void check_rows(Random& random) {
  using U = Units<S, kStage>;
  INFO(U::kCount << " units of " << U::kRows << " rows of " << U::K);
  const TestMatrix w(TensorType::kQ4_0, U::kCount * U::kRows, U::K, random);
  const HostQuantized x(activations(U::K, random));
  const PackedRows packed(w, PackedRows::Of<S, kStage>());
  const auto device_x = to_device(std::vector<Int8<U::K>>{on_device<U::K>(x)});
  const PackedWeights weights = packed.weights();
  const std::vector<float> expected = warp_gemv(w, x);
  const Stream stream;
  DeviceBuffer<float> y(expected.size());
  const std::size_t shared = Ring<3>::kBytes;
  launch(multiply<S, kStage, false>, 1, kCtaThreads, shared, stream, y.data(), weights,
         device_x.data());
  REQUIRE(to_host(stream, y) == expected);
  launch(multiply<S, kStage, true>, 1, kCtaThreads, shared, stream, y.data(), weights,
         device_x.data());
  REQUIRE(to_host(stream, y) == expected);
}

template <class S>
void check_stages(Random& random) {
  check_rows<S, Stage::kQkv>(random);
  check_rows<S, Stage::kO>(random);
  check_rows<S, Stage::kGateUp>(random);
  check_rows<S, Stage::kDown>(random);
}

TEST_CASE("packed rows add up to the bits of a warp that has a row for itself") {
  Random random(41);
  check_stages<ModelShape<896, 96, 14, 2, 64>>(random);     // a lane a block, 28 of them
  check_stages<ModelShape<96, 1536, 3, 1, 32>>(random);     // rows that share a tile; 48 blocks
  check_stages<ModelShape<1056, 288, 33, 11, 32>>(random);  // 33 blocks
  check_stages<ModelShape<64, 4864, 2, 1, 32>>(random);     // five tiles, the last of 24 blocks
  check_stages<ModelShape<32, 11008, 1, 1, 32>>(random);    // eleven
  check_stages<ModelShape<2048, 64, 16, 2, 128>>(random);   // two whole ones
}

// ------------------------------------------------------------------------------ the norm

template <std::uint32_t N, std::uint32_t kUnits>
__global__ void __launch_bounds__(kCtaThreads)
    norm(Quantized<N, kUnits>* y, const float* x, const float* w, float eps) {
  const auto& result = normed<N, kUnits>(four_of_thread<N>(x), four_of_thread<N>(w), eps);
  if (threadIdx.x == 0) *y = result;
}

template <std::uint32_t N, std::uint32_t kUnits>
void check_norm(Random& random) {
  INFO("n " << N << ", units " << kUnits);
  const std::vector<float> x = random.values(N), w = random.values(N);
  const auto device_x = to_device(x), device_w = to_device(w);
  DeviceBuffer<Quantized<N, kUnits>> y(1);
  const Stream stream;
  launch(norm<N, kUnits>, 1, kCtaThreads, 0, stream, y.data(), device_x.data(), device_w.data(),
         1e-6f);
  std::vector<float> expected(N);
  oracle::rmsnorm(x.data(), w.data(), 1e-6f, 1, N, expected.data());
  const auto found = std::make_unique<Quantized<N, kUnits>>(to_host(stream, y)[0]);
  const std::vector<float> values = values_of(*found);
  for (std::uint32_t run = 0; run < N / 32; ++run) {
    float largest = 0;
    double sum = 0;
    for (std::uint32_t i = run * 32; i < run * 32 + 32; ++i) {
      largest = std::max(largest, std::fabs(expected[i]));
      sum += values[i] / double(found->d[run]);
    }
    const float step = largest / (kUnits == 2 ? 127.0f : 32512.0f);
    REQUIRE(std::fabs(found->d[run] - step) <= 1e-6f * step);
    REQUIRE(std::fabs(sum - found->sums[run]) < 0.5);
    for (std::uint32_t i = run * 32; i < run * 32 + 32; ++i) {
      REQUIRE(std::fabs(values[i] - expected[i]) <= 0.5001f * step + 1e-6f * largest);
    }
  }
}

TEST_CASE("the norm is the oracle's, rounded to steps of its run") {
  Random random(43);
  check_norm<32, 2>(random);
  check_norm<896, 2>(random);
  check_norm<1056, 4>(random);
  check_norm<2048, 4>(random);
}

// ------------------------------------------------------------------------------ the choice

/// The best of n logits, of which each lane takes every 32nd, and leads with its set.
__global__ void best_of(Top2* best, const float* logits, std::uint32_t n) {
  Top2 top = no_top();
  for (std::uint32_t i = threadIdx.x; i < n; i += 32) insert(top, logits[i], i);
  top = warp_top(top);
  best[threadIdx.x] = top;
}

TEST_CASE("every lane has the best of all: ties go to the lower id, a NaN is never chosen") {
  Random random(45);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits = random.values(1 + random.bits() % 90);
    logits[random.bits() % logits.size()] = logits[random.bits() % logits.size()] = 2.0f;
    if (round % 5 == 0) logits[random.bits() % logits.size()] = NAN;
    const auto device_logits = to_device(logits);
    DeviceBuffer<Top2> best(32);
    const Stream stream;
    launch(best_of, 1, 32, 0, stream, best.data(), device_logits.data(), logits.size());
    const Prediction expected = oracle::argmax(logits.data(), logits.size());
    for (const Top2& found : to_host(stream, best)) {
      REQUIRE(found.id == expected.id);
      if (expected.id >= 0) {
        REQUIRE(bits_from_float(found.first - found.second) == bits_from_float(expected.margin));
      }
    }
  }
}

}  // namespace
}  // namespace minfer
