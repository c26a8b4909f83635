// SPDX-License-Identifier: MIT
//
// Where drafts come from, and how many are made.
#include <vector>

#include "catch.h"
#include "speculation.h"

namespace minfer {
namespace {

using Tokens = std::vector<Token>;

/// As many drafts after a text as are asked for.
Tokens drafts(const Tokens& text, std::size_t limit) {
  Speculation speculation;
  speculation.read(text, 0);
  Tokens ids = speculation.next(limit);
  REQUIRE(ids.at(0) == text.back());
  return {ids.begin() + 1, ids.end()};
}

TEST_CASE("a draft is what followed the latest of the longest matches") {
  REQUIRE(find_match({1, 2, 3}).length == 0);
  REQUIRE(drafts({1, 2, 3}, 7).empty());
  // The last token stood at 0 and at 2: the later one counts.
  REQUIRE(drafts({5, 1, 5, 2, 5}, 2) == Tokens{2, 5});
  // Two that are equal count more than a later one.
  REQUIRE(drafts({8, 5, 1, 5, 2, 8, 5}, 3) == Tokens{1, 5, 2});
  // Three are enough: that four are equal at 0 is not looked for.
  REQUIRE(find_match({9, 1, 2, 3, 7, 1, 2, 3, 8, 9, 1, 2, 3}).from == 8);
  REQUIRE(find_match({9, 1, 2, 3, 7, 1, 2, 3, 8, 9, 1, 2, 3}).length == 3);
  // A match may begin with the text, and not before it.
  REQUIRE(find_match({1, 2, 1, 2}).length == 2);
  REQUIRE(find_match({1}).length == 0);
}

TEST_CASE("a text that repeats itself is drafted on") {
  REQUIRE(drafts({4, 4}, 5) == Tokens{4, 4, 4, 4, 4});
  REQUIRE(drafts({1, 2, 1, 2}, 5) == Tokens{1, 2, 1, 2, 1});
}

TEST_CASE("no more is drafted than asked for, nor than a step carries") {
  for (std::size_t limit = 0; limit < 10; ++limit) {
    REQUIRE(drafts({4, 4}, limit).size() == std::min<std::size_t>(limit, kMaxDrafts));
  }
}

TEST_CASE("what was read beyond a position is forgotten") {
  Speculation speculation;
  speculation.read(Tokens{1, 2, 3, 1, 2}, 0);
  REQUIRE(speculation.next(1) == Tokens{2, 3});
  speculation.read(Tokens{9, 1, 2}, 2);  // 1 2 9 1 2
  REQUIRE(speculation.next(2) == Tokens{2, 9, 1});
  speculation.read(Tokens{7}, 0);
  REQUIRE(speculation.next(2) == Tokens{7});
}

/// Reads a text token by token, asking for drafts before each. @return how many it asked for in all
std::size_t drafted(Speculation& speculation, const Tokens& text) {
  std::size_t sum = 0;
  speculation.read(Span<const Token>(text).subspan(0, 1), 0);
  for (std::size_t i = 1; i < text.size(); ++i) {
    sum += speculation.next(kMaxDrafts).size() - 1;
    speculation.read(Span<const Token>(text).subspan(i, 1), i);
  }
  return sum;
}

TEST_CASE("drafts are made where they pay") {
  Tokens circle, noise;
  for (Token i = 0; i < 300; ++i) {
    circle.push_back(i % 5);
    noise.push_back(i % 2 == 0 ? 0 : 1000 + i);  // whose matches are never right
  }
  const std::vector<double> cheap = {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7};
  const std::vector<double> dear = {1, 2, 3, 4, 5, 6, 7, 8};

  Speculation right(cheap), wrong(cheap), never(dear);
  REQUIRE(drafted(right, circle) > 7 * 250);  // nearly always all seven
  REQUIRE(drafted(wrong, noise) < 10);        // given up soon
  REQUIRE(drafted(never, circle) == 0);       // a token a time is as good, and surer
}

TEST_CASE("drafts are made where they promise a twentieth more") {
  const Tokens text = {1, 2, 3, 4,
                       1, 2, 3};  // after three that match, a draft is right half the time
  for (const double time : {1.42, 1.44}) {
    Speculation speculation({1, time});
    speculation.read(text, 0);
    REQUIRE(speculation.next(1).size() == (time < 1.5 / 1.05 ? 2 : 1));
  }
}

TEST_CASE("drafts that were given up are taken up again, where the text has changed") {
  Tokens text;
  for (Token i = 0; i < 200; ++i) text.push_back(i % 2 == 0 ? 0 : 1000 + i);
  for (Token i = 0; i < 200; ++i) text.push_back(i % 5);
  Speculation speculation({1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7});
  REQUIRE(drafted(speculation, text) > 7 * 120);
}

}  // namespace
}  // namespace minfer
