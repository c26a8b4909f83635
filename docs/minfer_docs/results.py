# SPDX-License-Identifier: MIT
"""{results} and {ladder}: what was measured, as tables and plots made from the records when the site is
built. A machine that nobody measured says so, with the command that would. {drawing}: what nobody has to measure."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from minfer_tools.measure import readme, tables
from minfer_tools.measure.records import Result

from . import drawings, plots
from .places import ROOT


def sources() -> readme.Sources:
    return readme.Sources.load(ROOT)


class FromRecords(SphinxDirective):
    """A directive whose page is made anew when a record changes."""

    def note_records(self) -> None:
        for path in [*ROOT.glob("chapters/*/results/*.json"), ROOT / "tools" / "reported.json"]:
            self.env.note_dependency(str(path))

    def parse(self, text: str) -> list[nodes.Node]:
        return self.parse_text_to_nodes(text)

    def picture(self, name: str, forms: dict[str, str], text: str, caption: str, classes: tuple = ()) -> list[nodes.Node]:
        """A figure with a picture for a light page and one for a dark one, and where there are, for narrow pages others;
        books get the light one."""
        folder = Path(self.config.minfer_out) / "source" / "_plots"
        folder.mkdir(parents=True, exist_ok=True)
        figure = nodes.figure("", classes=["plot", *classes])
        for form, svg in forms.items():
            path = folder / f"{name}-{form}.svg"
            if not path.exists() or path.read_text(encoding="utf-8") != svg:
                path.write_text(svg, encoding="utf-8")
            theme, _, narrow = form.partition("-")
            if form == "light" or self.env.app.builder.name != "epub":
                width = [narrow or "wide"] if f"{theme}-narrow" in forms else []
                figure += nodes.image("", uri=f"/_plots/{path.name}", alt=text, classes=[f"only-{theme}", *width])
        figure += nodes.caption("", caption)
        return [figure]


class Results(FromRecords):
    """{results} NAME: a table of a chapter's README, in the site's form."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"chapter": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        self.note_records()
        chapter, name = self.options.get("chapter", ""), self.arguments[0]
        made = {"results": chapter_table, "llama.cpp": llama_table}.get(name) or readme.renderer(name)
        box = nodes.container("", classes=["results-table"])
        box += self.parse(re.sub(r"\]\(chapters/([^/]+)/README\.md\)", r"](/chapters/\1.md)", made(sources(), chapter)))
        return [box]


def chapter_table(data: readme.Sources, chapter: str) -> str:
    """Measured rows first; what the specification reports stands apart, below."""
    measured = tables.all_results(data.of(chapter))
    rows = []
    for r, is_timed in readme.with_prompts(measured):
        test = r.test.name if is_timed else readme.PROMPT_TEST
        figures = ([readme.spread(r), tables.number(r.gb_per_s), tables.percent(r.share), readme.agreement(r)] if is_timed
                   else [""] * 4)
        rows.append([r.record["machine"]["name"], engine(r), test, tables.speed(r.speed) if is_timed else "not yet measured",
                     readme.best_of_peer(data, r, test), *figures])
    header = ["machine", "model", "test", "tok/s", "llama.cpp, its best", "slowest to fastest", "GB/s", "of the roofline",
              "tokens as llama.cpp's"]
    parts = [tables.markdown(header, rows, left=3)] if rows else [
        f"**Not yet measured.** `./minfer bench --chapter {'oracle' if chapter.startswith('01-') else chapter[:2]} --record` "
        "measures it and writes the record that this table is made from.\n"]
    if measured:
        parts.append(origins(measured))
    if len(rows) > len(measured):
        parts.append(f"`{readme.prompt_command(chapter)}` measures what is not.\n")
    reported = data.reported
    if chapter in reported["chapters"]:
        parts.append(f"Reported for comparison, not measured by this project: **{reported['chapters'][chapter]} tok/s** on a "
                     f"{reported['machine']}, {reported['model']}, {reported['test']}.\n")
    return "\n".join(parts)


def engine(result: Result) -> str:
    options = " ".join(f"`{key}={value}`" for key, value in result.run["options"].items())
    return f"{result.run['model']['name']} {options}".strip()


