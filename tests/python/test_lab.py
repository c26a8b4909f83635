# SPDX-License-Identifier: MIT
"""`minfer lab`: what it takes and refuses, and what it makes of a program's counts. What the lab itself counts and finds
is tested in tests/lab."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cli import chapters
from cli import lab as command
from minfer_tools import lab
from minfer_tools.lab import COUNTS, Access, Launch, Meeting, Place, Race, Report

ROOT = Path(__file__).resolve().parents[2]
GEMV = "void minfer::gemv<minfer::BlockQ4_0>(float*, minfer::BlockQ4_0 const*, float const*, unsigned int, unsigned int)"


def line_of(file: str, text: str) -> int:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def access(space: str, kind: str, places: list[Place], **counts: int) -> Access:
    return Access(space, kind, 4, Counter({**dict.fromkeys(COUNTS, 0), **counts}), places)


QUANT, KERNEL = "common/minfer/gguf/quant.h", "chapters/03-warp-gemv/gemv.cuh"


@pytest.fixture
def launch() -> Launch:
    loop = Place(GEMV, KERNEL, line_of(KERNEL, "for (std::uint32_t i = lane;"))
    nibble = Place("element_of", QUANT, line_of(QUANT, "const int q = (block.qs[i % 16]"))
    store = Place(GEMV, KERNEL, line_of(KERNEL, "if (lane == 0) y["))
    return Launch(GEMV, [224, 1, 1], [128, 1, 1], [
        access("global", "read", [loop], requests=10, sectors=40, needed=40, bytes=1280),
        access("global", "read", [nibble, loop], requests=5, sectors=7, needed=5, bytes=80),
        access("global", "write", [store], requests=1, sectors=1, needed=1, bytes=4),
        access("shared", "read", [loop], requests=3, wavefronts=9, conflicts=6),
    ], [Meeting("__shfl_xor_sync", "common/cuda/reduce.h", 73, False, 20)])


@pytest.mark.parametrize("words, complaint", [
    ([], "the following arguments are required: CHAPTER|KERNEL"),
    (["77"], "no chapter '77'; there are: 00, 01"),
    (["01"], "01-reference has no kernels of an engine to look at"),
    (["00"], "00-roofline has no kernels of an engine to look at"),
    (["03", "gemv", "rope"], "found 'gemv rope', expected one kernel a chapter"),
    (["--compare", "03"], "give two chapters and a kernel, or one of each"),
    (["--compare", "02", "03"], "give two chapters and a kernel, or one of each"),
    (["--compare", "--races", "02", "03", "gemv"], "give one of --compare and --races"),
    (["--races", "03", "gemv", "--launch", "2"], "says which launch of a kernel is counted"),
    (["03", "--launch", "2"], "says which launch of a kernel is counted"),
    (["03", "gemv", "--launch", "0"], "argument --launch: found '0', expected a number, 1 or more"),
    (["03", "gmev"], "03-warp-gemv has no kernel 'gmev'; it has "),
    (["--races", "03", "gmev"], "03-warp-gemv has no kernel 'gmev'; it has "),
    (["--compare", "02", "03", "gemv", "gmev"], "03-warp-gemv has no kernel 'gmev'; it has "),
])
def test_wrong_usage_is_one_line_and_nothing_is_built(words, complaint, programs):
    result = subprocess.run([sys.executable, ROOT / "minfer", "lab", *words], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and result.stdout == ""
    assert complaint in result.stderr and result.stderr.count("\n") == 1
    assert not (programs.parent / "build").exists()


def test_the_kernels_of_every_chapter_are_known():
    found = {chapter.name: command.kernels_of(chapter) for chapter in chapters.discover()
             if chapter.is_engine and chapter.on_gpu}
    assert "gemv" in found["02-naive"] and "attention" in found["06-fused-attention"]
    assert "gemv_q8_0" in found["07-int8-head"]
    for name, kernels in found.items():
        text = "".join(path.read_text() for path in (ROOT / "chapters" / name).glob("*.cuh"))
        assert len(kernels) == text.count("__global__ void")


@pytest.mark.parametrize("kernel, name", [
    (GEMV, "gemv<Q4_0>"),
    ("minfer::rmsnorm(float*, float const*, float const*, unsigned int, float)", "rmsnorm"),
    ("void minfer::attention<64u>(float*, float*)", "attention"),
    ("void minfer::attention<(unsigned int)64>(float *, float *)", "attention"),
    ("minfer::(anonymous namespace)::write_past(float*, unsigned int)", "write_past"),
])
def test_names_are_those_of_the_breakdown(kernel, name):
    assert lab.short_name(kernel) == name


def test_files_are_those_of_the_checkout():
    assert lab.found_place(str(ROOT / KERNEL)) == (KERNEL, ROOT)
    assert lab.found_place(f"../../{KERNEL}") == (KERNEL, ROOT)  # as a compiler's cache has it
    assert lab.found_place(str(ROOT / "build" / ".." / KERNEL)) == (KERNEL, ROOT)
    assert lab.found_place("/usr/include/c++/12/tuple")[0] == ""
    assert lab.found_place("??")[0] == ""


def test_files_of_a_copy_are_those_of_the_copy(tmp_path):
    (tmp_path / KERNEL).parent.mkdir(parents=True)
    (tmp_path / KERNEL).write_text("one\ntwo\n")
    roots = (tmp_path, ROOT)
    assert lab.found_place(str(tmp_path / KERNEL), roots) == (KERNEL, tmp_path)
    assert lab.found_place(f"../mine/{KERNEL}", roots) == (KERNEL, tmp_path)
    assert lab.found_place(str(ROOT / QUANT), roots) == (QUANT, ROOT)
    assert Place("gemv", KERNEL, 2, tmp_path).source() == "two"


def test_a_function_is_shown_from_its_head_to_its_brace():
    found = lab.function_around(KERNEL, line_of(KERNEL, "for (std::uint32_t i = lane;"))
    lines = (ROOT / KERNEL).read_text().splitlines()
    assert lines[found.first - 1] == "template <class Block>"
    assert lines[found.first].startswith("__global__ void gemv(")
    assert lines[found.last - 1] == "}"


def test_a_line_has_what_is_made_in_what_it_calls(launch, capsys):
    command.print_lines(launch)
    shown = capsys.readouterr().out.splitlines()
    loop = next(line for line in shown if "for (std::uint32_t i = lane;" in line)
    assert loop.split("|")[0].split() == ["15", "47", "45", "1360"]
    assert loop.split("|")[1].split() == ["3", "6"]
    nibble = next(line for line in shown if "const int q = (block.qs[i % 16]" in line)
    assert nibble.split("|")[0].split() == ["5", "7", "5", "80"]
    assert shown.index(loop) < shown.index(nibble)  # the kernel first


def test_totals_count_each_access_once(launch):
    found = command.totals(launch)
    assert found["global read requests"] == 15 and found["global read sectors"] == 47
    assert found["global write bytes"] == 4
    assert found["shared read requests"] == 3 and found["shared read bank conflicts"] == 6
    assert found["barriers"] == 0 and found["__shfl_xor_sync"] == 20


def test_two_launches_are_shown_side_by_side(launch, capsys):
    other = Launch("minfer::gemv_q4_0(float*)", [7, 1, 1], [128, 1, 1])
    command.print_totals([launch, other], ["03 gemv<Q4_0>", "05 gemv_q4_0"])
    rows = {line[:28].strip(): line[28:].split() for line in capsys.readouterr().out.splitlines() if line}
    assert rows["blocks"] == ["224", "7"]
    assert rows["global read sectors"] == ["47", "0"]
    assert rows["__shfl_xor_sync"] == ["20", "0"]


def test_data_has_the_lines_with_their_text(launch):
    data = command.as_data(chapters.find("03", chapters.discover()), launch, 1)
    assert data["chapter"] == "03-warp-gemv" and data["kernel"] == "gemv<Q4_0>" and data["blocks"] == [224, 1, 1]
    loop = next(line for line in data["lines"] if "i = lane;" in line["source"])
    assert loop["file"] == KERNEL and loop["global"]["sectors"] == 47 and loop["shared"]["wavefronts"] == 9


def test_a_race_is_said_once_with_both_lines(launch):
    first, second = launch.accesses[0], launch.accesses[2]
    launch.races = [Race(first, second, [[0, 0, 0], [1, 0, 0]], [0, 5]), Race(second, first, [[0, 0, 0]] * 2, [5, 0])]
    found = command.found_in(Report([launch, launch], "", []))
    assert len(found) == 1
    head, *lines = found[0].splitlines()
    assert head == (f"gemv<Q4_0>: race: global read by block (0,0,0), thread 0, at {first.places[0]} and "
                    f"global write by block (1,0,0), thread 5, at {second.places[0]}")
    assert [line.strip().partition(": ")[2] for line in lines] == [first.places[0].source(), second.places[0].source()]


def test_what_stopped_a_kernel_is_said_with_its_line(launch):
    places = [Place("element_of", QUANT, 121), Place(GEMV, KERNEL, 56)]
    found = command.found_in(Report([launch], "emulator: kernel gemv: reads 4 bytes", places))
    assert found == [f"emulator: kernel gemv: reads 4 bytes at {QUANT}:121, called from {KERNEL}:56"]


def test_counters_of_a_gpu_are_found_among_what_ncu_prints():
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "tests" / "chapters" / "gpu_check.py")
    gpu_check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gpu_check)
    metrics = list(gpu_check.COUNTERS.values())
    assert metrics[0] == "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"

    def row(*cells: str) -> str:
        return ",".join(f'"{cell}"' for cell in cells)

    output = "\n".join([
        "==PROF== Connected to process 7", "12 34", row("ID", "Kernel Name", *metrics), row("", "", *[""] * 6),
        row("0", GEMV, "75,264", "161504", "896", "896", "0", "0"), row("1", "rmsnorm(float *)", *"123456")])
    first, second = gpu_check.counted(output)
    assert first["kernel"] == "gemv<Q4_0>" and second["kernel"] == "rmsnorm"
    assert first["counters"]["global read requests"] == 75264 and first["counters"]["global read sectors"] == 161504
    assert second["counters"]["shared write bank conflicts"] == 6
    assert set(first["counters"]) <= set(command.totals(Launch(GEMV, [1, 1, 1], [32, 1, 1])))
    assert gpu_check.counted("==ERROR== no permission") == []


def test_without_addr2line_it_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(lab.Failure, match="addr2line is not installed"):
        lab.symbolize(Path("program"), {1})
