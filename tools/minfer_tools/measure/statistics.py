# SPDX-License-Identifier: MIT
"""Medians, and how sure one can be of the ratio of two."""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import median

RESAMPLES = 10000
SEED = 1


@dataclass(frozen=True)
class Ratio:
    """B over A, with the interval that holds 95 % of its bootstrap resamples."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        if self.low <= 1 <= self.high:
            return "no measurable change"
        return "faster" if self.low > 1 else "slower"

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]: {self.verdict}"


def bootstrap_ratio(a: list[float], b: list[float], resamples: int = RESAMPLES) -> Ratio:
    """The ratio of the medians, b over a, and its percentile bootstrap interval. Seeded: the same samples
    give the same interval."""
    source = random.Random(SEED)
    ratios = sorted(median(source.choices(b, k=len(b))) / median(source.choices(a, k=len(a)))
                    for _ in range(resamples))
    low, high = ratios[int(0.025 * resamples)], ratios[int(0.975 * resamples) - 1]
    return Ratio(median(b) / median(a), low, high)


def abba(rounds: int) -> str:
    """The order of two sides: ABBA ABBA ..., so that a drift of the machine favours neither. Each side has
    two turns a round."""
    return "ABBA" * rounds


def there_and_back(items: list, turns: int) -> list:
    """The same for many: every other turn goes backwards."""
    order = []
    for turn in range(turns):
        order += items if turn % 2 == 0 else items[::-1]
    return order
