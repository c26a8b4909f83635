// SPDX-License-Identifier: MIT
#include <minfer/program/arguments.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <limits>
#include <sstream>

#include <minfer/program/build_settings.h>
#include <minfer/program/terminal.h>

namespace minfer {
namespace {

constexpr std::uint32_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxBenchTokens = 1U << 24;  // so that sums of a few can't overflow
constexpr std::uint32_t kMaxRepetitions = 100000;

/// A whole number from `low` to `high`. @throws UsageError naming `what`
std::uint32_t whole_number(std::string_view what, std::string_view text, std::uint32_t low,
                           std::uint32_t high) {
  std::uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= low && value <= high) return value;
  throw UsageError(std::string(what) + ": found '" + std::string(text) +
                   "', expected a whole number from " + std::to_string(low) + " to " +
                   std::to_string(high));
}

/// The options that the specification has for engines. One that an engine lacks is refused by name.
constexpr const char* kEngineOptions[] = {"SPEC",  "LMHEAD", "KVQ",   "ATTN",
                                          "MSTEP", "BENCHT", "TCHUNK"};

std::string flag_of(const std::string& name) {
  std::string flag = "--";
  for (const char c : name) flag += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return flag;
}

/// What an option can be, with `last` before the last of several.
std::string choices_of(const EngineOption& option, const char* separator, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < option.choices.size(); ++i) {
    if (i > 0) text += i + 1 < option.choices.size() ? separator : last;
    text += std::to_string(option.choices[i]);
  }
  return text;
}

int option_value(const EngineOption& option, const std::string& text) {
  const std::string what = flag_of(option.name) + " (" + option.name + ")";
  if (option.choices.empty()) return static_cast<int>(whole_number(what, text, 1, kMaxCount));
  for (const int value : option.choices) {
    if (text == std::to_string(value)) return value;
  }
  throw UsageError(what + ": found '" + text + "', expected " + choices_of(option, ", ", " or "));
}

/// The options that a variable of the environment gives as well.
///
/// CLI11 has envname() for that, but reads it for the options of every command after those of the
/// one that was given: they set the same Arguments, so a variable would beat its flag. Here all
/// variables are read first.
class Variables {
 public:
  /// `option` is `variable` too, as its help then says.
  void add(CLI::Option* option, const std::string& variable) {
    option->description(option->get_description() + " (also: " + variable + ")");
    options_.push_back({option, variable});
  }

  /// Gives every option the value of its variable, as if it had none after that.
  void read() const {
    for (const auto& [option, variable] : options_) {
      const char* value = std::getenv(variable.c_str());
      if (value == nullptr || *value == '\0') continue;
      option->add_result(value);
      option->run_callback();
      option->clear();
    }
  }

 private:
  std::vector<std::pair<CLI::Option*, std::string>> options_;
};

bool has_option(const EngineInfo& info, const char* name) {
  return std::any_of(info.options.begin(), info.options.end(),
                     [&](const EngineOption& option) { return option.name == name; });
}

/// Adds the engine's own options. One of the specification's that it lacks is refused as a flag; in
/// the environment, where it may stand for other programs, it is ignored with a line.
void add_engine_options(CLI::App& app, const EngineInfo& info, Arguments& arguments,
                        Variables& variables) {
  for (const EngineOption& option : info.options) {
    CLI::Option* added = app.add_option_function<std::string>(
        flag_of(option.name),
        [&](const std::string& text) {
          arguments.engine.values[option.name] = option_value(option, text);
        },
        option.help);
    added->type_name(option.choices.empty() ? "N" : choices_of(option, "|", "|"));
    added->group("Engine");
    variables.add(added, option.name);
  }
  for (const char* name : kEngineOptions) {
    if (has_option(info, name)) continue;
    const std::string flag = flag_of(name);
    const auto refuse = [flag, &info](const std::string&) {
      throw UsageError(flag + ": " + info.name + " has no such option");
    };
    app.add_option_function<std::string>(flag, refuse)->group("");  // not in --help
  }
}

