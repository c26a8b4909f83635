# SPDX-License-Identifier: MIT
"""Random numbers that are the same on every machine and with every version of numpy.

numpy doesn't promise that its own streams stay what they are, so here is splitmix64 (Steele, Lea
and Flood, "Fast Splittable Pseudorandom Number Generators", 2014), in the form of a function of the
index: number i is a mix of key + (i + 1) * GOLDEN. Any part of a stream can be made without the
part before it. What is derived from it uses only operations that IEEE 754 rounds in one way: no
logarithm or cosine, whose last bit is a library's choice.
"""

from __future__ import annotations

import hashlib

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)

# The sum of four uniform integers of 16 bits has this mean and standard deviation, 65536 / sqrt(3).
_SUM_MEAN = 131070
_SUM_DEVIATION = 37837.22722


class Stream:
    """One stream of 64-bit numbers, addressed by index."""

    def __init__(self, key: int):
        self._key = np.uint64(key)

    @classmethod
    def named(cls, seed: int, name: str) -> "Stream":
        """The stream of a seed and a name: each tensor has one, so that no tensor's values depend
        on another's."""
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        return cls(int.from_bytes(digest[:8], "little"))

    def words(self, start: int, count: int) -> np.ndarray:
        """Numbers `start` to `start + count` of the stream, [count] uint64, little-endian."""
        z = np.arange(start + 1, start + count + 1, dtype="<u8")
        z *= GOLDEN
        z += self._key
        z ^= z >> np.uint64(30)
        z *= _MULTIPLIER_1
        z ^= z >> np.uint64(27)
        z *= _MULTIPLIER_2
        z ^= z >> np.uint64(31)
        return z

    def normal(self, start: int, count: int) -> np.ndarray:
        """Nearly normal numbers of mean 0 and deviation 1, within +-3.47: [count] float32, one word
        each.

        Each is the sum of the word's four 16-bit parts, less its mean: an integer that float32
        holds exactly, and one multiplication.
        """
        parts = self.words(start, count).view("<u2").reshape(count, 4)
        sums = parts.sum(axis=1, dtype=np.int32) - np.int32(_SUM_MEAN)
        return sums.astype(np.float32) * np.float32(1 / _SUM_DEVIATION)
