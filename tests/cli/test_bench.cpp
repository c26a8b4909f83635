// SPDX-License-Identifier: MIT
//
// What is timed, on an engine whose clock is a count of steps.
#include <minfer/program/bench.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <minfer/program/memory_reads.h>

#include "catch.h"

namespace minfer::test {
namespace {

constexpr std::uint32_t kTokens = 1000;

/// Counts its calls; a step sleeps, so that what is timed shows.
class CountingEngine : public Engine {
 public:
  explicit CountingEngine(std::uint32_t context, std::chrono::milliseconds step = {})
      : context_(context), step_(step) {}

  std::string describe() const override { return "counting"; }
  std::uint32_t context() const override { return context_; }
  std::uint32_t position() const override { return position_; }
  void truncate(std::uint32_t position) override { position_ = position; }
  void prefill(Span<const Token> ids) override {
    prefills.emplace_back(ids.begin(), ids.end());
    consume(static_cast<std::uint32_t>(ids.size()));
  }
  std::uint32_t decode(std::uint32_t n, const TokenSink& sink) override {
    for (std::uint32_t emitted = 0; emitted < n; ++emitted) {
      if (emitted > 0) {
        if (position_ == context_) return emitted;
        ++steps;
        consume(1);
      }
      if (!sink(7)) return emitted + 1;
    }
    return n;
  }
  void force(Span<const Token>, const LogitsSink&) override {}
  std::uint64_t bytes_per_token(std::uint32_t position) const override {
    return 1000 + 10 * position;
  }

  std::optional<StepCost> time_kernels(std::uint32_t passes) override {
    if (!has_kernels) return std::nullopt;
    timed_at = position_;
    return StepCost{{{"add", 2, 100, std::vector<double>(passes, 9)}}, {2}};
  }

  bool has_kernels = true;
  std::uint32_t timed_at = 0;
  std::vector<std::vector<Token>> prefills;
  std::uint32_t steps = 0;

