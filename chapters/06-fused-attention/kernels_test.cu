// SPDX-License-Identifier: MIT
//
// Every kernel against the oracle's function of the same name, on shapes of the real models and on
// shapes that fill no tile; [exhaustive]: on a full grid of them.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <minfer/rope.h>

#include "kernel_testing.h"
#include "kernels.cuh"
#include "oracle/ops.h"

namespace minfer {
namespace {

/// A position where kernels look for it.
DeviceBuffer<std::uint32_t> position_on_device(std::uint32_t position) {
  return to_device(std::vector<std::uint32_t>{position});
}

void check_embed(TensorType type, std::uint32_t n, Random& random) {
  Stream stream;
  const std::uint32_t d_model = whole_blocks(type, n);
  const TestMatrix table(type, 5, d_model, random);
  DeviceBuffer<float> x(d_model);
  for (const Token id : {0, 3, 4}) {
    INFO(type_name(type) << ", d_model " << d_model << ", token " << id);
    const auto ids = to_device(std::vector<Token>{1, 1, id});
    const auto position = position_on_device(2);
    launch_embed(stream, x.data(), table.device, ids.data(), position.data());
    std::vector<float> expected(d_model);
    oracle::embed(table.host, Span<const Token>(&id, 1), expected.data());
    REQUIRE(to_host(stream, x) == expected);
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
  INFO("n " << n);
  Stream stream;
  const std::vector<float> x = random.values(n), w = random.values(n);
  const auto device_x = to_device(x), device_w = to_device(w);
  DeviceBuffer<float> y(n);
  launch_rmsnorm(stream, y.data(), device_x.data(), device_w.data(), n, 1e-6f);
  std::vector<float> expected(n);
  oracle::rmsnorm(x.data(), w.data(), 1e-6f, 1, n, expected.data());
  require_close(to_host(stream, y), expected, 1e-6f);
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
  Stream stream;
  ThreadPool pool(1);
  const std::uint32_t cols = whole_blocks(type, shape.cols);
  INFO(type_name(type) << " " << shape.rows << " x " << cols);
  const TestMatrix w(type, shape.rows, cols, random);
  const std::vector<float> x = random.values(cols);
  const auto device_x = to_device(x);
  DeviceBuffer<float> y(shape.rows);
  launch_gemv(stream, y.data(), w.device, device_x.data());
  std::vector<float> expected(shape.rows);
  oracle::gemv(w.host, nullptr, x.data(), 1, expected.data(), pool);
  require_sums_close(to_host(stream, y), expected, magnitudes(w.host, x), 5e-7);
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

void check_quantize(std::uint32_t n, Random& random) {
  INFO("n " << n);
  Stream stream;
  const std::vector<float> x = activations(n, random);
  const HostQuantized expected(x);
  const auto device_x = to_device(x);
  DeviceBuffer<std::int8_t> q(n);
  DeviceBuffer<float> d(n / 32);
  launch_quantize(stream, {q.data(), d.data()}, device_x.data(), n);
  REQUIRE(to_host(stream, q) == expected.q);
  REQUIRE(to_host(stream, d) == expected.d);
}

TEST_CASE("quantize has the bits of its definition") {
  Random random(9);
  for (const std::uint32_t n : {32u, 96u, 896u, 1056u, 1536u, 8960u}) check_quantize(n, random);
}

TEST_CASE("quantize hands a NaN on, to its own 32") {
  Random random(10);
  Stream stream;
  for (const std::uint32_t at : {32u, 45u, 63u}) {
    std::vector<float> x = activations(96, random);
    x[at] = NAN;
    const auto device_x = to_device(x);
    DeviceBuffer<std::int8_t> q(96);
    DeviceBuffer<float> d(3);
    launch_quantize(stream, {q.data(), d.data()}, device_x.data(), 96);
    const std::vector<float> scales = to_host(stream, d);
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
  INFO(shape.rows << " x " << shape.cols);
  Stream stream;
  ThreadPool pool(1);
  const TestMatrix w(TensorType::kQ4_0, shape.rows, shape.cols, random);
  const HostQuantized x(random.values(shape.cols));
  const auto q = to_device(x.q);
  const auto d = to_device(x.d);
  DeviceBuffer<float> y(shape.rows);
  launch_gemv_q4_0(stream, y.data(), w.device, {q.data(), d.data()});
  std::vector<float> expected(shape.rows);
  const std::vector<float> values = x.values();
  oracle::gemv(w.host, nullptr, values.data(), 1, expected.data(), pool);
  require_sums_close(to_host(stream, y), expected, magnitudes(w.host, values), 5e-7);
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

void check_add_and_swiglu(std::uint32_t n, Random& random) {
  INFO("n " << n);
  Stream stream;
  const std::vector<float> a = random.values(n), b = random.values(n);
  const auto device_b = to_device(b);

  auto sum = to_device(a);
  launch_add(stream, sum.data(), device_b.data(), n);
  std::vector<float> expected = a;
  oracle::add(expected.data(), b.data(), n);
  REQUIRE(to_host(stream, sum) == expected);

  auto gate = to_device(a);
  launch_swiglu(stream, gate.data(), device_b.data(), n);
  oracle::swiglu(a.data(), b.data(), n, expected.data());
  REQUIRE(to_host(stream, gate) == expected);
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

/// 70 positions of context.
void check_rope(std::uint32_t head_dim, std::uint32_t n_heads, std::uint32_t position,
                Random& random) {
  INFO("head_dim " << head_dim << ", heads " << n_heads << ", position " << position);
  Stream stream;
  const RopeTable table(head_dim, 1e6, 70);
  const auto cosines = to_device(table.cos_table()), sines = to_device(table.sin_table());
  std::vector<float> expected = random.values(n_heads * head_dim);
  auto x = to_device(expected);
  const auto at = position_on_device(position);
  launch_rope(stream, x.data(), cosines.data(), sines.data(), at.data(), n_heads, head_dim);
  oracle::rope(expected.data(), table, position, 1, n_heads);
  REQUIRE(to_host(stream, x) == expected);
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
  INFO("d_kv " << d_kv << ", position " << position);
  Stream stream;
  constexpr std::uint32_t kContext = 3;
  std::vector<float> k_expected = random.values(kContext * d_kv);
  std::vector<float> v_expected = random.values(kContext * d_kv);
  auto k_cache = to_device(k_expected), v_cache = to_device(v_expected);
  const std::vector<float> k = random.values(d_kv), v = random.values(d_kv);
  const auto device_k = to_device(k), device_v = to_device(v);
  const auto at = position_on_device(position);
  launch_append_kv(stream, k_cache.data(), v_cache.data(), device_k.data(), device_v.data(),
                   at.data(), d_kv);
  std::copy(k.begin(), k.end(), k_expected.begin() + position * d_kv);
  std::copy(v.begin(), v.end(), v_expected.begin() + position * d_kv);
  REQUIRE(to_host(stream, k_cache) == k_expected);
  REQUIRE(to_host(stream, v_cache) == v_expected);
}

TEST_CASE("append_kv writes its position and no other") {
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

/// One context, and every position of a list in it.
void check_attention(const AttentionShape& shape, const std::vector<std::uint32_t>& positions,
                     Random& random) {
  Stream stream;
  ThreadPool pool(1);
  const std::uint32_t d_q = shape.n_heads * shape.head_dim;
  const std::uint32_t d_kv = shape.n_kv_heads * shape.head_dim;
  std::vector<float> q = random.values(d_q);
  for (float& value : q) value *= 4;  // so that some positions weigh much more than others
  const std::vector<float> k = random.values(shape.context * d_kv);
  const std::vector<float> v = random.values(shape.context * d_kv);
  const auto device_q = to_device(q), k_cache = to_device(k), v_cache = to_device(v);
  DeviceBuffer<float> scores(shape.n_heads * shape.context), y(d_q);
  for (const std::uint32_t position : positions) {
    INFO(shape.n_heads << "/" << shape.n_kv_heads << " heads of " << shape.head_dim << ", position "
                       << position);
    const auto at = position_on_device(position);
    launch_attention(stream, y.data(), scores.data(), device_q.data(), k_cache.data(),
                     v_cache.data(), at.data(), shape);
    std::vector<float> expected(d_q);
    oracle::attention({shape.n_heads, shape.n_kv_heads, shape.head_dim}, q.data(), k.data(),
                      v.data(), position, 1, expected.data(), pool);
    require_close(to_host(stream, y), expected, 1e-5f);
  }
}

TEST_CASE("attention") {
  Random random(7);
  constexpr std::uint32_t kContext = 1001;
  const AttentionShape shapes[] = {{14, 2, 64, kContext},   // 0.5B: groups of 7
                                   {12, 2, 128, kContext},  // 1.5B: 6
                                   {16, 2, 128, kContext},  // 3B: 8
                                   {3, 3, 32, kContext},
                                   {5, 1, 64, kContext}};
  for (const AttentionShape& shape : shapes) {
    check_attention(shape, {0, 1, 2, 31, 33, 127, 128, 129, 300, 1000}, random);
  }
}

TEST_CASE("attention: every group and every position", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (const std::uint32_t head_dim : {32u, 64u, 128u}) {
      for (std::uint32_t group = 1; group <= 8; ++group) {
        for (const std::uint32_t n_kv_heads : {1u, 2u}) {
          check_attention({group * n_kv_heads, n_kv_heads, head_dim, 700}, {0, 5, 130, 699},
                          random);
        }
      }
      std::vector<std::uint32_t> positions(301);
      std::iota(positions.begin(), positions.end(), 0);
      check_attention({7, 1, head_dim, 301}, positions, random);
    }
  });
}

void check_argmax(const std::vector<float>& logits) {
  Stream stream;
  const auto device_logits = to_device(logits);
  DeviceBuffer<Prediction> prediction(1);
  const auto ids = to_device(std::vector<Token>{-7, -7, -7});
  const auto at = position_on_device(1);
  launch_argmax(stream, prediction.data(), ids.data(), at.data(), device_logits.data(),
                logits.size());
  const Prediction found = to_host(stream, prediction).at(0);
  const Prediction expected = oracle::argmax(logits.data(), logits.size());
  REQUIRE(found.id == expected.id);
  REQUIRE(to_host(stream, ids) == std::vector<Token>{-7, expected.id, -7});
  if (expected.id >= 0) {
    REQUIRE(bits_from_float(found.margin) == bits_from_float(expected.margin));
  }
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

TEST_CASE("advance goes on by one") {
  Stream stream;
  const auto position = position_on_device(41);
  launch_advance(stream, position.data());
  launch_advance(stream, position.data());
  REQUIRE(to_host(stream, position).at(0) == 43);
}

}  // namespace
}  // namespace minfer
