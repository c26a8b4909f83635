# SPDX-License-Identifier: MIT
"""Rules about barriers and about what keeps the bits the same on every machine."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from minfer_tools.errors import Failure

from .compile_flags import problems
from .rule import Finding, Project, at, rule
from .source import Source

EMULATOR = "common/cuda/emulator/"


_BARRIER = re.compile(r"\b(?:__syncthreads(?:_count|_and|_or)?|(?:\w+(?:\.|->))?(?:grid_(?:sync|barrier|wait)\w*|sync_grid)"
                      r"|\w*grid\w*(?:\.|->)(?:sync|wait|arrive_and_wait)|\w*barrier\w*(?:\.|->)\w*wait\w*)\s*\(")
_DECLARES = re.compile(r"\b(?:__device__|__global__|inline|void|return|static)\b")


@rule("barrier-comment")
def barrier_comment(project: Project) -> Iterator[Finding]:
    """A barrier (__syncthreads, a grid barrier) has a comment, on its line or right above, that names
    who wrote and who reads."""
    for chapter in project.chapters:
        for source in chapter.cpp():
            for match in _BARRIER.finditer(source.code):
                line = source.line_of(match.start())
                head = source.code[source.code.rfind("\n", 0, match.start()) + 1:match.start()]
                if _DECLARES.search(head):
                    continue
                comment = _comment_beside(source, line)
                if not (re.search(r"\b(?:write|wrote|written|writing|writes)\b", comment, re.IGNORECASE)
                        and re.search(r"\bread(?:s|er|ers|ing)?\b", comment, re.IGNORECASE)):
                    yield at("barrier-comment", source, match.start(),
                             match[0].rstrip("( \t\n") + ": no comment that names who wrote and who reads")


def _comment_beside(source: Source, line: int) -> str:
    """The comment on a line (1-based), what continues it below, and the comment lines right above it."""
    words = [source.comment_lines[line - 1]]
    index = line - 2
    while index >= 0 and source.comment_lines[index].strip() and not source.code_lines[index].strip():
        words.insert(0, source.comment_lines[index])
        index -= 1
    index = line
    while (words[-1].strip() and index < len(source.lines) and source.comment_lines[index].strip()
           and not source.code_lines[index].strip()):
        words.append(source.comment_lines[index])
        index += 1
    return " ".join(words)


@rule("asm")
def asm(project: Project) -> Iterator[Finding]:
    """PTX stands only in common/cuda/ptx.h: no asm in the chapters or elsewhere in common/cuda."""
    for source in project.everywhere():
        if (project.within(source, "chapters/", "common/cuda/")
                and not project.within(source, "common/cuda/ptx.h", EMULATOR)):
            for match in re.finditer(r"\b(?:asm|__asm__|__asm)\b", source.code):
                yield at("asm", source, match.start(), "asm; expected a function of common/cuda/ptx.h")


@rule("chevrons")
def chevrons(project: Project) -> Iterator[Finding]:
    """Kernels are launched through launch(): <<< stands only in common/cuda/launch.h."""
    for source in project.everywhere():
        if not project.within(source, "common/cuda/launch.h"):
            for match in re.finditer(r"<<<", source.code):
                yield at("chevrons", source, match.start(), "<<<; expected launch() of common/cuda/launch.h")


_FAST = re.compile(r"\b(?:__(?:exp|exp10|log|log2|log10|pow|sin|cos|tan|sincos|fdivide|tanh)f|rsqrtf?|__frsqrt_rn"
                   r"|__(?:fadd|fsub|fmul|fmaf|fdiv|frcp|fsqrt)_r[zud]|h?rcp(?:_approx)?_ftz\w*)\s*\(")


@rule("fast-math")
def fast_math(project: Project) -> Iterator[Finding]:
    """No intrinsic that is not IEEE arithmetic rounded to nearest (__expf, rsqrtf, ...), in PTX neither."""
    for source in project.everywhere():
        if project.within(source, EMULATOR):
            continue
        for match in _FAST.finditer(source.code):
            yield at("fast-math", source, match.start(), f"{match[0].rstrip('( ')}: its bits are not the same on every machine")
        for match in re.finditer(r"\b\w+(?:\.\w+)*\.(?:approx|ftz)\b(?:\.\w+)*", source.strings):
            yield at("fast-math", source, match.start(), f"{match[0]}: its bits are not the same on every machine")


_MATHS = re.compile(
    r"(?:(?<![\w.:>])|\bstd::)(?:exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sincos|asin|acos|atan|atan2"
    r"|sinh|cosh|tanh|erf|erfc|cbrt|hypot|fmax|fmin|fmod|rint|nearbyint|lrint|round|lround|floor|ceil|trunc)f?\s*\(")


@rule("maths")
def maths(project: Project) -> Iterator[Finding]:
    """In .cu and .cuh files of the maths library only fabsf, fmaf and sqrtf; the rest is in <minfer/math.h>."""
    for chapter in project.chapters:
        for source in chapter.cpp():
            if source.path.suffix in (".cu", ".cuh"):
                for match in _MATHS.finditer(source.code):
                    yield at("maths", source, match.start(), f"{match[0].rstrip('( ')}; expected a function of <minfer/math.h>")


_ATOMIC = re.compile(r"\batomic(?:Add|Sub)(?:_block|_system)?\s*\(\s*([^,;]+),\s*([^;]*)")
_FLOAT = r"(?:float|double|half|__half|__half2|float2|float4)"
_FLOAT_LITERAL = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+f\b)")
_CAST = re.compile(r"\(\s*\w+\s*\*\s*\)|\b(?:reinterpret_cast|static_cast)\s*<[^>]*>")


@rule("float-atomics")
def float_atomics(project: Project) -> Iterator[Finding]:
    """No floating-point atomic: a sum has one order."""
    for source in project.everywhere():
        if project.within(source, EMULATOR):
            continue
        for match in _ATOMIC.finditer(source.code):
            if _adds_floats(source, match[1], match[2]):
                yield at("float-atomics", source, match.start(),
                         f"an atomic sum of floats ({match[1].strip()}): it has no order")
        for match in re.finditer(r"\b(?:red|atom)\.[\w.:]*add[\w.:]*\.(?:f|bf)\d+\w*", source.strings):
            yield at("float-atomics", source, match.start(), f"{match[0]}: it has no order")


def _adds_floats(source: Source, target: str, value: str) -> bool:
    """Whether the target is cast to, or declared in this file as, a float, or the value is written as one."""
    name = re.search(r"[A-Za-z_]\w*", _CAST.sub("", target))
    qualified = r"[\s*&]*(?:const\b|__restrict__\b|volatile\b)?[\s*&]*,?\s*"
    return bool(re.search(rf"{_FLOAT}\s*\*", target) or _FLOAT_LITERAL.search(value)
                or (name and re.search(rf"\b{_FLOAT}\b{qualified}{name[0]}\b", source.code)))


@rule("compile-flags")
def compile_flags(project: Project) -> Iterator[Finding]:
    """Everything is compiled with -ffp-contract=off (nvcc: --fmad=false, and the former through
    -Xcompiler) and nothing of fast-math, as compile_commands.json has it."""
    for path in project.compile_commands:
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Failure(f"{path}: {error}; expected what CMake writes") from error
        if not entries:
            yield Finding(path, 1, "compile-flags", "no file is compiled; expected some")
        for entry in entries:
            file = (Path(entry["directory"]) / entry["file"]).resolve()
            if not {project.root, Path(entry["directory"]).resolve(), path.parent.resolve()} & set(file.parents):
                continue  # a dependency's
            words = entry.get("arguments") or shlex.split(entry["command"])
            for problem in dict.fromkeys(problems(words)):
                yield Finding(file, 1, "compile-flags", problem)
