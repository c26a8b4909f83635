# SPDX-License-Identifier: MIT
"""`minfer docs`: the documentation site, built from the checkout."""

from __future__ import annotations

import argparse
import subprocess
import sys
import webbrowser
from pathlib import Path

from cli import ROOT, build, places, system, venv
from cli.console import run_to_end, say
from minfer_tools.errors import Failure


def folder() -> Path:
    return build.folder() / "docs"


def docs(arguments: argparse.Namespace) -> int:
    log = build.log_dir()
    system.ensure(system.DOCS_NEEDS, log, arguments.install)
    try:
        system.ensure(system.FONT_NEEDS, log, arguments.install)
    except Failure as failure:
        say(f"{failure}: the site takes the reader's own fonts")
    venv.ensure(venv.DOCS, log, arguments.install)
    build_site(arguments.epub)
    page = folder() / "html" / "index.html"
    print(page)
    if arguments.open and not webbrowser.open(page.as_uri()):
        say("no browser could be opened")
    return 0


def build_site(epub: bool = True) -> None:
    """Runs docs/build.py. Raises Failure where Doxygen or Sphinx has a single complaint."""
    words = [venv.python(), ROOT / "docs" / "build.py", "-j", build.usable_cpus(), folder(), *([] if epub else ["--no-epub"])]
    with places.turn(folder().with_suffix(".lock"), f"building {folder()}"):
        say(f"building the site: {folder()}")
        # Sphinx's complaints are for the person; where the site lies is this command's answer alone.
        if run_to_end("docs/build.py", words, stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode:
            raise Failure("the site has warnings or errors: they are above")