def origins(measured: list[Result]) -> str:
    """Which commit was measured when: once for all rows that share it."""
    found = list(dict.fromkeys((r.record["machine"]["name"], readme.source_of(r)) for r in measured))
    return "\n".join(f"Measured on {machine}: {source}." for machine, source in found) + "\n"


def llama_table(data: readme.Sources, chapter: str) -> str:
    """llama.cpp: a row for each model and test, a column for each way to run it."""
    measured = [r for r in tables.all_results(data.of(chapter)) if r.run["engine"] == "llama.cpp"]
    ways = sorted({way_of(r) for r in measured}, key=lambda way: (way[0] != "stock", way))
    cells: dict[tuple, dict] = {}
    for r in measured:
        key = (r.record["machine"]["name"], r.run["model"]["name"], r.test.name)
        cells.setdefault(key, {})[way_of(r)] = tables.speed(r.speed)
    files = {"stock": "stock file"}
    header = ["machine", "model", "test", *(f"{files.get(head, head + ' head')}, `-fa {fa}`" for head, fa in ways)]
    parts = []
    if cells:
        parts += [tables.markdown(header, [[*key, *(row.get(way, "") for way in ways)] for key, row in cells.items()], left=3),
                  origins(measured)]
    else:
        parts.append("**Not yet measured.** `./minfer bench --chapter all --peer llama.cpp --record` does it.\n")
    reported = data.reported
    listed = "; ".join(f"{entry['tok_per_s']} tok/s, {entry['as']}" for entry in reported["llama.cpp"])
    parts.append(f"Reported for a {reported['machine']}, {reported['model']}, not measured by this project: {listed}.\n")
    return "\n".join(parts)


def way_of(result: Result) -> tuple[str, str]:
    """How llama.cpp ran: which head, and with flash attention or without."""
    return result.run["options"]["head"], result.run["options"]["fa"]


