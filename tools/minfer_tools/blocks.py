# SPDX-License-Identifier: MIT
"""Random weights in each of the tensor types that minfer's loader reads.

For the block formats the fields themselves are drawn: every value that a field can have occurs,
which a quantized normal distribution would not give, and nothing is quantized, which would take
minutes for a big model. Scales are set so that the weights have the deviation asked for, and a mean
of 0: where the quants are not symmetric about 0, half of the blocks have a negative scale.

Fields and their places are those of common/minfer/gguf/quant.h, said here a second time: a model is
made where nothing is compiled. The tests read what is drawn back through the `gguf` package.

Each drawing function takes the stream of its tensor, the index of the first block, and the
deviation of each block, [n] float32; it returns the blocks as they stand in the file, [n, block
bytes] uint8. What it returns for a block depends on nothing but the block's index and deviation.
"""

from __future__ import annotations

from typing import Callable

import numpy as np

from .generator import Stream

Draw = Callable[[Stream, int, np.ndarray], np.ndarray]

# Deviation of a uniformly drawn integer of so many bits: sqrt((4**bits - 1) / 12).
_DEVIATION_4_BITS = 4.609772
_DEVIATION_5_BITS = 9.233092
_DEVIATION_6_BITS = 18.472953
_DEVIATION_8_BITS = 73.900835


def _jitter(word: np.ndarray) -> np.ndarray:
    """A factor in [0.75, 1.25) from the lowest 16 bits of each word: scales of neighbouring blocks
    differ."""
    return np.float32(0.75) + (word & np.uint64(0xFFFF)).astype(np.float32) * np.float32(2.0**-17)


def _sign(word: np.ndarray) -> np.ndarray:
    """-1 or 1, from the highest bit of each word."""
    return np.float32(1) - (word >> np.uint64(63)).astype(np.float32) * np.float32(2)


def _half(values: np.ndarray) -> np.ndarray:
    """The bytes of the values as fp16, [n, 2] uint8."""
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def _words(stream: Stream, first: int, count: int, per_block: int) -> tuple[np.ndarray, np.ndarray]:
    """`per_block` words for each block: the last of each, [n] uint64, and the others as bytes, [n,
    bytes] uint8."""
    words = stream.words(first * per_block, count * per_block).reshape(count, per_block)
    return words[:, -1], np.ascontiguousarray(words[:, :-1]).view(np.uint8).reshape(count, -1)


def _q4_0(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    """d, 32 quants of 4 bits: d * (q - 8)."""
    word, quants = _words(stream, first, len(deviation), 3)
    d = deviation * np.float32(1 / _DEVIATION_4_BITS) * _jitter(word) * _sign(word)
    return np.concatenate([_half(d), quants], axis=1)


def _q4_1(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    """d, m, 32 quants of 4 bits: d * q + m, with m about -7.5 d."""
    word, quants = _words(stream, first, len(deviation), 3)
    d = deviation * np.float32(1 / _DEVIATION_4_BITS) * _jitter(word)
    m = d * np.float32(-7.5) * _jitter(word >> np.uint64(16))
    return np.concatenate([_half(d), _half(m), quants], axis=1)


def _q5_0(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    """d, the fifth bits, 32 quants of 4 bits: d * (q - 16). The fifth bits come from the scale's
    word."""
    word, quants = _words(stream, first, len(deviation), 3)
    d = deviation * np.float32(1 / _DEVIATION_5_BITS) * _jitter(word) * _sign(word)
    fifth_bits = (word >> np.uint64(24)).astype("<u4").view(np.uint8).reshape(-1, 4)
    return np.concatenate([_half(d), fifth_bits, quants], axis=1)


def _q8_0(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    """d, 32 quants of 8 bits: d * q. As a quantizer would, it leaves -128 out."""
    word, quants = _words(stream, first, len(deviation), 5)
    d = deviation * np.float32(1 / _DEVIATION_8_BITS) * _jitter(word)
    quants = np.maximum(quants.view(np.int8), np.int8(-127)).view(np.uint8)
    return np.concatenate([_half(d), quants], axis=1)


def _q4_k(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    """d, dmin, 8 scales and 8 minimums of 6 bits in 12 bytes, 256 quants of 4 bits:
    d * s * q - dmin * m.

    Scales are drawn from 32 to 63, of deviation 48.4 about 0, and with dmin = 7.5 d and minimums
    next to the scales the weights are about d * s * (q - 7.5).
    """
    word, drawn = _words(stream, first, len(deviation), 18)
    quants, low_bits = drawn[:, :128], drawn[:, 128:]
    d = deviation * np.float32(1 / (48.4 * _DEVIATION_4_BITS)) * _jitter(word)
    scales = low_bits & np.uint8(31) | np.uint8(32)
    minimums = scales ^ low_bits >> np.uint8(6)
    packed = [
        scales[:, :4] | scales[:, 4:] >> np.uint8(4) << np.uint8(6),
        minimums[:, :4] | minimums[:, 4:] >> np.uint8(4) << np.uint8(6),
        scales[:, 4:] & np.uint8(15) | (minimums[:, 4:] & np.uint8(15)) << np.uint8(4),
    ]
    return np.concatenate([_half(d), _half(d * np.float32(7.5)), *packed, quants], axis=1)


def _q6_k(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    """Low 4 bits and high 2 bits of 256 quants, 16 scales of 8 bits, d: d * s * (q - 32).

    Scales are drawn from -127 to -64 and from 64 to 127, of deviation 97.3 about 0.
    """
    word, drawn = _words(stream, first, len(deviation), 27)
    quants, low_bits = drawn[:, :192], drawn[:, 192:]
    magnitude = (low_bits & np.uint8(63) | np.uint8(64)).view(np.int8)
    scales = np.where(low_bits & np.uint8(128), -magnitude, magnitude).view(np.uint8)
    d = deviation * np.float32(1 / (97.3 * _DEVIATION_6_BITS)) * _jitter(word)
    return np.concatenate([quants, scales, _half(d)], axis=1)


def _f32(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    values = stream.normal(first, len(deviation)) * deviation
    return values.astype("<f4").view(np.uint8).reshape(-1, 4)


def _f16(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    return _half(stream.normal(first, len(deviation)) * deviation)


def _bf16(stream: Stream, first: int, deviation: np.ndarray) -> np.ndarray:
    """The upper half of fp32, rounded half to even."""
    bits = (stream.normal(first, len(deviation)) * deviation).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype("<u2").view(np.uint8).reshape(-1, 2)


DRAW: dict[str, Draw] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q6_K": _q6_k,
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
}
