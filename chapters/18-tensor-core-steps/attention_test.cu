// SPDX-License-Identifier: MIT
//
// Attention against the oracle's, whoever takes which heads and positions.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <minfer/threads.h>

#include "attention.cuh"
#include "barrier.h"
#include "cuda/launch.h"
#include "kernel_testing.h"
#include "oracle/ops.h"
#include "quantized_testing.h"
#include "shape.h"

namespace minfer {
namespace {

template <class S, std::uint32_t kHeads>
__global__ void __launch_bounds__(kCtaThreads)
    attend(DeviceModel m, Workspace<S> work, std::uint32_t layer, std::uint32_t position) {
  MINFER_SHARED(CtaUnits, units);
  Cta<2> cta = {GridBarrier(work.arrived),
                {dynamic_shared<unsigned char>(), BatchSource(m.packed, 0, 0)},
                units};
  cta.arrive();
  attention<S, kHeads>(cta, m, work, layer, position);
}

template <class S>
void check_attention(std::uint32_t position, Random& random) {
  INFO(S::kHeads << " heads of " << S::kHeadDim << ", position " << position);
  const std::uint32_t context = position + 3, layer = 1, chunks = chunks_of(context);
  const std::vector<float> q = random.values(S::kQ), k = random.values(2 * context * S::kKv);
  const std::vector<float> v = random.values(k.size());
  auto device_q = to_device(q), device_k = to_device(k), device_v = to_device(v);
  DeviceBuffer<float> outputs(S::kQ * chunks), max(S::kHeads * chunks), total(S::kHeads * chunks);
  auto done = to_device(std::vector<std::uint32_t>(S::kHeads));
  DeviceBuffer<Int8<S::kQ>> attended(1);
  DeviceModel m = {};
  m.context = context;
  std::vector<float> expected(S::kQ);
  ThreadPool pool(1);
  oracle::attention({S::kHeads, S::kKvHeads, S::kHeadDim}, q.data(), &k[layer * context * S::kKv],
                    &v[layer * context * S::kKv], position, 1, expected.data(), pool);
  std::vector<float> first;
  for (const std::uint32_t n_ctas : kGrids) {
    for (const auto kernel : {attend<S, 1>, attend<S, S::kGroup>}) {
      auto arrived = to_device(std::vector<unsigned>(1));
      Workspace<S> work = {};
      work.q = device_q.data();
      work.k = device_k.data();
      work.v = device_v.data();
      work.partials = {outputs.data(), max.data(), total.data(), done.data(), chunks};
      work.attended = attended.data();
      work.arrived = arrived.data();
      const Stream stream;
      launch_cooperative(kernel, n_ctas, kCtaThreads, Ring<2>::kBytes, stream, m, work, layer,
                         position);
      const auto found = std::make_unique<Int8<S::kQ>>(to_host(stream, attended)[0]);
      const std::vector<float> values = values_of(*found);
      if (first.empty()) first = values;
      REQUIRE(values == first);
      REQUIRE(to_host(stream, done) == std::vector<std::uint32_t>(S::kHeads));
      for (std::uint32_t i = 0; i < S::kQ; ++i) {
        REQUIRE(std::fabs(values[i] - expected[i]) <= 0.501f * found->d[i / 32] + 1e-5f);
      }
    }
  }
}

TEST_CASE("attention is the oracle's, whoever takes which heads and positions") {
  Random random(44);
  for (const std::uint32_t position : {0u, 1u, 127u, 128u, 255u, 256u, 700u}) {
    check_attention<ModelShape<64, 32, 6, 2, 32>>(position, random);
    check_attention<ModelShape<64, 32, 4, 2, 64>>(position, random);
    check_attention<ModelShape<64, 32, 3, 1, 128>>(position, random);
  }
}

}  // namespace
}  // namespace minfer
