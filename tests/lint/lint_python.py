# SPDX-License-Identifier: MIT
"""Python sources pass ruff, with the rules of pyproject.toml."""

import shutil
import subprocess

from repository import ROOT, files, finish, is_python, skip

if not shutil.which("ruff"):
    skip("ruff is not installed (tests/requirements.txt)")
sources = [path for path in files() if is_python(path)]
result = subprocess.run(["ruff", "check", "--no-cache", "--quiet", "--output-format=concise",
                         *sources], cwd=ROOT, capture_output=True, text=True)
findings = (result.stdout + result.stderr).splitlines()
if result.returncode and not findings:
    findings = [f"ruff ended with status {result.returncode}"]
finish(findings, "ruff", len(sources))
