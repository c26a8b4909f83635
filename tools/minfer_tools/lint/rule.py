# SPDX-License-Identifier: MIT
"""What a rule is, what it looks at, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from minfer_tools.chapter_tree import SOURCE_SUFFIXES, Chapter, find_chapters

from .source import Source

#: Folders beside chapters/ whose sources obey the rules about device code.
SHARED_FOLDERS = ("common", "oracle", "bench", "tests")

@dataclass(frozen=True, order=True)
class Finding:
    """Something against a rule."""

    path: Path
    line: int
    rule: str
    message: str


@dataclass(frozen=True)
class LintedChapter:
    """A chapter with its sources read."""

    chapter: Chapter
    sources: list[Source]
    readme: str

    @property
    def readme_path(self) -> Path:
        return self.chapter.path / "README.md"

    @property
    def name(self) -> str:
        return self.chapter.name

    def cpp(self) -> list[Source]:
        return [s for s in self.sources if s.path.suffix in SOURCE_SUFFIXES and s.path.suffix != ".cmake"]


@dataclass(frozen=True)
class Project:
    """All that the rules look at."""

    root: Path
    compile_commands: list[Path] = field(default_factory=list)

    @cached_property
    def chapters(self) -> list[LintedChapter]:
        return [self._read(chapter) for chapter in find_chapters(self.root)]

    @property
    def engines(self) -> list[LintedChapter]:
        return [c for c in self.chapters if c.chapter.is_engine]

    @cached_property
    def shared(self) -> list[Source]:
        """The sources of SHARED_FOLDERS."""
        return [Source.read(path) for folder in SHARED_FOLDERS for path in sorted((self.root / folder).rglob("*"))
                if path.suffix in SOURCE_SUFFIXES and path.suffix != ".cmake" and path.is_file()]

    def everywhere(self) -> Iterator[Source]:
        """The C++ and CUDA sources of the chapters and of what they share."""
        for chapter in self.chapters:
            yield from chapter.cpp()
        yield from self.shared

    def within(self, source: Source, *places: str) -> bool:
        """Whether the source is one of `places`, or lies in one that ends in a slash."""
        name = source.path.relative_to(self.root).as_posix()
        return any(name == place or (place.endswith("/") and name.startswith(place)) for place in places)

    @staticmethod
    def _read(chapter: Chapter) -> LintedChapter:
        path = chapter.path / "README.md"
        readme = path.read_text(encoding="utf-8") if path.is_file() else ""
        return LintedChapter(chapter, [Source.read(chapter.path / f) for f in chapter.sources()], readme)


@dataclass(frozen=True)
class Rule:
    """A named check."""

    name: str
    summary: str
    check: Callable[[Project], Iterator[Finding]]


RULES: dict[str, Rule] = {}


def rule(name: str):
    """Registers a check under its name; the docstring's first paragraph is what --list says."""
    def register(check: Callable[[Project], Iterator[Finding]]):
        summary = " ".join((check.__doc__ or "").split("\n\n")[0].split())
        RULES[name] = Rule(name, summary, check)
        return check
    return register


def at(rule_name: str, source: Source, offset: int, message: str) -> Finding:
    """A finding at an offset of a source."""
    return Finding(source.path, source.line_of(offset), rule_name, message)
