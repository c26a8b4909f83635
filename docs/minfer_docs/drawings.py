# SPDX-License-Identifier: MIT
"""Pictures where people would rather look than read, for light pages and dark ones: {drawing} NAME, and docs/figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from . import fonts
from .places import ROOT
from .plots import THEMES, Theme

SANS, MONO = "Inter, sans-serif", "JetBrains Mono, monospace"


@dataclass
class Canvas:
    """An SVG that grows by boxes, texts and arrows."""

    width: float
    height: float
    theme: Theme
    left: float = 0  # of what is shown
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, w: float, h: float, fill: str = "none", stroke: str | None = None, radius: float = 3,
            dashed: bool = False) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{radius:g}" fill="{fill}" '
                          f'stroke="{stroke or self.theme.limit}"{dash}/>')

    def text(self, x: float, y: float, text: str, size: float = 12, anchor: str = "middle", mono: bool = False,
             bold: bool = False, colour: str | None = None) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-family="{MONO if mono else SANS}" font-size="{size:g}"{weight} '
                          f'text-anchor="{anchor}" fill="{colour or self.theme.text}">{escape(text)}</text>')

    def line(self, *points: tuple[float, float], arrow: bool = True, colour: str | None = None, dashed: bool = False,
             width: float = 1.4) -> None:
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        end = ' marker-end="url(#arrow)"' if arrow else ""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<path d="{path}" fill="none" stroke="{colour or self.theme.limit}" '
                          f'stroke-width="{width:g}"{end}{dash}/>')

    def svg(self) -> str:
        arrow = (f'<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" '
                 f'markerWidth="10" markerHeight="10" '
                 f'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="{self.theme.limit}"/></marker></defs>')
        width = self.width - self.left
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{self.left:g} 0 {width:g} {self.height:g}" '
                f'width="{width:g}" height="{self.height:g}"><style>{fonts.in_picture()}</style>'
                f'{arrow}{"".join(self.parts)}</svg>\n')


def soft(theme: Theme) -> str:
    """A fill that text is read on."""
    return "#e4ecf7" if theme.name == "light" else "#1f3350"


def warm(theme: Theme) -> str:
    return "#f8e1d0" if theme.name == "light" else "#57341d"


def inverse(theme: Theme) -> str:
    return "#ffffff" if theme.name == "light" else "#0d1117"


# --- The model ---------------------------------------------------------------------------------------------


def operation(c: Canvas, x: float, y: float, text: str, width: float = 84, fill: str | None = None) -> None:
    """A rounded box whose left edge's middle is at (x, y)."""
    c.box(x, y - 14, width, 28, soft(c.theme) if fill is None else fill, radius=6)
    c.text(x + width / 2, y + 4, text, 11, mono=True)


def plus(c: Canvas, x: float, y: float) -> None:
    c.box(x - 11, y - 11, 22, 22, warm(c.theme), radius=11)
    c.text(x, y + 4.5, "+", 14, bold=True)


def token_flow(theme: Theme) -> str:
    c = Canvas(760, 418, theme)
    stream = {"colour": theme.accent, "width": 3.0}
    c.box(96, 16, 644, 322, stroke=theme.limit, radius=8, dashed=True)
    c.text(108, 36, "one layer, 24 to 36 times", 11, "start")
    c.text(430, 36, "the residual stream x, thick: each half adds to it", 11, "start", colour=theme.accent)
    # Attention's half.
    top, middle = 56, 122
    c.text(14, top + 4, "token id", 11.5, "start")
    c.line((40, top + 10), (40, middle - 18))
    operation(c, 6, middle, "embed", 66)
    c.line((40, middle + 14), (40, 176), (130, 176), (690, 176), arrow=False, **stream)
    c.line((130, 174), (130, middle + 16))
    operation(c, 108, middle, "rmsnorm", 74)
    for y, name in ((middle - 36, "gemv q, rope"), (middle, "gemv k, rope"), (middle + 30, "gemv v")):
        c.line((182, middle), (206, y))
        operation(c, 208, y, name, 104)
    c.line((312, middle - 36), (470, middle - 36), (492, middle - 16))
    operation(c, 346, middle + 14, "KV cache", 80, warm(theme))
    c.line((312, middle), (344, middle + 8))
    c.line((312, middle + 30), (344, middle + 20))
    c.line((426, middle + 14), (456, middle + 4))
    operation(c, 458, middle, "attention", 84)
    c.line((542, middle), (572, middle))
    operation(c, 574, middle, "gemv o", 70)
    c.line((644, middle), (690, middle), (690, 164))
    plus(c, 690, 176)
    # The feed-forward half.
    low = 250
    c.line((690, 187), (690, 206), (130, 206), (130, 314), (690, 314), arrow=False, **stream)
    c.line((130, 240), (182, low))
    operation(c, 184, low, "rmsnorm", 74)
    for y, name in ((low - 20, "gemv gate"), (low + 20, "gemv up")):
        c.line((258, low), (290, y))
        operation(c, 292, y, name, 92)
        c.line((384, y), (420, low + (y - low) * 0.3))
    operation(c, 422, low, "swiglu", 72)
    c.line((494, low), (524, low))
    operation(c, 526, low, "gemv down", 92)
    c.line((618, low), (690, low), (690, 302))
    plus(c, 690, 314)
    # Behind the last layer.
    c.line((690, 325), (690, 384), (640, 384), **stream)
    operation(c, 560, 384, "rmsnorm", 74)
    c.line((560, 384), (526, 384))
    operation(c, 418, 384, "gemv lm_head", 106)
    c.line((418, 384), (384, 384))
    operation(c, 312, 384, "argmax", 70)
    c.line((312, 384), (240, 384))
    c.text(232, 388, "the next token's id", 11.5, "end")
    return c.svg()


