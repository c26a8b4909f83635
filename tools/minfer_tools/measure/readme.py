# SPDX-License-Identifier: MIT
"""The tables of the README files, from the records and the specification's reported figures, and their code, from the sources,
and nothing else: the same inputs give the same bytes."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .. import listings
from ..chapter_tree import Chapter, find_chapters
from ..errors import Failure
from . import records, tables
from .breakdown import IDLE, STEP, Breakdown, Kernel
from .records import ROOT, Result

REPORTED = ROOT / "tools" / "reported.json"
MISLEADING_BYTES = 6_881_280  # chapter 00's kMisleadingBytes
TABLE = re.compile(r"(<!-- table: ([^>\n]*?) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)
LADDER_TEST, PROMPT_TEST = "tg128", "pp512"
LADDER_TESTS = (LADDER_TEST, PROMPT_TEST)
FIGURES = "docs/figures"
KERNELS = "tests/chapters/records/*-kernels.json"


@dataclass(frozen=True)
class Sources:
    """What tables are made of."""

    records: list[dict]
    reported: dict
    kernels: list[dict] = field(default_factory=list)  # what tests/chapters/gpu_check.py timed by itself, by machine
    chapters: list[Chapter] = field(default_factory=list)

    @classmethod
    def load(cls, root: Path = ROOT) -> Sources:
        return cls(records.load_all(root / "chapters"),
                   json.loads((root / "tools" / "reported.json").read_text(encoding="utf-8")),
                   [json.loads(path.read_text(encoding="utf-8")) for path in sorted(root.glob(KERNELS))],
                   [chapter for chapter in find_chapters(root) if (chapter.path / "README.md").is_file()])

    def of(self, chapter: str) -> list[dict]:
        return [record for record in self.records if record["chapter"] == chapter]

    def link(self, name: str, form: str = "{}", folder: str = "chapters/") -> str:
        """To a chapter, with its number and title; the name of one that is not there."""
        title = next((f"{name[:2]} {chapter.title}" for chapter in self.chapters if chapter.name == name), None)
        return f"[{form.format(title)}]({folder}{name}/README.md)" if title else name


def by_size(model: str) -> tuple[float, str]:
    """Sorts models: coder-0.5b, 1.5b-synthetic, 3b."""
    size = re.search(r"(\d+(?:\.\d+)?)b", model)
    return float(size[1]) if size else 0.0, model


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


def prompt_command(chapter: str) -> str:
    return f"./minfer bench --chapter {chapter[:2]} -p 512 -n 0 --record"


def with_prompts(measured: list[Result]) -> list[tuple[Result, bool]]:
    """The results, each with whether it is one: a prompt that nobody timed stands behind its decoding, and is none."""
    timed = {(id(r.record), *records.identity(r.run)) for r in measured if r.test.name == PROMPT_TEST}
    found = []
    for result in measured:
        found.append((result, True))
        if result.test.name == LADDER_TEST and (id(result.record), *records.identity(result.run)) not in timed:
            found.append((result, False))
    return found


def best_of_peer(sources: Sources, result: Result, test: str) -> str:
    """llama.cpp's best at a test on a result's machine and model; nothing where it was not measured."""
    speeds = [other.speed for other in tables.all_results(sources.of("00-roofline"))
              if other.run["engine"] == "llama.cpp" and other.run["model"]["name"] == result.run["model"]["name"]
              and other.record["machine"]["id"] == result.record["machine"]["id"] and other.test.name == test]
    return tables.speed(max(speeds)) if speeds else ""


def chapter_results(sources: Sources, chapter: str) -> str:
    """A chapter's own table: the reported figure first, then all that was measured."""
    header = ["machine", "model", "engine", "test", "source", "tok/s", "llama.cpp, its best", "slowest to fastest", "GB/s",
              "of the roofline", "tokens as llama.cpp's"]
    reported = sources.reported
    rows = []
    if chapter in reported["chapters"]:
        rows.append([reported["machine"], reported["model"], "", reported["test"], reported["status"],
                     reported["chapters"][chapter], "", "", "", "", ""])
    measured = sorted(tables.all_results(sources.of(chapter)),
                      key=lambda result: (result.record["machine"]["name"], by_size(result.run["model"]["name"])))
    for result, is_timed in with_prompts(measured):
        test = result.test.name if is_timed else PROMPT_TEST
        row = [result.record["machine"]["name"], result.run["model"]["name"], tables.engine_title(result.run), test]
        rows.append([*row, source_of(result), tables.speed(result.speed), best_of_peer(sources, result, test), spread(result),
                     tables.number(result.gb_per_s), tables.percent(result.share), agreement(result)] if is_timed else
                    [*row, not_yet(prompt_command(chapter)), "", best_of_peer(sources, result, test), "", "", "", ""])
    if not measured:
        number = "oracle" if chapter.startswith("01-") else chapter[:2]
        rows.append(["any", "any", "", "", not_yet(f"./minfer bench --chapter {number} --record"), *[""] * 6])
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
    for result in sorted(found, key=lambda result: (result.record["machine"]["name"], by_size(result.run["model"]["name"]))):
        rows.append([result.record["machine"]["name"], result.run["model"]["name"], tables.llama_way(result.run["options"]),
                     result.test.name, source_of(result), tables.speed(result.speed)])
    if not found:
        rows.append(["any", "any", "", "", not_yet("./minfer bench --chapter all --peer llama.cpp --record"), ""])
    return tables.markdown(["machine", "model", "as", "test", "source", "tok/s"], rows, left=5)


