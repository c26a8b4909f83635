// SPDX-License-Identifier: MIT
//
// What of the command line can be tested without a program: tests/python/test_cli.py does the rest.
#include <minfer/program/arguments.h>

#include <stdlib.h>

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

EngineInfo engine_with(const std::vector<std::string>& options) {
  EngineInfo info;
  info.name = "program";
  info.options = options;
  return info;
}

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
  const EngineInfo info =
      engine_with({"SPEC", "LMHEAD", "KVQ", "ATTN", "MSTEP", "BENCHT", "TCHUNK"});
  const auto parsed =
      parse({"run", "--model", "m",  "--spec",   "0", "--lmhead", "4", "--kvq",     "1", "--attn",
             "0",   "--mstep", "32", "--bencht", "1", "--tchunk", "8", "--threads", "3", "hi"},
            info);
  const EngineOptions& o = std::get<Arguments>(parsed).engine;
  CHECK(o.spec == 0);
  CHECK(o.lm_head == 4);
  CHECK(o.kvq == 1);
  CHECK(o.attn == 0);
  CHECK(o.mstep == 32);
  CHECK(o.bencht == 1);
  CHECK(o.tchunk == 8);
  CHECK(o.threads == 3);

  const auto wrong = [&](const char* flag, const char* value) {
    return parse({"run", "--model", "m", flag, value, "hi"}, info);
  };
  CHECK_THROWS_WITH(wrong("--lmhead", "5"), ContainsSubstring("expected one of 0, 4, 8"));
  CHECK_THROWS_WITH(wrong("--spec", "2"), ContainsSubstring("--spec (SPEC): found '2'"));
  CHECK_THROWS_WITH(wrong("--mstep", "0"), ContainsSubstring("whole number from 1"));
}

TEST_CASE("a variable is its option, and the option beats it") {
  const EngineInfo info =
      engine_with({"SPEC", "LMHEAD", "KVQ", "ATTN", "MSTEP", "BENCHT", "TCHUNK"});
  const Environment environment = {
      {"MODEL", "other"}, {"SPEC", "1"},   {"LMHEAD", "0"}, {"KVQ", "0"},     {"ATTN", "1"},
      {"MSTEP", "5"},     {"BENCHT", "0"}, {"TCHUNK", "3"}, {"TEACHER", "2"}, {"RAWIDS", "1"}};
  const auto taken = [&](const std::vector<std::string>& words) {
    return std::get<Arguments>(parse(words, info, environment));
  };
  const Arguments unset = taken({"run", "hi"});
  CHECK(unset.model == "other");
  CHECK(unset.engine.spec == 1);
  CHECK(unset.engine.lm_head == 0);
  CHECK(unset.engine.kvq == 0);
  CHECK(unset.engine.attn == 1);
  CHECK(unset.engine.mstep == 5);
  CHECK(unset.engine.bencht == 0);
  CHECK(unset.engine.tchunk == 3);
  CHECK(unset.teacher == 2);
  CHECK(unset.print_ids);

  const Arguments set =
      taken({"run", "--model", "m",  "--spec",   "0", "--lmhead", "8", "--kvq",     "1", "--attn",
             "0",   "--mstep", "32", "--bencht", "1", "--tchunk", "8", "--teacher", "7", "hi"});
  CHECK(set.model == "m");
  CHECK(set.engine.spec == 0);
  CHECK(set.engine.lm_head == 8);
  CHECK(set.engine.kvq == 1);
  CHECK(set.engine.attn == 0);
  CHECK(set.engine.mstep == 32);
  CHECK(set.engine.bencht == 1);
  CHECK(set.engine.tchunk == 8);
  CHECK(set.teacher == 7);

  // Commands share their options, so those of one that was not given must stay out of it.
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"chat", "--lmhead", "8", "--model", "m"},
                                             {"bench", "--lmhead", "8", "--model", "m"},
                                             {"--lmhead", "8", "m", "1", "2"}}) {
    const Arguments chosen = taken(words);
    INFO(words[0]);
    CHECK(chosen.model == "m");
    CHECK(chosen.engine.lm_head == 8);
    CHECK(chosen.engine.mstep == 5);
  }
  CHECK(taken({"tokenize", "--model", "m", "hi"}).model == "m");
  CHECK(taken({"detokenize", "--model", "m", "1"}).model == "m");
  CHECK_THROWS_WITH(parse({"run", "hi"}, info, {{"MODEL", "m"}, {"LMHEAD", "5"}}),
                    ContainsSubstring("--lmhead (LMHEAD): found '5'"));
  CHECK(std::get<Arguments>(parse({"run", "hi"}, info, {{"MODEL", "m"}, {"LMHEAD", ""}}))
            .engine.lm_head == -1);
}

TEST_CASE("an option that the engine lacks is refused by name") {
  const EngineInfo info = engine_with({"TCHUNK"});
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
