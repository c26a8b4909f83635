// SPDX-License-Identifier: MIT
// roofline: how fast this GPU reads its memory.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>

#include <minfer/program/exit_status.h>
#include <minfer/program/terminal.h>

#include "measure.h"
#include "report.h"

namespace {

/// The command line as one line, without the program's folder.
std::string invocation(int argc, char** argv) {
  std::string text = "roofline";
  for (int i = 1; i < argc; ++i) text += std::string(" ") + argv[i];
  return text;
}

/// Measures and reports, or prints the help; returns the exit status.
int run(int argc, char** argv) {
  CLI::App app{"Measures how fast this GPU reads its memory, which bounds every decode.",
               "roofline"};
  app.footer("examples:\n  roofline\n  roofline --json > results/roofline.json");
  bool json = false;
  std::size_t megabytes = 0;
  minfer::MeasureOptions options;
  app.add_flag("--json", json, "print one JSON object with every sample");
  app.add_option("--repeat", options.repeat, "timed passes of each measurement")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option(
         "--megabytes", megabytes,
         "size of the buffer in MB of 10^6 bytes (default: 768 MiB or 4 times the L2 cache, "
         "and more where a pass would take less than 2 ms)")
      ->check(CLI::Range(1, 1000000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream help;
    if (app.exit(error, help) != 0) return minfer::kWrongUsage;
    minfer::write_output(help.str());
    return minfer::kDone;
  }
  options.buffer_bytes = megabytes * 1000000;
  const minfer::Measurements measured = minfer::measure(
      options, [](const std::string& what) { std::fprintf(stderr, "%s\n", what.c_str()); });
  minfer::write_output(json ? minfer::json_report(measured, invocation(argc, argv))
                            : minfer::human_report(measured));
  return minfer::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  minfer::report_file_size_limit();
  try {
    return run(argc, argv);
  } catch (const minfer::ReaderGone&) {
    return minfer::kReaderGone;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "roofline: %s\n", error.what());
    return minfer::kFailed;
  }
}
