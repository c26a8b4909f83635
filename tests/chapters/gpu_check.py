#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks and times the GPU chapters from prebuilt programs, and writes what it found as JSON.

Needs nothing but Python's standard library, so that it runs on a machine that has a GPU and little
else: the programs, the models and this repository's tests/ are enough. A model that is not there is
left out, by name.

    gpu_check.py --build build --models models --out check.json
    gpu_check.py --build build --models models --parts tg128 --chapters dp4a int8-head

Models, by file name: tiny-a .. tiny-e (tools/make_model --preset), coder-0.5b and coder-1.5b (the real
weights), 0.5b, 1.5b and 3b (make_model again, for speed). Parts:

  kernels    test-new-kernels-CHAPTER: every kernel that no chapter before has, against the oracle
  small      the small models: committed hashes, tokens, the same logits in steps of 1, 2, 3 and 8 tokens
  reference  the real models under teacher forcing: argmax against llama.cpp's fp32 tokens, and hashes, which
             are to be the same token by token
  tg128      a prompt of 512 tokens (pp512) and 128 tokens decoded, chapters interleaved; tok/s of each run
  bench      bench-kernels-CHAPTER: each kernel by itself, with its bytes
  sanitizers the small models under compute-sanitizer's memcheck, racecheck and initcheck
  counters   only if it is named: each launch of a step under Nsight Compute (ncu), beside what lab-CHAPTER counts;
             needs tools/ as well, and the leave to read a GPU's counters

Exit status: 0 nothing wrong, 1 something is (also under "problems" in the file).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import whole_model  # noqa: E402

HERE = Path(__file__).resolve().parent
PARTS = ("kernels", "small", "reference", "tg128", "bench", "sanitizers", "counters")
SANITIZERS = ("memcheck", "racecheck", "initcheck")
REFERENCES = {
    "coder-0.5b": HERE.parent / "reference" / "llama_cpp_0.5b.json",
    "coder-1.5b": HERE.parent / "reference" / "llama_cpp_1.5b.json",
}
TIMED = ("coder-0.5b", "coder-1.5b", "0.5b", "1.5b", "3b")
#: What bench-kernels takes: d_model, d_ff, heads, K/V heads, head_dim, the head's type.
SHAPES = {
    "0.5b": (896, 4864, 14, 2, 64, "Q8_0"),
    "1.5b": (1536, 8960, 12, 2, 128, "Q6_K"),
    "3b": (2048, 11008, 16, 2, 128, "Q6_K"),
}
BENCH_POSITION = 128
#: What the lab's figures are called, and what the GPU's counters of the same are.
COUNTERS = {
    f"global {word} {what}": f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"
    for word, op in (("read", "ld"), ("write", "st")) for what in ("requests", "sectors")
} | {
    f"shared {word} bank conflicts": f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum"
    for word, op in (("read", "ld"), ("write", "st"))
}
#: Chapters whose activations are fp32: every token is the reference's. The others may differ where the
#: reference's own margin is at most this, in at most 2 % of the predictions, and not in a first run of 20.
NEAR_TIE, LEAST_AGREEMENT, FIRST = 0.25, 0.98, 20
EXACT = ("naive", "warp-gemv", "cuda-graph")
#: A head of four bits overturns more, and not only near ties: of these it is asked how often alone.
ROUNDED, LEAST_ROUNDED = ("q4-head", "fused-kernels", "persistent-kernel", "tensor-core-steps"), 0.95


