// SPDX-License-Identifier: MIT
//
// The oracle's other operations against plain.h.
#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"
#include "matrices.h"
#include "oracle/lanes.h"
#include "oracle/ops.h"

namespace minfer::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_CASE("dot and sum take any length") {
  Random random(1);
  for (const std::size_t n : {1, 7, 31, 32, 33, 64, 100, 896}) {
    CAPTURE(n);
    const std::vector<float> a = random.numbers(n), b = random.numbers(n);
    double product = 0, magnitude = 0, total = 0;
    for (std::size_t i = 0; i < n; ++i) {
      product += double{a[i]} * b[i];
      magnitude += 1;
      total += a[i];
    }
    CHECK(std::fabs(oracle::dot(a.data(), b.data(), n) - product) <= 0x1p-23 * magnitude);
    CHECK(std::fabs(oracle::sum(a.data(), n) - total) <= 0x1p-23 * magnitude);
  }
}

TEST_CASE("dot sums lane i over the elements whose index is i modulo 32") {
  // Only this order gives 3: a lane's 1 is lost beside 2^24 if they meet before 2^24 is taken off.
  std::vector<float> a(96), ones(96, 1.0f);
  a[3] = 0x1p24f;
  a[35] = -0x1p24f;
  a[67] = 1.0f;
  a[4] = 2.0f;
  CHECK(oracle::dot(a.data(), ones.data(), 96) == 3.0f);
  CHECK(oracle::sum(a.data(), 96) == 3.0f);
}

TEST_CASE("embed gives the rows asked for") {
  for (const TensorType type : all_types()) {
    Random random(2);
    const OwnedMatrix table(type, 9, 256, random);
    const std::vector<float> values = dequantized(table.matrix);
    const std::vector<Token> ids = {8, 0, 3, 8};
    std::vector<float> y(ids.size() * 256);
    oracle::embed(table.matrix, ids, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      REQUIRE(y[i] == values[static_cast<std::size_t>(ids[i / 256]) * 256 + i % 256]);
    }
  }
}

TEST_CASE("rmsnorm divides by the root of the mean square") {
  Random random(3);
  for (const std::size_t n : {32, 224, 896, 1536}) {
    const std::vector<float> weight = random.numbers(n), x = random.numbers(3 * n, 5.0f);
    std::vector<float> y(3 * n);
    oracle::rmsnorm(x.data(), weight.data(), 1e-6f, 3, n, y.data());
    for (std::size_t t = 0; t < 3; ++t) {
      const Vec expected = plain_rmsnorm(as_double(&x[t * n], n), weight.data(), double{1e-6f});
      for (std::size_t i = 0; i < n; ++i) {
        CHECK(std::fabs(y[t * n + i] - expected[i]) <= 1e-6 * (std::fabs(expected[i]) + 1e-6));
      }
    }
  }
  // The epsilon alone keeps a row of zeros from dividing by zero.
  const std::vector<float> zeros(32, 0.0f), ones(32, 1.0f);
  std::vector<float> y(32, NAN);
  oracle::rmsnorm(zeros.data(), ones.data(), 1e-6f, 1, 32, y.data());
  CHECK(y == zeros);
}

TEST_CASE("rope turns element i with element i + head_dim/2") {
  Random random(4);
  for (const std::uint32_t head_dim : {8u, 64u, 80u, 128u}) {
    const RopeTable table(head_dim, 1e6, 600);
    const std::size_t n = 3 * head_dim;
    std::vector<float> x = random.numbers(2 * n);
    std::vector<Vec> expected = {as_double(&x[0], n), as_double(&x[n], n)};
    plain_rope(expected[0], head_dim, 1e6, 500);
    plain_rope(expected[1], head_dim, 1e6, 501);
    oracle::rope(x.data(), table, 500, 2, 3);
    for (std::size_t i = 0; i < 2 * n; ++i) {
      CHECK(std::fabs(x[i] - expected[i / n][i % n]) <= 3e-7);
    }
  }
}

