# SPDX-License-Identifier: MIT
"""The tools with the specification's names: each is ./minfer with its options set."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import specbench
from minfer_tools.errors import Failure


@pytest.fixture
def tools(tmp_path) -> Path:
    """The scripts beside a `minfer` that prints what it is given."""
    (tmp_path / "tools").mkdir()
    for script in (ROOT / "tools").glob("*.sh"):
        target = tmp_path / "tools" / script.name
        target.write_bytes(script.read_bytes())
        target.chmod(0o755)
    fake = tmp_path / "minfer"
    fake.write_text('#!/bin/sh\nfor word in "$@"; do printf "<%s>" "$word"; done\nexit 42\n')
    fake.chmod(0o755)
    return tmp_path / "tools"


@pytest.mark.parametrize("script, words, expected", [
    ("run.sh", ["Say a word.", "-n", "3"], "<run><Say a word.><-n><3>"),
    ("compare.sh", ["--cases", "1"], "<compare><--cases><1>"),
    ("speed.sh", ["--chapter", "05"], "<bench><-p><0><-n><128><--check-cases><0><--chapter><05>"),
    ("ab.sh", ["05", "06", "-r", "3"], "<bench><-p><0><--ab><05><06><-r><3>"),
])
def test_a_script_is_minfer_with_its_options(tools, script, words, expected):
    done = subprocess.run([tools / script, *words], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (expected, 42)


def test_ab_wants_two_chapters(tools):
    done = subprocess.run([tools / "ab.sh", "05"], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 2)
    assert "tools/ab.sh 06 07" in done.stderr


def test_specbench_is_a_skip_without_speculation(monkeypatch, capsys):
    monkeypatch.setattr(specbench, "with_speculation", lambda: [])
    assert specbench.main([]) == 77
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("drafted, status, word", [("1 2 3", 0, "yes"), ("1 2 4", 1, "NO")])
def test_specbench_holds_speculation_to_the_same_output(monkeypatch, capsys, drafted, status, word):
    monkeypatch.setattr(specbench, "with_speculation", lambda: ["08"])
    monkeypatch.setattr(specbench, "generate", lambda arguments, chapter, prompt, spec:
                        (drafted, 150.0) if spec else ("1 2 3", 100.0))
    assert specbench.main([]) == status
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 5
    assert all(f"| {word} | 3 | 100.0 | 150.0 | 1.50 |" in row for row in rows)


def test_specbench_reads_the_decode_line():
    said = "prompt: 9 tokens in 0.1 s (90.0 tok/s)\nx: decode: 12 tokens in 0.2 s (55.5 tok/s), end of turn\n"
    assert specbench.decode_speed(said) == 55.5
    with pytest.raises(Failure):
        specbench.decode_speed("nothing")
