// SPDX-License-Identifier: MIT
#include <minfer/program/bench.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include <minfer/gguf/model.h>
#include <minfer/program/arguments.h>
#include <minfer/program/build_settings.h>
#include <minfer/program/exit_status.h>
#include <minfer/program/memory_reads.h>
#include <minfer/program/terminal.h>
#include <minfer/span.h>

namespace minfer {
namespace {

constexpr std::size_t kStreamBytes = std::size_t{1} << 30;  // larger than any cache

std::int64_t nanoseconds_now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

/// The most memory that was resident at once, in bytes; pages of the mapped model count.
std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

double tokens_per_second(const BenchTest& test, double nanoseconds) {
  return test.tokens() * 1e9 / nanoseconds;
}

double stream_gb_per_s(double nanoseconds) {
  return static_cast<double>(kStreamBytes) / nanoseconds;
}

std::string number(double value, const char* format = "%.6g") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string joined(const std::vector<std::int64_t>& samples) {
  std::string text;
  for (const std::int64_t sample : samples) {
    text += (text.empty() ? "" : ", ") + std::to_string(sample);
  }
  return text;
}

std::string joined(const std::vector<double>& samples) {
  std::string text;
  for (const double sample : samples) text += (text.empty() ? "" : ", ") + number(sample, "%.3f");
  return text;
}

double median_ns(const std::vector<std::int64_t>& samples) {
  return median({samples.begin(), samples.end()});
}

std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

/// What is measured: everything that the tests of one program have in common.
struct Subject {
  const Arguments& arguments;
  const EngineInfo& info;
  const Model& model;
  Engine& engine;
  BenchRunner& runner;

