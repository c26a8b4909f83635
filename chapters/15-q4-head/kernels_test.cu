// SPDX-License-Identifier: MIT
//
// Every kernel against the oracle's function of the same name, on shapes of the real models and on
// shapes that fill no tile, for one token and for several; and what its launch says that it moves
// against the arrays that it has. [exhaustive]: on a full grid of shapes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include <minfer/rope.h>

#include "kernel_testing.h"
#include "kernels.cuh"
#include "oracle/ops.h"

namespace minfer {
namespace {

constexpr std::uint32_t kSteps[] = {1, 3};       ///< tokens
constexpr std::uint32_t kBatches[] = {1, 3, 8};  ///< tokens, of what takes them all at once

/// Row t of y, [T, n], is what `launch_row(t)` leaves in a row of its own.
template <class LaunchRow>
void require_same_bits_alone(const std::vector<float>& y, std::uint32_t n_tokens,
                             LaunchRow launch_row) {
  const std::size_t n = y.size() / n_tokens;
  for (std::uint32_t t = 0; t < n_tokens; ++t) {
    const TestStep step(1);
    DeviceBuffer<float> alone(n);
    launch_row(step, alone.data(), t);
    REQUIRE(to_host(step.stream(), alone) ==
            std::vector<float>(y.begin() + t * n, y.begin() + (t + 1) * n));
  }
}

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

void check_rmsnorm(std::uint32_t n, Random& random) {
  for (const std::uint32_t n_tokens : kSteps) {
    INFO("n " << n << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const std::vector<float> x = random.values(n_tokens * n), w = random.values(n);
    const auto device_x = to_device(x), device_w = to_device(w);
    DeviceBuffer<float> y(n_tokens * n);
    launch_rmsnorm(step, y.data(), device_x.data(), device_w.data(), n, 1e-6f);
    std::vector<float> expected(y.size());
    oracle::rmsnorm(x.data(), w.data(), 1e-6f, n_tokens, n, expected.data());
    require_close(to_host(step.stream(), y), expected, 1e-6f);
    REQUIRE(step.moved() == device_x.bytes() + device_w.bytes() + y.bytes());
  }
}

TEST_CASE("rmsnorm") {
  Random random(2);
  for (const std::uint32_t n : {32u, 96u, 896u, 1536u, 2080u}) check_rmsnorm(n, random);
}

TEST_CASE("rmsnorm: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const std::uint32_t n : all_widths(1)) check_rmsnorm(n, random);
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

constexpr Shape kShapes[] = {{1, 32}, {5, 96}, {131, 896}, {6, 1536}, {3, 4864}, {2, 8960}};

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

/// The units of a row of n values, 16 bytes each and so many a block, in the order in which a warp
/// reads them.
std::vector<std::uint32_t> interleaved_units(std::uint32_t n, std::uint32_t units) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t first = 0; first < n / 32; first += 32) {
    for (std::uint32_t i = 0; i < units; ++i) {
      for (std::uint32_t b = first; b < std::min(first + 32, n / 32); ++b) {
        order.push_back(b * units + i);
      }
    }
  }
  return order;
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

/// Rows of n values with their units in that order.
std::vector<std::int8_t> rearranged(const std::vector<std::int8_t>& bytes, std::uint32_t n,
                                    std::uint32_t units) {
  std::vector<std::int8_t> result;
  const std::vector<std::uint32_t> order = interleaved_units(n, units);
  for (auto row = bytes.begin(); row != bytes.end(); row += 16 * order.size()) {
    for (const std::uint32_t unit : order) {
      result.insert(result.end(), row + 16 * unit, row + 16 * unit + 16);
    }
  }
  return result;
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

/// A matrix of Q4_0 blocks as upload_q4_0 lays it out.
struct DeviceQ4_0 {
  DeviceQ4_0(const TestMatrix& from, Shape shape) {
    std::vector<uint4> nibbles;
    std::vector<std::uint16_t> scales;
    for (std::size_t i = 0; i < from.bytes.size(); i += sizeof(BlockQ4_0)) {
      BlockQ4_0 block;
      std::memcpy(&block, &from.bytes[i], sizeof block);
      nibbles.emplace_back();
      std::memcpy(&nibbles.back(), block.qs, 16);
      scales.push_back(block.d);
    }
    q = to_device(nibbles);
    d = to_device(scales);
    matrix = {shape.rows, shape.cols, q.data(), d.data()};
  }
  DeviceBuffer<uint4> q;
  DeviceBuffer<std::uint16_t> d;
  MatrixQ4_0 matrix;
};

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

void check_add_and_swiglu(std::uint32_t n, Random& random) {
  for (const std::uint32_t n_tokens : kSteps) {
    INFO("n " << n << ", tokens " << n_tokens);
    const TestStep step(n_tokens);
    const std::vector<float> a = random.values(n_tokens * n), b = random.values(n_tokens * n);
    const auto device_b = to_device(b);

    auto sum = to_device(a);
    launch_add(step, sum.data(), device_b.data(), n);
    std::vector<float> expected = a;
    oracle::add(expected.data(), b.data(), a.size());
    REQUIRE(to_host(step.stream(), sum) == expected);
    REQUIRE(step.moved() == 2 * sum.bytes() + device_b.bytes());

    launch_add_bias(step, sum.data(), device_b.data(), n);
    for (std::uint32_t t = 0; t < n_tokens; ++t) {
      oracle::add(expected.data() + t * n, b.data(), n);
    }
    REQUIRE(to_host(step.stream(), sum) == expected);
    REQUIRE(step.moved() == 4 * sum.bytes() + device_b.bytes() + 4 * n);

    auto gate = to_device(a);
    launch_swiglu(step, gate.data(), device_b.data(), n);
    oracle::swiglu(a.data(), b.data(), a.size(), expected.data());
    REQUIRE(to_host(step.stream(), gate) == expected);
    REQUIRE(step.moved() == 6 * sum.bytes() + 2 * device_b.bytes() + 4 * n);
  }
}

TEST_CASE("add and swiglu have the oracle's bits") {
  Random random(4);
  for (const std::uint32_t n : {1u, 100u, 128u, 4864u}) check_add_and_swiglu(n, random);
}

TEST_CASE("add and swiglu: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const std::uint32_t n : all_widths(1)) check_add_and_swiglu(n, random);
  });
}

/// 73 positions of context.
void check_rope(std::uint32_t head_dim, std::uint32_t n_heads, std::uint32_t position,
                Random& random) {
  const RopeTable table(head_dim, 1e6, 73);
  const auto cosines = to_device(table.cos_table()), sines = to_device(table.sin_table());
  for (const std::uint32_t n_tokens : kSteps) {
    INFO("head_dim " << head_dim << ", heads " << n_heads << ", position " << position
                     << ", tokens " << n_tokens);
    const TestStep step(n_tokens, position);
    std::vector<float> expected = random.values(n_tokens * n_heads * head_dim);
    auto x = to_device(expected);
    launch_rope(step, x.data(), cosines.data(), sines.data(), n_heads, head_dim);
    oracle::rope(expected.data(), table, position, n_tokens, n_heads);
    REQUIRE(to_host(step.stream(), x) == expected);
    REQUIRE(step.moved() == 2 * x.bytes() + n_tokens * 4 * head_dim);
  }
}

TEST_CASE("rope has the oracle's bits") {
  Random random(5);
  for (const std::uint32_t head_dim : {32u, 64u, 128u}) {
    for (const std::uint32_t n_heads : {1u, 2u, 14u}) {
      for (const std::uint32_t position : {0u, 1u, 69u}) {
        check_rope(head_dim, n_heads, position, random);
      }
    }
  }
}

TEST_CASE("rope: every width of a head and every position", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (std::uint32_t head_dim = 2; head_dim <= 128; head_dim += 2) {
      for (const std::uint32_t n_heads : {1u, 2u, 12u, 14u, 16u}) {
        check_rope(head_dim, n_heads, random.bits() % 70, random);
      }
    }
    for (std::uint32_t position = 0; position < 70; ++position) {
      for (const std::uint32_t head_dim : {64u, 128u}) check_rope(head_dim, 3, position, random);
    }
  });
}

