# SPDX-License-Identifier: MIT
"""What the lab has counted (common/cuda/emulator/lab), by the lines of the source.

A program of the lab prints return addresses; here they become functions and lines, by the debug information that the
compiler left. A line's figures are those of all accesses that are made in it, or in what it calls."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterable

from .errors import Failure
from .gguf_file import TensorInfo
from .gguf_file import write as write_gguf
from .shapes import Shape, metadata, tensor_table
from .vocabulary import build as build_vocabulary
from .whole_file import replacing

ROOT = Path(__file__).resolve().parents[2]
#: What a kernel is run on: a layer as wide as the 0.5B's, with a quarter of its feed-forward part.
SHAPE = Shape(1, 896, 1216, 14, 2, 4096, 96, head_type="Q8_0")
COUNTS = ("requests", "sectors", "needed", "bytes", "wavefronts", "conflicts")
READS, WRITES = ("read", "atomic_read"), ("write", "atomic")
_EMULATOR = "common/cuda/emulator/"


@dataclass(frozen=True)
class Place:
    """A line of a function. `file` is relative to the checkout or copy, and what lies outside of it has none."""

    function: str
    file: str
    line: int
    root: Path = ROOT

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def source(self) -> str:
        """The line's text; nothing where it is not of the checkout."""
        if not self.file:
            return ""
        return (self.root / self.file).read_text(encoding="utf-8").splitlines()[self.line - 1].strip()


@dataclass
class Access:
    """A load, a store or an atomic operation of the source: the places from the innermost to the kernel's own."""

    space: str
    kind: str
    size: int
    counts: Counter
    places: list[Place]

    @property
    def what(self) -> str:
        """"global read"."""
        return f"{self.space} {self.kind.replace('_', ' ')}"


@dataclass
class Meeting:
    """A barrier or a warp operation."""

    operation: str
    file: str
    line: int
    is_barrier: bool
    count: int


@dataclass
class Race:
    """Two accesses of which neither is ordered before the other; the threads of the first time."""

    first: Access
    second: Access
    blocks: list[list[int]]
    threads: list[int]

    def __str__(self) -> str:
        sides = (f"{access.what} by block ({','.join(map(str, block))}), thread {thread}, at {access.places[0]}"
                 for access, block, thread in zip((self.first, self.second), self.blocks, self.threads))
        return f"race: {' and '.join(sides)}"


@dataclass
class Launch:
    """A launch of a kernel, and what was found in it."""

    kernel: str
    grid: list[int]
    block: list[int]
    accesses: list[Access] = field(default_factory=list)
    meetings: list[Meeting] = field(default_factory=list)
    races: list[Race] = field(default_factory=list)

    @property
    def name(self) -> str:
        return short_name(self.kernel)

    def total(self, space: str, *kinds: str) -> Counter:
        """The sums over all accesses of a space, of these kinds."""
        return sum_of(a for a in self.accesses if a.space == space and (not kinds or a.kind in kinds))

    def barriers(self) -> int:
        return sum(m.count for m in self.meetings if m.is_barrier)

    def warp_operations(self) -> dict[str, int]:
        result: Counter = Counter()
        for meeting in self.meetings:
            if not meeting.is_barrier:
                result[meeting.operation] += meeting.count
        return dict(result)


@dataclass
class Report:
    """One run of a program of the lab."""

    launches: list[Launch]
    fault: str  #: what stopped it: one line, or nothing
    stopped_at: list[Place]


def short_name(kernel: str) -> str:
    """"gemv<Q4_0>" of the name that C++ gives a kernel, as the breakdown of a step has it."""
    name = re.sub(r"\(anonymous namespace\)::|minfer::|void |Block", "", kernel)
    name = re.sub(r"<(\([\w ]+\))?\d.*", "", name)  # a number: "<64u", and "<(unsigned int)64" as ncu has it
    return name.partition("(")[0]


def sum_of(accesses: Iterable[Access]) -> Counter:
    total = Counter(dict.fromkeys(COUNTS, 0))
    for access in accesses:
        total.update(access.counts)
    return total


@functools.cache
def found_place(file: str, roots: tuple[Path, ...] = (ROOT,)) -> tuple[str, Path]:
    """The path within the root that has the file, or nothing. Compilers write paths that are relative to where they
    ran as well, and a compiler's cache those of another run: the longest end of one that there is counts."""
    parts = Path(file).parts
    for root in roots:
        for i in range(len(parts)):
            tail = Path(*parts[i:])
            if not tail.is_absolute() and ".." not in tail.parts and (root / tail).is_file():
                return tail.as_posix(), root
    return "", ROOT


