# SPDX-License-Identifier: MIT
"""Two chapters against each other: their speed, in turns ABBA, and how often they predict the same."""

from __future__ import annotations

import json

from . import correctness, programs, tables
from .programs import Test, progress
from .sitting import NamedModel, Options, Subject
from .statistics import abba, bootstrap_ratio


def take(a: Subject, b: Subject, model: NamedModel, options: Options) -> tuple[dict[str, Test], dict[str, Test]]:
    """Both sides' tests; `options.turns` rounds of ABBA."""
    sides: dict[str, tuple[Subject, dict[str, Test]]] = {"A": (a, {}), "B": (b, {})}
    order = abba(options.turns)
    for number, side in enumerate(order, 1):
        subject, tests = sides[side]
        progress(f"[{number}/{len(order)}] {side}: {subject.chapter}")
        programs.add_samples(tests, programs.bench(subject.program, model.path, options.plan, options.extra(),
                                                   options.environment()))
    return sides["A"][1], sides["B"][1]


def rows(a: dict[str, Test], b: dict[str, Test]) -> list[dict]:
    """A comparison a test."""
    found = []
    for name, test in a.items():
        ratio = bootstrap_ratio(test.speeds(), b[name].speeds())
        found.append({
            "test": name, "a_median_ts": test.speed, "b_median_ts": b[name].speed, "ratio": ratio.value,
            "interval_95": [ratio.low, ratio.high], "verdict": ratio.verdict,
            "a_samples_ns": test.samples_ns, "b_samples_ns": b[name].samples_ns})
    return found


def table(found: list[dict], a: str, b: str) -> str:
    return tables.markdown(
        ["test", "verdict on B", f"A: {a}, tok/s", f"B: {b}, tok/s", "B / A", "95 % of resamples"],
        [[row["test"], row["verdict"], tables.speed(row["a_median_ts"]), tables.speed(row["b_median_ts"]),
          f"{row['ratio']:.3f}", f"{row['interval_95'][0]:.3f} to {row['interval_95'][1]:.3f}"] for row in found], left=2)


def agreement(a: Subject, b: Subject, model: NamedModel, options: Options) -> tuple[int, int] | None:
    """Of the reference prompts' forced positions, how many both predict alike; None without a reference."""
    if model.name not in correctness.REFERENCE_OF or options.check_cases == 0:
        return None
    file = correctness.REFERENCES / correctness.REFERENCE_OF[model.name]
    same = total = 0
    for case in json.loads(file.read_text(encoding="utf-8"))["cases"][:options.check_cases]:
        first, second = (correctness.force(subject.program, model.path, case, options.extra(), options.environment())
                         for subject in (a, b))
        total += len(first.predictions)
        same += sum(second.predictions[position] == token for position, token in first.predictions.items())
    return same, total
