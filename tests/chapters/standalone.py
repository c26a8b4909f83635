#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds a chapter by itself, from a copy of its directory that lies beside common/ and oracle/, with
warnings as errors, and runs what was built on small synthetic models.

    standalone.py CHAPTER WORK MODELS --reference PROGRAM [--nvcc FILE] [--jobs N]

CHAPTER is chapters/NN-slug, WORK a folder that is made anew, MODELS what `whole_model.py make` wrote.
With --nvcc the kernels are compiled for every architecture of ARCHITECTURES as well. Exit status: 0
built and right, 1 not, 77 skipped, with the reason.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import whole_model

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURES = ("87", "90")  # a Jetson Orin, and an H200
SHARED = ("common", "oracle")


class NotBuilt(Exception):
    """Copying, configuring or building failed, and with what output."""


def run(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode != 0:
        raise NotBuilt(f"{' '.join(map(str, words))}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def copy(chapter: Path, work: Path) -> Path:
    """The chapter beside what it rests on, and nothing else of the project."""
    shutil.rmtree(work, ignore_errors=True)
    no_scratch = shutil.ignore_patterns("build", "build-*", "__pycache__", ".*")
    for source in (chapter, *(ROOT / name for name in SHARED)):
        shutil.copytree(source, work / source.name, ignore=no_scratch)
    return work / chapter.name


def build(source: Path, where: Path, nvcc: Path | None, jobs: int) -> None:
    cuda = ([f"-DCMAKE_CUDA_COMPILER={nvcc}", f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(ARCHITECTURES)}"]
            if nvcc else ["-DMINFER_CUDA=OFF"])
    run("cmake", "-S", source, "-B", where, "-G", "Ninja" if shutil.which("ninja") else "Unix Makefiles",
        "-DMINFER_WERROR=ON", *cuda)
    output = run("cmake", "--build", where, "--parallel", jobs)
    warnings = re.findall(r"^.*\bwarning\b.*$", output, re.MULTILINE | re.IGNORECASE)
    if warnings:  # ptxas and the linker know no -Werror
        raise NotBuilt("the build warns:\n" + "\n".join(warnings))
    if nvcc:
        missing = [sm for sm in ARCHITECTURES if f"'sm_{sm}'" not in output]
        if has_kernels(source) and missing:
            raise NotBuilt(f"ptxas said nothing of sm_{missing[0]}:\n{output}")


def has_kernels(source: Path) -> bool:
    return any(source.glob("*.cu"))


def programs(where: Path, slug: str, nvcc: Path | None, source: Path) -> list[Path]:
    """The programs that must be there; those that run on this machine whatever GPU it has come first."""
    if not has_kernels(source):
        return [where / slug]
    return [where / f"{slug}-emulated", *([where / slug] if nvcc else [])]


def check_tokens(program: Path, models: Path, reference: Path, data: dict) -> list[str]:
    """The committed hashes and the same tokens as decoding and forcing give, on every small model; of
    the reference, which has no hashes, the tokens of the main build's."""
    if whole_model.slug(program) in data["hashes"]:
        return whole_model.check(program, reference, models, data, [], False)
    problems = []
    for name, case in data["cases"].items():
        model = whole_model.model_path(models, name)
        arguments = (model, case["ids"][:case["prompt"]], case["generate"])
        found, expected = (whole_model.generate(which, *arguments) for which in (program, reference))
        if found != expected:
            problems.append(f"{name}: {found}, expected {expected}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapter", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("models", type=Path)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--nvcc", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    data = json.loads(whole_model.HASHES.read_text(encoding="utf-8"))
    chapter = options.chapter.resolve()
    slug = chapter.name.partition("-")[2]
    is_engine = not chapter.name.startswith("00-")
    try:
        source, where = copy(chapter, options.work), options.work / "build"
        build(source, where, options.nvcc, options.jobs)
        built = programs(where, slug, options.nvcc, source) if is_engine else []
        problems = [f"{program.name} was not built" for program in built if not program.is_file()]
        if is_engine and not problems:
            problems = check_tokens(built[0], options.models, options.reference, data)
    except whole_model.Skip as reason:
        print(f"skipped: {reason}")
        return 77
    except NotBuilt as reason:
        problems = [str(reason)]
    for problem in problems:
        print(problem)
    if not problems:
        shutil.rmtree(options.work)
        print(f"{chapter.name}: built alone" + (f" for sm_{', sm_'.join(ARCHITECTURES)}" if options.nvcc else "")
              + (f"; {built[0].name} is right" if is_engine else ""))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
