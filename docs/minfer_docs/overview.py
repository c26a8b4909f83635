# SPDX-License-Identifier: MIT
"""{chapter-list}: the chapters that there are, each with its idea and its speeds."""

from __future__ import annotations

import re

from minfer_tools.chapter_tree import Chapter
from minfer_tools.measure import readme

from . import chapter_page, places
from .plots import number
from .results import FromRecords, sources


def speed_of(chapter: Chapter, data: readme.Sources) -> str:
    """The best-known measured speed: the first machine's, the model that the reported figures are of, if it was run."""
    found = [r for r in readme.ladder_results(data) if r.record["chapter"] == chapter.name and r.run["engine"] != "llama.cpp"]
    found.sort(key=lambda r: not r.run["model"]["name"].startswith("1.5b"))
    if not found:
        return ""
    machine = found[0].record["machine"]["gpu"].removeprefix("NVIDIA ")
    return f"{number(found[0].speed)} tok/s\\\n{machine}, {found[0].run['model']['name']}"


def planned() -> list[tuple[str, str]]:
    """The chapters to come, from the README's list: number and idea, without those that exist by now."""
    text = (places.ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- (\d\d)-[\w-]+: (.+)$", text, re.M)
    existing = {chapter.number for chapter in places.chapters()}
    return [(number, idea) for number, idea in rows if int(number) not in existing]


def entry(chapter: Chapter, data: readme.Sources) -> str:
    speed = speed_of(chapter, data)
    foot = f"```{{container}} speed\n{speed}\n```\n" if speed else ""
    title = f"[{chapter_page.title_of(chapter)}](/chapters/{chapter.name}.md)"
    idea = readme.idea_of((chapter.path / "README.md").read_text(encoding="utf-8"))
    return (f"::::{{container}} entry\n```{{container}} number\n{chapter.number:02d}\n```\n"
            f":::{{container}} about\n{title}\n\n{idea}\n:::\n{foot}::::\n")


class ChapterList(FromRecords):
    """{chapter-list}: a table of contents to be read, and what is planned, folded."""

    def run(self) -> list:
        self.note_records()
        for path in [places.ROOT / "README.md", *(chapter.path / "README.md" for chapter in places.chapters())]:
            self.env.note_dependency(str(path))
        data = sources()
        entries = "\n".join(entry(chapter, data) for chapter in places.chapters())
        listed = self.parse(f":::::{{container}} chapter-list\n{entries}\n:::::")
        to_come = planned()
        if to_come:
            lines = "\n".join(f"- **{number}** {idea}" for number, idea in to_come)
            listed += self.parse(f":::{{dropdown}} {len(to_come)} more are planned\n{lines}\n:::")
        return listed
