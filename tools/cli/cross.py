# SPDX-License-Identifier: MIT
"""The libraries of another architecture, for cross building: unpacked, not installed, because
Debian's `catch2:arm64` and its like can't stand beside the native packages."""

from __future__ import annotations

import shutil
from pathlib import Path

from cli import build
from cli.console import quoted, run_logged, say
from minfer_tools.errors import Failure

PACKAGES = ("catch2", "libboost-context-dev", "libcli11-dev", "libxxhash-dev",
            "nlohmann-json3-dev")
# Of what those depend on: the C and C++ libraries come with the cross compiler.
UNPACKED = ("catch2", "libboost", "libcli11", "libxxhash", "nlohmann")


def run_with() -> str:
    """The command that runs a program of that architecture here."""
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    return quoted([qemu, "-L", "/usr/aarch64-linux-gnu"])


def sysroot(install: bool = True) -> Path:
    """A folder with the arm64 packages' files, made if it is not there."""
    folder = build.folder() / "sysroot-aarch64"
    record, wanted = folder / "packages.txt", " ".join(PACKAGES)
    if record.exists() and record.read_text() == wanted:
        return folder
    if not shutil.which("apt-get"):
        raise Failure("the aarch64 sysroot is made from Debian's packages, and there is no apt-get")
    if not install:
        raise Failure(f"missing: {wanted} for arm64; run without --no-install to fetch them")
    say(f"unpacking for arm64, not installing: {wanted}")
    shutil.rmtree(folder, ignore_errors=True)
    for package in download(folder / "apt"):
        if package.name.startswith(UNPACKED):
            run_logged(["dpkg", "-x", package, folder], build.log_dir() / "sysroot-unpack.log",
                       f"unpacking {package.name}")
    shutil.rmtree(folder / "apt")
    record.write_text(wanted)
    return folder


def download(state: Path) -> list[Path]:
    """The packages and what they depend on, by an apt with a state of its own: no root needed, and
    the system's own package lists and architectures stay as they are."""
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": "arm64", "APT::Architectures": "arm64", "Debug::NoLocking": "1",
        "Dir::State::lists": state / "lists", "Dir::State::status": state / "status",
        "Dir::Cache": state, "Dir::Cache::archives": state / "archives",
        "Acquire::Retries": "3", "APT::Sandbox::User": ""}
    apt = ["apt-get", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    log = build.log_dir()
    run_logged([*apt, "update"], log / "sysroot-update.log", "apt-get update for arm64")
    run_logged([*apt, "install", "--download-only", "-y", "--no-install-recommends", *PACKAGES],
               log / "sysroot-download.log", "downloading arm64 packages")
    return sorted((state / "archives").glob("*.deb"))
