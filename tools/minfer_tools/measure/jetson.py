# SPDX-License-Identifier: MIT
"""What a Jetson's own tools say about power and clocks. All parsing is apart from all running, so that it
can be tested on recorded outputs."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

TEGRASTATS_INTERVAL_MS = 200


@dataclass(frozen=True)
class Clocks:
    """`jetson_clocks --show`: current frequencies in MHz, and whether nothing can move them."""

    gpu_mhz: float | None
    emc_mhz: float | None
    locked: bool


@dataclass(frozen=True)
class Stats:
    """What tegrastats saw: means over its lines; the board's input power in watts."""

    watts: float | None
    temperature_c: float | None
    gpu_mhz: float | None
    emc_mhz: float | None
    lines: int


def parse_power_mode(text: str) -> str | None:
    """The mode that `nvpmodel -q` names."""
    match = re.search(r"NV Power Mode:\s*(\S+)", text)
    return match[1] if match else None


def parse_l4t(text: str) -> str | None:
    """/etc/nv_tegra_release as "36.4.3"."""
    match = re.search(r"R(\d+) \(release\), REVISION: ([\d.]+)", text)
    return f"{match[1]}.{match[2]}" if match else None


def _frequencies(line: str) -> dict[str, int]:
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line)}


def parse_clocks(text: str) -> Clocks:
    """Locked means: every online CPU and the GPU have one frequency to choose from, and the memory is
    overridden to its highest."""
    mhz: dict[str, float | None] = {"GPU": None, "EMC": None}
    fixed = {"CPU": True, "GPU": False, "EMC": False}
    cpus = 0
    for line in text.splitlines():
        name = line.strip().split(" ", 1)[0].rstrip(":")
        found = _frequencies(line)
        if not {"MinFreq", "MaxFreq", "CurrentFreq"} <= set(found):
            continue
        one = found["MinFreq"] == found["MaxFreq"]
        if re.fullmatch(r"cpu\d+", name) and found.get("Online", 1):
            cpus += 1
            fixed["CPU"] &= one
        elif name == "GPU":
            mhz["GPU"], fixed["GPU"] = found["CurrentFreq"] / 1e6, one
        elif name == "EMC":
            mhz["EMC"] = found["CurrentFreq"] / 1e6
            fixed["EMC"] = found.get("FreqOverride") == 1 and found["CurrentFreq"] == found["MaxFreq"]
    return Clocks(mhz["GPU"], mhz["EMC"], cpus > 0 and all(fixed.values()))


def _mean(values: list[str]) -> float | None:
    return round(mean(map(float, values)), 3) if values else None


def parse_tegrastats(text: str) -> Stats:
    milliwatts = re.findall(r"\bVDD_IN (\d+)mW", text)
    watts = _mean(milliwatts)
    return Stats(
        watts=None if watts is None else round(watts / 1000, 3),
        temperature_c=_mean(re.findall(r"\btj@([\d.]+)C", text)),
        gpu_mhz=_mean(re.findall(r"\bGR3D_FREQ \d+%@\[?(\d+)", text)),
        emc_mhz=_mean(re.findall(r"\bEMC_FREQ \d+%@(\d+)", text)),
        lines=len(text.strip().splitlines()))


def is_jetson() -> bool:
    return Path("/etc/nv_tegra_release").exists()


def output(command: list[str]) -> str:
    """What a tool prints; nothing where it is missing, refuses or needs rights that we lack."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def l4t() -> str | None:
    return parse_l4t(Path("/etc/nv_tegra_release").read_text(encoding="utf-8")) if is_jetson() else None


class Tegrastats:
    """tegrastats beside what is measured: `with Tegrastats() as seen: ...; seen.stats()`."""

    def __enter__(self) -> Tegrastats:
        self._text = ""
        try:
            self._process = subprocess.Popen(["tegrastats", "--interval", str(TEGRASTATS_INTERVAL_MS)],
                                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except OSError:
            self._process = None
        return self

    def __exit__(self, *error) -> None:
        if self._process:
            self._process.terminate()
            self._text, _ = self._process.communicate()

    def stats(self) -> Stats:
        return parse_tegrastats(self._text)


def power(stats: Stats) -> dict:
    """A record's `power`. A measurement is a reference only with locked clocks."""
    mode = parse_power_mode(output(["nvpmodel", "-q"]))
    clocks = parse_clocks(output(["sudo", "-n", "jetson_clocks", "--show"]) or output(["jetson_clocks", "--show"]))
    return {
        "mode": mode,
        "clocks_locked": clocks.locked,
        "gpu_mhz": stats.gpu_mhz or clocks.gpu_mhz,
        "memory_mhz": stats.emc_mhz or clocks.emc_mhz,
        "temperature_c": stats.temperature_c,
        "watts": stats.watts,
        "reference": clocks.locked,
    }
