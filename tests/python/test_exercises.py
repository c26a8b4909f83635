# SPDX-License-Identifier: MIT
"""The exercises of the chapters: each says where it is done, and each patch of one stands where a reader finds it. What
the patches come to is tested by tests/chapters/exercise.py."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from cli import chapters

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = chapters.discover()
PATCHES = sorted(path for folder in ("solutions", "faults") for path in (ROOT / "chapters").glob(f"*/{folder}/*.patch"))
MARK = re.compile(r"\d+\. \((Paper|CPU|Emulator|GPU)\b[^)]*\)")


def module():
    spec = importlib.util.spec_from_file_location("exercise", ROOT / "tests" / "chapters" / "exercise.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


EXERCISE = module()


def exercises_of(chapter) -> list[str]:
    text = (chapter.path / "README.md").read_text(encoding="utf-8").split("\n## Exercises\n")[1]
    section = re.split(r"\n## |\n<!-- table: turn -->", text)[0]
    return [" ".join(item.split()) for item in re.split(r"\n(?=\d+\. )", section)[1:]]


def solutions_of(chapter) -> str:
    return (ROOT / "docs" / "solutions" / f"{chapter.name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_every_exercise_says_where_it_is_done_and_is_solved(chapter):
    exercises = exercises_of(chapter)
    assert len(exercises) >= 3
    for number, exercise in enumerate(exercises, 1):
        assert exercise.startswith(f"{number}. ") and MARK.match(exercise), exercise
    assert f"](../../docs/solutions/{chapter.name}.md)" in (chapter.path / "README.md").read_text(encoding="utf-8")
    solved = [int(number) for number in re.findall(r"^\*\*(\d+)\.\*\*", solutions_of(chapter), re.M)]
    assert solved == sorted(solved) and set(solved) <= set(range(1, len(exercises) + 1))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.name)
def test_every_patch_that_is_named_is_there(chapter):
    text = "\n".join([*exercises_of(chapter), solutions_of(chapter)])
    for command, name in re.findall(r"(\./minfer try (?:\d\d) --in \S+) --patch (\S+?)[`\s]", text):
        assert command.split()[2] == chapter.name[:2]
        assert name == "solutions/NAME" or (chapter.path / f"{name}.patch").is_file()


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: f"{patch.parents[1].name[:2]}-{patch.stem}")
def test_every_patch_stands_on_its_page_with_what_it_comes_to(patch):
    chapter = chapters.find(patch.parents[1].name, CHAPTERS)
    commands = EXERCISE.commands_of(solutions_of(chapter), patch.relative_to(ROOT).as_posix())
    assert any(lines for _, lines in commands)
    if patch.parent.name == "faults":
        assert any(f"--patch faults/{patch.stem}`" in exercise for exercise in exercises_of(chapter))


def test_there_are_faults_to_find():
    assert len([patch for patch in PATCHES if patch.parent.name == "faults"]) >= 6


PAGE = """\
**1.** Words.

[`solutions/one.patch`](../../chapters/05-dp4a/solutions/one.patch)

```text
$ ./minfer try 05
kernels  right
$ ./minfer lab 05
```

**2.** Other words.

[`solutions/two.patch`](../../chapters/05-dp4a/solutions/two.patch)
"""


def test_the_commands_of_a_page_are_those_below_a_patch():
    one, two = (f"chapters/05-dp4a/solutions/{name}.patch" for name in ("one", "two"))
    assert EXERCISE.commands_of(PAGE, one) == [("./minfer try 05", ["kernels  right"]), ("./minfer lab 05", [])]
    assert EXERCISE.commands_of(PAGE, two) == EXERCISE.commands_of(PAGE, "other.patch") == []


@pytest.mark.parametrize("expected, absent", [
    (["one", "three"], None),
    (["three", "one"], "one"),
    (["one", "two of ..."], None),
    (["one", "two and ..."], "two and ..."),
    (["race at ../mine/chapters/06-a/b.cuh:1"], None),
    (["two"], "two"),
])
def test_what_a_page_shows_is_looked_for_in_its_order(expected, absent):
    found = ["one", "two of them", "three", "race at build/tests/mine/chapters/06-a/b.cuh:1"]
    assert EXERCISE.missing(expected, found) == absent
