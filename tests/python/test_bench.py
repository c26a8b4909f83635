# SPDX-License-Identifier: MIT
"""`minfer bench`: what it measures, what it refuses, and two chapters against each other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_measure import VALIDATOR, record

from cli import bench as command
from cli import run
from cli.main import make_parser
from minfer_tools import synthetic
from minfer_tools.errors import Failure
from minfer_tools.measure import ab, correctness, options, programs, readme, records, sitting, tables

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MINFER_BUILD_DIR", ROOT / "build"))


def parsed(*words: str):
    return make_parser().parse_args(["bench", *words])


def subject(name: str) -> sitting.Subject:
    return sitting.Subject(name, Path(name.split("-", 1)[1]), True)


def selected(text: str) -> list[str]:
    return [found.chapter for found in options.select(text, Path("nowhere"), built=False)]


def test_chapters_are_named_in_lists_spans_and_words():
    assert selected("05") == selected("dp4a") == selected("05-dp4a") == ["05-dp4a"]
    assert selected("02-04,03,07") == ["02-naive", "03-warp-gemv", "04-cuda-graph", "07-int8-head"]
    assert selected("oracle") == ["01-reference"]
    assert "00-roofline" not in selected("all") and "01-reference" not in selected("all")
    with pytest.raises(Failure, match="'09x'"):
        selected("09x")


def test_without_a_gpu_one_line_says_what_can_be_measured(monkeypatch):
    monkeypatch.setattr(run, "gpu_obstacle", lambda chapter: "no GPU here")
    with pytest.raises(Failure, match="no GPU here.*--chapter oracle") as caught:
        command.selected(parsed())
    assert caught.value.status == 77
    with pytest.raises(Failure) as caught:
        command.prepare([subject("05-dp4a")], install=False)
    assert caught.value.status == 77
    assert command.selected(parsed("--chapter", "oracle")) == "oracle"


def test_with_a_gpu_the_newest_chapter_is_measured_or_the_whole_ladder(monkeypatch):
    monkeypatch.setattr(run, "gpu_obstacle", lambda chapter: None)
    newest = max(path.parent.name for path in ROOT.glob("chapters/*/engine.cu"))
    assert command.selected(parsed()) == newest[:2]
    assert command.selected(parsed("--reproduce")) == "all"


@pytest.mark.parametrize("words", [("--ab", "05", "06", "--record"), ("--ab", "05", "06", "--chapter", "07"),
                                   ("--ab", "05", "06", "--breakdown")])
def test_ab_goes_with_nothing_else(words):
    with pytest.raises(Failure, match="--ab") as caught:
        command.bench(parsed(*words))
    assert caught.value.status == 2


def test_an_option_that_a_chapter_lacks_would_name_results_wrongly(tmp_path):
    (tmp_path / "dp4a").write_text("#!/bin/sh\necho '  --tchunk N  tokens (also: TCHUNK)\n --model PATH (also:\n   MODEL)'\n")
    (tmp_path / "dp4a").chmod(0o755)
    subjects = [sitting.Subject("05-dp4a", tmp_path / "dp4a", True)]
    assert options.make_options(parsed("--option", "TCHUNK=8"), subjects).engine_options == {"TCHUNK": "8"}
    for name in ("LMHAED", "LMHEAD", "MODEL"):
        with pytest.raises(Failure, match=f"^--option: 05-dp4a has no {name}; it has TCHUNK$") as caught:
            options.make_options(parsed("--option", f"{name}=0"), subjects)
        assert caught.value.status == 2


def test_two_chapters_take_turns_abba(monkeypatch):
    called = []

    def fake(program, model, plan, extra, environment=None):
        called.append(program.name)
        ns = 10_000_000 if program.name == "dp4a" else 5_000_000
        return [{"test": "tg1", "n_prompt": 0, "n_gen": 1, "n_depth": 0, "samples_ns": [ns + len(called), ns - len(called)]}]

    monkeypatch.setattr(programs, "bench", fake)
    sides = ab.take(subject("05-dp4a"), subject("06-fused-attention"), sitting.NamedModel("m", Path("m")),
                    sitting.Options(programs.Plan(), turns=2))
    assert called == ["dp4a", "fused-attention", "fused-attention", "dp4a"] * 2
    row, = ab.rows(*sides)
    assert len(row["a_samples_ns"]) == len(row["b_samples_ns"]) == 8
    assert row["ratio"] == pytest.approx(2)
    assert row["verdict"] == "faster"
    assert "| tg1 | faster | 100.0 | 200.0 | 2.000 |" in ab.table([row], "05-dp4a", "06-fused-attention")


def test_agreement_counts_the_positions_that_both_predict_alike(monkeypatch):
    answers = {"dp4a": {5: 1, 6: 2, 7: 3}, "fused-attention": {5: 1, 6: 9, 7: 3}}
    monkeypatch.setattr(correctness, "force", lambda program, *_: correctness.Forced(answers[program.name], "0", 3))
    settings = sitting.Options(programs.Plan(), check_cases=2)
    sides = subject("05-dp4a"), subject("06-fused-attention")
    assert ab.agreement(*sides, sitting.NamedModel("coder-0.5b", Path("m")), settings) == (4, 6)
    assert ab.agreement(*sides, sitting.NamedModel("unknown", Path("m")), settings) is None


def test_the_ladder_is_printed_beside_the_reported_figures():
    new = record()
    new["runs"][0]["tests"][0] |= {"test": "tg128", "n_gen": 128, "samples_ns": [1_280_000_000]}
    other = record(options={"LMHEAD": "0"})
    text = command.beside_reported([new, other])
    assert "| 05-dp4a dp4a | tiny | tg128 | 10.2 | 100.0 | 50.0 | 50.0 % |" in text
    assert "| 05-dp4a dp4a LMHEAD=0 | tiny | tg10 |  | 100.0 |" in text  # reported for another test and option


EMULATED = {path.parent.name: BUILD / f"{path.parent.name.split('-', 1)[1]}-emulated"
            for path in sorted(ROOT.glob("chapters/*/engine.cu"))}

#: The kernels that a step has in any case: of the second engine one is all.
KERNELS = {name: {"embed<Q4_0>", "rmsnorm", "argmax"}
           if "time_step(" in (ROOT / "chapters" / name / "engine.cu").read_text(encoding="utf-8") else {"persistent"}
           for name in EMULATED}
GRAPHS = [name for name, kernels in KERNELS.items() if len(kernels) > 1]


@pytest.fixture
def emulated(tmp_path) -> list:
    """A folder of programs that run in the emulator, called as those for a GPU, and a model: what comes after
    `./minfer bench`."""
    missing = [program.name for program in EMULATED.values() if not program.exists()]
    if missing:
        pytest.skip(f"not built: {', '.join(missing)}")
    folder = tmp_path / "programs"
    folder.mkdir()
    for program in EMULATED.values():
        (folder / program.name.removesuffix("-emulated")).symlink_to(program)
    model = tmp_path / "tiny-d.gguf"
    synthetic.make(model, synthetic.PRESETS["tiny-d"])
    return ["--build-dir", folder, "--model", model, "-p", "0", "-n", "1", "-r", "1", "--turns", "1"]


def minfer_bench(*words) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "minfer", "bench", *map(str, words)], capture_output=True, text=True)


@pytest.mark.emulated
def test_the_whole_ladder_is_reproduced_recorded_and_rendered(emulated, tmp_path):
    done = minfer_bench("--reproduce", *emulated, "--breakdown", "--machine", "here", "--out", tmp_path / "chapters")
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert "reported: Jetson Orin Nano Super" in rows[0]
    assert len(rows) == 2 + len(EMULATED)
    found = records.load_all(tmp_path / "chapters")
    assert [entry["chapter"] for entry in found] == list(EMULATED)
    for entry, row in zip(found, rows[2:]):
        VALIDATOR.validate(entry)
        test, = entry["runs"][0]["tests"]
        result, = records.results(entry)
        assert f"| {entry['chapter']} " in row and f"| {tables.speed(result.speed)} |" in row
        # Weights and KV cache are the greater part of what the kernels move, and all of it is counted.
        kernels = test["breakdown"]["kernels"]
        assert 1 <= sum(kernel["bytes"] for kernel in kernels) / test["bytes_per_token"] < 1.25
        assert KERNELS[entry["chapter"]] <= {kernel["kernel"] for kernel in kernels}
        text = readme.breakdown(readme.Sources([entry], {}), entry["chapter"])
        assert "not yet measured" in text  # tg1 is not what the tables are of
        test |= {"test": readme.LADDER_TEST}
        text = readme.breakdown(readme.Sources([entry], {}), entry["chapter"])
        norms = "3 times" if entry["chapter"] in GRAPHS[:-1] else "once"  # fused, the layers' have no kernel
        name = "rmsnorm" if entry["chapter"] in GRAPHS else "persistent"
        assert f"| `{name}`, {norms} | " in text and "| the step | " in text


@pytest.mark.emulated
def test_a_program_prints_its_step_by_kernel(emulated):
    folder, model = emulated[1], emulated[3]
    slug = GRAPHS[-1].split("-", 1)[1]
    done = subprocess.run([folder / slug, "bench", "--model", model, "-p", "3", "-n", "2", "-r", "1", "--breakdown"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(minfer emulator)" in done.stderr  # whose times these are
    _, table = done.stdout.split("| kernel | launches |")  # once: a prompt is not taken apart
    lines = table.split("\n\n")[0].splitlines()[2:]
    *kernels, idle, step = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert {"rmsnorm", "argmax"} <= {row[0] for row in kernels}
    assert (step[0], step[3], step[1]) == ("the step", "100.0 %", str(sum(int(row[1]) for row in kernels)))
    assert idle[0].startswith("idle") and float(step[2]) > 0
    assert float(idle[2]) == pytest.approx(float(step[2]) - sum(float(row[2]) for row in kernels), abs=1)
    assert "With an event behind each kernel the step takes" in done.stdout


@pytest.mark.emulated
def test_two_chapters_are_compared_as_programs(emulated):
    first, second = list(EMULATED)[-2:]
    done = minfer_bench("--ab", first[:2], second[:2], *emulated, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert [line.split("] ")[1] for line in done.stderr.splitlines() if line.startswith("[")] == [
        f"A: {first}", f"B: {second}", f"B: {second}", f"A: {first}"]
    row, = json.loads(done.stdout)
    assert row["test"] == "tg1" and len(row["a_samples_ns"]) == len(row["b_samples_ns"]) == 2
    assert row["interval_95"][0] <= row["ratio"] <= row["interval_95"][1]


@pytest.mark.skipif(not (BUILD / "reference").exists(), reason="the oracle's program is not built")
def test_the_oracle_has_no_kernels_to_time(tmp_path):
    model = tmp_path / "tiny-d.gguf"
    synthetic.make(model, synthetic.PRESETS["tiny-d"])
    done = minfer_bench("--build-dir", BUILD, "--chapter", "oracle", "--model", model, "--breakdown")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--breakdown" in done.stderr


@pytest.mark.skipif(not (BUILD / "reference").exists(), reason="the oracle's program is not built")
def test_the_oracle_is_measured_when_asked_for(tmp_path):
    model = tmp_path / "tiny-a.gguf"
    synthetic.make(model, synthetic.PRESETS["tiny-a"])
    done = subprocess.run(
        [sys.executable, ROOT / "minfer", "bench", "--build-dir", BUILD, "--chapter", "oracle", "--model", model,
         "-p", "4", "-n", "2", "-r", "3", "--turns", "1", "-o", "jsonl"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["test"] for line in lines] == ["pp4", "tg2"]
    assert all(len(line["samples_ns"]) == 3 for line in lines)
    assert lines[1]["of_roofline"] > 0
    assert "1 of 3" in done.stderr  # progress
