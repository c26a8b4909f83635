// SPDX-License-Identifier: MIT
//
// What of the command line can be tested without a program: tests/python/test_cli.py does the rest.
#include <minfer/program/arguments.h>

#include <stdlib.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"

namespace minfer::test {
namespace {

using Environment = std::vector<std::pair<const char*, const char*>>;

std::variant<Arguments, int> parse(std::vector<std::string> words, const EngineInfo& info,
                                   const Environment& environment = {}) {
  for (const char* name : {"SPEC", "LMHEAD", "KVQ", "ATTN", "RAWIDS", "MSTEP", "BENCHT", "TEACHER",
                           "TCHUNK", "MODEL"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : environment) setenv(name, value, 1);
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_arguments(static_cast<int>(argv.size()), argv.data(), info);
}

EngineInfo engine_with(std::vector<EngineOption> options) {
  EngineInfo info;
  info.name = "program";
  info.options = std::move(options);
  return info;
}

/// An engine that has every option of the specification.
EngineInfo whole_engine() {
  return engine_with({{"SPEC", {0, 1}, ""},
                      {"LMHEAD", {0, 4, 8}, ""},
                      {"KVQ", {0, 1}, ""},
                      {"ATTN", {0, 1}, ""},
                      {"MSTEP", {}, ""},
                      {"BENCHT", {0, 1}, ""},
                      {"TCHUNK", {}, ""}});
}

using Values = std::map<std::string, int>;

TEST_CASE("ids are separated by spaces, commas and line ends") {
  CHECK(parse_ids("x", "1, 2,3\n4\t5") == std::vector<Token>{1, 2, 3, 4, 5});
  CHECK(parse_ids("x", " ,\n").empty());
  CHECK(parse_ids("x", "2147483647") == std::vector<Token>{2147483647});
  for (const char* wrong :
       {"1 -2", "1.5", "0x10", "+3", "2147483648", "1;2", "99999999999999999999"}) {
    CHECK_THROWS_AS(parse_ids("x", wrong), UsageError);
  }
}

TEST_CASE("an engine's own options reach it, each by its flag") {
  const EngineInfo info = whole_engine();
  const auto parsed =
      parse({"run", "--model", "m",  "--spec",   "0", "--lmhead", "4", "--kvq",     "1", "--attn",
             "0",   "--mstep", "32", "--bencht", "1", "--tchunk", "8", "--threads", "3", "hi"},
            info);
  const EngineOptions& o = std::get<Arguments>(parsed).engine;
  CHECK(o.values == Values{{"SPEC", 0},
                           {"LMHEAD", 4},
                           {"KVQ", 1},
                           {"ATTN", 0},
                           {"MSTEP", 32},
                           {"BENCHT", 1},
                           {"TCHUNK", 8}});
  CHECK(o.value("SPEC", 1) == 0);
  CHECK(EngineOptions{}.value("SPEC", 1) == 1);
  CHECK(o.threads == 3);

  const auto wrong = [&](const char* flag, const char* value) {
    return parse({"run", "--model", "m", flag, value, "hi"}, info);
  };
  CHECK_THROWS_WITH(wrong("--lmhead", "5"),
                    ContainsSubstring("--lmhead (LMHEAD): found '5', expected 0, 4 or 8"));
  CHECK_THROWS_WITH(wrong("--spec", "2"),
                    ContainsSubstring("--spec (SPEC): found '2', expected 0 or 1"));
  CHECK_THROWS_WITH(wrong("--mstep", "0"), ContainsSubstring("whole number from 1"));
}

TEST_CASE("a variable is its option, and the option beats it") {
  const EngineInfo info = whole_engine();
  const Environment environment = {
      {"MODEL", "other"}, {"SPEC", "1"},   {"LMHEAD", "0"}, {"KVQ", "0"},     {"ATTN", "1"},
      {"MSTEP", "5"},     {"BENCHT", "0"}, {"TCHUNK", "3"}, {"TEACHER", "2"}, {"RAWIDS", "1"}};
  const auto taken = [&](const std::vector<std::string>& words) {
    return std::get<Arguments>(parse(words, info, environment));
  };
  const Arguments unset = taken({"run", "hi"});
  CHECK(unset.model == "other");
  CHECK(unset.engine.values == Values{{"SPEC", 1},
                                      {"LMHEAD", 0},
                                      {"KVQ", 0},
                                      {"ATTN", 1},
                                      {"MSTEP", 5},
                                      {"BENCHT", 0},
                                      {"TCHUNK", 3}});
  CHECK(unset.teacher == 2);
  CHECK(unset.print_ids);

  const Arguments set =
      taken({"run", "--model", "m",  "--spec",   "0", "--lmhead", "8", "--kvq",     "1", "--attn",
             "0",   "--mstep", "32", "--bencht", "1", "--tchunk", "8", "--teacher", "7", "hi"});
  CHECK(set.model == "m");
  CHECK(set.engine.values == Values{{"SPEC", 0},
                                    {"LMHEAD", 8},
                                    {"KVQ", 1},
                                    {"ATTN", 0},
                                    {"MSTEP", 32},
                                    {"BENCHT", 1},
                                    {"TCHUNK", 8}});
  CHECK(set.teacher == 7);

  // Commands share their options, so those of one that was not given must stay out of it.
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"chat", "--lmhead", "8", "--model", "m"},
                                             {"bench", "--lmhead", "8", "--model", "m"},
                                             {"--lmhead", "8", "m", "1", "2"}}) {
    const Arguments chosen = taken(words);
    INFO(words[0]);
    CHECK(chosen.model == "m");
    CHECK(chosen.engine.value("LMHEAD", -1) == 8);
    CHECK(chosen.engine.value("MSTEP", -1) == 5);
  }
  CHECK(taken({"tokenize", "--model", "m", "hi"}).model == "m");
  CHECK(taken({"detokenize", "--model", "m", "1"}).model == "m");
  CHECK_THROWS_WITH(parse({"run", "hi"}, info, {{"MODEL", "m"}, {"LMHEAD", "5"}}),
                    ContainsSubstring("--lmhead (LMHEAD): found '5'"));
  CHECK(std::get<Arguments>(parse({"run", "hi"}, info, {{"MODEL", "m"}, {"LMHEAD", ""}}))
            .engine.values.empty());
}

TEST_CASE("an option that the engine lacks is refused by name") {
  const EngineInfo info = engine_with({{"TCHUNK", {}, ""}});
  for (const char* flag : {"--spec", "--lmhead", "--kvq", "--attn", "--mstep", "--bencht"}) {
    CHECK_THROWS_WITH(parse({"run", "--model", "m", flag, "1", "hi"}, info),
                      ContainsSubstring(std::string(flag) + ": program has no such option"));
  }
  CHECK_THROWS_AS(parse({"dump", "--model", "m", "--stop-after", "q", "hi"}, info), UsageError);
}

TEST_CASE("a prompt may begin with a dash, and be a command's name") {
  const EngineInfo info = engine_with({});
  const auto text = [&](const std::vector<std::string>& words) {
    return std::get<Arguments>(parse(words, info)).text;
  };
  CHECK(text({"run", "--model", "m", "--", "--help"}) == "--help");
  CHECK(text({"run", "--model", "m", "--", "- an item"}) == "- an item");
  CHECK(text({"run", "--model", "m", "--", "run"}) == "run");
  CHECK(text({"tokenize", "--model", "m", ""}) == "");
}

}  // namespace
}  // namespace minfer::test
