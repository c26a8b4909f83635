# SPDX-License-Identifier: MIT
"""Rules about chapters as a series: the same files and names, and a README that states its numerics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from minfer_tools import listings

from .rule import Finding, LintedChapter, Project, at, rule

IDENTICAL = ("CMakeLists.txt", "main.cpp")

@rule("identical")
def identical(project: Project) -> Iterator[Finding]:
    """CMakeLists.txt and main.cpp are byte for byte the same in every chapter from 01 on."""
    for name in IDENTICAL:
        first = None
        for chapter in project.engines:
            path = chapter.chapter.path / name
            if not path.is_file():
                yield Finding(path, 1, "identical", "missing; every engine chapter has it")
            elif first is None:
                first = path
            elif path.read_bytes() != first.read_bytes():
                yield Finding(path, _first_difference(path.read_bytes(), first.read_bytes()), "identical",
                              f"differs from {first.parent.name}/{name}; expected the same bytes")


def _first_difference(a: bytes, b: bytes) -> int:
    lines_a, lines_b = a.split(b"\n"), b.split(b"\n")
    same = 0
    while same < min(len(lines_a), len(lines_b)) and lines_a[same] == lines_b[same]:
        same += 1
    return min(same + 1, len(lines_a))


@rule("namespace")
def namespace(project: Project) -> Iterator[Finding]:
    """Every source of an engine but main.cpp puts all it has in namespace minfer."""
    for chapter in project.engines:
        for source in chapter.cpp():
            found = False
            for match in re.finditer(r"\bnamespace\s*([\w:]*)\s*\{", source.code):
                before = source.code[:match.start()]
                if before.count("{") != before.count("}"):
                    continue
                found = found or match[1].split("::")[0] == "minfer"
                if match[1].split("::")[0] not in ("", "minfer"):
                    yield at("namespace", source, match.start(), f"namespace {match[1]}; expected minfer")
            if not found and source.path.name != "main.cpp":
                yield Finding(source.path, 1, "namespace", "no namespace minfer")


_NUMBERED = re.compile(r"\b(?:\w*[Cc]hapter_?\d\w*|ch\d\d\w*|\w+_0\d|\w+_v\d+\w*|\w*[a-z]V\d+)\b")
_TOLD = re.compile(r"\b[Cc]hapters?[ /-]\d+|\bmilestone M?\d|\bM\d\d?(?:\.5)?\b")


@rule("no-numbers")
def no_numbers(project: Project) -> Iterator[Finding]:
    """No chapter's number or slug, and no version, in an identifier, an include, a comment or a string."""
    names = [c.name for c in project.chapters]
    for chapter in project.engines:
        for source in chapter.sources:
            for match in _NUMBERED.finditer(source.code):
                yield at("no-numbers", source, match.start(), f"{match[0]}: a number in a name that no later chapter can keep")
            for match in _TOLD.finditer(_merge(source.comments, source.strings)):
                yield at("no-numbers", source, match.start(), f"names a chapter: {match[0]}")
            for name in names:
                for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", source.text):
                    yield at("no-numbers", source, match.start(), f"names a chapter: {name}")
            for match in re.finditer(r"^[ \t]*#[ \t]*include[^\n]*(chapters/|\.\./\d\d)", source.text, re.MULTILINE):
                yield at("no-numbers", source, match.start(), "includes a file of a chapter")


def _merge(a: str, b: str) -> str:
    """Two texts of one length, each blank where the other is not."""
    return "".join(x if x != " " else y for x, y in zip(a, b))


@rule("readme")
def readme(project: Project) -> Iterator[Finding]:
    """Each chapter has a README; an engine's has a section that states its numerics, and its tables' markers match."""
    for chapter in project.chapters:
        if not chapter.readme:
            yield Finding(chapter.readme_path, 1, "readme", "missing")
            continue
        if chapter.chapter.is_engine and not re.search("^##+ .*(numerics|bits)", chapter.readme, re.MULTILINE | re.IGNORECASE):
            yield Finding(chapter.readme_path, 1, "readme", "no section that states its numerics")
        yield from _table_markers(chapter)


def _table_markers(chapter: LintedChapter) -> Iterator[Finding]:
    """Each `<!-- table: NAME -->` is closed by `<!-- /table -->` before the next opens."""
    opened, names = None, set()
    for number, line in enumerate(chapter.readme.splitlines(), 1):
        start = re.fullmatch(r"<!-- table: (.+) -->", line.strip())
        if start:
            if opened is not None:
                yield Finding(chapter.readme_path, opened, "readme", "a table that is not closed by <!-- /table -->")
            if start[1] in names:
                yield Finding(chapter.readme_path, number, "readme", f"a second table {start[1]!r}")
            names.add(start[1])
            opened = number
        elif line.strip() == "<!-- /table -->":
            if opened is None:
                yield Finding(chapter.readme_path, number, "readme", "<!-- /table --> without a table")
            opened = None
    if opened is not None:
        yield Finding(chapter.readme_path, opened, "readme", "a table that is not closed by <!-- /table -->")


@rule("listings")
def code_beside_text(project: Project) -> Iterator[Finding]:
    """A README lists what its paragraph names: a definition of the chapter's file, or of one that the paragraph names too."""
    for chapter in project.chapters:
        for line, found in listings.problems(chapter.readme, chapter.chapter.path, project.root):
            yield Finding(chapter.readme_path, line, "listings", found)
