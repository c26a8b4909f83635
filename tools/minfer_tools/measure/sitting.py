# SPDX-License-Identifier: MIT
"""One sitting: chapters, and llama.cpp if asked, measured in turns on one machine, and their records."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import gguf_file
from ..cache import sha256_of
from ..errors import Failure
from . import correctness, jetson, llama, machine, programs
from .programs import Plan, Test, progress
from .records import ROOT
from .statistics import there_and_back


@dataclass(frozen=True)
class NamedModel:
    name: str
    path: Path

    @classmethod
    def of_file(cls, path: Path) -> NamedModel:
        """A synthetic model is what its file says that it is, any other what its file is called."""
        try:
            pairs = gguf_file.Reader(path).pairs
        except (OSError, Failure):
            return cls(path.stem, path)  # whoever reads its weights will say what is wrong
        names = [pair.value[8:].decode("utf-8") for pair in pairs if pair.key == "general.name"]
        return cls(names[0] if names and names[0].endswith("-synthetic") else path.stem, path)


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
    breakdown: bool = False  # take a step of each decode test apart, after all turns

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


def measure_chapter(subject: Subject, measured: Measured, options: Options) -> None:
    """One turn of a chapter."""
    lines = programs.bench(subject.program, measured.model.path, options.plan, options.extra(), options.environment())
    programs.add_samples(measured.tests, lines)
    measured.description, measured.weights = lines[0]["description"], lines[0]["weights"]
    measured.build = lines[0].get("build", {})
    measured.peak_resident_bytes = max(line["peak_resident_bytes"] for line in lines)


def measure_breakdown(subject: Subject, measured: Measured, options: Options) -> None:
    """A step by kernel. Its run is one more, so that no event is near the samples."""
    plan = replace(options.plan, n_prompt="0", repetitions=1)
    for line in programs.bench(subject.program, measured.model.path, plan, [*options.extra(), "--breakdown"],
                               options.environment()):
        measured.tests[line["test"]].breakdown = line["breakdown"]


def measure_peer(peer: llama.Peer, measured: Measured, options: Options) -> None:
    """One turn of llama.cpp."""
    lines = llama.bench(peer, options.plan, ["-t", str(options.threads)] if options.threads else [])
    programs.add_samples(measured.tests, lines)
    first = lines[0]
    measured.build = llama.build_settings(peer.programs)
    commit = first.get("build_commit", "unknown")
    version = measured.build.get("llama.cpp", commit)
    measured.description = f"llama.cpp {version}, {first.get('backends', '')}".rstrip(", ")


def take(subjects: list[Subject], models: list[NamedModel], peers: dict[str, list[llama.Peer]],
         options: Options) -> list[Measured]:
    """The whole sitting: model by model, the engines in turns there and back."""
    gathered = []
    for model in models:
        turns = []
        for subject in subjects:
            command = programs.bench_command(subject.program, model.path, options.plan, options.extra())
            measured = Measured(subject.chapter, model, subject.program.name, options.engine_options,
                                programs.shown(command))
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
            if options.breakdown and subject and subject.on_gpu:
                progress(f"{model.name}: the kernels of {measured.engine}")
                measure_breakdown(subject, measured, options)
            if subject and options.check_cases != 0:
                progress(f"{model.name}: checking {measured.engine}")
                measured.checked = correctness.check(subject.program, model.path, model.name, options.extra(),
                                                     options.environment(), options.check_cases)
            gathered.append(measured)
    return gathered


def test_entry(test: Test) -> dict:
    return {"test": test.name, "n_prompt": test.n_prompt, "n_gen": test.n_gen, "n_depth": test.n_depth,
            "bytes_per_token": test.bytes_per_token, "samples_ns": test.samples_ns,
            **({"breakdown": test.breakdown} if test.breakdown else {})}


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
                  "sha256": sha256[model.path], "weights": measured.weights},
        "correctness": measured.checked,
        "turns": options.turns,
        "peak_resident_bytes": measured.peak_resident_bytes,
        "tests": [test_entry(test) for test in measured.tests.values()],
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
