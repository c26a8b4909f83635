# SPDX-License-Identifier: MIT
"""tools/chapter_diff.py on toy chapters."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "chapter_diff.py"


@pytest.fixture
def root(tmp_path):
    lines = [f"line {n}\n" for n in range(1, 31)]
    changed = lines.copy()
    changed[6] = "line seven\n"
    changed.insert(20, "more\n")
    files = {
        "05-dp4a/engine.cu": "".join(lines),
        "05-dp4a/README.md": "five\n",
        "05-dp4a/main.cpp": "int main() {}\n",
        "05-dp4a/kernels_test.cu": "five\n",
        "06-fused/engine.cu": "".join(changed),
        "06-fused/README.md": "six\n",
        "06-fused/main.cpp": "int main() {}\n",
        "06-fused/kernels_test.cu": "six\n",
        "06-fused/kernels_bench.cu": "six\n",
        "06-fused/results/machine.json": "{}\n",
        "06-fused/dead-ends/slow.patch": "slow\n",
    }
    for name, text in files.items():
        path = tmp_path / "chapters" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def diff(root, *arguments, cwd="/"):
    return subprocess.run([sys.executable, TOOL, "--root", root, *arguments], cwd=cwd, capture_output=True, text=True,
                          check=False)


def test_shows_the_sources_with_relative_paths(root):
    done = diff(root, "05", "06")
    assert done.returncode == 1 and done.stderr == ""
    assert "--- 05-dp4a/engine.cu\n+++ 06-fused/engine.cu\n" in done.stdout
    assert "-line 7\n+line seven\n" in done.stdout
    assert str(root) not in done.stdout and "/tmp" not in done.stdout
    for left_out in ("README", "results", "dead-ends", "main.cpp", "kernels"):
        assert left_out not in done.stdout


def test_is_the_diff_that_git_shows(root):
    git = subprocess.run(["git", "diff", "--no-index", "chapters/05-dp4a/engine.cu", "chapters/06-fused/engine.cu"],
                         cwd=root, capture_output=True, text=True, check=False)
    hunks = git.stdout[git.stdout.index("@@"):]
    assert diff(root, "05", "06").stdout.endswith(hunks)


@pytest.mark.parametrize("name", ["6", "06", "06-fused", "fused", "chapters/06-fused", "chapters/06-fused/"])
def test_a_chapter_has_many_names(root, name):
    assert diff(root, "05", name).stdout == diff(root, "05", "06").stdout != ""


def test_one_name_means_the_chapter_before(root):
    assert diff(root, "06").stdout == diff(root, "05", "06").stdout
    first = diff(root, "05")
    assert first.returncode == 2 and "first chapter" in first.stderr


def test_no_difference_is_status_0(root):
    same = diff(root, "05", "05")
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")
    assert diff(root, "05", "05", "--stat").returncode == 0
    assert diff(root, "05", "06", "main.cpp").returncode == 0


def test_trouble_is_status_2_and_one_line(root):
    for arguments in ([], ["05", "17"], ["05", "06", "nothing.cu"], ["05", "06", "--nonsense"]):
        done = diff(root, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
    assert "there are: 05, 06" in diff(root, "05", "17").stderr
    assert diff(root, "05", "06", "--nonsense").stderr == "minfer diff: git diff: unknown option `nonsense'\n"


def test_all(root):
    everything = diff(root, "05", "06", "--all").stdout
    for name in ("README.md", "kernels_test.cu", "kernels_bench.cu", "results/machine.json", "dead-ends/slow.patch"):
        assert f"+++ 06-fused/{name}\n" in everything


def test_only_the_named_file(root):
    done = diff(root, "05", "06", "README.md")
    assert "-five" in done.stdout and "engine.cu" not in done.stdout


@pytest.mark.parametrize("words", [("--stat", "05", "06"), ("05", "--stat", "06"), ("05", "06", "--stat"), ("06", "--stat")])
def test_git_s_options_may_stand_anywhere(root, words):
    done = diff(root, *words)
    assert done.returncode == 1
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["{05-dp4a", "=>", "06-fused}/engine.cu", "|", "3", "++-"],
        ["1", "file", "changed,", "2", "insertions(+),", "1", "deletion(-)"]]


def test_color_only_when_asked_for_or_on_a_terminal(root):
    assert "\033[" not in diff(root, "05", "06").stdout
    assert "\033[32m" in diff(root, "05", "06", "--color=always").stdout


@pytest.mark.terminal
def test_a_terminal_gets_git_s_pager(root):
    reader, terminal = pty.openpty()
    environment = {**os.environ, "GIT_PAGER": "tr a-z A-Z", "TERM": "xterm"}
    subprocess.run([sys.executable, TOOL, "--root", root, "05", "06"], stdout=terminal, env=environment, check=False,
                   timeout=60)
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(reader, 65536):
            shown += chunk
    except OSError:  # the terminal is closed
        pass
    os.close(reader)
    assert b"LINE SEVEN" in shown


def test_two_chapters_of_one_number_are_refused(root):
    (root / "chapters/06-other").mkdir()
    done = diff(root, "05", "06")
    assert done.returncode == 2 and "06-fused and 06-other have the same number" in done.stderr


def test_a_reader_who_stops_early_is_no_error(root):
    (root / "chapters/06-fused/new.cuh").write_text("x\n" * 200000)
    command = f"{sys.executable} {TOOL} --root {root} 05 06 | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1 and done.stderr == ""