def symbolize(program: Path, addresses: set[int], roots: tuple[Path, ...] = (ROOT,)) -> dict[int, list[Place]]:
    """Of each return address the call that it belongs to: the function that it is written in, and those that the
    compiler has put that one into."""
    tool = shutil.which("addr2line")
    if tool is None:
        raise Failure("addr2line is not installed (Debian: binutils), which finds the lines of a program's addresses")
    asked = "".join(f"{address - 1:#x}\n" for address in sorted(addresses))
    done = subprocess.run([tool, "-e", str(program), "-a", "-f", "-C", "-i"], input=asked, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise Failure(f"addr2line: {done.stderr.strip()}")
    result: dict[int, list[Place]] = {}
    lines = iter(done.stdout.splitlines())
    places: list[Place] = []
    for line in lines:
        if re.fullmatch("0x[0-9a-f]+", line):
            places = result.setdefault(int(line, 16) + 1, [])
            continue
        file, _, number = next(lines).partition(" (")[0].rpartition(":")
        path, root = found_place(file, roots)
        places.append(Place(line, path, int(number) if number.isdigit() else 0, root))
    return result


def read_report(text: str, program: Path, roots: tuple[Path, ...] = (ROOT,)) -> Report:
    """What a program of the lab has printed."""
    data = json.loads(text)
    addresses = {a for launch in data["launches"] for access in launch["accesses"] for a in access["places"]}
    known = symbolize(program, addresses | set(data["stopped_at"]), roots) if addresses or data["stopped_at"] else {}

    def places_of(stack: list[int], kernel: str) -> list[Place]:
        """Without the emulator's own, within and around the kernel."""
        places = [place for address in stack for place in known[address]]
        last = max((i for i, p in enumerate(places) if short_name(p.function) == short_name(kernel)), default=None)
        own = [p for p in places[:None if last is None else last + 1] if p.file and not p.file.startswith(_EMULATOR)]
        return own or places

    def counts_of(access: dict) -> Counter:
        """None for the load that the emulator makes an atomic operation of, besides the exchange that is counted."""
        is_part = access["kind"] == "atomic_read" and "::atomic_update<" in known[access["places"][0]][0].function
        return Counter({name: 0 if is_part else access[name] for name in COUNTS})

    launches = []
    for launch in data["launches"]:
        accesses = [Access(a["space"], a["kind"], a["size"], counts_of(a), places_of(a["places"], launch["kernel"]))
                    for a in launch["accesses"]]
        meetings = [Meeting(m["operation"], found_place(m["file"], roots)[0], m["line"], m["barrier"], m["count"])
                    for m in launch["meetings"]]
        races = [Race(accesses[r["first"]], accesses[r["second"]], r["blocks"], r["threads"])
                 for r in launch["races"]]
        launches.append(Launch(launch["kernel"], launch["grid"], launch["block"], accesses, meetings, races))
    stopped = launches[-1].kernel if launches else ""
    return Report(launches, data["fault"], places_of(data["stopped_at"], stopped))


def run(program: Path, *words: str, roots: tuple[Path, ...] = (ROOT,)) -> Report:
    """Runs a program of the lab, which was built from files of these roots."""
    done = subprocess.run([str(program), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(f"{program.name}: {done.stderr.strip() or f'exit status {done.returncode}'}")
    return read_report(done.stdout, program, roots)


def write_model(path: Path) -> None:
    """The model that kernels are run on. What its weights are does not matter: all of a tensor's are alike."""
    words = build_vocabulary(SHAPE.vocab, SHAPE.unused)

    def data_of(tensor: TensorInfo):
        is_norm = tensor.name.endswith("norm.weight")
        pattern = b"\0\0\x80\x3f" if is_norm else bytes(4) if len(tensor.shape) == 1 else b"\x2b" * 4
        yield (pattern * (tensor.nbytes // 4 + 1))[:tensor.nbytes]

    with replacing(path) as file:
        write_gguf(file, metadata(SHAPE, words), tensor_table(SHAPE), data_of)


def size(extent: list[int]) -> int:
    return extent[0] * extent[1] * extent[2]


def totals(launch: Launch) -> dict[str, int]:
    """The figures of a launch, by what they are called."""
    result = {"blocks": size(launch.grid), "threads of a block": size(launch.block)}
    for word, kinds in (("read", READS), ("write", WRITES)):
        found = launch.total("global", *kinds)
        for name in ("requests", "sectors", "needed", "bytes"):
            result[f"global {word} {name}"] = found[name]
    for word, kinds in (("read", READS), ("write", WRITES)):
        found = launch.total("shared", *kinds)
        result[f"shared {word} requests"] = found["requests"]
        result[f"shared {word} bank conflicts"] = found["conflicts"]
    result["barriers"] = launch.barriers()
    for operation, count in sorted(launch.warp_operations().items()):
        result[operation] = count
    return result


# --- functions of the source


@dataclass(frozen=True)
class Function:
    """The lines of a function, or of the structure that it is part of."""

    file: str
    first: int
    last: int
    root: Path = ROOT


def function_around(file: str, line: int, root: Path = ROOT) -> Function:
    """What stands from one line at the margin to the brace that closes it there."""
    lines = (root / file).read_text(encoding="utf-8").splitlines()

    def is_head(number: int) -> bool:
        text = lines[number - 1]
        return bool(re.match(r"[A-Za-z_]", text)) and not text.startswith("namespace")

    first = line
    while first > 1 and not is_head(first):
        first -= 1
    while first > 1 and is_head(first - 1) and not lines[first - 2].endswith(("}", ";")):
        first -= 1
    last = line
    while last < len(lines) and not lines[last - 1].startswith("}"):
        last += 1
    return Function(file, first, last, root)


def functions_of(launch: Launch) -> list[Function]:
    """The kernel, then what it calls and what accesses memory, in the order of their first accesses."""
    found: dict[Function, None] = {}
    for outermost in (True, False):
        for access in launch.accesses:
            for place in [access.places[-1]] if outermost else access.places:
                if place.file:
                    found.setdefault(function_around(place.file, place.line, place.root))
    return list(found)


def by_line(accesses: Iterable[Access]) -> dict[tuple[str, int], list[Access]]:
    """The accesses that are made in each line, or in what it calls."""
    result: dict[tuple[str, int], list[Access]] = {}
    for access in accesses:
        for key in {(place.file, place.line) for place in access.places}:
            result.setdefault(key, []).append(access)
    return result
