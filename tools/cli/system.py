# SPDX-License-Identifier: MIT
"""System packages: what the project needs, how to see that it is there, how to install it.

Each need is looked for as a program or a file, never by asking a package manager: that is as
right on Fedora as on Debian, and takes microseconds, so every command can afford to look."""

from __future__ import annotations

import glob
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cli.console import quoted, run_logged, say
from minfer_tools.errors import Failure

INSTALL_HINT = "run without --no-install to have them installed"


@dataclass(frozen=True)
class Need:
    """Something the system has to provide: `what` for people, `apt` for Debian and Ubuntu."""

    what: str
    apt: str
    found: Callable[[], bool]


def command(*names: str) -> Callable[[], bool]:
    return lambda: any(shutil.which(name) for name in names if name)


def header(*paths: str) -> Callable[[], bool]:
    return lambda: any(os.path.exists(os.path.join(directory, path))
                       for directory in include_dirs() for path in paths)


def file(*patterns: str) -> Callable[[], bool]:
    return lambda: any(glob.glob(pattern) for pattern in patterns)


def include_dirs() -> list[str]:
    """Where CMake's find_package and find_path look, as far as it matters here."""
    prefixes = [p for name in ("CMAKE_PREFIX_PATH", "CONDA_PREFIX")
                for p in os.environ.get(name, "").replace(";", ":").split(":") if p]
    return ([p for p in os.environ.get("CPATH", "").split(":") if p]
            + [os.path.join(p, "include") for p in prefixes]
            + ["/usr/local/include", "/usr/include", *glob.glob("/usr/include/*-linux-gnu")])


def has_ensurepip() -> bool:
    return importlib.util.find_spec("ensurepip") is not None


# What `run` needs.
BUILD_NEEDS = (
    Need("a C++17 compiler", "g++", command(os.environ.get("CXX", ""), "c++", "g++", "clang++")),
    Need("CMake", "cmake", command("cmake")),
    Need("Ninja", "ninja-build", command("ninja")),
    Need("CLI11", "libcli11-dev", header("CLI/CLI.hpp")),
    Need("xxHash", "libxxhash-dev", header("xxhash.h")),
)
# What a conversation's lines are edited with; it works without.
CHAT_NEEDS = (Need("libedit", "libedit-dev", header("histedit.h")),)
# What fetching a model needs.
FETCH_NEEDS = (
    Need("certificates", "ca-certificates",
         file("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
              "/etc/ssl/cert.pem")),
)
PYTHON_NEEDS = (Need("Python's venv module", "python3-venv", has_ensurepip),)
# What the kernels' emulator needs.
EMULATOR_NEEDS = (
    Need("Boost.Context", "libboost-context-dev", header("boost/context/fiber.hpp")),
)
# What tests of kernels in the emulator build with.
KERNEL_TEST_NEEDS = (
    *EMULATOR_NEEDS,
    Need("Catch2", "catch2", header("catch2/catch.hpp", "catch2/catch_all.hpp")),
)
# What else the tests build with.
TEST_NEEDS = (
    *KERNEL_TEST_NEEDS,
    Need("nlohmann-json", "nlohmann-json3-dev", header("nlohmann/json.hpp")),
    Need("Google Benchmark", "libbenchmark-dev", header("benchmark/benchmark.h")),
    Need("Git", "git", command("git")),
)
LINT_NEEDS = (Need("clang-format", "clang-format", command("clang-format")),)
FUZZ_NEEDS = (
    Need("Clang", "clang", command("clang++")),
    Need("libFuzzer", "libclang-rt-dev",
         file("/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a",
              "/usr/lib/llvm-*/lib/clang/*/lib/*/libclang_rt.fuzzer.a",
              "/usr/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a",
              "/usr/lib/clang/*/lib/*/libclang_rt.fuzzer.a")),
)
CROSS_NEEDS = (
    Need("the aarch64 compiler", "g++-aarch64-linux-gnu", command("aarch64-linux-gnu-g++")),
    Need("qemu-user", "qemu-user-static", command("qemu-aarch64-static", "qemu-aarch64")),
)
DOCS_NEEDS = (Need("Doxygen", "doxygen", command("doxygen")),)
# Without these the site takes the reader's own fonts.
FONT_NEEDS = (
    Need("Inter", "fonts-inter-variable", file("/usr/share/fonts/truetype/inter-vf/Inter-roman.var.ttf")),
    Need("JetBrains Mono", "fonts-jetbrains-mono",
         file("/usr/share/fonts/truetype/jetbrains-mono/JetBrainsMono-Regular.ttf")),
)
BROWSER_NEEDS = (
    Need("Chromium", "chromium", command("chromium", "chromium-browser", "google-chrome")),
)
# What tests need that are skipped without it.
OPTIONAL_NEEDS = (*CHAT_NEEDS, *LINT_NEEDS, *FUZZ_NEEDS, *CROSS_NEEDS, *DOCS_NEEDS, *BROWSER_NEEDS)


