#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the lab finds in small kernels (kernels.cu) against what was worked out by hand; that it finds nothing wrong in a
chapter; and that the figures of the documentation are its own.

    check_lab.py figures|races|bounds PROGRAM
    check_lab.py chapter PROGRAM
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

from cli.lab import print_lines  # noqa: E402
from minfer_tools import lab  # noqa: E402

PAGE = ROOT / "docs" / "pages" / "lab.md"
#: Launches that a GPU's counters stand beside.
RECORD = ROOT / "tests" / "chapters" / "records" / "h200-lab.json"

#: Of a launch: requests, sectors touched, sectors needed, bytes.
GLOBAL = {
    "copy_float4": {"read": (4, 64, 64, 2048), "write": (4, 64, 64, 2048)},  # 4 warps, 512 bytes each
    "copy_pairs": {"read": (1, 8, 8, 256), "write": (1, 4, 4, 128)},
    "read_every_second": {"read": (1, 8, 4, 128), "write": (1, 4, 4, 128)},
    "read_one": {"read": (1, 1, 1, 4), "write": (1, 4, 4, 128)},
    "read_misaligned": {"read": (1, 5, 4, 128), "write": (1, 4, 4, 128)},  # bytes 4 to 131
    "read_block_scales": {"read": (1, 18, 2, 64), "write": (1, 4, 4, 128)},  # 2 of 18 bytes, over 560
    "read_block_bytes": {"read": (1, 2, 1, 32), "write": (1, 4, 4, 128)},  # bytes 2 to 17 and 20 to 35
    "copy_three": {"read": (3, 36, 12, 384), "write": (3, 36, 12, 384)},  # 3 of 4 bytes, 12 apart
    "read_triangle": {"read": (32, 32, 32, 128), "write": (1, 4, 4, 128)},
    "read_after_meeting": {"read": (2, 6, 6, 192), "write": (1, 4, 4, 128)},  # 16 lanes, then 32
    "count_all": {"atomic": (4, 4, 4, 16)},
    "copy_async": {"read": (1, 16, 16, 496), "write": (1, 16, 16, 512)},  # the first lane's are zeros
}
#: Requests, wavefronts, bank conflicts.
SHARED = {
    "read_shared_1": {"write": (1, 1, 0), "read": (1, 1, 0)},
    "read_shared_2": {"write": (2, 2, 0), "read": (1, 2, 1)},
    "read_shared_32": {"write": (32, 32, 0), "read": (1, 32, 31)},
    "read_shared_33": {"write": (33, 33, 0), "read": (1, 1, 0)},
    "read_shared_one": {"write": (1, 1, 0), "read": (1, 1, 0)},
    "copy_async": {"write": (1, 4, 0), "read": (1, 4, 0)},
    "copy_shared_float4": {"write": (1, 4, 0), "read": (1, 4, 0)},  # a quarter of the warp at a time
    "read_shared_int2": {"write": (2, 4, 0), "read": (1, 4, 2)},  # half of it: 16 lanes over 64 words
}
BARRIERS = {"read_shared_1": 1, "copy_float4": 0, "reverse_with_barrier": 3}
OPERATIONS = {"read_after_meeting": {"__syncwarp": 2}, "exchange_by_shuffle": {"__shfl_xor_sync": 1}}

#: Programs whose launches are many steps.
PERSISTENT = ("lab-persistent-kernel", "lab-tensor-core-steps")
#: What the README files of chapters say of a program's kernel, a matrix of 896 rows of 28 blocks: its global reads.
TOLD = {
    "lab-naive": ("gemv", {"02-naive": "{requests}  {sectors}   {needed}   {bytes} |",
                           "03-warp-gemv": "| sectors, the lab | {sectors:,} |"}),
    "lab-warp-gemv": ("gemv", {"03-warp-gemv": "| {sectors:,} | 10.7 x fewer |",
                               "05-dp4a": "| sectors that they touch, the lab | {sectors_a_block:.1f} |"}),
    "lab-dp4a": ("gemv_q4_0", {"05-dp4a": "| 6.4 | {sectors_a_block:.1f} |"}),
    "lab-fused-attention": ("attention", {"06-fused-attention": "touches {sectors:,} sectors and needs {needed:,}"}),
    "lab-int8-head": ("gemv_q8_0", {"07-int8-head": "{sectors:,} sectors, of which {needed:,} are needed"})}