void say_ignored(const EngineInfo& info) {
  for (const char* name : kEngineOptions) {
    const char* value = std::getenv(name);
    if (value && *value && !has_option(info, name)) {
      std::fprintf(stderr, "%s: %s is set in the environment, but is no option here: ignored\n",
                   info.name.c_str(), name);
    }
  }
}

/// Adds an option whose value is a whole number, checked where it is read.
CLI::Option* add_count(CLI::App& app, const char* flag, std::uint32_t low, std::uint32_t high,
                       std::function<void(std::uint32_t)> set, const char* help) {
  return app
      .add_option_function<std::string>(
          flag,
          [=](const std::string& text) {
            const std::string_view names(flag);
            set(whole_number(names.substr(0, names.find(',')), text, low, high));
          },
          help)
      ->type_name("N");
}

void add_model(CLI::App& app, Arguments& arguments, Variables& variables) {
  variables.add(app.add_option("--model", arguments.model, "the GGUF file")->type_name("PATH"),
                "MODEL");
}

void add_loading(CLI::App& app, Arguments& arguments) {
  add_count(
      app, "-c,--context", 1, kMaxCount, [&](std::uint32_t c) { arguments.context = c; },
      "positions of context, capped by the model [4096]");
  add_count(
      app, "--threads", 1, kMaxThreads, [&](std::uint32_t t) { arguments.engine.threads = t; },
      "CPU threads [one a usable CPU]");
  app.add_flag("--no-mmap", arguments.no_mmap, "read the file into memory instead of mapping it");
  app.add_flag("--requantize", arguments.requantize,
               "requantize all layer matrices to Q4_0, as the GPU engines do");
}

void add_system(CLI::App& app, Arguments& arguments) {
  app.add_option("--system", arguments.system, "the system message")->type_name("TEXT");
}

/// What names a prompt in `run` and `dump`.
void add_prompt(CLI::App& app, Arguments& arguments) {
  app.add_option(
         "prompt", arguments.text,
         "the prompt; - reads it from standard input, where a newline at its end is left out")
      ->type_name("PROMPT|-");
  app.add_option_function<std::string>(
         "--prompt-ids",
         [&](const std::string& t) { arguments.ids = parse_ids("--prompt-ids", t); },
         "token ids instead of a prompt")
      ->type_name("\"ID ID...\"");
  app.add_flag("--raw", arguments.raw, "the prompt as it is, without the chat template");
  app.add_flag("--special", arguments.special, "with --raw: names of control tokens are tokens");
  add_system(app, arguments);
}

/// What `run` and the specification's form have in common.
void add_running(CLI::App& app, const EngineInfo& info, Arguments& arguments,
                 Variables& variables) {
  variables.add(
      app.add_flag("--print-ids,--rawids", arguments.print_ids, "token ids instead of text"),
      "RAWIDS");
  app.add_flag("--ignore-eos", arguments.ignore_eos, "go on after the end of turn (for timing)");
  CLI::Option* teacher = add_count(
      app, "--teacher", 1, kMaxCount, [&](std::uint32_t k) { arguments.teacher = k; },
      "the first N ids are the prompt, the others are forced: prints for positions N-1 to the last "
      "\"POSITION ARGMAX MARGIN\", then \"logits-hash XXH64 rows ROWS\"");
  variables.add(teacher, "TEACHER");
  app.add_option("--logits", arguments.output,
                 "with --teacher: an .npy file for those positions' logits, [ROWS, tokens] float32")
      ->type_name("FILE");
  add_loading(app, arguments);
  add_engine_options(app, info, arguments, variables);
}

