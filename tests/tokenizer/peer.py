# SPDX-License-Identifier: MIT
"""The `tokenizers` package set up with a GGUF file's vocabulary and merges: what ours has to equal."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from minfer_tools import gguf_file

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)

# Every code point that a string can hold; surrogates are none.
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]

# What a code point is put between. After an apostrophe it may be part of a contraction.
CONTEXTS = {
    "alone": ("", ""),
    "after an apostrophe": ("'", "e"),
    "between letters": ("a", "b"),
    "after a space": (" ", ""),
}


@dataclass(frozen=True)
class Vocabulary:
    """What a GGUF file says of its tokenizer."""

    tokens: list[str]
    types: list[int]
    merges: list[str]
    template: str

    @property
    def real(self) -> list[int]:
        return [i for i, kind in enumerate(self.types) if kind != UNUSED]


def _strings(value: bytes) -> Iterator[str]:
    """The elements of an encoded array of strings."""
    kind, count = struct.unpack_from("<IQ", value)
    assert kind == gguf_file.STRING
    position = 12
    for _ in range(count):
        (size,) = struct.unpack_from("<Q", value, position)
        position += 8
        yield value[position : position + size].decode()
        position += size


def read_vocabulary(path: str | Path) -> Vocabulary:
    values = {pair.key: pair.value for pair in gguf_file.Reader(path).pairs}
    types = values["tokenizer.ggml.token_type"]
    return Vocabulary(
        tokens=list(_strings(values["tokenizer.ggml.tokens"])),
        types=list(struct.unpack_from(f"<{(len(types) - 12) // 4}i", types, 12)),
        merges=list(_strings(values["tokenizer.ggml.merges"])),
        template=values["tokenizer.chat_template"][8:].decode(),
    )


def split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")


def tokenizer(vocabulary: Vocabulary, specials: bool) -> Tokenizer:
    """For plain text, or with the control and user-defined tokens recognised in it."""
    peer = Tokenizer(
        models.BPE(
            vocab={vocabulary.tokens[i]: i for i in vocabulary.real},
            merges=[tuple(merge.split(" ")) for merge in vocabulary.merges],
            ignore_merges=False,
        )
    )
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    peer.pre_tokenizer = pre_tokenizers.Sequence([split(), byte_level])
    peer.decoder = decoders.ByteLevel()
    if specials:
        peer.add_tokens(
            [
                AddedToken(token, special=kind == CONTROL, normalized=False)
                for token, kind in zip(vocabulary.tokens, vocabulary.types)
                if kind in (CONTROL, USER_DEFINED)
            ]
        )
    return peer


def encode(peer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [e.ids for e in peer.encode_batch(texts, add_special_tokens=False)]
