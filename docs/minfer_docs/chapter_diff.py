# SPDX-License-Identifier: MIT
"""{chapter-diff} 04-cuda-graph 05-dp4a: what one chapter changes in another, folded by file, in CUDA's
colours. A narrow page shows it unified, a wide one side by side; a button changes that."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from pygments.formatters.html import _get_ttype_class
from pygments.lexers import CMakeLexer, CppLexer, CudaLexer, TextLexer
from sphinx.util.docutils import SphinxDirective

from minfer_tools import listings
from minfer_tools.chapter_tree import Chapter, find_chapters, is_idea, resolve
from minfer_tools.errors import Failure

from .places import ROOT

CONTEXT = 3
LEXERS = {".cu": CudaLexer, ".cuh": CudaLexer, ".h": CudaLexer, ".cpp": CppLexer}


@dataclass(frozen=True)
class FileDiff:
    """One file: its name within the chapter and the groups of difflib's opcodes."""

    name: str
    old: list[str]
    new: list[str]
    first: tuple[int, int] = (1, 1)  # the numbers of the first lines of both

    @property
    def groups(self) -> list[list[tuple]]:
        matcher = difflib.SequenceMatcher(None, self.old, self.new, autojunk=False)
        return [list(group) for group in matcher.get_grouped_opcodes(CONTEXT)]

    def counts(self) -> tuple[int, int]:
        """Lines added and removed."""
        codes = [code for group in self.groups for code in group if code[0] != "equal"]
        return sum(c[4] - c[3] for c in codes), sum(c[2] - c[1] for c in codes)


def compare(a: Chapter, b: Chapter) -> list[FileDiff]:
    """The files that differ: the kernels, the engine around them, then their tests, their benchmark and their text."""
    names = {str(path) for chapter in (a, b) for path in chapter.files()}
    found = []
    for name in sorted(names, key=lambda name: (not is_idea(Path(name)), not name.endswith(".cuh"), name)):
        old, new = (read_lines(chapter.path / name) for chapter in (a, b))
        if old != new:
            found.append(FileDiff(name, old, new))
    return found


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


@cache
def coloured(text: str, suffix: str) -> list[str]:
    """The lines of a text as HTML, each whole in itself even where a token spans several."""
    lexer = CMakeLexer(stripnl=False) if suffix == ".txt" else LEXERS.get(suffix, TextLexer)(stripnl=False)
    lines = [""]
    for kind, value in lexer.get_tokens(text):
        css = _get_ttype_class(kind)
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append("")
            if piece:
                lines[-1] += f'<span class="{css}">{escape(piece)}</span>' if css else escape(piece)
    return lines


def unified_rows(diff: FileDiff) -> list[str]:
    suffix = Path(diff.name).suffix
    old, new = (coloured("\n".join(lines), suffix) for lines in (diff.old, diff.new))
    rows, (a, b) = [], diff.first
    for group in diff.groups:
        if diff.first == (1, 1):
            rows.append(hunk_row(group, 3))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                rows += [row("", [(i + a, ""), (j + b, " ")], new[j]) for i, j in zip(range(i1, i2), range(j1, j2))]
            else:
                rows += [row("del", [(i + a, ""), ("", "-")], old[i]) for i in range(i1, i2)]
                rows += [row("ins", [("", ""), (j + b, "+")], new[j]) for j in range(j1, j2)]
    return rows


def row(kind: str, numbers: list[tuple], code: str) -> str:
    (left, _), (right, sign) = numbers
    return (f'<tr class="{kind}"><td class="num">{left}</td><td class="num">{right}</td>'
            f'<td class="line" data-sign="{sign}"><code>{code or " "}</code></td></tr>')


def hunk_row(group: list[tuple], columns: int) -> str:
    first, last = group[0], group[-1]
    text = f"lines {first[1] + 1} to {last[2]}, now {first[3] + 1} to {last[4]}"
    return f'<tr class="hunk"><td colspan="{columns}">{text}</td></tr>'


def split_rows(diff: FileDiff) -> list[str]:
    suffix = Path(diff.name).suffix
    old, new = (coloured("\n".join(lines), suffix) for lines in (diff.old, diff.new))
    rows = []
    for group in diff.groups:
        rows.append(hunk_row(group, 4))
        for tag, i1, i2, j1, j2 in group:
            for k in range(max(i2 - i1, j2 - j1)):
                left = half("" if tag == "equal" else "del", i1 + k, old) if i1 + k < i2 else EMPTY_HALF
                right = half("" if tag == "equal" else "ins", j1 + k, new) if j1 + k < j2 else EMPTY_HALF
                rows.append(f"<tr>{left}{right}</tr>")
    return rows


