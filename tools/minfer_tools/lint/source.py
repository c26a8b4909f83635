# SPDX-License-Identifier: MIT
"""C++ and CUDA sources as far as the rules need them: code, comments and strings apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

#: Comments, raw strings, strings and characters; a quote after a digit separates digits (1'000).
_TOKEN = re.compile(
    r"""(?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)
      |(?P<raw>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?<![0-9a-fA-F])(?P<character>'(?:[^'\\\n]|\\.)+')""",
    re.DOTALL | re.VERBOSE)


@dataclass(frozen=True)
class Source:
    """A file, and the same file with only its code, its comments or its strings left in place."""

    path: Path
    text: str
    code: str = field(repr=False)
    comments: str = field(repr=False)
    strings: str = field(repr=False)

    @staticmethod
    def read(path: Path) -> Source:
        text = path.read_text(encoding="utf-8")
        if path.name == "CMakeLists.txt" or path.suffix == ".cmake":
            return Source(path, text, text, text, text)
        parts = {name: [" "] * len(text) for name in ("code", "comments", "strings")}
        position = 0
        for token in _TOKEN.finditer(text):
            parts["code"][position:token.start()] = text[position:token.start()]
            part = "comments" if token["comment"] is not None else "strings"
            parts[part][token.start():token.end()] = token[0]
            position = token.end()
        parts["code"][position:] = text[position:]
        for part in parts.values():
            for index, character in enumerate(text):
                if character == "\n":
                    part[index] = "\n"
        return Source(path, text, *("".join(part) for part in parts.values()))

    def line_of(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def comment_lines(self) -> list[str]:
        return self.comments.splitlines()

    @cached_property
    def code_lines(self) -> list[str]:
        return self.code.splitlines()
