# SPDX-License-Identifier: MIT
"""The lints find what they are for: each is run over a small project with one thing wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minfer_tools.lint.compile_flags import problems

ROOT = Path(__file__).resolve().parents[2]
LICENCE = "SPDX-License-Identifier: MIT\n"


@pytest.fixture
def project(tmp_path) -> Path:
    """A project with one good file of each kind, and the lints."""
    shutil.copytree(ROOT / "tests" / "lint", tmp_path / "tests" / "lint",
                    ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".clang-format", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "good.py").write_text(f"# {LICENCE}")
    (tmp_path / "good.cpp").write_text(f"// {LICENCE}int some;\n")
    return tmp_path


def lint(project: Path, name: str, *words) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, project / "tests" / "lint" / f"lint_{name}.py", *words],
                          capture_output=True, text=True)


@pytest.mark.parametrize("name, file, text, finding", [
    ("spdx", "bad.py", "import os\n", "bad.py:1: no line 'SPDX-License-Identifier: MIT'"),
    ("spdx", "bad.cuh", "\n\n\n// " + LICENCE, "bad.cuh:1: no line"),
    ("spdx", "bad", "#!/bin/sh\ntrue\n", "bad:1: no line"),
    ("machine_paths", "bad.md", "one\nsee /ho" + "me/someone/model.gguf\n", "bad.md:2: names"),
    ("machine_paths", "bad.md", "pip install -i https://py" + "pi.org/simple x\n", "bad.md:1: names"),
    ("format", "bad.cpp", "// " + LICENCE + "int  some ;\n", "bad.cpp:1: clang-format would"),
    ("python", "bad.py", "# " + LICENCE + "import os\n", "bad.py:2:8: F401"),
])
def test_a_lint_finds_what_it_is_for(project, name, file, text, finding):
    before = lint(project, name)
    if before.returncode == 77:
        pytest.skip(before.stdout.strip())
    assert before.returncode == 0, before.stdout
    (project / file).write_text(text)
    after = lint(project, name)
    assert after.returncode == 1
    assert finding in after.stdout


LAYERS = ("common/minfer/word.h", "common/minfer/gguf/table.h", "common/minfer/text/vocabulary.h",
          "common/minfer/program/cli.h", "common/cuda/launch.h", "oracle/ops.h", "chapters/01-some/engine.h", "tests/t.h")


@pytest.mark.parametrize("file, include, allowed", [
    ("common/minfer/word.cpp", "<minfer/word.h>", True),
    ("common/minfer/word.cpp", "<minfer/gguf/table.h>", False),
    ("common/minfer/gguf/table.cpp", "<minfer/word.h>", True),
    ("common/minfer/gguf/table.cpp", "<minfer/text/vocabulary.h>", False),
    ("common/minfer/text/vocabulary.cpp", "<minfer/gguf/table.h>", True),
    ("common/minfer/text/vocabulary.cpp", "<minfer/program/cli.h>", False),
    ("common/minfer/text/vocabulary.cpp", '"../program/cli.h"', False),
    ("common/minfer/program/cli.cpp", "<minfer/text/vocabulary.h>", True),
    ("common/minfer/program/cli.cpp.in", '"oracle/ops.h"', False),
    ("common/cuda/emulator/grid.cpp", '"cuda/launch.h"', True),
    ("common/cuda/launch.cu", "<minfer/program/cli.h>", False),
    ("common/minfer/word.cpp", '"tests/t.h"', False),
    ("oracle/ops.cpp", "<minfer/gguf/table.h>", True),
    ("oracle/ops.cpp", '"chapters/01-some/engine.h"', False),
    ("chapters/01-some/main.cpp", "<minfer/program/cli.h>", True),
    ("chapters/01-some/engine.cpp", '"oracle/ops.h"', True),
])
def test_includes_go_downwards(project, file, include, allowed):
    for name in (*LAYERS, file):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("#pragma once\n")
    (project / file).write_text(f"\n#include {include}\n")
    done = lint(project, "layers")
    assert done.returncode == (0 if allowed else 1), done.stdout
    assert allowed or f"{file}:2: includes {include[1:-1]}; expected a file of " in done.stdout


def test_paths_that_are_no_machines(project):
    (project / "good.md").write_text("usr/home/x/y, ${root}/tmp/a/b, /usr/include/x.h, /proc/cpuinfo\n")
    assert lint(project, "machine_paths").returncode == 0


HOST = "g++ -O3 -ffp-contract=off -c a.cpp"
CUDA = "/usr/local/cuda/bin/nvcc --fmad=false -Xcompiler -Wall,-ffp-contract=off -c a.cu"


@pytest.mark.parametrize("command, problem", [
    (HOST, None),
    (CUDA, None),
    (CUDA.replace("-Xcompiler ", "-Xcompiler="), None),
    (HOST.replace(" -ffp-contract=off", ""), "expected -ffp-contract=off, found none"),
    (HOST + " -ffp-contract=fast", "expected -ffp-contract=off, found -ffp-contract=fast"),
    (HOST + " -ffast-math", "found -ffast-math"),
    (HOST + " -Ofast", "found -Ofast"),
    (CUDA.replace("--fmad=false", ""), "expected --fmad=false, found none"),
    (CUDA.replace("--fmad=false", "--fmad=true"), "found --fmad=true"),
    (CUDA.replace(",-ffp-contract=off", ""), "expected -ffp-contract=off through -Xcompiler, found none"),
    (CUDA.replace(",-ffp-contract=off", " -ffp-contract=off"), "through -Xcompiler, found none"),
    (CUDA + " --use_fast_math", "found --use_fast_math"),
    (CUDA + " -Xcompiler -Ofast", "found -Ofast"),
    (CUDA + " -ftz=true", "found -ftz=true"),
])
def test_compile_flags(command, problem):
    found = list(problems(command.split()))
    assert (problem is None and not found) or any(problem in line for line in found)


@pytest.mark.parametrize("labels, status", [
    ("cpu", 0), ("cpu;slow", 0), ("", 1), ("slow", 1), ("emulated;gpu", 0), ("cpu;quick", 1)])
def test_labels(project, labels, status):
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(some NONE)\nenable_testing()\n"
        "add_test(NAME some COMMAND true)\n"
        + (f'set_tests_properties(some PROPERTIES LABELS "{labels}")\n' if labels else ""))
    subprocess.run(["cmake", "-G", "Ninja", "-S", project, "-B", project / "b"], check=True, capture_output=True)
    assert lint(project, "labels", project / "b").returncode == status
