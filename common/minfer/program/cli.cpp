// SPDX-License-Identifier: MIT
#include <minfer/program/cli.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include <minfer/program/arguments.h>
#include <minfer/program/bench.h>
#include <minfer/program/exit_status.h>
#include <minfer/program/session.h>
#include <minfer/program/terminal.h>
#include <minfer/text/utf8.h>

namespace minfer {
namespace {

/// `tokenize` and `detokenize` need a file's vocabulary, and no engine.
int run_tokenizer(const Arguments& arguments) {
  const GgufFile file = GgufFile::open(arguments.model);
  const Tokenizer tokenizer(file);
  std::string line;
  if (arguments.command == Command::kTokenize) {
    for (const Token id : arguments.special ? tokenizer.encode_with_specials(*arguments.text)
                                            : tokenizer.encode(*arguments.text)) {
      line += (line.empty() ? "" : " ") + std::to_string(id);
    }
  } else {
    Utf8Stream characters;
    for (const Token id : *arguments.ids) {
      if (!tokenizer.is_valid(id)) {
        throw UsageError("token id " + std::to_string(id) + ": the model's tokens are 0 to " +
                         std::to_string(tokenizer.n_tokens() - 1));
      }
      // Control tokens have no bytes: they are shown by name.
      const std::string_view bytes = tokenizer.bytes(id);
      line += characters.push(bytes.empty() ? tokenizer.name(id) : bytes);
    }
    line += characters.finish();
  }
  write_output(line + "\n");
  return kDone;
}

int run_command(const Arguments& arguments, const EngineInfo& info, EngineFactory make_engine) {
  switch (arguments.command) {
    case Command::kTokenize:
    case Command::kDetokenize:
      return run_tokenizer(arguments);
    case Command::kRun: {
      Session session(arguments, info, make_engine);
      return arguments.teacher ? session.teacher() : session.run();
    }
    case Command::kChat:
      return Session(arguments, info, make_engine).chat();
    case Command::kDump:
      return Session(arguments, info, make_engine).dump();
    case Command::kBench:
      return run_bench(arguments, info, make_engine);
  }
  return kFailed;
}

}  // namespace

int run_cli(int argc, char** argv, const EngineInfo& info, EngineFactory make_engine) {
  const auto complain = [&](int status, const std::string& what) {
    std::fprintf(stderr, "%s: %s\n", info.name.c_str(), what.c_str());
    return status;
  };
  report_file_size_limit();
  try {
    const InterruptGuard interrupts;
    int status = kInterrupted;
    try {
      const auto parsed = parse_arguments(argc, argv, info);
      const int* printed = std::get_if<int>(&parsed);
      status = printed ? *printed : run_command(std::get<Arguments>(parsed), info, make_engine);
    } catch (const Interrupted&) {
    }
    return status == kInterrupted && InterruptGuard::terminated() ? kTerminated : status;
  } catch (const ReaderGone&) {
    return kReaderGone;
  } catch (const UsageError& error) {
    return complain(kWrongUsage, std::string(error.what()) + " (see --help)");
  } catch (const std::bad_alloc&) {
    return complain(kFailed, "out of memory");
  } catch (const std::exception& error) {
    return complain(kFailed, error.what());
  }
}

}  // namespace minfer
