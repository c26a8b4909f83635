// SPDX-License-Identifier: MIT
//
// The kernels that read quantized weights against the oracle's functions of the same names, on
// shapes of the real models and on shapes that fill no tile, for one token and for several; and
// what a launch says that it moves against the arrays that it has. [exhaustive]: on a full grid of
// shapes.
#include <cmath>
#include <vector>

#include "gemv.cuh"
#include "kernel_testing.h"
#include "layout_testing.h"
#include "oracle/ops.h"

namespace minfer {
namespace {

void check_embed(TensorType type, std::uint32_t n, Random& random) {
  const std::uint32_t d_model = whole_blocks(type, n);
  const TestMatrix table(type, 5, d_model, random);
  for (const std::vector<Token>& ids : {std::vector<Token>{3}, std::vector<Token>{4, 0, 4}}) {
    INFO(type_name(type) << ", d_model " << d_model << ", tokens " << ids.size());
    const TestStep step(ids.size(), 2, ids);
    DeviceBuffer<float> x(ids.size() * d_model);
    launch_embed(step, x.data(), table.device);
    std::vector<float> expected(x.size());
    oracle::embed(table.host, ids, expected.data());
    REQUIRE(to_host(step.stream(), x) == expected);
    REQUIRE(step.moved() == ids.size() * table.bytes.size() / 5 + x.bytes());
  }
}

TEST_CASE("embed has the bits of the host's dequantization") {
  Random random(1);
  for (const TensorType type : kTypes) {
    for (const std::uint32_t n : {32u, 896u, 1568u}) check_embed(type, n, random);
  }
}

TEST_CASE("embed: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const TensorType type : kTypes) {
      for (const std::uint32_t n : all_widths(block_shape(type).elements)) {
        check_embed(type, n, random);
      }
    }
  });
}

void check_gemv(TensorType type, Shape shape, Random& random) {
  ThreadPool pool(1);
  const std::uint32_t cols = whole_blocks(type, shape.cols);
  const TestMatrix w(type, shape.rows, cols, random);
  for (const std::uint32_t n_tokens : kSteps) {
    INFO(type_name(type) << " " << shape.rows << " x " << cols << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const std::vector<float> x = random.values(n_tokens * cols);
    const auto device_x = to_device(x);
    DeviceBuffer<float> y(n_tokens * shape.rows);
    launch_gemv(step, y.data(), w.device, device_x.data());
    std::vector<float> expected(y.size());
    oracle::gemv(w.host, nullptr, x.data(), n_tokens, expected.data(), pool);
    require_sums_close(to_host(step.stream(), y), expected, magnitudes(w.host, x), 5e-7);
    REQUIRE(step.moved() == w.bytes.size() + device_x.bytes() + y.bytes());
  }
}

TEST_CASE("gemv") {
  Random random(3);
  for (const TensorType type : kTypes) {
    for (const Shape shape : kShapes) check_gemv(type, shape, random);
  }
}

TEST_CASE("gemv: every shape", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const TensorType type : kTypes) {
      for (const Shape shape : all_shapes()) check_gemv(type, shape, random);
    }
  });
}

template <std::uint32_t kUnits>
void check_interleaved(std::uint32_t n) {
  const std::vector<std::uint32_t> order = interleaved_units(n, kUnits);
  REQUIRE(order.size() == n / 32 * kUnits);
  for (std::uint32_t place = 0; place < order.size(); ++place) {
    REQUIRE(interleaved<kUnits>(order[place] / kUnits, order[place] % kUnits, n / 32) == place);
  }
}

TEST_CASE("interleaved is the place in the order in which a warp reads") {
  for (const std::uint32_t n : {32u, 896u, 1024u, 1056u, 1536u, 2048u}) {
    check_interleaved<2>(n);
    check_interleaved<4>(n);
  }
}

/// The sum of each 32.
std::vector<std::int32_t> sums_of_runs(const std::vector<std::int8_t>& q) {
  std::vector<std::int32_t> sums(q.size() / 32);
  for (std::size_t i = 0; i < q.size(); ++i) sums[i / 32] += q[i];
  return sums;
}

