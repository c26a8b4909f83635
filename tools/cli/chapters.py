# SPDX-License-Identifier: MIT
"""The chapters of this checkout, as their folders say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cli import ROOT
from cli.console import USAGE
from minfer_tools.errors import Failure


@dataclass(frozen=True)
class Chapter:
    number: int
    slug: str
    path: Path

    @property
    def folder(self) -> str:
        return self.path.name

    @property
    def is_engine(self) -> bool:
        """Chapter 00 measures the machine; the others run models."""
        return self.number > 0

    @property
    def on_gpu(self) -> bool:
        return any(self.path.glob("*.cu"))

    @property
    def title(self) -> str:
        """The README's first heading."""
        try:
            for line in (self.path / "README.md").read_text(encoding="utf-8").splitlines():
                if line.startswith("# "):
                    return line[2:].strip()
        except OSError:
            pass
        return ""


def discover(root: Path = ROOT) -> list[Chapter]:
    """All chapters, in order."""
    found = []
    for path in (root / "chapters").glob("*/CMakeLists.txt"):
        match = re.fullmatch(r"(\d\d)-([a-z0-9-]+)", path.parent.name)
        if match:
            found.append(Chapter(int(match[1]), match[2], path.parent))
    return sorted(found, key=lambda chapter: chapter.number)


def find(name: str, chapters: list[Chapter]) -> Chapter:
    """A chapter by number ("5", "05"), slug ("dp4a"), folder ("05-dp4a"), or "oracle", which is
    the reference chapter."""
    if name == "oracle":
        name = "reference"
    for chapter in chapters:
        if name in (chapter.slug, chapter.folder) or (
                name.isdigit() and int(name) == chapter.number):
            return chapter
    raise Failure(f"--chapter: found {name!r}, expected oracle or one of "
                  f"{', '.join(chapter.folder for chapter in chapters)}", USAGE)


def newest_on_gpu(chapters: list[Chapter]) -> Chapter | None:
    return next((c for c in reversed(chapters) if c.is_engine and c.on_gpu), None)
