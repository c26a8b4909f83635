# SPDX-License-Identifier: MIT
"""`minfer run`, `chat`, `tokenize` and `detokenize`: picks a chapter, builds it, becomes it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from cli import build, chapters, gpu, models, system
from cli.chapters import Chapter
from cli.console import USAGE, become, say
from minfer_tools.errors import Failure


@dataclass(frozen=True)
class Choice:
    """What runs the model: a chapter, its binary's name, and why it is this one."""

    chapter: Chapter
    target: str
    why: str


def choose(chapter: str | None, device: str) -> Choice:
    """The chapter and the build of it that the options and this machine ask for."""
    known = chapters.discover()
    named = chapters.find(chapter, known) if chapter else None
    if named and not named.is_engine:
        raise Failure(f"--chapter: {named.name} measures the machine and runs no model", USAGE)
    if device == "emulator":
        return emulated(named or chapters.fastest_on_gpu(known))
    if named and not named.on_gpu:
        if device == "gpu":
            raise Failure(f"--device gpu: {named.name} runs on the CPU", USAGE)
        return Choice(named, named.slug, "")
    candidate = named or chapters.fastest_on_gpu(known)
    obstacle = gpu_obstacle(candidate)
    if not obstacle:
        return Choice(candidate, candidate.slug, "")
    if device == "gpu" or named:
        hint = "" if device == "gpu" else "; --device emulator runs it on the CPU"
        raise Failure(f"{obstacle}{hint}")
    oracle = chapters.find("oracle", known)
    return Choice(oracle, oracle.slug, f"{obstacle}: running the CPU oracle")


def emulated(chapter: Chapter | None) -> Choice:
    if not chapter or not chapter.on_gpu:
        name = chapter.name if chapter else "this checkout"
        raise Failure(f"--device emulator: {name} has no GPU code to emulate", USAGE)
    return Choice(chapter, f"{chapter.slug}-emulated", "")


def gpu_obstacle(chapter: Chapter | None) -> str | None:
    """Why this machine can't run that chapter on a GPU; None where it can."""
    device = gpu.find()
    if not device:
        return "no GPU here"
    if not chapter:
        return f"{device.name}: this checkout has no GPU chapter"
    if device.sm < gpu.LOWEST_SM:
        return f"{device.name} is sm_{device.sm}, and minfer needs sm_{gpu.LOWEST_SM} or newer"
    if not gpu.nvcc():
        return f"{device.name}, but no nvcc to build for it (CUDA 12.6 or newer)"
    return None


def prepare(choice: Choice, needs: tuple[system.Need, ...], install: bool) -> Path:
    """Installs, configures and builds what the choice needs; returns the binary."""
    needs += system.BUILD_NEEDS
    if choice.target.endswith("-emulated"):
        needs += system.EMULATOR_NEEDS
    installed = system.ensure(needs, build.log_dir(), install, system.CHAT_NEEDS)
    device = gpu.find() if choice.chapter.on_gpu else None
    place = build.Build(build.folder(), build.default_options(device))
    place.configure(again=installed)
    if choice.chapter.on_gpu and not choice.target.endswith("-emulated"):
        place.require_cuda()
    place.build(choice.target)
    return place.binary(choice.target)


def run(arguments: argparse.Namespace) -> None:
    """Streams the answer to one prompt."""
    if (arguments.prompt is None) == (arguments.prompt_ids is None):
        raise Failure("run: give one of PROMPT (- for standard input) and --prompt-ids", USAGE)
    if arguments.prompt is None:
        start(arguments, "run", ["--prompt-ids", arguments.prompt_ids])
    else:
        start(arguments, "run", ["--", arguments.prompt])


def chat(arguments: argparse.Namespace) -> None:
    """A conversation."""
    start(arguments, "chat", [])


def tokenize(arguments: argparse.Namespace) -> None:
    start(arguments, "tokenize", ["--", arguments.text])


def detokenize(arguments: argparse.Namespace) -> None:
    start(arguments, "detokenize", ["--", *arguments.ids])


def start(arguments: argparse.Namespace, subcommand: str, words: list[str]) -> None:
    """Gets everything ready, then hands this process over to the chapter's own program."""
    # Tokenizing needs a model's vocabulary and no engine.
    uses_engine = subcommand in ("run", "chat")
    choice = (choose(arguments.chapter, arguments.device) if uses_engine
              else choose("oracle", "auto"))
    if choice.why:
        say(choice.why)
    model = models.find(arguments.model)
    binary = prepare(choice, () if model else models.fetch_needs(), arguments.install)
    model = model or models.fetch(arguments.model, arguments.install)
    passed_on = getattr(arguments, "passed_on", [])
    become([binary, subcommand, "--model", model, *passed_on, *words])