def ladder_results(sources: Sources, test: str = LADDER_TEST) -> list[Result]:
    """What the ladder shows: a test on a GPU, of every chapter with the engine's defaults and of llama.cpp."""
    return [result for result in tables.all_results(sources.records)
            if result.test.name == test and (result.run["engine"] == "llama.cpp" or not result.run["options"])
            and result.record["machine"]["bandwidth_of"] != "cpu"]


def rungs(test: str) -> Callable[[Sources, str], str]:
    """The renderer of a table of every chapter's speed in a test, with a column for each machine and model."""
    def table(sources: Sources, _: str) -> str:
        best: dict[str, dict[tuple, Result]] = {}
        for result in ladder_results(sources, test):
            name = "" if result.run["engine"] == "llama.cpp" else result.record["chapter"]
            row, key = best.setdefault(name, {}), (result.record["machine"]["name"], result.run["model"]["name"])
            row[key] = max(result, row.get(key, result), key=lambda found: found.speed)
        if not best:
            reported = sources.reported
            return tables.markdown(["machine", "model", "tok/s"],
                                   [[reported["machine"], reported["model"], not_yet("./minfer bench --reproduce")]], left=3)
        columns = sorted({(result.record["machine"]["name"], result.run["model"]["name"])
                          for each in LADDER_TESTS for result in ladder_results(sources, each)},
                         key=lambda column: (column[0], by_size(column[1])))

        def cell(result: Result | None) -> str:
            share = f" ({tables.percent(result.share)})" if result and result.share else ""
            return tables.speed(result.speed) + share if result else "not yet measured"

        titles = {name: sources.link(name) if name else "llama.cpp, its best" for name in best}
        return tables.markdown([f"{test}, tokens a second", *(f"{machine}, {model}" for machine, model in columns)],
                               [[titles[name], *(cell(best[name].get(column)) for column in columns)]
                                for name in sorted(best, key=lambda name: (not name, name))])
    return table


def step(sources: Sources, chapters: str) -> str:
    """A sentence on what was measured before a chapter and after it: of the 1.5B where that was run on both."""
    speeds: dict[tuple, dict[str, float]] = {}
    for result in ladder_results(sources):
        if result.run["engine"] != "llama.cpp":
            key = (result.record["machine"]["name"], result.run["model"]["name"])
            speeds.setdefault(key, {})[result.record["chapter"]] = result.speed
    for (machine, model), found in sorted(speeds.items(), key=lambda item: not item[0][1].startswith("1.5b")):
        if all(chapter in found for chapter in chapters.split()):
            before, after = (tables.speed(found[chapter]) for chapter in chapters.split())
            return f"{machine}, {model}: **{before} tokens a second before, {after} after.**\n"
    return f"{not_yet('./minfer bench --reproduce').capitalize()}\n"


