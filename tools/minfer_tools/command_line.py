# SPDX-License-Identifier: MIT
"""What the tools' command lines share: how help is printed, and how a failure of the system ends a tool."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from typing import Callable

from .errors import Failure, drop_output


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that fails when standard output does not take its help: argparse itself passes
    over that, or leaves it to the interpreter's end."""

    failed = 1  # the exit status of a failure

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def _print_message(self, message, file=None):
        if file is None or file is not sys.stdout:
            super()._print_message(message, file)
            return
        try:
            file.write(message)
            file.flush()
        except BrokenPipeError:  # the reader has gone (`--help | head -1`): stop without a word
            drop_output()
            self.exit(0)
        except OSError as error:
            drop_output()
            self.exit(self.failed, f"{self.prog}: cannot write standard output: {error.strerror or error}\n")


def natural(text: str) -> int:
    """The type of an argument that counts, and may be none."""
    if not re.fullmatch(r"[0-9]+", text):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number, 0 or more")
    return int(text)


def positive(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a number, 1 or more")
    return int(text)


def ending(status: int) -> str:
    """How a program ended: "exit status 3", "signal 9 (Killed): was there too little memory?"."""
    if status >= 0:
        return f"exit status {status}"
    memory = ": was there too little memory?" if status == -signal.SIGKILL else ""
    return f"signal {-status} ({signal.strsignal(-status)}){memory}"


def exit_status(name: str, main: Callable[[], int | None], failed: int = 1, interrupted: str = "interrupted") -> int:
    """What main() returns; or where it failed, or the system failed it (a file that can't be read or written, a full disk
    under standard output), that status, after one line that begins with the tool's name."""
    try:
        status = main() or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has gone (`| head -1`): stop without a word
        drop_output()
        return 0
    except Failure as failure:
        if str(failure):  # else what ran for us has said it
            print(f"{name}: {failure}", file=sys.stderr)
        return max(failure.status, failed)
    except OSError as error:
        drop_output()
        print(f"{name}: {error.filename or 'cannot write standard output'}: {error.strerror or error}", file=sys.stderr)
        return failed
    except KeyboardInterrupt:
        print(f"{name}: {interrupted}", file=sys.stderr)
        return 130


def tool(name: str, **options):
    """Makes a main() return an exit status whatever happens."""
    return lambda main: lambda *arguments: exit_status(name, lambda: main(*arguments), **options)
