# SPDX-License-Identifier: MIT
"""`minfer lab`: what each line of a kernel asks of memory, and which accesses race; in the emulator, without a GPU."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

from cli import ROOT, build, chapters, places, system, tryout
from cli.chapters import Chapter
from cli.console import DONE, FAILED, USAGE
from minfer_tools import lab as measured
from minfer_tools.command_line import positive
from minfer_tools.errors import Failure
from minfer_tools.lab import Access, Launch, Report, size, sum_of, totals

EXAMPLES = """\
  ./minfer lab 03                         the kernels of a step of chapter 03
  ./minfer lab 03 gemv                    its gemv, line by line
  ./minfer lab 03 gemv --launch 6         another of its launches: another matrix
  ./minfer lab --compare 02 03 gemv       two chapters side by side
  ./minfer lab --compare 03 05 gemv gemv_q4_0
  ./minfer lab --races 06                 races and accesses out of bounds, in all kernels
  ./minfer lab --races 06 attention
  ./minfer lab 06 attention --in ../mine  of the copy that `minfer try 06 --in ../mine` has made
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `lab` takes besides --no-install."""
    parser.add_argument("words", nargs="+", metavar="CHAPTER|KERNEL",
                        help="a chapter, two with --compare; then a kernel, or one of each chapter")
    parser.add_argument("--compare", action="store_true", help="two chapters side by side")
    parser.add_argument("--races", action="store_true",
                        help="find races in shared and global memory, and accesses out of an array's bounds")
    parser.add_argument("--launch", type=positive, metavar="N",
                        help="the kernel's N-th launch in the step (default: the first)")
    parser.add_argument("--in", dest="folder", metavar="DIR",
                        help="the chapter as it is in DIR, a copy; made where there is none")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


@dataclasses.dataclass
class Program:
    """A chapter's program of the lab, the model that it runs on, and where the files are that it was built from."""

    chapter: Chapter
    binary: Path
    model: Path
    roots: tuple[Path, ...] = (ROOT,)

    def step(self) -> list[Launch]:
        """The launches of a step."""
        return self._run().launches

    def count(self, kernel: str, launch: int) -> Launch:
        """The counts of a launch of a kernel."""
        found = self._run("count", kernel, str(launch))
        if found.fault:
            raise Failure(f"{found.fault}{lines_of(found)}; --races says more")
        if not found.launches:
            n = sum(matches(kernel, name) for name in (item.name for item in self.step()))
            raise Failure(f"--launch {launch}: a step of {self.chapter.name} launches {kernel} {n or 'fewer'} times", USAGE)
        return found.launches[0]

    def check(self, kernel: str | None) -> Report:
        """Races and what else is wrong, in the launches of one kernel or of all."""
        return self._run("check", *([kernel] if kernel else []))

    def _run(self, *words: str) -> Report:
        return measured.run(self.binary, str(self.model), *words, roots=self.roots)


def built(chapter: Chapter, install: bool) -> Program:
    """The program of a chapter, as it lies in the checkout or in a copy."""
    root = chapter.path.parents[1]
    system.ensure(system.BUILD_NEEDS + system.EMULATOR_NEEDS, build.log_dir(), install, system.CHAT_NEEDS)
    place = tryout.place_of(root)
    place.configure()
    why = dict(place.left_out()).get("the lab")
    if why:
        raise Failure(f"the lab can't be built: {why}")
    target = f"lab-{chapter.slug}"
    place.build(target)
    model = build.folder() / "lab.gguf"
    with places.turn(model.with_suffix(".lock"), f"making {model}"):
        measured.write_model(model)
    return Program(chapter, place.binary(target), model, (root,))


def the_chapter(name: str, folder: str | None = None) -> Chapter:
    """The chapter as it lies in the checkout, or in a copy, which is made where there is none."""
    chapter = chapters.find(name, chapters.discover())
    if not (chapter.is_engine and chapter.on_gpu):
        raise Failure(f"{chapter.name} has no kernels of an engine to look at", USAGE)
    return tryout.in_copy(chapter, Path(folder)) if folder else chapter