  void say(const std::string& line) const {
    std::fprintf(stderr, "%s: %s\n", info.name.c_str(), line.c_str());
  }
};

std::string build_json() {
  std::string settings;
  for (const auto& [name, value] : build_settings()) {
    settings += (settings.empty() ? "" : ", ") + json_string(name) + ": " + json_string(value);
  }
  return "{" + settings + "}";
}

std::string breakdown_json(const StepCost& cost, std::uint32_t position) {
  std::string kernels;
  for (const KernelCost& kernel : cost.kernels) {
    kernels += (kernels.empty() ? "" : ", ") + std::string("{\"kernel\": ") +
               json_string(kernel.kernel) + ", \"launches\": " + std::to_string(kernel.launches) +
               ", \"bytes\": " + std::to_string(kernel.bytes) + ", \"us\": [" + joined(kernel.us) +
               "]}";
  }
  return "{\"position\": " + std::to_string(position) + ", \"empty_us\": [" +
         joined(cost.empty_us) + "], \"kernels\": [" + kernels + "]}";
}

/// The step by kernel as a table, what is idle in its last row.
std::string breakdown_table(const StepCost& cost, double step_us) {
  std::string text =
      "\n| kernel | launches | us | of the step | MB | GB/s |\n"
      "|---|---:|---:|---:|---:|---:|\n";
  double busy = 0, events = 0;
  std::uint32_t launches = 0;
  const auto row = [&](const std::string& name, std::uint32_t n, double us,
                       const std::string& rest) {
    text += "| " + name + " | " + std::to_string(n) + " | " + number(us, "%.1f") + " | " +
            number(100 * us / step_us, "%.1f") + " % | " + rest + " |\n";
  };
  for (const KernelCost& kernel : cost.kernels) {
    const double us = kernel_us(cost, kernel);
    const auto bytes = static_cast<double>(kernel.bytes);
    row(kernel.kernel, kernel.launches, us,
        number(bytes / 1e6, "%.3f") + " | " + (us > 0 ? number(bytes / us / 1e3, "%.1f") : ""));
    busy += us;
    events += median(kernel.us);
    launches += kernel.launches;
  }
  row("idle: launches, and the host", launches, step_us - busy, " | ");
  row("the step", launches, step_us, " | ");
  return text + "\nWith an event behind each kernel the step takes " + number(events, "%.1f") +
         " us. An empty kernel takes " + number(empty_kernel_us(cost), "%.2f") +
         " us so, which is taken off each launch.\n\n";
}

std::string steps_json(const StepTimes& times, std::uint32_t position) {
  std::string steps;
  for (std::vector<double> us : times) {
    for (double& value : us) value *= 1e6;
    steps += (steps.empty() ? "[" : ", [") + joined(us) + "]";
  }
  const StepFit line = fit(times);
  return "{\"position\": " + std::to_string(position) + ", \"us\": [" + steps + "], \"fit_us\": [" +
         joined(std::vector<double>{line.a * 1e6, line.b * 1e6}) + "]}";
}

/// What a step takes by its tokens, as a table.
std::string steps_table(const StepTimes& times) {
  std::string text =
      "\n| tokens a step | us | in tokens alone | us a token |\n|---:|---:|---:|---:|\n";
  const double one = median(times[0]);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double step = median(times[i]), n = static_cast<double>(i + 1);
    text += "| " + std::to_string(i + 1) + " | " + number(step * 1e6, "%.1f") + " | " +
            number(step / one, "%.2f") + " | " + number(step / n * 1e6, "%.1f") + " |\n";
  }
  const StepFit line = fit(times);
  return text + "\nA step of T tokens takes about " + number(line.a * 1e6, "%.1f") + " + " +
         number(line.b * 1e6, "%.1f") + " T us.\n\n";
}

std::string json_line(const Subject& s, const BenchTest& test,
                      const std::vector<std::int64_t>& samples, const std::optional<StepCost>& cost,
                      const std::optional<StepTimes>& steps) {
  const double middle = median_ns(samples);
  return "{\"test\": " + json_string(test.name()) +
         ", \"n_prompt\": " + std::to_string(test.n_prompt) +
         ", \"n_gen\": " + std::to_string(test.n_gen) +
         ", \"n_depth\": " + std::to_string(test.depth) +
         ", \"engine\": " + json_string(s.info.name) +
         ", \"description\": " + json_string(s.engine.describe()) + ", \"build\": " + build_json() +
         ", \"model_file\": " + json_string(file_name(s.arguments.model)) +
         ", \"weights\": " + json_string(s.model.describe()) +
         ", \"bytes_per_token\": " + number(mean_bytes_per_token(s.engine, test), "%.0f") +
         ", \"context\": " + std::to_string(s.engine.context()) +
         ", \"peak_resident_bytes\": " + std::to_string(peak_resident_bytes()) +
         ", \"samples_ns\": [" + joined(samples) + "]" +
         ", \"median_ns\": " + number(middle, "%.1f") +
         ", \"median_ts\": " + number(tokens_per_second(test, middle)) +
         (cost ? ", \"breakdown\": " + breakdown_json(*cost, test.middle()) : "") +
         (steps ? ", \"steps\": " + steps_json(*steps, test.middle()) : "") + "}\n";
}

std::string table_row(const Subject& s, const BenchTest& test,
                      const std::vector<std::int64_t>& samples, const std::optional<StepCost>& cost,
                      const std::optional<StepTimes>& steps) {
  const double ts = tokens_per_second(test, median_ns(samples));
  // Only decoding reads all weights once for every token.
  const double gb_per_s = ts * mean_bytes_per_token(s.engine, test) / 1e9;
  return "| " + s.info.name + " | " + file_name(s.arguments.model) + " | " + test.name() + " | " +
         number(ts, "%.2f") + " | " + (test.n_gen > 0 ? number(gb_per_s, "%.1f") : "") + " |\n" +
         (cost ? breakdown_table(*cost, 1e6 / ts) : "") + (steps ? steps_table(*steps) : "");
}

/// Warms up and takes a test's samples. @return none when Ctrl-C stopped it
std::optional<std::vector<std::int64_t>> take_samples(const Subject& s, const BenchTest& test) {
  const BenchPlan& plan = s.arguments.bench;
  std::vector<std::int64_t> samples;
  if (plan.warm_up) {
    s.say(test.name() + ": warming up");
    if (!s.runner.run(test)) return std::nullopt;
  }
  while (samples.size() < plan.repetitions) {
    const std::optional<std::int64_t> taken = s.runner.run(test);
    if (!taken) return std::nullopt;
    samples.push_back(*taken);
    s.say(test.name() + ": " + std::to_string(samples.size()) + " of " +
          std::to_string(plan.repetitions) + ", " +
          number(tokens_per_second(test, static_cast<double>(*taken)), "%.2f") + " tok/s");
  }
  return samples;
}

bool times_steps(const Arguments& arguments) {
  return arguments.engine.value("BENCHT", 0) == 1;
}

/// The context that the tests need, or the larger one that was asked for.
std::uint32_t wanted_context(const Arguments& arguments, const Model& model) {
  std::uint32_t needed = 0;
  for (const BenchTest& test : bench_tests(arguments.bench)) {
    const bool apart = (arguments.bench.breakdown || times_steps(arguments)) && test.n_gen > 0;
    needed = std::max(needed, test.positions() + (apart ? kBreakdownPasses + 1 : 0));
  }
  const std::uint32_t limit = model.config().context_length;
  const std::uint32_t context = arguments.context.value_or(needed);
  if (needed > std::min(context, limit)) {
    throw UsageError("the tests need a context of " + std::to_string(needed) + ", found " +
                     (context < needed ? "-c " + std::to_string(context)
                                       : "a model whose limit is " + std::to_string(limit)));
  }
  return std::min(context, limit);
}

int run_stream(const Arguments& arguments, const EngineInfo& info) {
  const BenchPlan& plan = arguments.bench;
  std::fprintf(stderr, "%s: reading %zu MiB of memory, %u times\n", info.name.c_str(),
               kStreamBytes >> 20, plan.repetitions);
  const std::vector<std::int64_t> samples =
      time_memory_reads(kStreamBytes, arguments.engine.threads, plan.repetitions);
  const double gb_per_s = stream_gb_per_s(median_ns(samples));
  write_output(plan.json ? "{\"test\": \"stream\", \"bytes\": " + std::to_string(kStreamBytes) +
                               ", \"samples_ns\": [" + joined(samples) +
                               "], \"median_gb_per_s\": " + number(gb_per_s) + "}\n"
                         : "memory reads: " + number(gb_per_s, "%.1f") + " GB/s\n");
  return kDone;
}

}  // namespace

