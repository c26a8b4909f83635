# SPDX-License-Identifier: MIT
"""`minfer compare`: the gate. Greedy tokens against llama.cpp's, on the same weights in F32."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cli import build, models, peer, run
from cli.console import DONE, FAILED, say
from minfer_tools import cache
from minfer_tools.command_line import ending, positive
from minfer_tools.errors import Failure
from minfer_tools.measure import correctness, llama
from minfer_tools.measure.programs import json_lines, run_program

EXAMPLES = """\
  ./minfer compare --model coder-0.5b
  ./minfer compare --model coder-0.5b --cases 2 -n 32
  ./minfer compare --chapter 05 --model some/file.gguf
  ./minfer compare --llama-cpp path/to/build/bin
"""
PROMPTS = correctness.REFERENCES / "llama_cpp_0.5b.json"  # the whole family has one vocabulary
F32_TIMES = 8  # at 4.5 bits a weight and more, an F32 copy is at most so much larger than the file


@dataclass(frozen=True)
class Case:
    """A prompt, and what llama.cpp and the engine made of it."""

    prompt: str
    expected: list[int]
    margins: list[float]
    found: list[int]

    @property
    def equal(self) -> bool:
        return self.found == self.expected

    def verdict(self) -> str:
        """The first difference, with how sure llama.cpp was there."""
        if self.equal:
            return f"{len(self.found)} tokens equal"
        pairs = zip(self.found, self.expected)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.found), len(self.expected)))
        if at >= min(len(self.found), len(self.expected)):
            return f"DIFFERENT length: {len(self.found)} tokens, llama.cpp {len(self.expected)}"
        return (f"DIFFERENT at token {at}: {self.found[at]}, llama.cpp {self.expected[at]} "
                f"(by {self.margins[at]} over its second)")


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `compare` takes besides --model and --no-install."""
    parser.add_argument("--chapter", default="oracle", metavar="NN|oracle", help="whose tokens (default: the oracle's)")
    parser.add_argument("--device", choices=("auto", "gpu", "emulator"), default="auto", help=argparse.SUPPRESS)
    parser.add_argument("--cases", type=positive, metavar="N", help="the first N reference prompts (default: all six)")
    parser.add_argument("-n", type=positive, default=128, metavar="N", help="tokens of each answer (%(default)s)")
    parser.add_argument("--threads", type=positive, metavar="T", help="CPU threads (default: one a usable CPU)")
    parser.add_argument("--llama-cpp", type=Path, metavar="DIR",
                        help="llama-quantize and ref_oracle (default: built from llama.cpp's package)")


def references(programs: Path, model: Path, prompts: list[list[int]], n: int, threads: int) -> list[dict]:
    """llama.cpp's greedy tokens and margins, on the weights as F32. The F32 file is large, and goes again."""
    folder = cache.minfer_cache()
    folder.mkdir(parents=True, exist_ok=True)
    cache.check_disk(folder, F32_TIMES * model.stat().st_size, f"{model.name} as F32")
    with tempfile.TemporaryDirectory(prefix="compare-", dir=folder) as place:
        say(f"dequantizing {model.name} to F32 (llama-quantize)")
        f32 = llama.quantize(programs, model, Path(place) / "f32.gguf", "F32")
        say(f"llama.cpp: {len(prompts)} prompts")
        lines = "".join(" ".join(map(str, ids)) + "\n" for ids in prompts)
        done = subprocess.run([programs / "ref_oracle", f32, str(n), str(threads)], input=lines,
                              stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(f"ref_oracle failed with {ending(done.returncode)}")
    answers = json_lines(done.stdout, "ref_oracle")
    if len(answers) != len(prompts):
        raise Failure(f"ref_oracle answered {len(answers)} of {len(prompts)} prompts")
    return answers


def generate(program: Path, model: Path, ids: list[int], n: int, threads: int) -> list[int]:
    """The engine's own greedy tokens."""
    text = run_program([program, "run", "--model", model, "-n", n, "--print-ids", "--threads", threads,
                        "--prompt-ids", " ".join(map(str, ids))], quiet=True)
    return [int(word) for word in text.split()]


def compare(arguments: argparse.Namespace) -> int:
    """Prints a line a prompt; fails where any token differs."""
    choice = run.choose(arguments.chapter, arguments.device)
    program = run.prepare(choice, (), arguments.install)
    model = models.resolve(arguments.model, arguments.install)
    programs = arguments.llama_cpp or peer.llama_cpp(False, arguments.install)
    threads = arguments.threads or build.usable_cpus()
    cases = json.loads(PROMPTS.read_text(encoding="utf-8"))["cases"][:arguments.cases]
    prompts = [case["prompt_ids"] for case in cases]
    expected = references(programs, model, prompts, arguments.n, threads)
    equal = 0
    for case, answer in zip(cases, expected):
        found = generate(program, model, case["prompt_ids"], arguments.n, threads)
        result = Case(case["prompt"], answer["ids"], answer["top2_margin"], found)
        equal += result.equal
        shown = " ".join(result.prompt.split())
        print(f"{result.verdict():60} {shown if len(shown) <= 50 else shown[:47] + '...'}", flush=True)
    print(f"{choice.target} on {os.path.basename(model)}: {equal} of {len(cases)} answers equal llama.cpp's")
    return DONE if equal == len(cases) else FAILED
