#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows what one chapter changes in another: the idea, and nothing else.

README.md, results/ and dead-ends/ are left out unless asked for. Without B, A is compared with the
chapter before it. The exit status is diff's: 0 no difference, 1 a difference, 2 trouble.

examples:
  tools/chapter_diff.py 05 06                  one idea, as git shows a diff
  tools/chapter_diff.py 06 --stat              how much, file by file
  tools/chapter_diff.py 05 06 -y kernels.cuh   side by side, one file
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Iterator

from minfer_tools.chapter_tree import DIFF, REPOSITORY, Chapter, comparable_copies, find_chapters, git, resolve
from minfer_tools.command_line import Parser
from minfer_tools.errors import Failure, drop_output

CONTEXT = 3
RED, GREEN, CYAN, BOLD, PLAIN = "\033[31m", "\033[32m", "\033[36m", "\033[1m", "\033[m"


def choose(root: Path, first: str, second: str | None) -> tuple[Chapter, Chapter]:
    """The two chapters to compare, the earlier one first if only one is named."""
    chapters = find_chapters(root)
    a = resolve(chapters, first)
    if second is not None:
        return a, resolve(chapters, second)
    before = [c for c in chapters if c.number < a.number]
    if not before:
        raise Failure(f"{a.name} is the first chapter; name the one to compare it with", 2)
    return before[-1], a


# --- As git shows it ---------------------------------------------------------------------------------


def unified(folder: Path, a: Chapter, b: Chapter, color: bool, pager: bool) -> int:
    """git's own diff, with git's pager and the person's git colours."""
    switches = ["--paginate"] if pager else ["--no-pager"]
    words = [*switches, *DIFF, "--color=" + ("always" if color else "never"), "--", a.name, b.name]
    if not pager:  # git does not say when what it writes to is full or gone
        output = git(words, folder, allow=(0, 1))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
        sys.stdout.buffer.write(output)
        sys.stdout.flush()
        return 1 if output else 0
    command = ["git", *words]
    status = subprocess.run(command, cwd=folder, check=False).returncode
    return status if status in (0, 1) else 2


# --- How much ----------------------------------------------------------------------------------------


def stat(folder: Path, a: Chapter, b: Chapter, color: bool) -> Iterator[str]:
    """A line a file with the lines added and removed, and a line with the sums."""
    listed = git([*DIFF, "--numstat", "-z", "--no-renames", "--", a.name, b.name], folder, allow=(0, 1)).decode()
    rows = [_stat_row(record) for record in _numstat_records(listed)]
    if not rows:
        return
    width = max(len(name) for name, _, _ in rows)
    scale = min(1.0, 50 / max(added + removed for _, added, removed in rows)) if any(a + r for _, a, r in rows) else 1
    for name, added, removed in rows:
        plus, minus = "+" * _scaled(added, scale), "-" * _scaled(removed, scale)
        yield f" {name:<{width}} | {added + removed:>4} {_paint(plus, GREEN, color)}{_paint(minus, RED, color)}".rstrip()
    added, removed = sum(r[1] for r in rows), sum(r[2] for r in rows)
    files = f"{len(rows)} file" + ("" if len(rows) == 1 else "s")
    yield f" {files} changed, {added} lines added, {removed} removed"


def _numstat_records(listed: str) -> Iterator[tuple[str, str, str, str]]:
    """(added, removed, path in a, path in b): with -z and two folders, git gives the two paths apart."""
    fields = listed.split("\0")
    while len(fields) > 2:
        counts, old, new, *fields = fields
        added, removed = counts.split("\t")[:2]
        yield added, removed, old, new


def _stat_row(record: tuple[str, str, str, str]) -> tuple[str, int, int]:
    added, removed, old, new = record
    path = new if new != "/dev/null" else old
    return path.split("/", 1)[1], int(added) if added != "-" else 0, int(removed) if removed != "-" else 0


def _scaled(count: int, scale: float) -> int:
    return max(1, round(count * scale)) if count else 0


# --- Side by side ------------------------------------------------------------------------------------


