# SPDX-License-Identifier: MIT
"""A link to the glossary from the first use of each of its terms on a page."""

from __future__ import annotations

import re
from functools import cache

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from .links import inside, reference
from .places import PAGES

GLOSSARY = "glossary"
PROSE = (nodes.paragraph,)
NOT_INSIDE = (nodes.reference, addnodes.pending_xref, nodes.title, nodes.literal, nodes.literal_block, nodes.raw, addnodes.desc,
              nodes.caption, nodes.thead, nodes.strong, nodes.emphasis)


@cache
def terms() -> dict[str, str]:
    """Each term and alias of the glossary in lower case, with the term as it is written there."""
    text = (PAGES / f"{GLOSSARY}.md").read_text(encoding="utf-8")
    body = re.search(r"```\{glossary\}\n(.*?)```", text, re.S)[1]
    found = [line.strip() for line in body.splitlines() if line.strip() and not line.startswith((" ", ":"))]
    return {term.lower(): term for term in found}


@cache
def pattern() -> re.Pattern:
    longest_first = sorted(terms(), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(s?)(?![\w-])", re.I)


class LinkTerms(SphinxTransform):
    default_priority = 510

    def apply(self, **kwargs) -> None:
        docname = self.env.docname
        if docname == GLOSSARY or docname.startswith(("source/", "api/")) or docname.endswith("/api"):
            return
        seen: set[str] = set()
        for text in list(self.document.findall(nodes.Text)):
            if inside(text.parent, PROSE) and not inside(text.parent, NOT_INSIDE) and not self._is_in_card(text.parent):
                self._link(text, seen)

    @staticmethod
    def _is_in_card(node: nodes.Node) -> bool:
        """A card is one link as a whole."""
        while node is not None:
            if isinstance(node, nodes.Element) and "sd-card" in node.get("classes", ()):
                return True
            node = node.parent
        return False

    def _link(self, text: nodes.Text, seen: set[str]) -> None:
        whole, pieces, end = text.astext(), [], 0
        for match in pattern().finditer(whole):
            term = terms()[match[1].lower()]
            if term in seen:
                continue
            seen.add(term)
            link = reference("std", "term", term, self.env.docname)
            link += nodes.inline(match[0], match[0], classes=["term"])
            pieces += [nodes.Text(whole[end:match.start()]), link]
            end = match.end()
        if pieces:
            text.parent.replace(text, [piece for piece in [*pieces, nodes.Text(whole[end:])] if piece.astext()])
