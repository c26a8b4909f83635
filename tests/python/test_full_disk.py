# SPDX-License-Identifier: MIT
"""Every command line of the project in Python, when standard output is a full disk or a pipe that nobody reads:
one line and a status that says so, or quiet."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minfer_tools.command_line import Parser, exit_status

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted(path for path in (ROOT / "tools").iterdir()
               if path.is_file() and re.search(r"^from minfer_tools\.command_line import|^import argparse|^from argparse",
                                               path.read_text(encoding="utf-8"), re.M))
# chapter_diff's status 1 says that there is a difference, as diff's does.
COMMANDS = {**{(path.name, "--help"): 2 if path.name == "chapter_diff.py" else 1 for path in TOOLS},
            ("../docs/build.py", "--help"): 1, ("../minfer", "--help"): 1, ("../minfer", "run", "--help"): 1,
            ("../minfer", "--version"): 1, ("../minfer",): 1, ("../minfer", "chapters"): 1,
            ("get_model", "--list"): 1, ("lint_chapters.py", "--list"): 1, ("chapter_diff.py", "02", "03"): 2}

needs_full = pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
# With this variable Python writes through at once; without, what is written fails when it is flushed.
buffered = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])


def start(words, unbuffered: str, stdout) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "tools" / words[0], *words[1:]], stdout=stdout, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, timeout=60, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})


def test_there_are_tools():
    assert {"get_model", "make_model", "record.py", "propagate.py"} <= {path.name for path in TOOLS}


@needs_full
@buffered
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_line_and_a_failure(words, unbuffered):
    with open("/dev/full", "w") as full:
        done = start(words, unbuffered, full)
    assert done.returncode == COMMANDS[words], done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.endswith(": No space left on device\n")


@buffered
@pytest.mark.parametrize("words", [("../minfer", "--help"), ("record.py", "--help"), ("lint_chapters.py", "--list")],
                         ids=" ".join)
def test_a_reader_that_has_gone_is_no_error(words, unbuffered):
    reading, writing = os.pipe()
    os.close(reading)
    done = start(words, unbuffered, writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_still_goes_where_it_went(capfd):
    with pytest.raises(SystemExit) as ended:
        Parser(prog="tool", description="Does it.").parse_args(["--help"])
    assert ended.value.code == 0 and "Does it." in capfd.readouterr().out
    with pytest.raises(SystemExit) as ended:
        Parser(prog="tool").parse_args(["--nonsense"])
    out, err = capfd.readouterr()
    assert ended.value.code == 2 and out == "" and "unrecognized arguments: --nonsense" in err


def test_a_file_that_can_not_be_read_is_named(capfd, tmp_path):
    assert exit_status("tool", lambda: len((tmp_path / "absent").read_bytes())) == 1
    assert capfd.readouterr().err == f"tool: {tmp_path}/absent: No such file or directory\n"
    assert exit_status("tool", lambda: 77) == 77
