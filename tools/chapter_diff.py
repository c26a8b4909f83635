#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Shows what one chapter changes in another, as git shows a diff: its engine and its kernels.

A and B are chapters as 05, 05-dp4a, dp4a or a folder; without B, A is compared with the chapter before it.
Tests, benchmarks, README.md, results/ and the patches are left out unless named or asked for by --all. Other
options are git diff's. The exit status is diff's: 0 no difference, 1 a difference, 2 trouble.

examples:
  ./minfer diff 05 06                    the idea of 06
  ./minfer diff --stat 06                how much, file by file, against the chapter before it
  ./minfer diff 05 06 attention.cuh      one file
  ./minfer diff 05 06 --word-diff=color
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from minfer_tools.chapter_tree import REPOSITORY, Chapter, find_chapters, is_idea, resolve
from minfer_tools.command_line import Parser, tool
from minfer_tools.errors import Failure

TROUBLE = 2


def choose(root: Path, first: str, second: str | None) -> tuple[Chapter, Chapter]:
    """The two chapters to compare, the earlier one first if only one is named."""
    chapters = find_chapters(root)
    a = resolve(chapters, first)
    if second is not None:
        return a, resolve(chapters, second)
    before = [c for c in chapters if c.number < a.number]
    if not before:
        raise Failure(f"{a.name} is the first chapter; name the one to compare it with", TROUBLE)
    return before[-1], a


def compare(options: argparse.Namespace, words: list[str]) -> int:
    for_git = [word for word in words if word.startswith("-")]
    names = [word for word in words if not word.startswith("-")]
    if not names:
        raise Failure("which chapters? ./minfer diff 05 06", TROUBLE)
    a, b = choose(options.root.resolve(), names[0], names[1] if len(names) > 1 else None)
    named = set(map(Path, names[2:]))
    there = {file for chapter in (a, b) for file in chapter.files(own=options.all or bool(named))}
    if absent := named - there:
        raise Failure(f"{min(absent)}: in neither {a.name} nor {b.name}", TROUBLE)
    chosen = named or {file for file in there if options.all or is_idea(file)}
    with tempfile.TemporaryDirectory(prefix="minfer-diff-") as folder:  # where nothing else lies beside the two
        for chapter in (a, b):
            (Path(folder) / chapter.name).mkdir(exist_ok=True)
            for file in chosen:
                if (chapter.path / file).is_file():
                    target = Path(folder) / chapter.name / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(chapter.path / file, target)
        command = ["git", "diff", "--no-index", "--no-ext-diff", "--no-prefix", *for_git, "--", a.name, b.name]
        # Git pages and colours by itself, but does not say when what it writes to is full.
        terminal = sys.stdout.isatty()
        done = subprocess.run(command, cwd=folder, stdout=None if terminal else subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in (0, 1):
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        raise Failure(f"git diff: {said[0].removeprefix('error: ')}", TROUBLE)
    if not terminal:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` is no error
        sys.stdout.buffer.write(done.stdout)
        sys.stdout.flush()
    return done.returncode


@tool("minfer diff", failed=TROUBLE)
def main(arguments: list[str] | None = None) -> int:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(prog="minfer diff", usage="%(prog)s [--all] [option of git diff ...] A [B] [FILE ...]", description=summary,
                    epilog=details, allow_abbrev=False)
    parser.failed = TROUBLE  # 1 says that there is a difference
    parser.add_argument("--all", action="store_true", help="with tests, benchmarks, README.md, results/ and patches")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    options, words = parser.parse_known_args(arguments)
    return compare(options, words)


if __name__ == "__main__":
    sys.exit(main())
