# SPDX-License-Identifier: MIT
"""Talking to the person at the terminal, and running other programs with their output kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

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


def run_logged(argv: list, log: Path, what: str, env: dict | None = None, tail: int = 25) -> None:
    """Runs a program with its output in `log`; where it fails, shows the end of that and raises
    Failure("<what> failed ...")."""
    log.parent.mkdir(parents=True, exist_ok=True)
    status, recent = StatusLine(), deque(maxlen=400)
    with log.open("w", encoding="utf-8", errors="replace") as file:
        file.write(f"$ {quoted(argv)}\n")
        try:
            process = subprocess.Popen(
                [str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                stdin=None if sys.stdin and sys.stdin.isatty() else subprocess.DEVNULL,
                env=env, text=True, encoding="utf-8", errors="replace")
        except OSError as error:
            raise Failure(f"{what} failed: {argv[0]}: {error.strerror}") from None
        try:
            for line in process.stdout:
                file.write(line)
                recent.append(line.rstrip("\n"))
                status.show(line)
            process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            status.clear()
    if process.returncode != 0:
        for line in interesting(list(recent), tail):
            say(f"  {line}")
        raise Failure(f"{what} failed (exit {process.returncode}); all of its output: {log}")


def interesting(lines: list[str], count: int) -> list[str]:
    """The lines that tell why a build failed: from its first error on, else the last ones."""
    for index, line in enumerate(lines):
        if "FAILED:" in line or "error:" in line or line.startswith(("E: ", "CMake Error")):
            return lines[index:index + count]
    return lines[-count:]


def become(argv: list) -> None:
    """Turns this process into another program: signals, output and exit status are its own."""
    argv = [str(word) for word in argv]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(argv[0], argv)
    except OSError as error:
        raise Failure(f"{argv[0]}: {error.strerror}") from None
