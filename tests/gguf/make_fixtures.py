#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes quant_fixtures.txt: blocks of every type, and what the gguf package makes of them.

    pip install gguf numpy
    python3 make_fixtures.py > quant_fixtures.txt

Each line is an operation, GGUF's number of the type, and two hexadecimal strings: `d` has a row's bytes and the f32
values that quants.dequantize gives, `q` has f32 values and the bytes that quants.quantize gives on x86-64. All numbers
are little-endian. A dequantized NaN stands for any NaN: its payload is not compared.
"""

import random
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

READ = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K")
# Scales: ordinary, zero of both signs, the least and the largest denormal, the least normal, the largest, infinity, NaN.
SCALES = (0x2E66, 0xA812, 0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x7C00, 0xFC00, 0x7E00)
# Where a type's blocks have their half-precision numbers.
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}


def blocks(name, generator):
    """A block for every scale, the rest of it random; for plain types a row of 64 values, special ones among them."""
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    if name not in HALVES:
        special = struct.pack("<11H", *SCALES)
        return [special + generator.randbytes(64 * size - len(special))]
    made = []
    for scale in SCALES if elements == 32 else SCALES[::2]:
        block = bytearray(generator.randbytes(size))
        for at in HALVES[name]:
            block[at : at + 2] = struct.pack("<H", scale)
        made.append(bytes(block))
    return made


def rows_to_quantize(generator):
    """Rows of 32 f32 values: ordinary, ties, zeros, denormals, both extremes, and what is not finite."""
    tiny = 2.0**-149
    normal = [generator.gauss(0, 1) for _ in range(32)]
    halves = [(i - 16) / 2 for i in range(32)]
    yield normal
    yield [x * 1e-3 for x in normal]
    yield halves  # quotients that end in .5, with the extreme -8
    yield [-x for x in halves]
    yield [i * 127 / 254 for i in range(-16, 15)] + [127.0]  # the same for Q8_0
    yield [0.0] * 32
    yield [-0.0] * 32
    yield [tiny * (i - 16) for i in range(32)]  # 1/d overflows
    yield [2.0**-126 * (i - 16) / 16 for i in range(32)]
    yield [2.0**-120 * x for x in normal]  # d underflows in half precision
    yield [3e38 * (i - 16) / 16 for i in range(32)]  # d overflows in half precision
    yield [7.0, -7.0] * 16  # the first of two extremes decides the sign
    yield [-7.0, 7.0] * 16
    yield [float("inf")] + normal[1:]
    yield [float("nan")] + normal[1:]
    for bits in (0xFFC00000, 0x7FFFFFFF, 0xFFC0A123):  # NaNs with a sign, and with more in them than a half holds
        yield normal[:3] + list(struct.unpack("<f", struct.pack("<I", bits))) + normal[4:31] + [float("nan")]


def main():
    generator = random.Random(20250101)
    np.seterr(all="ignore")
    for name in READ:
        number = GGMLQuantizationType[name]
        for block in blocks(name, generator):
            values = quants.dequantize(np.frombuffer(block, np.uint8).reshape(1, -1), number).astype("<f4")
            print("d", int(number), block.hex(), values.tobytes().hex())
    for name in ("Q4_0", "Q8_0"):
        number = GGMLQuantizationType[name]
        for row in rows_to_quantize(generator):
            values = np.array([row], "<f4")
            print("q", int(number), values.tobytes().hex(), quants.quantize(values, number).tobytes().hex())


if __name__ == "__main__":
    main()
