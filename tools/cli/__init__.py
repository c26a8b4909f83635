# SPDX-License-Identifier: MIT
"""What is behind the `minfer` command. Python's standard library only: it has to run on a machine
that has nothing else yet."""

from pathlib import Path

VERSION = "0.1.0"
ROOT = Path(__file__).resolve().parents[2]

