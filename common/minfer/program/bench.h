// SPDX-License-Identifier: MIT
//
// Timing an engine as llama-bench times llama.cpp: the same tests under the same names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <minfer/engine.h>

namespace minfer {

struct Arguments;

/// What to measure. Every prompt length and every number of new tokens is a test at every depth; a
/// zero in `n_prompt` or `n_gen` is no test.
struct BenchPlan {
  std::vector<std::uint32_t> n_prompt = {512};  ///< -p
  std::vector<std::uint32_t> n_gen = {128};     ///< -n
  std::vector<std::uint32_t> depth = {0};       ///< -d: tokens consumed before the clock starts
  std::uint32_t repetitions = 5;                ///< -r
  bool warm_up = true;                          ///< run once, untimed, before the samples
  bool json = false;                            ///< one JSON object a test, else a table
  bool breakdown = false;                       ///< after a decode test, its step by kernel
  bool stream = false;                          ///< measure the CPU's memory instead of an engine
};

/// One test: a prompt of n_prompt tokens, or n_gen decode steps, after `depth` tokens.
struct BenchTest {
  std::uint32_t n_prompt = 0;  ///< 0: a decode test
  std::uint32_t n_gen = 0;     ///< 0: a prompt test
  std::uint32_t depth = 0;

  std::uint32_t tokens() const { return n_prompt + n_gen; }
  /// The positions of context that it needs.
  std::uint32_t positions() const;
  /// The position of its first token: a decode test starts from the prediction of one before.
  std::uint32_t first() const { return n_gen > 0 && depth == 0 ? 1 : depth; }
  /// The position where time_kernels() takes a step of a decode test apart.
  std::uint32_t middle() const { return first() + n_gen / 2; }
  /// llama-bench's name: "pp512", "tg128", "tg128 @ d1024".
  std::string name() const;
};

/// The tests of a plan, in llama-bench's order: depth by depth, prompts before decoding.
std::vector<BenchTest> bench_tests(const BenchPlan& plan);

/// The first n tokens of the sequence that every measurement reads, on every machine: id i is the
/// upper half of x_i, modulo n_tokens, with x_0 = 1 and x_(i+1) = 6364136223846793005 x_i +
/// 1442695040888963407 modulo 2^64 (Knuth's MMIX generator).
std::vector<Token> bench_tokens(std::size_t n, std::uint32_t n_tokens);

/// How often a step is taken apart, or timed.
inline constexpr std::uint32_t kBreakdownPasses = 15;

/// Seconds of steps of one token, of two, and so on, a value a pass.
using StepTimes = std::vector<std::vector<double>>;

/// a + b T, which is nearest to the medians of steps of T tokens, by least squares; b is 0 where
/// there is one step.
struct StepFit {
  double a = 0, b = 0;
};
/// @pre times are not empty
StepFit fit(const StepTimes& times);

/// What a step of a decode test reads, averaged over the test's positions.
/// @see Engine::bytes_per_token
double mean_bytes_per_token(const Engine& engine, const BenchTest& test);

/// Microseconds of one launch of an empty kernel, and of a kernel's launches beyond as many empty
/// ones: medians of the passes, never below zero.
double empty_kernel_us(const StepCost& cost);
double kernel_us(const StepCost& cost, const KernelCost& kernel);

/// Runs tests on an engine. The tokens before a test's clock starts are read once: what an earlier
/// run left of them in the KV cache is kept, which gives the same bits.
class BenchRunner {
 public:
  /// @param n_tokens  the model's real tokens. The engine must outlive the runner.
  BenchRunner(Engine& engine, std::uint32_t n_tokens) : engine_(engine), n_tokens_(n_tokens) {}

  /// Runs a test once. A prompt test is timed from prefill's call to the moment its prediction is
  /// on the host; a decode test is timed over exactly n_gen steps, from the prediction that the
  /// tokens before left (of `depth` tokens, one at depth 0) to the last step's own.
  /// @return nanoseconds; none when Ctrl-C stopped it
  /// @throws std::runtime_error when the engine made fewer tokens than asked for
  std::optional<std::int64_t> run(const BenchTest& test);

  /// The step in the middle of a decode test, kernel by kernel. It needs kBreakdownPasses + 1
  /// positions of context behind the test's.
  /// @return none when Ctrl-C stopped it
  /// @throws UsageError when the engine has no kernels
  std::optional<StepCost> time_kernels(const BenchTest& test);

  /// Steps of one token and more, where time_kernels() takes one apart. @see Engine::time_steps
  /// @return none when Ctrl-C stopped it
  std::optional<StepTimes> time_steps(const BenchTest& test);

 private:
  /// Brings the engine to `position`, its prediction there read. @return whether Ctrl-C let it
  bool go_to(std::uint32_t position);
  /// Decodes n tokens, the first of which is the prediction that is there already.
  /// @return whether Ctrl-C let it
  bool decode(std::uint32_t n);

  Engine& engine_;
  std::uint32_t n_tokens_;
  std::uint32_t read_ = 0;  ///< how far the KV cache holds bench_tokens()
};

/// The middle value, or the mean of the two in the middle. @pre samples not empty
double median(std::vector<double> samples);

/// A text as a JSON string, with its quotes; what is not ASCII passes as it is.
std::string json_string(const std::string& text);

/// `PROGRAM bench`: results to standard output as they come, progress to standard error.
/// @return the exit status @throws UsageError @throws FileError @throws std::runtime_error
int run_bench(const Arguments& arguments, const EngineInfo& info, EngineFactory make_engine);

}  // namespace minfer
