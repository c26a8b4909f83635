// SPDX-License-Identifier: MIT
#include <minfer/program/session.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include <minfer/argmax.h>
#include <minfer/error.h>
#include <minfer/logits_hash.h>
#include <minfer/program/exit_status.h>
#include <minfer/program/npy.h>
#include <minfer/program/terminal.h>
#include <minfer/text/utf8.h>

namespace minfer {
namespace {

constexpr std::uint32_t kDefaultContext = 4096;
constexpr std::uint32_t kUnlimited = std::numeric_limits<std::uint32_t>::max();

double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

/// "37 tokens in 0.52 s (71.2 tok/s)"; n_timed of them took the time.
std::string rate(std::size_t n, double seconds, std::size_t n_timed) {
  char text[96];
  std::snprintf(text, sizeof text, "%zu token%s in %.2f s (%.1f tok/s)", n, n == 1 ? "" : "s",
                seconds, seconds > 0 ? static_cast<double>(n_timed) / seconds : 0.0);
  return text;
}

std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

ModelOptions model_options(const Arguments& arguments, const EngineInfo& info) {
  ModelOptions options;
  options.read_mode = arguments.no_mmap ? ReadMode::kRead : ReadMode::kMap;
  options.requantize_matrices = info.requantizes || arguments.requantize;
  return options;
}

}  // namespace

Session::Session(const Arguments& arguments, const EngineInfo& info, EngineFactory make_engine)
    : start_(now()),
      arguments_(arguments),
      info_(info),
      model_(Model::load(arguments.model, model_options(arguments, info))),
      tokenizer_(model_.file()) {
  const std::uint32_t limit = model_.config().context_length;
  EngineOptions options = arguments.engine;
  options.context = context_ = std::min(arguments.context.value_or(kDefaultContext), limit);
  if (arguments.context && *arguments.context > limit) {
    say("-c " + std::to_string(*arguments.context) + ": the model's limit is " +
        std::to_string(limit) + ", which is used");
  }
  if (arguments.command == Command::kChat) {
    chat_ids({{Role::kUser, "?"}});  // so that a template is refused before an engine is made
  } else {
    prompt_ = prompt_ids();
    check_prompt();
  }
  {
    const InterruptBlock main_thread_only;
    engine_ = make_engine(model_, options);
  }
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f s", now() - start_);
  say(engine_->describe() + ", model " + shown_path(file_name(arguments.model)) + " (" +
      model_.describe() + "), context " + std::to_string(engine_->context()) + ", ready in " +
      seconds);
}

void Session::say(const std::string& line) const {
  std::fprintf(stderr, "%s: %s\n", info_.name.c_str(), line.c_str());
}

// --- prompts and answers -----------------------------------------------------------------------

std::vector<Token> Session::prompt_ids() const {
  if (arguments_.ids) {
    for (const Token id : *arguments_.ids) {
      if (!tokenizer_.is_valid(id)) {
        throw UsageError("token id " + std::to_string(id) + ": the model's tokens are 0 to " +
                         std::to_string(tokenizer_.n_tokens() - 1));
      }
    }
    return *arguments_.ids;
  }
  if (arguments_.raw) {
    return arguments_.special ? tokenizer_.encode_with_specials(*arguments_.text)
                              : tokenizer_.encode(*arguments_.text);
  }
  return chat_ids({{Role::kUser, *arguments_.text}});
}

std::vector<Token> Session::chat_ids(std::vector<Message> messages) const {
  if (arguments_.system) messages.insert(messages.begin(), {Role::kSystem, *arguments_.system});
  return ChatTemplate(model_.file(), tokenizer_).encode(messages);
}

void Session::require_room(std::size_t n_ids) const {
  if (n_ids <= context_) return;
  throw std::runtime_error("the prompt has " + std::to_string(n_ids) + " tokens, the context " +
                           std::to_string(context_) +
                           ": shorten it, or raise -c (the model's limit is " +
                           std::to_string(model_.config().context_length) + ")");
}

void Session::check_prompt() const {
  require_room(prompt_.size());
  if (arguments_.teacher && *arguments_.teacher > prompt_.size()) {
    throw UsageError("--teacher (TEACHER): found " + std::to_string(*arguments_.teacher) +
                     ", but there are only " + std::to_string(prompt_.size()) + " ids");
  }
  if (arguments_.command == Command::kRun && !arguments_.output.empty() && !arguments_.teacher) {
    throw UsageError("--logits: they are those of --teacher, which is not given");
  }
  if (arguments_.command == Command::kDump && arguments_.layer >= model_.config().n_layers) {
    throw UsageError("--layer: found " + std::to_string(arguments_.layer) +
                     ", the model's are 0 to " + std::to_string(model_.config().n_layers - 1));
  }
}

bool Session::feed(Span<const Token> ids) {
  constexpr double kSecondsWanted = 0.5;
  constexpr std::size_t kLeast = 24, kMost = 1024;
  std::size_t piece = kLeast;
  while (!ids.empty()) {
    if (InterruptGuard::requested()) return false;
    const Span<const Token> front = ids.take_front(piece);
    const double start = now();
    engine_->prefill(front);
    const double rate = static_cast<double>(front.size()) / std::max(now() - start, 1e-6);
    piece = std::clamp(static_cast<std::size_t>(rate * kSecondsWanted), kLeast, kMost);
  }
  return !InterruptGuard::requested();
}

Session::Answer Session::answer(std::uint32_t n) {
  Answer result;
  Utf8Stream characters;
  double first = 0, last = 0;
  const std::uint64_t steps_before = engine_->decode_steps();
  const auto write = [&](const std::string& text) {
    result.text += text;
    write_output(text);
  };
  engine_->decode(n, [&](Token id) {
    last = now();
    if (result.ids.empty()) first = last;
    const bool end = tokenizer_.is_stop(id) && !arguments_.ignore_eos;
    if (arguments_.print_ids) {
      write_output((result.ids.empty() ? "" : " ") + std::to_string(id));
    } else if (!end) {
      write(characters.push(tokenizer_.bytes(id)));
    }
    result.ids.push_back(id);
    if (InterruptGuard::requested()) result.stop = Stop::kInterrupted;
    return !end && result.stop != Stop::kInterrupted;
  });
  if (!arguments_.print_ids) write(characters.finish());
  if (!result.ids.empty()) write_output("\n");
  result.seconds = last - first;
  result.steps = engine_->decode_steps() - steps_before;

  const bool ended =
      !result.ids.empty() && tokenizer_.is_stop(result.ids.back()) && !arguments_.ignore_eos;
  if (result.stop != Stop::kInterrupted && !ended) {
    result.stop = result.ids.size() == n ? Stop::kCount : Stop::kContext;
  }
  return result;
}

void Session::say_figures(std::size_t n_prompt, double prompt_seconds, const Answer& answer) const {
  if (n_prompt > 0) say("prompt: " + rate(n_prompt, prompt_seconds, n_prompt));
  if (answer.ids.empty()) return;
  // The first token comes with the prompt; the clock runs from it to the last.
  const char* why = answer.stop == Stop::kEndOfTurn ? "end of turn"
                    : answer.stop == Stop::kCount   ? "as many as asked for"
                    : answer.stop == Stop::kContext ? "the context is full"
                                                    : "interrupted";
  std::string steps;
  if (answer.steps > 0) {
    char text[48];
    std::snprintf(text, sizeof text, ", %.2f tokens a step",
                  static_cast<double>(answer.ids.size() - 1) / static_cast<double>(answer.steps));
    steps = text;
  }
  say("decode: " + rate(answer.ids.size(), answer.seconds, answer.ids.size() - 1) + steps + ", " +
      why);
  if (answer.stop == Stop::kContext) {
    say("the context of " + std::to_string(engine_->context()) +
        " tokens is full: raise -c for more (the model's limit is " +
        std::to_string(model_.config().context_length) + ")");
  }
}

int Session::run() {
  const std::uint32_t n = arguments_.n.value_or(kUnlimited);
  if (n == 0) return kDone;
  const double start = now();
  if (!feed(prompt_)) return kInterrupted;
  const double prompt_seconds = now() - start;
  const Answer given = answer(n);
  say_figures(prompt_.size(), prompt_seconds, given);
  return given.stop == Stop::kInterrupted ? kInterrupted : kDone;
}

int Session::teacher() {
  const std::vector<Token>& ids = prompt_;
  const std::size_t k = *arguments_.teacher;
  const Span<const Token> all(ids);
  const std::size_t n_tokens = model_.config().n_tokens;
  LogitsHash hash;
  std::vector<float> kept;
  const double start = now();
  if (!feed(all.subspan(0, k - 1))) return kInterrupted;
  engine_->force(all.subspan(k - 1, ids.size() - (k - 1)),
                 [&](std::uint32_t position, const float* logits) {
                   hash.add(position, logits, n_tokens);
                   if (!arguments_.output.empty()) {
                     kept.insert(kept.end(), logits, logits + n_tokens);
                   }
                   const Prediction best = argmax(logits, n_tokens);
                   char line[64];
                   std::snprintf(line, sizeof line, "%u %d %.9g\n", position, best.id,
                                 static_cast<double>(best.margin));
                   write_output(line);
                   if (InterruptGuard::requested()) throw Interrupted{};
                 });
  if (!arguments_.output.empty()) {
    write_npy(arguments_.output, kept.data(), hash.rows(), n_tokens);
  }
  write_output("logits-hash " + hash.hex() + " rows " + std::to_string(hash.rows()) + "\n");
  say("teacher: " + rate(ids.size(), now() - start, ids.size()));
  return kDone;
}

int Session::dump() {
  const std::vector<Token>& ids = prompt_;
  std::vector<float> values;
  std::size_t rows = 0, cols = 0;
  engine_->set_probe([&](const Intermediate& seen) {
    if (InterruptGuard::requested()) throw Interrupted{};
    if (seen.op != arguments_.op || seen.layer != arguments_.layer) return true;
    values.insert(values.end(), seen.data, seen.data + seen.rows * seen.cols);
    rows += seen.rows;
    cols = seen.cols;
    return seen.position + seen.rows < ids.size();  // a long prompt comes in several passes
  });
  engine_->prefill(ids);
  if (rows == 0) {
    throw UsageError("--layer: '" + arguments_.op + "' stands in no layer but 0");
  }
  say(arguments_.op + ", layer " + std::to_string(arguments_.layer) + ": " + std::to_string(rows) +
      " x " + std::to_string(cols));
  if (!arguments_.output.empty()) {
    write_npy(arguments_.output, values.data(), rows, cols);
    return kDone;
  }
  for (std::size_t r = 0; r < rows; ++r) {
    std::string line;
    for (std::size_t c = 0; c < cols; ++c) {
      char number[32];
      std::snprintf(number, sizeof number, "%s%.9g", c == 0 ? "" : " ",
                    static_cast<double>(values[r * cols + c]));
      line += number;
    }
    write_output(line + "\n");
  }
  return kDone;
}

// --- conversation ------------------------------------------------------------------------------

int Session::chat() {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  std::vector<Message> messages;
  std::vector<Token> consumed;  // what the engine's KV cache holds
  LineReader input("> ");
  bool leaving = false;  // Ctrl-C at the prompt, once
  for (;;) {
    std::string line;
    const LineReader::Result result = input.read(line);
    const bool blank = line.find_first_not_of(" \t") == std::string::npos;
    if (result == LineReader::Result::kEnd) {
      if (terminal) std::fputs("\n", stderr);
      return kDone;
    }
    if (result == LineReader::Result::kInterrupted) {
      InterruptGuard::clear();
      std::fputs("\n", stderr);
      if (leaving || !terminal || InterruptGuard::terminated()) return kInterrupted;
      say("Ctrl-C once more or Ctrl-D leaves");
      leaving = true;
      continue;
    }
    leaving = false;
    if (result == LineReader::Result::kCut) {
      say("this terminal cuts lines of 4095 bytes or more: run - < FILE takes longer ones");
    } else if (!blank && line.substr(0, line.find_last_not_of(" \t") + 1) == "/clear") {
      messages.clear();
    } else if (!blank) {
      messages.push_back({Role::kUser, line});
      const int status = chat_turn(messages, consumed);
      if (status == kInterrupted && (!terminal || InterruptGuard::terminated())) return status;
    }
  }
}

int Session::chat_turn(std::vector<Message>& messages, std::vector<Token>& consumed) {
  const std::vector<Token> ids = chat_ids(messages);
  if (ids.size() >= engine_->context()) {
    say("the conversation has " + std::to_string(ids.size()) + " tokens, the context " +
        std::to_string(engine_->context()) +
        ": /clear forgets it; or start again with a larger -c");
    messages.pop_back();
    return kFailed;
  }
  // What the engine has read of this already stays; at least one token is read for its prediction.
  const auto [old, fresh] =
      std::mismatch(consumed.begin(), consumed.end(), ids.begin(), ids.end() - 1);
  const auto kept = static_cast<std::size_t>(old - consumed.begin());
  engine_->truncate(static_cast<std::uint32_t>(kept));
  const double start = now();
  const bool read = feed(Span<const Token>(ids).subspan(kept, ids.size() - kept));
  const double prompt_seconds = now() - start;

  Answer given;
  given.stop = Stop::kInterrupted;
  if (read) given = answer(arguments_.n.value_or(kUnlimited));
  consumed.assign(ids.begin(), ids.end());
  consumed.insert(consumed.end(), given.ids.begin(), given.ids.end());
  consumed.resize(engine_->position());
  if (read) {
    messages.push_back({Role::kAssistant, given.text});
    say_figures(ids.size() - kept, prompt_seconds, given);
  } else {
    messages.pop_back();
    say("interrupted");
  }
  InterruptGuard::clear();
  return given.stop == Stop::kInterrupted ? kInterrupted : kDone;
}

}  // namespace minfer
