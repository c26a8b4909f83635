// SPDX-License-Identifier: MIT
//
// Every kernel against the oracle's function of the same name, on shapes of the real models and on
// shapes that fill no tile.
#include <cmath>
#include <cstring>
#include <vector>

#include <minfer/quant.h>
#include <minfer/rope.h>

#include "catch.h"
#include "cuda/buffer.h"
#include "cuda/stream.h"
#include "kernels.cuh"
#include "oracle/ops.h"

namespace minfer {
namespace {

/// Pseudo-random numbers, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2654435769u + 1) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  /// In [-1, 1).
  float value() { return static_cast<float>(bits() % 65536) / 32768.0f - 1.0f; }
  std::vector<float> values(std::size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = value();
    return v;
  }

 private:
  std::uint64_t state_;
};

template <class T>
DeviceBuffer<T> to_device(const std::vector<T>& host) {
  DeviceBuffer<T> buffer(host.size());
  buffer.upload(host.data(), host.size());
  CUDA_CHECK(cudaDeviceSynchronize());
  return buffer;
}

template <class T>
std::vector<T> to_host(const Stream& stream, const DeviceBuffer<T>& buffer) {
  std::vector<T> host(buffer.size());
  buffer.download(host.data(), host.size(), stream);
  return host;
}

/// A position where kernels look for it.
DeviceBuffer<std::uint32_t> position_on_device(std::uint32_t position) {
  return to_device(std::vector<std::uint32_t>{position});
}

/// Every value within `tolerance` of the largest: what another order of the same sums may do.
void require_close(const std::vector<float>& found, const std::vector<float>& expected,
                   float tolerance) {
  REQUIRE(found.size() == expected.size());
  float largest = 0, difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    REQUIRE(std::isfinite(found[i]));
    largest = std::max(largest, std::fabs(expected[i]));
    difference = std::max(difference, std::fabs(found[i] - expected[i]));
  }
  REQUIRE(difference <= tolerance * largest);
}

/// A block whose values are of the size of weights.
void randomize(float& block, Random& random) {
  block = random.value();
}
void randomize(F16& block, Random& random) {
  block.bits = half_from_float(random.value());
}
void randomize(BF16& block, Random& random) {
  block.bits = static_cast<std::uint16_t>(bits_from_float(random.value()) >> 16);
}
template <class Block>
void randomize(Block& block, Random& random) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(&block);
  for (std::size_t i = 0; i < sizeof block; ++i)
    bytes[i] = static_cast<std::uint8_t>(random.bits());
  block.d = half_from_float(0.01f * random.value());
  if constexpr (std::is_same_v<Block, BlockQ4_1>) block.m = half_from_float(random.value());
  if constexpr (std::is_same_v<Block, BlockQ4_K>)
    block.dmin = half_from_float(0.01f * random.value());
}

/// A matrix of random blocks, on the host and on the device.
struct TestMatrix {
  TestMatrix(TensorType type, std::uint32_t rows, std::uint32_t cols, Random& random)
      : bytes(rows * row_bytes(type, cols)) {
    visit_blocks(type, bytes.data(), [&](const auto* blocks) {
      using Block = std::decay_t<decltype(*blocks)>;
      for (std::size_t i = 0; i < bytes.size(); i += sizeof(Block)) {
        Block block;
        randomize(block, random);
        std::memcpy(bytes.data() + i, &block, sizeof block);
      }
    });
    device_bytes = to_device(bytes);
    host.type = device.type = type;
    host.rows = device.rows = rows;
    host.cols = device.cols = cols;
    host.data = bytes.data();
    device.data = device_bytes.data();
  }

  std::vector<std::byte> bytes;
  DeviceBuffer<std::byte> device_bytes;
  Matrix host, device;
};

constexpr TensorType kTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                                 TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                 TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ6_K};

/// Whole blocks only: the next multiple of the type's block.
std::uint32_t whole_blocks(TensorType type, std::uint32_t n) {
  const std::uint32_t elements = block_shape(type).elements;
  return ceil_div(n, elements) * elements;
}

