# SPDX-License-Identifier: MIT
"""A chapter's page out of its README: the same text, with code beside the walk-through, a plot, links to the API, to
the diff from the chapter before and to the sources. Nothing here knows any chapter by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from minfer_tools import listings
from minfer_tools.chapter_tree import PATCHES, Chapter

from . import listing, places, symbols
from .places import ROOT, Project

# A drawing that a README shows from docs/figures is drawn anew for the page.
PICTURE = re.compile(r"<picture>\n[^<]*<source[^>]*>\n<img [^>]*docs/figures/([\w-]+)\.svg\">\n</picture>")
COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
TABLE = re.compile(r"<!-- table: ([^>\n]*?) -->\n(.*?)<!-- /table -->\n", re.S)
# A patch that a solution shows, by a link on a line of its own.
PATCH = re.compile(r"^\[`[^`]+`\]\(\.\./\.\./(chapters/[^)\s]+\.patch)\)$", re.M)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```+|~~~+)")
DIRECTIVES = {"class": "doxygenclass", "struct": "doxygenstruct", "union": "doxygenunion", "function": "doxygenfunction",
              "variable": "doxygenvariable", "enum": "doxygenenum", "typedef": "doxygentypedef", "define": "doxygendefine"}


@dataclass
class Section:
    """What stands below a heading of the second level; the first has none."""

    title: str
    blocks: list[str] = field(default_factory=list)


def blocks_of(text: str) -> list[str]:
    """Paragraphs, lists, tables and fences: what blank lines separate, but not inside of fences."""
    blocks, current, fence = [], [], None
    for line in text.splitlines():
        mark = FENCE.match(line)
        if mark and fence is None:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = None
        if not line.strip() and fence is None:
            if current:
                blocks.append("\n".join(current))
            current = []
        else:
            current.append(line)
    return [*blocks, "\n".join(current)] if current else blocks


def sections_of(text: str) -> list[Section]:
    found = [Section("")]
    for block in blocks_of(text):
        if block.startswith("## "):
            title, _, rest = block.partition("\n")
            found.append(Section(title[3:].strip(), [rest] if rest.strip() else []))
        else:
            found[-1].blocks.append(block)
    return found


def gathered(blocks: list[str]) -> list[str]:
    """A code marker that stands by itself is for all paragraphs since the last marker."""
    found: list[str] = []
    since = 0
    for block in blocks:
        if re.fullmatch(r"(@@code [^@]+@@\s*)+", block):
            found[since:] = ["\n\n".join([*found[since:], block])]
            since = len(found)
        else:
            found.append(block)
            since = len(found) if "@@code " in block or block.startswith("#") else since
    return found


class Page:
    """One chapter's page as MyST Markdown."""

    def __init__(self, out: Path, chapter: Chapter, before: Chapter | None):
        self.out, self.chapter, self.before = out, chapter, before
        self.project = places.chapter_project(chapter)
        self.text = (chapter.path / "README.md").read_text(encoding="utf-8")
        for line, found in listings.problems(self.text, chapter.path, ROOT):
            raise ValueError(f"chapters/{chapter.name}/README.md:{line}: {found}")

    @property
    def title(self) -> str:
        return title_of(self.chapter)

    def render(self) -> str:
        sections = self._sections()
        parts = [self._head(), *sections.pop(0).blocks]
        parts += [*map(self._section, sections), self._api()]
        return "\n\n".join(part for part in parts if part.strip()) + "\n"

    def _sections(self) -> list[Section]:
        def table(match: re.Match) -> str:  # the links at its foot are the theme's here
            return f"```{{results}} {match[1]}\n:chapter: {self.chapter.name}\n```\n" if match[1] != "turn" else ""

        text = TABLE.sub(table, self.text)
        text = PICTURE.sub(r"```{drawing} \1\n```", listings.MARKED.sub(r"@@code \2@@", text))
        text = linked(COMMENT.sub("", text), self.chapter.path)
        return sections_of(text.partition("# ")[2].partition("\n")[2])

    def dead_ends(self) -> str:
        """Its section of what did not work, for the page that collects these."""
        section = next((s for s in self._sections() if s.title == "What did not work"), None)
        if section is None:
            return ""
        heading = f"## {self.chapter.number:02d} [{self.title}](/chapters/{self.chapter.name}.md)"
        return "\n\n".join([heading, *section.blocks])

    def _head(self) -> str:
        diff = "" if self.before is None else f" · [the diff]({self.diff_page})"
        return (f"---\nmyst:\n  html_meta:\n    description: \"minfer, chapter {self.chapter.number:02d}: {self.title}\"\n"
                f"---\n\n(chapter-{self.chapter.number:02d})=\n# {self.title}\n\n"
                f"```{{container}} eyebrow chapter\n"
                f"Chapter {self.chapter.number:02d} · {{file}}`chapters/{self.chapter.name}`{diff}\n```")

    def _section(self, section: Section) -> str:
        title = section.title
        lines = [f"## {title}"] if title else []
        if any("@@code " in block for block in section.blocks):
            lines += [self._annotated(block) for block in gathered(section.blocks)]
        elif title.lower().startswith(("reproduce", "try it")):
            lines.append(":::{container} reproduce\n" + "\n\n".join(section.blocks) + "\n:::")
        elif title.lower().startswith("exercise"):
            lines.append(":::{container} exercises\n" + "\n\n".join(section.blocks) + "\n:::")
            lines += self._solutions()
        elif title.lower().startswith("results"):
            tables = [i for i, block in enumerate(section.blocks) if block.startswith("```{results}")]
            table = tables[0] if tables else len(section.blocks) - 1
            plot = f"```{{ladder}}\n:chapter: {self.chapter.name}\n```"
            lines += [*section.blocks[:table + 1], plot, *section.blocks[table + 1:]]
        else:
            lines += section.blocks
        return "\n\n".join(lines)

    # --- Code beside the text --------------------------------------------------------------------------

    def _annotated(self, block: str) -> str:
        """A paragraph with its code beside it."""
        targets = re.findall(r"@@code ([^@]+)@@", block)
        prose = re.sub(r"@@code [^@]+@@\n?", "", block).strip("\n").rstrip()  # a block of code begins with spaces
        if not targets:
            return prose
        code = "\n\n".join(map(self._listing, targets))
        if not prose:
            return code
        return (f"::::{{container}} annotated\n:::{{container}} prose\n{prose}\n:::\n"
                f":::{{container}} code\n{code}\n:::\n::::")

    def _listing(self, target: str) -> str:
        files, names = zip(*(part.split("#") for part in target.split()))
        shown = [listings.place(ROOT, self.chapter.path, file)[1] for file in files]
        if len(shown) == 1:
            return f"```{{listing}} {shown[0]}#{names[0]}\n```"
        before, after = (file.split("/")[1] for file in shown)
        return f"```{{chapter-diff}} {before} {after}\n:definition: {Path(files[1]).name}#{names[1]}\n```"

    # --- What is added -----------------------------------------------------------------------------------

    @property
    def diff_page(self) -> str:
        return f"/chapters/{self.chapter.name}/diff.md"

    def diff(self) -> str:
        """A page of its own: what changed from the chapter before."""
        before, after = (f"[{title_of(c)}](/chapters/{c.name}.md)" for c in (self.before, self.chapter))
        return (f"---\norphan: true\nhide-toc: true\n---\n\n# {self.title}: the diff\n\n"
                f"What changed from {before} to {after}. In a terminal: `./minfer diff {self.before.number:02d} "
                f"{self.chapter.number:02d}`; tests, benchmark and README with `--all`.\n\n"
                f"```{{chapter-diff}} {self.before.name} {self.chapter.name}\n```\n")

    def _solutions(self) -> list[str]:
        """Folded; where there are any."""
        path = places.DOCS / "solutions" / f"{self.chapter.name}.md"
        if not path.exists():
            return []
        text = PATCH.sub(r"\g<0>\n\n```{listing} \1\n```", path.read_text(encoding="utf-8").strip())
        return ["::::{dropdown} Solutions\nReasoned, not measured, but where a machine is named or a command is shown with "
                "what it prints. What only a machine can answer is left to yours.\n\n"
                f"{linked(text, path.parent)}\n::::"]

    def _api(self) -> str:
        listed = [*self.chapter.files(), *(p.relative_to(self.chapter.path) for folder in PATCHES
                                           for p in sorted((self.chapter.path / folder).glob("*.patch")))]
        links = ", ".join(f"[`{path}`](/source/chapters/{self.chapter.name}/{path}.md)" for path in listed
                          if has_source_page(self.chapter.path / path))
        diff = "" if self.before is None else f" [All that changed]({self.diff_page}) from the chapter before."
        return (f"## Reference\n\n[Every kernel and class of this chapter](/chapters/{self.chapter.name}/api.md), "
                f"from the comments in its sources.{diff}\n\nThe sources whole: {links}.")


