# SPDX-License-Identifier: MIT
"""The tables of the README files, from the records and the specification's reported figures, and nothing
else: the same inputs give the same bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failure
from . import records, tables
from .records import ROOT, Result

REPORTED = ROOT / "tools" / "reported.json"
MISLEADING_BYTES = 6_881_280  # chapter 00's kMisleadingBytes
TABLE = re.compile(r"(<!-- table: ([^>\n]*?) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)
LADDER_TEST = "tg128"


@dataclass(frozen=True)
class Sources:
    """What tables are made of."""

    records: list[dict]
    reported: dict

    @classmethod
    def load(cls, root: Path = ROOT) -> Sources:
        return cls(records.load_all(root / "chapters"),
                   json.loads((root / "tools" / "reported.json").read_text(encoding="utf-8")))

    def of(self, chapter: str) -> list[dict]:
        return [record for record in self.records if record["chapter"] == chapter]


def not_yet(command: str) -> str:
    return f"not yet measured: `{command}`"


def source_of(result: Result) -> str:
    """When and of what, and whether the clocks let it be compared with another day's."""
    run = result.run
    commit = (run["source"]["commit"] or "unknown commit")[:10] + (" (changed)" if run["source"]["dirty"] else "")
    return f"{run['recorded'][:10]}, {commit}{', reference' if run['power']['reference'] else ''}"


def spread(result: Result) -> str:
    """The slowest and the fastest sample."""
    speeds = result.test.speeds()
    return f"{tables.speed(min(speeds))} to {tables.speed(max(speeds))}"


def agreement(result: Result) -> str:
    checked = result.run["correctness"]
    return f"{checked['agree']} of {checked['tokens']}" if checked else ""


def chapter_results(sources: Sources, chapter: str) -> str:
    """A chapter's own table: the reported figure first, then all that was measured."""
    header = ["machine", "model", "engine", "test", "source", "tok/s", "slowest to fastest", "GB/s", "of the roofline",
              "tokens as llama.cpp's"]
    reported = sources.reported
    rows = []
    if chapter in reported["chapters"]:
        rows.append([reported["machine"], reported["model"], "", reported["test"], reported["status"],
                     reported["chapters"][chapter], "", "", "", ""])
    measured = tables.all_results(sources.of(chapter))
    for result in measured:
        rows.append([result.record["machine"]["name"], result.run["model"]["name"], tables.engine_title(result.run),
                     result.test.name, source_of(result), tables.speed(result.speed), spread(result),
                     tables.number(result.gb_per_s), tables.percent(result.share), agreement(result)])
    if not measured:
        number = "oracle" if chapter.startswith("01-") else chapter[:2]
        rows.append(["any", "any", "", "", not_yet(f"./minfer bench --chapter {number} --record"), "", "", "", "", ""])
    return tables.markdown(header, rows, left=5)


def _rate(rows: list[dict], key: str, value: int) -> str:
    return next((f"{row['gb_per_s_median']:.1f}" for row in rows if row[key] == value), "")


def roofline(sources: Sources, chapter: str) -> str:
    reported = sources.reported
    rows = [[reported["machine"], reported["status"], reported["roofline"]["gb_per_s"],
             reported["roofline"]["misleading_gb_per_s"], reported["roofline"]["two_sms_gb_per_s"]]]
    found = [record for record in sources.of(chapter) if "roofline" in record]
    for record in found:
        measured = record["roofline"]
        rows.append([record["machine"]["name"], measured["invocation"], f"{measured['roofline']['gb_per_s_median']:.1f}",
                     _rate(measured["by_launch"], "bytes_per_launch", MISLEADING_BYTES),
                     _rate(measured["by_sms"], "sms", 2)])
    if not found:
        rows.append(["any GPU", not_yet("./minfer bench --chapter all --record"), "", "", ""])
    return tables.markdown(["machine", "source", "roofline, GB/s", "6.88 MB a launch, GB/s", "2 SMs alone, GB/s"], rows, left=2)