def reported_ladder(sources: Sources, _: str) -> str:
    """The specification's own figures, which nobody of this project has measured."""
    reported = sources.reported
    rows = [[sources.link(name), figure] for name, figure in reported["chapters"].items()]
    rows += [[f"llama.cpp, {entry['as']}", entry["tok_per_s"]] for entry in reported["llama.cpp"]]
    return tables.markdown([f"{reported['machine']}, {reported['model']}, {reported['test']}", "tok/s, reported"], rows)


def idea_of(readme: str) -> str:
    """The first sentence of a chapter's README."""
    paragraph = re.sub(r"<!--.*?-->\n?", "", readme, flags=re.DOTALL).partition("\n\n")[2].partition("\n\n")[0]
    sentence = re.split(r"(?<=[.?])\s", re.sub(r"^\*\*The idea\.\*\*\s*", "", " ".join(paragraph.split())))[0]
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", sentence)


def chapter_list(sources: Sources, _: str) -> str:
    """The chapters that there are, in the order in which they are read."""
    return "".join(f"- **{sources.link(chapter.name)}.** {idea_of((chapter.path / 'README.md').read_text(encoding='utf-8'))}\n"
                   for chapter in sources.chapters)


def turn(sources: Sources, name: str) -> str:
    """The foot of a chapter: to the one before, to all, and to the next."""
    at = [chapter.name for chapter in sources.chapters].index(name)
    before, after = sources.chapters[max(at - 1, 0):at], sources.chapters[at + 1:at + 2]
    links = [*(sources.link(c.name, "Before: {}", "../") for c in before), "[All chapters](../../README.md#the-chapters)",
             *(sources.link(c.name, "Next: {}", "../") for c in after)]
    return f"{' · '.join(links)}\n"


def breakdown(sources: Sources, chapter: str) -> str:
    """A decode step by kernel, what is idle, and the whole: a column for each machine and model."""
    found = {(result.record["machine"]["name"], result.run["model"]["name"]): Breakdown.of(result)
             for result in tables.all_results(sources.of(chapter))
             if result.test.name == LADDER_TEST and result.test.breakdown and not result.run["options"]}
    if not found:
        command = f"./minfer bench --chapter {chapter[:2]} -p 0 --breakdown --record"
        return tables.markdown(["machine", "a step by kernel"], [["any GPU", not_yet(command)]], left=2)
    columns = sorted(found, key=lambda column: (column[0], by_size(column[1])))
    steps = [found[column] for column in columns]

    def cells(title: str, us_of: Callable[[Breakdown], float | None]) -> list[str]:
        values = [(step, us_of(step)) for step in steps]
        return [title, *("" if us is None else f"{us:.1f} ({tables.percent(step.share(us))})" for step, us in values)]

    def of_kernel(name: str) -> Callable[[Breakdown], float | None]:
        return lambda step: next((kernel.us for kernel in step.kernels if kernel.name == name), None)

    rows = [cells(f"`{name}`, {_launches(steps, name)}", of_kernel(name))
            for name in _in_order([[kernel.name for kernel in step.kernels] for step in steps])]
    rows += [cells(IDLE, lambda step: step.idle_us), cells(STEP, lambda step: step.step_us),
             cells("with an event behind each kernel", lambda step: step.events_us),
             ["an empty kernel between its events", *(f"{step.empty_us:.2f}" for step in steps)]]
    header = [f"{LADDER_TEST}: us of a step (of all)", *(f"{machine}, {model}" for machine, model in columns)]
    return tables.markdown(header, rows)


#: Chapter 16's matrices, with what is fused to them.
_FUSED = ("qkv", "gate_up", "add_gemv")
#: What a bar is made of: a letter, what it stands for, and which kernels that is.
_PARTS: list[tuple[str, str, Callable[[Kernel], bool]]] = [
    ("M", "the layers' matrices", lambda kernel: kernel.name.startswith(("gemv", *_FUSED)) and kernel.launches > 1),
    ("H", "the head", lambda kernel: kernel.name.startswith("gemv")),
    ("A", "attention", lambda kernel: kernel.name.startswith("attention")),
    ("s", "small kernels", lambda kernel: True)]
_BETWEEN = (".", "between kernels")
_BAR = 64  # characters of the longest, at most
_SCALES = (1, 2, 5, 10, 20, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500, 1000)


