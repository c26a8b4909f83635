// SPDX-License-Identifier: MIT
//
// The layer's kernels against the operations that they fuse, bit for bit: the norm, whose own test
// is kernels_test.cu, the host's quantization, its products in the order of a warp, and the
// oracle's bias, rope, swiglu and add. Each token is expected to have what it has alone; and what a
// launch says that it moves is what its arrays have. [exhaustive]: on a full grid of shapes.
#include <cmath>
#include <vector>

#include <minfer/rope.h>

#include "fused.cuh"
#include "kernel_testing.h"
#include "kernels.cuh"
#include "layout_testing.h"
#include "oracle/ops.h"

namespace minfer {
namespace {

constexpr float kEps = 1e-6f;
constexpr std::uint32_t kWidths[] = {32, 96, 896, 1024, 1056, 1536, 2048};  ///< d_model

TEST_CASE("the host's products in the order of a warp are the oracle's gemv") {
  Random random(20);
  ThreadPool pool(1);
  for (const Shape shape : kShapes) {
    const TestMatrix w(TensorType::kQ4_0, shape.rows, shape.cols, random);
    const HostQuantized x(random.values(2 * shape.cols));
    const std::vector<float> values = x.values();
    std::vector<float> expected(2 * shape.rows);
    oracle::gemv(w.host, nullptr, values.data(), 2, expected.data(), pool);
    require_sums_close(warp_gemv(w, x), expected, magnitudes(w.host, values), 5e-7);
  }
}

/// kCount values a lane, added up by warp_sums and one by one.
template <std::uint32_t kCount>
__global__ void sums_both_ways(float* at_once,       ///< out [32]
                               float* one_by_one,    ///< out [32]: what each lane should have
                               const float* values)  ///< [kCount, 32]
{
  const std::uint32_t lane = threadIdx.x;
  float of_lane[kCount];
  for (std::uint32_t i = 0; i < kCount; ++i) {
    of_lane[i] = values[i * 32 + lane];
    const float sum = warp_sum(of_lane[i]);
    if (lane / (32 / kCount) == i) one_by_one[lane] = sum;
  }
  at_once[lane] = warp_sums(of_lane);
}

TEST_CASE("warp_sums has the bits of warp_sum") {
  Random random(21);
  const TestStep step(1);
  DeviceBuffer<float> at_once(32), one_by_one(32);
  for (const std::uint32_t n : {1u, 2u, 4u, 8u, 16u, 32u}) {
    with_constant<1, 2, 4, 8, 16, 32>(n, [&](auto count) {
      INFO(count << " values");
      std::vector<float> terms = random.values(32 * count);
      for (float& term : terms) term *= random.value();  // so that another order has other bits
      const auto values = to_device(terms);
      launch(sums_both_ways<count>, 1, 32, 0, step.stream(), at_once.data(), one_by_one.data(),
             values.data());
      REQUIRE(to_host(step.stream(), at_once) == to_host(step.stream(), one_by_one));
    });
  }
}

/// rmsnorm by the kernel that does nothing else.
std::vector<float> normed(const std::vector<float>& x, const std::vector<float>& w) {
  const auto n = static_cast<std::uint32_t>(w.size()), n_tokens = std::uint32_t(x.size() / n);
  const TestStep step(n_tokens);
  const auto device_x = to_device(x), device_w = to_device(w);
  DeviceBuffer<float> y(x.size());
  launch_rmsnorm(step, y.data(), device_x.data(), device_w.data(), n, kEps);
  std::vector<float> expected(x.size());
  oracle::rmsnorm(x.data(), w.data(), kEps, n_tokens, n, expected.data());
  require_close(to_host(step.stream(), y), expected, 1e-6f);
  return to_host(step.stream(), y);
}

/// normed_and_quantized, and out of shared memory.
template <std::uint32_t kTokens, std::uint32_t kSteps>
__global__ void __launch_bounds__(kFusedThreads)
    norm_alone(QuantizedVector y,  ///< out [kTokens, n]
               const float* x,     ///< [kTokens, n]
               const float* norm,  ///< [n]
               std::uint32_t n) {
  float4 norm_of_thread[kSteps];
  load_norm(norm_of_thread, norm, n);
  const QuantizedVector found = normed_and_quantized<kTokens>(x, norm_of_thread, n, kEps);
  for (std::uint32_t i = threadIdx.x; i < kTokens * n; i += kFusedThreads) {
    y.q[i] = found.q[i];
    if (i % 32 != 0) continue;
    y.d[i / 32] = found.d[i / 32];
    y.sums[i / 32] = found.sums[i / 32];
  }
}

void launch_norm_alone(const TestStep& step, std::uint32_t n_tokens, DeviceQuantized& y,
                       const std::vector<float>& x, const std::vector<float>& norm) {
  const auto device_x = to_device(x), device_norm = to_device(norm);
  const auto n = static_cast<std::uint32_t>(norm.size());
  with_constant<1, 2, 3, 4, 5, 6, 7, 8>(n_tokens, [&](auto tokens) {
    with_steps(n, [&](auto steps) {
      launch(norm_alone<tokens, steps>, 1, kFusedThreads, 0, step.stream(), y.vector(),
             device_x.data(), device_norm.data(), n);
    });
  });
  CUDA_CHECK(cudaDeviceSynchronize());
}

void check_normed_and_quantized(std::uint32_t n, Random& random) {
  for (std::uint32_t n_tokens = 1; n_tokens <= kMaxTokens; ++n_tokens) {
    INFO("n " << n << ", tokens " << n_tokens);
    const std::vector<float> x = activations(n_tokens * n, random), norm = random.values(n);
    const TestStep step(n_tokens);
    DeviceQuantized y(x.size());
    launch_norm_alone(step, n_tokens, y, x, norm);
    require_quantized(step.stream(), y, normed(x, norm), n);
  }
}

TEST_CASE("normed_and_quantized has the bits of rmsnorm, quantized") {
  Random random(22);
  for (const std::uint32_t n : kWidths) check_normed_and_quantized(n, random);
}

TEST_CASE("normed_and_quantized: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (std::uint32_t n = 32; n <= 2048; n += 32) check_normed_and_quantized(n, random);
  });
}

