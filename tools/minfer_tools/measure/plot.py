# SPDX-License-Identifier: MIT
"""The ladder as a picture: every chapter's decode speed, with the roofline and llama.cpp's best."""

from __future__ import annotations

from pathlib import Path

from ..errors import Failure
from . import readme
from .records import Result


def ladders(sources: readme.Sources) -> dict[tuple[str, str], list[Result]]:
    """The chapters' results by machine and model; what has only llama.cpp is no ladder."""
    found: dict[tuple[str, str], list[Result]] = {}
    for result in readme.ladder_results(sources):
        found.setdefault((result.record["machine"]["id"], result.run["model"]["name"]), []).append(result)
    return {key: results for key, results in found.items()
            if any(result.run["engine"] != "llama.cpp" for result in results)}


def draw(results: list[Result], title: str, stem: Path) -> list[Path]:
    """Writes STEM.svg and STEM.png, the same bytes for the same results and library."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise Failure("the plot needs matplotlib (tests/requirements.txt)") from None
    matplotlib.rcParams["svg.hashsalt"] = "minfer"
    chapters = [result for result in results if result.run["engine"] != "llama.cpp"]
    peers = [result.speed for result in results if result.run["engine"] == "llama.cpp"]
    figure, axes = pyplot.subplots(figsize=(8, 0.4 * len(chapters) + 1.6), layout="constrained")
    names = [result.record["chapter"] for result in chapters]
    bars = axes.barh(names, [result.speed for result in chapters], color="#4477aa")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.invert_yaxis()
    if peers:
        axes.axvline(max(peers), color="#cc6677", linestyle="--", label=f"llama.cpp, best: {max(peers):.1f}")
    limit = chapters[-1]
    if limit.share:
        roofline = limit.speed / limit.share
        axes.axvline(roofline, color="#222222", linestyle=":", label=f"roofline: {roofline:.0f}")
    axes.set_xlabel("tok/s, median")
    axes.set_title(title)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right")
    paths = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=120, metadata={"Software": None})
    pyplot.close(figure)
    return paths


def draw_all(sources: readme.Sources, folder: Path) -> list[Path]:
    """A picture for each machine and model that has a ladder."""
    written = []
    for (machine, model), results in sorted(ladders(sources).items()):
        name = results[0].record["machine"]["name"]
        written += draw(results, f"{name}, {model}, {readme.LADDER_TEST}", folder / f"ladder-{machine}-{model}")
    return written