def q4_0_block(theme: Theme) -> str:
    c = Canvas(760, 210, theme, left=19)
    w, x0, y0 = 40, 20, 60
    c.text(x0, 28, "BlockQ4_0: 32 weights in 18 bytes, 4.5 bits each", 14, "start", bold=True)
    c.box(x0, y0, 2 * w, 56, warm(theme))
    c.text(x0 + w, y0 + 24, "d", 14, mono=True, bold=True)
    c.text(x0 + w, y0 + 43, "fp16", 11)
    for i in range(16):
        x = x0 + 2 * w + i * w
        c.box(x, y0, w, 28, soft(theme))
        c.box(x, y0 + 28, w, 28)
        c.text(x + w / 2, y0 + 19, f"q{i}", 11.5, mono=True)
        c.text(x + w / 2, y0 + 47, f"q{i + 16}", 11.5, mono=True)
    for i in (0, 2, 17):
        c.text(x0 + (i + 0.5) * w, y0 + 76, f"byte {i}", 10.5)
    c.text(x0 + 2 * w - 8, y0 - 8, "low nibbles: the first sixteen weights", 11, "start")
    c.text(x0 + 18 * w, y0 + 76, "", 11, "end")
    c.text(x0 + 6 * w, y0 + 76, "high nibbles below: the other sixteen", 11, "start")
    c.text(x0, 180, "w[i] = d * (q[i] - 8)", 14, "start", mono=True)
    c.text(x0 + 250, 180, "one scale, 32 integers from -8 to 7", 12, "start")
    return c.svg()


def kv_cache(theme: Theme) -> str:
    c = Canvas(730, 352, theme, left=19)
    c.text(20, 28, "The KV cache of one layer: a row a position, read whole by every later token", 14, "start", bold=True)
    x0, y0, w, h = 270, 60, 440, 26
    for row in range(7):
        y = y0 + row * h
        now = row == 6
        for head in range(2):
            c.box(x0 + head * w / 2, y, w / 2, h, warm(theme) if now else soft(theme), radius=0)
            c.text(x0 + (head + 0.5) * w / 2, y + 18, f"K/V head {head}, {'this token' if now else f'position {row}'}", 11)
    c.text(x0, y0 + 7 * h + 20, "K and V each [context, n_kv_heads, head_dim] f32", 11.5, "start", mono=True)
    c.text(x0, y0 + 7 * h + 40, "append_kv writes the last row; attention reads all of them", 11.5, "start")
    for head in range(14):
        group = head // 7
        y = 56 + head * 14.5
        c.box(24, y, 96, 13, soft(theme) if group == 0 else "none", radius=2)
        c.text(72, y + 10.5, f"query head {head}", 9.5)
        target = 70 + group * 145
        c.line((121, y + 6.5), (190, target + 20), arrow=False, width=0.9)
    for group in range(2):
        y = 70 + group * 145
        c.line((190, y + 20), (266, y + 20))
        c.text(196, y + 10, f"K/V head {group}", 10.5, "start")
    c.text(24, 318, "Grouped-query attention, the 0.5B: seven query heads share one K/V head,", 11.5, "start")
    c.text(24, 336, "so the cache is a seventh of what it would be: 24 KiB a position.", 11.5, "start")
    return c.svg()


# --- Which lane reads what ------------------------------------------------------------------------------------


SECTOR = 32  # bytes


