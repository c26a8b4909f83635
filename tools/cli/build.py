# SPDX-License-Identifier: MIT
"""Configuring and building with CMake, quickly where there is nothing to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

from cli import ROOT, gpu, places
from cli.console import run_logged, say
from minfer_tools.errors import Failure
from minfer_tools.whole_file import replace_text

CUDA = "kernels for a GPU"  # as MinferCuda.cmake calls what it leaves out


def folder() -> Path:
    """MINFER_BUILD_DIR, else the checkout's build/."""
    chosen = os.environ.get("MINFER_BUILD_DIR")
    return Path(chosen).absolute() if chosen else places.folder("build")


def log_dir() -> Path:
    return places.make(folder() / "log")


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs that may work for this process at once: those of its affinity, within the quota of its control groups (v2
    and v1). By the same rule an engine starts its threads: usable_cpus() in common/minfer/threads.cpp."""
    count = len(os.sched_getaffinity(0))
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return count
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        place = mount / path.lstrip("/")
        while True:
            try:
                quota, period = " ".join((place / name).read_text() for name in names).split()
                count = max(1, min(count, int(quota) // int(period))) if int(quota) > 0 else count
            except (OSError, ValueError):
                pass  # no limit here ("max"), or a group that is not seen from within a container
            if place == mount:
                break
            place = place.parent
    return count


def default_options(device: gpu.Gpu | None) -> dict[str, str]:
    """How `minfer` configures: for the GPU that is there, warnings being errors in CI alone."""
    options = {"CMAKE_BUILD_TYPE": "Release"}
    if device:
        options["CMAKE_CUDA_ARCHITECTURES"] = str(device.sm)
    compiler = gpu.nvcc()
    if compiler:
        options["CMAKE_CUDA_COMPILER"] = compiler
    if os.environ.get("CI"):
        options["MINFER_WERROR"] = "ON"
    return options


def stranger(where: Path, source: Path | None = None) -> str | None:
    """The checkout or the place that a build folder was configured for, if not for these: one that was copied or
    moved still builds that checkout's sources, there."""
    try:
        text = (where / "CMakeCache.txt").read_text(encoding="utf-8")
    except OSError:
        return None
    for key, here in (("CMAKE_HOME_DIRECTORY", source or ROOT), ("CMAKE_CACHEFILE_DIR", where)):
        found = re.search(rf"^{key}:INTERNAL=(.*)$", text, re.M)
        if found and Path(found[1]).resolve() != here.resolve():
            return found[1]
    return None


def is_built(target: str) -> bool:
    return (folder() / target).exists() and not stranger(folder())


class Build:
    """One build folder: its place, the options that it is configured with, and whose sources it builds."""

    def __init__(self, where: Path, options: dict[str, str], env: dict | None = None, source: Path | None = None):
        self.where = where
        self._options = options
        self._env = env
        self._source = source or ROOT
        self._log = places.make(where / "log") if source else log_dir()
        self._ran = False

    def binary(self, target: str) -> Path:
        return self.where / target

    def configure(self, again: bool = False) -> None:
        """Runs CMake where it has not run with these options yet, or `again`."""
        record = self.where / "minfer-options.json"
        wanted = json.dumps(self._options, sort_keys=True)
        with self._turn():
            other = stranger(self.where, self._source)
            if other:
                say(f"configuring afresh: {self.where} was made for {other}")
                (self.where / "CMakeCache.txt").unlink()
                shutil.rmtree(self.where / "CMakeFiles", ignore_errors=True)
            elif not again and self._is_configured() and record.exists() and record.read_text() == wanted:
                return
            else:
                say(f"configuring: {self.where}")
            # A folder that was configured by hand keeps its generator: CMake can't change it.
            generator = [] if self._is_configured() else ["-G", "Ninja"]
            run_logged(["cmake", "-S", self._source, "-B", self.where, *generator,
                        *(f"-D{key}={value}" for key, value in sorted(self._options.items()))],
                       self._configure_log(), "cmake", env=self._env)
            replace_text(record, wanted)
            self._ran = True
        if "CMAKE_CUDA_COMPILER" in self._options:
            for what, why in self.left_out():
                if what == CUDA:
                    say(f"  left out: {what}: {why}")

    def require_cuda(self) -> None:
        """Fails where CUDA was left out; not now, it is tried once more: what was wrong may have been mended."""
        if CUDA in dict(self.left_out()) and not self._ran:
            self.configure(again=True)
        why = dict(self.left_out()).get(CUDA)
        if why:
            raise Failure(f"no {CUDA} can be built: {why}; --chapter oracle runs on the CPU")

    def build(self, *targets: str, shown: int = 25) -> float:
        """Builds the targets (all without any); returns the seconds that it took. Where that fails, `shown` lines of
        the output are, from the one that tells the cause on."""
        start = time.monotonic()
        with self._turn():
            missing = [target for target in targets if not self.binary(target).exists()]
            if missing or not targets:
                say(f"building: {' '.join(missing) or self.where}")
            chosen = ["--target", *targets] if targets else []
            run_logged(["cmake", "--build", self.where, "--parallel", usable_cpus(), *chosen],
                       self._log / f"{self._name()}-build.log", "the build", env=self._env, shown=shown)
        seconds = time.monotonic() - start
        if missing or not targets:
            say(f"  built in {seconds:.0f} s")
        return seconds

    def left_out(self) -> list[tuple[str, str]]:
        """What the last configuration left out, and why, as minfer_left_out() put it."""
        try:
            return re.findall(r"^-- left out: (.+?): (.+)$", self._configure_log().read_text(), re.M)
        except FileNotFoundError:  # it was configured by hand
            return []

    def _turn(self):
        return places.turn(self.where / "minfer.lock", f"building in {self.where}")

    def _configure_log(self) -> Path:
        return self._log / f"{self._name()}-configure.log"

    def _is_configured(self) -> bool:
        return (self.where / "CMakeCache.txt").exists() and any(
            (self.where / name).exists() for name in ("build.ninja", "Makefile"))

    def _name(self) -> str:
        return self.where.name
