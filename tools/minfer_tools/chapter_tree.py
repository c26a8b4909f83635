# SPDX-License-Identifier: MIT
"""The chapters as a tree of files: which there are, how they are named, what a chapter owns."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from .errors import Failure

REPOSITORY = Path(__file__).resolve().parents[2]

#: Folders of patches to a chapter: variants that lost, what exercises come to, and faults to be found.
PATCHES = ("dead-ends", "solutions", "faults")

#: Folders that belong to one chapter alone: its measurements, and its patches.
OWN_FOLDERS = ("results", *PATCHES)

#: Files that are compiled or that say how.
SOURCE_SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cmake")

_NAME = re.compile(r"(\d\d)-[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True, order=True)
class Chapter:
    """One folder `chapters/NN-slug`."""

    number: int
    path: Path

    @property
    def name(self) -> str:
        """"05-dp4a"."""
        return self.path.name

    @property
    def slug(self) -> str:
        """"dp4a", which its program is called too."""
        return self.name.split("-", 1)[1]

    @property
    def title(self) -> str:
        """The README's first heading; nothing where there is none."""
        readme = self.path / "README.md"
        heading = re.search("^# +(.+)$", readme.read_text(encoding="utf-8"), re.MULTILINE) if readme.is_file() else None
        return heading[1].strip() if heading else ""

    @property
    def on_gpu(self) -> bool:
        return any(self.path.glob("*.cu"))

    @property
    def is_engine(self) -> bool:
        """Chapter 00 is a benchmark; from 01 on each is a whole engine."""
        return self.number > 0

    def files(self, own: bool = False) -> list[Path]:
        """The chapter's files as sorted relative paths.

        Hidden files, byte code and build folders are left out; `own` says whether OWN_FOLDERS are in.
        """
        found = []
        for folder, folders, names in os.walk(self.path):
            here = Path(folder).relative_to(self.path)
            folders[:] = sorted(f for f in folders if not _is_scratch(f)
                                and (own or here.parts or f not in OWN_FOLDERS))
            found += [here / name for name in names if not _is_scratch(name)]
        return sorted(found)

    def sources(self) -> list[Path]:
        """What is compiled, and CMakeLists.txt: the relative paths whose lines make up the chapter."""
        return [f for f in self.files() if f.suffix in SOURCE_SUFFIXES or f.name == "CMakeLists.txt"]


def is_idea(file: Path) -> bool:
    """Whether a file belongs to a chapter's idea, which its tests, its benchmark and its text do not."""
    return not file.stem.endswith(("_test", "_testing", "_bench")) and file.name != "README.md"


def _is_scratch(name: str) -> bool:
    return name.startswith((".", "build")) or name == "__pycache__" or name.endswith((".pyc", "~"))


def find_chapters(root: Path) -> list[Chapter]:
    """All chapters under `root`/chapters in numeric order; two of one number are an error."""
    folder = root / "chapters"
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    chapters = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match and (folder / name).is_dir():
            chapters.append(Chapter(int(match[1]), folder / name))
    for first, second in zip(chapters, chapters[1:]):
        if first.number == second.number:
            raise Failure(f"{folder}: {first.name} and {second.name} have the same number; "
                          "expected one chapter a number")
    return chapters


def resolve(chapters: list[Chapter], text: str) -> Chapter:
    """The chapter that a person means by "5", "05", "05-dp4a", "dp4a" or a path to its folder."""
    wanted = Path(text).name
    for chapter in chapters:
        if wanted in (chapter.name, chapter.slug) or (wanted.isdecimal() and int(wanted) == chapter.number):
            return chapter
    known = ", ".join(f"{c.number:02d}" for c in chapters) or "none"
    raise Failure(f"no chapter {text!r}; there are: {known}", 2)
