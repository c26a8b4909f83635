# SPDX-License-Identifier: MIT
"""The README's tables: as the records say, and nothing else."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_measure import record

from minfer_tools.errors import Failure
from minfer_tools.measure import plot, readme, records

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "render_tables.py"


@pytest.fixture
def tree(tmp_path) -> Path:
    """The project's README files, its records and its reported figures."""
    (tmp_path / "tools").mkdir()
    shutil.copy(readme.REPORTED, tmp_path / "tools")
    shutil.copy(ROOT / "README.md", tmp_path)
    for path, _ in readme.readmes(ROOT)[1:]:
        target = tmp_path / "chapters" / path.parent.name
        target.mkdir(parents=True)
        shutil.copy(path, target)
        for file in path.parent.glob("results/*.json"):
            (target / "results").mkdir(exist_ok=True)
            shutil.copy(file, target / "results")
    return tmp_path


def render(tree: Path, *words) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, "--root", tree, *words], capture_output=True, text=True)


def contents(tree: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in tree.rglob("README.md")}


def test_every_committed_table_is_what_the_records_say():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_deleted_tables_come_back_byte_for_byte(tree):
    before = contents(tree)
    blank = {path: readme.TABLE.sub(r"\1\4", path.read_text(encoding="utf-8")) for path in before}
    for path, text in blank.items():
        path.write_text(text, encoding="utf-8")
    assert sum(path.read_bytes() != old for path, old in before.items()) == len(before)
    assert render(tree, "--check").returncode == 1
    assert contents(tree) == {path: text.encode() for path, text in blank.items()}  # --check writes nothing
    assert render(tree).returncode == 0
    assert contents(tree) == before


def test_a_figure_typed_by_hand_is_found(tree):
    path = tree / "chapters" / "05-dp4a" / "README.md"
    path.write_text(path.read_text(encoding="utf-8").replace("| 10.2 |", "| 10.3 |"), encoding="utf-8")
    done = render(tree, "--check")
    assert done.returncode == 1
    assert "chapters/05-dp4a/README.md" in done.stdout


def test_a_new_record_shows_in_its_chapter_and_in_the_ladder(tree):
    new = record()
    new["machine"]["name"] = "Some GPU"
    new["runs"][0]["tests"][0] |= {"test": "tg128", "n_gen": 128, "samples_ns": [1_280_000_000]}
    records.write(tree / "chapters", new)
    assert render(tree).returncode == 0
    chapter = (tree / "chapters" / "05-dp4a" / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\| Some GPU \| tiny \| dp4a \| tg128 \| 2026-01-02, abc \| 100\.0 \|.*\| 50\.0 \| 50\.0 % \|", chapter)
    assert "Some GPU, tiny" in (tree / "README.md").read_text(encoding="utf-8")
    other = (tree / "chapters" / "06-fused-attention" / "README.md").read_text(encoding="utf-8")
    assert "Some GPU" not in other


def test_a_reported_figure_is_never_called_measured():
    sources = readme.Sources([], readme.Sources.load(ROOT).reported)
    for chapter in sources.reported["chapters"]:
        rows = readme.chapter_results(sources, chapter).splitlines()[2:]
        assert "reported by the specification" in rows[0]
        assert "not yet measured" in rows[1]


def test_an_unknown_table_is_an_error():
    with pytest.raises(Failure, match="'speed'"):
        readme.render("<!-- table: speed -->\n<!-- /table -->", "", readme.Sources([], {}), "README.md")


def test_plots_are_the_same_bytes_every_time(tmp_path):
    pytest.importorskip("matplotlib")
    run = record()["runs"][0]
    test = {"test": "tg128", "n_prompt": 0, "n_gen": 128, "n_depth": 0, "samples_ns": [1_280_000_000]}
    peer = {**run, "engine": "llama.cpp", "options": {"head": "stock", "fa": "1"}}
    machine = record()["machine"]
    found = [{"chapter": chapter, "machine": machine, "runs": [{**entry, "tests": [test]}]}
             for chapter, entry in (("00-roofline", peer), ("05-dp4a", run))]
    sources = readme.Sources(found, {})
    first, second = (plot.draw_all(sources, tmp_path / name) for name in "ab")
    assert [path.name for path in first] == ["ladder-gpu-tiny.svg", "ladder-gpu-tiny.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_without_records_nothing_is_plotted(tmp_path):
    assert plot.draw_all(readme.Sources([], {}), tmp_path) == []
