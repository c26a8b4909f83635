// SPDX-License-Identifier: MIT
// The pieces that a text is cut into. (The Python tests compare them with the tokenizers package
// on every code point; here is what can be read.)
#include <minfer/text/pretokenizer.h>
#include <minfer/text/unicode_table.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "catch.h"

namespace minfer {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces(std::string_view text) {
  Pieces found;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(text, begin);
    found.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return found;
}

TEST_CASE("words take one character before them") {
  CHECK(pieces("Hello world") == Pieces{"Hello", " world"});
  CHECK(pieces("(x) ->y") == Pieces{"(x", ")", " ->", "y"});
  CHECK(pieces("-a--b") == Pieces{"-a", "--", "b"});
  CHECK(pieces("\tx") == Pieces{"\tx"});
  CHECK(pieces("\nx") == Pieces{"\n", "x"});
  CHECK(pieces("1x") == Pieces{"1", "x"});
}

TEST_CASE("digits stand alone, those of other scripts as well") {
  CHECK(pieces("2024") == Pieces{"2", "0", "2", "4"});
  CHECK(pieces(" 12") == Pieces{" ", "1", "2"});
  CHECK(pieces("\u0661\u0662") == Pieces{"\u0661", "\u0662"});
  CHECK(pieces("\u00BD\u2167") == Pieces{"\u00BD", "\u2167"});
}

TEST_CASE("contractions") {
  CHECK(pieces("it's") == Pieces{"it", "'s"});
  CHECK(pieces("WE'LL'VE") == Pieces{"WE", "'LL", "'VE"});
  CHECK(pieces("you're I'm he'd don't") ==
        Pieces{"you", "'re", " I", "'m", " he", "'d", " don", "'t"});
  CHECK(pieces("'tis") == Pieces{"'t", "is"});
  CHECK(pieces("'Sx 'REx 'Vex") == Pieces{"'S", "x", " '", "REx", " '", "Vex"});
  CHECK(pieces("'llx'LLx'lex") == Pieces{"'ll", "x", "'LL", "x", "'lex"});
  CHECK(pieces("'rx 'lx 'vx 'ex") == Pieces{"'rx", " '", "lx", " '", "vx", " '", "ex"});
  CHECK(pieces("'r") == Pieces{"'r"});
  CHECK(pieces("'") == Pieces{"'"});
  CHECK(pieces("''s") == Pieces{"''", "s"});
  // Where case is ignored the long s is an s; the Kelvin sign would be a k, which none has.
  CHECK(pieces("'\u017Fe") == Pieces{"'\u017F", "e"});
  CHECK(pieces("\u2019s") == Pieces{"\u2019s"});
}

TEST_CASE("signs take a space before and newlines after them") {
  CHECK(pieces("a !?\n\nb") == Pieces{"a", " !?\n\n", "b"});
  CHECK(pieces("a  !") == Pieces{"a", " ", " !"});
  CHECK(pieces("\t!") == Pieces{"\t", "!"});
  CHECK(pieces("(x):\r\n  y") == Pieces{"(x", "):\r\n", " ", " y"});
  CHECK(pieces("\u0301a") == Pieces{"\u0301a"});  // a combining mark is a sign
}

TEST_CASE("white space goes up to its last newline, and leaves one for what follows") {
  CHECK(pieces("a   b") == Pieces{"a", "  ", " b"});
  CHECK(pieces("a   1") == Pieces{"a", "  ", " ", "1"});
  CHECK(pieces("a   ") == Pieces{"a", "   "});
  CHECK(pieces("a \n \n  b") == Pieces{"a", " \n \n", " ", " b"});
  CHECK(pieces("\r\n\r\n") == Pieces{"\r\n\r\n"});
  CHECK(pieces("a\u00A0\u3000b") == Pieces{"a", "\u00A0", "\u3000b"});
  CHECK(pieces("\v\f\u0085 ") == Pieces{"\v\f\u0085 "});
}

TEST_CASE("bytes that are not UTF-8 count as signs") {
  CHECK(pieces("a\xFF\xFE!b") == Pieces{"a", "\xFF\xFE!", "b"});
  CHECK(pieces("\xE4\xBD"
               "a") == Pieces{"\xE4\xBD"
                              "a"});  // one sign, as one U+FFFD would be
  CHECK(pieces("a \xF0\x9F") == Pieces{"a", " \xF0\x9F"});
  CHECK(pieces(std::string_view("a\0b", 3)) == Pieces{"a", std::string("\0b", 2)});
}

TEST_CASE("pieces are never empty and make up the text, whatever its bytes") {
  std::mt19937 random(1);
  const std::string alphabet = "aZ'sre 1\t\n\r!\x80\xC2\x85\xC5\xBF\xE3\x80\xF0\x9F";
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 24, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    std::string joined;
    for (const std::string& piece : pieces(text)) {
      REQUIRE(!piece.empty());
      joined += piece;
    }
    REQUIRE(joined == text);
  }
}

TEST_CASE("the table's ranges are ascending and apart") {
  const Span<const CharRange> ranges = char_ranges();
  REQUIRE(ranges.size() > 500);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    REQUIRE(ranges[i].first <= ranges[i].last);
    REQUIRE(ranges[i].char_class != CharClass::kOther);
    if (i > 0) REQUIRE(ranges[i - 1].last < ranges[i].first);
  }
}

TEST_CASE("classes of some characters") {
  CHECK(char_class(U'a') == CharClass::kLetter);
  CHECK(char_class(0x4F60) == CharClass::kLetter);  // CJK
  CHECK(char_class(0x1780) == CharClass::kLetter);  // Khmer
  CHECK(char_class(0x17B6) == CharClass::kOther);   // a Khmer vowel sign
  CHECK(char_class(0x0664) == CharClass::kNumber);  // an Arabic digit
  CHECK(char_class(0x3000) == CharClass::kSpace);
  CHECK(char_class(0x200B) == CharClass::kOther);  // zero width space is none
  CHECK(char_class(0x1F600) == CharClass::kOther);
  CHECK(char_class(0xE000) == CharClass::kOther);  // private use
  CHECK(char_class(0x10FFFF) == CharClass::kOther);
  CHECK(char_class(0xFFFFFFFF) == CharClass::kOther);
}

}  // namespace
}  // namespace minfer
