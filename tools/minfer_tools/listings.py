# SPDX-License-Identifier: MIT
"""Code in a text, pulled from the sources that are compiled. It stands below the paragraph that speaks of it,

    <!-- code: gemv.cuh#gemv -->
    <!-- /code -->

and nobody writes between the markers by hand. Two names, of a definition before and after, make a diff:
`<!-- code: chapters/02-naive/gemv.cuh#gemv chapters/03-warp-gemv/gemv.cuh#gemv -->`."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import Failure
from .lint.source import Source

MARKED = re.compile(r"(<!-- code: (\S+(?: \S+)?) -->\n)(.*?)(<!-- /code -->)", re.DOTALL)
_MARKER = re.compile(r"<!-- (/?code)\b[^\n]*-->")
_PASTED = re.compile(r"^```(?:cuda|cpp|c\+\+)\b", re.MULTILINE)
_TAG = re.compile(r"@(\w+)(?:\[[a-z,]+\])?\s*")
_WIDTH = 100


@dataclass(frozen=True)
class Code:
    """A definition as a reader sees it: without the tags of its comments, which are for the reference."""

    file: str
    first: int  # its lines, counted from 1, with the comment above it
    last: int
    text: str
    requires: str
    launch: str  # of a kernel: how many blocks of how many threads, and the bytes that they move

    @property
    def body(self) -> list[str]:
        """Without the comment above."""
        lines = self.text.splitlines()
        while lines[0].startswith("//"):
            lines.pop(0)
        return lines

    @property
    def body_first(self) -> int:
        return self.last - len(self.body) + 1

    def notes(self) -> list[str]:
        """What stands with it: what it requires, how it is launched."""
        return [note for note in (f"Requires: {self.requires}." if self.requires else "", self.launch) if note]


# --- Finding -------------------------------------------------------------------------------------------


def _declarations(lines: list[str]) -> Iterator[tuple[int, int]]:
    """First and last line of what a scope declares: from the margin to a `;` or `}` that leaves no bracket open."""
    first, depth = None, 0
    for number, line in enumerate(lines):
        if first is None:
            if not line.strip() or line[0] in " #}" or line.startswith("namespace"):
                continue
            first, depth = number, 0
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        if depth == 0 and line.rstrip().endswith((";", "}")):
            yield first, number
            first = None


def _definitions(lines: list[str], name: str) -> Iterator[tuple[int, int]]:
    named = re.compile(rf"(?<![\w:]){re.escape(name)}\s*\(|\b(?:struct|class|union|enum)\s+(?:class\s+)?{re.escape(name)}\b")
    outer, _, inner = name.rpartition("::")
    for first, last in _declarations(lines):
        head, brace, _ = re.sub(r"template\s*<[^{;]*?>\s*\n", "", "\n".join(lines[first:last + 1])).partition("{")
        if brace and named.search(head):
            yield first, last
    for first, last in _definitions(lines, outer) if outer else ():
        members = [line[2:] if line.startswith("  ") else "" for line in lines[first + 1:last]]
        yield from ((first + 1 + i, first + 1 + j) for i, j in _definitions(members, inner))


def find(path: Path, name: str, shown: str) -> Code:
    """The definition of a name in a file. Raises Failure where there is none, or more than one."""
    if not path.is_file():
        raise Failure(f"{shown}: no such file, of which {name} was to be listed")
    source = Source.read(path)
    found = list(_definitions(source.code_lines, name))
    if len(found) != 1:
        raise Failure(f"{shown}: found {len(found)} definitions of {name}, expected one")
    (first, last), lines = found[0], source.lines
    while first and lines[first - 1].lstrip().startswith("//"):
        first -= 1
    text, requires = _tidy(textwrap.dedent("\n".join(lines[first:last + 1])).splitlines())
    return Code(shown, first + 1, last + 1, text, "; ".join(requires), _launch(source, name))


def _tidy(lines: list[str]) -> tuple[str, list[str]]:
    """Comments in plain words, and what they say is required."""
    kept, requires, at = [], [], 0
    while at < len(lines):
        end = at
        while end < len(lines) and re.match(r"\s*///(?!<)", lines[end]):
            end += 1
        if end == at:
            kept.append(re.sub(r"///< ?", "// ", lines[at]))
            end += 1
        else:
            indent = " " * (len(lines[at]) - len(lines[at].lstrip()))
            plain, *tagged = _TAG.split("\n".join(line.strip()[3:].strip() for line in lines[at:end]))
            kept += [f"{indent}// {line}".rstrip() for line in plain.strip().splitlines()]
            for tag, words in zip(tagged[::2], tagged[1::2]):
                words = " ".join(words.split())
                if tag == "pre":
                    requires.append(words.removesuffix("."))
                elif tag in ("param", "return"):
                    words = re.sub(r"^(\S+) ", r"\1: ", words) if tag == "param" else f"Returns {words}"
                    kept += textwrap.wrap(words, _WIDTH, initial_indent=f"{indent}// ", subsequent_indent=f"{indent}// ")
        at = end
    return "\n".join(kept), requires


def _launch(source: Source, name: str) -> str:
    """What stands right below a kernel: s.launch(kernel, blocks, threads, {bytes}, ...), or launch() with a grid of its own."""
    for first, last in _declarations(source.code_lines):
        text = " ".join(" ".join(source.code_lines[first:last + 1]).split())
        call = re.search(rf"\b(s\.)?launch\({re.escape(name)}\b", text)
        if call:
            arguments = _arguments(re.sub(r"^<[^<>]*>", "", text[call.end():]))
            traffic = arguments[3 if call[1] else 4]
            blocks, threads, traffic = (_declared(text, argument) for argument in (*arguments[1:3], traffic))
            each = " for each token" if call[1] else ""
            if not traffic.startswith("{"):
                return f"Launched with `{blocks}` blocks of `{threads}` threads{each}."
            step, *position = (_declared(text, argument) for argument in _arguments(traffic[1:-1] + ")"))
            moved = f"`{step}` bytes" + (f", and `{position[0]}` for each position" if position else "")
            if step == "0" and position:
                moved = f"`{position[0]}` bytes for each position"
            return f"Launched with `{blocks}` blocks of `{threads}` threads{each}, to move {moved}."
    return ""


def _declared(text: str, code: str) -> str:
    """An argument, or what it was declared as, without the types of its numbers."""
    declared = re.search(rf"\b{re.escape(code)} = ([^;]*);", text) if code.isidentifier() else None
    code = re.sub(r"std::uint64_t\{([^}]*)\}", r"\1", declared[1] if declared else code)
    return re.sub(r"(\d)ull\b", r"\1", re.sub(r"^dim3\((?:static_cast<\w+>)?\(?(.*?)\)*$", r"\1", code))


def _arguments(text: str) -> list[str]:
    """What commas separate up to the bracket that closes it all."""
    found, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if depth < 0:
            break
        if c == "," and depth == 0:
            found.append("")
        else:
            found[-1] += c
    return [argument.strip() for argument in found]


# --- In a text -----------------------------------------------------------------------------------------


def place(root: Path, folder: Path, file: str) -> tuple[Path, str]:
    """A file that a text in a folder names: its own, or one of the checkout; and its name from the checkout's root."""
    path = folder / file if (folder / file).is_file() else root / file
    return path, path.relative_to(root).as_posix()


