// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>
#include <minfer/program/arguments.h>
#include <minfer/text/chat.h>
#include <minfer/text/tokenizer.h>

namespace minfer {

/// A loaded model with its engine, and what the commands do with them. Every command returns the
/// exit status. @throws FileError @throws UsageError @throws OutputError @throws ReaderGone
/// @throws std::runtime_error
class Session {
 public:
  /// Loads the model and makes the engine; says on standard error what was loaded.
  Session(const Arguments& arguments, const EngineInfo& info, EngineFactory make_engine);

  int run();      ///< answers one prompt
  int teacher();  ///< forces ids, prints predictions and the logits hash
  int chat();     ///< a conversation
  int dump();     ///< prints an intermediate

 private:
  /// How an answer ended.
  enum class Stop { kEndOfTurn, kCount, kContext, kInterrupted };
  struct Answer {
    std::vector<Token> ids;  ///< the stop token included
    std::string text;
    Stop stop = Stop::kEndOfTurn;
    double seconds = 0;       ///< from the first token to the last
    std::uint64_t steps = 0;  ///< for the tokens after the first; 0: one a token
  };

  std::vector<Token> prompt_ids() const;
  /// A conversation after the system message, by the model's template.
  std::vector<Token> chat_ids(std::vector<Message> messages) const;
  /// What the command would refuse, before an engine takes seconds and memory. @throws UsageError
  void check_prompt() const;
  void require_room(std::size_t n_ids) const;
  /// Consumes ids in pieces of about half a second, so that Ctrl-C is heard in between.
  /// @return false when it was
  bool feed(Span<const Token> ids);
  /// Decodes up to n tokens, writing each to standard output as it comes.
  Answer answer(std::uint32_t n);
  int chat_turn(std::vector<Message>& messages, std::vector<Token>& consumed);
  void say_figures(std::size_t n_prompt, double prompt_seconds, const Answer& answer) const;
  void say(const std::string& line) const;

  double start_;  ///< when loading began
  const Arguments& arguments_;
  const EngineInfo& info_;
  Model model_;
  Tokenizer tokenizer_;
  std::uint32_t context_;
  std::vector<Token> prompt_;  ///< of run, teacher and dump
  std::unique_ptr<Engine> engine_;
};

}  // namespace minfer
