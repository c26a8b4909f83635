# SPDX-License-Identifier: MIT
"""{chapter-list}: the chapters that there are, each with its idea and its speeds."""

from __future__ import annotations

import re

from minfer_tools.chapter_tree import Chapter
from minfer_tools.measure import readme

from . import chapter_page, places
from .plots import number
from .results import FromRecords, sources


def idea_of(chapter: Chapter) -> str:
    """The first paragraph of its README, which is the idea in a sentence."""
    text = chapter_page.COMMENT.sub("", (chapter.path / "README.md").read_text(encoding="utf-8"))
    first = next(block for block in chapter_page.blocks_of(text) if not block.startswith("#"))
    sentence = re.split(r"(?<=[.])\s", re.sub(r"^\*\*The idea\.\*\*\s*", "", " ".join(first.split())))[0]
    return chapter_page.LINK.sub(r"\1", sentence)


def speed_of(chapter: Chapter, data: readme.Sources) -> str:
    """The best-known measured speed: the first machine's, the model that the reported figures are of, if it was run."""
    found = [r for r in readme.ladder_results(data) if r.record["chapter"] == chapter.name and r.run["engine"] != "llama.cpp"]
    found.sort(key=lambda r: not r.run["model"]["name"].startswith("1.5b"))
    return f"{number(found[0].speed)} tok/s, {found[0].record['machine']['gpu'].removeprefix('NVIDIA ')}" if found else ""


class ChapterList(FromRecords):
    def run(self) -> list:
        self.note_records()
        data = sources()
        cards = []
        for chapter in places.chapters():
            speed = speed_of(chapter, data)
            foot = f"\n\n```{{container}} speed\n{speed}\n```" if speed else ""
            cards.append(f":::{{grid-item-card}} {chapter.number:02d} {chapter_page.title_of(chapter)}\n"
                         f":link: /chapters/{chapter.name}\n:link-type: doc\n:class-card: chapter-card\n\n"
                         f"{idea_of(chapter)}{foot}\n:::")
        return self.parse("::::{grid} 1 2 2 3\n:gutter: 3\n" + "\n".join(cards) + "\n::::")
