# SPDX-License-Identifier: MIT
"""The one exception that the tools turn into a one-line message and an exit status."""

import contextlib
import os
import sys


class Failure(Exception):
    """Something a person has to know about and can act on; its text is one line.

    `status` is the exit status: 1 for a failure, 2 for wrong usage.
    """

    def __init__(self, message: str, status: int = 1):
        super().__init__(" ".join(message.split()))
        self.status = status


def drop_output() -> None:
    """What standard output did not take must not be written, and fail, at exit once more."""
    with contextlib.suppress(OSError):  # one that is no file has nothing to drop
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
