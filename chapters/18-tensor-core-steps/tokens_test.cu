// SPDX-License-Identifier: MIT
//
// What steps of several tokens are made of, against what steps of one are: the same bits.
#include <cstring>
#include <memory>
#include <vector>

#include "attention.cuh"
#include "barrier.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "kernel_testing.h"
#include "quantized_testing.h"
#include "shape.h"
#include "tokens_phases.cuh"

namespace minfer {
namespace {

/// W x of all tokens by the units of a stage, by all warps together.
template <class S, Stage kStage, std::uint32_t kBatches>
__global__ void __launch_bounds__(kCtaThreads)
    multiply_tokens(float* y, PackedWeights weights, const Int8Tokens<Units<S, kStage>::K>* x) {
  using U = Units<S, kStage>;
  MINFER_SHARED(CtaUnits, units);
  TokensCta<kBatches> cta(nullptr, dynamic_shared<unsigned char>(), BatchSource(weights, 1, 0),
                          units);
  __syncthreads();  // zeros: written by all, read by all
  for_each_round({0, U::kCount}, [&](std::uint32_t first_unit, bool has_unit) {
    TokenSums<U::K, U::kRows> sums;
    sums.add(cta, has_unit, StoredTokens<U::K>{*x});
    sums.leave(cta);
    const LeftAt at;
    if (at.row >= U::kRows || first_unit + at.warp >= U::kCount) return;
    y[at.token * U::kCount * U::kRows + U::row(first_unit + at.warp, at.row)] =
        sum_of_warps(cta, threadIdx.x);
  });
}

template <class S, Stage kStage, std::uint32_t kBatches>
void check_product(const PackedRows& packed, const DeviceBuffer<Int8Tokens<Units<S, kStage>::K>>& x,
                   const std::vector<float>& expected) {
  const Stream stream;
  DeviceBuffer<float> y(expected.size());
  launch(multiply_tokens<S, kStage, kBatches>, 1, kCtaThreads,
         Ring<kBatches>::kBytes + TokensCta<kBatches>::kBytes, stream, y.data(), packed.weights(),
         x.data());
  REQUIRE(to_host(stream, y) == expected);
}

template <class S, Stage kStage>
void check_rows_of_tokens(Random& random) {
  using U = Units<S, kStage>;
  INFO(U::kCount << " units of " << U::kRows << " rows of " << U::K);
  const TestMatrix w(TensorType::kQ4_0, U::kCount * U::kRows, U::K, random);
  const PackedRows packed(w, PackedRows::Of<S, kStage>());
  auto x = std::make_unique<Int8Tokens<U::K>>();
  std::vector<float> expected;
  for (std::uint32_t t = 0; t < kMaxTokens; ++t) {
    const HostQuantized own(activations(U::K, random));
    for (std::uint32_t b = 0; b < U::K / 32; ++b) {
      x->d[b][t] = own.d[b];
      x->sums[b][t] = 0;
      for (std::uint32_t i = 0; i < 32; ++i) {
        auto* lanes = reinterpret_cast<std::int8_t*>(&x->q[b][4 * t + i % 16 / 4]);
        lanes[i / 16 * 4 + i % 4] = own.q[32 * b + i];
        x->sums[b][t] += own.q[32 * b + i];
      }
    }
    const std::vector<float> alone = warp_gemv(w, own);
    expected.insert(expected.end(), alone.begin(), alone.end());
  }
  const auto device_x = to_device(std::vector<Int8Tokens<U::K>>{*x});
  check_product<S, kStage, 3>(packed, device_x, expected);
  if (Ring<4>::kBytes + TokensCta<4>::kBytes <= Device::current().shared_bytes_per_block) {
    check_product<S, kStage, 4>(packed, device_x, expected);
  }
}

template <class S>
void check_stages_of_tokens(Random& random) {
  check_rows_of_tokens<S, Stage::kQkv>(random);
  check_rows_of_tokens<S, Stage::kO>(random);
  check_rows_of_tokens<S, Stage::kGateUp>(random);
  check_rows_of_tokens<S, Stage::kDown>(random);
}

TEST_CASE("the tensor cores add up the bits of a warp that has a row for itself") {
  Random random(51);
  check_stages_of_tokens<ModelShape<896, 96, 14, 2, 64>>(random);     // a lane a block, 28 of them
  check_stages_of_tokens<ModelShape<96, 1536, 3, 1, 32>>(random);     // rows that share a tile
  check_stages_of_tokens<ModelShape<1056, 288, 33, 11, 32>>(random);  // 33 blocks
  check_stages_of_tokens<ModelShape<64, 4864, 2, 1, 32>>(random);    // five tiles, one of 24 blocks
  check_stages_of_tokens<ModelShape<2048, 64, 16, 2, 128>>(random);  // two whole ones
}

// ------------------------------------------------------------------------------ the norm

/// What the warps keep of a step's tokens, and a token's vector as a step of one has it.
template <std::uint32_t N, std::uint32_t kPlanes>
__global__ void __launch_bounds__(kCtaThreads)
    keep(Fragment<kPlanes>* kept, Quantized<N, 2 * kPlanes>* alone, const float* x, const float* w,
         std::uint32_t n, float eps) {
  const KeptTokens<N, kPlanes> own(
      {0, n}, [&](std::uint32_t t, std::uint32_t i) { return by_four(x + t * N)[i / 4]; }, w, eps);
  for (std::uint32_t i = 0; i < WarpsBlocks<N>::kCount; ++i) {
    if (WarpsBlocks<N>::has(i)) kept[WarpsBlocks<N>::block(i) * 32 + threadIdx.x % 32] = own.of(i);
  }
  __syncthreads();  // what KeptTokens shares: read by all, written by none that follows
  for (std::uint32_t t = 0; t < n; ++t) {
    const auto& one =
        normed<N, 2 * kPlanes>(four_of_thread<N>(x + t * N), four_of_thread<N>(w), eps);
    if (threadIdx.x == 0) alone[t] = one;
    __syncthreads();  // one: read by the first thread, written by all
  }
}

/// Byte `byte` of value i of a block: 1 is int16's high one.
template <std::uint32_t N>
std::int8_t byte_of(const Int8<N>& y, std::uint32_t b, std::uint32_t i, std::uint32_t) {
  const uint4& unit = y.q[interleaved<2>(b, i / 16, N / 32)];
  return reinterpret_cast<const std::int8_t*>(&unit)[i % 16];
}
template <std::uint32_t N>
std::int8_t byte_of(const Int16<N>& y, std::uint32_t b, std::uint32_t i, std::uint32_t byte) {
  const uint4& unit = y.q[interleaved<4>(b, i / 8, N / 32)];
  return reinterpret_cast<const std::int8_t*>(&unit)[i % 8 / 4 * 8 + (1 - byte) * 4 + i % 4];
}

template <std::uint32_t N, std::uint32_t kPlanes>
void check_kept(std::uint32_t n, Random& random) {
  INFO(n << " tokens of " << N << ", planes " << kPlanes);
  const std::vector<float> x = random.values(n * N), w = random.values(N);
  const auto device_x = to_device(x), device_w = to_device(w);
  DeviceBuffer<Fragment<kPlanes>> kept(N);
  DeviceBuffer<Quantized<N, 2 * kPlanes>> alone(n);
  const Stream stream;
  launch(keep<N, kPlanes>, 1, kCtaThreads, 0, stream, kept.data(), alone.data(), device_x.data(),
         device_w.data(), n, 1e-6f);
  const auto fragments = to_host(stream, kept);
  const auto vectors = to_host(stream, alone);
  std::uint32_t wrong = 0;
  for (std::uint32_t b = 0; b < N / 32; ++b) {
    for (std::uint32_t t = 0; t < n; ++t) {
      for (std::uint32_t i = 0; i < 32; ++i) {
        const Fragment<kPlanes>& own = fragments[b * 32 + 4 * t + i % 16 / 4];
        for (std::uint32_t plane = 0; plane < kPlanes; ++plane) {
          const auto* bytes = reinterpret_cast<const std::int8_t*>(&own.numbers[plane][i / 16]);
          wrong += bytes[i % 4] != byte_of(vectors[t], b, i, kPlanes - 1 - plane);
        }
      }
      const Fragment<kPlanes>& sums = fragments[b * 32 + t / 2];  // of the first row
      wrong += (t % 2 == 0 ? sums.d.x : sums.d.y) != vectors[t].d[b];
      wrong += (t % 2 == 0 ? sums.eights.x : sums.eights.y) != -8 * vectors[t].sums[b];
    }
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("tokens that are normed together have the bits of those that are normed alone") {
  Random random(52);
  for (const std::uint32_t n : {1u, 3u, 8u}) {
    check_kept<32, 1>(n, random);
    check_kept<896, 1>(n, random);
    check_kept<1056, 2>(n, random);
    check_kept<2048, 2>(n, random);
  }
}

// ------------------------------------------------------------------------------ attention

template <class S, std::uint32_t kHeads>
__global__ void __launch_bounds__(kCtaThreads)
    attend_tokens(DeviceModel m, Workspace<S> work, std::uint32_t position, std::uint32_t n) {
  MINFER_SHARED(CtaUnits, units);
  Cta<2> cta = {GridBarrier(work.arrived),
                {dynamic_shared<unsigned char>(), BatchSource(m.packed, 0, 0)},
                units};
  cta.arrive();
  attention<S, kHeads, kMaxTokens>(cta, m, work, 0, position, n,
                                   [&](std::uint32_t t, std::uint32_t i, float value) {
                                     quantize(*work.attended_tokens, t, i, value);
                                   });
}

template <class S>
void check_attention_of_tokens(std::uint32_t position, Random& random) {
  INFO(S::kHeads << " heads of " << S::kHeadDim << ", position " << position);
  const std::uint32_t context = position + kMaxTokens, chunks = chunks_of(context);
  const std::vector<float> q = random.values(kMaxTokens * S::kQ);
  const std::vector<float> k = random.values(context * S::kKv), v = random.values(k.size());
  auto device_q = to_device(q), device_k = to_device(k), device_v = to_device(v);
  const std::uint32_t rows = kMaxTokens * S::kHeads * chunks;
  DeviceBuffer<float> outputs(rows * S::kHeadDim), max(rows), total(rows);
  auto done = to_device(std::vector<std::uint32_t>(kMaxTokens * S::kHeads));
  auto attended = to_device(std::vector<Int8Tokens<S::kQ>>(1));
  DeviceModel m = {};
  m.context = context;
  const auto run = [&](std::uint32_t first, std::uint32_t n, std::uint32_t n_ctas, auto kernel) {
    auto arrived = to_device(std::vector<unsigned>(1));
    Workspace<S> work = {};
    work.q = device_q.data() + first * S::kQ;
    work.k = device_k.data();
    work.v = device_v.data();
    work.partials = {outputs.data(), max.data(), total.data(), done.data(), chunks};
    work.attended_tokens = attended.data();
    work.arrived = arrived.data();
    const Stream stream;
    launch_cooperative(kernel, n_ctas, kCtaThreads, Ring<2>::kBytes, stream, m, work,
                       position + first, n);
    REQUIRE(to_host(stream, done) == std::vector<std::uint32_t>(kMaxTokens * S::kHeads));
    return to_host(stream, attended)[0];
  };
  std::vector<Int8Tokens<S::kQ>> alone;
  for (std::uint32_t t = 0; t < kMaxTokens; ++t) alone.push_back(run(t, 1, 2, attend_tokens<S, 1>));
  for (const std::uint32_t n : {2u, 5u, kMaxTokens}) {
    for (const std::uint32_t n_ctas : kGrids) {
      for (const auto kernel : {attend_tokens<S, 1>, attend_tokens<S, S::kGroup>}) {
        const Int8Tokens<S::kQ> found = run(0, n, n_ctas, kernel);
        bool same = true;
        for (std::uint32_t b = 0; b < S::kQ / 32; ++b) {
          for (std::uint32_t t = 0; t < n; ++t) {
            same = same && std::memcmp(&found.q[b][4 * t], &alone[t].q[b][0], 32) == 0;
            same = same && found.d[b][t] == alone[t].d[b][0];
            same = same && found.sums[b][t] == alone[t].sums[b][0];
          }
        }
        REQUIRE(same);
      }
    }
  }
}

TEST_CASE("a token attends as it does alone, whichever others are in its step") {
  Random random(53);
  for (const std::uint32_t position : {0u, 5u, 251u, 509u}) {
    check_attention_of_tokens<ModelShape<64, 32, 6, 2, 32>>(position, random);
    check_attention_of_tokens<ModelShape<64, 32, 3, 1, 128>>(position, random);
  }
}

}  // namespace
}  // namespace minfer
