# SPDX-License-Identifier: MIT
"""What minfer's site needs besides Sphinx: directives that draw code, diffs and results from the checkout,
and links that are made by themselves."""

import zlib
from pathlib import Path

from sphinx.application import Sphinx

from .chapter_diff import ChapterDiff
from .glossary import LinkTerms, explain
from .links import LinkNames, resolve_page
from .listing import Listing
from .overview import ChapterList
from .results import Draw, Ladder, Reported, Results, Roofline, Step

DIRECTIVES = {"chapter-diff": ChapterDiff, "chapter-list": ChapterList, "drawing": Draw, "ladder": Ladder, "listing": Listing,
              "reported": Reported, "results": Results, "roofline": Roofline, "measured-step": Step}


def version_of_pages() -> int:
    """Changes with this package: then every page is read anew."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))


def setup(app: Sphinx) -> dict:
    app.add_config_value("minfer_out", "", "env", str)
    for name, directive in DIRECTIVES.items():
        app.add_directive(name, directive)
    app.add_transform(LinkNames)
    app.add_transform(LinkTerms)
    app.connect("missing-reference", resolve_page)
    app.connect("doctree-resolved", explain)
    return {"version": "1", "env_version": version_of_pages(), "parallel_read_safe": True, "parallel_write_safe": True}
