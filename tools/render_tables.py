#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of the README files from chapters/*/results/*.json and tools/reported.json, their code from the sources.

A table stands between <!-- table: NAME --> and <!-- /table -->, code between <!-- code: FILE#NAME --> and <!-- /code -->;
nobody writes there by hand.

examples:
  tools/render_tables.py
  tools/render_tables.py --check        changes nothing; exit status 1 where a table is not as the records are
  tools/render_tables.py --plot         and the ladder's pictures, in docs/figures
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minfer_tools.command_line import Parser, tool
from minfer_tools.measure import plot, readme
from minfer_tools.measure.records import ROOT
from minfer_tools.whole_file import replace_text


@tool("render_tables.py")
def main(words: list[str] | None = None) -> int:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(prog="render_tables.py", description=summary, epilog=details)
    parser.add_argument("--check", action="store_true", help="change nothing, and fail where a table would change")
    parser.add_argument("--plot", type=Path, nargs="?", const=ROOT / readme.FIGURES, metavar="DIR",
                        help="draw the ladders as well, as SVG and PNG (default: docs/figures; needs matplotlib)")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    changed = readme.changes(arguments.root)
    for path, text in changed:
        name = path.relative_to(arguments.root)
        if arguments.check:
            print(f"{name}: its tables and its code are not what records and sources say: run tools/render_tables.py")
        else:
            replace_text(path, text)
            print(f"wrote {name}")
    if arguments.plot and not arguments.check:
        for path in plot.draw_all(readme.Sources.load(arguments.root), arguments.plot):
            print(f"wrote {path}")
    return 1 if arguments.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