def bars(words: str) -> Callable[[Sources, str], str]:
    """The renderer of where a step's time goes, a bar a chapter: `bar 02-naive 03-warp-gemv`, of the 0.5B or a model named."""
    chapters = [word for word in words.split() if re.match(r"\d\d-", word)]
    model = next((word for word in words.split() if word not in chapters), "coder-0.5b")

    def table(sources: Sources, _: str) -> str:
        found = {chapter: Breakdown.of(result) for chapter in chapters for result in tables.all_results(sources.of(chapter))
                 if result.test.name == LADDER_TEST and result.test.breakdown and not result.run["options"]
                 and result.run["model"]["name"] == model}
        if len(found) < len(chapters):
            return f"{not_yet('./minfer bench --reproduce').capitalize()}\n"
        longest = max(step.step_us for step in found.values())
        scale = next(us for us in _SCALES if longest <= us * _BAR)
        lines = [f"a step of the {by_size(model)[0]:g}B, {scale} us a letter"]
        for chapter, step in found.items():
            parts = dict.fromkeys([letter for letter, *_ in _PARTS], 0.0)
            for kernel in step.kernels:
                parts[next(letter for letter, _, is_it in _PARTS if is_it(kernel))] += kernel.us
            parts[_BETWEEN[0]] = max(0.0, step.idle_us)
            bar, us = "", 0.0
            for letter, taken in parts.items():
                us += taken
                bar += letter * (round(us / scale) - len(bar))
            lines.append(f"chapter {chapter[:2]}  {bar:<{round(longest / scale)}}  {round(step.step_us):,} us")
        legend = "   ".join(f"{letter} {what}" for letter, what, *_ in [*_PARTS, _BETWEEN])
        return "\n".join(["```text", *lines, legend, "```", ""])

    return table


def _in_order(lists: list[list[str]]) -> list[str]:
    """All kernels, in the order of a step. One that only some models have follows what it follows there."""
    names: list[str] = []
    for kernels_of_one in lists:
        for i, name in enumerate(kernels_of_one):
            if name not in names:
                names.insert(names.index(kernels_of_one[i - 1]) + 1 if i else 0, name)
    return names


def _launches(steps: list[Breakdown], name: str) -> str:
    """"once", "49 times", or "49 to 73 times" where the models differ."""
    counts = {kernel.launches for step in steps for kernel in step.kernels if kernel.name == name}
    low, high = min(counts), max(counts)
    return f"{low} to {high} times" if low < high else "once" if low == 1 else f"{low} times"


def kernels(sources: Sources, chapter: str) -> str:
    """Each kernel by itself, its bytes as its launch states them: a column for each machine and the shapes of each model."""
    slug = chapter[3:]
    bandwidth = {record["machine"]["gpu"]: record["machine"]["bandwidth_gb_per_s"] for record in sources.of(chapter)}
    columns: dict[str, dict[str, str]] = {}
    for record in sources.kernels:
        gpu = record["machine"]["gpu"]
        for shape, chapters in record["kernels"].items():
            cells = columns.setdefault(f"{gpu}, {shape.upper()}", {})
            for entry in chapters.get(slug, []):
                us = statistics.median(entry["microseconds"])
                rate = entry["bytes"] / us / 1e3
                share = f", {tables.percent(rate / bandwidth[gpu])}" if bandwidth.get(gpu) else ""
                cells[entry["kernel"]] = f"{us:.1f}: {tables.number(rate)}{share}"
    columns = {title: cells for title, cells in columns.items() if cells}
    if not columns:
        return tables.markdown(["machine", "each kernel by itself"],
                               [["any GPU", not_yet("tests/chapters/gpu_check.py --parts bench")]], left=2)
    rows = []
    for name in _in_order([list(cells) for cells in columns.values()]):
        kernel, _, what = name.partition(" ")
        rows.append([f"`{kernel}` {what}".rstrip(), *(cells.get(name, "") for cells in columns.values())])
    return tables.markdown(["us: GB/s, of the roofline", *columns], rows)


