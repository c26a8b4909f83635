# SPDX-License-Identifier: MIT
"""A decode step by kernel: what each takes, and what is idle."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from .records import Result

IDLE = "idle: launches, and the host"
STEP = "the step"


@dataclass(frozen=True)
class Kernel:
    """All launches of one kernel in a step. `us` is what they take beyond as many empty kernels."""

    name: str
    launches: int
    us: float
    bytes: int

    @property
    def gb_per_s(self) -> float | None:
        return self.bytes / self.us / 1e3 if self.us > 0 else None


@dataclass(frozen=True)
class Breakdown:
    """A step's kernels, their times being medians, against the whole step, which was timed without events."""

    kernels: list[Kernel]
    step_us: float
    empty_us: float  # an empty kernel between its events: what the events and the launch itself take
    events_us: float  # the whole step with an event behind each kernel

    @classmethod
    def of(cls, result: Result) -> Breakdown | None:
        """None where the step was not taken apart."""
        found = result.test.breakdown
        if not found:
            return None
        empty = median(found["empty_us"])
        kernels = [Kernel(entry["kernel"], entry["launches"], max(0.0, median(entry["us"]) - entry["launches"] * empty),
                          entry["bytes"]) for entry in found["kernels"]]
        return cls(kernels, 1e6 / result.speed, empty, sum(median(entry["us"]) for entry in found["kernels"]))

    @property
    def launches(self) -> int:
        return sum(kernel.launches for kernel in self.kernels)

    @property
    def idle_us(self) -> float:
        """The step without its kernels. They were timed with events between them and the step without, and an event
        costs a kernel more than it costs an empty one: so this can be less than nothing."""
        return self.step_us - sum(kernel.us for kernel in self.kernels)

    def share(self, us: float) -> float:
        return us / self.step_us

    def plain(self) -> dict:
        """For JSON."""
        return {
            "step_us": self.step_us, "idle_us": self.idle_us, "empty_kernel_us": self.empty_us,
            "step_with_events_us": self.events_us,
            "kernels": [{"kernel": kernel.name, "launches": kernel.launches, "us": kernel.us,
                         "of_step": self.share(kernel.us), "bytes": kernel.bytes, "gb_per_s": kernel.gb_per_s}
                        for kernel in self.kernels]}
