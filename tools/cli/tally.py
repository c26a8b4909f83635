# SPDX-License-Identifier: MIT
"""Counting tests one by one, from the JUnit files of ctest and pytest."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

CATCH2_PASSED = re.compile(r"All tests passed \(.* in (\d+) test cases?\)")
CATCH2_MIXED = re.compile(r"test cases:\s*(\d+)((?:\s*\|\s*\d+ [a-z ]+)+)")
SKIPPED_BY_STATUS = ("SKIP_RETURN_CODE", "SKIP_REGULAR_EXPRESSION", "Disabled")


@dataclass
class Tally:
    """Outcomes so far. `failed` and `skipped` hold names, the latter with the reason."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def skip(self, name: str, reason: str) -> None:
        self.skipped.append((name, reason))

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    @property
    def ran(self) -> int:
        return self.passed + len(self.failed)

    @property
    def status(self) -> int:
        """0 where something passed and nothing failed: a run of no test is a failure."""
        return 0 if self.passed and not self.failed else 1

    def line(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def catch2_cases(output: str) -> tuple[int, int] | None:
    """Passed and failed test cases of a Catch2 program, by its closing line; None if it has none.
    A case that was to fail and did counts as passed."""
    match = CATCH2_PASSED.search(output)
    if match:
        return int(match[1]), 0
    match = CATCH2_MIXED.search(output)
    if not match:
        return None
    counts = {words: int(number) for number, words in re.findall(r"(\d+) ([a-z ]+)", match[2])}
    failed = next((n for words, n in counts.items() if words.strip() == "failed"), 0)
    skipped = next((n for words, n in counts.items() if words.strip() == "skipped"), 0)
    return int(match[1]) - failed - skipped, failed


def from_ctest(report: Path, stage: str) -> Tally:
    """Counts a Catch2 program by its test cases, and any other test as one."""
    tally = Tally()
    for case in cases(report):
        name, output = f"{stage}: {case.get('name')}", case.findtext("system-out") or ""
        skipped = case.find("skipped")
        counted = catch2_cases(output)
        if skipped is not None and skipped.get("message", "").startswith(SKIPPED_BY_STATUS):
            tally.skip(name, last_line(output) or skipped.get("message", ""))
        elif case.find("failure") is not None or case.get("status") != "run":
            tally.passed += counted[0] if counted else 0
            tally.failed += [name] * max(1, counted[1] if counted else 1)
        else:
            tally.passed += counted[0] if counted else 1
    return tally


def from_pytest(report: Path, stage: str) -> Tally:
    tally = Tally()
    for case in cases(report):
        name = f"{stage}: {case.get('classname', '')}::{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failed.append(name)
        elif skipped is not None:
            tally.skip(name, skipped.get("message", ""))
        else:
            tally.passed += 1
    return tally


def cases(report: Path) -> list[ElementTree.Element]:
    try:
        return list(ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return []


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