def reference(sources: Sources, chapter: str) -> str:
    """The oracle beside llama.cpp on the same CPU: prompt, decoding and memory."""
    header = ["machine", "model", "engine", "source", "prompt, tok/s", "decode, tok/s", "GB/s", "of the roofline",
              "resident at most"]
    on_cpu = [result for record in sources.of(chapter) + sources.of("00-roofline")
              if record["machine"]["bandwidth_of"] == "cpu" for result in records.results(record) if not result.test.n_depth]
    rows: dict[tuple, dict[str, Result]] = {}
    for result in on_cpu:
        run = result.run
        key = (result.record["machine"]["name"], by_size(run["model"]["name"]), run["engine"] == "llama.cpp",
               tables.engine_title(run))
        rows.setdefault(key, {})["decode" if result.test.n_gen else "prompt"] = result
    if not rows:
        command = "./minfer bench --chapter oracle --model coder-0.5b --peer llama.cpp --heads stock,f32 --fa 0 --record"
        return tables.markdown(header, [["any CPU", "", "", not_yet(command), *[""] * 5]], left=4)

    def line(tests: dict[str, Result]) -> list[str]:
        result, decode = next(iter(tests.values())), tests.get("decode")
        run = result.run
        title = tables.engine_title(run) if run["engine"] == "llama.cpp" else run["description"]
        speeds = [f"{tables.speed(tests[kind].speed)} ({tests[kind].test.name})" if kind in tests else ""
                  for kind in ("prompt", "decode")]
        return [result.record["machine"]["name"], run["model"]["name"], title, source_of(result), *speeds,
                tables.number(decode.gb_per_s if decode else None), tables.percent(decode.share if decode else None),
                tables.resident(run)]

    return tables.markdown(header, [line(rows[key]) for key in sorted(rows)], left=4)


def ladder_machines(sources: Sources, test: str) -> dict[str, str]:
    """Names by id of the machines on which chapters were measured: each has a picture of the ladder."""
    return {result.record["machine"]["id"]: result.record["machine"]["name"] for result in ladder_results(sources, test)
            if result.run["engine"] != "llama.cpp"}


def picture(machine: str, test: str) -> str:
    """What the ladder's picture of a machine is called, without its ending."""
    return f"ladder-{machine}" + ("" if test == LADDER_TEST else f"-{test}")


def ladder_plot(test: str) -> Callable[[Sources, str], str]:
    """The renderer of a ladder's pictures, for a light page and a dark one: tools/render_tables.py --plot draws them."""
    limit = "the roofline, " if test == LADDER_TEST else ""
    return lambda sources, _: "".join(
        f'<picture>\n<source media="(prefers-color-scheme: dark)" srcset="{FIGURES}/{picture(machine, test)}-dark.svg">\n'
        f'<img alt="The ladder on an {name}: every chapter\'s {test}, {limit}and llama.cpp" '
        f'src="{FIGURES}/{picture(machine, test)}.svg">\n</picture>\n'
        for machine, name in sorted(ladder_machines(sources, test).items()))


RENDERERS: dict[str, Callable[[Sources, str], str]] = {
    "results": chapter_results, "roofline": roofline, "llama.cpp": llama_cpp, "ladder": rungs(LADDER_TEST),
    "prompts": rungs(PROMPT_TEST), "ladder plot": ladder_plot(LADDER_TEST), "prompt plot": ladder_plot(PROMPT_TEST),
    "breakdown": breakdown, "kernels": kernels, "reference": reference, "reported": reported_ladder, "chapters": chapter_list,
    "turn": turn}


#: Likewise, of tables whose name goes on: with chapters.
WITH_WORDS: dict[str, Callable[[str], Callable[[Sources, str], str]]] = {
    "step": lambda words: lambda sources, _: step(sources, words), "bar": bars}


def renderer(name: str) -> Callable[[Sources, str], str] | None:
    first, _, words = name.partition(" ")
    return WITH_WORDS[first](words) if first in WITH_WORDS else RENDERERS.get(name)


def render(text: str, chapter: str, sources: Sources, where: str) -> str:
    """A README with its tables as the sources have them; what stands outside the markers stays."""
    def table(match: re.Match) -> str:
        made = renderer(match[2])
        if made is None:
            raise Failure(f"{where}: found the table {match[2]!r}, expected one of {', '.join([*RENDERERS, *WITH_WORDS])}")
        return match[1] + made(sources, chapter) + match[4]

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
        new = listings.render(render(old, chapter, sources, str(path.relative_to(root))), path.parent, root)
        if new != old:
            found.append((path, new))
    return found
