// SPDX-License-Identifier: MIT
//
// The KV cache in int8 against its definition, and attention against the oracle's, on shapes of the
// real models and on shapes that fill no tile, for one token and for several; and what a launch
// says that it moves against the arrays that it has. [exhaustive]: on a full grid of shapes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "attention.cuh"
#include "kernel_testing.h"
#include "layout_testing.h"
#include "oracle/ops.h"

namespace minfer {
namespace {

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

/// Partials of so many rows, a row a token, a head and a chunk.
struct DevicePartials {
  DevicePartials(std::size_t rows, std::uint32_t head_dim)
      : outputs(rows * head_dim), maxima(rows), totals(rows) {}
  Partials partials() { return {outputs.data(), maxima.data(), totals.data()}; }
  DeviceBuffer<float> outputs, maxima, totals;
};

/// What attention_merge quantizes. @param chunks  of each head of a token
std::vector<float> merged(const Stream& stream, const DevicePartials& partials,
                          const AttentionShape& shape, std::uint32_t position,
                          std::uint32_t chunks) {
  const std::vector<float> outputs = to_host(stream, partials.outputs);
  const std::vector<float> maxima = to_host(stream, partials.maxima);
  const std::vector<float> totals = to_host(stream, partials.totals);
  std::vector<float> y(outputs.size() / chunks);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t row = i / shape.head_dim * chunks;
    const std::size_t n = (position + i / shape.d_q()) / kChunk + 1;
    const float largest = *std::max_element(&maxima[row], &maxima[row] + n);
    float sum = 0, weights = 0;
    for (std::size_t part = row; part < row + n; ++part) {
      const float weight = exp_f32(maxima[part] - largest);
      sum = fmaf(weight, outputs[part * shape.head_dim + i % shape.head_dim], sum);
      weights = fmaf(weight, totals[part], weights);
    }
    y[i] = sum / weights;
  }
  return y;
}

/// One context, and every position of a list in it where a step fits.
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
    for (const std::uint32_t position : positions) {
      if (position + n_tokens > context) continue;
      INFO(shape.n_heads << "/" << shape.n_kv_heads << " heads of " << shape.head_dim
                         << ", position " << position << ", tokens " << n_tokens);
      const std::uint64_t n = position + n_tokens;
      const auto check = [&](const auto& cache, const std::vector<float>& k_values,
                             const std::vector<float>& v_values, std::uint64_t cache_bytes) {
        const TestStep step(n_tokens, position);
        const std::uint32_t chunks = launched_chunks(n);
        const std::size_t rows = std::size_t(n_tokens) * shape.n_heads;
        DevicePartials partials(rows * chunks, shape.head_dim);
        DeviceQuantized y(n_tokens * d_q);
        launch_attention(step, y.vector(), partials.partials(), device_q.data(), cache, shape,
                         chunks);
        REQUIRE(step.moved_at(n) == device_q.bytes() + y.bytes() + cache_bytes);

        // Blocks for more chunks than there are change nothing, and leave what is merged.
        DevicePartials more(2 * rows * chunks, shape.head_dim);
        DeviceQuantized y_of_more(n_tokens * d_q);
        launch_attention(step, y_of_more.vector(), more.partials(), device_q.data(), cache, shape,
                         2 * chunks);
        const std::vector<float> found = merged(step.stream(), more, shape, position, 2 * chunks);
        std::vector<float> expected(found.size());
        oracle::attention(shape, q.data(), k_values.data(), v_values.data(), position, n_tokens,
                          expected.data(), pool);
        require_close(found, expected, 1e-5f);
        require_quantized(step.stream(), y, found, d_q);
        require_quantized(step.stream(), y_of_more, found, d_q);
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
  check_attention(shapes[0], 1001, {0, 1, 31, 33, 127, 128, 255, 256, 300, 998}, random);
  for (const AttentionShape& shape : shapes) check_attention(shape, 601, {2, 129, 600}, random);
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

}  // namespace
}  // namespace minfer
