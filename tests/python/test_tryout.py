# SPDX-License-Identifier: MIT
"""`minfer try`: what it says of a chapter that is right, wrong, does not compile, crashes or hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli import build, chapters, tryout
from minfer_tools.errors import Failure

ROOT = Path(__file__).resolve().parents[2]


def attempt(*words: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "minfer", "try", *map(str, words)], capture_output=True, text=True,
                          timeout=600)


def dp4a():
    return chapters.find("05", chapters.discover())


# --- what Catch2 says

HEAD = '<?xml version="1.0"?><Catch name="t"><Group name="t"><TestCase name="embed"><OverallResult success="true"/></TestCase>'
WRONG = """<TestCase name="add, and swiglu"><Info>n 5,
 tokens 1</Info><Expression success="false" type="REQUIRE" filename="/c/kernels_test.cu" line="12">
<Original>worst &lt;= tolerance</Original><Expanded>%s</Expanded></Expression>"""


@pytest.mark.parametrize("rest, expected", [
    ("</Group></Catch>", (1, "embed", "")),
    (WRONG % "2 &lt;= 1",
     (2, "add, and swiglu", "n 5, tokens 1: expected worst <= tolerance, found 2 <= 1 (/c/kernels_test.cu:12)")),
    (WRONG % ("{ 1, 2 }" * 50),
     (2, "add, and swiglu", "n 5, tokens 1: expected worst <= tolerance (/c/kernels_test.cu:12)")),
    ('<TestCase name="rope"><Info>head_dim 32</Info><Exception filename="/c/t.cu" line="3">emulator: kernel rope</Exception>',
     (2, "rope", "head_dim 32: emulator: kernel rope")),
    ('<TestCase name="rope"><FatalErrorCondition filename="/c/t.cu" line="3">SIGFPE</FatalErrorCondition>',
     (2, "rope", "SIGFPE")),
    ('<TestCase name="rope">', (2, "rope", "")),
])
def test_the_first_failure_is_read_and_where_the_program_ended(rest, expected):
    assert tryout.read_report((HEAD + rest).encode()) == expected


# --- what the compiler says


@pytest.mark.parametrize("said, line", [
    ("{root}/chapters/a/gemv.cuh:7:9: error: no such thing", "{root}/chapters/a/gemv.cuh:7:9: error: no such thing"),
    ("In file included from {root}/chapters/a/x.cu:1,\n"
     "{root}/common/cuda/emulator/atomics.h: In instantiation of 'T atomicAdd(T*)':\n"
     "{root}/common/cuda/reduce.h:56:63:   required from 'float block_sum(float)'\n"
     "{root}/chapters/a/kernels.cuh:29:41:   required from here\n"
     "{root}/common/cuda/emulator/atomics.h:25:12: error: static assertion failed: no float",
     "{root}/common/cuda/reduce.h:56:63: error: static assertion failed: no float"),
    ("/usr/bin/ld: engine.cpp:(.text[f]+0x69): undefined reference to `f()'", "undefined reference to `f()'"),
])
def test_a_build_that_fails_says_the_place_first(said, line, tmp_path):
    log = tmp_path / "build.log"
    log.write_text(said.format(root=tmp_path))
    error = said.splitlines()[-1].format(root=tmp_path)
    complaint = tryout.complaint(f"the build failed (exit status 1): {error}; all of its output: {log}", tmp_path)
    assert complaint.splitlines()[0] == tryout.shown(line.format(root=tmp_path), tmp_path)
    assert str(log.name) in complaint.splitlines()[1]


# --- programs that do not end


def test_a_program_that_hangs_is_ended(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tryout, "SECONDS", 0.5)
    program = tmp_path / "test"
    program.write_text(f"#!/bin/sh\ntrap '' TERM\necho '{HEAD}<TestCase name=\"rope\">'\nsleep 60\n")
    program.chmod(0o755)
    assert tryout.wrong_kernel(program, tmp_path) == ("rope", True)
    assert capsys.readouterr().out == "kernels  wrong: rope: had not ended after 0.5 s\n"
    assert tryout.whole_model([program], False) is None
    assert capsys.readouterr().out == "logits   none: had not ended after 0.5 s\ntokens   none\n"


# --- the copy


def test_a_copy_is_made_once_and_takes_another_chapter(tmp_path):
    folder = tmp_path / "mine"
    assert tryout.copy_of(dp4a(), folder) == folder
    edited = folder / "chapters" / "05-dp4a" / "gemv.cuh"
    edited.write_text("edited")
    tryout.copy_of(dp4a(), folder)
    tryout.copy_of(chapters.find("02", chapters.discover()), folder)
    assert edited.read_text() == "edited"
    assert sorted(path.name for path in (folder / "chapters").iterdir()) == ["01-reference", "02-naive", "05-dp4a"]
    assert not list(folder.glob(".copy-*")) and not (folder / "chapters" / "05-dp4a" / "results").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letter").touch()
    with pytest.raises(Failure, match=r"--in .*: found something else, expected a folder that try made, or none"):
        tryout.copy_of(dp4a(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_a_patch_is_applied_to_the_copy_once(tmp_path):
    chapter = chapters.find("06", chapters.discover())
    copied = tryout.in_copy(chapter, tmp_path / "mine")
    file = copied.path / "attention.cuh"
    before = file.read_text()
    tryout.apply(tryout.patch_of(chapter, "faults/sometimes"), copied.path)
    patched = file.read_text()
    tryout.apply(tryout.patch_of(chapter, "faults/sometimes"), copied.path)
    assert file.read_text() == patched and len(patched.splitlines()) == len(before.splitlines()) - 1
    assert (chapter.path / "attention.cuh").read_text() == before
    with pytest.raises(Failure, match="values-first.patch does not fit .*, which was changed otherwise; another folder"):
        tryout.apply(tryout.patch_of(chapter, "solutions/values-first"), copied.path)
    assert file.read_text() == patched


@pytest.mark.parametrize("words, complaint", [
    (["06", "--patch", "faults/sometimes"], "--patch: is applied to a copy; expected --in DIR as well"),
    (["06", "--in", "mine", "--patch", "faults/none"], "--patch: found 'faults/none', expected one of 06-fused-attention's: "),
    (["06", "--in", "mine", "--patch", "../05-dp4a/faults/old"], "--patch: found '../05-dp4a/faults/old', expected one of "),
    (["first", "--patch", "faults/old"], "--in, --patch: found one with 'first', expected it with a chapter"),
])
def test_a_patch_that_is_not_the_chapters_is_wrong_usage(words, complaint, tmp_path):
    done = attempt(*[tmp_path / word if word == "mine" else word for word in words])
    assert done.returncode == 2 and done.stdout == "" and complaint in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("chapter, complaint", [("01", "minfer: try: 01-reference has no kernels"),
                                                ("77", "minfer: no chapter '77'")])
def test_a_chapter_without_kernels_is_wrong_usage(chapter, complaint):
    done = attempt(chapter)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith(complaint)


# --- a chapter, edited


RIGHT = """\
kernels  right: 11 tests under 3 schedules
logits   the recorded bits, on 5 small models
tokens   equal, all 31
"""


@pytest.mark.emulated
def test_the_chapter_as_it_is_is_right():
    if not (build.folder() / "dp4a-emulated").exists():
        pytest.skip("the emulated chapters are not built")
    done = attempt("05")
    assert (done.returncode, done.stdout.partition("next")[0]) == (0, RIGHT), done.stderr


@pytest.mark.emulated
def test_edits_are_told_apart(tmp_path):
    if not (build.folder() / "dp4a-emulated").exists():
        pytest.skip("the emulated chapters are not built")
    folder = tryout.copy_of(dp4a(), tmp_path / "mine")
    file = folder / "chapters" / "05-dp4a" / "gemv.cuh"
    before = file.read_text()

    def edited(old: str, new: str) -> subprocess.CompletedProcess:
        assert before.count(old) == 1
        file.write_text(before.replace(old, new))
        return attempt("05", "--in", folder)

    loop = "for (std::uint32_t b = lane; b < K / 32; b += 32) {"
    done = edited(loop, loop.replace("lane;", "(lane & 26) | (lane & 1) << 2 | (lane >> 2 & 1);"))  # sums in another order
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == RIGHT.splitlines()[0] and lines[2] == RIGHT.splitlines()[2] and len(lines) == 4
    assert lines[1].startswith("logits   other bits, but by rounding alone: off by ")

    done = edited(loop, "for (std::uint32_t b = lane; b < K / 32 - 1; b += 32) {")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and len(lines) == 4
    assert lines[0].startswith("kernels  wrong: gemv_q4_0 is the oracle's gemv of the quantized activations: 1 x 32, ")
    assert lines[1].startswith("logits   wrong: off by ") and lines[2].startswith("tokens   part at tiny-a, position ")

    done = edited("sum = warp_sum(sum);\n  if (lane == 0) y[t * M + m] = sum;\n}\n\n/// @pre W is Q4_0",
                  "if (lane > 3) sum = warp_sum(sum);\n  if (lane == 0) y[t * M + m] = sum;\n}\n\n/// @pre W is Q4_0")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and "kernel minfer::gemv_q4_0(" in lines[0] and "__shfl_xor_sync" in lines[0]

    done = edited(loop, loop.replace("lane;", "line;"))
    line = before[:before.index(loop)].count("\n") + 1
    assert done.returncode == 1
    assert f"chapters/05-dp4a/gemv.cuh:{line}:" in done.stdout.splitlines()[0].split(" ")[0]
