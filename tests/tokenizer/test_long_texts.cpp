// SPDX-License-Identifier: MIT
// Texts of millions of characters, in which pieces are as long as the text, and a vocabulary that
// was made to be slow: time in proportion, and no recursion. (An algorithm that is quadratic in the
// length would take minutes or hours.)
#include <minfer/text/tokenizer.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "tokenizer/small_vocabulary.h"

namespace minfer {
namespace {

using Ids = std::vector<Token>;

TEST_CASE("long texts take time in proportion, and no recursion") {
  const Tokenizer tokenizer(test::open_built(test::small_vocabulary().builder()));
  constexpr std::size_t kLong = 4'000'000;

  const Ids letters = tokenizer.encode(std::string(43'000, 'A'));
  CHECK(letters == Ids(43'000, 'A'));
  CHECK(tokenizer.encode(std::string(kLong, 'A')).size() == kLong);
  CHECK(tokenizer.encode(std::string(kLong, 'a')) == Ids(kLong / 4, 263));
  CHECK(tokenizer.encode(std::string(kLong, ' ')) == Ids(kLong / 2, 264));
  CHECK(tokenizer.encode(std::string(kLong, '\n')) == Ids(kLong / 2, 265));
  CHECK(tokenizer.encode(std::string(kLong, '7')) == Ids(kLong, '7'));
  CHECK(tokenizer.encode(std::string(kLong, '<')) == Ids(kLong, '<'));
  CHECK(tokenizer.encode_with_specials(std::string(kLong, '<')) == Ids(kLong, '<'));

  std::string blank_lines;
  for (std::size_t i = 0; i < kLong / 4; ++i) blank_lines += "\n  x";
  CHECK(tokenizer.encode(blank_lines).size() == kLong);
}

/// The i-th of 2^64 names of 16 bytes that all have one hash in libstdc++, where it is
/// MurmurHash64A: for any first word there is a second that takes its state to zero.
std::string colliding_name(std::uint64_t i) {
  constexpr std::uint64_t kMultiplier = 0xc6a4a7935bd1e995u;
  constexpr std::uint64_t kSeed = 0xc70f6907u;
  std::uint64_t inverse = kMultiplier;  // modulo 2^64; each step doubles the bits that are right
  for (int step = 0; step < 5; ++step) inverse *= 2 - kMultiplier * inverse;

  const auto mix = [](std::uint64_t x) { return (x ^ x >> 47) * kMultiplier; };
  const auto unmix = [inverse](std::uint64_t x) { return x * inverse ^ x * inverse >> 47; };
  const std::uint64_t start = kSeed ^ 16 * kMultiplier;
  const std::uint64_t state = (start ^ mix(i * kMultiplier)) * kMultiplier;
  const std::uint64_t words[2] = {i, unmix(state) * inverse};
  std::string name(16, ' ');
  std::memcpy(&name[0], words, sizeof words);
  return name;
}

TEST_CASE("tokens whose names were made to collide") {
#if defined(__GLIBCXX__) && __SIZEOF_SIZE_T__ == 8
  const std::hash<std::string_view> hash;
  REQUIRE(colliding_name(1) != colliding_name(2));
  REQUIRE(hash(colliding_name(1)) == hash(colliding_name(2)));
#endif
  test::SmallVocabulary vocabulary = test::byte_vocabulary();
  constexpr std::uint64_t kNames = 300'000;
  for (std::uint64_t i = 1; i <= kNames; ++i) vocabulary.add(colliding_name(i), 3);
  vocabulary.add("<|im_end|>", 3);
  const GgufFile file = test::open_built(vocabulary.builder());

  const auto start = std::chrono::steady_clock::now();
  const Tokenizer tokenizer(file);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(tokenizer.encode_with_specials("a" + colliding_name(kNames)) == Ids{'a', 255 + kNames});
  CHECK(seconds.count() < 5);  // compared each with each they take minutes
}

}  // namespace
}  // namespace minfer
