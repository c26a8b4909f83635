# SPDX-License-Identifier: MIT
"""C++ and CUDA sources as far as the rules need them: comments apart from code, and where kernels are."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
_PARAM_DOC = re.compile(r"@param\[\s*(in|out|in\s*,\s*out)\s*\]\s+(\w+)((?:(?!@\w).)*)", re.DOTALL)
_KERNEL = re.compile(r"\b__global__\b")
_NAME = re.compile(r"(\w+)\s*(?:<[^<>;{}()]*>)?\s*\(")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel."""

    name: str
    is_pointer: bool


@dataclass(frozen=True)
class Kernel:
    """The definition of a `__global__` function; lines count from 1."""

    name: str
    first_line: int
    last_line: int
    end: int  #: the offset behind its closing brace
    parameters: tuple[Parameter, ...]
    comment: str  #: the text of the `///` lines right above it

    @property
    def stem(self) -> str:
        """The operation's name: a kernel may be told from its launch function by `_kernel`."""
        return self.name.removesuffix("_kernel")

    def documented(self) -> dict[str, tuple[str, str]]:
        """Direction and text of each `@param[direction] name text`."""
        return {m[2]: (re.sub(r"\s", "", m[1]), m[3]) for m in _PARAM_DOC.finditer(self.comment)}

    def has_command(self, command: str) -> bool:
        """Whether the comment has `@command{something}`."""
        return re.search(rf"@{command}\{{\s*[^}}\s]", self.comment) is not None


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

    @cached_property
    def kernels(self) -> list[Kernel]:
        return list(self._find_kernels())

    def _find_kernels(self) -> Iterator[Kernel]:
        for match in _KERNEL.finditer(self.code):
            head = _blank_calls(self.code, match.end())
            named = _NAME.search(head)
            if not named:
                continue
            begin = match.end() + named.end() - 1
            close = _closing(self.code, begin, "()")
            brace = re.compile(r"\s*\{").match(self.code, close)
            if not brace:
                continue  # a declaration
            end = _closing(self.code, brace.end() - 1, "{}")
            line = self.line_of(match.start())
            yield Kernel(named[1], line, self.line_of(end - 1), end, tuple(_parameters(self.code[begin + 1:close - 1])),
                         self._comment_above(line))

    def _comment_above(self, line: int) -> str:
        """The `///` lines above a declaration whose `__global__` is on `line`, its template lines skipped."""
        index = line - 2
        while index >= 0 and re.match(r"\s*(template\b|typename\b|[^;{}#]*>\s*$)", self.code_lines[index]):
            index -= 1
        comment: list[str] = []
        while index >= 0 and self.lines[index].lstrip().startswith("///"):
            comment.insert(0, self.lines[index].lstrip()[3:])
            index -= 1
        return "\n".join(comment)


def _blank_calls(code: str, begin: int) -> str:
    """The code from `begin` on, with `__launch_bounds__(...)` and its like, which come before the name, blanked."""
    def blank(match: re.Match) -> str:
        return " " * len(match[0])

    return re.sub(r"\b__(?:launch_bounds|cluster_dims|maxnreg)__\s*\((?:[^()]|\([^()]*\))*\)", blank, code[begin:begin + 4000])


def _closing(code: str, begin: int, pair: str) -> int:
    """The offset behind what closes the bracket at `begin`; the end of the text if nothing does."""
    depth = 0
    for index in range(begin, len(code)):
        if code[index] == pair[0]:
            depth += 1
        elif code[index] == pair[1]:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(code)


def _parameters(text: str) -> Iterator[Parameter]:
    depth, piece = 0, ""
    for character in text + ",":
        if character == "," and depth == 0:
            if piece.strip() not in ("", "void"):
                yield _parameter(piece)
            piece = ""
            continue
        depth += (character in "(<[{") - (character in ")>]}")
        piece += character


def _parameter(text: str) -> Parameter:
    declaration = text.split("=", 1)[0]
    names = re.findall(r"[A-Za-z_]\w*", re.sub(r"\[[^\]]*\]", "", declaration))
    return Parameter(names[-1] if names else "", "*" in declaration or "[" in declaration)