class Check:
    """One run: where things are, and what was found so far."""

    def __init__(self, options: argparse.Namespace, data: dict) -> None:
        self.build, self.models, self.rounds = options.build, options.models, options.rounds
        self.data = data
        self.chapters = options.chapters or list(data["tolerances"])
        self.found: dict = {"machine": machine(), "left_out": []}
        self.problems: list[str] = []
        self.started = time.monotonic()

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self.started:6.1f} s] {line}", file=sys.stderr, flush=True)

    def program(self, name: str) -> Path | None:
        return self.existing(self.build / name)

    def model(self, name: str) -> Path | None:
        return self.existing(self.models / f"{name}.gguf")

    def existing(self, path: Path) -> Path | None:
        if path.is_file():
            return path
        if str(path) not in self.found["left_out"]:
            self.found["left_out"].append(str(path))
        return None

    def problem(self, line: str) -> None:
        self.problems.append(line)
        self.say(f"WRONG: {line}")

    # --- parts ---------------------------------------------------------------------------------

    def kernels(self) -> dict:
        result = {}
        for chapter in self.chapters:
            program = self.program(f"test-new-kernels-{chapter}")
            if program is None:
                continue
            done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=300)
            result[chapter] = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no output"
            self.say(f"kernels of {chapter}: {result[chapter]}")
            if done.returncode != 0:
                self.problem(f"kernels of {chapter}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return result

    def small(self) -> dict:
        result = {}
        reference = self.program("reference")
        for chapter in self.chapters:
            program = self.program(chapter)
            if program is None or reference is None:
                continue
            problems = whole_model.check(program, reference, self.models, self.data, [], False)
            if whole_model.has_steps(chapter, self.data):
                problems += whole_model.steps(program, self.models, self.data, [])
            result[chapter] = "equal" if not problems else problems
            self.say(f"small models, {chapter}: {result[chapter]}")
            for line in problems:
                self.problem(f"{chapter}: {line}")
        return result

    def reference(self) -> dict:
        result: dict = {}
        for name, file in REFERENCES.items():
            model = self.model(name)
            if model is None:
                continue
            cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
            hashes: dict[str, list[str]] = {}
            for chapter in self.chapters:
                program = self.program(chapter)
                if program is not None:
                    found = self.against_reference(program, model, cases)
                    result.setdefault(name, {})[chapter] = found
                    hashes[chapter] = found["logits_hash"]
            for chapter, same in self.data["same_bits"].items():
                for entry in same:
                    if chapter in hashes and entry["as"] in hashes:
                        self.same_bits(name, model, cases, chapter, entry, hashes)
        return result

    def against_reference(self, program: Path, model: Path, cases: list[dict]) -> dict:
        """Every prediction along the reference's own answer, compared with the answer."""
        misses, hashes, predictions, first_equal = [], [], 0, True
        begin = time.monotonic()
        for number, case in enumerate(cases):
            prompt, answer, margins = case["prompt_ids"], case["f32"]["ids"], case["f32"]["top2_margin"]
            forced = whole_model.force(program, model, prompt + answer[:-1], len(prompt))
            hashes.append(forced.hash)
            if whole_model.has_steps(program.name, self.data):
                by_ones = whole_model.force(program, model, prompt + answer[:-1], len(prompt), TCHUNK="1").hash
                if by_ones != forced.hash:
                    self.problem(f"{model.stem}, {program.name}, case {number}: logits hash {forced.hash}, one token a "
                                 f"step {by_ones}")
            predictions += len(answer)
            for i, (found, margin) in enumerate(forced.predictions.values()):
                if found != answer[i]:
                    misses.append({"case": number, "token": i, "found": found, "expected": answer[i],
                                   "margin": margin, "reference_margin": margins[i]})
                    first_equal = first_equal and i >= FIRST
        agreement = 1 - len(misses) / predictions
        self.say(f"{model.stem}, {program.name}: {predictions - len(misses)} of {predictions} predictions equal, "
                 f"{time.monotonic() - begin:.1f} s")
        if program.name in EXACT and misses:
            self.problem(f"{model.stem}, {program.name}: {len(misses)} tokens are not the reference's: {misses[:3]}")
        least = LEAST_ROUNDED if program.name in ROUNDED else LEAST_AGREEMENT
        if agreement < least:
            self.problem(f"{model.stem}, {program.name}: {agreement:.2%} agreement, expected {least:.0%}")
        if not first_equal and program.name not in ROUNDED:
            self.problem(f"{model.stem}, {program.name}: a token of the first {FIRST} is not the reference's")
        for miss in misses if program.name not in ROUNDED else []:
            if not miss["reference_margin"] <= NEAR_TIE:
                self.problem(f"{model.stem}, {program.name}: no near tie: {miss}")
        return {"predictions": predictions, "agreement": agreement, "first_tokens_equal": first_equal,
                "misses": misses, "logits_hash": hashes}

    def same_bits(self, name: str, model: Path, cases: list[dict], chapter: str, entry: dict, hashes: dict) -> None:
        for number, case in enumerate(cases):
            prompt, answer = case["prompt_ids"], case["f32"]["ids"]
            found = hashes[chapter][number]
            if entry["environment"]:
                found = whole_model.force(self.build / chapter, model, prompt + answer[:-1], len(prompt),
                                          **entry["environment"]).hash
            if found != hashes[entry["as"]][number]:
                self.problem(f"{name}, case {number}: {chapter} with {entry['environment']} has the logits hash "
                             f"{found}; expected that of {entry['as']}, {hashes[entry['as']][number]}")
        self.say(f"{name}: {chapter} with {entry['environment']} compared with {entry['as']}")

    def tg128(self) -> dict:
        """Prompts too. Chapters take turns, so that what drifts drifts for all of them."""
        result: dict = {}
        for name in TIMED:
            model = self.model(name)
            if model is None:
                continue
            samples: dict[str, dict[str, list[float]]] = {}
            for _ in range(self.rounds):
                for chapter in self.chapters:
                    program = self.program(chapter)
                    if program is not None:
                        for test, rate in rates(program, model).items():
                            samples.setdefault(test, {}).setdefault(chapter, []).append(rate)
            result[name] = samples
            for test, found in samples.items():
                self.say(f"{test} {name}: " + ", ".join(f"{c} {max(s):.1f}" for c, s in found.items()))
        return result

    def bench(self) -> dict:
        result: dict = {}
        for name, shape in SHAPES.items():
            for chapter in self.chapters:
                program = self.program(f"bench-kernels-{chapter}")
                if program is None:
                    continue
                done = subprocess.run([str(program), *map(str, shape), str(BENCH_POSITION)],
                                      capture_output=True, text=True, check=False, timeout=300)
                if done.returncode != 0:
                    self.problem(f"{program.name}: exit status {done.returncode}: {done.stderr.strip()}")
                    continue
                result.setdefault(name, {})[chapter] = [json.loads(line) for line in done.stdout.splitlines()]
            self.say(f"kernels timed on the shapes of {name}")
        return result

    def counters(self) -> dict:
        """Of each launch of the lab's step: what the lab counts, and what the GPU does."""
        if shutil.which("ncu") is None:
            self.problem("counters: no ncu on this machine")
            return {}
        sys.path.insert(0, str(HERE.parents[1] / "tools"))
        from minfer_tools import lab

        model = self.models / "lab.gguf"
        lab.write_model(model)
        result: dict = {}
        for chapter in self.chapters:
            program, counting = self.program(chapter), self.program(f"lab-{chapter}")
            if program is None or counting is None:
                continue
            launches = lab.run(counting, str(model), "count").launches
            ids = range(10, 42)  # as the lab's own program has them
            done = subprocess.run(
                ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(COUNTERS.values()),
                 str(program), "run", "--model", str(model), "--ignore-eos", "-n", "2",
                 "--prompt-ids", " ".join(map(str, ids))],
                capture_output=True, text=True, check=False, timeout=300)
            found = counted(done.stdout)[-len(launches):]
            names = [row["kernel"] for row in found]
            if done.returncode != 0 or names != [launch.name for launch in launches]:
                self.problem(f"{chapter}: ncu, exit status {done.returncode}: launches {names}, expected "
                             f"{[launch.name for launch in launches]}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
                continue
            result[chapter] = [{"kernel": launch.name, "blocks": launch.grid, "threads": launch.block,
                                "lab": {key: lab.totals(launch)[key] for key in COUNTERS}, "ncu": row["counters"]}
                               for launch, row in zip(launches, found)]
            self.say(f"{chapter}: {len(launches)} launches counted")
        return result

    def sanitizers(self) -> dict:
        """What compute-sanitizer says of a prompt and some tokens: each tool's own last line."""
        if shutil.which("compute-sanitizer") is None:
            self.problem("sanitizers: no compute-sanitizer on this machine")
            return {}
        runs = [(tool, chapter, program, model)
                for name in self.data["cases"] if (model := self.model(name)) is not None
                for chapter in self.chapters if (program := self.program(chapter)) is not None
                for tool in SANITIZERS]
        result: dict = {}
        with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) // 2)) as pool:
            for (tool, chapter, _, model), done in zip(runs, pool.map(sanitized, runs)):
                lines = [line for line in done.stdout.splitlines() if "SUMMARY" in line] or [done.stderr.strip()]
                result.setdefault(model.stem, {}).setdefault(chapter, {})[tool] = lines[-1].lstrip("= ")
                if done.returncode != 0 or "SUMMARY" not in lines[-1]:
                    self.problem(f"{model.stem}, {chapter}: {tool}, exit status {done.returncode}: {lines[-1]}")
        self.say(f"{len(runs)} runs under compute-sanitizer")
        return result


