# SPDX-License-Identifier: MIT
"""Dead ends: each is told in its chapter, and what it says of their speed is what was measured."""

import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCHES = sorted((ROOT / "chapters").glob("*/dead-ends/*.patch"))
FUSED = ROOT / "chapters" / "16-fused-kernels"
MODELS = ("coder-0.5b", "1.5b-synthetic", "3b-synthetic")
LAYERS = (24, 28, 36)
# | what | `patch` | kernels a layer more | a figure a model: ratio (interval) |
ROW = re.compile(r"^\| [^|]+ \| `([a-z-]+)` \| (\d) \| (.+) \|$", re.MULTILINE)
TOLD = re.compile(r"([01]\.\d{3}) \(([01]\.\d{3}) to\s+([01]\.\d{3})\)")


def loaded(path):
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


RECORD = loaded("tests/chapters/records/h200-fusions.json")["models"]
OTHERS = loaded("tests/chapters/records/h200-dead-ends.json")["chapters"]
STORY = (FUSED / "README.md").read_text(encoding="utf-8")


def in_print(entry):
    return tuple(f"{value:.3f}" for value in (entry["ratio"], *entry["interval"]))


def cost(name, model):
    """What taking it back adds to a step, in us."""
    return sum(sign * 1e6 / RECORD[model][of]["median"] for sign, of in ((1, name), (-1, "fused")))


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.stem)
def test_a_dead_end_is_told_in_its_chapter(patch):
    text = (patch.parent.parent / "README.md").read_text(encoding="utf-8")
    assert f"`{patch.stem}`" in text or f"`dead-ends/{patch.name}`" in text


def test_what_a_fusion_is_worth_is_what_was_measured():
    told = {name: (int(kernels), TOLD.findall(figures)) for name, kernels, figures in ROW.findall(STORY)}
    assert len(told) == 8
    for name, (_, figures) in told.items():
        assert figures == [in_print(RECORD[model][name]) for model in MODELS], name


def test_what_a_kernel_costs_follows_from_it():
    kernels = {name: int(count) for name, count, _ in ROW.findall(STORY)}
    told = re.findall(r"^\| `?[a-z].*?,(?: in)? `([a-z-]+)`(?: less `([a-z-]+)`)? \| ([\d. |]+) \|$", STORY, re.MULTILINE)
    assert len(told) == 7
    for name, less, figures in told:
        assert figures.split(" | ") == [
            f"{(cost(name, model) - (cost(less, model) if less else 0)) / layers / (1 if less else kernels[name]):.1f}"
            for model, layers in zip(MODELS, LAYERS)], name


def test_the_parts_together_are_about_a_step():
    parts = [name for name, _, _ in ROW.findall(STORY) if name != "separate-swiglu"]
    sums = [f"{sum(cost(name, model) for name in parts):.0f}" for model in MODELS]
    steps = [f"{1e6 / RECORD[model]['fused']['median']:.0f}" for model in MODELS]
    words = " ".join(STORY.split())
    assert "All parts together are {}, {} and {} us".format(*sums) in words
    assert "a whole step took beside them: {}, {} and {}.".format(*steps) in words


@pytest.mark.parametrize("chapter", OTHERS)
def test_a_chapter_says_what_its_dead_ends_cost(chapter):
    text = " ".join((ROOT / "chapters" / chapter / "README.md").read_text(encoding="utf-8").split())
    for name in list(next(iter(OTHERS[chapter].values())))[1:]:
        figures = [in_print(models[name]) for models in OTHERS[chapter].values()]
        said = "{} times the speed on the 0.5B ({} to {}), {} on the 1.5B ({} to {}), {} on the 3B ({} to {})"
        assert said.format(*(figure for model in figures for figure in model)) in text, name


def test_a_record_holds_the_ratio_of_its_samples():
    measured = [(variants, "fused") for variants in RECORD.values()]
    measured += [(variants, "as it is") for models in OTHERS.values() for variants in models.values()]
    for variants, base in measured:
        for entry in variants.values():
            assert entry["median"] == pytest.approx(statistics.median(entry["samples"]), abs=1e-3)
            assert entry["ratio"] == pytest.approx(entry["median"] / variants[base]["median"], abs=1e-4)
            assert entry["interval"][0] <= entry["ratio"] <= entry["interval"][1]