void check_append_kv(std::uint32_t d_kv, std::uint32_t position, Random& random) {
  constexpr std::uint32_t kContext = 6;
  for (const std::uint32_t n_tokens : kSteps) {
    INFO("d_kv " << d_kv << ", position " << position << ", tokens " << n_tokens);
    const TestStep step(n_tokens, position);
    std::vector<float> k_expected = random.values(kContext * d_kv);
    std::vector<float> v_expected = random.values(kContext * d_kv);
    auto k_cache = to_device(k_expected), v_cache = to_device(v_expected);
    const std::vector<float> k = random.values(n_tokens * d_kv);
    const std::vector<float> v = random.values(n_tokens * d_kv);
    const auto device_k = to_device(k), device_v = to_device(v);
    launch_append_kv(step, KvLayerF32{k_cache.data(), v_cache.data(), d_kv}, device_k.data(),
                     device_v.data(), {d_kv, d_kv, 1});
    std::copy(k.begin(), k.end(), k_expected.begin() + position * d_kv);
    std::copy(v.begin(), v.end(), v_expected.begin() + position * d_kv);
    REQUIRE(to_host(step.stream(), k_cache) == k_expected);
    REQUIRE(to_host(step.stream(), v_cache) == v_expected);
    REQUIRE(step.moved() == 2 * (device_k.bytes() + device_v.bytes()));
  }
}

