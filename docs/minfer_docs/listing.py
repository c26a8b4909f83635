# SPDX-License-Identifier: MIT
"""{listing}: code on a page, pulled from the compiled sources: a definition by its name, a passage by its
markers, or a whole file.

    ```{listing} chapters/05-dp4a/gemv.cuh#gemv_q4_0
    ```
    ```{listing} common/minfer/math.h#[exp]
    ```
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from . import places, symbols
from .links import PAGE

LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".h": "cuda", ".cpp": "cpp", ".py": "python", ".cmake": "cmake",
             ".txt": "cmake", ".sh": "bash", ".patch": "diff"}


def language(file: str) -> str:
    return LANGUAGES.get(Path(file).suffix, "text")


def find(out: Path, file: str, name: str) -> tuple[int, int]:
    """Where a definition stands in its file. Raises ValueError where it is none, or two."""
    project = next((p for p in places.projects() if file.startswith(p.folder + "/")), None)
    if project is None:
        raise ValueError(f"{file}: in no project that Doxygen reads")
    found = [s for s in symbols.load(out, project).named(name) if s.file == file]
    if not found:
        raise ValueError(f"{file}: found no {name}, expected a definition")
    ranges = sorted({symbols.extent(symbol) for symbol in found})
    return ranges[0][0], ranges[0][1]


def resolve(out: Path, target: str) -> tuple[str, int, int]:
    """"file#name", "file#[tag]" or "file": the file and its lines."""
    file, _, what = target.partition("#")
    if not (places.ROOT / file).is_file():
        raise ValueError(f"{file}: no such file")
    if what.startswith("["):
        return file, *symbols.marked(file, what.strip("[]"))
    if what:
        return file, *find(out, file, what)
    return file, 1, len(symbols.text_lines(file))


def source_page(file: str) -> str:
    return f"source/{file}"


def link_to_source(file: str, text: str, docname: str) -> nodes.Element:
    return addnodes.pending_xref("", nodes.literal(text, text), refdomain="", reftype=PAGE, refdoc=docname,
                                 reftarget=source_page(file), refexplicit=True, refwarn=True)


class Listing(SphinxDirective):
    """Code with a caption that says where it stands."""

    required_arguments = 1
    option_spec = {"lines": directives.flag}

    def run(self) -> list[nodes.Node]:
        try:
            file, first, last = resolve(Path(self.config.minfer_out), self.arguments[0])
        except ValueError as error:
            raise self.error(str(error)) from None
        self.env.note_dependency(str(places.ROOT / file))
        code = "\n".join(symbols.text_lines(file)[first - 1:last])
        block = nodes.literal_block(code, code, language=language(file), linenos="lines" in self.options)
        block["force"] = True  # C++20's and the compilers' own syntax included
        block["highlight_args"] = {"linenostart": first}
        if "#" not in self.arguments[0] or "lines" in self.options:
            return [block]
        caption = nodes.caption("", "")
        is_own = file.split("/")[:2] == self.env.docname.split("/")[:2]
        text = file.rsplit("/", 1)[-1] if is_own else file
        caption += link_to_source(file, text, self.env.docname)
        caption += nodes.inline("", f" lines {first} to {last}", classes=["lines"])
        box = nodes.container("", caption, block, literal_block=True, classes=["literal-block-wrapper", "listing"])
        return [box]
