# SPDX-License-Identifier: MIT
"""llama.cpp's own benchmark, as another engine of a sitting."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failure
from .programs import Plan, json_lines, run_program

HEADS = ("stock", "q4_0", "f32")
BUILD_FILE = "minfer-build.json"  # which llama.cpp, and how it was built


@dataclass(frozen=True)
class Peer:
    """One way to run llama.cpp: its head ("f32": that and all other weights) and whether it uses flash
    attention."""

    programs: Path
    model: Path
    head: str
    flash_attention: int

    @property
    def title(self) -> str:
        return f"llama.cpp, {self.head} head, -fa {self.flash_attention}"

    def command(self, plan: Plan, extra: list[str]) -> list[str]:
        return [str(self.programs / "llama-bench"), "-m", str(self.model), *plan.arguments(),
                "-fa", str(self.flash_attention), "-o", "jsonl", *extra]


def build_settings(programs: Path) -> dict[str, str]:
    """What tools/build_llama_cpp wrote beside the programs; nothing where they were built in another way."""
    file = programs / BUILD_FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def test_name(n_prompt: int, n_gen: int, depth: int) -> str:
    return (f"pp{n_prompt}" if n_prompt else f"tg{n_gen}") + (f" @ d{depth}" if depth else "")


def bench(peer: Peer, plan: Plan, extra: list[str]) -> list[dict]:
    """One run: llama-bench's records, with its tests' names."""
    lines = json_lines(run_program(peer.command(plan, extra)), "llama-bench")
    if not lines:
        raise Failure("llama-bench printed no result")
    try:
        return [line | {"test": test_name(line["n_prompt"], line["n_gen"], line["n_depth"])} for line in lines]
    except KeyError as error:
        raise Failure(f"llama-bench printed no {error}, which this project needs") from None


def quantize(programs: Path, source: Path, target: Path, kind: str, head: str | None = None) -> Path:
    """Writes `source` in another type: F32, or Q4_0 with a head of `head`'s type."""
    options = ["--allow-requantize"]
    if head:
        options += ["--output-tensor-type", head, "--token-embedding-type", head]
    run_program([programs / "llama-quantize", *options, source, target, kind], quiet=True)
    return target


def peers(programs: Path, model: Path, heads: list[str], flash: list[int], folder: Path) -> list[Peer]:
    """All combinations. What is not in the file is made in `folder`: "q4_0", a head of that type, and "f32",
    all weights dequantized."""
    found = []
    for head in heads:
        file = model
        if head == "f32":
            file = quantize(programs, model, folder / f"{model.stem}-f32.gguf", "F32")
        elif head != "stock":
            file = quantize(programs, model, folder / f"{model.stem}-{head}-head.gguf", "Q4_0", head)
        found += [Peer(programs, file, head, fa) for fa in flash]
    return found