std::uint32_t BenchTest::positions() const {
  // A decode test needs a prediction to start from, and its last step's token a place.
  return first() + tokens();
}

std::string BenchTest::name() const {
  const std::string what =
      n_prompt > 0 ? "pp" + std::to_string(n_prompt) : "tg" + std::to_string(n_gen);
  return depth > 0 ? what + " @ d" + std::to_string(depth) : what;
}

std::vector<BenchTest> bench_tests(const BenchPlan& plan) {
  std::vector<BenchTest> tests;
  for (const std::uint32_t depth : plan.depth) {
    for (const std::uint32_t n : plan.n_prompt) {
      if (n > 0) tests.push_back({n, 0, depth});
    }
    for (const std::uint32_t n : plan.n_gen) {
      if (n > 0) tests.push_back({0, n, depth});
    }
  }
  return tests;
}

std::vector<Token> bench_tokens(std::size_t n, std::uint32_t n_tokens) {
  std::vector<Token> ids(n);
  std::uint64_t x = 1;
  for (Token& id : ids) {
    id = static_cast<Token>((x >> 32) % n_tokens);
    x = x * 6364136223846793005U + 1442695040888963407U;
  }
  return ids;
}

std::optional<std::int64_t> BenchRunner::run(const BenchTest& test) {
  const std::uint32_t before = test.first();
  const std::vector<Token> ids = bench_tokens(before + test.n_prompt, n_tokens_);
  if (!go_to(before)) return std::nullopt;
  const std::int64_t start = nanoseconds_now();
  if (test.n_prompt > 0) {
    engine_.prefill(Span<const Token>(ids).subspan(before, test.n_prompt));
    read_ += test.n_prompt;
  }
  // The first token was predicted already, so n + 1 tokens take n steps.
  if (!decode(test.n_gen + 1)) return std::nullopt;
  return nanoseconds_now() - start;
}

std::optional<StepCost> BenchRunner::time_kernels(const BenchTest& test) {
  if (!go_to(test.middle())) return std::nullopt;
  std::optional<StepCost> cost = engine_.time_kernels(kBreakdownPasses);
  if (!cost) throw UsageError("--breakdown: " + engine_.describe() + " has no kernels to time");
  return cost;
}

