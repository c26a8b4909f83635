# SPDX-License-Identifier: MIT
"""C++ and CUDA sources are as clang-format writes them. tests/lint/lint_format.py --fix rewrites
them."""

import shutil
import subprocess
import sys

from repository import ROOT, cpp_files, finish, name_of, skip

if not shutil.which("clang-format"):
    skip("clang-format is not installed")
sources = cpp_files()
if "--fix" in sys.argv:
    subprocess.run(["clang-format", "-i", *sources], check=True)


def is_formatted(path) -> bool:
    result = subprocess.run(["clang-format", path], capture_output=True, cwd=ROOT)
    return result.returncode == 0 and result.stdout == path.read_bytes()


finish((f"{name_of(path)}:1: clang-format would change it" for path in sources
        if not is_formatted(path)), "clang-format", len(sources))
