# SPDX-License-Identifier: MIT
"""The site's two fonts, from the system's packages, cut down to the characters that it uses.

Pages have them as WOFF. A picture can't use a page's fonts, so pictures have TrueType ones of their own. Where a package
isn't installed nothing is made, and other fonts stand in: the style sheets name them after these."""

from __future__ import annotations

import os
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path("/usr/share/fonts/truetype")
INTER, INTER_ITALIC = FOLDER / "inter-vf/Inter-roman.var.ttf", FOLDER / "inter-vf/Inter-italic.var.ttf"
MONO, MONO_BOLD = (FOLDER / f"jetbrains-mono/JetBrainsMono-{weight}.ttf" for weight in ("Regular", "Bold"))

LATIN = range(0x20, 0x7F)
# With accents, Greek, punctuation, arrows, mathematics and boxes.
PAGES = [*LATIN, *range(0xA0, 0x180), *range(0x391, 0x3CA), *range(0x2010, 0x2028), 0x2032, 0x2033, *range(0x2070, 0x208A),
         0x20AC, 0x2122, *range(0x2190, 0x2194), 0x21D2, *range(0x2200, 0x2266), *range(0x2500, 0x2600), 0x2713]
PICTURES = [*LATIN, 0xB2, 0xB7, 0xD7, 0xF7, 0x2013, 0x2192, 0x2212, 0x2264, 0x2265]
# No ligatures in code: "->" is two characters in a source, and two on the page.
FEATURES = {"Inter": ["kern", "calt", "ccmp", "locl", "mark", "tnum"], "JetBrains Mono": ["ccmp", "mark"]}


@dataclass(frozen=True)
class Font:
    """One file of a family. `at` is where on a variable font's axis of weights it is taken, if at one place."""

    name: str
    family: str
    style: str
    weight: str
    source: Path
    at: int | None = None


OF_PAGES = (
    Font("inter.woff", "Inter", "normal", "100 900", INTER),
    Font("inter-italic.woff", "Inter", "italic", "100 900", INTER_ITALIC),
    Font("mono.woff", "JetBrains Mono", "normal", "400", MONO),
    Font("mono-bold.woff", "JetBrains Mono", "normal", "700", MONO_BOLD),
)
OF_PICTURES = (
    Font("inter.ttf", "Inter", "normal", "400", INTER, 400),
    Font("inter-bold.ttf", "Inter", "normal", "700", INTER, 650),
    Font("mono.ttf", "JetBrains Mono", "normal", "400", MONO),
)


def cut(font: Font, characters: list[int], target: Path) -> None:
    """Writes the font with no more than these characters, in the form that the target's ending names."""
    from fontTools import subset
    from fontTools.ttLib import TTFont
    from fontTools.varLib import instancer
    options = subset.Options(layout_features=FEATURES[font.family], name_IDs=["*"])  # names: whose it is, and its licence
    options.flavor = "woff" if target.suffix == ".woff" else None
    options.hinting = target.suffix == ".woff"
    file = TTFont(font.source)
    if font.at is not None:
        file = instancer.instantiateVariableFont(file, {"wght": font.at})
        style = "Bold" if font.weight == "700" else "Regular"
        for number, name in ((1, font.family), (2, style), (4, f"{font.family} {style}"), (6, f"{font.family}-{style}")):
            file["name"].setName(name, number, 3, 1, 0x409)  # matplotlib tells fonts apart by these
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(file)
    subset.save_font(file, target, options)


def static(out: Path) -> Path:
    """Where what html_static_path takes lies."""
    return out / "static"


def pictures() -> Path:
    return Path(os.environ["MINFER_DOCS_OUT"]) / "fonts"


def make(out: Path) -> None:
    """Writes the pages' fonts with their style sheet, fonts.css, and the pictures' fonts."""
    rules = ""
    for fonts, characters, folder in ((OF_PAGES, PAGES, static(out) / "fonts"), (OF_PICTURES, PICTURES, out / "fonts")):
        folder.mkdir(parents=True, exist_ok=True)
        for font in fonts:
            if not font.source.is_file():
                continue
            cut(font, characters, folder / font.name)
            if fonts is OF_PAGES:
                rules += rule(font, f'url("fonts/{font.name}") format("woff")') + "\n"
    (static(out) / "fonts.css").write_text(rules, encoding="utf-8")


def rule(font: Font, source: str) -> str:
    return (f'@font-face{{font-family:"{font.family}";font-weight:{font.weight};font-style:{font.style};font-display:swap;'
            f"src:{source}}}")


@cache
def in_picture() -> str:
    """The style that brings the fonts along inside an SVG."""
    files = [(font, pictures() / font.name) for font in OF_PICTURES]
    return "".join(rule(font, f"url(data:font/ttf;base64,{b64encode(file.read_bytes()).decode()})")
                   for font, file in files if file.is_file())
