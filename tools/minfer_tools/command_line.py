# SPDX-License-Identifier: MIT
"""What the tools' command lines share: how help is printed, and how a failure of the system ends a tool."""

from __future__ import annotations

import argparse
import sys
from typing import Callable

from .errors import drop_output


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


def exit_status(name: str, main: Callable[[], int]) -> int:
    """What main() returns; or 1, with one line that begins with the tool's name, where the system failed it:
    a file that can't be read or written, a full disk under standard output."""
    try:
        status = main()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        drop_output()
        return 0
    except OSError as error:
        drop_output()
        print(f"{name}: {error.filename or 'cannot write standard output'}: {error.strerror or error}", file=sys.stderr)
        return 1
