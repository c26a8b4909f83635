// SPDX-License-Identifier: MIT
//
// test-drafts-CHAPTER N MODEL...: decodes N prompts a model without drafts, and with every limit on
// their number; the tokens and where the engine then stands have to be the same. Prompts have all
// lengths, and answers end at a count, at the context's end, or where the reader stops inside a
// step; then the conversation goes on. One process, so that a thousand take seconds on a GPU.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <minfer/engine.h>
#include <minfer/gguf/model.h>

namespace minfer {
namespace {

constexpr std::uint32_t kContexts[] = {8, 9, 31, 32, 33, 64, 97, 128};
constexpr std::uint32_t kMostTokens = 8;  // that a step carries

/// A conversation of two turns.
struct Prompt {
  std::vector<Token> turns[2];
  std::uint32_t n_predict[2];
  Token stop;  ///< the reader stops behind it; or none
};

struct Numbers {
  std::mt19937 engine;
  /// One of [least, most].
  std::uint32_t operator()(std::uint32_t least, std::uint32_t most) {
    return least + engine() % (most - least + 1);
  }
};

/// Of a text that repeats itself after some tokens, as drafts need it.
std::vector<Token> repeated(Numbers& numbers, std::uint32_t length, std::uint32_t n_tokens) {
  std::vector<Token> ids(length);
  const std::uint32_t period = numbers(1, length);
  for (std::uint32_t i = 0; i < length; ++i) {
    ids[i] = i < period ? static_cast<Token>(numbers(0, n_tokens - 1)) : ids[i - period];
  }
  return ids;
}

Prompt make_prompt(std::uint32_t number, std::uint32_t context, std::uint32_t n_tokens) {
  Numbers numbers{std::mt19937(number)};
  Prompt prompt;
  const std::uint32_t most = numbers(0, 7) == 0 ? context : (context + 3) / 4;
  for (auto& turn : prompt.turns) turn = repeated(numbers, numbers(1, most), n_tokens);
  for (auto& n : prompt.n_predict) n = numbers(0, context + 2);
  prompt.stop = numbers(0, 3) == 0 ? static_cast<Token>(numbers(0, n_tokens - 1)) : -1;
  return prompt;
}

/// The tokens of both turns, and behind each the position, negative.
std::vector<Token> answers(Engine& engine, const Prompt& prompt) {
  std::vector<Token> found;
  engine.truncate(0);
  for (int turn = 0; turn < 2; ++turn) {
    if (engine.position() + prompt.turns[turn].size() > engine.context()) break;
    engine.prefill(prompt.turns[turn]);
    engine.decode(prompt.n_predict[turn], [&](Token id) {
      found.push_back(id);
      return id != prompt.stop;
    });
    found.push_back(-static_cast<Token>(engine.position()));
  }
  return found;
}

/// The engine with at most `carried` tokens a step: 0 without drafts.
std::unique_ptr<Engine> engine_of(const Model& model, std::uint32_t context,
                                  std::uint32_t carried) {
  EngineOptions options;
  options.context = context;
  if (carried > 0) options.values = {{"SPEC", 2}, {"TCHUNK", static_cast<int>(carried)}};
  return make_engine(model, options);
}

/// @return how many prompts were answered otherwise
int compare(const Model& model, const std::string& name, std::uint32_t n_prompts) {
  int wrong = 0;
  std::uint64_t tokens = 0, steps = 0;
  const std::uint32_t n_contexts = sizeof kContexts / sizeof *kContexts;
  for (std::uint32_t c = 0; c < n_contexts; ++c) {
    std::vector<std::unique_ptr<Engine>> engines;
    for (std::uint32_t carried = 0; carried <= kMostTokens; ++carried) {
      engines.push_back(engine_of(model, kContexts[c], carried));
    }
    for (std::uint32_t number = 0; number < n_prompts; ++number) {
      if (number / kMostTokens % n_contexts != c) continue;
      const Prompt prompt = make_prompt(number, kContexts[c], model.config().n_tokens);
      const std::vector<Token> expected = answers(*engines[0], prompt);
      const std::uint32_t carried = 1 + number % kMostTokens;
      Engine& drafting = *engines[carried];
      const std::uint64_t before = drafting.decode_steps();
      const bool same = answers(drafting, prompt) == expected;
      for (const Token id : expected) tokens += id >= 0 ? 1 : 0;
      steps += drafting.decode_steps() - before;
      if (same) continue;
      wrong += 1;
      std::printf("%s, context %u, prompt %u, %u tokens a step: not the tokens without drafts\n",
                  name.c_str(), kContexts[c], number, carried);
    }
  }
  std::printf("%s: %u prompts, %llu tokens in %llu steps, %d wrong\n", name.c_str(), n_prompts,
              static_cast<unsigned long long>(tokens), static_cast<unsigned long long>(steps),
              wrong);
  return wrong;
}

int run(int n_arguments, char** arguments) {
  const std::uint32_t n_prompts = static_cast<std::uint32_t>(std::atoi(arguments[1]));
  int wrong = n_prompts == 0;
  for (int i = 2; i < n_arguments; ++i) {
    const Model model = Model::load(arguments[i]);
    wrong += compare(model, arguments[i], n_prompts);
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: test-drafts N MODEL...\n");
    return 2;
  }
  try {
    return minfer::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