TEST_CASE("normed_and_quantized hands a NaN on: a weight's to its 32, a value's to its token") {
  Random random(23);
  const TestStep step(2);
  std::vector<float> x = random.values(2 * 96), norm = random.values(96);
  DeviceQuantized y(x.size());
  const auto nans = [&] {
    launch_norm_alone(step, 2, y, x, norm);
    std::vector<bool> found;
    for (const float scale : to_host(step.stream(), y.d)) found.push_back(std::isnan(scale));
    return found;
  };
  for (const std::uint32_t at : {32u, 45u, 63u}) {
    norm[at] = NAN;
    REQUIRE(nans() == std::vector<bool>{false, true, false, false, true, false});
    norm[at] = 1;
  }
  x[96 + 95] = NAN;
  REQUIRE(nans() == std::vector<bool>{false, false, false, true, true, true});
}

constexpr std::uint32_t kPosition = 3, kContext = 12;

/// W x + b, rotated where there is a table.
std::vector<float> projected(const TestMatrix& w, const float* bias, const HostQuantized& x,
                             const RopeTable* table, std::uint32_t head_dim) {
  std::vector<float> y = warp_gemv(w, x);
  const std::size_t n_tokens = y.size() / w.host.rows;
  for (std::size_t t = 0; t < n_tokens; ++t) {
    oracle::add(&y[t * w.host.rows], bias, w.host.rows);
  }
  if (table) oracle::rope(y.data(), *table, kPosition, n_tokens, w.host.rows / head_dim);
  return y;
}

