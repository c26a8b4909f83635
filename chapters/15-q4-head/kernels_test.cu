// SPDX-License-Identifier: MIT
//
// The other kernels against the oracle's functions of the same names, on shapes of the real models
// and on shapes that fill no tile, for one token and for several; and what a launch says that it
// moves against the arrays that it has. [exhaustive]: on a full grid of shapes.
#include <cmath>
#include <vector>

#include "kernel_testing.h"
#include "kernels.cuh"
#include "oracle/ops.h"

namespace minfer {
namespace {

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

TEST_CASE("rmsnorm of more than a block keeps is refused") {
  const TestStep step(1);
  CHECK_THROWS_WITH(launch_rmsnorm(step, nullptr, nullptr, nullptr, 4128, 1e-6f),
                    "rmsnorm: 4128 values, and a block keeps 4096");
}

TEST_CASE("rmsnorm: every width", "[.][exhaustive]") {
  for_each_seed([](Random& random) {
    for (std::uint32_t n = 1; n <= 32 * kThreads; n += n < 2080 ? 1 : 63) check_rmsnorm(n, random);
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
