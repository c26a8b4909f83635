// SPDX-License-Identifier: MIT
// Vocabularies that are refused, each wrong in one place; the message says which.
#include <minfer/text/tokenizer.h>

#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "tokenizer/small_vocabulary.h"

namespace minfer {
namespace {

using test::GgufBuilder;
using test::small_vocabulary;
using test::SmallVocabulary;

/// What the tokenizer said of a file, after the path that every message begins with.
std::string refusal_of(const GgufBuilder& builder) {
  const GgufFile file = test::open_built(builder);
  try {
    const Tokenizer tokenizer(file);
  } catch (const FileError& error) {
    const std::string_view message = error.what();
    REQUIRE(message.substr(0, file.path().size() + 2) == file.path() + ": ");
    REQUIRE(message.find('\n') == std::string_view::npos);
    return std::string(message.substr(file.path().size() + 2));
  }
  return "accepted";
}

std::string refusal_of(const SmallVocabulary& vocabulary) {
  return refusal_of(vocabulary.builder());
}

const std::string kTokens = "key \"tokenizer.ggml.tokens\" ";
const std::string kTypes = "key \"tokenizer.ggml.token_type\" ";
const std::string kMerges = "key \"tokenizer.ggml.merges\" ";

TEST_CASE("the small vocabulary itself is accepted") {
  CHECK(refusal_of(small_vocabulary()) == "accepted");
}

TEST_CASE("other kinds of tokenizers are refused") {
  GgufBuilder builder = small_vocabulary().builder();
  builder.set("tokenizer.ggml.model", "llama");
  CHECK(refusal_of(builder) == "key \"tokenizer.ggml.model\" is \"llama\", expected \"gpt2\"");
  builder.erase("tokenizer.ggml.model");
  CHECK(refusal_of(builder) == "key \"tokenizer.ggml.model\" is missing");

  builder = small_vocabulary().builder();
  builder.set("tokenizer.ggml.pre", "llama-bpe\n");
  CHECK(refusal_of(builder) ==
        "key \"tokenizer.ggml.pre\" is \"llama-bpe\\x0a\", expected \"qwen2\"");
  builder.erase("tokenizer.ggml.pre");
  CHECK(refusal_of(builder) == "key \"tokenizer.ggml.pre\" is missing");

  builder = small_vocabulary().builder();
  builder.set("tokenizer.ggml.add_bos_token", true);
  CHECK_THAT(refusal_of(builder),
             ContainsSubstring("\"tokenizer.ggml.add_bos_token\" is true, expected false"));
  builder.erase("tokenizer.ggml.add_bos_token");
  CHECK(refusal_of(builder) == "accepted");
}

TEST_CASE("lists that are missing or of another type are refused") {
  for (const char* key :
       {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    GgufBuilder builder = small_vocabulary().builder();
    builder.set(key, 7u);
    CHECK_THAT(refusal_of(builder), ContainsSubstring(key) && ContainsSubstring("UINT32"));
    builder.erase(key);
    CHECK(refusal_of(builder) == "key \"" + std::string(key) + "\" is missing");
  }
  GgufBuilder builder = small_vocabulary().builder();
  builder.set("tokenizer.ggml.tokens", std::vector<std::int32_t>{1, 2});
  CHECK_THAT(refusal_of(builder), ContainsSubstring("tokenizer.ggml.tokens"));
  builder = small_vocabulary().builder();
  builder.set("tokenizer.ggml.token_type", std::vector<std::string>{"1"});
  CHECK_THAT(refusal_of(builder), ContainsSubstring("tokenizer.ggml.token_type"));
}

TEST_CASE("token types that don't fit the tokens are refused") {
  SmallVocabulary vocabulary = small_vocabulary();
  vocabulary.types.pop_back();
  CHECK(refusal_of(vocabulary) == kTypes + "has 272 entries, expected 273, one for each token");
  vocabulary.types.insert(vocabulary.types.end(), {5, 5});
  CHECK(refusal_of(vocabulary) == kTypes + "has 274 entries, expected 273, one for each token");

  for (const std::int32_t type : {-1, 0, 2, 6, 7, 1 << 30}) {
    vocabulary = small_vocabulary();
    vocabulary.types[259] = type;
    CHECK(refusal_of(vocabulary) ==
          kTypes + "gives token 259 the type " + std::to_string(type) +
              ", expected 1 (normal), 3 (control), 4 (user-defined) or 5 (unused)");
  }
  vocabulary = small_vocabulary();
  vocabulary.types[264] = 5;
  CHECK(refusal_of(vocabulary) ==
        kTypes + "has unused tokens before token 265, expected them at the end only");
}

TEST_CASE("tokens that are empty, twice there or misspelt are refused") {
  SmallVocabulary vocabulary = small_vocabulary();
  vocabulary.tokens[266] = "";
  CHECK(refusal_of(vocabulary) == kTokens + "has nothing for token 266, expected its text");

  vocabulary = small_vocabulary();
  vocabulary.tokens[269] = "<|im_start|>";
  CHECK(refusal_of(vocabulary) ==
        kTokens + "has token 269, \"<|im_start|>\", also as token 267, expected each once");

  for (const char* text : {"hello world", "\x7F", "\u00AD", "\u0144", "\u4F60", "\xFF", "\xC4"}) {
    vocabulary = small_vocabulary();
    vocabulary.add("x", 5);
    vocabulary.tokens[265] = text;
    vocabulary.merges.pop_back();
    CHECK_THAT(refusal_of(vocabulary),
               ContainsSubstring(kTokens + "has token 265") &&
                   ContainsSubstring("expected the alphabet of byte-level BPE only"));
  }
  // What an UNUSED row is called does not matter.
  vocabulary = small_vocabulary();
  vocabulary.tokens[271] = vocabulary.tokens[272] = "";
  CHECK(refusal_of(vocabulary) == "accepted");
  vocabulary.tokens[271] = vocabulary.tokens[272] = "<|im_end|>";
  CHECK(refusal_of(vocabulary) == "accepted");
}

TEST_CASE("a byte without a token is refused") {
  SmallVocabulary vocabulary = small_vocabulary();
  vocabulary.tokens['z'] = "zz";
  CHECK(refusal_of(vocabulary) ==
        kTokens + "has no token for the byte 122, expected one for each of the 256");
  vocabulary = small_vocabulary();
  vocabulary.types['z'] = 3;
  CHECK(refusal_of(vocabulary) ==
        kTokens + "has no token for the byte 122, expected one for each of the 256");

  GgufBuilder builder = small_vocabulary().builder();
  builder.set("tokenizer.ggml.tokens", std::vector<std::string>{});
  builder.set("tokenizer.ggml.token_type", std::vector<std::int32_t>{});
  CHECK(refusal_of(builder) ==
        kTokens + "has no token for the byte 0, expected one for each of the 256");
}

TEST_CASE("merges that are malformed or name no tokens are refused") {
  const auto refusal_of_merge = [](const std::string& merge) {
    SmallVocabulary vocabulary = small_vocabulary();
    vocabulary.merges[3] = merge;
    return refusal_of(vocabulary);
  };
  const std::string two_tokens = ", expected two tokens with one space between them";
  CHECK(refusal_of_merge("hello") == kMerges + "has merge 3, \"hello\"" + two_tokens);
  CHECK(refusal_of_merge("") == kMerges + "has merge 3, \"\"" + two_tokens);
  CHECK(refusal_of_merge("h e l") == kMerges + "has merge 3, \"h e l\"" + two_tokens);
  CHECK(refusal_of_merge(" ") ==
        kMerges + "has merge 3, \" \", but \"\" is no normal token, expected one");
  CHECK(refusal_of_merge("hell ") ==
        kMerges + "has merge 3, \"hell \", but \"\" is no normal token, expected one");
  CHECK(refusal_of_merge("hel lo") ==
        kMerges + "has merge 3, \"hel lo\", but \"hel\" is no normal token, expected one");
  CHECK(refusal_of_merge("hell e") ==
        kMerges + "has merge 3, \"hell e\", but \"helle\" is no normal token, expected one");
  CHECK(refusal_of_merge("he ll") ==
        kMerges + "has merge 3, \"he ll\", which is there before, expected each merge once");
}

TEST_CASE("merges can't make special tokens out of plain text") {
  SmallVocabulary vocabulary = small_vocabulary();
  vocabulary.tokens[271] = "<>";
  vocabulary.types[271] = 3;
  vocabulary.merges.push_back("< >");
  CHECK(refusal_of(vocabulary) ==
        kMerges + "has merge 10, \"< >\", but \"<>\" is no normal token, expected one");
}

TEST_CASE("special ids out of range are refused") {
  for (const char* key : {"bos", "eos", "eot", "padding", "unknown"}) {
    const std::string name = "tokenizer.ggml." + std::string(key) + "_token_id";
    GgufBuilder builder = small_vocabulary().builder();
    builder.set(name, 272u);
    CHECK(refusal_of(builder) == "accepted");
    builder.set(name, 273u);
    CHECK(refusal_of(builder) == "key \"" + name + "\" is 273, expected less than the 273 tokens");
    builder.set(name, 0xFFFFFFFFu);
    CHECK(refusal_of(builder) ==
          "key \"" + name + "\" is 4294967295, expected less than the 273 tokens");
    builder.set(name, "268");
    CHECK_THAT(refusal_of(builder), ContainsSubstring(name) && ContainsSubstring("STRING"));
  }
}

TEST_CASE("a vocabulary without an end of turn is refused") {
  SmallVocabulary vocabulary = small_vocabulary();
  vocabulary.tokens[268] = "<|end|>";
  CHECK(refusal_of(vocabulary) ==
        kTokens + "has no control token \"<|im_end|>\", expected it to end an answer");
}

}  // namespace
}  // namespace minfer