TEST_CASE("append_kv writes its positions and no other") {
  Random random(6);
  for (const std::uint32_t d_kv : {32u, 128u, 256u}) check_append_kv(d_kv, 1, random);
}

TEST_CASE("append_kv: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (std::uint32_t d_kv = 1; d_kv <= 513; ++d_kv) {
      for (const std::uint32_t position : {0u, 1u, 2u}) check_append_kv(d_kv, position, random);
    }
  });
}

/// One context, and every position of a list in it where a step fits.
/// The definition of the int8 cache's K or V: of each head's values the largest is 127.
struct HostHeads {
  HostHeads(const std::vector<float>& x, std::uint32_t head_dim) : n(head_dim), q(x.size()) {
    for (std::size_t first = 0; first < x.size(); first += head_dim) {
      float largest = 0;
      for (std::size_t i = first; i < first + head_dim; ++i) {
        largest = max_f32(largest, std::fabs(x[i]));
      }
      d.push_back(half_from_float(largest / 127.0f));
      const float scale = float_from_half(d.back()), inverse = scale > 0 ? 1.0f / scale : 0.0f;
      for (std::size_t i = first; i < first + head_dim; ++i) {
        q[i] = static_cast<std::int8_t>(round_half_even_to_int(x[i] * inverse, -127, 127));
      }
    }
  }
  std::vector<float> values() const {
    std::vector<float> x(q.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = float_from_half(d[i / n]) * static_cast<float>(q[i]);
    }
    return x;
  }
  std::uint32_t n;
  std::vector<std::int8_t> q;
  std::vector<std::uint16_t> d;
};

/// A vector with another from an element on.
template <class T>
std::vector<T> overwritten(std::vector<T> whole, std::size_t from, const std::vector<T>& part) {
  std::copy(part.begin(), part.end(), whole.begin() + from);
  return whole;
}

void check_append_kv_q8(const AttentionShape& shape, std::uint32_t position, Random& random) {
  constexpr std::uint32_t kContext = 6;
  const std::uint32_t d_kv = shape.d_kv();
  for (const std::uint32_t n_tokens : kSteps) {
    INFO("heads of " << shape.head_dim << ", position " << position << ", tokens " << n_tokens);
    const TestStep step(n_tokens, position);
    const HostHeads k_before(random.values(kContext * d_kv), shape.head_dim);
    const HostHeads v_before(random.values(kContext * d_kv), shape.head_dim);
    auto k_q = to_device(k_before.q), v_q = to_device(v_before.q);
    auto k_d = to_device(k_before.d), v_d = to_device(v_before.d);
    std::vector<float> k = activations(n_tokens * d_kv, random), v = random.values(k.size());
    std::fill_n(k.begin(), shape.head_dim, 0.0f);  // a head without a scale
    const auto device_k = to_device(k), device_v = to_device(v);
    const KvLayerQ8 layer = {k_q.data(), v_q.data(), k_d.data(),
                             v_d.data(), d_kv,       shape.n_kv_heads};
    launch_append_kv(step, layer, device_k.data(), device_v.data(), shape);
    const HostHeads k_new(k, shape.head_dim), v_new(v, shape.head_dim);
    const std::uint32_t row = position * shape.n_kv_heads;
    REQUIRE(to_host(step.stream(), k_q) == overwritten(k_before.q, position * d_kv, k_new.q));
    REQUIRE(to_host(step.stream(), v_q) == overwritten(v_before.q, position * d_kv, v_new.q));
    REQUIRE(to_host(step.stream(), k_d) == overwritten(k_before.d, row, k_new.d));
    REQUIRE(to_host(step.stream(), v_d) == overwritten(v_before.d, row, v_new.d));
    REQUIRE(step.moved() == 10 * k.size() + 4 * k_new.d.size());
  }
}