TEST_CASE("embed has the bits of the host's dequantization") {
  Random random(1);
  Stream stream;
  for (const TensorType type : kTypes) {
    for (const std::uint32_t n : {32u, 896u, 1568u}) {
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
  }
}

TEST_CASE("rmsnorm") {
  Random random(2);
  Stream stream;
  for (const std::uint32_t n : {32u, 96u, 896u, 1536u, 2080u}) {
    INFO("n " << n);
    const std::vector<float> x = random.values(n), w = random.values(n);
    const auto device_x = to_device(x), device_w = to_device(w);
    DeviceBuffer<float> y(n);
    launch_rmsnorm(stream, y.data(), device_x.data(), device_w.data(), n, 1e-6f);
    std::vector<float> expected(n);
    oracle::rmsnorm(x.data(), w.data(), 1e-6f, 1, n, expected.data());
    require_close(to_host(stream, y), expected, 1e-6f);
  }
}

TEST_CASE("gemv") {
  struct Shape {
    std::uint32_t rows, cols;
  };
  Random random(3);
  Stream stream;
  ThreadPool pool(1);
  for (const TensorType type : kTypes) {
    for (const Shape shape : {Shape{1, 32}, {5, 96}, {131, 896}, {6, 1536}, {3, 4864}, {2, 8960}}) {
      const std::uint32_t cols = whole_blocks(type, shape.cols);
      INFO(type_name(type) << " " << shape.rows << " x " << cols);
      const TestMatrix w(type, shape.rows, cols, random);
      const std::vector<float> x = random.values(cols);
      const auto device_x = to_device(x);
      DeviceBuffer<float> y(shape.rows);
      launch_gemv(stream, y.data(), w.device, device_x.data());
      std::vector<float> expected(shape.rows);
      oracle::gemv(w.host, nullptr, x.data(), 1, expected.data(), pool);
      require_close(to_host(stream, y), expected, 1e-5f);
    }
  }
}

/// Activations of very different sizes, one run of zeros among them.
std::vector<float> activations(std::uint32_t n, Random& random) {
  std::vector<float> x = random.values(n);
  for (std::uint32_t i = 0; i < n; ++i) x[i] *= std::ldexp(1.0f, int(i / 32 % 9) * 4 - 16);
  if (n > 32) std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  return x;
}

/// The quantization of activations as it is defined, on the host.
struct HostQuantized {
  explicit HostQuantized(const std::vector<float>& x) : q(x.size()), d(x.size() / 32) {
    for (std::size_t run = 0; run < d.size(); ++run) {
      float largest = 0;
      for (std::size_t i = run * 32; i < run * 32 + 32; ++i)
        largest = max_f32(largest, std::fabs(x[i]));
      d[run] = largest / 127.0f;
      const float inverse = d[run] > 0 ? 1.0f / d[run] : 0.0f;
      for (std::size_t i = run * 32; i < run * 32 + 32; ++i) {
        q[i] = static_cast<std::int8_t>(round_half_even_to_int(x[i] * inverse, -127, 127));
      }
    }
  }
  std::vector<float> values() const {
    std::vector<float> x(q.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = d[i / 32] * static_cast<float>(q[i]);
    return x;
  }
  std::vector<std::int8_t> q;
  std::vector<float> d;
};

TEST_CASE("quantize has the bits of its definition") {
  Random random(9);
  Stream stream;
  for (const std::uint32_t n : {32u, 96u, 896u, 1536u, 8960u}) {
    INFO("n " << n);
    const std::vector<float> x = activations(n, random);
    const HostQuantized expected(x);
    const auto device_x = to_device(x);
    DeviceBuffer<std::int8_t> q(n);
    DeviceBuffer<float> d(n / 32);
    launch_quantize(stream, {q.data(), d.data()}, device_x.data(), n);
    REQUIRE(to_host(stream, q) == expected.q);
    REQUIRE(to_host(stream, d) == expected.d);
  }
}

TEST_CASE("gemv_q4_0 is the oracle's gemv of the quantized activations") {
  struct Shape {
    std::uint32_t rows, cols;
  };
  Random random(10);
  Stream stream;
  ThreadPool pool(1);
  for (const Shape shape : {Shape{1, 32}, {5, 96}, {131, 896}, {6, 1536}, {3, 4864}, {2, 8960}}) {
    INFO(shape.rows << " x " << shape.cols);
    const TestMatrix w(TensorType::kQ4_0, shape.rows, shape.cols, random);
    const HostQuantized x(random.values(shape.cols));
    const auto q = to_device(x.q);
    const auto d = to_device(x.d);
    DeviceBuffer<float> y(shape.rows);
    launch_gemv_q4_0(stream, y.data(), w.device, {q.data(), d.data()});
    std::vector<float> expected(shape.rows);
    oracle::gemv(w.host, nullptr, x.values().data(), 1, expected.data(), pool);
    require_close(to_host(stream, y), expected, 1e-5f);
  }
}

TEST_CASE("gemv_q8_0 is the oracle's gemv of the quantized activations") {
  struct Shape {
    std::uint32_t rows, cols;
  };
  Random random(11);
  Stream stream;
  ThreadPool pool(1);
  for (const Shape shape : {Shape{1, 32}, {5, 96}, {131, 896}, {6, 1536}, {3, 2048}}) {
    INFO(shape.rows << " x " << shape.cols);
    const TestMatrix w(TensorType::kQ8_0, shape.rows, shape.cols, random);
    std::vector<std::int8_t> quants;
    std::vector<std::uint16_t> scales;
    for (std::size_t i = 0; i < w.bytes.size(); i += sizeof(BlockQ8_0)) {
      BlockQ8_0 block;
      std::memcpy(&block, &w.bytes[i], sizeof block);
      quants.insert(quants.end(), block.qs, block.qs + 32);
      scales.push_back(block.d);
    }
    const auto w_q = to_device(quants);
    const auto w_d = to_device(scales);
    const HostQuantized x(random.values(shape.cols));
    const auto q = to_device(x.q);
    const auto d = to_device(x.d);
    DeviceBuffer<float> y(shape.rows);
    launch_gemv_q8_0(stream, y.data(), {shape.rows, shape.cols, w_q.data(), w_d.data()},
                     {q.data(), d.data()});
    std::vector<float> expected(shape.rows);
    oracle::gemv(w.host, nullptr, x.values().data(), 1, expected.data(), pool);
    require_close(to_host(stream, y), expected, 1e-5f);
  }
}

TEST_CASE("add and swiglu have the oracle's bits") {
  Random random(4);
  Stream stream;
  for (const std::uint32_t n : {1u, 100u, 128u, 4864u}) {
    INFO("n " << n);
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
}

TEST_CASE("rope has the oracle's bits") {
  Random random(5);
  Stream stream;
  for (const std::uint32_t head_dim : {32u, 64u, 128u}) {
    const RopeTable table(head_dim, 1e6, 70);
    const auto cosines = to_device(table.cos_table()), sines = to_device(table.sin_table());
    for (const std::uint32_t n_heads : {1u, 2u, 14u}) {
      for (const std::uint32_t position : {0u, 1u, 69u}) {
        INFO("head_dim " << head_dim << ", heads " << n_heads << ", position " << position);
        std::vector<float> expected = random.values(n_heads * head_dim);
        auto x = to_device(expected);
        const auto at = position_on_device(position);
        launch_rope(stream, x.data(), cosines.data(), sines.data(), at.data(), n_heads, head_dim);
        oracle::rope(expected.data(), table, position, 1, n_heads);
        REQUIRE(to_host(stream, x) == expected);
      }
    }
  }
}

TEST_CASE("append_kv writes its position and no other") {
  Random random(6);
  Stream stream;
  constexpr std::uint32_t kContext = 3, kPosition = 1;
  for (const std::uint32_t d_kv : {32u, 128u, 256u}) {
    INFO("d_kv " << d_kv);
    std::vector<float> k_expected = random.values(kContext * d_kv);
    std::vector<float> v_expected = random.values(kContext * d_kv);
    auto k_cache = to_device(k_expected), v_cache = to_device(v_expected);
    const std::vector<float> k = random.values(d_kv), v = random.values(d_kv);
    const auto device_k = to_device(k), device_v = to_device(v);
    const auto at = position_on_device(kPosition);
    launch_append_kv(stream, k_cache.data(), v_cache.data(), device_k.data(), device_v.data(),
                     at.data(), d_kv);
    std::copy(k.begin(), k.end(), k_expected.begin() + kPosition * d_kv);
    std::copy(v.begin(), v.end(), v_expected.begin() + kPosition * d_kv);
    REQUIRE(to_host(stream, k_cache) == k_expected);
    REQUIRE(to_host(stream, v_cache) == v_expected);
  }
}

TEST_CASE("attention") {
  Random random(7);
  Stream stream;
  ThreadPool pool(1);
  constexpr std::uint32_t kContext = 301;
  const AttentionShape shapes[] = {{14, 2, 64, kContext},   // 0.5B: groups of 7
                                   {12, 2, 128, kContext},  // 1.5B: 6
                                   {16, 2, 128, kContext},  // 3B: 8
                                   {3, 3, 32, kContext},
                                   {5, 1, 64, kContext}};
  for (const AttentionShape& shape : shapes) {
    const std::uint32_t d_q = shape.n_heads * shape.head_dim;
    const std::uint32_t d_kv = shape.n_kv_heads * shape.head_dim;
    std::vector<float> q = random.values(d_q);
    for (float& value : q) value *= 4;  // so that some positions weigh much more than others
    const std::vector<float> k = random.values(kContext * d_kv), v = random.values(kContext * d_kv);
    const auto device_q = to_device(q), k_cache = to_device(k), v_cache = to_device(v);
    DeviceBuffer<float> scores(shape.n_heads * kContext), y(d_q);
    for (const std::uint32_t position : {0u, 1u, 31u, 127u, 128u, 300u}) {
      INFO(shape.n_heads << "/" << shape.n_kv_heads << " heads of " << shape.head_dim
                         << ", position " << position);
      const auto at = position_on_device(position);
      launch_attention(stream, y.data(), scores.data(), device_q.data(), k_cache.data(),
                       v_cache.data(), at.data(), shape);
      std::vector<float> expected(d_q);
      oracle::attention({shape.n_heads, shape.n_kv_heads, shape.head_dim}, q.data(), k.data(),
                        v.data(), position, 1, expected.data(), pool);
      require_close(to_host(stream, y), expected, 1e-5f);
    }
  }
}

void check_argmax(const Stream& stream, const std::vector<float>& logits) {
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

TEST_CASE("argmax: ties go to the lower id, a NaN is never chosen") {
  Random random(8);
  Stream stream;
  for (const std::size_t n : {1u, 2u, 1023u, 1024u, 1025u, 151665u}) {
    INFO("n " << n);
    std::vector<float> logits = random.values(n);
    check_argmax(stream, logits);
    logits[n - 1] = logits[n / 2] = 2.0f;
    check_argmax(stream, logits);
    logits[0] = NAN;
    if (n > 1) check_argmax(stream, logits);
  }
  check_argmax(stream, {NAN, -INFINITY});
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
