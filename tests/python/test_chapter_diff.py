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
        "06-fused/engine.cu": "".join(changed),
        "06-fused/README.md": "six\n",
        "06-fused/main.cpp": "int main() {}\n",
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
    for left_out in ("README", "results", "dead-ends", "main.cpp"):
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
    assert diff(root, "05", "06", "main.cpp", "-y").returncode == 0


def test_trouble_is_status_2_and_one_line(root):
    for arguments in (["05", "17"], ["05", "06", "nothing.cu"]):
        done = diff(root, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
    assert "there are: 05, 06" in diff(root, "05", "17").stderr
    assert diff(root).returncode == 2


def test_readme_and_all(root):
    assert "-five\n+six\n" in diff(root, "05", "06", "--readme").stdout
    everything = diff(root, "05", "06", "--all").stdout
    assert "06-fused/results/machine.json" in everything and "06-fused/dead-ends/slow.patch" in everything


def test_only_the_named_file(root):
    done = diff(root, "05", "06", "README.md")
    assert "-five" in done.stdout and "engine.cu" not in done.stdout


def test_stat_counts_lines(root):
    done = diff(root, "05", "06", "--stat")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        " engine.cu |    3 ++-",
        " 1 file changed, 2 lines added, 1 removed",
    ]


def test_stat_of_a_big_change_fits_the_line(root):
    (root / "chapters/06-fused/new.cuh").write_text("x\n" * 5000)
    for line in diff(root, "05", "06", "--stat").stdout.splitlines():
        assert len(line) <= 80


def test_side_by_side(root):
    done = diff(root, "05", "06", "-y", "--width", "60")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert "line 7" + " " * 22 + " | line seven" in lines
    assert " " * 28 + " > more" in lines
    assert "line 12" not in done.stdout  # far from both changes
    assert max(map(len, lines)) <= 60


def test_side_by_side_folds_long_lines_and_knows_missing_files(root):
    (root / "chapters/06-fused/new.cuh").write_text("ab" * 40 + "\n")
    done = diff(root, "05", "06", "-y", "--width", "60", "new.cuh")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("(none) ") and lines[0].endswith("| 06-fused/new.cuh")
    assert "".join(line[31:] for line in lines[2:]) == "ab" * 40
    assert max(map(len, lines)) <= 60


def test_color_only_when_asked_for_or_on_a_terminal(root):
    for form in ([], ["--stat"], ["-y"]):
        assert "\033[" not in diff(root, "05", "06", *form).stdout
        assert "\033[32m" in diff(root, "05", "06", "--color", "always", *form).stdout


@pytest.mark.terminal
def test_a_terminal_gets_git_s_pager(root):
    for form in ([], ["-y"]):
        reader, terminal = pty.openpty()
        environment = {**os.environ, "GIT_PAGER": "tr a-z A-Z", "TERM": "xterm"}
        subprocess.run([sys.executable, TOOL, "--root", root, "05", "06", *form], stdout=terminal, env=environment,
                       check=False, timeout=60)
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
    command = f"{sys.executable} {TOOL} --root {root} 05 06 -y --width 80 | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1 and done.stderr == ""
