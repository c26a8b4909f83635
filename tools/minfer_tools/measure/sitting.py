# SPDX-License-Identifier: MIT
"""One sitting: chapters, and llama.cpp if asked, measured in turns on one machine, and their records."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..cache import sha256_of
from . import correctness, jetson, llama, machine, programs
from .programs import Plan, Test, progress
from .records import ROOT
from .statistics import there_and_back


@dataclass(frozen=True)
class NamedModel:
    name: str
    path: Path


@dataclass(frozen=True)
class Subject:
    """A chapter's program."""

    chapter: str  # the folder, "05-dp4a"
    program: Path
    on_gpu: bool


@dataclass
class Options:
    plan: Plan
    turns: int = 2
    threads: int | None = None
    engine_options: dict[str, str] = field(default_factory=dict)  # the specification's variables
    check_cases: int | None = None  # None: all; 0: none
    commit: str | None = None
    dirty: bool | None = None
    build_dir: Path | None = None

    def extra(self) -> list[str]:
        return ["--threads", str(self.threads)] if self.threads else []

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.engine_options}


@dataclass
class Measured:
    """What a sitting gathers of one engine on one model."""

    chapter: str
    model: NamedModel
    engine: str
    options: dict[str, str]
    invocation: str
    description: str = ""
    weights: str | None = None
    bytes_per_token: int | None = None
    peak_resident_bytes: int | None = None
    tests: dict[str, Test] = field(default_factory=dict)
    power: dict | None = None
    checked: dict | None = None
    build: dict[str, str] = field(default_factory=dict)


def git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def source(options: Options) -> dict:
    """The commit: as given, for a machine that has the programs alone, else git's."""
    if options.commit:
        return {"commit": options.commit, "dirty": options.dirty}
    status = git("status", "--porcelain", "--untracked-files=no", "--", "common", "oracle", "chapters/*/*.c*",
                 "chapters/*/*.h", "CMakeLists.txt")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}


CACHE_KEYS = ("CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "CMAKE_CUDA_FLAGS", "CMAKE_CUDA_ARCHITECTURES")


def build_facts(folder: Path | None) -> dict[str, str]:
    """Flags and compilers of a build folder, as far as it is one and not only a place of programs."""
    facts = {}
    if not folder or not (folder / "CMakeCache.txt").exists():
        return facts
    for line in (folder / "CMakeCache.txt").read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"(\w+):\w+=(.+)", line)
        if match and match[1] in CACHE_KEYS:
            facts[match[1]] = match[2]
    for language, key in (("CXX", "compiler"), ("CUDA", "nvcc")):
        for file in sorted(folder.glob(f"CMakeFiles/*/CMake{language}Compiler.cmake")):
            text = file.read_text(encoding="utf-8")
            found = re.search(rf'set\(CMAKE_{language}_COMPILER_VERSION "(.+)"\)', text)
            kind = re.search(rf'set\(CMAKE_{language}_COMPILER_ID "(.+)"\)', text)
            if found and kind:
                facts[key] = f"{kind[1]} {found[1]}"
    return facts


def measure_chapter(subject: Subject, measured: Measured, options: Options) -> None:
    """One turn of a chapter."""
    lines = programs.bench(subject.program, measured.model.path, options.plan, options.extra(), options.environment())
    programs.add_samples(measured.tests, lines)
    measured.description, measured.weights = lines[0]["description"], lines[0]["weights"]
    measured.bytes_per_token = lines[0]["bytes_per_token"]
    measured.peak_resident_bytes = max(line["peak_resident_bytes"] for line in lines)


def measure_peer(peer: llama.Peer, measured: Measured, options: Options) -> None:
    """One turn of llama.cpp."""
    lines = llama.bench(peer, options.plan, ["-t", str(options.threads)] if options.threads else [])
    programs.add_samples(measured.tests, lines)
    first = lines[0]
    measured.description = f"llama.cpp {first.get('build_commit', 'unknown')}, {first.get('backends', '')}".rstrip(", ")


def take(subjects: list[Subject], models: list[NamedModel], peers: dict[str, list[llama.Peer]],
         options: Options) -> list[Measured]:
    """The whole sitting: model by model, the engines in turns there and back."""
    gathered = []
    for model in models:
        turns = []
        for subject in subjects:
            command = programs.bench_command(subject.program, model.path, options.plan, options.extra())
            measured = Measured(subject.chapter, model, subject.program.name, options.engine_options,
                                programs.shown(command), build=build_facts(options.build_dir))
            turns.append((measured, lambda s=subject, m=measured: measure_chapter(s, m, options), subject))
        for peer in peers.get(model.name, []):
            measured = Measured("00-roofline", model, "llama.cpp",
                                {"head": peer.head, "fa": str(peer.flash_attention)},
                                programs.shown(peer.command(options.plan, [])))
            turns.append((measured, lambda p=peer, m=measured: measure_peer(p, m, options), None))
        order = there_and_back(turns, options.turns)
        for number, (measured, run, subject) in enumerate(order, 1):
            progress(f"[{number}/{len(order)}] {model.name}: {measured.engine} {measured.options or ''}".rstrip())
            with jetson.Tegrastats() as seen:
                run()
            measured.power = machine.power(subject is None or subject.on_gpu, seen.stats())
        for measured, _, subject in turns:
            if subject and options.check_cases != 0:
                progress(f"{model.name}: checking {measured.engine}")
                measured.checked = correctness.check(subject.program, model.path, model.name, options.extra(),
                                                     options.environment(), options.check_cases)
            gathered.append(measured)
    return gathered


def to_run(measured: Measured, options: Options, sha256: dict[Path, str]) -> dict:
    """A record's entry."""
    model = measured.model
    return {
        "recorded": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "source": source(options),
        "build": measured.build,
        "power": measured.power,
        "engine": measured.engine,
        "description": measured.description,
        "options": measured.options,
        "model": {"name": model.name, "file": model.path.name, "bytes": model.path.stat().st_size,
                  "sha256": sha256[model.path], "weights": measured.weights, "bytes_per_token": measured.bytes_per_token},
        "correctness": measured.checked,
        "turns": options.turns,
        "peak_resident_bytes": measured.peak_resident_bytes,
        "tests": [{"test": t.name, "n_prompt": t.n_prompt, "n_gen": t.n_gen, "n_depth": t.n_depth,
                   "samples_ns": t.samples_ns} for t in measured.tests.values()],
        "invocation": measured.invocation,
    }


def to_records(gathered: list[Measured], described: dict, measured_roofline: dict | None,
               options: Options) -> list[dict]:
    """A record a chapter. Chapter 00's holds the roofline and llama.cpp's runs."""
    sha256 = {m.model.path: "" for m in gathered}
    for path in sha256:
        sha256[path] = sha256_of(path)
    by_chapter: dict[str, list[dict]] = {}
    if measured_roofline:
        by_chapter["00-roofline"] = []
    for measured in gathered:
        by_chapter.setdefault(measured.chapter, []).append(to_run(measured, options, sha256))
    records = []
    for chapter in sorted(by_chapter):
        extra = {"roofline": measured_roofline} if measured_roofline and chapter == "00-roofline" else {}
        records.append({"schema": 1, "chapter": chapter, "machine": described, **extra, "runs": by_chapter[chapter]})
    return records
