# SPDX-License-Identifier: MIT
"""Messages and progress on standard error, which is where everything but the answer goes."""

from __future__ import annotations

import shutil
import sys
import time


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

    def bar(self, what: str, total: int, start: int = 0) -> "Bar":
        """A progress display of `total` bytes, of which `start` are there already."""
        if self.quiet:
            return Bar()
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return LineBar(what, total, start)
            # Given here because tqdm shows nothing on a terminal that doesn't know its own size.
            columns, rows = shutil.get_terminal_size()
            size = {"ncols": columns, "nrows": rows}
            scale = {"total": total, "initial": start, "unit": "B", "unit_scale": True}
            return TqdmBar(tqdm(desc=what, file=sys.stderr, **scale, **size))
        return LineBar(what, total, start)


class Bar:
    """Shows nothing; the displays derive from it. `done` counts as in the file: a restart may lower
    it."""

    def move_to(self, done: int) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class TqdmBar(Bar):
    def __init__(self, bar):
        self._bar = bar

    def move_to(self, done: int) -> None:
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class LineBar(Bar):
    """For logs and pipes: a line at each quarter, and no more often than every two seconds."""

    INTERVAL_SECONDS = 2.0

    def __init__(self, what: str, total: int, start: int):
        self._what = what
        self._total = max(total, 1)
        self._quarter = 4 * start // self._total
        self._said = time.monotonic()

    def move_to(self, done: int) -> None:
        quarter = 4 * done // self._total
        now = time.monotonic()
        if quarter > self._quarter and now - self._said >= self.INTERVAL_SECONDS:
            print(
                f"{self._what}: {human(done)} of {human(self._total)}", file=sys.stderr, flush=True
            )
            self._quarter, self._said = quarter, now
