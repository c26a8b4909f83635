# SPDX-License-Identifier: MIT
"""Whether an engine that is measured computes the right thing: agreement with llama.cpp under teacher
forcing on the committed reference prompts, and the hash of its logits there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failure
from .programs import run_program

REFERENCES = Path(__file__).resolve().parents[3] / "tests" / "reference"
REFERENCE_OF = {"coder-0.5b": "llama_cpp_0.5b.json", "coder-1.5b": "llama_cpp_1.5b.json"}


@dataclass(frozen=True)
class Forced:
    """A teacher-forced pass: the token that each position predicts, and the logits' hash."""

    predictions: dict[int, int]
    logits_hash: str
    rows: int


def parse_forced(text: str) -> Forced:
    predictions, digest, rows = {}, "", 0
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["logits-hash"]:
            digest, rows = words[1], int(words[3])
        elif len(words) == 3:
            predictions[int(words[0])] = int(words[1])
    if not digest:
        raise Failure(f"a teacher-forced pass ended with {text[-60:]!r}, expected a logits-hash line")
    return Forced(predictions, digest, rows)


def force(program: Path, model: Path, case: dict, extra: list[str], environment: dict | None) -> Forced:
    """One prompt with the reference's answer forced after it."""
    ids = " ".join(map(str, [*case["prompt_ids"], *case["f32"]["ids"]]))
    return parse_forced(run_program([program, "run", "--model", model, "--teacher", len(case["prompt_ids"]),
                                     "--prompt-ids", ids, *extra], environment, quiet=True))


def check_case(program: Path, model: Path, case: dict, extra: list[str], environment: dict | None) -> dict:
    """How often the engine predicts the reference's next token, the reference's own tokens before it."""
    answer, forced = case["f32"]["ids"], force(program, model, case, extra, environment)
    first = len(case["prompt_ids"]) - 1
    agree = sum(forced.predictions[first + i] == token for i, token in enumerate(answer))
    return {"tokens": len(answer), "agree": agree, "logits_hash": forced.logits_hash, "rows": forced.rows}


def check(program: Path, model: Path, name: str, extra: list[str], environment: dict | None,
          limit: int | None = None) -> dict | None:
    """A record's `correctness`; None for a model that has no reference. @param limit  the first cases only"""
    if name not in REFERENCE_OF:
        return None
    file = REFERENCES / REFERENCE_OF[name]
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"][:limit]
    checked = [check_case(program, model, case, extra, environment) for case in cases]
    return {
        "reference": f"tests/reference/{file.name}",
        "tokens": sum(case["tokens"] for case in checked),
        "agree": sum(case["agree"] for case in checked),
        "cases": checked,
    }
