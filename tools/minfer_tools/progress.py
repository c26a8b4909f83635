# SPDX-License-Identifier: MIT
"""Messages and progress on standard error, which is where everything but the answer goes."""

from __future__ import annotations

import shutil
import sys


def human(count: float) -> str:
    """A number of bytes for people: 428.7 MB."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


class Reporter:
    """Says what happens, unless it is to be quiet."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet

    def say(self, message: str) -> None:
        if not self.quiet:
            print(message, file=sys.stderr, flush=True)

    def bar(self, *, desc: str, total: int, **options):
        """A tqdm of bytes: redrawn on a terminal, and elsewhere a line every 20 s, so that a log tells slow from hung."""
        from tqdm import tqdm

        columns, rows = shutil.get_terminal_size()  # tqdm shows nothing on a terminal that doesn't know its size
        options = {"unit": "B", "unit_scale": True, "ncols": columns, "nrows": rows, **options}
        if not sys.stderr.isatty():
            options |= {"delay": 20, "mininterval": 20, "maxinterval": 20, "ascii": True}
        return tqdm(desc=desc, total=total, file=sys.stderr, disable=self.quiet, **options)
