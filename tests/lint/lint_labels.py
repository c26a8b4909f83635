# SPDX-License-Identifier: MIT
"""Every test has a label that says where it can run, so that none is left out everywhere. Reads the
tests of the build folder given."""

import json
import subprocess
import sys
from collections.abc import Iterator

from repository import finish

PLACES = {"cpu", "emulated", "model", "gpu", "docs", "lint", "fuzz", "exhaustive"}
EXTRA = {"slow"}  # too slow for sanitizers and qemu


def labels(test: dict) -> set[str]:
    return {label for entry in test.get("properties", []) if entry["name"] == "LABELS"
            for label in entry["value"]}


def findings(tests: list[dict]) -> Iterator[str]:
    for test in tests:
        found = labels(test)
        if not found & PLACES or found - PLACES - EXTRA:
            yield (f"{test['name']}: found the labels {sorted(found) or 'none'}, expected one of "
                   f"{' '.join(sorted(PLACES))}, and at most {' '.join(EXTRA)} besides")


shown = subprocess.run(["ctest", "--test-dir", sys.argv[1], "--show-only=json-v1"],
                       capture_output=True, text=True, check=True)
tests = json.loads(shown.stdout)["tests"]
finish(findings(tests), "labels", len(tests))
