# SPDX-License-Identifier: MIT
"""What chapters say that a GPU's counters say is in the records: Nsight Compute's, and the lab's beside them."""

import json
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "tests" / "chapters" / "records"
#: A layer's matrices in the order of their launches, as the tables of chapters 10 and 11 call them.
MATRICES = {"q or o, 1536 x 1536": (0, 3), "k or v, 256 x 1536": (1, 2), "gate or up, 8960 x 1536": (4, 5),
            "down, 1536 x 8960": (6,)}
SCHEDULERS, CYCLES_A_US = 4 * 132, 1980


def story(chapter: str) -> str:
    return (ROOT / "chapters" / chapter / "README.md").read_text(encoding="utf-8")


def loaded(name: str) -> dict:
    return json.loads((RECORDS / name).read_text(encoding="utf-8"))["chapters"]


def of_matrix(chapter: str, matrix: str) -> dict[str, str]:
    """A matrix's cells, the mean of its launches."""
    launches = [loaded("h200-counters.json")[chapter][i] for i in MATRICES[matrix]]

    def of(counter: str) -> float:
        return mean(launch[counter] for launch in launches)

    us = of("ns") / 1000
    return {"us": f"{us:.1f}", "requests": f"{of('global read requests'):,.0f}", "sectors": f"{of('global read sectors'):,.0f}",
            "L1": f"{of('L1, % of its peak'):.0f} %", "DRAM": f"{of('DRAM, % of its peak'):.0f} %",
            "issued": f"{100 * of('warp instructions') / (SCHEDULERS * CYCLES_A_US * us):.0f} %"}


@pytest.mark.parametrize("matrix", MATRICES)
def test_chapters_10_and_11_have_the_profiler_s_figures(matrix):
    before, now = of_matrix("simd-unpack", matrix), of_matrix("wide-loads", matrix)
    assert f"| {' | '.join([matrix, *before.values()])} |\n" in story("10-simd-unpack")
    both = [side[what] for what in ("us", "requests", "sectors", "L1", "DRAM") for side in (before, now)]
    assert f"| {' | '.join([matrix, *both])} |\n" in story("11-wide-loads")
