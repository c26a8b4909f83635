// SPDX-License-Identifier: MIT
//
// Rotary embedding, the KV cache and attention against the oracle's functions of the same names, on
// shapes of the real models and on shapes that fill no tile, for one token and for several; and
// what a launch says that it moves against the arrays that it has. [exhaustive]: on a full grid of
// shapes.
#include <algorithm>
#include <numeric>
#include <vector>

#include <minfer/rope.h>

#include "attention.cuh"
#include "kernel_testing.h"
#include "oracle/ops.h"

namespace minfer {
namespace {

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
    launch_append_kv(step, {k_cache.data(), v_cache.data(), d_kv}, device_k.data(),
                     device_v.data());
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
void check_attention(const AttentionShape& shape, std::uint32_t context,
                     const std::vector<std::uint32_t>& positions, Random& random) {
  ThreadPool pool(1);
  const std::uint32_t d_q = shape.d_q(), d_kv = shape.d_kv();
  const std::vector<float> k = random.values(context * d_kv), v = random.values(context * d_kv);
  const auto k_cache = to_device(k), v_cache = to_device(v);
  for (const std::uint32_t n_tokens : kSteps) {
    std::vector<float> q = random.values(n_tokens * d_q);
    for (float& value : q) value *= 4;  // so that some positions weigh much more than others
    const auto device_q = to_device(q);
    DeviceBuffer<float> scores(n_tokens * shape.n_heads * context), y(n_tokens * d_q);
    for (const std::uint32_t position : positions) {
      if (position + n_tokens > context) continue;
      INFO(shape.n_heads << "/" << shape.n_kv_heads << " heads of " << shape.head_dim
                         << ", position " << position << ", tokens " << n_tokens);
      const TestStep step(n_tokens, position);
      launch_attention(step, y.data(), scores.data(), device_q.data(),
                       {k_cache.data(), v_cache.data(), d_kv}, shape, context);
      std::vector<float> expected(y.size());
      oracle::attention(shape, q.data(), k.data(), v.data(), position, n_tokens, expected.data(),
                        pool);
      require_close(to_host(step.stream(), y), expected, 1e-5f);
      const std::uint64_t n = position + n_tokens;
      REQUIRE(step.moved_at(n) == device_q.bytes() + y.bytes() + 8 * n * d_kv);
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

}  // namespace
}  // namespace minfer