def counted(output: str) -> list[dict]:
    """The launches in what `ncu --csv --page raw` prints among other lines: their kernels and counters."""
    from minfer_tools.lab import short_name

    lines = output.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(line for line in lines[begin:] if line.startswith('"')))
    return [{"kernel": short_name(row["Kernel Name"]),
             "counters": {key: int(float(row[metric].replace(",", ""))) for key, metric in COUNTERS.items()}}
            for row in rows if row["ID"]]  # the first row has the units


def sanitized(run: tuple[str, str, Path, Path]) -> subprocess.CompletedProcess:
    tool, _, program, model = run
    return subprocess.run(
        ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", str(program), "--print-ids", "--ignore-eos",
         str(model), "4", "40", "79", "264"], capture_output=True, text=True, check=False, timeout=300)


def rates(program: Path, model: Path) -> dict[str, float]:
    """Tokens a second of a prompt and of decoding, a sample each, warmed up."""
    done = subprocess.run(
        [str(program), "bench", "--model", str(model), "-p", "512", "-n", "128", "-r", "1", "-o", "jsonl"],
        capture_output=True, text=True, check=True, timeout=600)
    return {line["test"]: line["median_ts"] for line in map(json.loads, done.stdout.splitlines())}


def machine() -> dict:
    """The GPU and its driver, as nvidia-smi has them; empty where there is none."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw",
             "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        return {}
    names = ("gpu", "driver", "sm_clock", "memory_clock", "temperature", "power")
    return dict(zip(names, (word.strip() for word in done.stdout.split(","))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="where the programs are")
    parser.add_argument("--models", type=Path, required=True, help="where the models are")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS[:-1]))
    parser.add_argument("--chapters", nargs="+", metavar="NAME", help="these instead of all")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each chapter in tg128 (5)")
    options = parser.parse_args()
    check = Check(options, json.loads(whole_model.HASHES.read_text(encoding="utf-8")))
    for part in options.parts:
        try:
            check.found[part] = getattr(check, part)()
            if not check.found[part]:
                check.problem(f"{part}: nothing was run: neither program nor model is where it was looked for")
        except (whole_model.Skip, RuntimeError, subprocess.SubprocessError) as error:
            check.problem(f"{part}: {error}")
        # Written after every part: a machine that is lent for minutes may go at any time.
        check.found["problems"] = check.problems
        options.out.write_text(json.dumps(check.found, indent=1) + "\n", encoding="utf-8")
    print(f"{len(check.problems)} problems; written to {options.out}")
    return 1 if check.problems else 0


if __name__ == "__main__":
    sys.exit(main())
