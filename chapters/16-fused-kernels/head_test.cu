// SPDX-License-Identifier: MIT
//
// The lm_head against the oracle's functions of the same names, on shapes of the real models
// and on shapes that fill no tile, for one token and for several; and what a launch says that it
// moves against the arrays that it has. [exhaustive]: on a full grid of shapes.
#include <cmath>
#include <cstring>
#include <vector>

#include "head.cuh"
#include "kernel_testing.h"
#include "layout_testing.h"
#include "oracle/ops.h"

namespace minfer {
namespace {

/// The definition of the int16 activations.
struct HostInt16 {
  /// @param x  [T, n]
  HostInt16(const std::vector<float>& x, std::uint32_t n) : q(x.size()), d(x.size() / 32) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      float largest = 0;
      for (std::size_t k = i / 32 * 32; k < i / 32 * 32 + 32; ++k)
        largest = max_f32(largest, std::fabs(x[k]));
      d[i / 32] = largest / 32512.0f;
      const float inverse = d[i / 32] > 0 ? 1.0f / d[i / 32] : 0.0f;
      q[i] = round_half_even_to_int(x[i] * inverse, -32512, 32512);
    }
    // To the nearest multiple of 256, of which 128 make the number positive.
    const auto high = [&](std::size_t i) { return (q[i] + 128 * 256 + 128) / 256 - 128; };
    for (std::size_t begin = 0; begin < x.size(); begin += 4) {
      for (std::size_t i = begin; i < begin + 4; ++i) packed.push_back(high(i));
      for (std::size_t i = begin; i < begin + 4; ++i) packed.push_back(q[i] - 256 * high(i));
    }
    packed = rearranged(packed, n, 4);
  }
  std::vector<float> values() const {
    std::vector<float> x(q.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = d[i / 32] * static_cast<float>(q[i]);
    return x;
  }
  std::vector<std::int32_t> sums() const {
    std::vector<std::int32_t> result(q.size() / 32);
    for (std::size_t i = 0; i < q.size(); ++i) result[i / 32] += q[i];
    return result;
  }
  std::vector<int> q;
  std::vector<std::int8_t> packed;
  std::vector<float> d;
};

void check_quantize_int16(const std::vector<float>& x, std::uint32_t n_tokens) {
  const auto n = static_cast<std::uint32_t>(x.size()) / n_tokens;
  INFO("n " << n << ", tokens " << n_tokens);
  const TestStep step(n_tokens);
  const HostInt16 expected(x, n);
  const auto device_x = to_device(x);
  DeviceBuffer<std::int8_t> q(2 * x.size());
  DeviceBuffer<float> d(x.size() / 32);
  DeviceBuffer<std::int32_t> sums(x.size() / 32);
  launch_quantize_int16(step, {q.data(), d.data(), sums.data()}, device_x.data(), n);
  REQUIRE(to_host(step.stream(), q) == expected.packed);
  REQUIRE(to_host(step.stream(), d) == expected.d);
  REQUIRE(to_host(step.stream(), sums) == expected.sums());
  REQUIRE(step.moved() == device_x.bytes() + q.bytes() + d.bytes() + sums.bytes());
}

TEST_CASE("quantize_int16 has the bits of its definition") {
  Random random(14);
  for (const std::uint32_t n : {32u, 96u, 896u, 1056u, 1536u, 2048u}) {
    for (const std::uint32_t n_tokens : kSteps) {
      check_quantize_int16(activations(n_tokens * n, random), n_tokens);
    }
  }
}

TEST_CASE("quantize_int16 clamps what a denormal scale overflows, and hands an infinity on") {
  Random random(16);
  // 1/d overflows; d has one bit besides; d is 0; nothing is out of range; d is infinite, by
  // either.
  for (const float size : {0x1p-114f, 0x1p-133f, 0x1p-140f, 0x1p127f, INFINITY, -INFINITY}) {
    INFO("size " << size);
    std::vector<float> x = random.values(64);
    for (float& value : x) value *= std::isinf(size) ? 1.0f : size;
    x[7] = size;
    x[11] = -size;
    x[13] = 0.0f;
    check_quantize_int16(x, 1);
  }
}

TEST_CASE("quantize_int16 hands a NaN on, to its own 32") {
  Random random(15);
  const TestStep step(1);
  std::vector<float> x = activations(96, random);
  x[45] = NAN;
  const auto device_x = to_device(x);
  DeviceBuffer<std::int8_t> q(192);
  DeviceBuffer<float> d(3);
  DeviceBuffer<std::int32_t> sums(3);
  launch_quantize_int16(step, {q.data(), d.data(), sums.data()}, device_x.data(), 96);
  const std::vector<float> scales = to_host(step.stream(), d);
  CHECK(std::isfinite(scales[0]));
  CHECK(std::isnan(scales[1]));
  CHECK(std::isfinite(scales[2]));
}

TEST_CASE("quantize_int16: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const std::uint32_t n : all_widths(32)) {
      for (const std::uint32_t n_tokens : kSteps) {
        check_quantize_int16(activations(n_tokens * n, random), n_tokens);
      }
    }
  });
}

