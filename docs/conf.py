# SPDX-License-Identifier: MIT
"""Sphinx's settings; docs/build.py sets MINFER_DOCS_OUT, where Doxygen's XML lies."""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]

from minfer_docs import doxygen, fonts, places  # noqa: E402

OUT = Path(os.environ["MINFER_DOCS_OUT"])

project = "minfer"
author = "The minfer authors"
copyright = "The minfer authors, MIT licence"
release = re.search(r"^version: (\S+)", (HERE.parent / "CITATION.cff").read_text(encoding="utf-8"), re.M)[1]
version = release
language = "en"

extensions = ["breathe", "minfer_docs", "myst_parser", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_static", "_plots"]
nitpicky = True
# What stands in other people's references.
nitpick_ignore_regex = [
    (r"cpp:.*", r"(std|boost)(::.*)?|cuda\w+|(u?int|float|double|char|dim)\d|size_t|u?int\d+_t|XXH\w+|__half2?|__builtin_\w+"),
    (r"cpp:identifier", r"(thread|block)(Idx|Dim)"),
    # Namespaces have no pages, nor has what is private or the emulator's inside.
    (r"cpp:identifier", r"(::)?minfer(::[a-z_0-9]+)?|MinferSite.*|Identity<T>::type|Loop"),
    # Nor has what depends on a template's arguments.
    (r"cpp:identifier", r"(T|X|Own|Cta|Tiles<K>|WarpsBlocks<K>|Units<S, kStage>)::\w+"),
]

minfer_out = str(OUT)
breathe_projects = {p.name: str(doxygen.xml_folder(OUT, p)) for p in places.projects()}
breathe_default_project = "common"
breathe_default_members = ("members", "undoc-members")
breathe_show_include = False
breathe_domain_by_extension = {"cu": "cpp", "cuh": "cpp", "h": "cpp"}
cpp_id_attributes = ["__global__", "__device__", "__host__", "__forceinline__", "__constant__", "__inline__"]
cpp_maximum_signature_line_length = 88

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "substitution"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]

html_theme = "furo"
html_title = "minfer"
html_static_path = ["_static", str(fonts.static(OUT))]
html_favicon = "_static/favicon.svg"
html_css_files = ["fonts.css", "minfer.css"]
html_js_files = ["minfer.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "sidebar_hide_name": False,
    "navigation_with_keys": True,
    "top_of_page_buttons": [],
}
pygments_style = "github-light-high-contrast"
pygments_dark_style = "github-dark-high-contrast"
highlight_language = "text"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

epub_basename = "minfer"
epub_show_urls = "no"
epub_css_files = ["book.css"]
epub_exclude_files = ["search.html", "_static/minfer.js", "_static/minfer.css", "_static/fonts.css",
                      *(f"_static/fonts/{font.name}" for font in fonts.OF_PAGES)]
