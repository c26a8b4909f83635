// SPDX-License-Identifier: MIT
//
// gemv: every weight type, one token and many, any number of threads.
#include <cmath>
#include <vector>

#include "catch.h"
#include "matrices.h"
#include "oracle/ops.h"

namespace minfer::test {
namespace {

std::vector<float> gemv(const Matrix& w, const float* bias, const std::vector<float>& x,
                        std::size_t n_tokens, unsigned threads = 1) {
  ThreadPool pool(threads);
  std::vector<float> y(n_tokens * w.rows, NAN);
  oracle::gemv(w, bias, x.data(), n_tokens, y.data(), pool);
  return y;
}

TEST_CASE("gemv is the product of dequantized weights and x") {
  for (const TensorType type : all_types()) {
    CAPTURE(type_name(type));
    Random random(1);
    const OwnedMatrix w(type, 21, 512, random);
    const std::vector<float> bias = random.numbers(21), x = random.numbers(512);
    const std::vector<float> values = dequantized(w.matrix);
    for (const bool biased : {false, true}) {
      const float* b = biased ? bias.data() : nullptr;
      const Vec expected = plain_gemv(w.matrix, b, as_double(x.data(), x.size()));
      const std::vector<float> y = gemv(w.matrix, b, x, 1);
      for (std::size_t r = 0; r < y.size(); ++r) {
        double magnitude = 1;
        for (std::size_t k = 0; k < 512; ++k) magnitude += std::fabs(values[r * 512 + k] * x[k]);
        // 16 products a lane and five additions of lanes, each within half an ulp of the sum.
        CHECK(std::fabs(y[r] - expected[r]) <= 22 * 0x1p-24 * magnitude);
      }
    }
  }
}

TEST_CASE("weights are dequantized to the bits of dequantize_row") {
  // Multiplied with the unit vectors, a row gives its weights back one by one, exactly.
  for (const TensorType type : all_types()) {
    CAPTURE(type_name(type));
    Random random(2);
    const std::size_t n = 256;
    const OwnedMatrix w(type, 5, n, random);
    const std::vector<float> values = dequantized(w.matrix);
    std::vector<float> units(n * n);
    for (std::size_t k = 0; k < n; ++k) units[k * n + k] = 1;
    const std::vector<float> together = gemv(w.matrix, nullptr, units, n);
    for (std::size_t k = 0; k < n; ++k) {
      const std::vector<float> unit(units.begin() + k * n, units.begin() + (k + 1) * n);
      const std::vector<float> alone = gemv(w.matrix, nullptr, unit, 1);
      for (std::size_t r = 0; r < 5; ++r) {
        REQUIRE(alone[r] == values[r * n + k]);
        REQUIRE(together[k * 5 + r] == values[r * n + k]);
      }
    }
  }
}

TEST_CASE("a token's product has the same bits in any batch and with any number of threads") {
  for (const TensorType type : all_types()) {
    CAPTURE(type_name(type));
    Random random(3);
    const OwnedMatrix w(type, 53, 768, random);  // 53 rows: three panels and a part of one
    const std::vector<float> bias = random.numbers(53);
    for (const std::size_t n_tokens : {2, 3, 4, 13}) {
      const std::vector<float> x = random.numbers(n_tokens * 768);
      const std::vector<float> together = gemv(w.matrix, bias.data(), x, n_tokens);
      for (const unsigned threads : {2, 3, 7}) {
        REQUIRE(gemv(w.matrix, bias.data(), x, n_tokens, threads) == together);
      }
      for (std::size_t t = 0; t < n_tokens; ++t) {
        const std::vector<float> one(x.begin() + t * 768, x.begin() + (t + 1) * 768);
        const std::vector<float> alone = gemv(w.matrix, bias.data(), one, 1, 2);
        const std::vector<float> row(together.begin() + t * 53, together.begin() + (t + 1) * 53);
        REQUIRE(alone == row);
      }
    }
  }
}

TEST_CASE("a NaN in x reaches every row, and only its own token") {
  Random random(4);
  const OwnedMatrix w(TensorType::kQ4_0, 8, 64, random);
  std::vector<float> x = random.numbers(2 * 64);
  x[64 + 5] = NAN;
  const std::vector<float> y = gemv(w.matrix, nullptr, x, 2);
  for (std::size_t r = 0; r < 8; ++r) {
    CHECK(std::isfinite(y[r]));
    CHECK(std::isnan(y[8 + r]));
  }
}

}  // namespace
}  // namespace minfer::test
