// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <minfer/engine.h>
#include <minfer/program/bench.h>
#include <minfer/text/tokenizer.h>

namespace minfer {

/// The command line or the environment asks for something that can't be: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Command { kRun, kChat, kTokenize, kDetokenize, kDump, kBench };

/// A command line, parsed and checked as far as that goes without the model.
struct Arguments {
  Command command = Command::kRun;
  std::string model;                      ///< the GGUF file's path
  EngineOptions engine;                   ///< `context` is set once the model is known
  std::optional<std::uint32_t> context;   ///< -c
  std::optional<std::uint32_t> n;         ///< -n: new tokens; none: to the end of turn or context
  std::optional<std::uint32_t> teacher;   ///< how many of the ids are the prompt
  std::optional<std::string> text;        ///< the prompt, or what to tokenize; "-" was read
  std::optional<std::vector<Token>> ids;  ///< prompt ids, or what to detokenize
  std::optional<std::string> system;      ///< the system message
  bool raw = false;                       ///< no chat template
  bool special = false;                   ///< control tokens' names in plain text are tokens
  bool print_ids = false;                 ///< ids instead of text
  bool ignore_eos = false;                ///< do not stop at the end of turn
  bool requantize = false;                ///< matrices to Q4_0, as the GPU engines have them
  bool no_mmap = false;                   ///< read the file instead of mapping it
  std::string op;                         ///< dump: the intermediate to stop after
  std::uint32_t layer = 0;                ///< dump: in which layer
  std::string output;                     ///< dump, --logits: an .npy file; empty: none
  BenchPlan bench;                        ///< bench: what to measure
};

/// Parses a command line. Help and version are printed to standard output.
/// @return the arguments, or the exit status when there is nothing to do
/// @throws UsageError with one line on what is wrong
std::variant<Arguments, int> parse_arguments(int argc, char** argv, const EngineInfo& info);

/// Token ids in a text, separated by spaces, commas or line ends.
/// @throws UsageError naming `what` and the word that is none
std::vector<Token> parse_ids(std::string_view what, std::string_view text);

}  // namespace minfer
