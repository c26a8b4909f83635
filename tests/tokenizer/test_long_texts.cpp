// SPDX-License-Identifier: MIT
// Texts of millions of characters, in which pieces are as long as the text: time in proportion, and
// no recursion. (An algorithm that is quadratic in the length would take hours.)
#include <minfer/tokenizer.h>

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

}  // namespace
}  // namespace minfer
