# SPDX-License-Identifier: MIT
"""Running the chapters' programs, and reading what they print."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ..command_line import ending
from ..errors import Failure


@dataclass(frozen=True)
class Plan:
    """llama-bench's options: prompt lengths, new tokens, depths, samples of each test."""

    n_prompt: str = "512"
    n_gen: str = "128"
    depth: str = "0"
    repetitions: int = 5

    def arguments(self) -> list[str]:
        return ["-p", self.n_prompt, "-n", self.n_gen, "-d", self.depth, "-r", str(self.repetitions)]


@dataclass
class Test:
    """One test's samples, in the order in which they were taken."""

    name: str
    n_prompt: int
    n_gen: int
    n_depth: int
    samples_ns: list[int] = field(default_factory=list)
    bytes_per_token: int | None = None  # of weights and KV cache that a step reads, the mean of its positions
    breakdown: dict | None = None  # a step by kernel, as the program prints it

    @property
    def tokens(self) -> int:
        return self.n_prompt + self.n_gen

    def speeds(self) -> list[float]:
        """Tokens per second, a sample each."""
        return [self.tokens * 1e9 / sample for sample in self.samples_ns]

    @property
    def speed(self) -> float:
        return self.tokens * 1e9 / median(self.samples_ns)


def run_program(command: list, environment: dict | None = None, quiet: bool = False) -> str:
    """What a program prints. Its messages pass through to standard error, or when `quiet` are kept and
    shown only where it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE if quiet else None,
                              text=True, env=environment, check=False)
    except OSError as error:
        raise Failure(f"{words[0]}: {error.strerror}") from None
    if done.returncode in (130, -signal.SIGINT):
        raise KeyboardInterrupt
    if done.returncode:
        said = (done.stderr or "").strip().splitlines()
        reason = f": {said[-1]}" if said else "" if done.returncode < 0 else "; its messages are above"
        raise Failure(f"{Path(words[0]).name} failed with {ending(done.returncode)}{reason}")
    return done.stdout


def json_lines(text: str, program: str) -> list[dict]:
    """The JSON objects that a program printed, one a line."""
    found = []
    for line in filter(str.strip, text.splitlines()):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise Failure(f"{program} printed {line[:60]!r}, expected a JSON object") from None
    return found


def bench_command(program: Path, model: Path, plan: Plan, extra: list[str]) -> list[str]:
    return [str(program), "bench", "--model", str(model), *plan.arguments(), "-o", "jsonl", *extra]


def bench(program: Path, model: Path, plan: Plan, extra: list[str], environment: dict | None = None) -> list[dict]:
    """One run of a chapter's program: its lines, a test each."""
    command = bench_command(program, model, plan, extra)
    lines = json_lines(run_program(command, environment), program.name)
    if not lines:
        raise Failure(f"{program.name} bench printed no result")
    return lines


def engine_options(program: Path) -> list[str]:
    """The variables that a program's engine takes as options, by its help."""
    named = re.findall(r"\(also:\s+([A-Z]+)\)", run_program([program, "bench", "--help"]))
    return [name for name in named if name != "MODEL"]


def add_samples(tests: dict[str, Test], lines: list[dict]) -> None:
    """Puts a run's samples behind those of the runs before it."""
    for line in lines:
        test = tests.setdefault(line["test"], Test(line["test"], line["n_prompt"], line["n_gen"], line["n_depth"]))
        test.samples_ns += line["samples_ns"]
        if test.n_gen:  # a prompt reads its weights once for many tokens
            test.bytes_per_token = line.get("bytes_per_token")


def stream_gb_per_s(program: Path, extra: list[str]) -> float:
    """The rate at which the CPU's memory streams, as the program measures it."""
    lines = json_lines(run_program([program, "bench", "--stream", "-o", "jsonl", *extra]), program.name)
    return lines[0]["median_gb_per_s"]


def shown(command: list) -> str:
    """A command line without the folders of this machine."""
    return shlex.join(Path(word).name if "/" in str(word) else str(word) for word in command)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
