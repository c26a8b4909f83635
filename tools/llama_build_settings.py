#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints how tools/build_llama_cpp built llama.cpp, as JSON, for the records.

    tools/llama_build_settings.py BUILD ORIGIN OPTION...
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def compilers(build: Path) -> dict[str, str]:
    """The compilers that CMake found."""
    facts = {}
    for language, key in (("CXX", "compiler"), ("CUDA", "nvcc")):
        for file in sorted(build.glob(f"CMakeFiles/*/CMake{language}Compiler.cmake")):
            text = file.read_text(encoding="utf-8")
            version = re.search(rf'set\(CMAKE_{language}_COMPILER_VERSION "(.+)"\)', text)
            kind = re.search(rf'set\(CMAKE_{language}_COMPILER_ID "(.+)"\)', text)
            if version and kind:
                facts[key] = f"{kind[1]} {version[1]}"
    return facts


def facts(build: Path, origin: str, options: list[str]) -> dict[str, str]:
    """@param options  of CMake; those that name a path of this machine are left out"""
    found = {"llama.cpp": origin, **compilers(build)}
    for option in options:
        name, separator, value = option.removeprefix("-D").partition("=")
        if option.startswith("-D") and separator and "/" not in value:
            found[name] = value
    return found


if __name__ == "__main__":
    print(json.dumps(facts(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]), indent=1))