void check_qkv(const AttentionShape& shape, std::uint32_t d_model, Random& random) {
  const std::uint32_t d_q = shape.d_q(), d_kv = shape.d_kv(), head_dim = shape.head_dim;
  const TestMatrix w_q(TensorType::kQ4_0, d_q, d_model, random);
  const TestMatrix w_k(TensorType::kQ4_0, d_kv, d_model, random);
  const TestMatrix w_v(TensorType::kQ4_0, d_kv, d_model, random);
  const UploadedQ4_0 w({w_q.host, w_k.host, w_v.host},
                       [&](auto place) { return qkv_row(place, head_dim); });
  const std::vector<float> bias = random.values(d_q + 2 * d_kv), norm = random.values(d_model);
  const RopeTable table(head_dim, 1e6, kContext);
  const auto cosines = to_device(table.cos_table()), sines = to_device(table.sin_table());
  const auto device_bias = to_device(bias), device_norm = to_device(norm);
  for (const std::uint32_t n_tokens : kBatches) {
    const std::vector<float> x = activations(n_tokens * d_model, random);
    const HostQuantized y(normed(x, norm));
    const std::vector<float> q_expected = projected(w_q, &bias[0], y, &table, head_dim);
    const std::vector<float> k_expected = projected(w_k, &bias[d_q], y, &table, head_dim);
    const std::vector<float> v_expected = projected(w_v, &bias[d_q + d_kv], y, nullptr, head_dim);
    const auto device_x = to_device(x);
    for (const bool at_position : {true, false}) {
      INFO(shape.n_heads << "/" << shape.n_kv_heads << " heads of " << head_dim << ", d_model "
                         << d_model << ", tokens " << n_tokens << ", at_position " << at_position);
      const TestStep step(n_tokens, kPosition);
      const std::vector<float> k_before = random.values(kContext * d_kv);
      const std::vector<float> v_before = random.values(kContext * d_kv);
      auto k = to_device(k_before), v = to_device(v_before);
      DeviceBuffer<float> q(n_tokens * d_q);
      launch_qkv(step, q.data(), {k.data(), v.data(), d_kv, at_position}, w.matrix,
                 device_bias.data(), device_x.data(), device_norm.data(), cosines.data(),
                 sines.data(), shape, kEps);
      const std::size_t from = at_position ? kPosition * d_kv : 0;
      REQUIRE(to_host(step.stream(), q) == q_expected);
      REQUIRE(to_host(step.stream(), k) == overwritten(k_before, from, k_expected));
      REQUIRE(to_host(step.stream(), v) == overwritten(v_before, from, v_expected));
      REQUIRE(step.moved() == w_q.bytes.size() + w_k.bytes.size() + w_v.bytes.size() +
                                  device_bias.bytes() + device_norm.bytes() + device_x.bytes() +
                                  q.bytes() + 2 * n_tokens * 4 * d_kv + n_tokens * 4 * head_dim);
    }
  }
}

TEST_CASE("qkv has the bits of rmsnorm, quantize, gemv, bias and rope") {
  Random random(24);
  check_qkv({7, 1, 64}, 896, random);    // of the 0.5B
  check_qkv({2, 1, 128}, 1536, random);  // of the 1.5B
  check_qkv({2, 1, 128}, 2048, random);  // of the 3B
  check_qkv({1, 1, 32}, 32, random);
  check_qkv({3, 3, 32}, 96, random);
  check_qkv({2, 2, 64}, 1056, random);
}

TEST_CASE("qkv: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (std::uint32_t d_model = 32; d_model <= 2048; d_model += 32) {
      for (const std::uint32_t head_dim : {32u, 64u, 128u}) {
        check_qkv({random.bits() % 3 + 1, 1, head_dim}, d_model, random);
      }
    }
  });
}

void check_gate_up(std::uint32_t d_ff, std::uint32_t d_model, Random& random) {
  const TestMatrix w_gate(TensorType::kQ4_0, d_ff, d_model, random);
  const TestMatrix w_up(TensorType::kQ4_0, d_ff, d_model, random);
  const UploadedQ4_0 w({w_gate.host, w_up.host},
                       [&](auto place) { return gate_up_row(place, d_ff); });
  const std::vector<float> norm = random.values(d_model);
  const auto device_norm = to_device(norm);
  for (const std::uint32_t n_tokens : kBatches) {
    INFO("d_ff " << d_ff << ", d_model " << d_model << ", tokens " << n_tokens);
    const std::vector<float> x = activations(n_tokens * d_model, random);
    const HostQuantized of_norm(normed(x, norm));
    const std::vector<float> gate = warp_gemv(w_gate, of_norm), up = warp_gemv(w_up, of_norm);
    std::vector<float> expected(gate.size());
    oracle::swiglu(gate.data(), up.data(), gate.size(), expected.data());
    const TestStep step(n_tokens);
    const auto device_x = to_device(x);
    DeviceQuantized y(expected.size());
    launch_gate_up(step, y.vector(), w.matrix, device_x.data(), device_norm.data(), kEps);
    require_quantized(step.stream(), y, expected, d_ff);
    REQUIRE(step.moved() == w_gate.bytes.size() + w_up.bytes.size() + device_norm.bytes() +
                                device_x.bytes() + y.bytes());
  }
}

