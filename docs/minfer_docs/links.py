# SPDX-License-Identifier: MIT
"""Links that nobody writes: from `names` in prose to the reference and the sources, and from the first use
of a term on a page to the glossary."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util.nodes import make_refnode

from . import places, symbols

PAGE = "minfer-page"
NAME = re.compile(r"[A-Za-z_]\w*(::~?[A-Za-z_]\w*)*")
LINKED_KINDS = ("function", *symbols.CLASSES)
NOT_INSIDE = (nodes.reference, addnodes.pending_xref, nodes.title, addnodes.desc, nodes.raw, nodes.literal_block)


def inside(node: nodes.Node, kinds: tuple) -> bool:
    while node is not None:
        if isinstance(node, kinds):
            return True
        node = node.parent
    return False


class LinkNames(SphinxTransform):
    """`gemv_q4_0` on a chapter's page is that chapter's kernel; elsewhere it is looked for in what all
    share. What is no symbol or file of the project stays as it is."""

    default_priority = 500

    def apply(self, **kwargs) -> None:
        docname = self.env.docname
        if docname.startswith("source/"):
            return
        out = Path(self.config.minfer_out)
        chapter = next((c for c in places.chapters() if docname.split("/")[:2] == ["chapters", c.name]), None)
        for node in list(self.document.findall(nodes.literal)):
            if inside(node.parent, NOT_INSIDE):
                continue
            text = node.astext()
            target = self._file(text, chapter) or self._symbol(out, text.removesuffix("()"), chapter)
            if target is not None:
                node.replace_self(target)
                target += node

    def _file(self, text: str, chapter) -> addnodes.pending_xref | None:
        if "." not in text or " " in text:
            return None
        folders = ([f"chapters/{chapter.name}/"] if chapter else []) + ["", "common/"]
        for folder in folders:
            path = places.ROOT / (folder + text)
            if path.suffix in (".h", ".cuh", ".cu", ".cpp", ".cmake") and path.is_file() and folder + text != text or (
                    text.startswith(("chapters/", "common/", "oracle/")) and path.suffix in places.SOURCES and path.is_file()):
                return reference("", PAGE, f"source/{folder}{text}", self.env.docname)
        return None

    def _symbol(self, out: Path, text: str, chapter) -> addnodes.pending_xref | None:
        if not NAME.fullmatch(text):
            return None
        own = [places.chapter_project(chapter)] if chapter else []
        shared = list(reversed(places.shared_projects()))
        if not chapter and "::" not in text and "_" not in text and not text[0].isupper():
            return None  # "add" in a page of no chapter is English
        for project in [*own, *shared]:
            for symbol in symbols.load(out, project).named(text):
                if symbol.kind in LINKED_KINDS and symbol.on_site:
                    return reference("cpp", "any", symbol.name, self.env.docname)
        return None


def resolve_page(app, env, node: addnodes.pending_xref, contents: nodes.Node):
    """A link to a page of the site whose text keeps its form, as Sphinx's own does not."""
    if node["reftype"] != PAGE or node["reftarget"] not in env.found_docs:
        return None
    return make_refnode(app.builder, node["refdoc"], node["reftarget"], "", contents)


def reference(domain: str, kind: str, target: str, docname: str) -> addnodes.pending_xref:
    return addnodes.pending_xref("", refdomain=domain, reftype=kind, reftarget=target, refexplicit=True, refwarn=True,
                                 refdoc=docname, **({"cpp:parent_key": None} if domain == "cpp" else {}))
