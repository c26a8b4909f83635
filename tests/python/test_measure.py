# SPDX-License-Identifier: MIT
"""Measuring and recording: the order of turns, the interval of a ratio, what a Jetson's tools say, and
records against their schema."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from minfer_tools import synthetic
from minfer_tools.errors import Failure
from minfer_tools.measure import (
    breakdown,
    correctness,
    jetson,
    llama,
    machine,
    options,
    programs,
    records,
    sitting,
    statistics,
    tables,
)

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).resolve().parent / "jetson"
BUILD = Path(os.environ.get("MINFER_BUILD_DIR", ROOT / "build"))
SCHEMA = json.loads(records.SCHEMA.read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
needs_program = pytest.mark.skipif(not (BUILD / "reference").exists(), reason="the oracle's program is not built")


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


# --- statistics


def test_two_sides_are_interleaved_so_that_a_drift_favours_neither():
    order = statistics.abba(3)
    assert order == "ABBAABBAABBA"
    place = {side: sum(i for i, s in enumerate(order) if s == side) for side in "AB"}
    assert place["A"] == place["B"]


def test_many_sides_take_turns_there_and_back():
    assert statistics.there_and_back([1, 2, 3], 3) == [1, 2, 3, 3, 2, 1, 1, 2, 3]


def test_a_clear_difference_is_told_with_its_interval():
    a, b = [100.0, 101, 99, 100, 102], [110.0, 111, 109, 110, 112]
    ratio = statistics.bootstrap_ratio(a, b)
    assert ratio.value == pytest.approx(1.1)
    assert 1 < ratio.low <= ratio.value <= ratio.high
    assert ratio.verdict == "faster"
    assert statistics.bootstrap_ratio(b, a).verdict == "slower"


def test_noise_is_no_measurable_change():
    ratio = statistics.bootstrap_ratio([100.0, 104, 96, 99], [101.0, 97, 103, 100])
    assert ratio.verdict == "no measurable change"


def test_the_same_samples_give_the_same_interval():
    a, b = [1.0, 2, 3, 4, 5], [2.0, 3, 4, 5, 6]
    assert statistics.bootstrap_ratio(a, b) == statistics.bootstrap_ratio(a, b)


# --- a Jetson's tools, on outputs written after the real ones


def test_power_mode_and_release_are_read():
    assert jetson.parse_power_mode(fixture("nvpmodel.txt")) == "MAXN_SUPER"
    assert jetson.parse_l4t(fixture("nv_tegra_release.txt")) == "36.4.3"
    assert jetson.parse_power_mode("") is None


def test_locked_clocks_are_told_from_free_ones():
    locked = jetson.parse_clocks(fixture("jetson_clocks_locked.txt"))
    assert locked == jetson.Clocks(gpu_mhz=1020.0, emc_mhz=3199.0, locked=True)
    free = jetson.parse_clocks(fixture("jetson_clocks_free.txt"))
    assert (free.gpu_mhz, free.emc_mhz, free.locked) == (306.0, 2133.0, False)


@pytest.mark.parametrize("found, instead", [
    ("FreqOverride=1", "FreqOverride=0"), ("GPU MinFreq=1020000000", "GPU MinFreq=306000000"),
    ("cpu3: Online=1 Governor=schedutil MinFreq=1728000", "cpu3: Online=1 Governor=schedutil MinFreq=729600"),
    ("CurrentFreq=3199000000", "CurrentFreq=2133000000")])
def test_one_free_clock_is_enough_not_to_be_a_reference(found, instead):
    text = fixture("jetson_clocks_locked.txt")
    assert found in text
    assert not jetson.parse_clocks(text.replace(found, instead)).locked


def test_nothing_read_is_not_locked():
    assert jetson.parse_clocks("") == jetson.Clocks(None, None, False)


def test_tegrastats_gives_means():
    stats = jetson.parse_tegrastats(fixture("tegrastats.txt"))
    assert stats == jetson.Stats(watts=20.0, temperature_c=61.5, gpu_mhz=1015.0, emc_mhz=3199.0, lines=3)
    assert jetson.parse_tegrastats("") == jetson.Stats(None, None, None, None, 0)


def test_only_locked_clocks_make_a_reference(monkeypatch):
    outputs = {"nvpmodel": fixture("nvpmodel.txt"), "sudo": fixture("jetson_clocks_locked.txt")}
    monkeypatch.setattr(jetson, "output", lambda command: outputs.get(command[0], ""))
    stats = jetson.parse_tegrastats(fixture("tegrastats.txt"))
    assert jetson.power(stats) == {"mode": "MAXN_SUPER", "clocks_locked": True, "gpu_mhz": 1015.0, "memory_mhz": 3199.0,
                                   "temperature_c": 61.5, "watts": 20.0, "reference": True}
    outputs["sudo"] = fixture("jetson_clocks_free.txt")
    assert jetson.power(stats)["reference"] is False


# --- other parsing


def test_nvidia_smi_without_a_value_leaves_it_out():
    found = machine.parse_gpu_query("580.65.06, 1980, 3201, 31, 76.50\n")
    assert found["clocks.sm"] == "1980"
    assert machine.parse_gpu_query("580.65.06, 1980, [N/A], 31, [Not Supported]\n").keys() == {
        "driver_version", "clocks.sm", "temperature.gpu"}
    assert machine.parse_gpu_query("") == {}


@pytest.mark.parametrize("name, expected", [
    ("NVIDIA H200", "h200"), ("NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
                              "jetson-orin-nano-engineering-reference-developer-kit-super"),
    ("AMD EPYC 9B14 96-Core Processor", "amd-epyc-9b14"), ("Intel(R) Xeon(R) Gold", "intel-xeon-gold"), ("", "machine")])
def test_a_machine_is_named_by_its_processor(name, expected):
    assert machine.identifier(name) == expected


def test_a_forced_pass_is_read_and_a_broken_one_refused():
    forced = correctness.parse_forced("2 17 0.5\n3 4 1.25\nlogits-hash 0123456789abcdef rows 2\n")
    assert forced == correctness.Forced({2: 17, 3: 4}, "0123456789abcdef", 2)
    with pytest.raises(Failure, match="logits-hash"):
        correctness.parse_forced("2 17 0.5\n")


def test_llama_bench_names():
    assert [llama.test_name(512, 0, 0), llama.test_name(0, 128, 1024)] == ["pp512", "tg128 @ d1024"]


def test_what_llama_cpp_needs_is_made_once_for_each_head(tmp_path):
    script = tmp_path / "llama-quantize"
    script.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n')
    script.chmod(0o755)
    found = llama.peers(tmp_path, Path("m.gguf"), ["stock", "q4_0", "f32"], [0, 1], tmp_path)
    assert [(peer.head, peer.flash_attention) for peer in found] == [
        ("stock", 0), ("stock", 1), ("q4_0", 0), ("q4_0", 1), ("f32", 0), ("f32", 1)]
    assert found[0].model == Path("m.gguf")
    assert "-fa 1" in " ".join(found[1].command(programs.Plan(), []))
    q4, f32 = (tmp_path / "called").read_text().splitlines()
    assert "--output-tensor-type q4_0" in q4 and q4.endswith(f"{found[2].model} Q4_0")
    assert "--output-tensor-type" not in f32 and f32.endswith(f"{found[4].model} F32")


# --- records


def record(**changes) -> dict:
    run = {
        "recorded": "2026-01-02T03:04:05Z", "source": {"commit": "abc", "dirty": False}, "build": {"nvcc": "NVIDIA 13.0"},
        "power": {"mode": None, "clocks_locked": None, "gpu_mhz": 1980.0, "memory_mhz": 3201.0, "temperature_c": 31.0,
                  "watts": 76.5, "reference": False},
        "engine": "dp4a", "description": "dp4a (a GPU)", "options": {},
        "model": {"name": "tiny", "file": "tiny.gguf", "bytes": 10, "sha256": "0" * 64, "weights": "Q4_0"},
        "correctness": None, "turns": 2, "peak_resident_bytes": 1,
        "tests": [{"test": "tg10", "n_prompt": 0, "n_gen": 10, "n_depth": 0, "bytes_per_token": 500_000_000,
                   "samples_ns": [50_000_000, 100_000_000, 200_000_000]}],
        "invocation": "dp4a bench",
    }
    found = {"schema": 1, "chapter": "05-dp4a", "runs": [{**run, **changes}], "machine": {
        "id": "gpu", "name": "GPU", "gpu": "GPU", "compute_capability": "9.0", "sm_count": 1, "bandwidth_gb_per_s": 100.0,
        "bandwidth_of": "gpu", "cpu": "CPU", "cpu_cores": 1, "system": "Linux", "l4t": None, "driver": None,
        "cuda_driver": None, "cuda_runtime": None}}
    VALIDATOR.validate(found)
    return found


def test_a_result_is_told_in_gb_per_s_and_of_the_roofline():
    result, = records.results(record())
    assert (result.speed, result.gb_per_s, result.share) == (100.0, 50.0, 0.5)
    assert result.tokens_per_joule is None  # a GPU's power alone is not what a token costs
    assert "| 05-dp4a | dp4a | tiny | tg10 | 100.0 | 50.0 | 50.0 % |" in tables.sitting_table([record()])


def test_a_prompt_and_an_engine_that_does_not_say_have_no_gb_per_s():
    found = record()
    found["runs"][0]["tests"][0]["bytes_per_token"] = None
    assert (records.results(found)[0].gb_per_s, records.results(found)[0].share) == (None, None)
    tests: dict = {}
    programs.add_samples(tests, [
        {"test": "pp4", "n_prompt": 4, "n_gen": 0, "n_depth": 0, "bytes_per_token": 7, "samples_ns": [1]},
        {"test": "tg4", "n_prompt": 0, "n_gen": 4, "n_depth": 0, "bytes_per_token": 8, "samples_ns": [1]}])
    assert [test.bytes_per_token for test in tests.values()] == [None, 8]


# --- a step by kernel


BREAKDOWN = {"position": 5, "empty_us": [3.0, 2.0, 2.0], "kernels": [
    {"kernel": "gemv<Q4_0>", "launches": 10, "bytes": 400_000_000, "us": [4020.0, 4021.0, 9000.0]},
    {"kernel": "advance", "launches": 1, "bytes": 8, "us": [1.0, 1.0, 1.0]}]}


def taken_apart(**changes) -> dict:
    found = record()
    found["runs"][0]["tests"][0] |= {"breakdown": {**BREAKDOWN, **changes}}
    VALIDATOR.validate(found)
    return found


def test_a_kernels_time_is_what_it_takes_beyond_an_empty_one():
    result, = records.results(taken_apart())
    step = breakdown.Breakdown.of(result)
    assert (step.step_us, step.empty_us, step.events_us, step.launches) == (10_000.0, 2.0, 4022.0, 11)
    gemv, advance = step.kernels
    assert (gemv.us, gemv.gb_per_s) == (4001.0, pytest.approx(400e6 / 4001 / 1e3))
    assert (advance.us, advance.gb_per_s) == (0.0, None)  # never less than nothing
    assert step.idle_us == 10_000 - 4001
    assert breakdown.Breakdown.of(records.results(record())[0]) is None


def test_a_step_is_shown_by_kernel_with_what_is_idle():
    text = tables.sitting_table([taken_apart()])
    assert "| gemv<Q4_0> | 10 | 4001.0 | 40.0 % | 400.000 | 100.0 |" in text
    assert "| idle: launches, and the host | 11 | 5999.0 | 60.0 % |  |  |" in text
    assert "the step takes 4022.0 us instead of 10000.0" in text
    assert "kernel" not in tables.sitting_table([record()])
    line = json.loads(tables.sitting_table([taken_apart()], "jsonl"))["breakdown"]
    assert line["idle_us"] == 5999.0
    assert [(kernel["kernel"], kernel["launches"], kernel["bytes"]) for kernel in line["kernels"]] == [
        ("gemv<Q4_0>", 10, 400_000_000), ("advance", 1, 8)]
    assert line["kernels"][0]["of_step"] == pytest.approx(0.4001)


@pytest.mark.parametrize("changes", [{"kernels": []}, {"empty_us": []}, {"position": 0}])
def test_a_breakdown_without_its_parts_is_no_record(changes):
    with pytest.raises(jsonschema.ValidationError):
        taken_apart(**changes)


def test_a_prompt_has_no_breakdown():
    found = taken_apart()
    found["runs"][0]["tests"][0] |= {"test": "pp10", "n_prompt": 10, "n_gen": 0}
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(found)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


def test_the_kernels_are_timed_in_a_run_of_their_own_after_all_turns(tmp_path):
    """A program that says what it was asked for, in what it prints."""
    calls = tmp_path / "calls"
    program = script(tmp_path / "dp4a", f"""