SPLIT_COLUMNS = '<colgroup><col class="num"><col><col class="num"><col></colgroup>'
EMPTY_HALF = '<td class="num none"></td><td class="line none"></td>'


def half(kind: str, index: int, lines: list[str]) -> str:
    sign = {"del": "-", "ins": "+"}.get(kind, " ")
    return (f'<td class="num {kind}">{index + 1}</td><td class="line {kind}" data-sign="{sign}">'
            f'<code>{lines[index] or " "}</code></td>')


def file_html(diff: FileDiff, opened: bool) -> str:
    added, removed = diff.counts()
    tables = "".join(
        f'<div class="diff-view {view} highlight" tabindex="0" role="region" aria-label="{escape(diff.name)}, {label}">'
        f"<table>{columns}<tbody>{''.join(rows)}</tbody></table></div>"
        for view, label, columns, rows in (("unified", "unified", "", unified_rows(diff)),
                                           ("split", "side by side", SPLIT_COLUMNS, split_rows(diff))))
    return (f'<details class="diff-file"{" open" if opened else ""}><summary><span class="name">{escape(diff.name)}</span> '
            f'<span class="added">+{added}</span> <span class="removed">−{removed}</span></summary>{tables}</details>')


def html(a: Chapter, b: Chapter) -> str:
    """What belongs to the idea is open and counted; the rest is folded."""
    diffs = [(diff, is_idea(Path(diff.name))) for diff in compare(a, b)]
    added, removed = (sum(diff.counts()[side] for diff, opened in diffs if opened) for side in (0, 1))
    head = (f'<p class="diff-head"><span>The engine and its kernels: <span class="added">+{added}</span> '
            f'<span class="removed">−{removed}</span></span>'
            '<button type="button" class="diff-toggle" hidden>Side by side</button></p>')
    return f'<div class="chapter-diff">{head}{"".join(file_html(*pair) for pair in diffs)}</div>'


def of_definition(a: Chapter, b: Chapter, what: str) -> FileDiff:
    """What changes in one definition, "gemv.cuh#gemv", the comment above it left out. Raises Failure without it."""
    old, new = (listings.load(ROOT, chapter.path, what) for chapter in (a, b))
    return FileDiff(what.partition("#")[0], old.body, new.body, (old.body_first, new.body_first))


def definition_html(diff: FileDiff, a: Chapter, b: Chapter) -> str:
    name, before, after = (escape(text) for text in (diff.name, a.name, b.name))
    return (f'<div class="chapter-diff"><div class="diff-file"><div class="diff-title"><span class="name">{name}</span> '
            f'<span>{before} → {after}</span></div><div class="diff-view unified highlight" role="region" tabindex="0" '
            f'aria-label="{name}, {before} and {after}"><table><tbody>{"".join(unified_rows(diff))}</tbody></table>'
            "</div></div></div>")


def plain(a: Chapter, b: Chapter) -> str:
    """As patch has it, for books: the idea alone."""
    lines = []
    for diff in filter(lambda diff: is_idea(Path(diff.name)), compare(a, b)):
        names = (f"{chapter.name}/{diff.name}" for chapter in (a, b))
        lines += difflib.unified_diff(diff.old, diff.new, *names, lineterm="", n=CONTEXT)
    return "\n".join(lines)


class ChapterDiff(SphinxDirective):
    """All that changes between two chapters; with :definition:, what changes in that one, unfolded."""

    required_arguments = 2
    option_spec = {"definition": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        chapters = find_chapters(ROOT)
        a, b = (resolve(chapters, name) for name in self.arguments)
        for chapter in (a, b):
            for path in chapter.files():
                self.env.note_dependency(str(chapter.path / path))
        if "definition" in self.options:
            return self._definition(a, b)
        if self.env.app.builder.format == "html" and self.env.app.builder.name != "epub":
            return [nodes.raw("", html(a, b), format="html")]
        text = plain(a, b)
        return [nodes.literal_block(text, text, language="diff")]

    def _definition(self, a: Chapter, b: Chapter) -> list[nodes.Node]:
        try:
            diff = of_definition(a, b, self.options["definition"])
        except Failure as failure:
            raise self.error(str(failure)) from None
        if self.env.app.builder.name != "epub":
            return [nodes.raw("", definition_html(diff, a, b), format="html")]
        text = "\n".join(difflib.unified_diff(diff.old, diff.new, a.name, b.name, lineterm="", n=CONTEXT))
        return [nodes.literal_block(text, text, language="diff")]
