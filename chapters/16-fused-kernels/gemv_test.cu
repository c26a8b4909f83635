// SPDX-License-Identifier: MIT
//
// The kernels that read weights as they are in the file against the oracle's functions of the same
// names, on shapes of the real models and on shapes that fill no tile, for one token and for
// several; what a launch says that it moves against the arrays that it has; and how matrices and
// activations are quantized and laid out. [exhaustive]: on a full grid of shapes.
#include <algorithm>
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

/// quantize, with a warp a run.
__global__ void quantize_alone(QuantizedVector y,  ///< out [T, n]
                               const float* x,     ///< [T, n]
                               std::uint32_t n) {
  const std::uint32_t i = blockIdx.x * 32 + threadIdx.x, t = blockIdx.y;
  quantize(y, t, n, i, x[t * n + i]);
}

void check_quantize(std::uint32_t n, Random& random) {
  for (const std::uint32_t n_tokens : kSteps) {
    INFO("n " << n << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const std::vector<float> x = activations(n_tokens * n, random);
    const auto device_x = to_device(x);
    DeviceQuantized y(x.size());
    launch(quantize_alone, {n / 32, n_tokens}, 32, 0, step.stream(), y.vector(), device_x.data(),
           n);
    require_quantized(step.stream(), y, x, n);
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
    DeviceQuantized y(96);
    launch(quantize_alone, 3, 32, 0, step.stream(), y.vector(), device_x.data(), 96);
    const std::vector<float> scales = to_host(step.stream(), y.d);
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

TEST_CASE("upload_q4_0 requantizes, and puts rows where they are asked for") {
  Random random(12);
  constexpr std::uint32_t kCols = 1056, kRows = 7;
  const TestMatrix first(TensorType::kQ8_0, 4, kCols, random);
  const TestMatrix second(TensorType::kQ4_0, 3, kCols, random);
  const UploadedQ4_0 uploaded({first.host, second.host}, [](auto place) { return 6 - place; });
  REQUIRE(uploaded.matrix.rows == kRows);
  REQUIRE(uploaded.matrix.cols == kCols);

  ThreadPool pool(1);
  std::vector<std::byte> bytes = requantized(first.host, TensorType::kQ4_0, pool);
  bytes.insert(bytes.end(), second.bytes.begin(), second.bytes.end());
  std::vector<std::byte> found;
  for (std::uint32_t row = kRows; row-- > 0;) {
    for (std::uint32_t b = row * (kCols / 32); b < (row + 1) * (kCols / 32); ++b) {
      BlockQ4_0 block;
      CUDA_CHECK(cudaMemcpy(block.qs, uploaded.matrix.q + b, 16, cudaMemcpyDeviceToHost));
      CUDA_CHECK(cudaMemcpy(&block.d, uploaded.matrix.d + b, 2, cudaMemcpyDeviceToHost));
      const auto* block_bytes = reinterpret_cast<const std::byte*>(&block);
      found.insert(found.end(), block_bytes, block_bytes + sizeof block);
    }
  }
  REQUIRE(found == bytes);
}

TEST_CASE("qkv_row lets a block make four values of a head and those that they turn with") {
  for (const std::uint32_t head_dim : {32u, 64u, 128u}) {
    std::vector<std::uint32_t> rows;
    for (std::uint32_t first = 0; first < 5 * head_dim; first += head_dim) {
      for (std::uint32_t i = 0; i < head_dim / 2; i += 4) {
        for (std::uint32_t k = i; k < i + 4; ++k) rows.push_back(first + k);
        for (std::uint32_t k = i; k < i + 4; ++k) rows.push_back(first + k + head_dim / 2);
      }
    }
    for (std::uint32_t place = 0; place < rows.size(); ++place) {
      REQUIRE(qkv_row(place, head_dim) == rows[place]);
    }
    std::sort(rows.begin(), rows.end());  // each is there once
    for (std::uint32_t row = 0; row < 5 * head_dim; ++row) REQUIRE(rows.at(row) == row);
  }
}

TEST_CASE("gate_up_row takes W_gate and W_up in turns") {
  for (std::uint32_t i = 0; i < 96; ++i) {
    REQUIRE(gate_up_row(2 * i, 96) == i);
    REQUIRE(gate_up_row(2 * i + 1, 96) == 96 + i);
  }
}

}  // namespace
}  // namespace minfer
