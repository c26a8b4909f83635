# SPDX-License-Identifier: MIT
"""Talking to the person at the terminal, and running other programs with their output kept."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from minfer_tools.command_line import ending
from minfer_tools.errors import Failure

DONE, FAILED, USAGE, SKIPPED, INTERRUPTED = 0, 1, 2, 77, 130
HEARTBEAT_SECONDS = 20.0


def say(text: str) -> None:
    """Progress, figures and complaints go to standard error; answers alone to standard output."""
    print(text, file=sys.stderr, flush=True)


def quoted(argv: list[str]) -> str:
    import shlex  # only needed when something is said about a command

    return shlex.join(str(word) for word in argv)


class StatusLine:
    """The newest line of a program's output: redrawn in place on a terminal, and elsewhere shown
    every HEARTBEAT_SECONDS, so that a log tells a slow step from a hung one."""

    def __init__(self, stream=None):
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + (0 if self._terminal else HEARTBEAT_SECONDS)

    def show(self, line: str) -> None:
        now = time.monotonic()
        if not line.strip() or now < self._next:
            return
        width = shutil.get_terminal_size().columns - 4
        if self._terminal:
            self._stream.write(f"\r\033[K  {line.strip()[:width]}")
            self._next = now + 0.05
        else:
            self._stream.write(f"  ... {line.strip()[:100]}\n")
            self._next = now + HEARTBEAT_SECONDS
        self._stream.flush()

    def clear(self) -> None:
        if self._terminal:
            self._stream.write("\r\033[K")
            self._stream.flush()


@contextlib.contextmanager
def started(argv: list, **options) -> Iterator[subprocess.Popen]:
    """A program that has ended when this is left, and before that if this command is ended; with it goes all that
    it started, being a session of its own, which only sudo is not: it asks a terminal for a password."""
    argv = [str(word) for word in argv]
    alone = argv[0] != "sudo"
    try:
        process = subprocess.Popen(argv, start_new_session=alone, **options)
    except OSError as error:
        raise Failure(f"{argv[0]}: {error.strerror}") from None
    try:
        yield process
        process.wait()
    except BaseException as reason:
        with contextlib.suppress(OSError):
            (os.killpg if alone else os.kill)(
                process.pid, signal.SIGINT if isinstance(reason, KeyboardInterrupt) else signal.SIGTERM)
        process.wait()
        raise


def run_to_end(what: str, argv: list, **options) -> subprocess.CompletedProcess:
    """What became of a program. @throws Failure where it was killed, and so could not say what was wrong"""
    with started(argv, text=True, **options) as process:
        printed = process.stdout and process.stdout.read()
    if process.returncode < 0:
        raise Failure(f"{what} was ended by {ending(process.returncode)}")
    return subprocess.CompletedProcess(argv, process.returncode, printed)


def answer(what: str, argv: list, **options) -> str:
    """What a program prints. @throws Failure where it failed, with no text where it has said why"""
    done = run_to_end(what, argv, stdout=subprocess.PIPE, **options)
    if done.returncode:
        raise Failure("", done.returncode)
    return done.stdout.strip()


def run_logged(argv: list, log: Path, what: str, env: dict | None = None, shown: int = 0) -> None:
    """Runs a program with its output in `log`. @throws Failure("<what> failed ...") with the line that tells the
    cause, after showing `shown` lines from there on"""
    status, terminal = StatusLine(), argv[0] == "sudo" and sys.stdin and sys.stdin.isatty()
    try:
        with log.open("w", encoding="utf-8", errors="replace") as file:
            file.write(f"$ {quoted(argv)}\n")
            with started(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, text=True, encoding="utf-8",
                         errors="replace", stdin=None if terminal else subprocess.DEVNULL) as process:
                for line in process.stdout:
                    file.write(line)
                    status.show(line)
    except Failure as failure:
        raise Failure(f"{what} failed: {failure}") from None
    except OSError as error:
        raise Failure(f"{log}: {error.strerror}") from None
    finally:
        status.clear()
    if process.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
        at, text = cause(lines)
        for line in lines[at:at + shown]:
            say(f"  {line}")
        raise Failure(f"{what} failed ({ending(process.returncode)}): {text}; all of its output: {log}")


# What stops a program whatever it does; then how compilers, CMake, apt and pip begin a complaint.
CAUSES = (r"No space left on device|Disk quota exceeded|unsupported GNU version",
          r"\berror: |\bfatal *: |undefined reference|^E: |^ERROR: |^CMake Error", r"\S")


def cause(lines: list[str]) -> tuple[int, str]:
    """The line that tells why a program failed, and its text: the first of the kind, else the last of all. CMake's
    go on to the next empty line."""
    for pattern in CAUSES:
        found = [index for index, line in enumerate(lines) if re.search(pattern, line)]
        if found:
            at = found[-1 if pattern == CAUSES[-1] else 0]
            end = at + 1
            while lines[at].startswith("CMake Error") and end < len(lines) and re.match(r"  .*\S", lines[end]):
                end += 1
            return at, " ".join(" ".join(lines[at:end]).split())
    return 0, "it said nothing"


def become(argv: list) -> None:
    """Turns this process into another program: signals, output and exit status are its own."""
    argv = [str(word) for word in argv]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(argv[0], argv)
    except OSError as error:
        raise Failure(f"{argv[0]}: {error.strerror}") from None
