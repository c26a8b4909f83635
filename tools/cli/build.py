# SPDX-License-Identifier: MIT
"""Configuring and building with CMake, quickly where there is nothing to do."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from pathlib import Path

from cli import ROOT, gpu
from cli.console import run_logged, say
from minfer_tools.cache import minfer_cache


def folder() -> Path:
    """MINFER_BUILD_DIR, else build/ in the checkout; where that can't be written, in the cache."""
    chosen = os.environ.get("MINFER_BUILD_DIR")
    if chosen:
        return Path(chosen).absolute()
    if os.access(ROOT, os.W_OK):
        return ROOT / "build"
    return minfer_cache() / f"build-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]}"


def log_dir() -> Path:
    return folder() / "log"


def jobs() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


class Build:
    """One build folder: its place and the options that it is configured with."""

    def __init__(self, where: Path, options: dict[str, str], env: dict | None = None):
        self.where = where
        self._options = options
        self._env = env
        self._log = log_dir()

    def binary(self, target: str) -> Path:
        return self.where / target

    def configure(self, again: bool = False) -> None:
        """Runs CMake where it has not run with these options yet, or `again`."""
        record = self.where / "minfer-options.json"
        wanted = json.dumps(self._options, sort_keys=True)
        if not again and self._is_configured() and record.exists() and record.read_text() == wanted:
            return
        say(f"configuring: {self.where}")
        # A folder that was configured by hand keeps its generator: CMake can't change it.
        generator = [] if self._is_configured() else ["-G", "Ninja"]
        run_logged(["cmake", "-S", ROOT, "-B", self.where, *generator,
                    *(f"-D{key}={value}" for key, value in sorted(self._options.items()))],
                   self._configure_log(), "cmake", env=self._env)
        record.write_text(wanted)

    def build(self, *targets: str) -> float:
        """Builds the targets (all without any); returns the seconds that it took."""
        start = time.monotonic()
        missing = [target for target in targets if not self.binary(target).exists()]
        if missing or not targets:
            say(f"building: {' '.join(missing) or self.where}")
        chosen = ["--target", *targets] if targets else []
        run_logged(["cmake", "--build", self.where, "--parallel", jobs(), *chosen],
                   self._log / f"{self._name()}-build.log", "the build", env=self._env)
        seconds = time.monotonic() - start
        if missing or not targets:
            say(f"  built in {seconds:.0f} s")
        return seconds

    def left_out(self) -> list[tuple[str, str]]:
        """What the last configuration left out, and why, as minfer_left_out() put it."""
        return re.findall(r"^-- left out: (.+?): (.+)$", self._configure_log().read_text(), re.M)

    def _configure_log(self) -> Path:
        return self._log / f"{self._name()}-configure.log"

    def _is_configured(self) -> bool:
        return (self.where / "CMakeCache.txt").exists() and any(
            (self.where / name).exists() for name in ("build.ninja", "Makefile"))

    def _name(self) -> str:
        return self.where.name
