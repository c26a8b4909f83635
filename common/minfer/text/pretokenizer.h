// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string_view>

namespace minfer {

/// Where the piece that begins at `begin` ends, when a text is cut up for byte-level BPE as Qwen2
/// does it: tokens never reach over the end of a piece. The pieces are the successive matches of
///
///     (?i:'s|'t|'re|'ve|'m|'ll|'d)      a contraction
///     [^\r\n\p{L}\p{N}]?\p{L}+          a word, with one character before it that is no newline
///     \p{N}                             a single digit
///      ?[^\s\p{L}\p{N}]+[\r\n]*         signs, with a space before and newlines after
///     \s*[\r\n]+                        white space up to its last newline
///     \s+(?!\S)                         white space, except for the last before something else
///     \s+                               that last one
///
/// of which the first that matches counts. Every character begins one of them, so the pieces make
/// up the whole text. Written out by hand: the time is linear in the text, whatever it holds, and
/// nothing recurses. Bytes that are not UTF-8 count as signs.
/// @pre begin < text.size()
std::size_t piece_end(std::string_view text, std::size_t begin);

}  // namespace minfer