void add_run(CLI::App& app, const EngineInfo& info, Arguments& arguments, Variables& variables) {
  CLI::App& run = *app.add_subcommand("run", "answers one prompt");
  add_model(run, arguments, variables);
  add_prompt(run, arguments);
  add_count(
      run, "-n", 0, kMaxCount, [&](std::uint32_t n) { arguments.n = n; },
      "new tokens at most [to the end of turn, or of the context]");
  add_running(run, info, arguments, variables);
  run.footer("Examples:\n  " + info.name +
             " run --model m.gguf \"Write a haiku about the sea.\"\n  " + info.name +
             " run --model m.gguf -n 32 --print-ids - < prompt.txt\n  " + info.name +
             " run --model m.gguf --teacher 3 --prompt-ids \"785 6722 315 9625 374\"");
  run.callback([&] { arguments.command = Command::kRun; });
}

void add_chat(CLI::App& app, const EngineInfo& info, Arguments& arguments, Variables& variables) {
  CLI::App& chat = *app.add_subcommand("chat", "a conversation in the terminal");
  add_model(chat, arguments, variables);
  add_system(chat, arguments);
  add_count(
      chat, "-n", 1, kMaxCount, [&](std::uint32_t n) { arguments.n = n; },
      "new tokens in an answer at most [to the end of turn, or of the context]");
  add_loading(chat, arguments);
  add_engine_options(chat, info, arguments, variables);
  chat.footer(
      "A line is a message; /clear forgets the conversation. Ctrl-C stops an answer, Ctrl-D "
      "leaves. Built with libedit, it edits a line and finds earlier ones (keys: "
      "~/.editrc).\nExample:\n  " +
      info.name + " chat --model m.gguf --system \"Answer briefly.\"");
  chat.callback([&] { arguments.command = Command::kChat; });
}

void add_tokenize(CLI::App& app, const EngineInfo& info, Arguments& arguments,
                  Variables& variables) {
  CLI::App& tokenize = *app.add_subcommand("tokenize", "prints a text's token ids on one line");
  add_model(tokenize, arguments, variables);
  tokenize.add_flag("--special", arguments.special, "names of control tokens are tokens");
  tokenize.add_option("text", arguments.text, "the text; - reads it from standard input, whole")
      ->type_name("TEXT|-");
  tokenize.footer("Example:\n  " + info.name + " tokenize --model m.gguf \"Hello, world\"");
  tokenize.callback([&] { arguments.command = Command::kTokenize; });
}

void add_detokenize(CLI::App& app, const EngineInfo& info, Arguments& arguments,
                    Variables& variables) {
  CLI::App& detokenize = *app.add_subcommand("detokenize", "prints the text of token ids");
  add_model(detokenize, arguments, variables);
  detokenize
      .add_option_function<std::vector<std::string>>(
          "ids",
          [&](const std::vector<std::string>& words) {
            std::string text;
            for (const std::string& word : words) text += word + " ";
            arguments.ids = parse_ids("detokenize", text);
          },
          "token ids")
      ->type_name("ID");
  detokenize.footer("Example:\n  " + info.name + " detokenize --model m.gguf 9707 11 1879");
  detokenize.callback([&] { arguments.command = Command::kDetokenize; });
}

void add_dump(CLI::App& app, const EngineInfo& info, Arguments& arguments, Variables& variables) {
  if (info.ops.empty()) return;
  std::string ops;
  for (const std::string& op : info.ops) ops += (ops.empty() ? "" : " ") + op;
  CLI::App& dump = *app.add_subcommand("dump", "prints an intermediate of the forward pass");
  add_model(dump, arguments, variables);
  dump.add_option("--stop-after", arguments.op, "the operation: " + ops)->type_name("OP");
  add_count(
      dump, "--layer", 0, kMaxCount, [&](std::uint32_t layer) { arguments.layer = layer; },
      "the layer it stands in [0]");
  dump.add_option("--output", arguments.output, "an .npy file to write, [tokens, width] float32")
      ->type_name("FILE");
  add_prompt(dump, arguments);
  add_loading(dump, arguments);
  dump.footer("Without --output, each token's values are a line of text.\nExample:\n  " +
              info.name +
              " dump --model m.gguf --stop-after q_rope --layer 3 --output q.npy \"Hello\"");
  dump.callback([&] { arguments.command = Command::kDump; });
}

