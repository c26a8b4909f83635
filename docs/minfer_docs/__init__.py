# SPDX-License-Identifier: MIT
"""What minfer's site needs besides Sphinx: directives that draw code, diffs and results from the checkout,
and links that are made by themselves."""

from sphinx.application import Sphinx

from .chapter_diff import ChapterDiff
from .links import LinkNames
from .listing import Listing
from .results import Ladder, Results, Roofline


def setup(app: Sphinx) -> dict:
    app.add_config_value("minfer_out", "", "env", str)
    for name, directive in (("listing", Listing), ("chapter-diff", ChapterDiff), ("results", Results),
                            ("ladder", Ladder), ("roofline", Roofline)):
        app.add_directive(name, directive)
    app.add_transform(LinkNames)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
