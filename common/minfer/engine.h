// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <minfer/span.h>
#include <minfer/token.h>

namespace minfer {

class Model;

/// An option of an engine: an environment variable of the specification, and a flag.
struct EngineOption {
  std::string name;          ///< "LMHEAD": the variable; the flag is `--lmhead`
  std::vector<int> choices;  ///< what it can be; empty: any whole number from 1 on
  std::string help;
};

/// What the command line and the environment ask of an engine.
struct EngineOptions {
  std::uint32_t context = 4096;       ///< positions the KV cache holds
  std::uint32_t threads = 0;          ///< CPU threads; 0: usable_cpus()
  std::map<std::string, int> values;  ///< of the options that are set, by EngineOption::name

  /// The option's value, `otherwise` where it is not set.
  int value(const std::string& name, int otherwise) const {
    const auto found = values.find(name);
    return found == values.end() ? otherwise : found->second;
  }
};

/// Greedy argmax over the real tokens: ties go to the lower id.
struct Prediction {
  Token id = -1;
  float margin = 0;  ///< top-1 minus top-2 logit
};

/// Gets the logits of one position: `logits` is [n_tokens] f32 and valid during the call.
using LogitsSink = std::function<void(std::uint32_t position, const float* logits)>;
/// Gets each new token as soon as it is known; decoding goes on while it returns true.
using TokenSink = std::function<bool(Token id)>;

/// A tensor inside a forward pass: `data` is [rows, cols] f32, a row a token, valid during the
/// call.
struct Intermediate {
  std::string_view op;         ///< one of EngineInfo::ops
  std::uint32_t layer = 0;     ///< 0 for what stands outside the layers
  std::uint32_t position = 0;  ///< of the first row's token
  std::size_t rows = 0;
  std::size_t cols = 0;
  const float* data = nullptr;
};
/// Gets the intermediates of a pass in order; the pass goes on while it returns true.
using Probe = std::function<bool(const Intermediate&)>;

/// What the launches of one kernel cost in a decode step.
struct KernelCost {
  std::string kernel;          ///< "rmsnorm", "gemv<Q4_0>"
  std::uint32_t launches = 0;  ///< a step
  std::uint64_t bytes = 0;     ///< what they move at least, as they state it
  /// Microseconds of all its launches, a value a pass; each from the event before it to its own.
  std::vector<double> us;
};

/// A decode step, kernel by kernel.
struct StepCost {
  std::vector<KernelCost> kernels;  ///< in the order of their first launches
  std::vector<double> empty_us;     ///< a launch of an empty kernel, timed alike, a value a pass
};

/// One sequence, decoded greedily: what every chapter implements and the command line drives.
///
/// The engine holds a position (how many tokens its KV cache has) and, once a token was consumed,
/// the prediction for the next.
class Engine {
 public:
  virtual ~Engine() = default;

  /// "oracle (CPU, 2 threads)", "dp4a (NVIDIA H200)": for the line on standard error.
  virtual std::string describe() const = 0;
  virtual std::uint32_t context() const = 0;
  /// Tokens consumed so far.
  virtual std::uint32_t position() const = 0;
  /// Forgets everything from `position` on. @pre position <= position()
  virtual void truncate(std::uint32_t position) = 0;

  /// Consumes a prompt, or more of one. @pre ids not empty, position() + ids.size() <= context()
  virtual void prefill(Span<const Token> ids) = 0;
  /// Emits up to n tokens greedily, the first being the prediction that prefill left. A token is
  /// consumed only when its successor is asked for: after k emitted tokens position() has grown by
  /// k-1. Stops at the context's end. Returns how many were emitted.
  /// @pre position() > 0
  virtual std::uint32_t decode(std::uint32_t n, const TokenSink& sink) = 0;
  /// Consumes ids whatever the engine would have said (teacher forcing), handing over the logits
  /// of every position. Same bits as the same tokens one by one.
  virtual void force(Span<const Token> ids, const LogitsSink& sink) = 0;

  /// Steps that decode() took so far: fewer than the tokens it emitted, where it speculates. 0
  /// where an engine takes one a token and does not count.
  virtual std::uint64_t decode_steps() const { return 0; }

  /// Bytes of weights and of KV cache that the step at `position` reads, as they lie in memory.
  virtual std::uint64_t bytes_per_token(std::uint32_t position) const = 0;
  /// Times the decode step at position(), where everything is afterwards as it was.
  /// @return none where an engine has no kernels
  /// @pre position() > 0, position() + passes < context()
  virtual std::optional<StepCost> time_kernels(std::uint32_t /*passes*/) { return std::nullopt; }
  /// Times steps of one token, of two, and so on to the most that a step carries, each at
  /// position(), where everything is afterwards as it was.
  /// @return seconds, by the step's tokens and then a value a pass; none where steps have one token
  /// @pre position() < context(): what the context has no room for is not timed
  virtual std::vector<std::vector<double>> time_steps(std::uint32_t /*passes*/) { return {}; }

  /// Shows the intermediates of every pass that follows; an empty probe ends that. A call whose
  /// probe stopped a pass leaves position() where it was. Engines that can't show any ignore it,
  /// and list no EngineInfo::ops.
  virtual void set_probe(Probe /*probe*/) {}
};

/// What an engine is called and understands; one a program.
struct EngineInfo {
  std::string name;
  std::vector<EngineOption> options;  ///< those that it has; any other is refused
  /// Names of the intermediates that set_probe() shows, in a pass's order; none: it shows none.
  std::vector<std::string> ops;
  /// The GPU engines' matrices are Q4_0: other types are requantized when the model is loaded.
  bool requantizes = false;
};

/// What a program's engine is called and which options it honours; and the engine, which the model
/// must outlive. Every chapter defines the two. @throws FileError @throws std::runtime_error
EngineInfo engine_info();
std::unique_ptr<Engine> make_engine(const Model& model, const EngineOptions& options);

using EngineFactory = std::unique_ptr<Engine> (*)(const Model& model, const EngineOptions& options);

}  // namespace minfer