 private:
  void consume(std::uint32_t n) {
    position_ += n;
    std::this_thread::sleep_for(step_ * n);
  }
  std::uint32_t context_;
  std::chrono::milliseconds step_;
  std::uint32_t position_ = 0;
};

TEST_CASE("a step is taken apart in the middle of its test") {
  CountingEngine engine(100);
  BenchRunner runner(engine, kTokens);
  REQUIRE(runner.time_kernels({0, 8, 0}));
  CHECK(engine.timed_at == 5);  // steps of this test consume positions 1 to 8
  const std::optional<StepCost> cost = runner.time_kernels({0, 8, 20});
  CHECK(engine.timed_at == 24);
  CHECK(cost->kernels[0].us.size() == kBreakdownPasses);
  engine.has_kernels = false;
  CHECK_THROWS_WITH(runner.time_kernels({0, 8, 0}), "--breakdown: counting has no kernels to time");
}

TEST_CASE("a kernel's time is what it takes beyond empty ones") {
  const StepCost cost{{{"add", 2, 0, {9, 1, 8}}, {"rope", 1, 0, {1}}}, {3, 2, 2}};
  CHECK(empty_kernel_us(cost) == 2.0);
  CHECK(kernel_us(cost, cost.kernels[0]) == 4.0);
  CHECK(kernel_us(cost, cost.kernels[1]) == 0.0);
}

TEST_CASE("what a test's step reads is the mean of its positions") {
  const CountingEngine engine(100);
  CHECK(mean_bytes_per_token(engine, {0, 4, 0}) == 1025.0);   // positions 1 to 4
  CHECK(mean_bytes_per_token(engine, {0, 3, 20}) == 1210.0);  // 20 to 22
}

TEST_CASE("tests have llama-bench's names and order") {
  BenchPlan plan;
  plan.n_prompt = {512, 0, 64};
  plan.n_gen = {128};
  plan.depth = {0, 1024};
  std::vector<std::string> names;
  for (const BenchTest& test : bench_tests(plan)) names.push_back(test.name());
  CHECK(names == std::vector<std::string>{"pp512", "pp64", "tg128", "pp512 @ d1024", "pp64 @ d1024",
                                          "tg128 @ d1024"});
}

TEST_CASE("a decode test is exactly n steps, after its depth of tokens") {
  for (const std::uint32_t depth : {0U, 1U, 20U}) {
    const BenchTest test{0, 5, depth};
    CountingEngine engine(test.positions());
    REQUIRE(BenchRunner(engine, kTokens).run(test));
    CHECK(engine.steps == 5);
    REQUIRE(engine.prefills.size() == 1);
    CHECK(engine.prefills[0].size() == (depth == 0 ? 1 : depth));
    CHECK(engine.position() == test.positions());
  }
}

TEST_CASE("what the cache holds of the tokens before is not read again") {
  CountingEngine engine(40);
  BenchRunner runner(engine, kTokens);
  const std::vector<Token> ids = bench_tokens(20, kTokens);
  const auto last = [&] { return engine.prefills.back(); };
  REQUIRE(runner.run({0, 3, 10}));
  REQUIRE(runner.run({0, 3, 10}));  // the tenth again, for its prediction
  CHECK(last() == std::vector<Token>{ids[9]});
  REQUIRE(runner.run({0, 3, 12}));  // what was decoded is no part of the sequence
  CHECK(last() == std::vector<Token>(ids.begin() + 10, ids.begin() + 12));
  REQUIRE(runner.run({8, 0, 4}));
  CHECK(last() == std::vector<Token>(ids.begin() + 4, ids.begin() + 12));
  REQUIRE(runner.run({0, 3, 11}));  // what a prompt test read is
  CHECK(last() == std::vector<Token>{ids[10]});
  REQUIRE(runner.run({6, 0, 0}));
  CHECK(last() == std::vector<Token>(ids.begin(), ids.begin() + 6));
}

TEST_CASE("a prompt test is one prefill after its depth, and no step") {
  const BenchTest test{6, 0, 3};
  CountingEngine engine(test.positions());
  REQUIRE(BenchRunner(engine, kTokens).run(test));
  CHECK(engine.steps == 0);
  REQUIRE(engine.prefills.size() == 2);
  const std::vector<Token> ids = bench_tokens(9, kTokens);
  CHECK(engine.prefills[0] == std::vector<Token>(ids.begin(), ids.begin() + 3));
  CHECK(engine.prefills[1] == std::vector<Token>(ids.begin() + 3, ids.end()));
}

TEST_CASE("the tokens before the clock starts take none of its time") {
  const BenchTest test{0, 2, 40};
  CountingEngine engine(test.positions(), std::chrono::milliseconds(5));
  const std::int64_t taken = BenchRunner(engine, kTokens).run(test).value();
  CHECK(taken >= 10'000'000);
  CHECK(taken < 200'000'000);  // the depth alone takes so long
}

TEST_CASE("an engine that stops early is an error, not a fast one") {
  const BenchTest test{0, 5, 4};
  CountingEngine engine(test.positions() - 1);
  CHECK_THROWS_AS(BenchRunner(engine, kTokens).run(test), std::runtime_error);
}

TEST_CASE("the tokens are the same on every machine") {
  CHECK(bench_tokens(4, 151665) == std::vector<Token>{0, 116188, 120682, 112993});
  CHECK(bench_tokens(2, 1) == std::vector<Token>{0, 0});
}

TEST_CASE("a median is the middle, or between the two in the middle") {
  CHECK(median({5}) == 5.0);
  CHECK(median({9, 1, 5}) == 5.0);
  CHECK(median({4, 1, 9, 5}) == 4.5);
}

TEST_CASE("a text in JSON keeps its characters") {
  CHECK(json_string("a\"b\\c\n\xc3\xa9") == "\"a\\\"b\\\\c\\u000a\xc3\xa9\"");
}

TEST_CASE("memory reads are timed pass by pass") {
  const std::vector<std::int64_t> times = time_memory_reads(1 << 20, 2, 3);
  REQUIRE(times.size() == 3);
  for (const std::int64_t time : times) CHECK(time > 0);
}

}  // namespace
}  // namespace minfer::test