def load(root: Path, folder: Path, target: str) -> Code:
    file, _, name = target.partition("#")
    path, shown = place(root, folder, file)
    return find(path, name, shown)


def diff(before: Code, after: Code) -> str:
    """What changes in a definition, whole."""
    lines = difflib.unified_diff(before.body, after.body, lineterm="", n=_WIDTH)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def render(text: str, folder: Path, root: Path) -> str:
    """A README with the code between its markers as the sources have it."""
    def block(match: re.Match) -> str:
        codes = [load(root, folder, target) for target in match[2].split()]
        if len(codes) == 2:
            return f"{match[1]}```diff\n{diff(*codes)}\n```\n{match[4]}"
        link = f"[`{codes[0].file.removeprefix(f'chapters/{folder.name}/')}`]({_way(folder, root / codes[0].file)})"
        return f"{match[1]}```cuda\n{codes[0].text}\n```\n{' '.join([f'From {link}.', *codes[0].notes()])}\n{match[4]}"

    return MARKED.sub(block, text)


def _way(folder: Path, path: Path) -> str:
    if path.is_relative_to(folder):
        return path.relative_to(folder).as_posix()
    return "../" + _way(folder.parent, path)


def problems(text: str, folder: Path, root: Path) -> Iterator[tuple[int, str]]:
    """What is wrong with the listings of a chapter's README: line, and what was found.

    The code beside a paragraph is what the paragraph names: a definition, of a file of the chapter or of one that it names too.
    """
    def line_of(at: int) -> int:
        return text.count("\n", 0, at) + 1

    since, prose = 0, ""
    for match in MARKED.finditer(text):
        *before, above = re.split(r"^#.*\n", text[since:match.start()], flags=re.MULTILINE)
        if before or above.strip():  # else it is the paragraph's second listing
            # Right below a paragraph it is that paragraph's; after a blank line, of all since the last listing or heading.
            prose = above if above.endswith("\n\n") else above.rstrip().rpartition("\n\n")[2]
        since = match.end()
        for target in match[2].split():
            file, _, name = target.partition("#")
            path, shown = place(root, folder, file)
            short = name.rpartition("::")[2] if prose.strip() else ""  # else nothing stands beside it
            if not path.is_relative_to(folder) and f"`{shown}`" not in prose and f"`{path.name}`" not in prose:
                yield line_of(match.start()), f"lists {target}; expected a file of the chapter, or one that the paragraph names"
            elif short and not re.search(rf"`(?:\w+::)*{re.escape(short)}(?:\(\))?`", prose):
                yield line_of(match.start()), f"lists {target}; expected a paragraph that names `{short}`"
            else:
                try:
                    load(root, folder, target)
                except Failure as failure:
                    yield line_of(match.start()), str(failure)
    rest = MARKED.sub(lambda match: "\n" * match[0].count("\n"), text)
    yield from ((rest.count("\n", 0, m.start()) + 1, f"<!-- {m[1]} --> alone; expected a pair, as of a table")
                for m in _MARKER.finditer(rest))
    yield from ((rest.count("\n", 0, m.start()) + 1, "code written by hand; expected <!-- code: FILE#NAME -->")
                for m in _PASTED.finditer(rest))