std::optional<StepTimes> BenchRunner::time_steps(const BenchTest& test) {
  if (!go_to(test.middle())) return std::nullopt;
  return engine_.time_steps(kBreakdownPasses);
}

bool BenchRunner::go_to(std::uint32_t position) {
  // The last token is read again in any case, for its prediction.
  const std::uint32_t kept = std::min(read_, std::max(position, 1U) - 1);
  engine_.truncate(kept);
  read_ = position;
  if (position == 0) return true;
  const std::vector<Token> ids = bench_tokens(position, n_tokens_);
  engine_.prefill(Span<const Token>(ids).subspan(kept, position - kept));
  // The prediction is read before the clock starts: whatever was still running is over then.
  return decode(1);
}

bool BenchRunner::decode(std::uint32_t n) {
  std::uint32_t emitted = 0;
  engine_.decode(n, [&](Token) {
    ++emitted;
    return !InterruptGuard::requested();
  });
  if (InterruptGuard::requested()) return false;
  if (emitted != n) {
    throw std::runtime_error("the engine emitted " + std::to_string(emitted) +
                             " tokens, expected " + std::to_string(n));
  }
  return true;
}

double mean_bytes_per_token(const Engine& engine, const BenchTest& test) {
  double sum = 0;
  for (std::uint32_t i = 0; i < test.tokens(); ++i) {
    sum += static_cast<double>(engine.bytes_per_token(test.first() + i));
  }
  return sum / test.tokens();
}

double empty_kernel_us(const StepCost& cost) {
  return median(cost.empty_us);
}

double kernel_us(const StepCost& cost, const KernelCost& kernel) {
  return std::max(0.0, median(kernel.us) - kernel.launches * empty_kernel_us(cost));
}

StepFit fit(const StepTimes& times) {
  const auto n = static_cast<double>(times.size());
  double sum = 0, weighted = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    sum += median(times[i]);
    weighted += median(times[i]) * (static_cast<double>(i + 1) - (n + 1) / 2);
  }
  const double b = n > 1 ? weighted / (n * (n * n - 1) / 12) : 0;
  return {sum / n - b * (n + 1) / 2, b};
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t half = samples.size() / 2;
  if (samples.size() % 2 == 1) return samples[half];
  return (samples[half - 1] + samples[half]) / 2;
}

std::string json_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      result += escape;
    } else {
      result += c;
    }
  }
  return result + "\"";
}

int run_bench(const Arguments& arguments, const EngineInfo& info, EngineFactory make_engine) {
  if (arguments.bench.stream) return run_stream(arguments, info);
  ModelOptions model_options;
  model_options.read_mode = arguments.no_mmap ? ReadMode::kRead : ReadMode::kMap;
  model_options.requantize_matrices = info.requantizes || arguments.requantize;
  const Model model = Model::load(arguments.model, model_options);
  EngineOptions options = arguments.engine;
  options.context = wanted_context(arguments, model);
  std::unique_ptr<Engine> engine;
  {
    const InterruptBlock main_thread_only;
    engine = make_engine(model, options);
  }
  BenchRunner runner(*engine, model.config().n_tokens);
  const Subject subject{arguments, info, model, *engine, runner};
  subject.say(engine->describe() + ", " + model.describe());
  if (!arguments.bench.json) {
    write_output("| engine | model | test | tok/s | GB/s |\n|---|---|---|---:|---:|\n");
  }
  for (const BenchTest& test : bench_tests(arguments.bench)) {
    const std::optional<std::vector<std::int64_t>> samples = take_samples(subject, test);
    if (!samples) return kInterrupted;
    std::optional<StepCost> cost;
    if (arguments.bench.breakdown && test.n_gen > 0) {
      subject.say(test.name() + ": timing the kernels of a step");
      cost = runner.time_kernels(test);
      if (!cost) return kInterrupted;
    }
    std::optional<StepTimes> steps;
    if (times_steps(arguments) && test.n_gen > 0) {
      subject.say(test.name() + ": timing steps of one token and more");
      steps = runner.time_steps(test);
      if (!steps) return kInterrupted;
    }
    write_output(arguments.bench.json ? json_line(subject, test, *samples, cost, steps)
                                      : table_row(subject, test, *samples, cost, steps));
  }
  return kDone;
}

}  // namespace minfer
