#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How a roofline program ends when standard output takes all of what it prints, some of it, or none.

    output.py help PROGRAM      its help, which needs no GPU
    output.py report PROGRAM    its help and both reports

Exit status: 0 right, 1 not, with what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

LONGEST = 20  # bytes of a file, far fewer than anything that is printed
READER_GONE = 141
MEASURE = ("--repeat", "1", "--megabytes", "1")
HELP = (("--help",),)
REPORTS = (("--json", *MEASURE), MEASURE)


def start(program: Path, words: tuple[str, ...], stdout, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([program, *words], stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False, **kwargs)


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (LONGEST, LONGEST))


def all_taken(program: Path, words: tuple[str, ...]) -> Iterator[str]:
    done = start(program, words, subprocess.PIPE)
    if done.returncode != 0 or len(done.stdout) <= LONGEST:
        yield f"status {done.returncode}, {done.stdout!r}, {done.stderr!r}; expected status 0 and more than {LONGEST} bytes"
    elif "--json" in words and json.loads(done.stdout)["invocation"] != " ".join(("roofline", *words)):
        yield f"{done.stdout!r}: another invocation"


def refused(done: subprocess.CompletedProcess, why: str, lines: int | None) -> Iterator[str]:
    """Status 1, and one line that says why: the last of some, or of as many as are told."""
    found = done.stderr.splitlines()
    if (done.returncode, found[-1:]) != (1, [f"roofline: cannot write standard output: {why}"]):
        yield f"status {done.returncode}, {done.stderr!r}; expected status 1 and a last line that ends with {why!r}"
    elif lines not in (None, len(found)):
        yield f"{done.stderr!r}: expected {lines} line"


def none_taken(program: Path, words: tuple[str, ...]) -> Iterator[str]:
    lines = 1 if words in HELP else None  # a measurement tells its progress there
    if Path("/dev/full").is_char_device():
        with open("/dev/full", "wb") as full:
            yield from refused(start(program, words, full), "No space left on device", lines)
    with tempfile.TemporaryFile() as file:
        yield from refused(start(program, words, file, preexec_fn=limit_files), "File too large", lines)
        if (size := file.seek(0, os.SEEK_END)) != LONGEST:
            yield f"a file of {size} bytes; expected the {LONGEST} that it may have"


def reader_gone(program: Path, words: tuple[str, ...]) -> Iterator[str]:
    """Where the parent ignores SIGPIPE, as Python does, writing fails instead of ending the program."""
    reading, writing = os.pipe()
    os.close(reading)
    done = start(program, words, writing, restore_signals=False)
    os.close(writing)
    if done.returncode != READER_GONE or "cannot write" in done.stderr:
        yield f"status {done.returncode}, {done.stderr!r}; expected status {READER_GONE} without a word"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("help", "report"))
    parser.add_argument("program", type=Path)
    options = parser.parse_args()
    problems = [f"{check.__name__}: {' '.join(words)}: {problem}"
                for words in (HELP if options.what == "help" else HELP + REPORTS)
                for check in (all_taken, none_taken, reader_gone)
                for problem in check(options.program, words)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
