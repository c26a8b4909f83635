#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Brings hard_texts.json up to date: for each of its texts the ids that the `tokenizers` package
gives it, and for every code point in four contexts a checksum of its ids. A text is added to the
file by hand, as `{"kind": ..., "text": ...}`; its ids are added by this."""

from __future__ import annotations

import argparse
import json
import struct
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import peer
import tokenizers

FILE = HERE / "hard_texts.json"


def checksum(ids: list[list[int]]) -> int:
    """CRC-32 over the ids of all texts, as 32-bit little-endian numbers in a row."""
    crc = 0
    for of_one in ids:
        crc = zlib.crc32(struct.pack(f"<{len(of_one)}i", *of_one), crc)
    return crc


def expected(vocabulary: peer.Vocabulary, kinds: list[str], texts: list[str]) -> dict:
    """The whole file, from what a person wrote of it."""
    plain = peer.tokenizer(vocabulary, specials=False)
    special = peer.tokenizer(vocabulary, specials=True)
    entries = [
        {"kind": kind, "text": text, "ids": ids, "ids_with_specials": ids_with_specials}
        for kind, text, ids, ids_with_specials in zip(
            kinds, texts, peer.encode(plain, texts), peer.encode(special, texts)
        )
    ]
    code_points = [
        {
            "context": name,
            "before": before,
            "after": after,
            "crc32": checksum(
                peer.encode(plain, [before + chr(c) + after for c in peer.CODE_POINTS])
            ),
        }
        for name, (before, after) in peer.CONTEXTS.items()
    ]
    return {
        "about": "Made by tests/tokenizer/make_hard_texts.py from the vocabulary of coder-0.5b, which"
        " all Qwen2.5 models share. crc32: of the ids of every code point but surrogates, between"
        " `before` and `after`, as 32-bit little-endian numbers in a row.",
        "tokenizers": tokenizers.__version__,
        "code_points": code_points,
        "texts": entries,
    }


def as_json(value: dict) -> str:
    """One line for each text, and only ASCII: some of the texts would make a mess of an editor."""
    lines = {key: json.dumps(v) for key, v in value.items() if not isinstance(v, list)}
    for key in ("code_points", "texts"):
        entries = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in value[key])
        lines[key] = f"[\n{entries}\n]"
    return "{\n" + ",\n".join(f'"{key}": {text}' for key, text in lines.items()) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make_hard_texts.py", description=__doc__)
    parser.add_argument("model", help="the GGUF file of coder-0.5b: tools/get_model coder-0.5b")
    vocabulary = peer.read_vocabulary(parser.parse_args().model)
    entries = json.loads(FILE.read_text())["texts"]
    kinds, texts = ([entry[key] for entry in entries] for key in ("kind", "text"))
    FILE.write_text(as_json(expected(vocabulary, kinds, texts)))
    print(FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
