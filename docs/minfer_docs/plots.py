# SPDX-License-Identifier: MIT
"""Plots from the result records alone: SVG, the same bytes for the same records, one for a light page and
one for a dark one."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import matplotlib

matplotlib.use("Agg")
from matplotlib import font_manager, pyplot  # noqa: E402

from minfer_tools.measure import readme  # noqa: E402
from minfer_tools.measure.records import Result  # noqa: E402

from . import fonts  # noqa: E402


@dataclass(frozen=True)
class Theme:
    """The colours of one kind of page."""

    name: str
    text: str
    faint: str
    bar: str
    accent: str
    peer: str
    limit: str
    page: str


THEMES = (Theme("light", "#1c2026", "#dfe3e9", "#9db2cf", "#1553a0", "#a8434f", "#59636e", "#ffffff"),
          Theme("dark", "#d8dde4", "#363c45", "#51688a", "#8ab8ff", "#ff8f98", "#98a2ae", "#131416"))


@cache
def families() -> list[str]:
    """What text is set in: matplotlib's own font where the site's isn't there."""
    files = sorted(fonts.pictures().glob("inter*.ttf"))
    for file in files:
        font_manager.fontManager.addfont(file)
    return ["Inter"] if files else ["DejaVu Sans"]


def style(theme: Theme) -> dict:
    return {
        "svg.hashsalt": "minfer", "svg.fonttype": "path", "font.family": families(), "font.size": 10.5,
        "text.color": theme.text, "axes.labelcolor": theme.text, "axes.edgecolor": theme.faint,
        "xtick.color": theme.text, "ytick.color": theme.text, "axes.spines.top": False, "axes.spines.right": False,
        "grid.color": theme.faint,
        "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "legend.frameon": False,
    }


def draw(theme: Theme, size: tuple[float, float], paint: Callable) -> str:
    """An SVG that paint(figure, theme) has painted."""
    with matplotlib.rc_context(style(theme)):
        figure = pyplot.figure(figsize=size, layout="constrained")
        paint(figure, theme)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return text.getvalue()


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def both(paint: Callable[[bool], Callable], wide: tuple[float, float], narrow: tuple[float, float]) -> dict[str, str]:
    """A plot in every form that a page needs: for each theme, one for a wide page and one for a telephone."""
    return {f"{theme.name}{suffix}": draw(theme, size, paint(is_narrow)) for theme in THEMES
            for suffix, size, is_narrow in (("", wide, False), ("-narrow", narrow, True))}


def heading(figure, text: str, is_narrow: bool) -> None:
    figure.suptitle(textwrap.fill(text, 44 if is_narrow else 90), x=0.01, ha="left", fontsize=11, fontweight=650)


