# SPDX-License-Identifier: MIT
"""What the lints share: the project's files, and how a finding is reported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
CPP = {".cpp", ".h", ".cu", ".cuh"}
GENERATED_FOLDERS = {".git", ".venv", ".cache", "build", "__pycache__", ".ruff_cache"}


def files() -> list[Path]:
    """All files of the project: git's, with new ones that it doesn't ignore, or without git (an
    unpacked archive) all but the generated folders."""
    try:
        names = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
             "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / name for name in names.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for path in ROOT.rglob("*")
                 if not GENERATED_FOLDERS & set(path.relative_to(ROOT).parts)]
    return sorted(path for path in set(paths) if path.is_file() and not path.is_symlink())


def cpp_files() -> list[Path]:
    return [path for path in files() if path.suffix in CPP]


def head(path: Path, size: int = 512) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def is_python(path: Path) -> bool:
    return path.suffix == ".py" or head(path, 64).startswith(b"#!/usr/bin/env python3")


def text_of(path: Path) -> str | None:
    """The file's text; None where it is binary."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def finish(findings: Iterable[str], what: str, checked: int) -> None:
    """Prints the findings and ends the program: 1 where there are any, or nothing was checked."""
    findings = list(findings)
    for finding in findings:
        print(finding)
    print(f"{what}: {checked} checked, {len(findings)} findings")
    sys.exit(1 if findings or not checked else 0)


def skip(reason: str) -> None:
    print(reason)
    sys.exit(SKIPPED)
