# SPDX-License-Identifier: MIT
"""The ladder as a picture: every chapter's speed, in decoding with the roofline, and llama.cpp's best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failure
from . import readme, tables
from .records import Result


@dataclass(frozen=True)
class Theme:
    """The colours for one kind of page. Its pictures have no background of their own."""

    suffix: str
    text: str
    faint: str
    chapter: str
    peer: str


LIGHT = Theme("", "#1c2026", "#c9d0d9", "#1553a0", "#a8434f")
DARK = Theme("-dark", "#d8dde4", "#4a525e", "#8ab8ff", "#ff8f98")


def ladders(sources: readme.Sources, test: str) -> dict[str, dict[str, list[Result]]]:
    """The results of each machine by model, the small ones first; where only llama.cpp ran is no ladder."""
    found: dict[str, dict[str, list[Result]]] = {}
    for result in readme.ladder_results(sources, test):
        found.setdefault(result.record["machine"]["id"], {}).setdefault(result.run["model"]["name"], []).append(result)
    by_machine = {machine: {model: results for model, results in sorted(models.items(), key=lambda m: readme.by_size(m[0]))
                            if any(result.run["engine"] != "llama.cpp" for result in results)}
                  for machine, models in found.items()}
    return {machine: models for machine, models in by_machine.items() if models}


def _library() -> tuple:
    """matplotlib, set up so that the same results give the same bytes."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise Failure("the plot needs matplotlib (tests/requirements.txt)") from None
    return matplotlib, pyplot


def library_version() -> str:
    """What the pictures say that they were made with: another version may draw other bytes."""
    return f"matplotlib {_library()[0].__version__}"


def _style(theme: Theme) -> dict:
    return {
        "svg.hashsalt": "minfer", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 9,
        "text.color": theme.text, "axes.labelcolor": theme.text, "axes.edgecolor": theme.faint, "xtick.color": theme.text,
        "ytick.color": theme.text, "grid.color": theme.faint, "axes.spines.top": False, "axes.spines.right": False,
        "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "legend.frameon": False,
    }


def _panel(axes, model: str, results: list[Result], names: list[str], theme: Theme) -> None:
    """One model's ladder, on a logarithmic scale: the roofline is some ten times away."""
    chapters = {result.record["chapter"]: result for result in results if result.run["engine"] != "llama.cpp"}
    rows = [row for row, name in enumerate(names) if name in chapters]
    shown = [chapters[names[row]] for row in rows]
    limits = [(row, result.speed / result.share) for row, result in zip(rows, shown) if result.share]
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda speed, _: f"{speed:g}")
    axes.scatter([result.speed for result in shown], rows, color=theme.chapter, zorder=3, label="this project")
    for row, result in zip(rows, shown):
        axes.annotate(tables.speed(result.speed), (result.speed, row), (-7, 0), textcoords="offset points",
                      ha="right", va="center")
    if limits:
        axes.scatter([speed for _, speed in limits], [row for row, _ in limits], marker="|", s=160, color=theme.text,
                     label="roofline: bandwidth over bytes a token")
    peers = [result.speed for result in results if result.run["engine"] == "llama.cpp"]
    if peers:
        axes.axvline(max(peers), color=theme.peer, linestyle="--", label="llama.cpp, its best")
        axes.annotate(tables.speed(max(peers)), (max(peers), 1), (3, -2), xycoords=("data", "axes fraction"),
                      textcoords="offset points", va="top", color=theme.peer)
    speeds = [result.speed for result in shown] + [speed for _, speed in limits] + peers
    axes.set_xlim(min(speeds) / 3, max(speeds) * 1.8)
    axes.set_ylim(len(names) - 0.5, -0.9)
    axes.set_title(model, fontsize=10)
    axes.grid(axis="x", linewidth=0.5)
    axes.minorticks_off()


def draw(title: str, models: dict[str, list[Result]], theme: Theme, path: Path) -> Path:
    """Writes a picture in the form that the path's ending names."""
    matplotlib, pyplot = _library()
    names = sorted({result.record["chapter"] for results in models.values() for result in results
                    if result.run["engine"] != "llama.cpp"})
    with matplotlib.rc_context(_style(theme)):
        figure, all_axes = pyplot.subplots(1, len(models), sharey=True, squeeze=False, layout="constrained",
                                           figsize=(2.2 + 2.7 * len(models), 0.42 * len(names) + 1.5))
        for axes, (model, results) in zip(all_axes[0], models.items()):
            _panel(axes, model, results, names, theme)
        all_axes[0][0].set_yticks(range(len(names)), names)
        figure.suptitle(title, fontsize=11)
        handles, labels = all_axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        path.parent.mkdir(parents=True, exist_ok=True)
        creator = library_version()
        if path.suffix == ".svg":
            figure.savefig(path, metadata={"Date": None, "Creator": creator})
        else:
            figure.savefig(path, dpi=110, facecolor="white", metadata={"Software": creator})
        pyplot.close(figure)
    return path


def draw_all(sources: readme.Sources, folder: Path) -> Iterator[Path]:
    """For each test and machine that has a ladder: SVG for light and for dark pages, and PNG."""
    for test in readme.LADDER_TESTS:
        for machine, models in sorted(ladders(sources, test).items()):
            title = f"{next(iter(models.values()))[0].record['machine']['name']}: {test}, tokens a second"
            for theme, ending in ((LIGHT, ".svg"), (DARK, ".svg"), (LIGHT, ".png")):
                yield draw(title, models, theme, folder / f"{readme.picture(machine, test)}{theme.suffix}{ending}")