def linked(text: str, folder: Path) -> str:
    """A text of the checkout with its links as the site has them."""
    def link(match: re.Match) -> str:
        shown, target = match.groups()
        if re.match(r"[a-z]+:|#|/", target):
            return match[0]
        path = (folder / target.partition("#")[0]).resolve()
        return f"[{shown}]({site_target(path)})" if path.is_relative_to(ROOT) else shown

    return LINK.sub(link, text)


def title_of(chapter: Chapter) -> str:
    for line in (chapter.path / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line[2:].strip()
    return places.slug(chapter)


def has_source_page(path: Path) -> bool:
    return path.is_file() and path.suffix in listing.LANGUAGES


def site_target(path: Path) -> str:
    """The page that shows a file or folder of the checkout."""
    relative = path.relative_to(ROOT)
    chapter = next((c for c in places.chapters() if path in (c.path, c.path / "README.md")), None)
    if chapter:
        return f"/chapters/{chapter.name}.md"
    if path.parent == places.DOCS / "solutions":  # folded on the chapter's page
        return f"/chapters/{path.name}"
    if path.is_relative_to(places.PAGES):
        return f"/{path.relative_to(places.PAGES)}"
    if has_source_page(path):
        return f"/source/{relative}.md"
    if relative.parts[:1] in (("common",), ("oracle",)):
        return "/api/index.md"
    return "/source/index.md"


def api_page(out: Path, chapter: Chapter) -> str:
    project = places.chapter_project(chapter)
    lines = [f"---\nchapter: \"{chapter.name}\"\n---\n", f"# {title_of(chapter)}: reference\n",
             f"Chapter {chapter.number:02d}'s kernels and classes. On this site every chapter's names have a namespace of "
             f"their own, `{project.namespace}`; in the sources all of them are `minfer`.\n"]
    lines += [api_section(out, project, path) for path in project.headers()]
    return "\n".join(lines)


def api_section(out: Path, project: Project, path: Path) -> str:
    """A header's symbols, in its order."""
    offered = symbols.load(out, project).declared_in(str(path))
    names = [symbol.name for symbol in symbols.load(out, project).all if symbol.on_site]
    parts = [f"## {{file}}`{path.relative_to(project.folder)}`\n", f"[Source](/source/{path}.md)\n"]
    for symbol in offered:
        if symbol.kind in DIRECTIVES:
            arguments = symbol.arguments if symbol.kind == "function" and names.count(symbol.name) > 1 else ""
            members = ":members:\n:undoc-members:\n" if symbol.kind in symbols.CLASSES else ""
            parts.append(f"```{{{DIRECTIVES[symbol.kind]}}} {symbol.name}{arguments}\n:project: {project.name}\n{members}```\n")
    return "\n".join(parts) if len(parts) > 2 else ""
