# SPDX-License-Identifier: MIT
"""Rules about chapters as a series: same files, same names, small steps, a README that is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator

from minfer_tools.chapter_tree import changed_lines

from .rule import Finding, LintedChapter, Project, at, rule

KERNEL_LINES, FILE_LINES, CHAPTER_LINES, COLUMNS, CHANGED_LINES = 80, 400, 1200, 100, 150
REASON_WORDS = 5
IDENTICAL = ("CMakeLists.txt", "main.cpp")

#: A chapter's README sections: what it must have, by words of a heading; from which chapter on.
SECTIONS = (
    ("prediction", r"predict", 0),
    ("what changed", r"chang", 2),
    ("walk-through", r"walk", 0),
    ("numerics", r"numerics|bits", 1),
    ("results", r"result", 0),
    ("what did not work", r"did not work|dead end", 0),
    ("reproduce", r"reproduc", 0),
    ("exercises", r"exercise", 0),
)


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


@rule("file-names", excusable=True)
def file_names(project: Project) -> Iterator[Finding]:
    """From chapter 02 on, a chapter's sources have the names that they have in the chapter before."""
    engines = [c for c in project.engines if c.chapter.number >= 2]
    for before, after in zip(engines, engines[1:]):
        old = {before.file_name(s) for s in before.sources} - set(IDENTICAL)
        new = {after.file_name(s) for s in after.sources} - set(IDENTICAL)
        for name in sorted(old - new):
            yield Finding(after.readme_path, 1, "file-names", f"{name} of {before.name} is not here", name)
        for name in sorted(new - old):
            yield Finding(after.chapter.path / name, 1, "file-names", f"not in {before.name}", name)


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


@rule("kernel-size", excusable=True)
def kernel_size(project: Project) -> Iterator[Finding]:
    """A kernel has at most 80 lines, from __global__ to its closing brace."""
    for chapter in project.chapters:
        for source in chapter.cpp():
            for kernel in source.kernels:
                lines = kernel.last_line - kernel.first_line + 1
                if lines > KERNEL_LINES:
                    yield Finding(source.path, kernel.first_line, "kernel-size",
                                  f"{kernel.name} has {lines} lines; at most {KERNEL_LINES}, or a reason", kernel.name)


@rule("file-size", excusable=True)
def file_size(project: Project) -> Iterator[Finding]:
    """A source file has at most 400 lines."""
    for chapter in project.chapters:
        for source in chapter.sources:
            if len(source.lines) > FILE_LINES:
                yield Finding(source.path, FILE_LINES + 1, "file-size",
                              f"{len(source.lines)} lines; at most {FILE_LINES}, or a reason", chapter.file_name(source))


@rule("chapter-size", excusable=True)
def chapter_size(project: Project) -> Iterator[Finding]:
    """A chapter's sources have at most 1,200 lines together."""
    for chapter in project.chapters:
        lines = sum(len(source.lines) for source in chapter.sources)
        if lines > CHAPTER_LINES:
            yield Finding(chapter.readme_path, 1, "chapter-size", f"{lines} lines; at most {CHAPTER_LINES}, or a reason")


@rule("columns", excusable=True)
def columns(project: Project) -> Iterator[Finding]:
    """A line of source has at most 100 columns."""
    for chapter in project.chapters:
        for source in chapter.sources:
            for number, line in enumerate(source.lines, 1):
                if len(line) > COLUMNS:
                    yield Finding(source.path, number, "columns", f"{len(line)} columns; at most {COLUMNS}, or a reason",
                                  chapter.file_name(source))


@rule("diff-size", excusable=True)
def diff_size(project: Project) -> Iterator[Finding]:
    """At most 150 lines of source change from one chapter to the next; a rewritten line counts once."""
    for before, after in zip(project.engines, project.engines[1:]):
        lines = changed_lines(before.chapter, after.chapter)
        if lines > CHANGED_LINES:
            yield Finding(after.readme_path, 1, "diff-size",
                          f"{lines} lines change from {before.name}; at most {CHANGED_LINES}, or a reason")


@rule("readme")
def readme(project: Project) -> Iterator[Finding]:
    """A README opens with the idea and has a section each for prediction, what changed (from 02 on),
    walk-through, numerics (from 01 on), results, what did not work, reproduce, exercises."""
    for chapter in project.chapters:
        if not chapter.readme:
            yield Finding(chapter.readme_path, 1, "readme", "missing")
            continue
        headings = re.findall(r"^#{2,3} +(.+)$", chapter.readme, re.MULTILINE)
        opening = re.split(r"^## ", chapter.readme, maxsplit=1, flags=re.MULTILINE)[0]
        prose = re.sub(r"(?s:<!--.*?-->)|^# .*$", "", opening, flags=re.MULTILINE).strip()
        if not prose and not any(re.search("idea", h, re.IGNORECASE) for h in headings):
            yield Finding(chapter.readme_path, 1, "readme", "no idea: expected a sentence under the title")
        for section, words, since in SECTIONS:
            if chapter.chapter.number >= since and not any(re.search(words, h, re.IGNORECASE) for h in headings):
                yield Finding(chapter.readme_path, 1, "readme", f"no section that tells: {section}")
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


@rule("three-commands")
def three_commands(project: Project) -> Iterator[Finding]:
    """The section that tells how to reproduce has three commands or fewer in its first code block."""
    for chapter in project.chapters:
        section = re.search(r"^##+ +[^\n]*reproduc[^\n]*\n(.*?)(?=^##+ |\Z)", chapter.readme,
                            re.MULTILINE | re.DOTALL | re.IGNORECASE)
        block = re.search(r"^```[^\n]*\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL) if section else None
        if section and not block:
            yield Finding(chapter.readme_path, 1, "three-commands", "no command in the section that tells how to reproduce")
        elif block:
            joined = block[1].replace("\\\n", " ").splitlines()
            commands = [c for c in joined if c.strip() and not c.lstrip().startswith("#")]
            if len(commands) > 3:
                line = chapter.readme.count("\n", 0, section.start(1) + block.start()) + 1
                yield Finding(chapter.readme_path, line, "three-commands", f"{len(commands)} commands; at most 3")
