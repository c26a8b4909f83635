// SPDX-License-Identifier: MIT
//
// The kernels that read quantized weights against the oracle's functions of the same names, on
// shapes of the real models and on shapes that fill no tile, for one token and for several; and
// what a launch says that it moves against the arrays that it has. [exhaustive]: on a full grid of
// shapes.
#include <vector>

#include "gemv.cuh"
#include "kernel_testing.h"
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

}  // namespace
}  // namespace minfer
