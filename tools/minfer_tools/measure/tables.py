# SPDX-License-Identifier: MIT
"""Results as text: the same numbers as a Markdown table, CSV or JSON lines."""

from __future__ import annotations

import csv
import io
import json

from . import records
from .breakdown import IDLE, STEP, Breakdown
from .records import Result

COLUMNS = ("chapter", "engine", "model", "test", "tok/s", "GB/s", "of the roofline")


def number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def speed(value: float) -> str:
    """Four digits, which is more than any machine repeats."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def markdown(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A table whose first `left` columns are texts, and the others numbers."""
    rule = ["---"] * left + ["---:"] * (len(header) - left)
    return "".join(f"| {' | '.join(row)} |\n" if row is not rule else f"|{'|'.join(row)}|\n"
                   for row in [header, rule, *rows])


def llama_way(options: dict[str, str]) -> str:
    """How llama.cpp ran: "stock file, `-fa 1`"."""
    files = {"stock": "stock file", "f32": "weights in F32"}
    return f"{files.get(options['head'], options['head'] + ' head')}, `-fa {options['fa']}`"


def engine_title(run: dict) -> str:
    """"dp4a", "int8-head LMHEAD=0", "llama.cpp, stock file, `-fa 1`"."""
    if run["engine"] == "llama.cpp":
        return f"llama.cpp, {llama_way(run['options'])}"
    return " ".join([run["engine"], *(f"{key}={value}" for key, value in run["options"].items())])


def row(result: Result) -> list[str]:
    return [result.record["chapter"], engine_title(result.run), result.run["model"]["name"], result.test.name,
            speed(result.speed), number(result.gb_per_s), percent(result.share)]


def all_results(measured: list[dict]) -> list[Result]:
    return [result for record in measured for result in records.results(record)]


def sitting_table(measured: list[dict], form: str = "md") -> str:
    """What a sitting measured. @param form  md, csv, json or jsonl"""
    found = all_results(measured)
    if form == "md":
        apart = [breakdown_table(result) for result in found if result.test.breakdown]
        return "\n".join([markdown(list(COLUMNS), [row(result) for result in found], left=4), *apart])
    if form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*COLUMNS, "samples_ns"])
        writer.writerows([*row(result), " ".join(map(str, result.test.samples_ns))] for result in found)
        return text.getvalue()
    objects = [plain(result) for result in found]
    if form == "jsonl":
        return "".join(json.dumps(entry) + "\n" for entry in objects)
    return json.dumps(objects, indent=1) + "\n"


def breakdown_table(result: Result) -> str:
    """A step by kernel, with how much the events change and what that is taken for."""
    found = Breakdown.of(result)
    rows = [[kernel.name, str(kernel.launches), number(kernel.us), percent(found.share(kernel.us)),
             number(kernel.bytes / 1e6, 3), number(kernel.gb_per_s)] for kernel in found.kernels]
    rows += [[name, str(found.launches), number(us), percent(found.share(us)), "", ""]
             for name, us in ((IDLE, found.idle_us), (STEP, found.step_us))]
    return (f"{engine_title(result.run)}, {result.run['model']['name']}, {result.test.name}: a step by kernel, on "
            f"{result.run['description']}.\n\n"
            + markdown(["kernel", "launches", "us", "of the step", "MB", "GB/s"], rows)
            + f"\nWith an event behind each kernel the step takes {number(found.events_us)} us instead of "
              f"{number(found.step_us)}. An empty kernel takes {number(found.empty_us, 2)} us so, which is taken off each "
              "launch.\n")


def plain(result: Result) -> dict:
    """A result with llama-bench's names where it has them."""
    apart = Breakdown.of(result)
    return {
        "chapter": result.record["chapter"], "engine": result.run["engine"], "options": result.run["options"],
        "model": result.run["model"]["name"], "test": result.test.name, "n_prompt": result.test.n_prompt,
        "n_gen": result.test.n_gen, "n_depth": result.test.n_depth, "samples_ns": result.test.samples_ns,
        "samples_ts": result.test.speeds(), "median_ts": result.speed, "gb_per_s": result.gb_per_s,
        "of_roofline": result.share, "tokens_per_joule": result.tokens_per_joule,
        "bytes_per_token": result.test.bytes_per_token, **({"breakdown": apart.plain()} if apart else {}),
    }


def resident(run: dict) -> str:
    """"370 MB, 0.86 times the file"; nothing where it is not known."""
    peak = run["peak_resident_bytes"]
    return f"{peak / 1e6:.0f} MB, {peak / run['model']['bytes']:.2f} times the file" if peak else ""


def memory_lines(measured: list[dict]) -> list[str]:
    """How much memory each CPU engine had resident at most, against its model's file."""
    return [f"{engine_title(run)}, {run['model']['name']}: resident at most: {resident(run)}"
            for record in measured if record["machine"]["bandwidth_of"] == "cpu" for run in record["runs"] if resident(run)]
