# SPDX-License-Identifier: MIT
"""What every measuring command takes, and a sitting from its command line."""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from ..chapter_tree import find_chapters
from ..command_line import natural, positive
from ..errors import Failure
from . import llama, machine, programs, records, sitting
from .programs import progress

USAGE = 2


def numbers(text: str) -> str:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected whole numbers with commas between them")
    return text


def named_model(text: str) -> sitting.NamedModel:
    """"coder-0.5b=path", or a path that names itself."""
    name, separator, path = text.partition("=")
    return sitting.NamedModel(name, Path(path)) if separator else sitting.NamedModel.of_file(Path(text))


def engine_option(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not re.fullmatch(r"[A-Z]+", name):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a variable and its value, as in LMHEAD=0")
    return name, value


def heads(text: str) -> list[str]:
    parts = text.split(",")
    if not set(parts) <= set(llama.HEADS):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected of {', '.join(llama.HEADS)} one or more")
    return parts


def add_tests(parser: argparse.ArgumentParser) -> None:
    """llama-bench's options, and how a sitting goes."""
    parser.add_argument("-p", type=numbers, default="512", metavar="N,N", help="tokens of a prompt; 0: none (%(default)s)")
    parser.add_argument("-n", type=numbers, default="128", metavar="N,N", help="decode steps; 0: none (%(default)s)")
    parser.add_argument("-d", type=numbers, default="0", metavar="N,N", help="tokens before the clock starts (%(default)s)")
    parser.add_argument("-r", type=positive, default=5, metavar="N", help="samples of a test in each turn (%(default)s)")
    parser.add_argument("--turns", type=positive, default=2, metavar="N",
                        help="how often each engine has its turn, there and back (%(default)s)")
    parser.add_argument("--threads", type=positive, metavar="N", help="CPU threads")
    parser.add_argument("--option", action="append", default=[], type=engine_option, metavar="NAME=VALUE",
                        help="an engine's option, as LMHEAD=0; again for more")
    parser.add_argument("--check-cases", type=natural, metavar="N",
                        help="reference prompts to check each engine on; 0: none (default: all there are)")
    parser.add_argument("--breakdown", action="store_true",
                        help="on a GPU, each decode test's step kernel by kernel as well, and what is idle")
    parser.add_argument("--machine", metavar="ID", help="what the machine's file is called (default: from its name)")
    parser.add_argument("--commit", metavar="HASH", help="of what was built, where there is no git to ask")
    parser.add_argument("--llama-cpp", type=Path, metavar="DIR", help="llama.cpp's programs, to take turns with the chapters")
    parser.add_argument("--heads", type=heads, default=["stock"], metavar="stock,q4_0,f32",
                        help="llama.cpp's head: the file's, requantized, or with all weights in F32 (stock)")
    parser.add_argument("--fa", type=numbers, default="0,1", metavar="0,1", help="llama.cpp: flash attention (%(default)s)")


def select(text: str, build_dir: Path, built: bool = True) -> list[sitting.Subject]:
    """The chapters that a list names. "all" are the GPU's; the oracle has to be asked for.
    @param built  whether the programs have to be there already"""
    known = {chapter.number: sitting.Subject(chapter.name, build_dir / chapter.slug, chapter.on_gpu)
             for chapter in find_chapters(records.ROOT) if chapter.is_engine}
    chosen = []
    for part in text.split(","):
        span = re.fullmatch(r"(\d\d?)(?:-(\d\d?))?", part)
        slug = [subject for subject in known.values() if part in (subject.chapter, subject.program.name)]
        if slug:
            found = slug
        elif part == "all":
            found = [subject for subject in known.values() if subject.on_gpu]
        elif part == "oracle":
            found = [subject for subject in known.values() if not subject.on_gpu]
        elif span:
            found = [known[n] for n in range(int(span[1]), int(span[2] or span[1]) + 1) if n in known]
        else:
            found = []
        if not found:
            raise Failure(f"--chapters: found {part!r}, expected all, oracle, a number, or a span as 02-07", USAGE)
        chosen += [subject for subject in found if subject not in chosen]
    for subject in chosen:
        if built and not subject.program.is_file():
            raise Failure(f"{subject.program}: no such program; {subject.chapter} is not built there")
    return chosen


def make_options(arguments: argparse.Namespace, subjects: list[sitting.Subject]) -> sitting.Options:
    """How the subjects are measured. @throws Failure where one has not the option that its results would be called by"""
    for subject in subjects if arguments.option else []:
        known = programs.engine_options(subject.program)
        for name, _ in arguments.option:
            if name not in known:
                raise Failure(f"--option: {subject.chapter} has no {name}; it has {', '.join(known) or 'none'}", USAGE)
    return sitting.Options(
        plan=programs.Plan(arguments.p, arguments.n, arguments.d, arguments.r), turns=arguments.turns,
        threads=arguments.threads, engine_options=dict(arguments.option), check_cases=arguments.check_cases,
        commit=arguments.commit, breakdown=arguments.breakdown)


def measure(subjects: list[sitting.Subject], models: list[sitting.NamedModel], arguments: argparse.Namespace,
            build_dir: Path) -> list[dict]:
    """A sitting's records, not written yet."""
    options = make_options(arguments, subjects)
    for model in models:
        if not model.path.is_file():
            raise Failure(f"--model: {model.path}: no such file", USAGE)
    on_gpu = any(subject.on_gpu for subject in subjects)
    if options.breakdown and not on_gpu:
        raise Failure("--breakdown: takes the steps of GPU chapters apart, and none was asked for", USAGE)
    roofline, bandwidth = None, None
    if on_gpu:
        progress("measuring the roofline")
        roofline = machine.roofline(build_dir / "roofline")
        bandwidth = roofline["roofline"]["gb_per_s_median"] if roofline else None
    else:
        bandwidth = programs.stream_gb_per_s(subjects[0].program, options.extra())
    described = machine.describe(roofline, bandwidth, "gpu" if on_gpu else "cpu")
    if arguments.machine:
        described["id"] = machine.identifier(arguments.machine)
    with tempfile.TemporaryDirectory(prefix="minfer-llama-") as folder:
        peers = {}
        if arguments.llama_cpp:
            flash = [int(fa) for fa in arguments.fa.split(",")]
            peers = {model.name: llama.peers(arguments.llama_cpp, model.path, arguments.heads, flash, Path(folder))
                     for model in models}
        gathered = sitting.take(subjects, models, peers, options)
        return sitting.to_records(gathered, described, roofline, options)
