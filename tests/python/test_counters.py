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


def words(text: str) -> str:
    return " ".join(text.split())


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


def step(chapter: str) -> list[dict]:
    """The launches of the lab's step in a chapter: what the lab counted, and what the GPU."""
    return loaded("h200-lab.json")[chapter]


def reads(chapter: str, kernel: str, side: str) -> tuple[int, int]:
    """Requests and sectors of a kernel's first launch in a step."""
    launch = next(launch for launch in step(chapter) if launch["kernel"] == kernel)
    return launch[side]["global read requests"], launch[side]["global read sectors"]


def test_the_page_of_the_lab_says_where_the_two_agree():
    launches = [(chapter, launch) for chapter in loaded("h200-lab.json") for launch in step(chapter)]
    differ = {(chapter, launch["kernel"]): launch for chapter, launch in launches if launch["lab"] != launch["ncu"]}
    page = words((ROOT / "docs" / "pages" / "lab.md").read_text(encoding="utf-8"))
    same = [launch for _, launch in launches if launch["lab"] == launch["ncu"]]
    nibbles = [launch for chapter, launch in launches if launch["kernel"] == "gemv_q4_0"]
    assert f"a step of the lab's model is {len(launches)} launches, and for {len(same)} of them all six" in page
    assert set(differ) == {("naive", "gemv<Q8_0>")} | {(chapter, "gemv_q4_0") for chapter in
                                                       ("dp4a", "fused-attention", "int8-head")}
    assert f"the others {len(nibbles)} are `gemv_q4_0`" in page and len(same) + len(nibbles) + 1 == len(launches)
    here, there = ([count // 896 for count in reads("dp4a", "gemv_q4_0", side)] for side in ("lab", "ncu"))
    assert "a row of 896 is {} requests and {} sectors here, {} and {} on the GPU".format(*here, *there) in page
    odd = differ["naive", "gemv<Q8_0>"]
    assert {key for key in odd["lab"] if odd["lab"][key] != odd["ncu"][key]} == {"shared read bank conflicts"}
    assert (f"in whose {odd['blocks'][0]:,} blocks the GPU has {odd['ncu']['shared read bank conflicts']} bank conflicts and "
            "the lab none" in page)


def test_chapters_02_and_03_set_the_profiler_beside_the_lab():
    (requests, naive), (coalesced, sectors) = (reads(chapter, "gemv<Q4_0>", "ncu") for chapter in ("naive", "warp-gemv"))
    assert f"the same launch: {requests:,} requests and {naive:,} sectors" in words(story("02-naive"))
    text = story("03-warp-gemv")
    assert f"| loads of a warp | {requests:,} | {coalesced:,} | |" in text
    assert f"| sectors, the profiler | {naive:,} | {sectors:,} | |" in text


def test_chapter_05_sets_the_profiler_beside_the_lab():
    text = story("05-dp4a")
    for side, name in (("lab", "the lab"), ("ncu", "the profiler")):
        before, now = reads("warp-gemv", "gemv<Q4_0>", side), reads("dp4a", "gemv_q4_0", side)
        for what, i in (("loads of a warp", 0), ("sectors that they touch", 1)):
            assert f"| {what}, {name} | {before[i] / 896 / 28:.1f} | {now[i] / 896 / 28:.1f} |" in text
    rows = [count // 896 for side in ("lab", "ncu") for count in reads("dp4a", "gemv_q4_0", side)]
    assert "For a row the lab counts {} loads, {} sectors, and the profiler {} and {}:".format(*rows) in words(text)


def test_chapter_06_sets_the_profiler_beside_the_lab():
    launch = next(launch for launch in step("fused-attention") if launch["kernel"] == "attention")
    assert launch["lab"] == launch["ncu"]
    assert launch["ncu"]["shared read bank conflicts"] == launch["ncu"]["shared write bank conflicts"] == 0
    requests, sectors = reads("fused-attention", "attention", "ncu")
    said = f"touches {sectors:,} sectors and needs {sectors:,}, in {requests:,} requests, without a bank conflict. The profiler"
    assert said in words(story("06-fused-attention"))


def test_chapter_07_sets_the_profiler_beside_the_lab():
    for side in ("lab", "ncu"):
        before, now = reads("fused-attention", "gemv<Q8_0>", side), reads("int8-head", "gemv_q8_0", side)
        said = "chapter 06's head makes {:,} loads, which touch {:,} sectors, and `gemv_q8_0` makes {:,}, which touch {:,}."
        assert said.format(*before, *now) in words(story("07-int8-head"))