def rungs(axes, theme: Theme, names: list[str], speeds: list[float], colours: list[str], notes: list[str],
          hollow: bool = False) -> None:
    """A point a row on a logarithmic axis, where equal steps are equal ratios; what it is in numbers stands in a column."""
    rows = range(len(names))
    axes.set_xscale("log")
    axes.hlines(rows, axes.get_xlim()[0], speeds, colors=colours, linewidth=2.4, alpha=0.45)
    axes.scatter(speeds, rows, s=58, zorder=4, linewidths=1.6, edgecolors=colours, facecolors=theme.page if hollow else colours)
    axes.set_yticks(rows, names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for row, note in zip(rows, notes):
        axes.annotate(note, (1, row), (8, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
                      fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", which="major", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.xaxis.set_minor_formatter(lambda *_: "")


def level(axes, at: float, text: str, row: int, colour: str, dashes: str) -> None:
    """A line from top to bottom with its name above: each in a row of its own, so that near ones don't meet."""
    axes.axvline(at, color=colour, linestyle=dashes, linewidth=1.6, zorder=2)
    axes.annotate(text, (at, 1), (3, 4 + 13 * row), xycoords=("data", "axes fraction"), textcoords="offset points", ha="right",
                  fontsize=9.5, color=colour)


def ladder_painter(results: list[Result], title: str, highlight: str | None, is_narrow: bool) -> Callable:
    """Chapters' speeds below the roofline, which the last of them tells."""
    chapters = [r for r in results if r.run["engine"] != "llama.cpp"]
    peers = [r.speed for r in results if r.run["engine"] == "llama.cpp"]
    last = next((r for r in reversed(chapters) if r.share), None)
    roofline = last.speed / last.share if last else None

    def paint(figure, theme: Theme) -> None:
        axes = figure.add_subplot()
        names = [r.record["chapter"] for r in chapters]
        speeds = [r.speed for r in chapters]
        axes.set_xlim(min(speeds) / 2, max([*speeds, *peers, roofline or 0]) * 1.2)
        rungs(axes, theme, names, speeds, [theme.accent if highlight in (None, name) else theme.bar for name in names],
              [f"{number(r.speed)}" + (f"  ({100 * r.share:.1f} %)" if r.share else "") for r in chapters])
        if peers:
            level(axes, max(peers), f"llama.cpp at its best {number(max(peers))}", 0, theme.peer, "--")
        if roofline:
            level(axes, roofline, f"roofline {number(roofline)}", 1, theme.limit, ":")
        axes.set_xlabel("tokens per second" + (", and the share of the roofline" if roofline and not is_narrow else ""))
        heading(figure, title, is_narrow)

    return paint


def ladder(results: list[Result], title: str, highlight: str | None) -> dict[str, str]:
    height = 0.32 * sum(r.run["engine"] != "llama.cpp" for r in results) + 1.5
    return both(lambda is_narrow: ladder_painter(results, title, highlight, is_narrow), (7.6, height), (4.6, height + 0.1))


def ladder_text(results: list[Result]) -> str:
    """What the picture says, for those who don't see it."""
    return "; ".join(f"{r.record['chapter'] if r.run['engine'] != 'llama.cpp' else readme.tables.engine_title(r.run)}: "
                     f"{number(r.speed)} tokens per second" for r in results)


def lines_painter(series: list[tuple[str, list[float], list[float]]], x_label: str, y_label: str, title: str,
                  limit: float | None, log_x: bool, mark: tuple[float, float, str] | None, is_narrow: bool) -> Callable:
    def paint(figure, theme: Theme) -> None:
        axes = figure.add_subplot()
        colours = [theme.accent, theme.peer, theme.limit, theme.bar, theme.text]
        for (label, xs, ys), colour in zip(series, colours * 3):
            axes.plot(xs, ys, marker="o", markersize=4, linewidth=1.6, color=colour, label=label if len(series) > 1 else None)
        if log_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if limit:
            axes.axhline(limit, color=theme.limit, linestyle=":", linewidth=1.8)
            axes.annotate(f"roofline {number(limit)} GB/s", (0, limit), (4, 4), xycoords=("axes fraction", "data"),
                          textcoords="offset points", color=theme.limit, fontsize=9.5)
        if mark:
            axes.annotate(mark[2], mark[:2], (14, -4), textcoords="offset points", color=theme.peer, va="top",
                          arrowprops={"arrowstyle": "-", "color": theme.peer})
        axes.set_ylim(0, 1.12 * max([limit or 0, *(y for _, _, ys in series for y in ys)]))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(linewidth=0.6)
        axes.set_axisbelow(True)
        heading(figure, title, is_narrow)
        if len(series) > 1:
            figure.legend(loc="outside lower center", ncols=2 if is_narrow else 4, fontsize=9.5)

    return paint


def lines(*arguments) -> dict[str, str]:
    return both(lambda is_narrow: lines_painter(*arguments, is_narrow), (7.6, 3.7), (4.6, 3.5))


def reported(speeds: list[tuple[str, float]], peers: list[tuple[str, float]], title: str) -> dict[str, str]:
    """The reported ladder: hollow points, so that nobody takes them for measurements."""
    def painter(is_narrow: bool) -> Callable:
        def paint(figure, theme: Theme) -> None:
            axes = figure.add_subplot()
            axes.set_xlim(1.5, 160)
            rungs(axes, theme, [name for name, _ in speeds], [speed for _, speed in speeds], [theme.accent] * len(speeds),
                  [f"{speed:g}" for _, speed in speeds], hollow=True)
            best = max(speed for _, speed in peers)
            level(axes, best, f"llama.cpp at its best {best:g}", 0, theme.peer, "--")
            axes.set_xlabel("tokens per second, reported")
            heading(figure, title, is_narrow)
        return paint

    height = 0.3 * len(speeds) + 1.4
    return both(painter, (7.6, height), (4.6, height + 0.2))