/// Adds an option whose value is whole numbers with commas between them.
void add_counts(CLI::App& app, const char* flag, std::vector<std::uint32_t>& counts,
                const char* help) {
  app.add_option_function<std::string>(
         flag,
         [flag, &counts](const std::string& text) {
           counts.clear();
           for (std::size_t begin = 0; begin <= text.size();) {
             const std::size_t end = std::min(text.find(',', begin), text.size());
             counts.push_back(
                 whole_number(flag, text.substr(begin, end - begin), 0, kMaxBenchTokens));
             begin = end + 1;
           }
         },
         help)
      ->type_name("N,N...");
}

void add_bench(CLI::App& app, const EngineInfo& info, Arguments& arguments, Variables& variables) {
  CLI::App& bench = *app.add_subcommand("bench", "times prompts and decoding, as llama-bench does");
  BenchPlan& plan = arguments.bench;
  add_model(bench, arguments, variables);
  add_counts(bench, "-p", plan.n_prompt, "tokens of a prompt; 0: no prompt test [512]");
  add_counts(bench, "-n", plan.n_gen, "decode steps; 0: no decode test [128]");
  add_counts(bench, "-d", plan.depth, "tokens in the context before the clock starts [0]");
  add_count(
      bench, "-r", 1, kMaxRepetitions, [&](std::uint32_t r) { plan.repetitions = r; },
      "samples of each test [5]");
  bench.add_flag_function(
      "--no-warmup", [&](std::int64_t) { plan.warm_up = false; },
      "take the first sample without a run before it");
  bench
      .add_option_function<std::string>(
          "-o", [&](const std::string& format) { plan.json = format == "jsonl"; },
          "md: a table; jsonl: a JSON object a test, with its samples in order [md]")
      ->check(CLI::IsMember({"md", "jsonl"}))
      ->type_name("md|jsonl");
  bench.add_flag(
      "--breakdown", plan.breakdown,
      "after each decode test, the step in its middle kernel by kernel, from CUDA events");
  bench.add_flag("--stream", plan.stream,
                 "read the CPU's memory instead: the most that a CPU engine could do");
  add_loading(bench, arguments);
  add_engine_options(bench, info, arguments, variables);
  bench.footer("Examples:\n  " + info.name + " bench --model m.gguf\n  " + info.name +
               " bench --model m.gguf -p 0 -n 128 -d 0,1024,4096 -r 10 -o jsonl");
  bench.callback([&] { arguments.command = Command::kBench; });
}

/// The specification's form, MODEL N IDS..., into the arguments.
void take_plain_form(const std::vector<std::string>& words, Arguments& arguments) {
  if (words.size() < 3) {
    throw UsageError(
        "found " + std::to_string(words.size()) +
        (words.size() == 1 ? " word ('" + words[0] + "')" : " words") +
        ", expected MODEL N IDS..., or a command: run, chat, tokenize, detokenize, bench");
  }
  arguments.command = Command::kRun;
  arguments.model = words[0];
  arguments.n = whole_number("N", words[1], 0, kMaxCount);
  std::string ids;
  for (std::size_t i = 2; i < words.size(); ++i) ids += words[i] + " ";
  arguments.ids = parse_ids("IDS", ids);
}

/// What CLI11 refuses, by all names of the option: it takes one, which may be none that was typed.
std::string refusal_text(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> command = app.get_subcommands();
  if (!command.empty()) return refusal_text(*command[0], error);
  const std::string text = error.what();
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (text.rfind(name + ":", 0) != 0) continue;
    const std::string names = option->get_name(false, true);
    if (error.get_name() != "ArgumentMismatch") return names + text.substr(name.size());
    const std::string given = std::to_string(option->count());
    return names + (option->count() > 1 ? ": given " + given + " times, expected once"
                                        : ": found no value, expected one");
  }
  return text;
}

