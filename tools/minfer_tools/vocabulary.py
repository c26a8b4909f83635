# SPDX-License-Identifier: MIT
"""A byte-level BPE vocabulary of any size, laid out as Qwen2.5's is.

First the 256 bytes, then one token for each merge, in the order of the merges, then 22 special
tokens, then rows of type UNUSED that only fill up the matrices. The first merges are learnt from a
short text, so that ordinary text becomes words; a big vocabulary is filled up with all the strings
of two, three and four letters, in order.
"""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from dataclasses import dataclass
from typing import Iterator

from .errors import Failure

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5

END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
USER_DEFINED_TOKENS = ("<tool_call>", "</tool_call>")
SPECIAL_TOKENS = (
    (END_OF_TEXT, "<|im_start|>", END_OF_TURN)
    + tuple(
        f"<|{what}_{end}|>"
        for what in ("object_ref", "box", "quad", "vision")
        for end in ("start", "end")
    )
    + ("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
    + USER_DEFINED_TOKENS
    + (
        "<|fim_prefix|>",
        "<|fim_middle|>",
        "<|fim_suffix|>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
    )
)

DEFAULT_SYSTEM_MESSAGE = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] != 'system' -%}"
    "{{- '<|im_start|>system\\n" + DEFAULT_SYSTEM_MESSAGE + "<|im_end|>\\n' -}}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)

_LEARNT_MERGES = 600
_TEXT = f"""{DEFAULT_SYSTEM_MESSAGE} system user assistant
A small model has a small vocabulary, and its words are the ones of a short text such as this. The weights are random
numbers, so that the answers mean nothing; but each answer is always the same, on every machine, and that is what the
tests need. The reader of the file looks at the header, the keys and the tensors, one after the other, and refuses what
is not right. The tokenizer splits the text into words, and the words into pieces; where no piece fits, the bytes remain.
The attention looks back over the tokens that came before, the gate and the up projection go forward, and the head
gives one number for each row of the vocabulary; the largest of them is the next token.
Write a haiku about the sea. Explain how a lighthouse works. Count from one to twenty. Write a function that adds two
numbers and returns the sum. Tell a story of the wind, the water, the night and the light on the hill.
"""


@dataclass(frozen=True)
class Vocabulary:
    tokens: list[str]
    types: list[int]
    merges: list[str]
    real: int
    """Rows that stand for a token; the others, up to len(tokens), are UNUSED."""

    def id_of(self, token: str) -> int:
        return self.tokens.index(token)


def byte_characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary, by byte.

    A byte that is a visible character of Latin-1 stands for itself; the others, in order, are the
    characters from 256 on. So no token holds a space or a control character.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return [chr(byte) if byte in visible else chr(next(others)) for byte in range(256)]


def _learnt_merges(limit: int) -> Iterator[tuple[str, str]]:
    """The merges that BPE learns from the text: again and again, the commonest pair of neighbours
    becomes a token."""
    character = byte_characters()
    counts = Counter(re.findall(r" ?[A-Za-z]+", _TEXT))
    words = {
        tuple(character[byte] for byte in word.encode()): count for word, count in counts.items()
    }
    for _ in range(limit):
        pairs: Counter = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            return
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        yield best
        words = {_merged(word, best): count for word, count in words.items()}


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    result: list[str] = []
    for symbol in word:
        if result and (result[-1], symbol) == pair:
            result[-1] += symbol
        else:
            result.append(symbol)
    return tuple(result)


def _letter_merges() -> Iterator[tuple[str, str]]:
    """Merges that make every string of two, three and four lower-case letters, from shorter
    ones."""
    letters = string.ascii_lowercase
    pairs = [first + second for first in letters for second in letters]
    yield from itertools.product(letters, letters)
    yield from itertools.product(pairs, letters)
    yield from itertools.product(pairs, pairs)


def _merges(count: int) -> list[tuple[str, str]]:
    merges: dict[str, tuple[str, str]] = {}
    for pair in itertools.chain(_learnt_merges(_LEARNT_MERGES), _letter_merges()):
        if len(merges) == count:
            break
        merges.setdefault("".join(pair), pair)
    if len(merges) < count:
        raise Failure(
            f"--vocab asks for {count} merges, at most {len(merges)} can be made", status=2
        )
    return list(merges.values())


def build(rows: int, unused: int) -> Vocabulary:
    """A vocabulary of `rows` rows, the last `unused` of which are UNUSED."""
    count = rows - unused - len(SPECIAL_TOKENS) - 256
    if unused < 0 or count < 0:
        least = 256 + len(SPECIAL_TOKENS) + max(unused, 0)
        raise Failure(
            f"--vocab is {rows}, expected at least {least}: bytes, special tokens and unused rows",
            status=2,
        )
    bytes_in_order = sorted(byte_characters())
    merges = _merges(count)
    real = rows - unused
    padding = [f"[PAD{row}]" for row in range(real, rows)]
    tokens = bytes_in_order + ["".join(pair) for pair in merges] + list(SPECIAL_TOKENS) + padding
    types = [NORMAL] * (256 + count)
    types += [USER_DEFINED if token in USER_DEFINED_TOKENS else CONTROL for token in SPECIAL_TOKENS]
    types += [UNUSED] * unused
    return Vocabulary(tokens, types, [" ".join(pair) for pair in merges], real)
