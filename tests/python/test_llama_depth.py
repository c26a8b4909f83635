# SPDX-License-Identifier: MIT
"""tools/llama_depth over programs that stand in for llama.cpp's."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "llama_depth"

BENCH = """#!{python}
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
head = 2 if "q4_0-head" in given["-m"] else 1
print("loading", given["-m"], file=sys.stderr)
for fa in map(int, given["-fa"].split(",")):
    for depth in map(int, given["-d"].split(",")):
        speed = 1000 * head + 100 * fa - depth / 10
        samples = [speed + 30, speed, speed - 1][:int(given["-r"])]
        print(json.dumps({{"build_commit": "abc", "cpu_info": "C", "gpu_info": "G", "backends": "CUDA", "n_threads": 2,
                          "flash_attn": fa, "n_gen": int(given["-n"]), "n_depth": depth, "samples_ts": samples,
                          "samples_ns": [1, 2, 3], "n_prompt": int(given["-p"])}}))
"""

QUANTIZE = """#!{python}
import sys
source, target, kind = sys.argv[-3:]
assert kind == "Q4_0" and "--allow-requantize" in sys.argv
open(target, "wb").write(open(source, "rb").read() + b"requantized")
print("noise")
"""


@pytest.fixture
def programs(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("llama-bench", BENCH), ("llama-quantize", QUANTIZE)):
        (folder / name).write_text(text.format(python=sys.executable))
        (folder / name).chmod(0o755)
    (tmp_path / "model.gguf").write_bytes(b"weights")
    return folder


def run(programs, *arguments):
    model = programs.parent / "model.gguf"
    return subprocess.run([TOOL, "--programs", programs, "--model", model, *arguments], capture_output=True, text=True,
                          check=False)


def test_a_record_for_each_depth_and_kind(programs):
    done = run(programs, "--depth", "0,1024", "-n", "16", "-r", "3", "--head", "stock,q4_0")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    assert [(r["head"], r["flash_attention"], r["test"]) for r in records] == [
        (head, fa, test) for head in ("stock", "q4_0") for fa in (False, True) for test in ("tg16", "tg16 @ d1024")]
    first, last = records[0], records[-1]
    assert first["tokens_per_s"] == [1030, 1000, 999] and first["tokens_per_s_median"] == 1000
    assert first["machine"] == {"cpu": "C", "gpu": "G", "backend": "CUDA"}
    assert first["model"] == {"file": "model.gguf", "bytes": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}
    assert last["model"]["sha256"] == hashlib.sha256(b"weightsrequantized").hexdigest()
    assert (first["commit"], first["source"]) == ("abc", "built elsewhere")
    assert first["invocation"][:3] == ["llama-bench", "-m", "model.gguf"]
    assert str(programs.parent) not in done.stdout


def test_what_was_built_by_our_tool_is_named_by_its_package(programs):
    (programs / "minfer-build.json").write_text('{"llama.cpp": "of llama-cpp-python 0.3.36"}')
    records = json.loads(run(programs, "--depth", "0", "--fa", "0").stdout)
    assert [r["source"] for r in records] == ["of llama-cpp-python 0.3.36"]


def test_the_table_is_for_a_person(programs):
    done = run(programs, "--depth", "0,1024", "--fa", "1")
    assert done.stderr.splitlines()[-2:] == ["      0            1100.00", "   1024             997.60"]


def test_what_fails_is_one_line(programs):
    (programs / "llama-bench").write_text("#!/bin/sh\nexit 3\n")
    done = run(programs)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "llama_depth: llama-bench failed with exit status 3; its messages are above\n"
    (programs / "llama-bench").write_text("#!/bin/sh\necho nonsense\n")
    assert "printed 'nonsense', expected a JSON object" in run(programs).stderr
    (programs / "llama-bench").write_text("#!/bin/sh\n")
    assert "printed no result" in run(programs).stderr
    (programs / "llama-bench").unlink()
    assert "No such file" in run(programs).stderr


@pytest.mark.parametrize("arguments", [["--depth", "x"], ["--head", "q8_0"], ["--fa", ""], ["--nonsense"]])
def test_wrong_usage(programs, arguments):
    assert run(programs, *arguments).returncode == 2


def test_a_missing_model(programs):
    done = run(programs, "--model", "gone.gguf")
    assert done.returncode == 1 and done.stderr == "llama_depth: gone.gguf: no such file\n"