import json, sys
open({str(calls)!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
words = sys.argv
apart = "--breakdown" in words
line = {{"n_prompt": 0, "n_gen": 10, "n_depth": 0, "test": "tg10", "samples_ns": [7 if apart else 5], "weights": "Q4_0",
        "description": "dp4a (here)", "bytes_per_token": 9, "peak_resident_bytes": 1, "build": {{"nvcc": "NVIDIA 13.0"}}}}
if apart: line["breakdown"] = {BREAKDOWN!r}
print(json.dumps(line))
""")
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    options = sitting.Options(programs.Plan("512", "10", "0", 3), turns=2, check_cases=0, breakdown=True, commit="abc")
    taken = sitting.take([sitting.Subject("05-dp4a", program, True)], [sitting.NamedModel("m", model)], {}, options)
    first, second, apart = calls.read_text().splitlines()
    assert first == second and "--breakdown" not in first
    assert apart.endswith("-p 0 -n 10 -d 0 -r 1 -o jsonl --breakdown")
    described = record()["machine"]
    found, = sitting.to_records(taken, described, None, options)
    VALIDATOR.validate(found)
    run, = found["runs"]
    assert run["build"] == {"nvcc": "NVIDIA 13.0"}
    assert run["tests"] == [{"test": "tg10", "n_prompt": 0, "n_gen": 10, "n_depth": 0, "bytes_per_token": 9,
                             "samples_ns": [5, 5], "breakdown": BREAKDOWN}]


def test_llama_cpps_version_is_what_its_build_wrote_beside_it(tmp_path):
    line = {"n_prompt": 0, "n_gen": 10, "n_depth": 0, "samples_ns": [5], "build_commit": "unknown", "backends": "CUDA"}
    script(tmp_path / "llama-bench", f"print({json.dumps(json.dumps(line))})")
    peer = llama.Peer(tmp_path, Path("m.gguf"), "stock", 0)

    def described() -> sitting.Measured:
        measured = sitting.Measured("00-roofline", sitting.NamedModel("m", Path("m.gguf")), "llama.cpp", {}, "")
        sitting.measure_peer(peer, measured, sitting.Options(programs.Plan()))
        return measured

    assert (described().description, described().build) == ("llama.cpp unknown, CUDA", {})
    facts = {"llama.cpp": "of llama-cpp-python 0.3.36", "compiler": "GNU 12.2.0"}
    (tmp_path / llama.BUILD_FILE).write_text(json.dumps(facts))
    assert (described().description, described().build) == ("llama.cpp of llama-cpp-python 0.3.36, CUDA", facts)


def test_how_llama_cpp_was_built_is_told_without_a_path_of_this_machine(tmp_path):
    for language, version in (("CXX", "12.2.0"), ("CUDA", "13.0.88")):
        file = tmp_path / "CMakeFiles" / "3.25" / f"CMake{language}Compiler.cmake"
        file.parent.mkdir(parents=True, exist_ok=True)
        kind = {"CXX": "GNU", "CUDA": "NVIDIA"}[language]
        file.write_text(f'set(CMAKE_{language}_COMPILER_ID "{kind}")\nset(CMAKE_{language}_COMPILER_VERSION "{version}")\n')
    done = subprocess.run([sys.executable, ROOT / "tools" / "llama_build_settings.py", tmp_path, "of a package", "-G", "Ninja",
                           "-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=90", f"-DCMAKE_project_INCLUDE={tmp_path}/x.cmake"],
                          capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"llama.cpp": "of a package", "compiler": "GNU 12.2.0", "nvcc": "NVIDIA 13.0.88",
                                       "GGML_CUDA": "ON", "CMAKE_CUDA_ARCHITECTURES": "90"}


# --- other machines


def test_a_board_has_tokens_per_joule():
    board = record()
    board["machine"]["l4t"] = "36.4.3"
    board["runs"][0]["power"]["watts"] = 20.0
    assert records.results(board)[0].tokens_per_joule == 5.0


def test_a_cpu_engines_memory_is_told_against_the_file():
    assert tables.memory_lines([record(peak_resident_bytes=13)]) == []
    cpu = record(peak_resident_bytes=13)
    cpu["machine"]["bandwidth_of"] = "cpu"
    assert tables.memory_lines([cpu]) == ["dp4a, tiny: resident at most: 0 MB, 1.30 times the file"]


def test_other_forms_keep_every_sample_in_order():
    line = json.loads(tables.sitting_table([record()], "jsonl"))
    assert line["samples_ns"] == [50_000_000, 100_000_000, 200_000_000]
    assert line["samples_ts"] == [200.0, 100.0, 50.0]
    assert json.loads(tables.sitting_table([record()], "json")) == [line]
    assert "50000000 100000000 200000000" in tables.sitting_table([record()], "csv")


def test_writing_again_replaces_the_same_run_and_keeps_the_others(tmp_path):
    records.write(tmp_path, record())
    records.write(tmp_path, record(options={"LMHEAD": "0"}))
    path = records.write(tmp_path, record(recorded="2027-01-02T03:04:05Z"))
    found = records.load(path)
    VALIDATOR.validate(found)
    assert [(run["options"], run["recorded"][:4]) for run in found["runs"]] == [({}, "2027"), ({"LMHEAD": "0"}, "2026")]
    assert path == tmp_path / "05-dp4a" / "results" / "gpu.json"
    assert json.loads(path.read_text()) == found
    assert '"samples_ns": [50000000, 100000000, 200000000]' in path.read_text()


def test_another_sitting_keeps_the_tests_that_it_did_not_take(tmp_path):
    shallow, deep = ({"test": name, "n_prompt": 0, "n_gen": 10, "n_depth": depth, "bytes_per_token": 1, "samples_ns": [1]}
                     for name, depth in (("tg10", 0), ("tg10 @ d5", 5)))
    records.write(tmp_path, record(tests=[shallow, deep]))
    again = {**deep, "samples_ns": [2]}
    runs = records.load(records.write(tmp_path, record(tests=[again], turns=1)))["runs"]
    assert [(run["turns"], run["tests"]) for run in runs] == [(2, [shallow]), (1, [again])]


def with_runs(*runs: tuple[str, dict[int, int]]) -> dict:
    """A record of runs: each with its head, and the nanoseconds of its tests by how many tokens they decode."""
    return {**record(), "runs": [record(options={"head": head}, tests=[
        {"test": f"tg{n}", "n_prompt": 0, "n_gen": n, "n_depth": 0, "bytes_per_token": 1, "samples_ns": [ns]}
        for n, ns in tests.items()])["runs"][0] for head, tests in runs]}


# Not in the order of heads, and one of them measured in two sittings.
RUNS = ("stock", {1: 11}), ("stock", {2: 11, 3: 11}), ("f32", {1: 11, 2: 11})


@pytest.mark.parametrize("again", [RUNS, RUNS[::-1], *((run,) for run in RUNS)])
def test_taking_what_is_there_already_changes_nothing(tmp_path, again):
    here, there = tmp_path / "here", tmp_path / "there"
    path = records.write(here, with_runs(*RUNS))
    before = path.read_bytes()
    records.write(there, with_runs(*again))
    assert run_record("--take", there, "--out", here).returncode == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize("newer, expected", [
    ([("stock", {1: 22})], [("stock", {1: 22}), RUNS[1], RUNS[2]]),
    ([("stock", {3: 22, 2: 22})], [RUNS[0], ("stock", {3: 22, 2: 22}), RUNS[2]]),
    ([("stock", {1: 22, 2: 22, 3: 22})], [("stock", {1: 22, 2: 22, 3: 22}), RUNS[2]]),
    ([("f32", {1: 22})], [RUNS[0], RUNS[1], ("f32", {2: 11}), ("f32", {1: 22})]),
    ([("q8_0", {1: 22}), ("q4_0", {1: 22})], [*RUNS, ("q4_0", {1: 22}), ("q8_0", {1: 22})]),
    ([("bf16", {1: 22})], [("bf16", {1: 22}), *RUNS])])
def test_a_newer_run_moves_no_other(newer, expected):
    found = records.merged(with_runs(*RUNS), with_runs(*newer))
    assert found == with_runs(*expected)
    assert records.merged(found, with_runs(*newer)) == found


def test_taking_the_committed_records_changes_none(tmp_path):
    committed = sorted(records.CHAPTERS.glob("*/results/*.json"))
    assert committed
    for path in committed:
        copy = tmp_path / path.relative_to(records.CHAPTERS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    assert run_record("--take", records.CHAPTERS, "--out", tmp_path).returncode == 0
    for path in committed:
        assert (tmp_path / path.relative_to(records.CHAPTERS)).read_bytes() == path.read_bytes(), path


def test_a_reference_without_locked_clocks_is_no_record():
    free = record()
    free["runs"][0]["power"]["reference"] = True
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(free)


def test_every_committed_record_keeps_the_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for found in records.load_all():
        VALIDATOR.validate(found)


def test_a_synthetic_model_is_called_what_its_preset_is(tmp_path):
    shape = replace(synthetic.PRESETS["tiny-d"], name=synthetic.PRESETS["1.5b"].name)  # a small file that says so
    for path, expected in ((tmp_path / "a.gguf", "1.5b-synthetic"), (tmp_path / "b.gguf", "b")):
        synthetic.make(path, shape)
        assert options.named_model(str(path)).name == expected
        assert options.named_model(f"mine={path}").name == "mine"
        shape = synthetic.overridden(shape, {"seed": 2})  # another model
    (tmp_path / "c.gguf").write_text("not GGUF")
    assert options.named_model(str(tmp_path / "c.gguf")).name == "c"
    assert options.named_model(str(tmp_path / "none.gguf")).name == "none"
    assert [synthetic.PRESETS[name].name for name in ("0.5b", "1.5b", "3b", "tiny-a")] == [
        "0.5b-synthetic", "1.5b-synthetic", "3b-synthetic", None]


def run_record(*words) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "tools" / "record.py", *map(str, words)], capture_output=True, text=True)


def test_another_machines_records_are_taken_over_and_merged(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    records.write(here, record(options={"LMHEAD": "0"}))
    records.write(there, record())
    done = run_record("--take", there, "--out", here)
    assert done.returncode == 0, done.stderr
    found, = records.load_all(here)
    assert [run["options"] for run in found["runs"]] == [{}, {"LMHEAD": "0"}]
    assert run_record("--take", tmp_path / "nowhere", "--out", here).returncode == 2
    done = run_record("--chapters", "05")
    assert done.returncode == 2 and "--build-dir, --model: needed" in done.stderr


@needs_program
def test_a_sitting_is_measured_and_recorded(tmp_path):
    model = tmp_path / "tiny-a.gguf"
    synthetic.make(model, synthetic.PRESETS["tiny-a"])
    done = run_record("--build-dir", BUILD, "--chapters", "oracle", "--model", f"tiny={model}", "--out", tmp_path,
                      "-p", "4", "-n", "3", "-d", "0,5", "-r", "2", "--turns", "3", "--machine", "Here", "--commit", "abc")
    assert done.returncode == 0, done.stderr
    found = records.load(tmp_path / "01-reference" / "results" / "here.json")
    VALIDATOR.validate(found)
    run, = found["runs"]
    assert [test["test"] for test in run["tests"]] == ["pp4", "tg3", "pp4 @ d5", "tg3 @ d5"]
    assert all(len(test["samples_ns"]) == 6 for test in run["tests"])
    assert run["source"] == {"commit": "abc", "dirty": None}
    assert run["correctness"] is None  # no reference has this model
    assert {"CMAKE_BUILD_TYPE", "compiler"} <= run["build"].keys()  # by the program itself
    assert [bool(test["bytes_per_token"]) for test in run["tests"]] == [False, True, False, True]
    assert run["tests"][1]["bytes_per_token"] < run["tests"][3]["bytes_per_token"]  # the KV cache is longer
    assert found["machine"]["bandwidth_of"] == "cpu"
    assert str(tmp_path) not in json.dumps(found)
    assert done.stdout.count("| 01-reference |") == 4


@pytest.mark.parametrize("words, status, part", [
    (["--chapters", "99"], 2, "'99'"), (["--chapters", "oracle"], 1, "not built"),
    (["--chapters", "oracle", "-p", "x"], 2, "'x'")])
def test_what_cannot_be_measured_is_refused(tmp_path, words, status, part):
    done = run_record("--build-dir", tmp_path, "--model", "m.gguf", *words)
    assert done.returncode == status
    assert part in done.stderr.splitlines()[-1]
