# SPDX-License-Identifier: MIT
"""Builds the documentation site: Doxygen, the pages made from the checkout, then Sphinx. Any warning fails.

examples:
  python docs/build.py build/docs
  python docs/build.py build/docs --no-epub
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]

from minfer_tools.command_line import Parser  # noqa: E402


def sphinx(out: Path, source: Path, builder: str, jobs: str) -> int:
    """Runs one of Sphinx's builders with every reference checked and every warning an error."""
    from sphinx.cmd.build import build_main
    return build_main(["-b", builder, "-n", "-W", "--keep-going", "-q", "-j", jobs, "-c", str(HERE),
                       "-d", str(out / "doctrees" / builder), str(source), str(out / builder)])


def build(out: Path, arguments: argparse.Namespace) -> int:
    """Writes the pages and runs Sphinx over them; the exit status."""
    from minfer_docs import assemble, doxygen, drawings, fonts  # here, since --help is to work without Sphinx
    os.environ["MINFER_DOCS_OUT"] = str(out)
    start = time.monotonic()
    try:
        doxygen.run_all(out)
        fonts.make(out)
        source = assemble.assemble(out)
    except (doxygen.DocsError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.figures:
        for path in drawings.for_readmes(HERE / "figures"):
            print(f"wrote {path}")
    if arguments.pages_only:
        return 0
    # A book is all that lies in its folder.
    shutil.rmtree(out / "epub", ignore_errors=True)
    for builder in ("html", *(("epub",) if arguments.epub else ())):
        if sphinx(out, source, builder, arguments.j):
            return 1
        print(f"{builder}: {out / builder}, {time.monotonic() - start:.0f} s", flush=True)
    return 0


def main() -> int:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(description=summary, epilog=details)
    parser.add_argument("out", type=Path, help="where to build: OUT/html is the site, OUT/epub/minfer.epub the book")
    parser.add_argument("--no-epub", dest="epub", action="store_false", help="the site alone")
    parser.add_argument("--figures", action="store_true", help="and the README files' drawings, in docs/figures")
    parser.add_argument("--pages-only", action="store_true", help="stop when the pages are written, before Sphinx")
    parser.add_argument("-j", default="auto", metavar="N", help="processes (default: as many as CPUs)")
    arguments = parser.parse_args()
    try:
        return build(arguments.out.resolve(), arguments)
    except ModuleNotFoundError as error:
        print(f"docs/build.py: {error.name} is not installed (docs/requirements.txt; ./minfer docs installs what it needs)",
              file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
