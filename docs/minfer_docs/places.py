# SPDX-License-Identifier: MIT
"""Where things are: the checkout, the build's folders, and the projects that Doxygen reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minfer_tools.chapter_tree import Chapter, find_chapters

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = DOCS / "pages"
SOURCES = (".h", ".cuh", ".cu", ".cpp")


@dataclass(frozen=True)
class Project:
    """What one run of Doxygen reads: a chapter, or what all chapters share."""

    name: str  # "dp4a", "common"
    folder: str  # "chapters/05-dp4a", relative to the checkout
    namespace: str  # "minfer::dp4a": of its symbols on the site

    @property
    def renamed(self) -> bool:
        """Every chapter's symbols are in `minfer`, and so are told apart on the site."""
        return self.namespace not in ("minfer", "minfer::oracle")

    def files(self) -> list[Path]:
        """Its sources, relative to the checkout; tests and benchmarks are read as sources only."""
        folder = ROOT / self.folder
        return sorted(path.relative_to(ROOT) for path in folder.rglob("*")
                      if path.suffix in SOURCES and not is_test(path) and not is_scratch(path.relative_to(folder)))

    def headers(self) -> list[Path]:
        """What the API pages show, in reading order: a chapter's kernels come before its engine."""
        found = [path for path in self.files() if path.suffix in (".h", ".cuh")]
        return sorted(found, key=lambda path: (path.suffix != ".cuh", path))


def is_test(path: Path) -> bool:
    return path.stem.endswith(("_test", "_testing", "_bench"))


def is_scratch(path: Path) -> bool:
    return any(part.startswith((".", "build")) for part in path.parts)


def slug(chapter: Chapter) -> str:
    return chapter.name.split("-", 1)[1]


def chapter_project(chapter: Chapter) -> Project:
    name = slug(chapter).replace("-", "_")
    return Project(name, f"chapters/{chapter.name}", f"minfer::{name}")


def chapters() -> list[Chapter]:
    """The chapters that have a README, in order."""
    return [chapter for chapter in find_chapters(ROOT) if (chapter.path / "README.md").exists()]


def shared_projects() -> list[Project]:
    return [Project("common", "common", "minfer"), Project("oracle", "oracle", "minfer::oracle")]


def projects() -> list[Project]:
    return [*shared_projects(), *map(chapter_project, chapters())]
