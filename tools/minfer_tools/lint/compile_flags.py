# SPDX-License-Identifier: MIT
"""What a compiler's command line must say, so that floating point means the same on every machine: no
contraction of a*b+c, and nothing of fast-math."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FAST_MATH = re.compile(
    r"-ffast-math|-Ofast|-funsafe-math-optimizations|-fassociative-math|-freciprocal-math"
    r"|-ffinite-math-only|-fno-signed-zeros|-fno-trapping-math|-fno-math-errno|-mrecip\S*"
    r"|-?-use_fast_math|-?-ftz=true|-?-prec-div=false|-?-prec-sqrt=false|-?-fmad=true")
CONTRACT = "-ffp-contract="


def host_flags(words: list[str]) -> list[str]:
    """The flags that nvcc passes on to the host compiler."""
    flags, take = [], False
    for word in words:
        if take:
            flags += word.split(",")
        take = word in ("-Xcompiler", "--compiler-options")
        for prefix in ("-Xcompiler=", "--compiler-options="):
            if word.startswith(prefix):
                flags += word[len(prefix):].split(",")
    return flags


def problems(words: list[str]) -> Iterator[str]:
    is_nvcc = any(Path(word).name == "nvcc" for word in words[:3])
    host = host_flags(words) if is_nvcc else words
    contract = [word for word in host if word.startswith(CONTRACT)]
    if not contract or contract[-1] != CONTRACT + "off":
        found = contract[-1] if contract else "none"
        where = " through -Xcompiler" if is_nvcc else ""
        yield f"expected {CONTRACT}off{where}, found {found}"
    if is_nvcc and not {"--fmad=false", "-fmad=false"} & set(words):
        yield "expected --fmad=false, found none"
    for word in (*words, *host):
        if FAST_MATH.fullmatch(word):
            yield f"found {word}, which changes what floating point means"
