# SPDX-License-Identifier: MIT
"""Includes go downwards only: a folder includes its own files and those of the folders named here."""

import re
from collections.abc import Iterator
from pathlib import Path

from repository import ROOT, cpp_files, files, finish, name_of

WORDS, GGUF, TEXT, PROGRAM = "common/minfer", "common/minfer/gguf", "common/minfer/text", "common/minfer/program"
BELOW = {
    WORDS: (),
    GGUF: (WORDS,),
    TEXT: (WORDS, GGUF),
    PROGRAM: (WORDS, GGUF, TEXT),
    "common/cuda": (WORDS, GGUF),
    "oracle": (WORDS, GGUF),
}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)


def layer_of(path: Path) -> str | None:
    """The innermost of BELOW's folders that `path` lies in."""
    return next((name for folder in path.relative_to(ROOT).parents if (name := folder.as_posix()) in BELOW), None)


def included(source: Path, name: str) -> Path | None:
    """The file of the project that an include names."""
    places = ((folder / name).resolve() for folder in (source.parent, ROOT / "common", ROOT))
    return next((path for path in places if path.is_file() and ROOT in path.parents), None)


def findings(source: Path) -> Iterator[str]:
    layer = layer_of(source)
    text = source.read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text) if layer else ():
        path = included(source, match[1])
        if path and layer_of(path) not in (layer, *BELOW[layer]):
            yield (f"{name_of(source)}:{text.count(chr(10), 0, match.start()) + 1}: includes {match[1]}; "
                   f"expected a file of {', '.join((layer, *BELOW[layer]))}")


sources = cpp_files() + [path for path in files() if path.name.endswith(".cpp.in")]
finish((finding for source in sources for finding in findings(source)), "layers", len(sources))
