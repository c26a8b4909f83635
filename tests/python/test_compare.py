# SPDX-License-Identifier: MIT
"""`minfer compare` with a llama.cpp that says what it is told to."""

import json

import pytest

from cli import compare, run
from cli.main import make_parser
from minfer_tools.chapter_tree import Chapter
from minfer_tools.errors import Failure

PROMPT_COUNT = 6


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def expected_answers() -> list[dict]:
    cases = json.loads(compare.PROMPTS.read_text(encoding="utf-8"))["cases"]
    return [{"ids": case["f32"]["ids"][:3], "top2_margin": case["f32"]["top2_margin"][:3]} for case in cases]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A llama.cpp and an engine that answer with the committed tokens."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    answers = tmp_path / "answers"
    answers.write_text("".join(json.dumps(answer) + "\n" for answer in expected_answers()))
    script(tmp_path / "llama-quantize", f'echo "$@" >{tmp_path}/quantized; cp "$2" "$3"\n')
    script(tmp_path / "ref_oracle", f'ls "$1" >/dev/null || exit 1; head -n $(wc -l) {answers}\n')
    known = {" ".join(map(str, case["prompt_ids"])): case["f32"]["ids"][:3]
             for case in json.loads(compare.PROMPTS.read_text(encoding="utf-8"))["cases"]}
    monkeypatch.setattr(compare, "generate", lambda program, model, ids, n, threads: known[" ".join(map(str, ids))])
    monkeypatch.setattr(run, "prepare", lambda choice, needs, install: tmp_path / choice.target)
    reference = Chapter(1, tmp_path / "01-reference")
    monkeypatch.setattr(run, "choose", lambda chapter, device: run.Choice(reference, "reference", ""))
    monkeypatch.setattr(compare.models, "resolve", lambda wanted, install: model)
    return tmp_path


def call(folder, *words) -> int:
    return compare.compare(make_parser().parse_args(["compare", "--llama-cpp", str(folder), "-n", "3", *words]))


def test_equal_tokens_pass(machine, capsys):
    assert call(machine) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"reference on model.gguf: {PROMPT_COUNT} of {PROMPT_COUNT} answers equal llama.cpp's"
    words = (machine / "quantized").read_text().split()
    assert words[0] == "--allow-requantize" and words[-1] == "F32"
    assert not list((machine / "cache" / "minfer").glob("compare-*"))  # the F32 file is gone


def test_one_other_token_fails_and_is_named(machine, capsys):
    answers = expected_answers()
    answers[1]["ids"][2] += 1
    (machine / "answers").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    assert call(machine) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "DIFFERENT at token 2" in lines[1]
    assert lines[-1].startswith("reference on model.gguf: 5 of 6")


def test_fewer_prompts_are_fewer_answers(machine, capsys):
    assert call(machine, "--cases", "2") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_missing_answer_is_an_error_and_no_pass(machine):
    (machine / "answers").write_text(json.dumps(expected_answers()[0]) + "\n")
    with pytest.raises(Failure, match="1 of 6"):
        call(machine)


def test_a_shorter_answer_differs():
    case = compare.Case("p", [1, 2, 3], [1.0, 1.0, 1.0], [1, 2])
    assert not case.equal
    assert case.verdict() == "DIFFERENT length: 2 tokens, llama.cpp 3"
