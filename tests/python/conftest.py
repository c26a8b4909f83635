# SPDX-License-Identifier: MIT
"""What all tests in Python share."""

import os
import signal
from pathlib import Path

import pytest

# A test run in the background of a script inherits that Ctrl-C is ignored, and would hand that on to
# the programs whose Ctrl-C is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item):
    """A test of what a terminal sees needs one; a container without /dev/pts has none to give."""
    if item.get_closest_marker("terminal"):
        try:
            ends = os.openpty()
        except OSError as error:
            pytest.skip(f"no pseudo-terminal on this machine: {error.strerror or error}")
        for end in ends:
            os.close(end)


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Path:
    """A folder of our own at the front of the PATH, and a build folder to write logs to."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MINFER_BUILD_DIR", str(tmp_path / "build"))
    return folder


@pytest.fixture
def tiny_model(tmp_path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF" + bytes(60))
    return path
