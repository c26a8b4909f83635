# SPDX-License-Identifier: MIT
"""The commands that tell: model, chapters, doctor, diff."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cli import ROOT, VERSION, build, chapters, gpu, models, places, system, venv
from cli.console import DONE, FAILED, become
from minfer_tools import cache, catalogue
from minfer_tools.command_line import ending
from minfer_tools.errors import Failure
from minfer_tools.progress import human

DIFFERENT = 1  # the exit status of diff and its like


def model(arguments: argparse.Namespace) -> None:
    if arguments.name:
        print(models.resolve(arguments.name, arguments.install))
    else:
        become([sys.executable, models.GET_MODEL, "--list"])


def list_chapters(_: argparse.Namespace) -> None:
    for chapter in chapters.discover():
        print(f"{chapter.name:26} {chapter.title:52} {'GPU' if chapter.on_gpu else 'CPU'}"
              f"{', built' if build.is_built(chapter.slug) else ''}")


def diff(arguments: argparse.Namespace) -> int:
    """Shows the step between two chapters; that they differ is no failure."""
    done = subprocess.run([sys.executable, ROOT / "tools/chapter_diff.py", *arguments.rest])
    # Of `| head -1`, whose reader has gone, there is nothing to say either.
    if done.returncode in (DIFFERENT, -signal.SIGPIPE):
        return DONE
    if done.returncode < 0:
        raise Failure(f"chapter_diff.py was ended by {ending(done.returncode)}")
    return done.returncode


def doctor(_: argparse.Namespace) -> int:
    """Prints what this machine is, has and lacks; fails where `minfer run` would."""
    device = gpu.find()
    print(f"minfer {VERSION}\n")
    for name, value in [*machine(device), *software(), *stores()]:
        print(f"{name:12} {value}")
    fetching = () if cache.find_default(catalogue.load()) else models.fetch_needs()
    needed = system.missing((*system.BUILD_NEEDS, *fetching))
    wanted = system.missing((*system.TEST_NEEDS, *system.OPTIONAL_NEEDS))
    print()
    if needed:
        print(f"run needs    {system.missing_line(needed)}")
    if wanted:
        print(f"test needs   {system.missing_line(wanted)}")
    if device and not gpu.nvcc():
        print("the GPU      needs nvcc: install the CUDA toolkit, 12.6 or newer")
    if needed or wanted:
        packages = " ".join(need.apt for need in (*needed, *wanted))
        print(f"to mend it   ./minfer {'run' if needed else 'test'} installs it, or: "
              f"{'' if os.geteuid() == 0 else 'sudo '}apt-get install {packages}")
    else:
        print("nothing is missing")
    return FAILED if needed else DONE


def machine(device: gpu.Gpu | None) -> Iterator[tuple[str, str]]:
    yield "system", f"{os_name()}, Linux {platform.release()}, {platform.machine()}"
    cpu = cpu_facts()
    yield "CPU", f"{cpu.get('model name') or jetson_name() or platform.machine()}, " \
                 f"{build.usable_cpus()} of {os.cpu_count()} cores usable"
    yield "SIMD", simd(cpu)
    memory = {line.split(":")[0]: int(line.split()[1]) * 1024
              for line in Path("/proc/meminfo").read_text().splitlines()}
    yield "memory", f"{human(memory['MemTotal'])}, {human(memory['MemAvailable'])} available"
    if device:
        yield "GPU", f"{device.name}, sm_{device.sm}, {human(device.memory)}; " \
                     f"driver for CUDA {'.'.join(map(str, device.driver_cuda))}"
    else:
        yield "GPU", "none: the CPU oracle runs the models"


def software() -> Iterator[tuple[str, str]]:
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    yield "compiler", version(os.environ.get("CXX") or "c++")
    yield "clang", version("clang++")
    yield "nvcc", gpu.nvcc_problem() or version(gpu.nvcc() or "nvcc", "release")
    yield "CMake", version("cmake")
    yield "Ninja", version("ninja")
    for label, requirements in (("tools", venv.TOOLS), ("tests", venv.TESTS), ("docs", venv.DOCS)):
        ready = "installed" if venv.is_ready(requirements) else "not installed yet"
        yield f"pip, {label}", f"{' '.join(venv.package_names(requirements))}: {ready}"


def stores() -> Iterator[tuple[str, str]]:
    for entry in catalogue.load().models.values():
        path = cache.find(entry)
        if path:
            yield "model", f"{entry.name}: {path}"
    place = next(p for p in (cache.minfer_cache(), *cache.minfer_cache().parents) if p.exists())
    state = f"{human(shutil.disk_usage(place).free)} free" if os.access(place, os.W_OK) else \
        f"can't be written: {places.remedy(cache.minfer_cache())}"
    yield "cache", f"{cache.minfer_cache()}, {state}"
    built = [c.name for c in chapters.discover() if build.is_built(c.slug)]
    other = build.stranger(build.folder())
    yield "build", f"{build.folder()}, " + (f"made for {other}: to be configured afresh" if other else
                                            f"built: {', '.join(built) or 'nothing yet'}")


def os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def cpu_facts() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo."""
    lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def jetson_name() -> str:
    try:
        return Path("/proc/device-tree/model").read_text().rstrip("\0\n")
    except OSError:
        return ""


def simd(cpu: dict[str, str]) -> str:
    """The extensions that the oracle's speed hangs on."""
    flags = (cpu.get("flags") or cpu.get("Features") or "").split()
    known = [name for name in ("avx2", "fma", "avx512f", "asimd", "sve") if name in flags]
    if system.is_x86_64() and not {"avx2", "fma"} <= set(known):
        return f"{' '.join(known) or 'SSE2'}: no hardware FMA, so the oracle is slow (same bits)"
    return " ".join(known) or "none known"


def version(program: str, word: str = "") -> str:
    """The first line with `word` of what a program says of its version."""
    try:
        lines = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.splitlines()
    except OSError:
        lines = []
    return next((line for line in lines if word in line), "not found")
