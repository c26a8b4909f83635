// SPDX-License-Identifier: MIT
//
// One hash over the results of every operation. This file is built twice: with the instructions of
// the machine, and with MINFER_PORTABLE_LANES, in plain C++. Both must give the committed hash, as
// must every other compiler and processor.
#include <vector>

#include <minfer/logits_hash.h>

#include "catch.h"
#include "matrices.h"
#include "oracle/ops.h"

namespace minfer::test {
namespace {

std::vector<float> gemv(const Matrix& w, const std::vector<float>& x, std::size_t n_tokens) {
  ThreadPool pool(2);
  std::vector<float> y(n_tokens * w.rows);
  oracle::gemv(w, nullptr, x.data(), n_tokens, y.data(), pool);
  return y;
}

TEST_CASE("every operation has its committed bits") {
  LogitsHash hash;
  const auto add = [&](const std::vector<float>& values) {
    hash.add(static_cast<std::uint32_t>(hash.rows()), values.data(), values.size());
  };
  Random random(2024);
  for (const TensorType type : all_types()) {
    const OwnedMatrix w(type, 37, 1024, random);
    const std::vector<float> x = random.numbers(5 * 1024);
    add(gemv(w.matrix, x, 1));
    add(gemv(w.matrix, x, 5));
  }
  std::vector<float> x = random.numbers(3 * 896, 4.0f), y(x.size());
  oracle::rmsnorm(x.data(), random.numbers(896).data(), 1e-6f, 3, 896, y.data());
  add(y);
  oracle::rope(x.data(), RopeTable(64, 1e6, 2000), 1997, 3, 14);
  add(x);
  const std::vector<float> k = random.numbers(300 * 128), v = random.numbers(300 * 128);
  ThreadPool pool(2);
  oracle::attention({14, 2, 64}, x.data(), k.data(), v.data(), 297, 3, y.data(), pool);
  add(y);
  oracle::swiglu(x.data(), y.data(), x.size(), y.data());
  add(y);
  CHECK(hash.hex() == "8f46451415826186");
}

}  // namespace
}  // namespace minfer::test
