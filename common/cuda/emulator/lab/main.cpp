// SPDX-License-Identifier: MIT
//
// A chapter's engine in the lab: a step of one token behind a prompt, its launches counted; or a
// prompt of one step and that step, checked for races. As JSON, for `./minfer lab`.
//   lab-SLUG MODEL                  names the launches of the step
//   lab-SLUG MODEL count [KERNEL N] counts all launches of it, or the N-th of a kernel, from 1 on
//   lab-SLUG MODEL check [KERNEL]   checks all launches, or those of a kernel
// A kernel that the step does not launch is looked for in steps with other options of the engine.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>

#include "cuda/emulator/fault.h"
#include "cuda/emulator/lab/lab.h"
#include "cuda/step_cost.h"

namespace minfer {
namespace {

constexpr std::uint32_t kPrompt = 32;  ///< tokens before the step that is counted
constexpr std::uint32_t kStep = 8;     ///< tokens: as many as a step carries

/// "gemv" of "gemv<Q4_0>".
std::string without_arguments(const std::string& name) {
  return name.substr(0, name.find('<'));
}

bool is_called(const void* kernel, const std::string& name) {
  const std::string whole = short_kernel_name(kernel_name(kernel));
  return name == whole || name == without_arguments(whole);
}

/// Which launches are looked at, while it is open.
class Choice {
 public:
  Choice(emulator::Lab::Task task, std::string kernel, int launch)
      : task_(task), kernel_(std::move(kernel)), launch_(launch) {}

  void open() { is_open_ = true; }

  /// Whether the kernel was launched, open or not.
  bool has_seen() const { return has_seen_; }

  emulator::Lab::Task operator()(const emulator::KernelCall& call) {
    if (!is_open_ && has_seen_) return emulator::Lab::Task::nothing;
    const bool is_named = kernel_.empty() || is_called(call.function(), kernel_);
    has_seen_ = has_seen_ || is_named;
    const bool is_its_turn = is_open_ && is_named && (launch_ == 0 || ++launches_ == launch_);
    return is_its_turn ? task_ : emulator::Lab::Task::nothing;
  }

 private:
  const emulator::Lab::Task task_;
  const std::string kernel_;
  const int launch_;
  int launches_ = 0;
  bool has_seen_ = false;
  bool is_open_ = false;
};

/// Tokens that differ.
std::vector<Token> some_tokens(std::uint32_t n) {
  std::vector<Token> ids;
  for (std::uint32_t i = 0; i < n; ++i) ids.push_back(static_cast<Token>(10 + i));
  return ids;
}

/// The engine's options as they are, or the first other choice of one of them with which a step
/// launches the kernel.
EngineOptions options_for(const Model& model, const std::string& kernel, const Choice& choice) {
  EngineOptions options;
  options.context = kPrompt + 8;
  std::vector<std::map<std::string, int>> all(1);
  for (const EngineOption& option : engine_info().options) {
    for (const int value : option.choices) all.push_back({{option.name, value}});
  }
  for (const auto& values : all) {
    options.values = values;
    if (kernel.empty()) return options;
    try {
      make_engine(model, options)->prefill(some_tokens(1));
    } catch (const std::exception&) {
      if (!choice.has_seen()) throw;  // else it is what is looked for, and is found again
    }
    if (choice.has_seen()) return options;
  }
  throw std::runtime_error("no step launches a kernel " + kernel);
}

void run(const Model& model, const EngineOptions& options, Choice& choice, bool with_prompt) {
  const auto engine = make_engine(model, options);
  if (with_prompt) choice.open();
  engine->prefill(some_tokens(with_prompt ? kStep : kPrompt));
  choice.open();
  engine->decode(2, [](Token) { return true; });  // the first is known
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  using namespace minfer;
  const std::string what = argc > 2 ? argv[2] : "";
  const bool counts = what == "count" && (argc == 3 || argc == 5);
  const bool checks = what == "check" && argc <= 4;
  if (argc != 2 && !counts && !checks) {
    std::fprintf(stderr, "usage: %s MODEL [count [KERNEL N] | check [KERNEL]]\n", argv[0]);
    return 2;
  }
  using Task = emulator::Lab::Task;
  const Task task = counts ? Task::count : checks ? Task::check : Task::name;
  const std::string kernel = argc > 3 ? argv[3] : "";
  Choice choice(task, kernel, argc == 5 ? std::atoi(argv[4]) : 0);
  emulator::Lab lab([&](const emulator::KernelCall& call) { return choice(call); });
  std::string fault;
  try {
    ModelOptions options;
    options.requantize_matrices = engine_info().requantizes;
    const Model model = Model::load(argv[1], options);
    run(model, options_for(model, kernel, choice), choice, checks);
  } catch (const emulator::Fault& found) {
    fault = found.what();
  } catch (const std::exception& error) {
    if (!checks) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    fault = std::string("the engine stops: ") + error.what();
  }
  lab.print(stdout, fault);
  return 0;
}