void check_gemv_q4_0_int16(Shape shape, Random& random) {
  ThreadPool pool(1);
  const TestMatrix w(TensorType::kQ4_0, shape.rows, shape.cols, random);
  const DeviceQ4_0 on_device(w, shape);
  for (const std::uint32_t n_tokens : kBatches) {
    INFO(shape.rows << " x " << shape.cols << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const HostInt16 x(random.values(n_tokens * shape.cols), shape.cols);
    const auto q = to_device(x.packed);
    const auto d = to_device(x.d);
    const auto sums = to_device(x.sums());
    DeviceBuffer<float> y(n_tokens * shape.rows);
    launch_gemv_q4_0_int16(step, y.data(), on_device.matrix, {q.data(), d.data(), sums.data()});
    std::vector<float> expected(y.size());
    const std::vector<float> values = x.values();
    oracle::gemv(w.host, nullptr, values.data(), n_tokens, expected.data(), pool);
    require_sums_close(to_host(step.stream(), y), expected, magnitudes(w.host, values), 5e-7);
    REQUIRE(step.moved() == w.bytes.size() + q.bytes() + d.bytes() + sums.bytes() + y.bytes());
    require_same_bits_alone(
        to_host(step.stream(), y), n_tokens, [&](const Step& s, float* row, std::uint32_t t) {
          const std::uint32_t run = t * (shape.cols / 32);
          launch_gemv_q4_0_int16(
              s, row, on_device.matrix,
              {q.data() + t * 2 * shape.cols, d.data() + run, sums.data() + run});
        });
  }
}

TEST_CASE("gemv_q4_0_int16 is the oracle's gemv of the quantized activations") {
  Random random(19);
  for (const Shape shape : kShapes) check_gemv_q4_0_int16(shape, random);
}

TEST_CASE("gemv_q4_0_int16: every shape", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const Shape shape : all_shapes()) check_gemv_q4_0_int16(shape, random);
  });
}

void check_gemv_q8_0(Shape shape, Random& random) {
  ThreadPool pool(1);
  const TestMatrix w(TensorType::kQ8_0, shape.rows, shape.cols, random);
  std::vector<std::int8_t> quants;
  std::vector<std::uint16_t> scales;
  for (std::size_t i = 0; i < w.bytes.size(); i += sizeof(BlockQ8_0)) {
    BlockQ8_0 block;
    std::memcpy(&block, &w.bytes[i], sizeof block);
    quants.insert(quants.end(), block.qs, block.qs + 32);
    scales.push_back(block.d);
  }
  const auto w_q = to_device(rearranged(quants, shape.cols, 2));
  const auto w_d = to_device(scales);
  for (const std::uint32_t n_tokens : kBatches) {
    INFO(shape.rows << " x " << shape.cols << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const HostInt16 x(random.values(n_tokens * shape.cols), shape.cols);
    const auto q = to_device(x.packed);
    const auto d = to_device(x.d);
    DeviceBuffer<float> y(n_tokens * shape.rows);
    launch_gemv_q8_0(step, y.data(), {shape.rows, shape.cols, w_q.data(), w_d.data()},
                     {q.data(), d.data(), nullptr});
    std::vector<float> expected(y.size());
    const std::vector<float> values = x.values();
    oracle::gemv(w.host, nullptr, values.data(), n_tokens, expected.data(), pool);
    require_sums_close(to_host(step.stream(), y), expected, magnitudes(w.host, values), 5e-7);
    REQUIRE(step.moved() == w_q.bytes() + w_d.bytes() + q.bytes() + d.bytes() + y.bytes());
    require_same_bits_alone(
        to_host(step.stream(), y), n_tokens, [&](const Step& s, float* row, std::uint32_t t) {
          launch_gemv_q8_0(
              s, row, {shape.rows, shape.cols, w_q.data(), w_d.data()},
              {q.data() + t * 2 * shape.cols, d.data() + t * (shape.cols / 32), nullptr});
        });
  }
}

TEST_CASE("gemv_q8_0 is the oracle's gemv of the quantized activations") {
  Random random(11);
  for (const Shape shape : kShapes) check_gemv_q8_0(shape, random);
}

TEST_CASE("gemv_q8_0: the largest sum of a block is an int32") {
  const TestStep step(1);
  const auto w_q = to_device(std::vector<std::int8_t>(32, -128));
  const auto w_d = to_device(std::vector<std::uint16_t>(1, 0x3c00));  // 1
  const HostInt16 x(std::vector<float>(32, 32512.0f), 32);
  const auto q = to_device(x.packed);
  const auto d = to_device(x.d);
  DeviceBuffer<float> y(1);
  launch_gemv_q8_0(step, y.data(), {1, 32, w_q.data(), w_d.data()}, {q.data(), d.data(), nullptr});
  REQUIRE(to_host(step.stream(), y).at(0) == -32.0f * 128 * 32512);
}

TEST_CASE("gemv_q8_0: every shape", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const Shape shape : all_shapes()) check_gemv_q8_0(shape, random);
  });
}

}  // namespace
}  // namespace minfer
