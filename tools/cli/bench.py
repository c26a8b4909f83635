# SPDX-License-Identifier: MIT
"""`minfer bench`: builds what it measures, measures it in turns, shows it and records it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from cli import build, chapters, gpu, models, peer, run, system
from cli.console import DONE, SKIPPED, USAGE, say
from minfer_tools.errors import Failure
from minfer_tools.measure import ab, options, readme, records, sitting, tables

EXAMPLES = """\
  ./minfer bench                              the newest chapter that runs here
  ./minfer bench --chapter oracle             on the CPU
  ./minfer bench --chapter all -p 512 --breakdown --record
  ./minfer bench --ab 05 06 -p 0              two chapters in turns, with the ratio's interval
  ./minfer bench -p 0 --breakdown             a step by kernel, and what is idle
  ./minfer bench --reproduce                  the whole ladder, tg128 and pp512, beside the reported figures
  ./minfer bench --chapter oracle --peer llama.cpp --heads stock,f32 --fa 0 --threads 2
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `bench` takes."""
    parser.add_argument("--model", action="append", metavar="NAME|PATH",
                        help="a model of models.json or a GGUF file (also: MODEL); again for more")
    parser.add_argument("--no-install", dest="install", action="store_false",
                        help="install nothing: say what is missing and stop")
    parser.add_argument("--chapter", metavar="LIST", help="05, 02-07, 02,05, oracle or all (default: the newest)")
    parser.add_argument("--ab", nargs=2, metavar=("A", "B"), help="compare two chapters, in turns ABBA")
    parser.add_argument("--reproduce", action="store_true",
                        help="the whole ladder, recorded and printed beside the specification's figures")
    parser.add_argument("--record", action="store_true", help="write chapters/NN-slug/results/MACHINE.json")
    parser.add_argument("--out", type=Path, default=records.CHAPTERS, metavar="DIR",
                        help="where NN-slug/results/MACHINE.json is written (default: chapters)")
    parser.add_argument("-o", dest="form", choices=("md", "csv", "json", "jsonl"), default="md",
                        help="how the results are printed (%(default)s)")
    parser.add_argument("--peer", choices=("llama.cpp",), help="llama.cpp takes turns too, built first where it must be")
    parser.add_argument("--build-dir", type=Path, metavar="DIR", help="programs that are built already: builds nothing")
    options.add_tests(parser)


def selected(arguments: argparse.Namespace) -> str:
    """The chapters to measure, as options.select() takes them. @throws Failure, skipped, without a GPU"""
    if arguments.ab:
        return ",".join(arguments.ab)
    if arguments.chapter and not arguments.reproduce:
        return arguments.chapter
    obstacle = run.gpu_obstacle(chapters.newest_on_gpu(chapters.discover()))
    if obstacle and not arguments.build_dir:
        raise Failure(f"{obstacle}: nothing is measured; ./minfer bench --chapter oracle measures the CPU oracle", SKIPPED)
    newest = chapters.newest_on_gpu(chapters.discover())
    return "all" if arguments.reproduce else f"{newest.number:02d}"


def prepare(subjects: list[sitting.Subject], install: bool) -> None:
    """Builds the subjects' programs, and chapter 00's where a GPU is measured."""
    known = {chapter.name: chapter for chapter in chapters.discover()}
    on_gpu = [known[subject.chapter] for subject in subjects if subject.on_gpu]
    obstacle = run.gpu_obstacle(on_gpu[0]) if on_gpu else None
    if obstacle:
        raise Failure(f"{obstacle}: {on_gpu[0].name} can't be measured", SKIPPED)
    installed = system.ensure(system.BUILD_NEEDS, build.log_dir(), install)
    place = build.Build(build.folder(), build.default_options(gpu.find() if on_gpu else None))
    place.configure(again=installed)
    if on_gpu:
        place.require_cuda()
    place.build(*[subject.program.name for subject in subjects], *(["roofline"] if on_gpu else []))


def find_models(wanted: list[str] | None, install: bool) -> list[sitting.NamedModel]:
    found = []
    for name in wanted or [None]:
        path = models.resolve(name, install)
        catalogued = next((model.name for model in models.catalogue.load().models.values()
                           if models.cache.find(model) == path), None)
        found.append(sitting.NamedModel(catalogued, path) if catalogued else sitting.NamedModel.of_file(path))
    return found


def bench(arguments: argparse.Namespace) -> int:
    beside = [arguments.record, arguments.peer, arguments.chapter, arguments.reproduce, arguments.breakdown]
    if arguments.ab and any(beside):
        raise Failure("--ab compares two chapters and nothing else: leave out --breakdown, --chapter, --peer, --record, "
                      "--reproduce", USAGE)
    listed = selected(arguments)
    build_dir = arguments.build_dir or build.folder()
    subjects = options.select(listed, build_dir, built=arguments.build_dir is not None)
    if not arguments.build_dir:
        prepare(subjects, arguments.install)
    found = find_models(arguments.model, arguments.install)
    if arguments.peer and not arguments.llama_cpp:
        arguments.llama_cpp = peer.llama_cpp(any(subject.on_gpu for subject in subjects), arguments.install)
    if arguments.ab:
        return compare_two(subjects, found, arguments, build_dir)
    measured = options.measure(subjects, found, arguments, build_dir)
    for line in tables.memory_lines(measured):
        say(line)
    if arguments.record or arguments.reproduce:
        for record in measured:
            say(f"wrote {records.write(arguments.out, record)}")
        say("tools/render_tables.py --plot writes the README's tables and pictures from it")
    if arguments.reproduce:
        print(beside_reported(measured), end="")
    else:
        print(tables.sitting_table(measured, arguments.form), end="")
    return DONE


def compare_two(subjects: list[sitting.Subject], found: list[sitting.NamedModel], arguments: argparse.Namespace,
                build_dir: Path) -> int:
    if len(subjects) != 2 or len(found) != 1:
        raise Failure("--ab: expected two different chapters and one model", USAGE)
    (a, b), model = subjects, found[0]
    settings = options.make_options(arguments, subjects)
    rows = ab.rows(*ab.take(a, b, model, settings))
    if arguments.form == "json":
        print(json.dumps(rows, indent=1))
    elif arguments.form == "jsonl":
        print("".join(json.dumps(row) + "\n" for row in rows), end="")
    elif arguments.form == "csv":
        raise Failure("--ab: -o csv has no place for an interval; take md, json or jsonl", USAGE)
    else:
        print(ab.table(rows, a.chapter, b.chapter), end="")
    same = ab.agreement(a, b, model, settings)
    if same:
        say(f"teacher-forced on the reference prompts: the same token at {same[0]} of {same[1]} positions")
    return DONE


def beside_reported(measured: list[dict]) -> str:
    """The ladder of this sitting, with the specification's figures in a column of their own."""
    reported = readme.Sources.load().reported
    header = ["chapter", "model", "test", f"reported: {reported['machine']}, {reported['model']}",
              f"measured: {measured[0]['machine']['name']}, tok/s", "GB/s", "of the roofline", "tok/J"]
    rows = []
    for result in tables.all_results(measured):
        comparable = result.test.name == reported["test"] and not result.run["options"]
        figure = reported["chapters"].get(result.record["chapter"], "") if comparable else ""
        rows.append([f"{result.record['chapter']} {tables.engine_title(result.run)}", result.run["model"]["name"],
                     result.test.name, figure, tables.speed(result.speed), tables.number(result.gb_per_s),
                     tables.percent(result.share), tables.number(result.tokens_per_joule, 2)])
    return tables.markdown(header, rows, left=3)