def llama_cpp(sources: Sources, chapter: str) -> str:
    reported = sources.reported
    rows = [[reported["machine"], reported["model"], entry["as"], reported["test"], reported["status"], entry["tok_per_s"]]
            for entry in reported["llama.cpp"]]
    found = [result for result in tables.all_results(sources.of(chapter)) if result.run["engine"] == "llama.cpp"]
    for result in found:
        options = result.run["options"]
        head = "stock file" if options["head"] == "stock" else f"{options['head']} head"
        rows.append([result.record["machine"]["name"], result.run["model"]["name"], f"{head}, `-fa {options['fa']}`",
                     result.test.name, source_of(result), tables.speed(result.speed)])
    if not found:
        rows.append(["any", "any", "", "", not_yet("./minfer bench --chapter all --peer llama.cpp --record"), ""])
    return tables.markdown(["machine", "model", "as", "test", "source", "tok/s"], rows, left=5)


def ladder_results(sources: Sources) -> list[Result]:
    """What the ladder shows: plain decoding of every chapter with the engine's defaults, and llama.cpp."""
    return [result for result in tables.all_results(sources.records)
            if result.test.name == LADDER_TEST and (result.run["engine"] == "llama.cpp" or not result.run["options"])
            and result.record["chapter"] != "01-reference"]


def ladder(sources: Sources, _: str) -> str:
    """Every chapter's decode speed: a column for each machine and model that was measured."""
    measured = ladder_results(sources)
    columns = sorted({(r.record["machine"]["name"], r.run["model"]["name"]) for r in measured})
    cells: dict[str, dict[tuple, str]] = {}
    for result in measured:
        title = (tables.engine_title(result.run) if result.run["engine"] == "llama.cpp"
                 else f"[{result.record['chapter']}](chapters/{result.record['chapter']}/README.md)")
        key = (result.record["machine"]["name"], result.run["model"]["name"])
        share = f" ({tables.percent(result.share)})" if result.share else ""
        cells.setdefault(title, {})[key] = tables.speed(result.speed) + share
    if not cells:
        reported = sources.reported
        return tables.markdown(["machine", "model", "tok/s"],
                               [[reported["machine"], reported["model"], not_yet("./minfer bench --reproduce")]], left=3)
    header = [f"{LADDER_TEST}, tok/s (of the roofline)", *(f"{machine}, {model}" for machine, model in columns)]
    titles = sorted(cells, key=lambda title: (not title.startswith("llama.cpp"), title))
    return tables.markdown(header, [[title, *(cells[title].get(column, "not yet measured") for column in columns)]
                                    for title in titles])


RENDERERS: dict[str, Callable[[Sources, str], str]] = {
    "results": chapter_results, "roofline": roofline, "llama.cpp": llama_cpp, "ladder": ladder}


def render(text: str, chapter: str, sources: Sources, where: str) -> str:
    """A README with its tables as the sources have them; what stands outside the markers stays."""
    def table(match: re.Match) -> str:
        if match[2] not in RENDERERS:
            raise Failure(f"{where}: found the table {match[2]!r}, expected one of {', '.join(RENDERERS)}")
        return match[1] + RENDERERS[match[2]](sources, chapter) + match[4]

    return TABLE.sub(table, text)


def readmes(root: Path = ROOT) -> list[tuple[Path, str]]:
    """Every README that may have tables, and its chapter ("" for the top one)."""
    return [(root / "README.md", ""),
            *((path, path.parent.name) for path in sorted((root / "chapters").glob("[0-9][0-9]-*/README.md")))]


def changes(root: Path = ROOT) -> list[tuple[Path, str]]:
    """The README files that are not as they should be, each with the text that it should have."""
    sources = Sources.load(root)
    found = []
    for path, chapter in readmes(root):
        old = path.read_text(encoding="utf-8")
        new = render(old, chapter, sources, str(path.relative_to(root)))
        if new != old:
            found.append((path, new))
    return found
