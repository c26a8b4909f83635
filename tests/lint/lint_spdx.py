# SPDX-License-Identifier: MIT
"""Every source file says its licence in its first lines."""

from pathlib import Path

from repository import CPP, files, finish, head, is_python, name_of

LINE = b"SPDX-License-Identifier: MIT"
SUFFIXES = CPP | {".py", ".cmake", ".sh", ".toml", ".yml", ".yaml", ".cff", ".css", ".js"}
NAMES = {"CMakeLists.txt", ".clang-format", ".gitignore", "requirements.txt"}


def is_source(path: Path) -> bool:
    return (path.suffix in SUFFIXES or path.name in NAMES or is_python(path)
            or head(path, 2) == b"#!")


def has_licence(path: Path) -> bool:
    return any(LINE in line for line in head(path).splitlines()[:3])


sources = [path for path in files() if is_source(path)]
finish((f"{name_of(path)}:1: no line '{LINE.decode()}' among the first three"
        for path in sources if not has_licence(path)), "SPDX lines", len(sources))
