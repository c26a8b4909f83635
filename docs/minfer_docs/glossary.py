# SPDX-License-Identifier: MIT
"""A link to the glossary from the first use of each of its terms on a page, which also says what the glossary says."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from .links import inside, reference
from .places import PAGES

GLOSSARY = "glossary"
PROSE = (nodes.paragraph,)
NOT_INSIDE = (nodes.reference, addnodes.pending_xref, nodes.title, nodes.literal, nodes.literal_block, nodes.raw, addnodes.desc,
              nodes.caption, nodes.thead)


class Term(NamedTuple):
    """A name as the glossary writes it, the entry that it belongs to, and what that says."""

    name: str
    entry: str
    meaning: str


@cache
def terms() -> dict[str, Term]:
    """The terms and other names of the glossary, by their names in lower case."""
    text = (PAGES / f"{GLOSSARY}.md").read_text(encoding="utf-8")
    body = re.search(r"```\{glossary\}\n(.*?)```", text, re.S)[1]
    found = {}
    for entry in body.strip().split("\n\n"):
        names = [line for line in entry.splitlines() if not line.startswith(" ")]
        meaning = " ".join(" ".join(line.split()) for line in entry.splitlines() if line.startswith(" "))
        meaning = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", re.sub(r"[`*]|\{\w+\}", "", meaning))
        found.update((name.lower(), Term(name, names[0], meaning)) for name in names)
    return found


@cache
def pattern(seen: frozenset[str]) -> re.Pattern:
    """What finds the terms of all other entries, the longest first: "KV cache" before "KV"."""
    longest_first = sorted((name for name, term in terms().items() if term.entry not in seen), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest_first))})(?:es|s)?(?![\w-])", re.I)


class LinkTerms(SphinxTransform):
    default_priority = 510

    def apply(self, **kwargs) -> None:
        docname = self.env.docname
        if docname == GLOSSARY or docname.startswith(("source/", "api/")) or docname.endswith("/api"):
            return
        self.env.note_dependency(str(PAGES / f"{GLOSSARY}.md"))
        seen: set[str] = set()
        for text in list(self.document.findall(nodes.Text)):
            if inside(text.parent, PROSE) and not inside(text.parent, NOT_INSIDE) and not self._is_in_card(text.parent):
                self._link(text, seen)

    @staticmethod
    def _is_in_card(node: nodes.Node) -> bool:
        """A card or an entry of a list is one link as a whole, and what stands above a title is no text."""
        while node is not None:
            if isinstance(node, nodes.Element) and {"sd-card", "entry", "eyebrow"} & set(node.get("classes", ())):
                return True
            node = node.parent
        return False

    def _link(self, text: nodes.Text, seen: set[str]) -> None:
        whole, pieces, end = text.astext(), [], 0
        while len(seen) < len({term.entry for term in terms().values()}):
            match = pattern(frozenset(seen)).search(whole, end)
            if match is None:
                break
            term = terms()[match[1].lower()]
            seen.add(term.entry)
            link = reference("std", "term", term.name, self.env.docname)
            link += nodes.inline(match[0], match[0], classes=["term"], meaning=term.meaning)
            before = whole[end:match.start()]
            if before.endswith('"'):  # what makes quotes round does not see that one opens where a link begins
                before = f"{before[:-1]}“"
            pieces += [nodes.Text(before), link]
            end = match.end()
        if pieces:
            text.parent.replace(text, [piece for piece in [*pieces, nodes.Text(whole[end:])] if piece.astext()])


def explain(app, doctree: nodes.document, docname: str) -> None:
    """A term's link, now that it leads somewhere, bears the term's meaning as its title: minfer.js shows it."""
    for word in doctree.findall(nodes.inline):
        if "meaning" in word and isinstance(word.parent, nodes.reference):
            word.parent["reftitle"] = word["meaning"]
