# SPDX-License-Identifier: MIT
"""Plots from the result records alone: SVG, the same bytes for the same records, one for a light page and
one for a dark one."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.patheffects import withStroke  # noqa: E402

from minfer_tools.measure import readme  # noqa: E402
from minfer_tools.measure.records import Result  # noqa: E402


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


THEMES = (Theme("light", "#1f2328", "#c9ced6", "#8fa6c4", "#1857a8", "#a8434f", "#59636e", "#ffffff"),
          Theme("dark", "#d6dbe2", "#444c57", "#51688a", "#79b0ff", "#ff8f98", "#98a2ae", "#131416"))


def style(theme: Theme) -> dict:
    return {
        "svg.hashsalt": "minfer", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 10.5,
        "text.color": theme.text, "axes.labelcolor": theme.text, "axes.edgecolor": theme.faint,
        "xtick.color": theme.text, "ytick.color": theme.text, "axes.spines.top": False, "axes.spines.right": False,
        "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "grid.color": theme.faint,
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


def ladder_painter(results: list[Result], title: str, highlight: str | None) -> Callable:
    """Bars of chapters' speeds on a logarithmic axis that ends at the roofline: a step up is a ratio."""
    chapters = [r for r in results if r.run["engine"] != "llama.cpp"]
    peers = [r.speed for r in results if r.run["engine"] == "llama.cpp"]
    last = next((r for r in reversed(chapters) if r.share), None)
    roofline = last.speed / last.share if last else None

    def paint(figure, theme: Theme) -> None:
        axes = figure.add_subplot()
        names = [r.record["chapter"] for r in chapters]
        colours = [theme.accent if highlight in (None, name) else theme.bar for name in names]
        speeds = [r.speed for r in chapters]
        low = 10 ** int(len(str(int(min(speeds)))) - 1) / 2
        axes.set_xscale("log")
        axes.barh(names, speeds, color=colours, height=0.62)
        axes.set_xlim(min(low, min(speeds) / 2), max([*speeds, *peers, roofline or 0]) * 1.35)
        for index, result in enumerate(chapters):
            share = f"  {100 * result.share:.1f} %" if result.share else ""
            axes.annotate(f"{number(result.speed)}{share}", (result.speed, index), (5, 0), textcoords="offset points",
                          va="center", fontsize=9.5, zorder=5, path_effects=[withStroke(linewidth=3, foreground=theme.page)])
        axes.invert_yaxis()
        if peers:
            axes.axvline(max(peers), color=theme.peer, linestyle="--", linewidth=1.4, zorder=1,
                         label=f"llama.cpp at its best, {number(max(peers))}")
        if roofline:
            axes.axvline(roofline, color=theme.limit, linestyle=":", linewidth=1.8, zorder=1,
                         label=f"roofline, {number(roofline)}")
        axes.set_xlabel("tokens per second (logarithmic), and the share of the roofline")
        axes.set_title(title)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", which="major", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=2, fontsize=9.5)

    return paint


def ladder(results: list[Result], title: str, highlight: str | None) -> dict[str, str]:
    rows = sum(r.run["engine"] != "llama.cpp" for r in results)
    size = (7.6, 0.36 * rows + 1.75)
    return {theme.name: draw(theme, size, ladder_painter(results, title, highlight)) for theme in THEMES}


def ladder_text(results: list[Result]) -> str:
    """What the picture says, for those who don't see it."""
    return "; ".join(f"{r.record['chapter'] if r.run['engine'] != 'llama.cpp' else readme.tables.engine_title(r.run)}: "
                     f"{number(r.speed)} tokens per second" for r in results)


def lines_painter(series: list[tuple[str, list[float], list[float]]], x_label: str, y_label: str, title: str,
                  limit: float | None, log_x: bool, mark: tuple[float, float, str] | None = None) -> Callable:
    def paint(figure, theme: Theme) -> None:
        axes = figure.add_subplot()
        colours = [theme.accent, theme.peer, theme.limit, theme.bar, theme.text]
        for (label, xs, ys), colour in zip(series, colours * 3):
            axes.plot(xs, ys, marker="o", markersize=4, linewidth=1.6, color=colour, label=label if len(series) > 1 else None)
        if log_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        if limit:
            axes.axhline(limit, color=theme.limit, linestyle=":", linewidth=1.8, label=f"roofline, {number(limit)} GB/s")
        if mark:
            axes.annotate(mark[2], mark[:2], (14, -4), textcoords="offset points", color=theme.peer, va="top",
                          arrowprops={"arrowstyle": "-", "color": theme.peer})
        axes.set_ylim(bottom=0)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.set_title(title)
        axes.grid(linewidth=0.6)
        axes.set_axisbelow(True)
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=3, fontsize=9.5)

    return paint


def lines(*arguments) -> dict[str, str]:
    return {theme.name: draw(theme, (7.6, 3.9), lines_painter(*arguments)) for theme in THEMES}


def reported(speeds: list[tuple[str, float]], peers: list[tuple[str, float]], title: str) -> dict[str, str]:
    """The reported ladder: hollow bars, so that nobody takes them for measurements."""
    def paint(figure, theme: Theme) -> None:
        axes = figure.add_subplot()
        axes.set_xscale("log")
        bars = axes.barh([name for name, _ in speeds], [speed for _, speed in speeds], height=0.62, facecolor="none",
                         edgecolor=theme.accent, hatch="////", linewidth=1.2)
        axes.bar_label(bars, fmt="%g", padding=5, fontsize=9.5)
        axes.set_xlim(1, 220)
        axes.invert_yaxis()
        axes.axvline(max(speed for _, speed in peers), color=theme.peer, linestyle="--", linewidth=1.4,
                     label=f"llama.cpp at its best, {max(speed for _, speed in peers):g}")
        axes.set_xlabel("tokens per second (logarithmic)")
        axes.set_title(title)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        figure.legend(loc="outside lower center", fontsize=9.5)

    return {theme.name: draw(theme, (7.6, 0.33 * len(speeds) + 1.7), paint) for theme in THEMES}
