# SPDX-License-Identifier: MIT
"""Every command line of the project in Python, when standard output is a full disk or a pipe that nobody reads,
and when a file can't be as long as it should: one line and a status that says so, or quiet, and no half of a file."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from minfer_tools.command_line import Parser, exit_status, tool
from minfer_tools.errors import Failure
from minfer_tools.whole_file import replace_text, replacing

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


def start(words, unbuffered: str, stdout, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "tools" / words[0], *words[1:]], stdout=stdout, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, timeout=60,
                          env={**os.environ, "PYTHONUNBUFFERED": unbuffered}, **kwargs)


def files_of_at_most(n: int):
    """What a program does first, to be under a limit on the size of files (`ulimit -f`)."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))


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


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("there", [{}, {"model.gguf": b"before"}], ids=["new", "replaced"])
def test_a_model_beyond_the_file_size_limit_is_not_half_written(tmp_path, there):
    for name, data in there.items():
        (tmp_path / name).write_bytes(data)
    done = start(("make_model", tmp_path / "model.gguf"), "", subprocess.DEVNULL, preexec_fn=files_of_at_most(10000))
    assert (done.returncode, done.stderr) == (1, f"make_model: {tmp_path}/model.gguf.partial: File too large\n")
    assert contents(tmp_path) == there


def test_a_record_beyond_the_file_size_limit_is_what_it_was(tmp_path):
    source, out = tmp_path / "new", tmp_path / "out"
    committed = min((ROOT / "chapters").glob("*/results/*.json"))
    for folder, text in ((source, committed.read_bytes()), (out, committed.read_bytes()[:-1] + b" \n")):
        path = folder / committed.relative_to(ROOT / "chapters")
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
    before = contents(out)
    done = start(("record.py", "--take", source, "--out", out), "", subprocess.DEVNULL, preexec_fn=files_of_at_most(100))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert re.fullmatch(r"record\.py: /.*\.json\.partial: File too large\n", done.stderr)
    assert contents(out) == before
    assert start(("record.py", "--take", source, "--out", out), "", subprocess.DEVNULL).returncode == 0
    assert contents(out).keys() == before.keys() and contents(out) != before


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    replace_text(path, "old")
    with pytest.raises(ValueError):
        with replacing(path) as file:
            file.write(b"ne")
            raise ValueError
    with pytest.raises(OSError) as failure:
        with replacing(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert failure.value.filename == f"{path}.partial"
    assert contents(tmp_path) == {"file": b"old"}
    replace_text(path, "new")
    assert contents(tmp_path) == {"file": b"new"}


def test_a_file_that_can_not_be_read_is_named(capfd, tmp_path):
    assert exit_status("tool", lambda: len((tmp_path / "absent").read_bytes())) == 1
    assert capfd.readouterr().err == f"tool: {tmp_path}/absent: No such file or directory\n"
    assert exit_status("tool", lambda: 77) == 77


def test_what_ends_a_tool_is_one_line_and_its_status(capfd):
    for error, line, status in ((Failure("no such model", 2), "no such model", 2), (Failure("it failed"), "it failed", 1),
                                (KeyboardInterrupt(), "interrupted; nothing is left", 130)):
        @tool("tool", interrupted="interrupted; nothing is left")
        def main(error):
            raise error

        assert (main(error), capfd.readouterr()) == (status, ("", f"tool: {line}\n"))
    assert tool("tool", failed=2)(main)(BrokenPipeError()) == 0