class Step(FromRecords):
    """{measured-step} 02-naive 03-warp-gemv: a sentence on what was measured before and after."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        self.note_records()
        return self.parse(readme.step(sources(), " ".join(self.arguments)))


class Ladder(FromRecords):
    """{ladder}: every chapter's decode speed, or with :test: pp512 its prompts', a plot for each machine and model;
    with :chapter:, one plot with that chapter marked."""

    option_spec = {"chapter": directives.unchanged, "model": directives.unchanged,
                   "test": lambda text: directives.choice(text, readme.LADDER_TESTS)}

    def run(self) -> list[nodes.Node]:
        self.note_records()
        chapter, test = self.options.get("chapter"), self.options.get("test", readme.LADDER_TEST)
        found = {key: results for key, results in ladders(sources(), test).items()
                 if key[1].startswith(self.options.get("model", ""))}
        if chapter:
            found = {key: results for key, results in found.items()
                     if any(r.record["chapter"] == chapter and r.run["engine"] != "llama.cpp" for r in results)}
            found = dict(sorted(found.items(), key=lambda item: not item[0][1].startswith("1.5b"))[:1])
        drawn = []
        for (machine, model), results in found.items():
            title = f"{results[0].record['machine']['name']}, {model}, {test}"
            what = "Decoding speed" if test == readme.LADDER_TEST else "Speed of a prompt of 512 tokens"
            caption = f"{what} of every chapter" + (", this one marked." if chapter else ".")
            if not drawn:
                caption += " Drawn from the records in chapters/*/results when the site was built."
            drawn += self.picture(f"{readme.picture(machine, test)}-{model}{'-' + chapter if chapter else ''}",
                                  plots.ladder(results, title, chapter), plots.ladder_text(results), caption)
        if not drawn and not chapter:
            drawn = self.parse("**Not yet measured** on any machine: `./minfer bench --reproduce` does it.")
        return drawn


def ladders(data: readme.Sources, test: str = readme.LADDER_TEST) -> dict[tuple[str, str], list[Result]]:
    found: dict[tuple[str, str], list[Result]] = {}
    for result in readme.ladder_results(data, test):
        found.setdefault((result.record["machine"]["id"], result.run["model"]["name"]), []).append(result)
    return {key: results for key, results in sorted(found.items())
            if any(r.run["engine"] != "llama.cpp" for r in results)}


class Roofline(FromRecords):
    """{roofline}: the plots of chapter 00 for every machine that has a record."""

    def run(self) -> list[nodes.Node]:
        self.note_records()
        drawn = []
        for record in sources().records:
            if "roofline" in record:
                drawn += self._machine(record)
        return drawn or self.parse("**Not yet measured** on any machine: `./minfer bench --chapter all --record` does it.")

    def _machine(self, record: dict) -> list[nodes.Node]:
        name, identity, measured = record["machine"]["name"], record["machine"]["id"], record["roofline"]
        limit = measured["roofline"]["gb_per_s_median"]
        launches = [(row["bytes_per_launch"] / 1e6, row["gb_per_s_median"]) for row in measured["by_launch"]]
        trap = next(((row["bytes_per_launch"] / 1e6, row["gb_per_s_median"]) for row in measured["by_launch"]
                     if row["bytes_per_launch"] == readme.MISLEADING_BYTES), None)
        flight = sorted({row["loads_in_flight"] for row in measured["one_launch"]})
        sweep = [(f"{n} in flight", *zip(*[(row["ctas_per_sm"], row["gb_per_s_median"]) for row in measured["one_launch"]
                                           if row["loads_in_flight"] == n])) for n in flight]
        by_sms = [(row["sms"], row["gb_per_s_median"]) for row in measured["by_sms"]]
        return [
            *self._lines(f"roofline-launch-{identity}", [("", *zip(*launches))], "MB a launch",
                         f"{name}: the same bytes in smaller launches", limit,
                         "A short launch measures itself: the bandwidth seems to fall with the size of a launch. "
                         "The memory is the same at every point of this curve.",
                         (*trap, "6.88 MB: the trap") if trap else None),
            *self._lines(f"roofline-sweep-{identity}", sweep, "CTAs of 256 threads an SM", f"{name}: one launch",
                         limit, "Memory gives its bandwidth only to those who ask for enough at once: loads in flight, "
                         "times threads."),
            *self._lines(f"roofline-sms-{identity}", [("", *zip(*by_sms))], "SMs that read", f"{name}: part of the GPU",
                         limit, "One CTA on each of so many SMs."),
        ]

    def _lines(self, name, series, x_label, title, limit, caption, mark=None) -> list[nodes.Node]:
        points = (f"{label} {x:g}: {y:.0f} GB/s".strip() for label, xs, ys in series for x, y in zip(xs, ys))
        text = f"{title}. {'; '.join(points)}"
        return self.picture(name, plots.lines(series, x_label, "GB/s", title, limit, True, mark), text, caption)


class Reported(FromRecords):
    """{reported}: the specification's own ladder, which nobody of this project has measured."""

    def run(self) -> list[nodes.Node]:
        self.note_records()
        reported = sources().reported
        speeds = [(name, float(value)) for name, text in reported["chapters"].items()
                  if (value := re.match(r"~?([\d.]+)", text)[1])]
        peers = [(entry["as"].replace("`", ""), float(entry["tok_per_s"])) for entry in reported["llama.cpp"]]
        title = f"{reported['machine']}, {reported['model']}, {reported['test']}: reported, not measured here"
        text = "; ".join(f"{name}: {speed:g} tokens per second" for name, speed in [*speeds, *peers])
        return self.picture("ladder-reported", plots.reported(speeds, peers, title), text,
                            "The figures of the specification that this project follows. None was measured by this project, "
                            "and none stands in another machine's plot.")


class Draw(FromRecords):
    """{drawing} NAME: one of the drawings."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        drawing = drawings.DRAWINGS.get(self.arguments[0])
        if drawing is None:
            raise self.error(f"found the drawing {self.arguments[0]!r}, expected one of {', '.join(drawings.DRAWINGS)}")
        return self.picture(f"drawing-{self.arguments[0]}", {theme.name: drawing.make(theme) for theme in plots.THEMES},
                            drawing.text, drawing.caption, ("drawing",))