def kernels_of(chapter: Chapter) -> list[str]:
    """The names of the kernels in a chapter's sources."""
    found: dict[str, None] = {}
    for file in sorted(chapter.path.glob("*.cu*")):
        if not re.search(r"_(test|bench)$", file.stem):
            text = re.sub(r"//.*", "", file.read_text(encoding="utf-8"))
            found.update(dict.fromkeys(
                re.findall(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(", text)))
    return list(found)


def check_name(chapter: Chapter, kernel: str | None) -> None:
    known = kernels_of(chapter)
    if kernel and base_name(kernel) not in known:
        raise Failure(f"{chapter.name} has no kernel {kernel!r}; it has {', '.join(known)}", USAGE)


def base_name(kernel: str) -> str:
    return kernel.partition("<")[0]


def matches(kernel: str, name: str) -> bool:
    return kernel in (name, base_name(name))


def lines_of(report: Report) -> str:
    """" at attention.cuh:80, called from attention.cuh:186"."""
    found = [str(place) for place in report.stopped_at]
    return f" at {found[0]}{''.join(f', called from {place}' for place in found[1:])}" if found else ""


# --- the command


def lab(arguments: argparse.Namespace) -> int:
    n_chapters = 2 if arguments.compare else 1
    names, kernels = arguments.words[:n_chapters], arguments.words[n_chapters:]
    if arguments.compare and arguments.races:
        raise Failure("lab: give one of --compare and --races", USAGE)
    if arguments.compare and (len(names) < 2 or not kernels):
        raise Failure("lab --compare: give two chapters and a kernel, or one of each", USAGE)
    if len(kernels) > n_chapters:
        raise Failure(f"lab: found {' '.join(kernels)!r}, expected one kernel a chapter", USAGE)
    if arguments.launch and (arguments.races or not kernels):
        raise Failure("lab --launch: says which launch of a kernel is counted; give the kernel, without --races", USAGE)
    arguments.launch = arguments.launch or 1
    kernels = [*kernels, *kernels, None][:n_chapters]
    looked_at = [the_chapter(name, arguments.folder) for name in names]
    for chapter, kernel in zip(looked_at, kernels):
        check_name(chapter, kernel)
    return say([built(chapter, arguments.install) for chapter in looked_at], kernels, arguments)


def say(programs: list[Program], kernels: list[str | None], arguments: argparse.Namespace) -> int:
    """Prints what was asked for."""
    if arguments.compare:
        return compare(programs, kernels, arguments)
    program = programs[0]
    if arguments.races:
        return races(program, kernels[0], arguments.json)
    if not kernels[0]:
        return step(program, arguments.json)
    launch = program.count(kernels[0], arguments.launch)
    if arguments.json:
        print(json.dumps(as_data(program.chapter, launch, arguments.launch), indent=1))
    else:
        print(heading(program.chapter, launch, arguments.launch))
        print_lines(launch)
        print_totals([launch])
    return DONE


def step(program: Program, as_json: bool) -> int:
    """The kernels of a step, in the order of their first launches."""
    launches = program.step()
    found: dict[str, list[Launch]] = {}
    for launch in launches:
        found.setdefault(launch.name, []).append(launch)
    others = [k for k in kernels_of(program.chapter) if k not in {base_name(name) for name in found}]
    if as_json:
        print(json.dumps({"chapter": program.chapter.name, "others": others, "launches": [
            {"kernel": item.name, "blocks": item.grid, "threads": item.block} for item in launches]}, indent=1))
        return DONE
    print(f"{program.chapter.name}: {len(launches)} launches in a step of one token\n")
    print(f"{'kernel':24} {'launches':>8}  blocks x threads")
    for name, items in found.items():
        shapes = dict.fromkeys(f"{size(item.grid)}x{size(item.block)}" for item in items)
        print(f"{name:24} {len(items):8}  {' '.join(shapes)}")
    for name in others:
        print(f"{name:24} {'-':>8}  with other options of the engine")
    return DONE


def races(program: Program, kernel: str | None, as_json: bool) -> int:
    """Names both lines of each race, and the line of an access out of bounds."""
    report = program.check(kernel)
    found = found_in(report)
    checked = Counter(launch.name for launch in report.launches)
    if as_json:
        print(json.dumps({"chapter": program.chapter.name, "launches": dict(checked), "found": found}, indent=1))
    else:
        for line in found:
            print(line)
        print(f"{program.chapter.name}: {sum(checked.values())} launches checked, of the kernels {', '.join(checked)}: "
              f"{len(found) or 'nothing'} found")
    return FAILED if found else DONE


def found_in(report: Report) -> list[str]:
    """For each pair of places that race, whatever the launch, and for what has stopped the kernels, what is to be
    said of it."""
    found: dict[tuple, str] = {}
    for launch in report.launches:
        for race in launch.races:
            shown = dict.fromkeys(place for access in (race.first, race.second) for place in access.places)
            text = "".join(f"\n    {place}: {place.source()}" for place in shown)
            found.setdefault((launch.name, frozenset(shown)), f"{launch.name}: {race}{text}")
    return [*found.values(), *([report.fault + lines_of(report)] if report.fault else [])]


def compare(programs: list[Program], kernels: list[str], arguments: argparse.Namespace) -> int:
    counted = [program.count(kernel, arguments.launch) for program, kernel in zip(programs, kernels)]
    pairs = [(program.chapter, launch) for program, launch in zip(programs, counted)]
    if arguments.json:
        print(json.dumps([as_data(chapter, launch, arguments.launch) for chapter, launch in pairs], indent=1))
        return DONE
    print_totals(counted, [f"{chapter.name[:2]} {launch.name}" for chapter, launch in pairs])
    for chapter, launch in pairs:
        print(f"\n{heading(chapter, launch, arguments.launch)}")
        print_lines(launch)
    return DONE


# --- tables


def heading(chapter: Chapter, launch: Launch, number: int) -> str:
    return (f"{chapter.name}: {launch.name}, launch {number} of the step, "
            f"{size(launch.grid)} blocks of {size(launch.block)} threads")


def print_lines(launch: Launch) -> None:
    """The kernel's source, and that of what it calls, with each line's figures before it."""
    found = measured.by_line(launch.accesses)
    for function in measured.functions_of(launch):
        text = (function.root / function.file).read_text(encoding="utf-8").splitlines()
        print(f"\n{function.file}\n{'global memory':>24} {'':13}| {'shared memory':18} | {'':6} |")
        print(f"{'requests':>9} {'sectors':>8} {'needed':>8} {'bytes':>9} | {'requests':>8} {'conflicts':>9} | {'met':>6} |")
        for number in range(function.first, function.last + 1):
            figures = line_figures(found.get((function.file, number), []))
            met = sum(m.count for m in launch.meetings if (m.file, m.line) == (function.file, number))
            print(f"{figures} | {met or '':6} | {number:4}  {text[number - 1]}".rstrip())


def line_figures(accesses: list[Access]) -> str:
    by_global = [a for a in accesses if a.space == "global"]
    by_shared = [a for a in accesses if a.space == "shared"]
    columns = [("requests", 9, by_global), ("sectors", 8, by_global), ("needed", 8, by_global), ("bytes", 9, by_global),
               ("requests", 8, by_shared), ("conflicts", 9, by_shared)]
    shown = [f"{sum_of(of)[name] if of else '':>{width}}" for name, width, of in columns]
    return f"{' '.join(shown[:4])} | {' '.join(shown[4:])}"


def print_totals(launches: list[Launch], names: list[str] | None = None) -> None:
    tables = [totals(launch) for launch in launches]
    width = max(14, *(len(name) + 2 for name in names or [""]))
    print(f"\n{'':28}{''.join(f'{name:>{width}}' for name in names or [])}".rstrip())
    for key in dict.fromkeys(key for table in tables for key in table):
        print(f"{key:28}{''.join(f'{table.get(key, 0):>{width}}' for table in tables)}")


def as_data(chapter: Chapter, launch: Launch, number: int) -> dict:
    """For tests and for tables of the book."""
    places = {(place.file, place.line): place for access in launch.accesses for place in access.places}
    lines = [{"file": file, "line": line, "source": places[file, line].source(),
              "global": figures("global", accesses), "shared": figures("shared", accesses)}
             for (file, line), accesses in sorted(measured.by_line(launch.accesses).items()) if file]
    return {"chapter": chapter.name, "kernel": launch.name, "launch": number, "blocks": launch.grid,
            "threads": launch.block, "totals": totals(launch), "lines": lines}


def figures(space: str, accesses: list[Access]) -> dict[str, int]:
    names = {"global": ("requests", "sectors", "needed", "bytes"), "shared": ("requests", "wavefronts", "conflicts")}
    found = sum_of(a for a in accesses if a.space == space)
    return {name: found[name] for name in names[space]}