LEAN = loaded("tests/chapters/records/h200-lean.json")
PERSISTENT = (ROOT / "chapters/17-persistent-kernel/README.md").read_text(encoding="utf-8")
SYNTHETIC = ("0.5b-synthetic", "1.5b-synthetic", "3b-synthetic")


def test_how_the_persistent_kernel_became_faster_is_what_was_measured():
    steps = {
        "as first built": (0, "as first built"),
        "fewer instructions": (0, "fewer instructions"),
        "and copies by lanes, not in bulk": (1, "fewer instructions, copies by lanes"),
        "and copies behind what a phase asks for, norms and biases asked for ahead":
            (3, "copies behind what a phase asks for, norms and biases asked for ahead"),
        "and the last warp speaks": (3, "the last warp speaks"),
    }
    for told, (sitting, name) in steps.items():
        samples = LEAN["sittings"][sitting]["samples"][name]
        row = " | ".join(f"{statistics.median(samples[model]):.0f}" for model in SYNTHETIC)
        assert f"| {told} | {row} |" in PERSISTENT


def test_what_the_persistent_kernels_dead_ends_leave_is_what_was_measured():
    rows = re.findall(r"^\| [^|]+ \| `([a-z0-9-]+)` \| ([\d.]+ \| [\d.]+ \| [\d.]+) \|$", PERSISTENT, re.MULTILINE)
    assert {name for name, _ in rows} == {path.stem for path in PATCHES if path.parent.parent.name.startswith("17-")}
    for name, told in rows:
        turns = [LEAN["in_turns"][model] for model in SYNTHETIC]
        medians = [{of: statistics.median(sum(turn[of], [])) for of in ("17", name)} for turn in turns]
        assert told == " | ".join(f"{each['17'] / each[name]:.3f}" for each in medians)


def speeds(runs, test, **options):
    """Tokens a second of the three models."""
    found = {run["model"]["name"]: 128e9 / statistics.median(entry["samples_ns"]) for run in runs
             for entry in run["tests"] if run["options"] == options and entry["test"] == test}
    return [f"{found[model]:,.0f}" for model in MODELS]


def test_chapter_12_says_what_the_mended_kernel_makes():
    record = next(record for record in loaded("tests/chapters/records/h200-append-kv.json")["records"]
                  if record["chapter"] == "12-int8-kv")
    text = " ".join((ROOT / "chapters" / "12-int8-kv" / "README.md").read_text(encoding="utf-8").split())
    said = "Measured again (6fe7265) the three models make {}, {} and {} tokens"
    assert said.format(*speeds(record["runs"], "tg128")) in text


def test_chapter_16_says_what_it_makes_at_depth_and_with_int8():
    runs, text = loaded("chapters/16-fused-kernels/results/h200.json")["runs"], " ".join(STORY.split())
    first, second, third = speeds(runs, "tg128 @ d4096")
    assert f"At a depth of 4,096 the 1.5B makes {second} tokens a second and the 3B {third}," in text
    assert f"and the 0.5B {first}, 2.0 times." in text
    short, deep = (speeds(runs, test, KVQ="1") for test in ("tg128", "tg128 @ d4096"))
    assert "it made {}, {} and {} tokens a second".format(*short) in text
    assert "where it was to help, {}, {} and {}.".format(*deep) in text


def test_what_steps_of_several_tokens_take_is_what_was_measured():
    story = (ROOT / "chapters/18-tensor-core-steps/README.md").read_text(encoding="utf-8")
    record = loaded("tests/chapters/records/h200-tensor-core-steps.json")["steps"]["as it is"]
    for told, model in (("0.5B", "coder-0.5b"), ("1.5B", "1.5b-synthetic"), ("3B", "3b-synthetic")):
        us = [record[model][str(n)][0] for n in range(1, 9)]
        assert f"| {told}, us | {' | '.join(f'{each:.0f}' for each in us)} | {us[7] / us[0]:.2f} |" in story


def test_what_speculation_gives_in_chapter_16_is_what_was_measured():
    record = loaded("tests/chapters/records/h200-speculation.json")["prompts"]
    assert len(record) == 5
    for name, each in record.items():
        without, drafts = (statistics.median(each["spec"][spec]) for spec in "01")
        assert each["same"] and drafts >= 0.99 * without
        assert f"| {name} | {without:.0f} | {drafts:.0f} | {statistics.median(each['tokens_a_step']):.2f} |" in STORY
