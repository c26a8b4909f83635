# SPDX-License-Identifier: MIT
"""The README's tables: as the records say, and nothing else."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_measure import record

from minfer_tools import listings
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
    for name in ("common", "oracle"):  # of which README files list code
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("README.md"))
    for path in ROOT.glob(readme.KERNELS):
        (tmp_path / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    for path, _ in readme.readmes(ROOT)[1:]:
        target = tmp_path / "chapters" / path.parent.name
        target.mkdir(parents=True)
        for file in [path, *path.parent.glob("*.cu*"), *path.parent.glob("*.h")]:
            shutil.copy(file, target)
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
    blank = {path: listings.MARKED.sub(r"\1\4", readme.TABLE.sub(r"\1\4", path.read_text(encoding="utf-8"))) for path in before}
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


def test_a_kernel_timed_by_itself_shows_with_its_rate_and_its_share_of_the_roofline(tree):
    folder = tree / "tests" / "chapters" / "records"
    gpu = json.loads((tree / "chapters" / "05-dp4a" / "results" / "h200.json").read_text(encoding="utf-8"))["machine"]
    entry = {"kernel": "gemv_q4_0 gate", "bytes": 2_000_000, "microseconds": [4.0, 1.0, 2.0]}
    (folder / "h200-kernels.json").write_text(json.dumps(
        {"machine": {"gpu": gpu["gpu"]}, "kernels": {"0.5b": {"dp4a": [entry]}, "3b": {"naive": [entry]}}}), encoding="utf-8")
    assert render(tree).returncode == 0
    share = f"{100 * 1000 / gpu['bandwidth_gb_per_s']:.1f} %"
    chapter = (tree / "chapters" / "05-dp4a" / "README.md").read_text(encoding="utf-8")
    assert f"| `gemv_q4_0` gate | 2.0: 1000.0, {share} |\n" in chapter
    assert "3B" not in chapter[chapter.index("<!-- table: kernels -->"):].split("<!-- /table -->")[0]
    other = (tree / "chapters" / "06-fused-attention" / "README.md").read_text(encoding="utf-8")
    assert "gpu_check.py --parts bench" in other[other.index("<!-- table: kernels -->"):].split("<!-- /table -->")[0]


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


def ladder_records() -> list[dict]:
    """A chapter and llama.cpp on one GPU, with two models."""
    run = record()["runs"][0]
    test = {**run["tests"][0], "test": "tg128", "n_gen": 128, "samples_ns": [1_280_000_000]}
    peer = {**run, "engine": "llama.cpp", "options": {"head": "stock", "fa": "1"}}
    runs = [[{**entry, "model": {**run["model"], "name": model}, "tests": [test]} for model in ("9b", "coder-0.5b")]
            for entry in (peer, run)]
    return [{"chapter": chapter, "machine": record()["machine"], "runs": entries}
            for chapter, entries in zip(("00-roofline", "05-dp4a"), runs)]


def with_prompt(found: list[dict], speed: int) -> list[dict]:
    """The records, and in the last run of each the prompt's test: `speed` tokens a second."""
    for entry in found:
        run = entry["runs"][-1]
        run["tests"] = [{**run["tests"][0], "test": "pp512", "n_prompt": 512, "n_gen": 0, "bytes_per_token": None,
                         "samples_ns": [512_000_000_000 // speed]}, *run["tests"]]
    return found


def test_a_prompt_stands_beside_decoding_with_llama_cpps_and_says_where_nobody_timed_it():
    found = with_prompt(ladder_records(), 1000)
    rows = [[cell.strip() for cell in row.split("|")[2:8]]
            for row in readme.chapter_results(readme.Sources(found, {"chapters": {}}), "05-dp4a").splitlines()[2:]]
    source = "2026-01-02, abc"
    assert rows == [
        ["coder-0.5b", "dp4a", "pp512", source, "1000", "1000"],
        ["coder-0.5b", "dp4a", "tg128", source, "100.0", "100.0"],
        ["9b", "dp4a", "tg128", source, "100.0", "100.0"],
        ["9b", "dp4a", "pp512", "not yet measured: `./minfer bench --chapter 05 -p 512 -n 0 --record`", "", ""]]


def test_the_ladder_has_a_table_of_prompts():
    rows = readme.rungs("pp512")(readme.Sources(with_prompt(ladder_records(), 1000), {}), "").splitlines()
    assert rows[0] == "| pp512, tokens a second | GPU, coder-0.5b | GPU, 9b |"
    assert rows[2:] == ["| 05-dp4a | 1000 | not yet measured |", "| llama.cpp, its best | 1000 | not yet measured |"]


def test_models_stand_in_the_order_of_their_size():
    header = readme.rungs("tg128")(readme.Sources(ladder_records(), {}), "").splitlines()[0]
    assert header.endswith("| GPU, coder-0.5b | GPU, 9b |")
    sizes = sorted(["3b-synthetic", "1.5b-synthetic", "tiny", "coder-0.5b"], key=readme.by_size)
    assert sizes == ["tiny", "coder-0.5b", "1.5b-synthetic", "3b-synthetic"]


def test_llama_cpp_stands_at_its_best_below_the_chapters():
    found = ladder_records()
    slower = copy.deepcopy(found[0]["runs"][0])
    slower["options"]["fa"], slower["tests"][0]["samples_ns"] = "0", [2_560_000_000]
    found[0]["runs"].append(slower)
    rows = readme.rungs("tg128")(readme.Sources(found, {}), "").splitlines()
    assert rows[-1] == "| llama.cpp, its best | 100.0 (50.0 %) | 100.0 (50.0 %) |"


def test_a_step_is_told_of_a_model_that_both_chapters_ran():
    found = ladder_records()
    after = copy.deepcopy(found[1]) | {"chapter": "06-fused-attention"}
    for run in after["runs"]:
        run["tests"][0]["samples_ns"] = [640_000_000]
    sources = readme.Sources([*found, after], {})
    assert readme.step(sources, "05-dp4a 06-fused-attention") == "GPU, 9b: **100.0 tokens a second before, 200.0 after.**\n"
    assert readme.step(sources, "02-naive 05-dp4a").startswith("Not yet measured: `./minfer bench")


def test_a_chapter_s_foot_leads_to_its_neighbours(tree):
    feet = [readme.turn(readme.Sources.load(tree), path.parent.name) for path, _ in readme.readmes(tree)[1:]]
    everything = "[All chapters](../../README.md#the-chapters)"
    assert feet[0] == f"{everything} · [Next: 01 The reference](../01-reference/README.md)\n"
    assert all(foot.startswith("[Before: ") and f" · {everything}" in foot for foot in feet[1:])
    assert "Next" not in feet[-1]
    assert "## The chapters\n" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_cpus_figures_are_no_part_of_the_ladder():
    found = ladder_records()
    for entry in found:
        entry["machine"] = {**entry["machine"], "bandwidth_of": "cpu"}
    assert readme.ladder_results(readme.Sources(found, {})) == []


def test_a_step_by_kernel_has_a_column_for_each_model():
    found = ladder_records()
    for run, launches, head in zip(found[1]["runs"], (2, 3), ("head<Q8_0>", "head<Q6_K>")):
        run["tests"] = [{**run["tests"][0], "breakdown": {"position": 1, "empty_us": [1.0], "kernels": [
            {"kernel": "add", "launches": launches, "bytes": 8, "us": [100.0 * launches]},
            {"kernel": head, "launches": 1, "bytes": 8, "us": [11.0]},
            {"kernel": "argmax", "launches": 2, "bytes": 8, "us": [2.0]}]}}]
    rows = readme.breakdown(readme.Sources(found, {}), "05-dp4a").splitlines()
    assert rows[0] == "| tg128: us of a step (of all) | GPU, coder-0.5b | GPU, 9b |"
    assert rows[2] == "| `add`, 2 to 3 times | 297.0 (3.0 %) | 198.0 (2.0 %) |"
    assert rows[3:] == ["| `head<Q8_0>`, once |  | 10.0 (0.1 %) |",
                        "| `head<Q6_K>`, once | 10.0 (0.1 %) |  |",
                        "| `argmax`, 2 times | 0.0 (0.0 %) | 0.0 (0.0 %) |",
                        "| idle: launches, and the host | 9693.0 (96.9 %) | 9792.0 (97.9 %) |",
                        "| the step | 10000.0 (100.0 %) | 10000.0 (100.0 %) |",
                        "| with an event behind each kernel | 313.0 (3.1 %) | 213.0 (2.1 %) |",
                        "| an empty kernel between its events | 1.00 | 1.00 |"]
    assert "--breakdown --record" in readme.breakdown(readme.Sources(ladder_records(), {}), "05-dp4a")


def test_a_bar_is_a_step_with_a_letter_for_so_much_of_each_part():
    found = ladder_records()
    for run in found[1]["runs"]:
        run["tests"] = [{**run["tests"][0], "breakdown": {"position": 1, "empty_us": [1.0], "kernels": [
            {"kernel": name, "launches": launches, "bytes": 8, "us": [us + launches]} for name, launches, us in
            (("gemv<Q4_0>", 2, 4000.0), ("attention_scores", 1, 1100.0), ("attention", 1, 900.0), ("gemv<Q8_0>", 1, 400.0),
             ("add", 3, 1600.0))]}}]
    faster = copy.deepcopy(found[1]) | {"chapter": "06-fused-attention"}
    for run in faster["runs"]:
        run["tests"][0]["samples_ns"] = [640_000_000]  # half of it, and so less than its kernels
    sources = readme.Sources([*found, faster], {})
    legend = "M the layers' matrices   H the head   A attention   s small kernels   . between kernels"
    assert readme.renderer("bar 05-dp4a 06-fused-attention")(sources, "").splitlines() == [
        "```text", "a step of the 0.5B, 200 us a letter",
        f"chapter 05  {'M' * 20}HH{'A' * 10}{'s' * 8}{'.' * 10}  10,000 us",
        f"chapter 06  {'M' * 20}HH{'A' * 10}{'s' * 8}{' ' * 10}  5,000 us", legend, "```"]
    assert "a step of the 9B" in readme.renderer("bar 05-dp4a 9b")(sources, "")
    assert readme.renderer("bar 02-naive 05-dp4a")(sources, "").startswith("Not yet measured")
    assert readme.renderer("bars") is None


def test_chapter_16s_matrices_are_matrices_in_a_bar():
    found = [record for record in records.load_all() if record["chapter"] == "16-fused-kernels"]
    bar = readme.renderer("bar 16-fused-kernels")(readme.Sources(found, {}), "").splitlines()[2]
    step = next(test["breakdown"]["kernels"] for run in found[0]["runs"] if run["model"]["name"] == "coder-0.5b"
                for test in run["tests"] if test.get("breakdown"))
    small = {"embed<Q4_0>", "rmsnorm", "quantize_int16", "argmax", "attention", "gemv_q4_0_int16"}
    assert {kernel["kernel"] for kernel in step} - small == {"qkv", "add_gemv", "gate_up"}
    assert bar.count("M") > bar.count("A") > bar.count("s")


#: "chapter 08   ####   1,871 us": a bar of something that no marker draws, as a step at a depth.
BY_HAND = re.compile(r"^(?=.*?([=+#]{3,}))(?=.*?([\d,]+) us)", re.MULTILINE)


def bars_by_hand() -> list:
    blocks = []
    for path in sorted((ROOT / "chapters").glob("*/README.md")):
        text = readme.TABLE.sub("", path.read_text(encoding="utf-8"))
        for block in re.findall(r"^```[^\n]*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            bars = [(len(bar), int(us.replace(",", ""))) for bar, us in BY_HAND.findall(block)]
            if len(bars) > 1:
                blocks.append(pytest.param(bars, id=f"{path.parent.name}: {bars[0][1]}"))
    return blocks


@pytest.mark.parametrize("bars", bars_by_hand())
def test_a_bar_drawn_by_hand_is_as_long_as_its_figure_says(bars):
    longest, most = max(bars)
    for length, us in bars:
        assert abs(length - us * longest / most) < 1, (length, us)


def test_the_oracle_stands_beside_llama_cpp_of_the_same_cpu():
    cpu = {**record()["machine"], "bandwidth_of": "cpu", "name": "CPU"}
    run = {**record()["runs"][0], "description": "oracle (CPU, fp32, 2 threads)", "peak_resident_bytes": 5_000_000}
    run["model"] = {**run["model"], "bytes": 10_000_000}
    prompt = {**run["tests"][0], "test": "pp4", "n_prompt": 4, "n_gen": 0, "bytes_per_token": None, "samples_ns": [10_000_000]}
    peer = {**run, "engine": "llama.cpp", "options": {"head": "f32", "fa": "0"}, "peak_resident_bytes": None}
    peer["tests"] = [{**run["tests"][0], "bytes_per_token": None}]
    both = {**run, "tests": [prompt, *run["tests"]]}
    sources = readme.Sources([{"chapter": "00-roofline", "machine": cpu, "runs": [peer]},
                              {"chapter": "00-roofline", "machine": record()["machine"], "runs": [peer]},
                              {"chapter": "01-reference", "machine": cpu, "runs": [both]}], {})
    assert readme.reference(sources, "01-reference").splitlines()[2:] == [
        "| CPU | tiny | oracle (CPU, fp32, 2 threads) | 2026-01-02, abc | 400.0 (pp4) | 100.0 (tg10) | 50.0 | 50.0 % | "
        "5 MB, 0.50 times the file |",
        "| CPU | tiny | llama.cpp, weights in F32, `-fa 0` | 2026-01-02, abc |  | 100.0 (tg10) |  |  |  |"]
    assert "not yet measured" in readme.reference(readme.Sources([], {}), "01-reference")


def test_plots_are_the_same_bytes_every_time(tmp_path):
    pytest.importorskip("matplotlib")
    first, second = (list(plot.draw_all(readme.Sources(ladder_records(), {}), tmp_path / name)) for name in "ab")
    assert [path.name for path in first] == ["ladder-gpu.svg", "ladder-gpu-dark.svg", "ladder-gpu.png"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert len({path.read_bytes() for path in first}) == 3


def test_prompts_have_a_picture_of_their_own(tmp_path):
    pytest.importorskip("matplotlib")
    sources = readme.Sources(with_prompt(ladder_records(), 1000), {})
    drawn = [path.name for path in plot.draw_all(sources, tmp_path)]
    assert drawn[3:] == ["ladder-gpu-pp512.svg", "ladder-gpu-pp512-dark.svg", "ladder-gpu-pp512.png"]
    shown = readme.ladder_plot("pp512")(sources, "")
    assert "every chapter's pp512, and llama.cpp" in shown and "ladder-gpu-pp512-dark.svg" in shown
    assert readme.ladder_plot("pp512")(readme.Sources(ladder_records(), {}), "") == ""


def test_the_committed_pictures_are_what_the_records_say(tmp_path):
    pytest.importorskip("matplotlib")
    committed = {path.name: path for path in (ROOT / readme.FIGURES).glob("ladder-*")}
    drawn = {path.name: path for path in plot.draw_all(readme.Sources.load(), tmp_path)}
    assert sorted(committed) == sorted(drawn)
    shown = re.findall(rf'"{readme.FIGURES}/(ladder-[^"]*)"', (ROOT / "README.md").read_text(encoding="utf-8"))
    assert set(shown) == {name for name in drawn if name.endswith(".svg")}
    for name, path in drawn.items():
        if name.endswith(".svg"):
            text = committed[name].read_text(encoding="utf-8")
            if plot.library_version() not in text:
                pytest.skip(f"{name} is of another matplotlib than {plot.library_version()}")
            assert text == path.read_text(encoding="utf-8"), "run tools/render_tables.py --plot"


def test_without_records_nothing_is_plotted(tmp_path):
    assert list(plot.draw_all(readme.Sources([], {}), tmp_path)) == []
