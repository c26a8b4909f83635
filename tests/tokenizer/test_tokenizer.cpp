// SPDX-License-Identifier: MIT
// Encoding and decoding with a vocabulary small enough to be followed by hand.
#include <minfer/text/tokenizer.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "tokenizer/small_vocabulary.h"

namespace minfer {
namespace {

using Ids = std::vector<Token>;
using test::small_vocabulary;
using test::SmallVocabulary;

Tokenizer make(const SmallVocabulary& vocabulary) {
  return Tokenizer(test::open_built(vocabulary.builder()));
}

TEST_CASE("merges go by rank") {
  const Tokenizer tokenizer = make(small_vocabulary());
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.encode("x") == Ids{'x'});
  CHECK(tokenizer.encode("hello") == Ids{259});
  CHECK(tokenizer.encode("hello hello") == Ids{259, 260});
  CHECK(tokenizer.encode("hell") == Ids{258});
  CHECK(tokenizer.encode("helo") == Ids{256, 'l', 'o'});
  CHECK(tokenizer.encode("lllo") == Ids{257, 'l', 'o'});  // of one rank the leftmost goes first
  CHECK(tokenizer.encode("\u00E9") == Ids{261});
  CHECK(tokenizer.encode("aaaaaaa") == Ids{263, 262, 'a'});
}

TEST_CASE("tokens never reach over the end of a piece") {
  const Tokenizer tokenizer = make(small_vocabulary());
  CHECK(tokenizer.encode("a   b") == Ids{'a', 264, ' ', 'b'});
  CHECK(tokenizer.encode("\n\n\n") == Ids{265, '\n'});
  CHECK(tokenizer.encode("he'll") == Ids{256, '\'', 257});
}

TEST_CASE("plain text has no special tokens in it") {
  const Tokenizer tokenizer = make(small_vocabulary());
  const std::string text = "<|im_end|>";
  const Ids ids = tokenizer.encode(text);
  CHECK(ids == Ids(text.begin(), text.end()));
  CHECK(tokenizer.decode(ids) == text);
  CHECK(tokenizer.encode_with_specials(text) == Ids{268});
}

TEST_CASE("special tokens are found leftmost, then longest") {
  const Tokenizer tokenizer = make(small_vocabulary());
  CHECK(tokenizer.encode_with_specials("").empty());
  CHECK(tokenizer.encode_with_specials("hello<tool>hello") == Ids{259, 269, 259});
  CHECK(tokenizer.encode_with_specials("<tool> call") == Ids{270});
  CHECK(tokenizer.encode_with_specials("<tool> cal") == Ids{269, ' ', 'c', 'a', 'l'});
  CHECK(tokenizer.encode_with_specials("<tool><tool>") == Ids{269, 269});
  CHECK(tokenizer.encode_with_specials("<<tool>") == Ids{'<', 269});
  CHECK(tokenizer.encode_with_specials("<tool") == Ids{'<', 't', 'o', 'o', 'l'});
  CHECK(tokenizer.encode_with_specials("[PAD271]") == tokenizer.encode("[PAD271]"));

  SmallVocabulary overlapping = small_vocabulary();
  overlapping.types[271] = overlapping.types[272] = 4;
  overlapping.tokens[271] = "ab";
  overlapping.tokens[272] = "bcd";
  overlapping.add("abcde", 4);  // 273
  const Tokenizer other = make(overlapping);
  CHECK(other.encode_with_specials("abcd") == Ids{271, 'c', 'd'});
  CHECK(other.encode_with_specials("bcdabcde") == Ids{272, 273});
  CHECK(other.encode_with_specials("abbcd") == Ids{271, 272});
}

TEST_CASE("bytes and names of tokens") {
  const Tokenizer tokenizer = make(small_vocabulary());
  CHECK(tokenizer.bytes(260) == " hello");
  CHECK(tokenizer.name(260) == "\u0120hello");
  CHECK(tokenizer.bytes(0xFF) == "\xFF");
  CHECK(tokenizer.bytes(0) == std::string_view("\0", 1));
  CHECK(tokenizer.bytes(268).empty());
  CHECK(tokenizer.name(268) == "<|im_end|>");
  CHECK(tokenizer.bytes(270) == "<tool> call");  // user-defined: as it is, with its space
  CHECK(tokenizer.bytes(271).empty());
  CHECK(tokenizer.name(271) == "[PAD271]");
  for (const Token id : {-1, 273, 1 << 30, -(1 << 30)}) {
    CHECK(tokenizer.bytes(id).empty());
    CHECK(tokenizer.name(id).empty());
  }
  CHECK(tokenizer.decode(Ids{259, 268, 260, 999, 269, 0xC3}) == "hello hello<tool>\xC3");
}

TEST_CASE("counts, valid ids, ends of an answer") {
  SmallVocabulary vocabulary = small_vocabulary();
  const Tokenizer tokenizer = make(vocabulary);
  CHECK(tokenizer.n_vocab() == 273);
  CHECK(tokenizer.n_tokens() == 271);
  CHECK(tokenizer.is_valid(270));
  CHECK_FALSE(tokenizer.is_valid(271));
  CHECK_FALSE(tokenizer.is_valid(-1));
  CHECK(tokenizer.is_stop(266));
  CHECK(tokenizer.is_stop(268));
  CHECK_FALSE(tokenizer.is_stop(267));
  CHECK_FALSE(tokenizer.is_stop(-1));
  CHECK(tokenizer.special("<|im_start|>") == 267);
  CHECK(tokenizer.special("<tool>") == 269);
  CHECK_THROWS_WITH(tokenizer.special("hello"), ContainsSubstring("no special token \"hello\""));

  test::GgufBuilder builder = vocabulary.builder();
  builder.set("tokenizer.ggml.eos_token_id", 267u);
  const Tokenizer other(test::open_built(builder));
  CHECK(other.is_stop(267));
  CHECK(other.is_stop(268));
}

TEST_CASE("a tokenizer keeps nothing of its file, and can be moved") {
  Tokenizer first = make(small_vocabulary());  // the file is closed by now
  const Tokenizer second = std::move(first);
  CHECK(second.encode("hello") == Ids{259});
}

TEST_CASE("every text comes back from its ids, whatever its bytes") {
  const Tokenizer tokenizer = make(small_vocabulary());
  std::mt19937 random(2);
  const std::string alphabet = "hello a\n'\xC3\xA9\xFF\x01";
  for (int round = 0; round < 5000; ++round) {
    std::string text(random() % 40, ' ');
    for (char& c : text) {
      c = round % 2 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    }
    REQUIRE(tokenizer.decode(tokenizer.encode(text)) == text);
  }
}

/// Byte-pair encoding as it is defined: again and again, the first merge in the list that applies
/// is applied, at the leftmost place.
Ids merged_by_definition(const std::string& piece, const SmallVocabulary& vocabulary,
                         const std::map<std::string, Token>& ids) {
  std::vector<std::string> symbols;
  for (const unsigned char byte : piece) symbols.push_back(test::byte_letter(byte));
  for (std::size_t rank = 0; rank < vocabulary.merges.size();) {
    std::size_t i = 0;
    while (i + 1 < symbols.size() && symbols[i] + " " + symbols[i + 1] != vocabulary.merges[rank]) {
      ++i;
    }
    if (i + 1 >= symbols.size()) {
      ++rank;
      continue;
    }
    symbols[i] += symbols[i + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    rank = 0;
  }
  Ids result;
  for (const std::string& symbol : symbols) result.push_back(ids.at(symbol));
  return result;
}

TEST_CASE("merging equals its definition on random vocabularies") {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    SmallVocabulary vocabulary = test::byte_vocabulary();
    std::vector<std::string> words = {"a", "b", "c", "d"};
    std::set<std::pair<std::string, std::string>> pairs;
    while (pairs.size() < 30) {
      const std::string left = words[random() % words.size()];
      const std::string right = words[random() % words.size()];
      if (left.size() + right.size() > 7 || !pairs.emplace(left, right).second) continue;
      vocabulary.merge(left, right);
      words.push_back(left + right);
    }
    vocabulary.add("<|im_end|>", 3);
    std::map<std::string, Token> ids;
    for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      ids[vocabulary.tokens[i]] = static_cast<Token>(i);
    }
    const Tokenizer tokenizer = make(vocabulary);
    for (int n = 0; n < 100; ++n) {
      std::string word(1 + random() % 30, ' ');
      for (char& c : word) c = static_cast<char>('a' + random() % 4);
      REQUIRE(tokenizer.encode(word) == merged_by_definition(word, vocabulary, ids));
    }
  }
}

}  // namespace
}  // namespace minfer