TILE = "tile[threadIdx.x] = static_cast<float>(threadIdx.x);"
ONE = "tile[threadIdx.x] = 1;"
PARTIAL = "partial[threadIdx.x] = value;"
LEVEL = "if (threadIdx.x < width) partial[threadIdx.x] += partial[threadIdx.x + width];"
SUM = "const float sum = partial[0];"
#: The two lines of each race.
RACES = {
    "reverse": {(TILE, "out[threadIdx.x] = tile[63 - threadIdx.x];")},
    "reverse_with_barrier": set(),
    "exchange_by_shuffle": {(ONE, "out[threadIdx.x] = tile[threadIdx.x ^ 1] + one;")},
    "exchange_by_syncwarp": set(),
    "exchange_across_halves": {(ONE, "out[threadIdx.x] = tile[threadIdx.x ^ 16];")},
    "overwrite": {("out[threadIdx.x] = value[0];", "if (threadIdx.x == 0) value[0] = 2;")},
    "write_bytes": set(),
    "copy_async": set(),
    "read_neighbour": {("out[blockIdx.x] = static_cast<float>(blockIdx.x);",
                        "out[blockIdx.x + 2] = out[1 - blockIdx.x];")},
    "write_both": {("out[0] = static_cast<float>(blockIdx.x);",) * 2},
    "count_all": set(),
    "add_in_last_block": set(),
    "add_in_some_block": {("if (threadIdx.x == 0) out[blockIdx.x] = 1;",
                           "for (unsigned i = 0; i < gridDim.x; ++i) sum += out[i];")},
    "meet_in_grid": set(),
    "sum_as_it_is": set(),
    "sum_without_first_barrier": {(PARTIAL, LEVEL), (LEVEL, LEVEL)},
    "sum_without_warp_barrier": {(LEVEL, LEVEL)},
    "sum_without_second_barrier": {(LEVEL, SUM)},
    "sum_without_last_barrier": {(SUM, PARTIAL)},
}
#: What the fault says, and the line.
BOUNDS = {
    "write_past": ("thread (40,0,0): writes 4 bytes at 0 bytes after an array of 160 bytes in device memory",
                   "if (threadIdx.x <= n) out[threadIdx.x] = 1;"),
    "write_past_buffer": ("thread (24,0,0): writes 4 bytes at 0 bytes after 4096 bytes of device memory",
                          "if (threadIdx.x <= n) out[threadIdx.x] = 1;"),
    "read_past_static": ("thread (63,0,0): reads 4 bytes at 124 bytes after shared variable tile of 256 bytes",
                         "out[threadIdx.x] = tile[threadIdx.x + 32];"),
    "write_past_dynamic": ("thread (32,0,0): writes 4 bytes at 0 bytes after the dynamic shared memory of 128 bytes",
                           ONE),
}