TEST_CASE("gate_up has the bits of rmsnorm, quantize, gemv, swiglu and quantize") {
  Random random(25);
  for (const std::uint32_t d_model : kWidths) check_gate_up(96, d_model, random);
  check_gate_up(32, 96, random);
  check_gate_up(1056, 32, random);  // y in more than 32 runs
}

TEST_CASE("gate_up: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (std::uint32_t n = 32; n <= 2048; n += 32) {
      check_gate_up(32, n, random);
      check_gate_up(n, 32, random);
    }
  });
}

void check_add_gemv(Shape shape, Random& random) {
  const TestMatrix w(TensorType::kQ4_0, shape.rows, shape.cols, random);
  const DeviceQ4_0 on_device(w, shape);
  for (const std::uint32_t n_tokens : kBatches) {
    INFO(shape.rows << " x " << shape.cols << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const HostQuantized x(activations(n_tokens * shape.cols, random));
    DeviceQuantized device_x(x, shape.cols);
    std::vector<float> expected = random.values(n_tokens * shape.rows);
    auto y = to_device(expected);
    launch_add_gemv(step, y.data(), on_device.matrix, device_x.vector());
    oracle::add(expected.data(), warp_gemv(w, x).data(), expected.size());
    REQUIRE(to_host(step.stream(), y) == expected);
    REQUIRE(step.moved() == w.bytes.size() + device_x.bytes() + 2 * y.bytes());
  }
}

TEST_CASE("add_gemv has the bits of gemv and add") {
  Random random(26);
  for (const Shape shape : kShapes) check_add_gemv(shape, random);
  check_add_gemv({9, 2048}, random);
  check_add_gemv({3, 11008}, random);  // of the 3B
  check_add_gemv({3, 12320}, random);  // more than a lane keeps
}

TEST_CASE("add_gemv: every shape", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const Shape shape : all_shapes()) check_add_gemv(shape, random);
  });
}

TEST_CASE("a token that has a NaN is NaN all over, and no other is") {
  Random random(27);
  constexpr std::uint32_t kWidth = 64, kTokens = 3;
  const AttentionShape shape = {2, 1, 32};  // d_q + 2 d_kv = 2 d_ff = 128
  const TestMatrix w(TensorType::kQ4_0, 128, kWidth, random);
  const DeviceQ4_0 on_device(w, {128, kWidth});
  std::vector<float> x = random.values(kTokens * kWidth);
  x[kWidth + 17] = NAN;
  const auto device_x = to_device(x), ones = to_device(std::vector<float>(kContext * 128, 1.0f));
  const auto require_second = [&](const std::vector<float>& y) {
    for (std::size_t i = 0; i < y.size(); ++i) {
      REQUIRE(std::isnan(y[i]) == (i / (y.size() / kTokens) == 1));
    }
  };
  const TestStep step(kTokens);
  DeviceBuffer<float> q(kTokens * 64), k(kTokens * 32), v(kTokens * 32);
  launch_qkv(step, q.data(), {k.data(), v.data(), 32, false}, on_device.matrix, ones.data(),
             device_x.data(), ones.data(), ones.data(), ones.data(), shape, kEps);
  require_second(to_host(step.stream(), q));
  require_second(to_host(step.stream(), k));
  require_second(to_host(step.stream(), v));

  DeviceQuantized y(kTokens * 64);
  launch_gate_up(step, y.vector(), on_device.matrix, device_x.data(), ones.data(), kEps);
  require_second(to_host(step.stream(), y.d));

  auto sum = to_device(std::vector<float>(kTokens * 128, 1.0f));
  launch_add_gemv(step, sum.data(), on_device.matrix, y.vector());
  require_second(to_host(step.stream(), sum));
}

TEST_CASE("a d_model that no block keeps is refused") {
  const TestStep step(1);
  const MatrixQ4_0 w = {64, 2080, nullptr, nullptr};
  const std::string message = "d_model: 2080, and a block keeps 2048";
  CHECK_THROWS_WITH(launch_qkv(step, nullptr, {}, w, nullptr, nullptr, nullptr, nullptr, nullptr,
                               {2, 1, 16}, kEps),
                    message);
  CHECK_THROWS_WITH(launch_gate_up(step, {}, w, nullptr, nullptr, kEps), message);
}

}  // namespace
}  // namespace minfer
