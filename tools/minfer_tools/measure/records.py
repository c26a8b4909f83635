# SPDX-License-Identifier: MIT
"""Result records: chapters/NN-slug/results/MACHINE.json, as common/results.schema.json has them."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failure
from ..whole_file import replace_text
from .programs import Test

ROOT = Path(__file__).resolve().parents[3]
CHAPTERS = ROOT / "chapters"
SCHEMA = ROOT / "common" / "results.schema.json"


def to_text(record: dict) -> str:
    """JSON in which what holds nothing but numbers and texts takes one line, for people and for diffs."""
    def one_line(match: re.Match) -> str:
        words = re.sub(r"\s*\n\s*", " ", match[0])
        return f"{words[0]}{words[1:-1].strip()}{words[-1]}"

    text = json.dumps(record, indent=1, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}\"]*\]", one_line, text) + "\n"


def path_of(out: Path, chapter: str, machine: str) -> Path:
    return out / chapter / "results" / f"{machine}.json"


def load(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Failure(f"{path}: found no JSON ({error})") from None


def identity(run: dict) -> tuple:
    """What makes two runs the same measurement, so that the newer's tests replace the older's."""
    return run["model"]["name"], run["engine"], tuple(sorted(run["options"].items()))


def without(run: dict, replaced: set[str]) -> dict | None:
    """A run without the tests that a newer one replaces; None where that leaves nothing."""
    tests = [test for test in run["tests"] if test["test"] not in replaced]
    return {**run, "tests": tests} if tests else None


def with_newer(runs: list[dict], newer: dict) -> list[dict]:
    """The runs with a newer one, and without what it replaces. It takes the place of the first of which it leaves
    nothing; where there is none, it comes behind the last whose identity does not sort behind its own. So no run that
    stays changes places, and one that is already there stays where it is."""
    own, replaced = identity(newer), {test["test"] for test in newer["tests"]}
    left = [without(run, replaced) if identity(run) == own else run for run in runs]
    if None in left:
        left[left.index(None)] = newer
    else:
        left.insert(max((i + 1 for i, run in enumerate(runs) if identity(run) <= own), default=0), newer)
    return [run for run in left if run]


def merged(old: dict | None, new: dict) -> dict:
    """The record with the new tests in place of their like; the others stay, each with its own source."""
    if not old:
        return new
    return {**old, **new, "runs": functools.reduce(with_newer, new["runs"], old["runs"])}


def write(out: Path, record: dict) -> Path:
    """Writes or renews a chapter's record; returns its path."""
    path = path_of(out, record["chapter"], record["machine"]["id"])
    path.parent.mkdir(parents=True, exist_ok=True)
    record = merged(load(path) if path.exists() else None, record)
    replace_text(path, to_text(record))
    return path


@dataclass(frozen=True)
class Result:
    """One test of one run, with what it stands in."""

    record: dict
    run: dict
    test: Test

    @property
    def speed(self) -> float:
        """Tokens per second, the median."""
        return self.test.speed

    @property
    def gb_per_s(self) -> float | None:
        """What decoding reads per second of weights, as they lie in memory, and of KV cache. A step reads both
        once; a prompt does not."""
        bytes_per_token = self.test.bytes_per_token
        return self.speed * bytes_per_token / 1e9 if bytes_per_token else None

    @property
    def share(self) -> float | None:
        """Of the bandwidth that was measured on this machine."""
        bandwidth = self.record["machine"]["bandwidth_gb_per_s"]
        return self.gb_per_s / bandwidth if self.gb_per_s and bandwidth else None

    @property
    def tokens_per_joule(self) -> float | None:
        watts = self.run["power"]["watts"]
        jetson = self.record["machine"]["l4t"]  # only a board's input power is all that a token costs
        return self.speed / watts if jetson and watts and self.test.n_gen else None


def results(record: dict) -> list[Result]:
    return [Result(record, run, Test(test["test"], test["n_prompt"], test["n_gen"], test["n_depth"], test["samples_ns"],
                                     test["bytes_per_token"], test.get("breakdown")))
            for run in record["runs"] for test in run["tests"]]


def load_all(chapters: Path = CHAPTERS) -> list[dict]:
    """All committed records, in the order of chapters and machines."""
    return [load(path) for path in sorted(chapters.glob("[0-9][0-9]-*/results/*.json"))]
