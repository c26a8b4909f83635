# SPDX-License-Identifier: MIT
"""The virtual environment with the Python packages that the tools and the tests need."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from pathlib import Path

from cli import ROOT, places, system
from cli.console import run_logged, say
from minfer_tools.errors import Failure
from minfer_tools.whole_file import replace_text

TOOLS = ROOT / "tools" / "requirements.txt"
TESTS = ROOT / "tests" / "requirements.txt"
DOCS = ROOT / "docs" / "requirements.txt"
BROWSER = ROOT / "tests" / "docs" / "requirements.txt"


def location() -> Path:
    return places.folder(".venv")


def python() -> Path:
    return location() / "bin" / "python"


def stamp(requirements: Path) -> Path:
    name = "browser" if requirements == BROWSER else requirements.parent.name
    return location() / f"minfer-{name}.installed"


def wanted(requirements: Path) -> str:
    """What the stamp holds when exactly these requirements are installed here: the programs of an environment that
    was copied or moved start the other's Python."""
    return f"{hashlib.sha256(requirements.read_bytes()).hexdigest()} {location()}"


def is_ready(requirements: Path) -> bool:
    try:
        return python().exists() and stamp(requirements).read_text() == wanted(requirements)
    except OSError:
        return False


def ensure(requirements: Path, log_dir: Path, install: bool = True) -> Path:
    """The environment's interpreter, with `requirements` installed; says so where it has to."""
    if is_ready(requirements):
        return python()
    packages = " ".join(package_names(requirements))
    if not install:
        raise Failure(f"missing: the Python packages {packages}; {system.INSTALL_HINT}")
    with places.turn(location().with_suffix(".lock"), f"installing in {location()}"):
        if is_ready(requirements):
            return python()
        if not works():
            system.ensure(system.PYTHON_NEEDS, log_dir, install)
            say(f"making a virtual environment: {location()}")
            run_logged([sys.executable, "-m", "venv", "--clear", location()], log_dir / "venv.log", "python -m venv")
        say(f"installing: {packages} (pip)")
        start = time.monotonic()
        pip_install(requirements, log_dir / "pip.log")
        replace_text(stamp(requirements), wanted(requirements))
        say(f"  installed in {time.monotonic() - start:.0f} s")
    return python()


def works() -> bool:
    """Whether the environment is there and of here, with a pip in it, and its interpreter still runs."""
    if any(path.read_text().partition(" ")[2] != str(location()) for path in location().glob("*.installed")):
        return False
    try:
        return subprocess.run([python(), "-c", "import pip"], capture_output=True).returncode == 0
    except OSError:
        return False


def package_names(requirements: Path) -> list[str]:
    """The names that a requirements file lists, each once."""
    names = (re.match(r"[\w.-]+", line) for line in requirements.read_text().splitlines())
    return list(dict.fromkeys(name[0] for name in names if name and not name[0].startswith("-")))


def pip_install(requirements: Path, log: Path) -> None:
    """Installs in the environment, whatever PIP_USER or pip.conf says (--no-user)."""
    try:
        run_logged([python(), "-m", "pip", "install", "--no-user", "--no-input", "--disable-pip-version-check",
                    "--progress-bar", "off", "-r", requirements], log, "pip install")
    except Failure as failure:
        unreachable = r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ProxyError|Max retries exceeded|SSLError"
        if re.search(unreachable, log.read_text(encoding="utf-8", errors="replace")):
            raise Failure("pip install failed: the Python package index can't be reached: is there a network or a proxy to "
                          f"set? All of its output: {log}") from None
        raise failure