def side_by_side(folder: Path, a: Chapter, b: Chapter, color: bool, width: int) -> Iterator[str]:
    """Both chapters in two columns: what differs, and three lines around it."""
    column = max(20, (width - 3) // 2)
    trees = [{f.relative_to(folder / c.name).as_posix(): f for f in (folder / c.name).rglob("*") if f.is_file()}
             for c in (a, b)]
    for name in sorted(trees[0].keys() | trees[1].keys()):
        texts = [tree[name].read_bytes() if name in tree else b"" for tree in trees]
        if texts[0] == texts[1] and all(name in tree for tree in trees):
            continue
        titles = [f"{c.name}/{name}" if name in tree else "(none)" for c, tree in zip((a, b), trees)]
        yield _paint(f"{_fit(titles[0], column)} | {titles[1]}", BOLD, color)
        if any(b"\0" in text for text in texts):
            yield "binary files differ"
            continue
        lines = [text.decode(errors="replace").expandtabs(4).splitlines() for text in texts]
        for group in difflib.SequenceMatcher(None, *lines, autojunk=False).get_grouped_opcodes(CONTEXT):
            places = [f"@@ line {group[0][first] + 1} @@" for first in (1, 3)]
            yield _paint(f"{_fit(places[0], column)}   {places[1]}", CYAN, color)
            for kind, i1, i2, j1, j2 in group:
                yield from _rows(kind, lines[0][i1:i2], lines[1][j1:j2], column, color)


def _rows(kind: str, left: list[str], right: list[str], column: int, color: bool) -> Iterator[str]:
    """The lines of one block, folded where they are wider than their column."""
    mark = {"equal": " ", "replace": "|", "delete": "<", "insert": ">"}[kind]
    for index in range(max(len(left), len(right))):
        sides = [_fold(side[index], column) if index < len(side) else [] for side in (left, right)]
        for row in range(max(map(len, sides))):
            old, new = (side[row] if row < len(side) else "" for side in sides)
            old = _fit(old, column)
            if mark != " ":
                old, new = _paint(old, RED, color), _paint(new, GREEN, color)
            yield f"{old} {mark} {new}".rstrip()


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fit(text: str, column: int) -> str:
    return text + " " * (column - _width(text))


def _fold(text: str, column: int) -> list[str]:
    pieces, piece = [], ""
    for character in text:
        if _width(piece + character) > column:
            pieces.append(piece)
            piece = ""
        piece += character
    return [*pieces, piece]


# --- Output ------------------------------------------------------------------------------------------


def _paint(text: str, paint: str, color: bool) -> str:
    return f"{paint}{text}{PLAIN}" if color and text.strip() else text


def show(lines: Iterator[str], pager: bool) -> None:
    """Prints the lines, through the pager that git would use if `pager`."""
    command = shlex.split(git(["var", "GIT_PAGER"], Path.cwd()).decode()) if pager else []
    if not command or command == ["cat"] or shutil.which(command[0]) is None:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
        return
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True, errors="replace") as process:
        try:
            process.stdin.writelines(f"{line}\n" for line in lines)
            process.stdin.close()
        except BrokenPipeError:  # the reader has seen enough
            pass


def parse(arguments: list[str] | None) -> argparse.Namespace:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(prog="chapter_diff", description=summary, epilog=details)
    parser.failed = 2  # 1 says that there is a difference
    parser.add_argument("a", metavar="A", help="a chapter: 05, 05-dp4a, dp4a or its folder")
    parser.add_argument("b", metavar="B", nargs="?", help="the chapter to compare it with")
    parser.add_argument("files", metavar="FILE", nargs="*", help="only these files (kernels.cuh)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--stat", action="store_true", help="only how many lines of which file")
    form.add_argument("-y", "--side-by-side", action="store_true", help="two columns")
    parser.add_argument("--readme", action="store_true", help="with README.md")
    parser.add_argument("--all", action="store_true", help="with README.md, results/ and dead-ends/")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: on a terminal")
    parser.add_argument("--no-pager", action="store_true", help="print straight to the terminal")
    parser.add_argument("--width", type=int, metavar="N", help="columns for -y (default: the terminal's)")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    return parser.parse_intermixed_args(arguments)


def compare(options: argparse.Namespace) -> int:
    a, b = choose(options.root.resolve(), options.a, options.b)
    terminal = sys.stdout.isatty()
    color = options.color == "always" or (options.color == "auto" and terminal and "NO_COLOR" not in os.environ)
    pager = terminal and not options.no_pager
    present = {f.as_posix() for c in (a, b) for f in c.files(own=True)}
    for file in options.files:
        if file not in present:
            raise Failure(f"{file}: in neither {a.name} nor {b.name}", 2)

    def skip(file: Path) -> bool:
        if options.files:
            return file.as_posix() not in options.files
        return file.name == "README.md" and not (options.readme or options.all)

    with comparable_copies(a, b, skip, own=options.all or bool(options.files)) as folder:
        if not (options.stat or options.side_by_side):
            return unified(folder, a, b, color, pager)
        width = options.width or shutil.get_terminal_size((160, 24)).columns
        lines = list(stat(folder, a, b, color) if options.stat else side_by_side(folder, a, b, color, width))
    show(iter(lines), pager)
    return 1 if lines else 0


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        return compare(options)
    except Failure as failure:
        print(f"chapter_diff: {failure}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"chapter_diff: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        drop_output()
        return 2


if __name__ == "__main__":
    sys.exit(main())
