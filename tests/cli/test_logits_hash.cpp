// SPDX-License-Identifier: MIT
//
// The logits hash against numbers from another implementation (the xxhash package for Python).
#include <minfer/logits_hash.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "catch.h"

namespace minfer::test {
namespace {

TEST_CASE("the logits hash is XXH64, seed 0, over little-endian floats, row after row") {
  LogitsHash hash;
  CHECK(hash.hex() == "ef46db3751d8e999");  // of nothing
  const float first[] = {1.0f, -2.5f, 0.0f, 3e-40f};
  const float second[] = {-0.0f, 65504.0f, 1e38f, 0.1f};
  hash.add(0, first, 4);
  hash.add(1, second, 4);
  CHECK(hash.rows() == 2);
  CHECK(hash.hex() == "0e5fc49aedda3331");

  LogitsHash swapped;
  swapped.add(0, second, 4);
  swapped.add(1, first, 4);
  CHECK(swapped.value() != hash.value());
}

TEST_CASE("what is no finite number is an error, never hashed") {
  std::vector<float> logits(1000, 0.5f);
  LogitsHash hash;
  hash.add(3, logits.data(), logits.size());
  const std::string before = hash.hex();
  logits[123] = NAN;
  CHECK_THROWS_WITH(hash.add(41, logits.data(), logits.size()),
                    ContainsSubstring("position 41") && ContainsSubstring("token 123 is NaN"));
  for (const float infinite : {INFINITY, -INFINITY}) {
    logits[123] = infinite;
    CHECK_THROWS_WITH(hash.add(41, logits.data(), logits.size()),
                      ContainsSubstring("token 123 is infinite"));
  }
  CHECK(hash.hex() == before);
  CHECK(hash.rows() == 1);
  // The largest numbers are no error.
  logits[123] = std::numeric_limits<float>::max();
  logits[124] = std::numeric_limits<float>::lowest();
  CHECK_NOTHROW(require_finite(0, logits.data(), logits.size()));
}

}  // namespace
}  // namespace minfer::test