class Check:
    """Counts what was compared, and prints what differs."""

    def __init__(self, program: Path):
        self.program, self.compared, self.wrong = program, 0, 0

    def equal(self, what: str, found: object, expected: object) -> None:
        self.compared += 1
        if found != expected:
            self.wrong += 1
            print(f"{what}: found {found}, expected {expected}")

    def report(self, task: str, name: str) -> lab.Report:
        return lab.run(self.program, task, name)

    def figures(self) -> None:
        for name in dict.fromkeys([*GLOBAL, *SHARED, *BARRIERS, *OPERATIONS]):
            report = self.report("count", name)
            self.equal(f"{name}: what stopped it", report.fault, "")
            launch = report.launches[0]
            for kind, expected in GLOBAL.get(name, {}).items():
                total = launch.total("global", kind)
                self.equal(f"{name}: global {kind}: requests, sectors, needed, bytes",
                           tuple(total[key] for key in ("requests", "sectors", "needed", "bytes")), expected)
            for kind, expected in SHARED.get(name, {}).items():
                total = launch.total("shared", kind)
                self.equal(f"{name}: shared {kind}: requests, wavefronts, conflicts",
                           tuple(total[key] for key in ("requests", "wavefronts", "conflicts")), expected)
            if name in BARRIERS:
                self.equal(f"{name}: barriers", launch.barriers(), BARRIERS[name])
            if name in OPERATIONS:
                self.equal(f"{name}: warp operations", launch.warp_operations(), OPERATIONS[name])

    def races(self) -> None:
        for name, expected in RACES.items():
            report = self.report("check", name)
            self.equal(f"{name}: what stopped it", report.fault, "")
            found = {tuple(sorted(access.places[0].source() for access in (race.first, race.second)))
                     for race in report.launches[0].races}
            self.equal(f"{name}: races", found, {tuple(sorted(pair)) for pair in expected})
            if name == "sum_without_second_barrier":  # the page's example
                text = PAGE.read_text(encoding="utf-8")
                for access in (report.launches[0].races[0].first, report.launches[0].races[0].second):
                    said = f"    common/cuda/reduce.h:{access.places[0].line}: {access.places[0].source()}\n"
                    self.equal("the page's race", said if said in text else "", said)

    def bounds(self) -> None:
        for name, (what, line) in BOUNDS.items():
            report = self.report("check", name)
            self.equal(f"{name}: the fault", what if what in report.fault else report.fault, what)
            self.equal(f"{name}: its line", [place.source() for place in report.stopped_at[:1]], [line])

    def chapter(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "lab.gguf"
            lab.write_model(model)
            report = lab.run(self.program, str(model), "check")
            documented = {"lab-naive": self.documented_totals, "lab-warp-gemv": self.documented_lines}
            if self.program.name in documented:
                documented[self.program.name](lab.run(self.program, str(model), "count", "gemv", "1").launches[0])
            if self.program.name in TOLD:
                kernel, told = TOLD[self.program.name]
                self.told(told, lab.run(self.program, str(model), "count", kernel, "1").launches[0])
        self.equal("what stopped it", report.fault, "")
        least = 2 if self.program.name in PERSISTENT else 13  # a prompt's and a step's; or five a layer, of two
        self.equal("launches", len(report.launches) >= least, True)
        for launch in report.launches:
            self.equal(launch.kernel, [str(race) for race in launch.races], [])
            self.equal(f"{launch.kernel}: accesses seen", bool(launch.accesses), True)


    def documented_lines(self, launch: lab.Launch) -> None:
        """The listing of the page, in what `./minfer lab` prints."""
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            print_lines(launch)
        listing = next(block for block in PAGE.read_text(encoding="utf-8").split("```text\n") if "global memory" in block)
        lines = listing.partition("```")[0].splitlines()
        self.equal("lines of the page", len(lines) > 3, True)
        for line in lines:
            self.equal(f"the page's line {line!r}", line in shown.getvalue().splitlines(), True)

    def told(self, phrases: dict[str, str], launch: lab.Launch) -> None:
        total = dict(launch.total("global", "read"))
        for chapter, phrase in phrases.items():
            text = " ".join((ROOT / "chapters" / chapter / "README.md").read_text(encoding="utf-8").split())
            said = " ".join(phrase.format(**total, sectors_a_block=total["sectors"] / (896 * 28)).split())
            self.equal(f"what {chapter} says", said if said in text else "", said)
        recorded = json.loads(RECORD.read_text(encoding="utf-8"))["chapters"][self.program.name.removeprefix("lab-")]
        expected = next(other["lab"] for other in recorded if other["kernel"] == launch.name)
        counted = lab.totals(launch)
        self.equal(f"what was recorded of {launch.name}", {key: counted[key] for key in expected}, expected)

    def documented_totals(self, launch: lab.Launch) -> None:
        text = " ".join(PAGE.read_text(encoding="utf-8").split())
        total = launch.total("global", "read")
        said = f"touches {total['sectors']:,} sectors for {total['needed']:,} that it needs"
        self.equal("what the page says of 02", said if said in text else "", said)


def main() -> int:
    what, program = sys.argv[1:]
    check = Check(Path(program).resolve())
    getattr(check, what)()
    print(f"{what}: {check.compared} compared, {check.wrong} wrong")
    return 1 if check.wrong or not check.compared else 0


if __name__ == "__main__":
    sys.exit(main())