TEST_CASE("append_kv_q8 has the bits of its definition") {
  Random random(31);
  for (const std::uint32_t position : {0u, 3u}) {
    check_append_kv_q8({14, 2, 64}, position, random);
    check_append_kv_q8({6, 3, 128}, position, random);
    check_append_kv_q8({5, 5, 32}, position, random);
  }
}

TEST_CASE("append_kv_q8 hands a NaN on, to its own head") {
  const TestStep step(1);
  std::vector<float> k(128, 1.0f), v(128, 1.0f);
  k[70] = NAN;
  DeviceBuffer<std::int8_t> k_q(128), v_q(128);
  DeviceBuffer<std::uint16_t> k_d(2), v_d(2);
  const auto device_k = to_device(k), device_v = to_device(v);
  launch_append_kv(step, KvLayerQ8{k_q.data(), v_q.data(), k_d.data(), v_d.data(), 128, 2},
                   device_k.data(), device_v.data(), {2, 2, 64});
  CHECK(std::isfinite(float_from_half(to_host(step.stream(), k_d)[0])));
  CHECK(std::isnan(float_from_half(to_host(step.stream(), k_d)[1])));
  CHECK(std::isfinite(float_from_half(to_host(step.stream(), v_d)[1])));
}

void check_attention(const AttentionShape& shape, std::uint32_t context,
                     const std::vector<std::uint32_t>& positions, Random& random) {
  ThreadPool pool(1);
  const std::uint32_t d_q = shape.d_q(), d_kv = shape.d_kv();
  const std::vector<float> k = random.values(context * d_kv), v = random.values(context * d_kv);
  const auto k_cache = to_device(k), v_cache = to_device(v);
  const HostHeads k_int8(k, shape.head_dim), v_int8(v, shape.head_dim);
  const auto k_q = to_device(k_int8.q), v_q = to_device(v_int8.q);
  const auto k_d = to_device(k_int8.d), v_d = to_device(v_int8.d);
  const KvLayerF32 layer = {k_cache.data(), v_cache.data(), d_kv};
  const KvLayerQ8 layer_q8 = {k_q.data(), v_q.data(), k_d.data(),
                              v_d.data(), d_kv,       shape.n_kv_heads};
  for (const std::uint32_t n_tokens : kSteps) {
    std::vector<float> q = random.values(n_tokens * d_q);
    for (float& value : q) value *= 4;  // so that some positions weigh much more than others
    const auto device_q = to_device(q);
    DeviceBuffer<float> scores(n_tokens * shape.n_heads * context), y(n_tokens * d_q);
    for (const std::uint32_t position : positions) {
      if (position + n_tokens > context) continue;
      INFO(shape.n_heads << "/" << shape.n_kv_heads << " heads of " << shape.head_dim
                         << ", position " << position << ", tokens " << n_tokens);
      const std::uint64_t n = position + n_tokens;
      const auto check = [&](const auto& cache, const std::vector<float>& k_values,
                             const std::vector<float>& v_values, std::uint64_t cache_bytes) {
        const TestStep step(n_tokens, position);
        const std::uint32_t chunks = launched_chunks(n);
        const std::size_t rows = std::size_t(n_tokens) * shape.n_heads * chunks;
        DeviceBuffer<float> outputs(rows * shape.head_dim), maxima(rows), totals(rows);
        const Partials partials = {outputs.data(), maxima.data(), totals.data()};
        launch_attention(step, y.data(), partials, scores.data(), device_q.data(), cache, shape,
                         context, chunks);
        std::vector<float> expected(y.size());
        oracle::attention(shape, q.data(), k_values.data(), v_values.data(), position, n_tokens,
                          expected.data(), pool);
        require_close(to_host(step.stream(), y), expected, 1e-5f);
        REQUIRE(step.moved_at(n) == device_q.bytes() + y.bytes() + cache_bytes);

        // Blocks for more chunks than there are change nothing, and one chunk is all positions.
        const std::vector<float> split = to_host(step.stream(), y);
        DeviceBuffer<float> more_outputs(2 * outputs.size()), more_maxima(2 * rows),
            more_totals(2 * rows);
        launch_attention(step, y.data(),
                         {more_outputs.data(), more_maxima.data(), more_totals.data()},
                         scores.data(), device_q.data(), cache, shape, context, 2 * chunks);
        REQUIRE(to_host(step.stream(), y) == split);
        launch_attention(step, y.data(), partials, scores.data(), device_q.data(), cache, shape,
                         context, 1);
        if (n <= kChunk) REQUIRE(to_host(step.stream(), y) == split);
        require_close(to_host(step.stream(), y), expected, 1e-5f);
      };
      check(layer, k, v, 8 * n * d_kv);
      check(layer_q8, k_int8.values(), v_int8.values(), n * (2 * d_kv + 4 * shape.n_kv_heads));
    }
  }
}