void check_quantize(std::uint32_t n, Random& random) {
  for (const std::uint32_t n_tokens : kSteps) {
    INFO("n " << n << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const std::vector<float> x = activations(n_tokens * n, random);
    const HostQuantized expected(x);
    const auto device_x = to_device(x);
    DeviceBuffer<std::int8_t> q(n_tokens * n);
    DeviceBuffer<float> d(n_tokens * n / 32);
    DeviceBuffer<std::int32_t> sums(d.size());
    launch_quantize(step, {q.data(), d.data(), sums.data()}, device_x.data(), n);
    REQUIRE(to_host(step.stream(), q) == rearranged(expected.q, n, 2));
    REQUIRE(to_host(step.stream(), d) == expected.d);
    REQUIRE(to_host(step.stream(), sums) == sums_of_runs(expected.q));
    REQUIRE(step.moved() == device_x.bytes() + q.bytes() + d.bytes() + sums.bytes());
  }
}

TEST_CASE("quantize has the bits of its definition") {
  Random random(9);
  for (const std::uint32_t n : {32u, 96u, 896u, 1056u, 1536u, 8960u}) check_quantize(n, random);
}

TEST_CASE("quantize hands a NaN on, to its own 32") {
  Random random(10);
  for (const std::uint32_t at : {32u, 45u, 63u}) {
    const TestStep step(1);
    std::vector<float> x = activations(96, random);
    x[at] = NAN;
    const auto device_x = to_device(x);
    DeviceBuffer<std::int8_t> q(96);
    DeviceBuffer<float> d(3);
    DeviceBuffer<std::int32_t> sums(3);
    launch_quantize(step, {q.data(), d.data(), sums.data()}, device_x.data(), 96);
    const std::vector<float> scales = to_host(step.stream(), d);
    CHECK(std::isfinite(scales[0]));
    CHECK(std::isnan(scales[1]));
    CHECK(std::isfinite(scales[2]));
  }
}

TEST_CASE("quantize: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const std::uint32_t n : all_widths(32)) check_quantize(n, random);
  });
}

void check_gemv_q4_0(Shape shape, Random& random) {
  ThreadPool pool(1);
  const TestMatrix w(TensorType::kQ4_0, shape.rows, shape.cols, random);
  const DeviceQ4_0 on_device(w, shape);
  for (const std::uint32_t n_tokens : kBatches) {
    INFO(shape.rows << " x " << shape.cols << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const HostQuantized x(random.values(n_tokens * shape.cols));
    const auto q = to_device(rearranged(x.q, shape.cols, 2));
    const auto d = to_device(x.d);
    const auto sums = to_device(sums_of_runs(x.q));
    DeviceBuffer<float> y(n_tokens * shape.rows);
    launch_gemv_q4_0(step, y.data(), on_device.matrix, {q.data(), d.data(), sums.data()});
    std::vector<float> expected(y.size());
    const std::vector<float> values = x.values();
    oracle::gemv(w.host, nullptr, values.data(), n_tokens, expected.data(), pool);
    require_sums_close(to_host(step.stream(), y), expected, magnitudes(w.host, values), 5e-7);
    REQUIRE(step.moved() == w.bytes.size() + q.bytes() + d.bytes() + sums.bytes() + y.bytes());
    require_same_bits_alone(
        to_host(step.stream(), y), n_tokens, [&](const Step& s, float* row, std::uint32_t t) {
          const std::uint32_t run = t * (shape.cols / 32);
          launch_gemv_q4_0(s, row, on_device.matrix,
                           {q.data() + t * shape.cols, d.data() + run, sums.data() + run});
        });
  }
}

TEST_CASE("gemv_q4_0 is the oracle's gemv of the quantized activations") {
  Random random(10);
  for (const Shape shape : kShapes) check_gemv_q4_0(shape, random);
}

TEST_CASE("gemv_q4_0: every shape", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const Shape shape : all_shapes()) check_gemv_q4_0(shape, random);
  });
}

}  // namespace
}  // namespace minfer