def missing(needs: Iterable[Need]) -> list[Need]:
    return [need for need in needs if not need.found()]


def missing_line(needs: Iterable[Need]) -> str:
    """"Ninja (ninja-build), CLI11 (libcli11-dev)": readable on any distribution."""
    return ", ".join(f"{need.what} ({need.apt})" for need in needs)


def ensure(needs: Iterable[Need], log_dir: Path, install: bool = True, also: Iterable[Need] = ()) -> bool:
    """Sees to it that every need is met, installing what is missing after saying which, and then
    what is missing of `also`; returns whether there was anything to install.

    Raises Failure with one line that says what to install where this can't be done here."""
    absent = missing(needs)
    if not absent:
        return False
    if not install:
        raise Failure(f"missing: {missing_line(absent)}; {INSTALL_HINT}")
    packages = Apt.require(absent).install([*absent, *missing(also)], log_dir)
    still = missing(absent)
    if still:
        raise Failure(f"still missing after installing {' '.join(packages)}: "
                      f"{missing_line(still)}")
    return True


class Apt:
    """Debian's and Ubuntu's package manager, as root or through sudo."""

    LISTS = "/var/lib/apt/lists"

    def __init__(self, prefix: list[str]):
        self._prefix = prefix

    @staticmethod
    def require(absent: list[Need]) -> Apt:
        """An Apt that may install, or Failure naming what the user has to install instead."""
        if not shutil.which("apt-get"):
            raise Failure(f"missing: {missing_line(absent)}; install them with this system's "
                          "package manager (in brackets: their names on Debian), then run again")
        if os.geteuid() == 0:
            return Apt([])
        packages = quoted(["apt-get", "install", *(need.apt for need in absent)])
        if not shutil.which("sudo"):
            raise Failure(f"missing: {missing_line(absent)}; as root: {packages}")
        sudo = ["sudo"] if sys.stdin and sys.stdin.isatty() else ["sudo", "-n"]
        if sudo == ["sudo", "-n"] and subprocess.run(
                ["sudo", "-n", "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL).returncode != 0:
            raise Failure(f"missing: {missing_line(absent)}; sudo asks for a password and there is "
                          f"no terminal to type it: sudo {packages}")
        return Apt(sudo)

    def install(self, absent: list[Need], log_dir: Path) -> list[str]:
        """Installs what is absent, after saying which packages that takes; returns those."""
        start = time.monotonic()
        if not glob.glob(f"{self.LISTS}/*_Packages*"):
            self._update(log_dir)
        packages = [clang_runtime() if need.apt == "libclang-rt-dev" else need.apt
                    for need in absent]
        how = " ".join([*self._prefix, "apt-get install"])
        say(f"installing: {' '.join(packages)} ({how})")
        try:
            self._install(packages, log_dir)
        except Failure:
            self._update(log_dir)
            self._install(packages, log_dir)
        say(f"  installed in {time.monotonic() - start:.0f} s")
        return packages

    def _update(self, log_dir: Path) -> None:
        say(f"refreshing the package lists ({' '.join([*self._prefix, 'apt-get update'])})")
        self._apt(["update"], log_dir / "apt-update.log")

    def _install(self, packages: list[str], log_dir: Path) -> None:
        self._apt(["install", "-y", "--no-install-recommends", *packages],
                  log_dir / "apt-install.log")

    def _apt(self, arguments: list[str], log: Path) -> None:
        run_logged([*self._prefix, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8",
                    "apt-get", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=3",
                    *arguments],
                   log, f"apt-get {arguments[0]}")


def clang_runtime() -> str:
    """The package with libFuzzer and the sanitizers of this release's default clang, which has
    the version in its name: libclang-rt-14-dev. Releases before 14.0.6 have it in -common-."""
    text = subprocess.run(["apt-cache", "depends", "clang"], capture_output=True, text=True).stdout
    version = next((word.rpartition("-")[2] for word in text.split()
                    if word.startswith("clang-") and word.rpartition("-")[2].isdigit()), "14")
    runtime = f"libclang-rt-{version}-dev"
    known = subprocess.run(["apt-cache", "show", runtime], capture_output=True).returncode == 0
    return runtime if known else f"libclang-common-{version}-dev"


def is_x86_64() -> bool:
    return platform.machine() in ("x86_64", "AMD64")