/// What CLI11 can't check by itself.
void check(Arguments& arguments, const EngineInfo& info) {
  const bool bench = arguments.command == Command::kBench;
  if (arguments.model.empty() && !(bench && arguments.bench.stream)) {
    throw UsageError("no model: name a GGUF file with --model PATH or in the variable MODEL");
  }
  if (bench && bench_tests(arguments.bench).empty()) {
    throw UsageError("bench: nothing to measure: -p and -n are both 0");
  }
  const bool prompted = arguments.command == Command::kRun || arguments.command == Command::kDump;
  if (prompted && arguments.text.has_value() == arguments.ids.has_value()) {
    throw UsageError("give one of PROMPT (- for standard input) and --prompt-ids");
  }
  if (arguments.command == Command::kTokenize && !arguments.text) {
    throw UsageError("tokenize: give a TEXT, or - for standard input");
  }
  if (arguments.command == Command::kDetokenize && !arguments.ids) arguments.ids.emplace();
  // RAWIDS in the environment is about `run`: a conversation is text.
  if (arguments.command == Command::kChat) arguments.print_ids = false;
  if (arguments.special && prompted && !arguments.raw) throw UsageError("--special: needs --raw");
  if (arguments.system && prompted && (arguments.raw || arguments.ids)) {
    throw UsageError(
        "--system: is part of the chat template, which --raw and --prompt-ids leave out");
  }
  if (arguments.command == Command::kDump &&
      std::find(info.ops.begin(), info.ops.end(), arguments.op) == info.ops.end()) {
    throw UsageError("--stop-after: found '" + arguments.op + "', expected one of those that " +
                     info.name + " dump --help lists");
  }
  if (arguments.text == "-") {
    arguments.text = read_all_input();
    // `echo text | program run -` asks what `program run text` does.
    if (prompted && !arguments.text->empty() && arguments.text->back() == '\n') {
      arguments.text->pop_back();
    }
  }
  if (prompted && arguments.text && arguments.text->empty())
    throw UsageError("the prompt is empty");
  if (prompted && arguments.ids && arguments.ids->empty())
    throw UsageError("there are no prompt ids");
}

}  // namespace

std::vector<Token> parse_ids(std::string_view what, std::string_view text) {
  constexpr std::string_view kSeparators = " ,\t\r\n";
  std::vector<Token> ids;
  for (;;) {
    const std::size_t begin = text.find_first_not_of(kSeparators);
    if (begin == std::string_view::npos) return ids;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kSeparators));
    ids.push_back(static_cast<Token>(whole_number(what, word, 0, kMaxCount)));
    text.remove_prefix(word.size());
  }
}

std::variant<Arguments, int> parse_arguments(int argc, char** argv, const EngineInfo& info) {
  Arguments arguments;
  std::vector<std::string> words;
  Variables variables;
  CLI::App app("Qwen2.5 on the engine '" + info.name + "', greedy decoding at batch 1.", info.name);
  app.set_version_flag("--version", version_text(info.name));
  app.require_subcommand(0, 1);
  app.add_option("words", words, "MODEL N IDS...: N new tokens after these ids, as text")
      ->type_name("MODEL N IDS");
  add_running(app, info, arguments, variables);
  add_run(app, info, arguments, variables);
  add_chat(app, info, arguments, variables);
  add_tokenize(app, info, arguments, variables);
  add_detokenize(app, info, arguments, variables);
  add_dump(app, info, arguments, variables);
  add_bench(app, info, arguments, variables);
  app.footer(
      "Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted by Ctrl-C, 143 by "
      "SIGTERM.\nExamples:\n  " +
      info.name + " run --model m.gguf \"Write a haiku about the sea.\"\n  " + info.name +
      " m.gguf 32 785 6722 315 9625 374\n  RAWIDS=1 " + info.name +
      " m.gguf 32 785 6722 315 9625 374");
  try {
    variables.read();
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version
      std::ostringstream text;
      const int status = app.exit(error, text);
      write_output(text.str());
      return status;
    }
    throw UsageError(refusal_text(app, error));
  }
  if (app.get_subcommands().empty()) take_plain_form(words, arguments);
  check(arguments, info);
  say_ignored(info);
  return arguments;
}

}  // namespace minfer
