# SPDX-License-Identifier: MIT
"""{listing}: code on a page, pulled from the compiled sources: a definition by its name, or a whole file.

    ```{listing} chapters/05-dp4a/gemv.cuh#gemv_q4_0
    ```
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from minfer_tools import listings
from minfer_tools.errors import Failure

from . import places
from .links import PAGE

LANGUAGES = {".cu": "cuda", ".cuh": "cuda", ".h": "cuda", ".cpp": "cpp", ".py": "python", ".cmake": "cmake",
             ".txt": "cmake", ".sh": "bash", ".patch": "diff"}


def language(file: str) -> str:
    return LANGUAGES.get(Path(file).suffix, "text")


def source_page(file: str) -> str:
    return f"source/{file}"


def link_to_source(file: str, text: str, docname: str) -> nodes.Element:
    return addnodes.pending_xref("", nodes.literal(text, text), refdomain="", reftype=PAGE, refdoc=docname,
                                 reftarget=source_page(file), refexplicit=True, refwarn=True)


class Listing(SphinxDirective):
    """Code with a caption that says where it stands, and below it what it requires and how it is launched."""

    required_arguments = 1
    option_spec = {"lines": directives.flag}

    def run(self) -> list[nodes.Node]:
        file, _, name = self.arguments[0].partition("#")
        path = places.ROOT / file
        self.env.note_dependency(str(path))
        try:
            code = listings.find(path, name, file) if name else None
        except Failure as failure:
            raise self.error(str(failure)) from None
        text = code.text if code else path.read_text(encoding="utf-8").rstrip("\n")
        block = nodes.literal_block(text, text, language=language(file), linenos="lines" in self.options)
        block["force"] = True  # C++20's and the compilers' own syntax included
        if code is None:
            return [block]
        caption = nodes.caption("", "")
        is_own = file.split("/")[:2] == self.env.docname.split("/")[:2]
        caption += link_to_source(file, path.name if is_own else file, self.env.docname)
        caption += nodes.inline("", f" lines {code.first} to {code.last}", classes=["lines"])
        box = nodes.container("", caption, block, literal_block=True, classes=["literal-block-wrapper", "listing"])
        if code.notes():
            box += nodes.container("", *self.parse_text_to_nodes(" ".join(code.notes())), classes=["note"])
        return [box]