TEST_CASE("attention sees its own position and all before, in groups of heads") {
  Random random(5);
  for (const std::uint32_t head_dim : {16, 64, 80, 128}) {
    for (const std::uint32_t group : {1, 2, 3, 6, 7, 8}) {
      CAPTURE(head_dim, group);
      const AttentionShape shape = {2 * group, 2, head_dim};
      const std::size_t d_q = shape.n_heads * head_dim, d_kv = 2 * head_dim, n = 45, first = 40;
      const std::vector<float> q = random.numbers((n - first) * d_q, 3.0f);
      const std::vector<float> k = random.numbers(n * d_kv), v = random.numbers(n * d_kv);

      ThreadPool pool(1);
      std::vector<float> y(q.size(), NAN);
      oracle::attention(shape, q.data(), k.data(), v.data(), first, n - first, y.data(), pool);
      std::vector<Vec> keys, values;
      for (std::size_t s = 0; s < n; ++s) {
        keys.push_back(as_double(&k[s * d_kv], d_kv));
        values.push_back(as_double(&v[s * d_kv], d_kv));
        if (s < first) continue;
        const Vec expected = plain_attention(as_double(&q[(s - first) * d_q], d_q), keys, values,
                                             shape.n_heads, 2, head_dim);
        for (std::size_t i = 0; i < d_q; ++i) {
          CHECK(std::fabs(y[(s - first) * d_q + i] - expected[i]) <= 2e-6);
        }
      }

      for (const unsigned threads : {2, 3, 7}) {
        ThreadPool team(threads);
        std::vector<float> alone(q.size(), NAN);
        for (std::size_t t = 0; t < n - first; ++t) {
          oracle::attention(shape, &q[t * d_q], k.data(), v.data(),
                            static_cast<std::uint32_t>(first + t), 1, &alone[t * d_q], team);
        }
        REQUIRE(alone == y);
      }
    }
  }
}

TEST_CASE("softmax of large and of equal scores") {
  std::vector<float> large = {1000.0f, 1000.0f, -1000.0f};
  oracle::softmax(large.data(), 3);
  CHECK(large == std::vector<float>{0.5f, 0.5f, 0.0f});
  std::vector<float> one = {-3.0e38f};
  oracle::softmax(one.data(), 1);
  CHECK(one[0] == 1.0f);
}

TEST_CASE("swiglu and add") {
  Random random(6);
  const std::vector<float> gate = random.numbers(1000, 20.0f), up = random.numbers(1000);
  std::vector<float> y(1000);
  oracle::swiglu(gate.data(), up.data(), 1000, y.data());
  for (std::size_t i = 0; i < 1000; ++i) {
    const double expected = plain_silu(gate[i]) * up[i];
    CHECK(std::fabs(y[i] - expected) <= 4e-7 * std::fabs(expected));
  }
  std::vector<float> x = gate;
  oracle::add(x.data(), up.data(), 1000);
  for (std::size_t i = 0; i < 1000; ++i) REQUIRE(x[i] == gate[i] + up[i]);
}

TEST_CASE("argmax: the lower id among equals, and the lead over the second") {
  const auto of = [](const std::vector<float>& logits) {
    return oracle::argmax(logits.data(), logits.size());
  };
  CHECK(of({1, 5, 3, 5, 2}).id == 1);
  CHECK(of({1, 5, 3, 5, 2}).margin == 0);
  CHECK(of({1, 5, 3}).id == 1);
  CHECK(of({1, 5, 3}).margin == 2);
  CHECK(of({5, 3, 4.5f}).margin == 0.5f);
  CHECK(of({-1, -2}).id == 0);
  CHECK(of({-1, -2}).margin == 1);
  CHECK(of({7}).margin == kInfinity);
  CHECK(of({NAN, 2, NAN, 1}).id == 1);
  CHECK(of({NAN, 2, NAN, 1}).margin == 1);
  CHECK(of({NAN, NAN}).id == -1);
  CHECK_THROWS_AS(require_token(of({NAN, NAN})), std::runtime_error);
  CHECK_NOTHROW(require_token(of({NAN, 2})));
}

}  // namespace
}  // namespace minfer::test
