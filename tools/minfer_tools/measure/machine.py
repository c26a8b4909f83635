# SPDX-License-Identifier: MIT
"""What this machine is: the part of a record that says where its figures hold."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path

from ..errors import Failure
from . import jetson
from .programs import run_program

GPU_QUERY = ("driver_version", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


def roofline(program: Path) -> dict | None:
    """Chapter 00's measurement; None where there is no such program, or no GPU."""
    if not program.exists():
        return None
    try:
        return json.loads(run_program([program, "--json"], quiet=True))
    except Failure as failure:
        if "no NVIDIA" in str(failure):
            return None
        raise


def parse_gpu_query(text: str) -> dict[str, str]:
    """nvidia-smi's line of csv,noheader,nounits; values that it doesn't know are left out."""
    values = [value.strip() for value in (text.strip().splitlines() or [""])[0].split(",")]
    if len(values) != len(GPU_QUERY):
        return {}
    return {name: value for name, value in zip(GPU_QUERY, values) if not value.startswith(("[", "N/A"))}


def query_gpu() -> dict[str, str]:
    return parse_gpu_query(jetson.output(
        ["nvidia-smi", f"--query-gpu={','.join(GPU_QUERY)}", "--format=csv,noheader,nounits"]))


def cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return match[1] if match else platform.processor() or platform.machine()


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def board_name() -> str | None:
    try:
        return Path("/proc/device-tree/model").read_text(encoding="utf-8").rstrip("\0\n") or None
    except OSError:
        return None


def identifier(name: str) -> str:
    """A machine's name as a file's: "NVIDIA H200" is h200."""
    plain = re.sub(r"\((R|TM)\)|NVIDIA|\b\d+-Core Processor\b|\bProcessor\b", " ", name)
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "machine"


def describe(measured: dict | None, bandwidth: float | None, bandwidth_of: str) -> dict:
    """A record's `machine`.
    @param measured   chapter 00's JSON; None: the CPU is what is measured
    @param bandwidth  GB/s of streaming reads of the memory that `bandwidth_of` names ("gpu", "cpu")"""
    gpu = (measured or {}).get("machine", {})
    name = gpu.get("gpu") or cpu_name()
    if gpu and jetson.is_jetson():
        name = board_name() or name
    smi = query_gpu() if gpu else {}
    return {
        "id": identifier(name),
        "name": name,
        "gpu": gpu.get("gpu"),
        "compute_capability": gpu.get("compute_capability"),
        "sm_count": gpu.get("sm_count"),
        "l2_bytes": gpu.get("l2_bytes"),
        "memory_bytes": gpu.get("memory_bytes"),
        "bandwidth_gb_per_s": bandwidth,
        "bandwidth_of": bandwidth_of if bandwidth else None,
        "cpu": cpu_name(),
        "cpu_cores": usable_cores(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "l4t": jetson.l4t(),
        "driver": smi.get("driver_version"),
        "cuda_driver": gpu.get("cuda_driver"),
        "cuda_runtime": gpu.get("cuda_runtime"),
    }


def power(on_gpu: bool, stats: jetson.Stats) -> dict:
    """A record's `power`: on anything but a Jetson nobody can say whether clocks are locked, so that such a
    measurement is never a reference."""
    if jetson.is_jetson():
        return jetson.power(stats)
    smi = query_gpu() if on_gpu else {}

    def number(name: str) -> float | None:
        return float(smi[name]) if name in smi else None

    return {
        "mode": None,
        "clocks_locked": None,
        "gpu_mhz": number("clocks.sm"),
        "memory_mhz": number("clocks.mem"),
        "temperature_c": number("temperature.gpu"),
        "watts": number("power.draw"),
        "reference": False,
    }
