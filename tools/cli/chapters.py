# SPDX-License-Identifier: MIT
"""The chapters of this checkout that can be built."""

from __future__ import annotations

from pathlib import Path

from cli import ROOT
from minfer_tools.chapter_tree import Chapter, find_chapters, resolve


def discover(root: Path = ROOT) -> list[Chapter]:
    """All chapters, in order."""
    return [chapter for chapter in find_chapters(root) if (chapter.path / "CMakeLists.txt").is_file()]


def find(name: str, chapters: list[Chapter]) -> Chapter:
    """A chapter by number ("5", "05"), slug ("dp4a"), folder ("05-dp4a"), or "oracle", which is
    the reference chapter."""
    return resolve(chapters, "reference" if name == "oracle" else name)


#: Whose engine answers on a GPU: the fastest that was measured, on an H200. Where it is not there, the newest.
FASTEST = "fused-kernels"


def fastest_on_gpu(chapters: list[Chapter]) -> Chapter | None:
    return next((c for c in chapters if c.slug == FASTEST), None) or newest_on_gpu(chapters)


def newest_on_gpu(chapters: list[Chapter]) -> Chapter | None:
    return next((c for c in reversed(chapters) if c.is_engine and c.on_gpu), None)
