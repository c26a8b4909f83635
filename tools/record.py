#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures chapters whose programs are built already, and records what it measured.

Needs Python's standard library and nothing else, so that it also runs on a machine that got no more than
the programs and the models. `./minfer bench` is the same with building and fetching.

examples:
  tools/record.py --build-dir build --chapters all --model coder-0.5b=model.gguf
  tools/record.py --build-dir build --chapters 02-07 --model 1.5b=a.gguf --model 3b=b.gguf -p 512
  tools/record.py --build-dir build --chapters 07 --model coder-0.5b=model.gguf --llama-cpp llama/build/bin \\
      --heads stock,q4_0 --fa 0,1 --commit 0123abc --out results
  tools/record.py --take results        what another machine wrote there, into the records of this checkout
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minfer_tools.command_line import Parser, tool
from minfer_tools.errors import Failure
from minfer_tools.measure import records, sitting, tables
from minfer_tools.measure.options import USAGE, add_tests, measure, named_model, select
from minfer_tools.measure.programs import progress


def parse(words: list[str] | None) -> argparse.Namespace:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(prog="record.py", description=summary, epilog=details, allow_abbrev=False)
    parser.add_argument("--take", type=Path, metavar="DIR", help="measure nothing: take over the records in DIR")
    parser.add_argument("--build-dir", type=Path, metavar="DIR", help="where the programs are")
    parser.add_argument("--chapters", metavar="LIST", help="all, oracle, 05, 02-07, or several with commas")
    parser.add_argument("--model", action="append", type=named_model, metavar="NAME=PATH",
                        help="a GGUF file and what it is called in the record (a synthetic one says it itself); "
                             "again for more")
    parser.add_argument("--name", help="what the only --model is called, where it was given as a path")
    parser.add_argument("--out", type=Path, default=records.CHAPTERS, metavar="DIR",
                        help="where NN-slug/results/MACHINE.json is written (default: chapters)")
    add_tests(parser)
    arguments = parser.parse_args(words)
    missing = [f"--{name.replace('_', '-')}" for name in ("build_dir", "chapters", "model") if not getattr(arguments, name)]
    if missing and not arguments.take:
        parser.error(f"{', '.join(missing)}: needed to measure")
    return arguments


def take(source: Path, out: Path) -> None:
    """Writes another machine's records beside those that are here. @throws Failure where there are none"""
    found = records.load_all(source)
    if not found:
        raise Failure(f"--take: {source} has no NN-slug/results/MACHINE.json", USAGE)
    for record in found:
        progress(f"wrote {records.write(out, record)}")


@tool("record.py", interrupted="interrupted; nothing was recorded")
def main(words: list[str] | None = None) -> None:
    arguments = parse(words)
    if arguments.take:
        return take(arguments.take, arguments.out)
    models = arguments.model
    if arguments.name:
        if len(models) != 1:
            raise Failure("--name: names one model; give several as --model NAME=PATH", USAGE)
        models = [sitting.NamedModel(arguments.name, models[0].path)]
    subjects = select(arguments.chapters, arguments.build_dir)
    measured = measure(subjects, models, arguments, arguments.build_dir)
    for record in measured:
        progress(f"wrote {records.write(arguments.out, record)}")
    print(tables.sitting_table(measured), end="")


if __name__ == "__main__":
    sys.exit(main())