TEST_CASE("attention") {
  Random random(7);
  const AttentionShape shapes[] = {{14, 2, 64},   // 0.5B: groups of 7
                                   {12, 2, 128},  // 1.5B: 6
                                   {16, 2, 128},  // 3B: 8
                                   {3, 3, 32},
                                   {5, 1, 64}};
  for (const AttentionShape& shape : shapes) {
    check_attention(shape, 1001, {0, 1, 2, 31, 33, 127, 128, 129, 300, 998, 1000}, random);
  }
}

TEST_CASE("attention: every group and every position", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const std::uint32_t head_dim : {32u, 64u, 128u}) {
      for (std::uint32_t group = 1; group <= 8; ++group) {
        for (const std::uint32_t n_kv_heads : {1u, 2u}) {
          check_attention({group * n_kv_heads, n_kv_heads, head_dim}, 700, {0, 5, 130, 697, 699},
                          random);
        }
      }
      std::vector<std::uint32_t> positions(301);
      std::iota(positions.begin(), positions.end(), 0);
      check_attention({7, 1, head_dim}, 301, positions, random);
    }
  });
}

void check_argmax(const std::vector<float>& logits, std::uint32_t n_tokens = 1) {
  const std::size_t n = logits.size() / n_tokens;
  const TestStep step(n_tokens, 40, {-7, -8});
  const auto device_logits = to_device(logits);
  DeviceBuffer<Prediction> predictions(n_tokens);
  launch_argmax(step, predictions.data(), device_logits.data(), n, 5);
  REQUIRE(step.moved() == device_logits.bytes());
  const std::vector<Prediction> found = to_host(step.stream(), predictions);
  for (std::uint32_t t = 0; t < n_tokens; ++t) {
    const Prediction expected = oracle::argmax(logits.data() + t * n, n);
    REQUIRE(found[t].id == expected.id);
    if (expected.id >= 0) {
      REQUIRE(bits_from_float(found[t].margin) == bits_from_float(expected.margin));
    }
  }
  REQUIRE(step.input().position == 45);
  REQUIRE(step.input().ids[0] == found.back().id);
  REQUIRE(step.input().ids[1] == -8);
}

/// n logits, then with a tie, then with a NaN besides, then with the first ahead of the second.
void check_argmax(std::size_t n, std::size_t first, std::size_t second, Random& random) {
  INFO("n " << n << ", a tie of " << first << " and " << second);
  std::vector<float> logits = random.values(n);
  check_argmax(logits);
  logits[first] = logits[second] = 2.0f;
  check_argmax(logits);
  logits[0] = NAN;
  if (n > 1) check_argmax(logits);
  logits[first] = 3.0f;
  check_argmax(logits);
}

TEST_CASE("argmax: ties go to the lower id, a NaN is never chosen") {
  Random random(8);
  for (const std::size_t n : {1u, 2u, 1023u, 1024u, 1025u, 151665u}) {
    check_argmax(n, n - 1, n / 2, random);
  }
  check_argmax(2100, 5, 1029, random);  // both of one thread
  check_argmax(2100, 1029, 5, random);
  check_argmax({NAN, -INFINITY});
  check_argmax(random.values(3 * 1500), 3);
}

TEST_CASE("argmax: ties anywhere", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (std::size_t n = 1; n <= 2100; n += n < 70 || (n > 990 && n < 1060) ? 1 : 13) {
      const std::size_t first = random.bits() % n, second = random.bits() % n;
      check_argmax(n, first, second, random);
    }
    for (int i = 0; i < 8; ++i) {
      const std::size_t first = random.bits() % 151665, second = random.bits() % 151665;
      check_argmax(151665, first, second, random);
    }
  });
}

}  // namespace
}  // namespace minfer
