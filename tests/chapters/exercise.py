#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs what a page of docs/solutions shows of an exercise's patch, on a copy of the chapter to which it was applied, and
compares what is printed with what the page shows.

    exercise.py PATCH COPY BUILD NAME MODELS REFERENCE

A page links to the patch on a line of its own. In the blocks of text that follow, up to the next exercise or patch, `$ `
begins a command: `./minfer try`, `./minfer lab` or tests/chapters/whole_model.py. The lines below it have to be printed
in this order; others may be printed between them, but not by whole_model.py, unless a line `...` says so, and none where
the page shows none. COPY is what the commands call ../solved, ../fault or the like, and NAME what BUILD calls the copy's
targets. Exit status: 0 as the page says, 1 not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

from cli import chapters, lab, tryout  # noqa: E402
from minfer_tools import lab as measured  # noqa: E402

LINK = re.compile(r"^\[`[^`]+`\]\(\.\./\.\./(chapters/\S+\.patch)\)$", re.M)
EXERCISE = re.compile(r"^\*\*\d+\.\*\*", re.M)
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)
# A page's files are in ../fault, and a compiler's cache calls them as it likes.
PATH = re.compile(r"[^\s(]*(?=chapters/\d\d-|common/|tests/kernel_testing)")


def commands_of(page: str, patch: str) -> list[tuple[str, list[str]]]:
    """The commands that follow a patch's link, each with the lines that it is to print."""
    links = list(LINK.finditer(page))
    link = next((match for match in links if match[1] == patch), None)
    if link is None:
        return []
    ends = [m.start() for m in (*links, *EXERCISE.finditer(page)) if m.start() > link.start()]
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.finditer(page[link.end():min(ends, default=len(page))]):
        for line in block[1].splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line:
                found[-1][1].append(line)
    return found


@contextlib.contextmanager
def set_variables(words: list[str]):
    """Sets each NAME=VALUE for as long as it is open."""
    before = dict(os.environ)
    os.environ.update(word.split("=") for word in words)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Copy:
    """A chapter's copy, and the programs that are built of it."""

    def __init__(self, place: Path, patch: Path, build: Path, name: str, models: Path, reference: Path):
        self.place, self.build, self.name, self.models, self.reference = place, build, name, models, reference
        self.chapter = chapters.find(patch.parents[1].name, chapters.discover())

    def run(self, command: str) -> str:
        """What a command prints."""
        words = shlex.split(command)
        n_set = next(i for i, word in enumerate(words) if not re.fullmatch(r"[A-Z_]+=\w+", word))
        output = io.StringIO()
        with contextlib.redirect_stdout(output), set_variables(words[:n_set]):
            words = words[n_set:]
            if words[:2] == ["./minfer", "try"]:
                self.attempt()
            elif words[:2] == ["./minfer", "lab"]:
                self.look(words[2:])
            elif words[:2] == ["python3", "tests/chapters/whole_model.py"]:
                self.whole_model(words[2:])
            else:
                raise ValueError(f"found the command {command!r}, expected minfer try, minfer lab or whole_model.py")
        return output.getvalue()

    def make(self, *targets: str) -> None:
        done = subprocess.run(["cmake", "--build", self.build, "--parallel", str(os.cpu_count()), "--target", *targets],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stdout)

    def program(self) -> Path:
        self.make(f"{self.name}-emulated")
        return self.place / "build" / f"{self.chapter.slug}-emulated"

    def attempt(self) -> None:
        self.make(f"{self.name}-emulated", f"test-kernels-{self.name}-emulated")
        tryout.say_what_came(self.place / "chapters" / self.chapter.name,
                             self.place / "build" / f"test-kernels-{self.chapter.slug}-emulated",
                             [sys.executable, tryout.WHOLE_MODEL, "try", self.program(), self.models])

    def look(self, words: list[str]) -> None:
        parser = argparse.ArgumentParser()
        lab.add_options(parser)
        arguments = parser.parse_args(words)
        arguments.launch = arguments.launch or 1
        self.make(f"lab-{self.name}")
        model = self.place / "lab.gguf"
        measured.write_model(model)
        program = lab.Program(self.chapter, self.place / "build" / f"lab-{self.chapter.slug}", model, (self.place, ROOT))
        lab.say([program], [*arguments.words[1:], None][:1], arguments)

    def whole_model(self, words: list[str]) -> None:
        self.program()
        places = {"build/tests/chapters/models": self.models, "build/reference": self.reference}
        words = [str(places.get(word, re.sub(r"^\.\./\w+/", f"{self.place}/", word))) for word in words]
        done = subprocess.run([sys.executable, tryout.WHOLE_MODEL, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout, end="")


def missing(expected: list[str], found: list[str]) -> str | None:
    """The first line that is not found behind those before it. One that ends in "..." goes on as it likes."""
    lines = iter(PATH.sub("", line).rstrip() for line in found)

    def is_printed(line: str) -> bool:
        begin = PATH.sub("", line).rstrip()
        if begin.endswith("..."):
            return any(other.startswith(begin[:-3]) for other in lines)
        return begin in lines

    return next((line for line in expected if not is_printed(line)), None)


def main() -> int:
    patch, place, build, name, models, reference = sys.argv[1:]
    path = Path(patch).resolve()
    page = ROOT / "docs" / "solutions" / f"{path.parents[1].name}.md"
    commands = commands_of(page.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    if not any(lines for _, lines in commands):
        print(f"{page}: shows no command and what it prints below a link to {patch}")
        return 1
    copy = Copy(Path(place), path, Path(build), name, Path(models), Path(reference))
    checkout = copy.place.parent / "minfer"  # where the page's commands are run: beside the copy
    checkout.mkdir(exist_ok=True)
    os.chdir(checkout)
    wrong = 0
    for command, lines in commands:
        said = copy.run(command)
        line = missing(lines, said.splitlines()) if lines else said.strip() or None
        if line is None and "whole_model.py" in command and "..." not in lines:  # its lines are what is wrong
            line = next(iter(said.splitlines()[len(lines):]), None)
        print(f"$ {command}\n{said}", end="")
        if line is not None:
            print(f"{page}: differs from what this prints: {line}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