def lane_map(theme: Theme, title: str, lines: tuple[str, str], lane_of: Callable[[int, int], int | None],
             label: Callable[[int], str], cell_bytes: int = 4, rows: int = 4, unit: str = "element") -> str:
    """Some runs of a row of x or W, 32 cells each. What one load of a warp reads is filled and bears its lane; what comes
    along, since memory is read in sectors, is tinted."""
    cells = 32
    c = Canvas(760, 142 + rows * 28, theme)
    c.text(2, 20, title, 14, "start", bold=True)
    x0, y0, w, h = 74, 48, 680 / cells, 24
    for cell in range(0, cells, 4):
        c.text(x0 + (cell + 0.5) * w, y0 - 6, str(cell), 10)
    c.text(2, y0 - 6, unit, 10, "start")
    for run in range(rows):
        y = y0 + run * 28
        c.text(2, y + 16, label(run), 11.5, "start", mono=True)
        for cell in range(cells):
            lane = lane_of(run, cell)
            first = cell - cell % (SECTOR // cell_bytes)
            comes_along = any(lane_of(run, other) is not None for other in range(first, first + SECTOR // cell_bytes))
            c.box(x0 + cell * w, y, w, h, theme.accent if lane is not None else soft(theme) if comes_along else "none",
                  theme.faint, 1)
            if lane is not None:
                c.text(x0 + (cell + 0.5) * w, y + 16, str(lane), 10.5, mono=True, colour=inverse(theme))
    below = y0 + rows * 28 + 10
    legend(c, 2, below)
    for number, line in enumerate(lines):
        c.text(2, below + 34 + 18 * number, line, 12.5, "start")
    return c.svg()


def legend(c: Canvas, x: float, y: float) -> None:
    c.box(x, y, 14, 14, c.theme.accent, c.theme.faint, 1)
    c.text(x + 20, y + 11.5, "read, by the lane of that number", 11.5, "start")
    c.box(x + 232, y, 14, 14, soft(c.theme), c.theme.faint, 1)
    c.text(x + 252, y + 11.5, "fetched with it: the rest of a 32-byte sector", 11.5, "start")


def lanes_naive(theme: Theme) -> str:
    return lane_map(theme, "One load of x, naive: a lane walks a run of its own",
                    ("A lane's element is 128 bytes from its neighbour's: 32 lanes touch 32 sectors and use 4 bytes of each.",
                     "Runs 0 to 3 of the warp's 32 are shown; the next load is one element to the right, in every run."),
                    lambda run, cell: run if cell == 0 else None, lambda run: f"run {run}")


def lanes_warp(theme: Theme) -> str:
    return lane_map(theme, "One load of x, a warp a row: a lane is an element's place in the run",
                    ("32 lanes read 32 neighbours, 128 bytes: four sectors, and all of them used.",
                     "The next load is the next run."),
                    lambda run, cell: cell if run == 0 else None, lambda run: f"run {run}")


def lanes_dp4a(theme: Theme) -> str:
    return lane_map(theme, "One load of x, dp4a: a lane a block, four int8 in a word",
                    ("A block of activations is 32 bytes now, one sector, and a lane comes back for all eight words of it,",
                     "which the L1 still has. The block's 18 bytes of weights lie next to the neighbours': 576 bytes a warp."),
                    lambda run, cell: run if cell < 4 else None, lambda run: f"block {run}", cell_bytes=1, unit="byte")


def lanes_head(theme: Theme) -> str:
    return lane_map(theme, "One load of W, the int8 head: words interleaved, quants apart from scales",
                    ("A row holds word 0 of 32 blocks, then their word 1, up to word 7. A lane still has a block of its own,",
                     "and 32 lanes read 128 bytes that lie together: four sectors, and all of them used."),
                    lambda run, cell: cell if run == 0 else None, lambda run: f"word {run}", cell_bytes=4, unit="block")


def warp_load(theme: Theme, title: str, below: str, runs: int, cells: int) -> str:
    """All 32 runs of 32 that a warp reads, small: a load reads so many cells of so many runs; their sectors come along."""
    c = Canvas(360, 400, theme)
    c.text(2, 18, title, 15, "start", bold=True)
    size, x0, y0 = 10.6, 2, 34
    for run in range(runs):
        c.box(x0, y0 + run * size, max(cells, 8) * size, size, soft(theme), "none", 0)
        c.box(x0, y0 + run * size, cells * size, size, theme.accent, "none", 0)
    for at in range(33):
        c.line((x0, y0 + at * size), (x0 + 32 * size, y0 + at * size), arrow=False, colour=theme.faint, width=1)
        c.line((x0 + at * size, y0), (x0 + at * size, y0 + 32 * size), arrow=False, colour=theme.faint, width=1)
    c.text(2, 392, below, 13.5, "start")
    return c.svg()


def load_before(theme: Theme) -> str:
    return warp_load(theme, "A lane walks a run of its own", "32 sectors fetched, an eighth of them used", runs=32, cells=1)


def load_after(theme: Theme) -> str:
    return warp_load(theme, "32 lanes read 32 neighbours", "4 sectors fetched, all of them used", runs=1, cells=32)


# --- CUDA ----------------------------------------------------------------------------------------------------------


def cuda_threads(theme: Theme) -> str:
    """The primer's launch: four blocks of 128 threads, a block's four warps, a warp's 32 lanes."""
    c = Canvas(760, 300, theme)
    c.text(2, 20, "add_up<<<4, 128>>>: a grid of 4 blocks of 128 threads", 14, "start", bold=True)
    c.text(2, 44, "grid", 12, "start", bold=True)
    for block in range(4):
        c.box(64 + block * 174, 30, 164, 40, warm(theme) if block == 2 else "none")
        c.text(146 + block * 174, 55, f"blockIdx.x = {block}", 11.5, mono=True)
    c.line((412, 70), (64, 112), arrow=False)
    c.line((576, 70), (750, 112), arrow=False)
    c.text(2, 134, "block", 12, "start", bold=True)
    c.box(64, 112, 686, 52, warm(theme))
    for warp in range(4):
        c.box(72 + warp * 170, 120, 160, 36, soft(theme) if warp == 1 else "none")
        c.text(152 + warp * 170, 143, f"warp {warp}: {warp * 32} to {warp * 32 + 31}", 11.5)
    c.line((242, 156), (64, 206), arrow=False)
    c.line((402, 156), (750, 206), arrow=False)
    c.text(2, 228, "warp", 12, "start", bold=True)
    width = 686 / 32
    for lane in range(32):
        c.box(64 + lane * width, 206, width, 34, theme.accent if lane == 5 else soft(theme), theme.faint, 1)
        c.text(64 + (lane + 0.5) * width, 228, str(lane), 10.5, mono=True, colour=inverse(theme) if lane == 5 else None)
    c.text(64, 266, "lane 5 of warp 1 of block 2: threadIdx.x = 37, and its value is number 2 * 128 + 37 = 293", 12.5, "start")
    c.text(64, 288, "a block stays on one SM, its threads share memory and barriers; a warp runs as one", 12.5, "start")
    return c.svg()


def cuda_shuffle(theme: Theme) -> str:
    """A sum over eight lanes by __shfl_xor_sync, with numbers."""
    c = Canvas(760, 276, theme)
    c.text(2, 20, "A sum by shuffles, over 8 lanes: each lane adds what a lane some way off has", 14, "start", bold=True)
    values = [3, 1, 4, 1, 5, 9, 2, 6]
    x0, width, y = 150, 74, 40
    for step, distance in enumerate((4, 2, 1, 0)):
        c.text(2, y + 19, "each lane's value" if step == 0 else f"distance {8 >> step}", 12, "start")
        for lane, value in enumerate(values):
            c.box(x0 + lane * width, y, 46, 28, warm(theme) if distance == 0 else soft(theme))
            c.text(x0 + lane * width + 23, y + 19, str(value), 12.5, mono=True)
            if distance:
                c.line((x0 + lane * width + 23, y + 28), (x0 + (lane ^ distance) * width + 23, y + 58), width=1)
                c.line((x0 + lane * width + 23, y + 28), (x0 + lane * width + 23, y + 58), arrow=False, colour=theme.accent,
                       width=2)
        values = [value + values[lane ^ distance] for lane, value in enumerate(values)] if distance else values
        y += 58
    c.text(2, 268, "Three exchanges, and all eight lanes have 31; a warp takes five. No memory, no barrier.", 12.5, "start")
    return c.svg()


# --- The emulator ------------------------------------------------------------------------------------------------


def emulator(theme: Theme) -> str:
    c = Canvas(742, 372, theme, left=19)
    c.text(20, 28, "The emulator: a CUDA thread is a fiber", 14, "start", bold=True)
    c.box(20, 48, 150, 300)
    c.text(95, 72, "grid", 12, bold=True)
    for i in range(6):
        y = 88 + i * 41
        c.box(36, y, 118, 32, soft(theme))
        c.text(95, y + 21, f"CTA {i}" if i < 5 else "...", 11.5)
    c.box(226, 48, 190, 300)
    c.text(321, 72, "workers", 12, bold=True)
    c.text(321, 90, "operating-system threads", 10.5)
    for i in range(2):
        y = 104 + i * 120
        c.box(242, y, 158, 100, warm(theme))
        c.text(321, y + 24, f"worker {i}", 12)
        c.text(321, y + 46, "runs one CTA to its end,", 10.5)
        c.text(321, y + 62, "or until it spins or waits:", 10.5)
        c.text(321, y + 78, "then the next one", 10.5)
        c.line((156, 104 + i * 82), (238, y + 40))
    c.box(472, 48, 268, 300)
    c.text(606, 72, "a CTA's fibers", 12, bold=True)
    for lane in range(32):
        c.box(488 + (lane % 8) * 30, 88 + (lane // 8) * 26, 26, 20, soft(theme), radius=2)
        c.text(501 + (lane % 8) * 30, 102 + (lane // 8) * 26, str(lane), 9.5, mono=True)
    c.text(606, 212, "a warp: 32 fibers, run lane after lane", 10.5)
    c.line((400, 154), (468, 154))
    for number, (what, does) in enumerate((("__syncthreads()", "every fiber of the CTA is waited for"),
                                           ("__shfl_xor_sync()", "the lanes of the mask exchange"),
                                           ("spin_wait()", "another CTA gets the worker"))):
        y = 240 + number * 36
        c.text(488, y, what, 11, "start", mono=True, bold=True)
        c.text(488, y + 15, does, 10.5, "start")
    return c.svg()


# --- Kernels in a row --------------------------------------------------------------------------------------


def early_launch(theme: Theme) -> str:
    """Three kernels one behind the other, and the same three begun early."""
    c = Canvas(760, 306, theme)
    parts = (("weights", soft(theme), theme.text), ("wait", "none", theme.limit), ("compute", theme.accent, inverse(theme)))

    def kernel(x: float, y: float, widths: tuple[float, float, float]) -> None:
        for (name, fill, colour), width in zip(parts, widths):
            if width:
                c.box(x, y, width, 28, fill, dashed=name == "wait")
                c.text(x + width / 2, y + 18, name, 11, colour=colour)
            x += width

    c.text(2, 20, "Behind the one before", 14, "start", bold=True)
    for i, name in enumerate(("add_gemv", "gate_up", "add_gemv")):
        c.text(2, 52 + i * 34, name, 11.5, "start", mono=True)
        kernel(90 + i * 220, 34 + i * 34, (90, 0, 84))
        if i:
            c.line((44 + i * 220, 48 + (i - 1) * 34), (44 + i * 220, 62 + (i - 1) * 34), (88 + i * 220, 48 + i * 34))
    c.text(2, 166, "Begun early", 14, "start", bold=True)
    for i, name in enumerate(("add_gemv", "gate_up", "add_gemv")):
        c.text(2, 198 + i * 34, name, 11.5, "start", mono=True)
        kernel(90 + i * 44, 180 + i * 34, (90, i * 52, 84))
        if i:
            end = 264 + (i - 1) * 96
            c.line((end, 194 + (i - 1) * 34), (end + 12, 194 + (i - 1) * 34), (end + 12, 180 + i * 34), dashed=True)
    c.text(90, 296, "A kernel loads its weights while the one before computes; its results it waits for.", 12, "start")
    return c.svg()


# --- One kernel --------------------------------------------------------------------------------------------


def persistent(theme: Theme) -> str:
    """Three blocks of a kernel through the five phases of a layer, and the copies beside them."""
    c = Canvas(760, 236, theme)
    begin, width = 90, 130
    lengths = ((70, 30, 58, 96, 64), (58, 92, 58, 70, 64), (70, 30, 46, 96, 78))
    for i, name in enumerate(("qkv", "attention", "O", "gate and up", "down")):
        c.text(begin + i * width + 56, 22, name, 12, bold=True)
        c.line((begin + (i + 1) * width - 6, 30), (begin + (i + 1) * width - 6, 196), dashed=True)
    for row, block in enumerate(lengths):
        y = 36 + row * 36
        c.text(2, y + 18, f"block {(0, 1, 131)[row]}", 11.5, "start", mono=True)
        for i, length in enumerate(block):
            x = begin + i * width
            c.box(x, y, length, 26, theme.accent)
            c.box(x + length, y, width - 6 - length, 26, "none", dashed=True)
    y = 36 + 3 * 36 + 8
    c.text(2, y + 18, "copies", 11.5, "start", mono=True)
    c.box(begin, y, 5 * width - 6, 26, soft(theme))
    c.text(begin + 5 * width / 2, y + 17, "weights of what comes next, of the next layer, of the next token", 11)
    c.text(begin, 224, "Dashed: a block waits until all have arrived. The copies wait for nobody.", 12, "start")
    return c.svg()


# --- Attention -------------------------------------------------------------------------------------------


def attention_time(theme: Theme) -> str:
    """A block of attention at position 128, heads of 64: who works on what, when, and what it waits for."""
    c = Canvas(760, 424, theme)
    c.text(2, 18, "A block of attention, 512 threads: heads of 64, position 128", 14, "start", bold=True)
    x0, y0, h = 148, 66, 24
    rows = ("threads 0 to 7", "8 to 15", "16 to 23", "24 to 31", "...", "496 to 503", "504 to 511")
    for i, name in enumerate(rows):
        c.text(2, y0 + i * h + 16, name, 11, "start")
    bottom = y0 + len(rows) * h
    phases = ((x0, 66, "q"), (x0 + 66, 204, "scores: a team a position"), (x0 + 270, 84, "softmax"),
              (x0 + 354, 184, "values: a part a position"), (x0 + 538, 66, "merge"))
    for x, width, name in phases:
        c.text(x + width / 2, y0 - 14, name, 11.5, bold=True)
        if x > x0:
            c.line((x, y0 - 6), (x, bottom + 8), arrow=False, colour=theme.text, width=2)
    c.line((x0 + 312, y0 - 6), (x0 + 312, bottom + 8), arrow=False, colour=theme.text, width=2)

    def piece(x: float, y: float, width: float, height: float, text: str, kind: str) -> None:
        fill, colour = {"ask": (soft(theme), theme.text), "wait": ("none", theme.text),
                        "work": (theme.accent, inverse(theme))}[kind]
        c.box(x, y + 2, width, height - 4, fill, dashed=kind == "wait", radius=2)
        c.text(x + width / 2, y + height / 2 + 4, text, 10, colour=colour)

    for i in (0, 1):  # 16 threads bring q
        piece(x0 + 2, y0 + i * h, 60, h, "wait for q", "wait")
    for i, team in enumerate((0, 1, 2, 3, None, 62, 63)):
        y = y0 + i * h
        if team is None:
            c.text(x0 + 166, y + 16, "...", 12)
            c.text(x0 + 446, y + 16, "...", 12)
            continue
        x = x0 + 70
        piece(x, y, 56, h, f"team {team}", "ask")
        piece(x + 58, y, 78, h, "wait for K", "wait")
        piece(x + 138, y, 56, h, "q . k", "work")
        piece(x0 + 274, y, 34, h, "max", "work")
        piece(x0 + 316, y, 34, h, "exp", "work")
    for i, part in ((0, 0), (2, 1), (5, 31)):
        x, y = x0 + 358, y0 + i * h
        piece(x, y, 50, 2 * h, f"part {part}", "ask")
        piece(x + 52, y, 72, 2 * h, "wait for V", "wait")
        piece(x + 126, y, 50, 2 * h, "p * v", "work")
    piece(x0 + 544, y0, 58, 5 * h, "32 parts", "work")
    c.line((x0, bottom + 22), (752, bottom + 22))
    c.text(2, bottom + 26, "time", 11, "start")
    c.text(2, bottom + 44, "A phase asks for its loads, waits for them (dashed), computes. A thick line is a barrier for all "
           "threads.", 12, "start")
    y = bottom + 78
    c.text(2, y, "What a team reads: the row of K of one position, 64 values", 13, "start", bold=True)
    width = 600 / 16
    for group in range(16):
        c.box(x0 + group * width, y + 14, width, 26, soft(theme) if group < 8 else warm(theme), theme.faint, 1)
        c.text(x0 + (group + 0.5) * width, y + 31, f"{group % 8}", 11, mono=True)
    c.text(2, y + 31, "read by lane", 11, "start")
    c.text(x0 + 4 * width, y + 56, "chunk 0 of each lane: 16 bytes, four values", 11)
    c.text(x0 + 12 * width, y + 56, "chunk 1", 11)
    for number, line in enumerate(
            ("Team 0 has positions 0, 64, 128 and 192: four rows of two chunks, so each lane has eight loads under way.",
             "Part 0 has 0, 32, ... 224: eight loads again. Up to position 255 one wait for K and one for V are all.")):
        c.text(2, y + 82 + 19 * number, line, 12, "start")
    return c.svg()


# --- Launches --------------------------------------------------------------------------------------------


def capture(theme: Theme) -> str:
    """Kernels launched one by one, and as a graph that leaves the next step its input."""
    c = Canvas(760, 330, theme)
    names = ("embed", "rmsnorm", "gemv", "gemv", "gemv", "argmax")

    def row(y: float, x: float, gap: float, size: float = 58) -> list[float]:
        ends = []
        for name in names:
            c.box(x, y, size, 28, theme.accent)
            c.text(x + size / 2, y + 18, name, 10.5, mono=True, colour=inverse(theme))
            x += size
            ends.append(x)
            x += gap
        return ends

    c.text(2, 20, "Launched one by one: the host starts each of 508 kernels", 14, "start", bold=True)
    c.text(2, 54, "host", 12, "start")
    c.text(2, 100, "GPU", 12, "start")
    for i, _ in enumerate(names):
        x = 60 + i * 106
        c.box(x, 38, 84, 26, soft(theme))
        c.text(x + 42, 55, "launch", 10.5)
        c.line((x + 84, 64), (x + 92, 82))
    row(82, 150, 48, 58)
    c.text(60, 132, "A small kernel is over before the host has started the next: the GPU stands still between.", 12, "start")
    c.text(2, 174, "Captured: the same kernels, recorded once, and one launch a step", 14, "start", bold=True)
    c.text(2, 208, "host", 12, "start")
    c.text(2, 254, "GPU", 12, "start")
    c.box(60, 192, 84, 26, soft(theme))
    c.text(102, 209, "graph", 10.5)
    c.line((144, 218), (152, 236))
    ends = row(236, 154, 10, 60)
    c.line((ends[-1] - 30, 266), (ends[-1] - 30, 292), (184, 292), (184, 266), colour=theme.accent)
    c.text((184 + ends[-1]) / 2, 286, "ids[0], position: in the GPU's memory", 11.5)
    c.box(ends[-1] + 30, 192, 84, 26, soft(theme))
    c.text(ends[-1] + 72, 209, "graph", 10.5)
    c.text(ends[-1] + 122, 209, "...", 12)
    c.text(60, 318, "argmax leaves the next step's token and position where embed and attention look for them.", 12, "start")
    return c.svg()


# --- Whole numbers ---------------------------------------------------------------------------------------


def dp4a(theme: Theme) -> str:
    """One __dp4a with the first four weights of the corner of chapter 01 and their activations."""
    c = Canvas(760, 236, theme)
    c.text(2, 20, "One __dp4a: the first four weights of row 0 meet the first four activations", 14, "start", bold=True)
    weights, activations, x0, w = (-4, -8, 2, 2), (127, -50, 26, 3), 210, 92
    for y, name, values, fill in ((42, "four nibbles less 8, a byte each", weights, warm(theme)),
                                  (84, "four activations, rounded", activations, soft(theme))):
        c.text(2, y + 20, name, 11.5, "start")
        for i, value in enumerate(values):
            c.box(x0 + i * w, y, w - 4, 30, fill)
            c.text(x0 + i * w + 44, y + 20, str(value), 13, mono=True)
    c.text(2, 146, "products", 11.5, "start")
    for i, (a, b) in enumerate(zip(weights, activations)):
        c.text(x0 + i * w + 44, 146, f"{a * b}", 13, mono=True)
        if i < 3:
            c.text(x0 + i * w + 90, 146, "+", 13)
        c.line((x0 + i * w + 44, 154), (x0 + 184, 182), arrow=i in (1, 2), width=1)
    total = sum(a * b for a, b in zip(weights, activations))
    c.box(x0 + 130, 184, 108, 30, theme.accent)
    c.text(x0 + 184, 204, str(total), 13, mono=True, colour=inverse(theme))
    c.text(x0 + 250, 204, "added to an int32, exactly", 11.5, "start")
    c.text(2, 204, "one instruction", 11.5, "start", bold=True)
    return c.svg()


# --- The roofline ----------------------------------------------------------------------------------------


def launch_size(theme: Theme) -> str:
    """Chapter 00's two curves on an H200, as recorded: bytes a launch, and bytes under way on an SM."""
    recorded = json.loads((ROOT / "chapters/00-roofline/results/h200.json").read_text(encoding="utf-8"))["roofline"]
    limit = recorded["roofline"]["gb_per_s_median"]
    c = Canvas(760, 330, theme)
    c.text(2, 20, f"What an H200 reads, of {limit:,.0f} GB/s", 14, "start", bold=True)
    top, bottom = 52, 262

    def y_of(speed: float) -> float:
        return bottom - speed / 5000 * (bottom - top)

    def panel(x0: float, title: str, points: list[tuple[float, float]], low: float, high: float, ticks: dict[float, str],
              joined: bool) -> Callable[[float], float]:
        def x_of(value: float) -> float:
            return x0 + 300 * math.log(value / low) / math.log(high / low)

        for speed in range(0, 5001, 1000):
            c.line((x0, y_of(speed)), (x0 + 300, y_of(speed)), arrow=False, colour=theme.faint, width=1)
            c.text(x0 - 6, y_of(speed) + 4, f"{speed:,}", 10, "end")
        c.line((x0, y_of(limit)), (x0 + 300, y_of(limit)), arrow=False, dashed=True)
        for value, name in ticks.items():
            c.text(x_of(value), bottom + 16, name, 10)
        c.text(x0 + 150, bottom + 36, title, 11.5)
        if joined:
            c.line(*((x_of(x), y_of(speed)) for x, speed in points), arrow=False, colour=theme.accent, width=2)
        for x, speed in points:
            c.box(x_of(x) - 3.5, y_of(speed) - 3.5, 7, 7, theme.accent, theme.accent, 3.5)
        return x_of

    sizes = [(row["bytes_per_launch"] / 1e6, row["gb_per_s_median"]) for row in recorded["by_launch"]]
    x_of = panel(50, "MB a launch", sizes, 1.4, 1000, {1.72: "1.7", 6.88: "6.9", 27.5: "28", 110: "110", 440: "440"}, True)
    size, speed = next(point for point in sizes if round(point[0], 2) == 6.88)
    c.line((x_of(size) + 46, y_of(speed) + 26), (x_of(size) + 7, y_of(speed) + 5))
    c.text(x_of(size) + 50, y_of(speed) + 34, f"the one that misleads: {speed:,.0f}", 11, "start")
    under_way = [(row["ctas_per_sm"] * row["threads_per_cta"] * row["loads_in_flight"] * 16 / 1024,
                  row["gb_per_s_median"])
                 for row in recorded["one_launch"]]
    panel(448, "KB under way on each SM, one launch", under_way, 3.4, 150,
          {4: "4", 8: "8", 16: "16", 32: "32", 64: "64", 128: "128"}, False)
    c.text(2, 322, "Left: the longer the launch, the less its beginning matters. Right: a point is so many blocks and loads.",
           11.5, "start")
    return c.svg()


@dataclass(frozen=True)
class Drawing:
    make: Callable[[Theme], str]
    text: str  # for those who don't see it
    caption: str


DRAWINGS = {
    "token": Drawing(token_flow, "The operations that one token goes through, from its id to the next id",
                     "One token's way through the model. The thick line is the residual stream: every layer adds to it twice."),
    "q4_0": Drawing(q4_0_block, "A block of Q4_0: two bytes of scale, then sixteen bytes of two nibbles each",
                    "A block of Q4_0, the format of nearly all weights. Sixteen bytes masked at once give sixteen neighbours."),
    "kv-cache": Drawing(kv_cache, "The KV cache: a row for each position, two heads wide, read by fourteen query heads",
                        "The KV cache grows by a row a token, and every token reads all of it."),
    "lanes-naive": Drawing(lanes_naive, "Lanes 0 to 3 of a warp read element 0 of runs 0 to 3",
                           "What one load of the naive kernel touches."),
    "lanes-warp-gemv": Drawing(lanes_warp, "Lanes 0 to 31 of a warp read elements 0 to 31 of run 0",
                               "What one load touches when a warp takes a row."),
    "lanes-dp4a": Drawing(lanes_dp4a, "Lanes 0 to 3 each read the first four int8 of blocks 0 to 3",
                          "What one load of activations touches with dp4a."),
    "lanes-int8-head": Drawing(lanes_head, "Lanes 0 to 31 of a warp read the first word of the quants of blocks 0 to 31",
                               "What one load of the int8 head touches."),
    "load-before": Drawing(load_before, "32 runs of 32 values; the first of each is read, seven beside each are fetched too",
                           "One load of a warp in the naive port."),
    "load-after": Drawing(load_after, "32 runs of 32 values; all of the first run are read, and nothing else is fetched",
                          "The same load a chapter later."),
    "cuda-threads": Drawing(cuda_threads, "A grid has four blocks, a block four warps, a warp 32 lanes",
                            "Who is who in a launch: grid, block, warp, lane."),
    "cuda-shuffle": Drawing(cuda_shuffle, "Eight lanes add their values in three exchanges, with the lane 4, 2 and 1 apart",
                            "What `__shfl_xor_sync` does: values go from lane to lane."),
    "early-launch": Drawing(early_launch, "Three kernels in a row; below, each loads its weights while the one before computes",
                            "Kernels behind each other, and begun early."),
    "attention-time": Drawing(
        attention_time, "A block of attention over time: teams ask for K, wait, multiply; then the maximum, the exponentials;"
        " then parts ask for V, wait, multiply; barriers between",
        "Who works on what in a block of attention, and what it waits for."),
    "capture": Drawing(
        capture, "Above, a launch of the host for each kernel; below, one of a graph, whose argmax feeds the next",
        "A step launched kernel by kernel, and as a graph."),
    "dp4a": Drawing(dp4a, "Four weights times four activations: -508 + 400 + 52 + 6 = -50", "What one `__dp4a` does."),
    "launch-size": Drawing(
        launch_size, "GB/s rise from 471 at 1.7 MB a launch to 4,494 at 805, and from 1,374 at 4 KB under way on an SM to "
        "4,588 at 128", "Chapter 00's two curves on an H200."),
    "persistent": Drawing(persistent, "A warp's ring of batches is filled on through barriers, while phases compute",
                          "A layer in the persistent kernel: five phases, five barriers, and copies that go on."),
    "emulator": Drawing(emulator, "CTAs of a grid are run by worker threads; the threads of a CTA are fibers of its worker",
                        "Who runs what in the emulator."),
}


def for_readmes(folder: Path) -> Iterator[Path]:
    """Writes every drawing for README files, a light one and a dark one; without fonts, as whoever shows it has their own."""
    for name, drawing in DRAWINGS.items():
        for theme in THEMES:
            path = folder / f"{name}{'' if theme.name == 'light' else '-dark'}.svg"
            path.write_text(re.sub("<style>.*?</style>", "", drawing.make(theme)), encoding="utf-8")
            yield path
