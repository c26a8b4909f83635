#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Speculation against plain decoding: five prompts, each to its end of turn, with SPEC=0 and SPEC=1.

The output must be the same, token for token; the decode speeds of both are printed. Exit status: 0 the
same, 1 not the same, 77 no chapter with SPEC can run here.

examples:
  MODEL=model.gguf tools/specbench.sh
  tools/specbench.sh --model coder-0.5b --chapter 08 -n 256
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys

from minfer_tools.command_line import Parser, tool
from minfer_tools.errors import Failure
from minfer_tools.measure import tables
from minfer_tools.measure.records import CHAPTERS, ROOT

SKIPPED = 77
PROMPTS = {
    "prose": "Explain how a lighthouse works to a ten-year-old, in one paragraph.",
    "code": "Write a Python function is_prime(n) and three pytest tests for it.",
    "list": "List the first 20 prime numbers, one a line, each with its index.",
    "rewrite": "Rewrite this list as a JSON array of objects with the fields name, count and unit:\n"
               "apples 12 pieces\nflour 3 kilograms\nmilk 2 litres\nnails 200 pieces\nrope 15 metres\npaint 4 litres",
    "copy": "Repeat these lines exactly, then say which is the longest:\n"
            "The harbour lamp is lit at six.\nThe ferry leaves the pier at seven.\nThe gulls have gone before the rain.",
}


def with_speculation() -> list[str]:
    """The chapters whose engine honours SPEC, by number."""
    return [path.parent.name[:2] for path in sorted(CHAPTERS.glob("[0-9][0-9]-*/engine.cu"))
            if re.search(r'"SPEC"', path.read_text(encoding="utf-8"))]


def decode_speed(messages: str) -> float:
    """The tok/s of the line that `run` says about decoding."""
    match = re.search(r"decode: .*\(([\d.]+) tok/s\)", messages)
    if not match:
        raise Failure(f"expected a line about decoding, found {messages.strip()[-80:]!r}")
    return float(match[1])


def generate(arguments: argparse.Namespace, chapter: str, prompt: str, spec: int) -> tuple[str, float]:
    """The generated ids and the speed."""
    command = [ROOT / "minfer", "run", "--chapter", chapter, "--print-ids", "-n", str(arguments.n), "--spec", str(spec)]
    if arguments.model:
        command += ["--model", arguments.model]
    done = subprocess.run([sys.executable, *command, "--", prompt], capture_output=True, text=True,
                          env={name: value for name, value in os.environ.items() if name != "SPEC"})
    if done.returncode:
        raise Failure(f"run failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}", done.returncode)
    return done.stdout.strip(), decode_speed(done.stderr)


@tool("specbench")
def main(words: list[str] | None = None) -> int:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(prog="specbench", description=summary, epilog=details)
    parser.add_argument("--model", metavar="NAME|PATH", help="(also: MODEL)")
    parser.add_argument("--chapter", metavar="NN", help="default: the newest with SPEC")
    parser.add_argument("-n", type=int, default=256, help="tokens at most (%(default)s)")
    arguments = parser.parse_args(words)
    able = with_speculation()
    chapter = arguments.chapter or (able[-1] if able else None)
    if not chapter or chapter not in able:
        print(f"specbench: {'chapter ' + chapter + ' has no' if chapter else 'no chapter has'} SPEC: nothing to compare",
              file=sys.stderr)
        return SKIPPED
    rows, same = [], True
    for name, prompt in PROMPTS.items():
        (plain, slow), (drafted, fast) = (generate(arguments, chapter, prompt, spec) for spec in (0, 1))
        same &= plain == drafted
        rows.append([name, "yes" if plain == drafted else "NO", str(len(plain.split())), tables.speed(slow),
                     tables.speed(fast), f"{fast / slow:.2f}"])
    print(tables.markdown(["prompt", "same output", "tokens", "plain, tok/s", "SPEC=1, tok/s", "ratio"], rows, left=2), end="")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
