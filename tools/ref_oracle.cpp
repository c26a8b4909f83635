// SPDX-License-Identifier: MIT
//
// Greedy tokens from llama.cpp, for comparison: a program over libllama and nothing of this
// project. tools/build_llama_cpp builds it.
//
//   ref_oracle MODEL N [THREADS] < prompts
//
// Each line of standard input is a prompt, ids with spaces between them. For each, one line of JSON
// goes to standard output: {"ids": [...], "top2_margin": [...]}, up to N tokens, stopping after an
// end of turn. The KV cache is F32, without flash attention; UNUSED tokens are never chosen; ties
// go to the lower id.
#include <llama.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kContext = 4096;

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextDeleter {
  void operator()(llama_context* context) const { llama_free(context); }
};
using ModelPtr = std::unique_ptr<llama_model, ModelDeleter>;
using ContextPtr = std::unique_ptr<llama_context, ContextDeleter>;

struct Prediction {
  llama_token id = -1;
  float margin = 0;  // top-1 minus top-2 logit
};

/// Errors alone reach standard error.
void log_errors(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

ContextPtr make_context(llama_model* model, int threads) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = kContext;
  params.n_batch = kContext;
  params.n_threads = threads;
  params.n_threads_batch = threads;
  params.type_k = GGML_TYPE_F32;
  params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  ContextPtr context(llama_init_from_model(model, params));
  if (!context) throw std::runtime_error("llama.cpp could not make a context");
  return context;
}

Prediction argmax(llama_context* context, const llama_vocab* vocab) {
  const float* logits = llama_get_logits_ith(context, -1);
  Prediction best;
  float first = -INFINITY, second = -INFINITY;
  for (llama_token id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
    if (llama_vocab_get_attr(vocab, id) & LLAMA_TOKEN_ATTR_UNUSED) continue;
    if (logits[id] > first) {
      second = first;
      first = logits[id];
      best.id = id;
    } else if (logits[id] > second) {
      second = logits[id];
    }
  }
  best.margin = first - second;
  return best;
}

void consume(llama_context* context, std::vector<llama_token> ids) {
  const llama_batch batch = llama_batch_get_one(ids.data(), static_cast<int32_t>(ids.size()));
  if (llama_decode(context, batch) != 0) throw std::runtime_error("llama_decode failed");
}

std::vector<Prediction> answer(llama_context* context, const llama_vocab* vocab,
                               const std::vector<llama_token>& prompt, int n) {
  llama_memory_clear(llama_get_memory(context), true);
  consume(context, prompt);
  std::vector<Prediction> answered;
  while (static_cast<int>(answered.size()) < n) {
    answered.push_back(argmax(context, vocab));
    const llama_token id = answered.back().id;
    if (llama_vocab_is_eog(vocab, id) || static_cast<int>(answered.size()) == n) break;
    consume(context, {id});
  }
  return answered;
}

std::vector<llama_token> parse_ids(const std::string& line, int n_tokens) {
  std::istringstream words(line);
  std::vector<llama_token> ids;
  for (std::string word; words >> word;) {
    std::size_t used = 0;
    const int id = std::stoi(word, &used);
    if (used != word.size() || id < 0 || id >= n_tokens) {
      throw std::runtime_error("found '" + word + "', expected a token id below " +
                               std::to_string(n_tokens));
    }
    ids.push_back(id);
  }
  return ids;
}

void print(const std::vector<Prediction>& answered) {
  std::string ids, margins;
  for (const Prediction& prediction : answered) {
    char margin[32];
    std::snprintf(margin, sizeof margin, "%.4f", static_cast<double>(prediction.margin));
    ids += (ids.empty() ? "" : ", ") + std::to_string(prediction.id);
    margins += (margins.empty() ? "" : ", ") + std::string(margin);
  }
  if (std::printf("{\"ids\": [%s], \"top2_margin\": [%s]}\n", ids.c_str(), margins.c_str()) < 0 ||
      std::fflush(stdout) != 0) {
    throw std::runtime_error(std::string("cannot write standard output: ") + std::strerror(errno));
  }
}

int run(const char* path, int n, int threads) {
  llama_log_set(log_errors, nullptr);
  llama_backend_init();
  ModelPtr model(llama_model_load_from_file(path, llama_model_default_params()));
  if (!model) throw std::runtime_error(std::string(path) + ": llama.cpp can't load it");
  const ContextPtr context = make_context(model.get(), threads);
  const llama_vocab* vocab = llama_model_get_vocab(model.get());
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<llama_token> prompt = parse_ids(line, llama_vocab_n_tokens(vocab));
    if (prompt.empty() || static_cast<int>(prompt.size()) + n > kContext) {
      throw std::runtime_error("a prompt of " + std::to_string(prompt.size()) +
                               " ids, expected 1 to " + std::to_string(kContext - n));
    }
    print(answer(context.get(), vocab, prompt, n));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4 || std::atoi(argv[2]) < 1) {
    std::fputs("usage: ref_oracle MODEL N [THREADS] < prompts, a line of ids each\n", stderr);
    return 2;
  }
  std::signal(SIGXFSZ, SIG_IGN);  // beyond `ulimit -f` a write fails, and is reported
  try {
    return run(argv[1], std::atoi(argv[2]), argc == 4 ? std::atoi(argv[3]) : 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ref_oracle: %s\n", error.what());
    return 1;
  }
}
