# SPDX-License-Identifier: MIT
"""A chapter's page out of its README: the same text, with code beside the walk-through, a plot, links to the API, to
the diff from the chapter before and to the sources. Nothing here knows any chapter by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from minfer_tools.chapter_tree import Chapter

from . import drawings, listing, places, symbols
from .places import ROOT, Project

# `<!-- code: gemv.cuh#gemv_q4_0 -->` right below a paragraph of a README asks for that code beside it; after a
# blank line, beside all paragraphs since the last such marker.
CODE = re.compile(r"<!-- code: (\S+) -->\n?")
COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
TABLE = re.compile(r"<!-- table: ([^>\n]*?) -->\n(.*?)<!-- /table -->\n", re.S)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```+|~~~+)")
LONGEST_LISTING = 64
DIRECTIVES = {"class": "doxygenclass", "struct": "doxygenstruct", "union": "doxygenunion", "function": "doxygenfunction",
              "variable": "doxygenvariable", "enum": "doxygenenum", "typedef": "doxygentypedef", "define": "doxygendefine"}
# What is mentioned in passing far more often than it is spoken of.
DULL = re.compile(r"launch_\w+|engine_info|make_engine|main")


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
        if re.fullmatch(r"(@@code \S+@@\s*)+", block):
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
        self._shown: set[str] = set()

    @property
    def title(self) -> str:
        return title_of(self.chapter)

    def render(self) -> str:
        sections = self._sections()
        parts = [self._head(), *sections.pop(0).blocks, self._contents([s.title for s in sections])]
        last_walk = len(parts)
        for section in sections:
            parts.append(self._section(section))
            if section.title.lower().startswith("walk-through"):
                last_walk = len(parts)
        parts.insert(last_walk, self._rest_of_the_code())
        parts.append(self._api())
        return "\n\n".join(part for part in parts if part.strip()) + "\n"

    def _sections(self) -> list[Section]:
        text = TABLE.sub(lambda m: f"```{{results}} {m[1]}\n:chapter: {self.chapter.name}\n```\n", self.text)
        text = CODE.sub(r"@@code \1@@\n", text)
        text = LINK.sub(self._link, COMMENT.sub("", text))
        return sections_of(text.partition("# ")[2].partition("\n")[2])

    def dead_ends(self) -> str:
        """Its section of what did not work, for the page that collects these."""
        section = next((s for s in self._sections() if s.title == "What did not work"), None)
        if section is None:
            return ""
        heading = f"## {self.chapter.number:02d} [{self.title}](/chapters/{self.chapter.name}.md)"
        return "\n\n".join([heading, *section.blocks])

    def _head(self) -> str:
        return (f"---\nmyst:\n  html_meta:\n    description: \"minfer, chapter {self.chapter.number:02d}: {self.title}\"\n"
                f"hide-toc: true\n---\n\n(chapter-{self.chapter.number:02d})=\n"
                f"# {self.title}\n\n"
                f"```{{container}} eyebrow\nChapter {self.chapter.number:02d} · {{file}}`chapters/{self.chapter.name}`\n```")

    def _contents(self, titles: list[str]) -> str:
        """The page's sections, in a line: the place of the usual column is the code's here."""
        shown = [f"- [{title}](#{anchor(title)})" for title in [*titles, "Reference"]]
        if self.before is not None:
            shown.append(f"- [The diff]({self.diff_page})")
        return ":::{container} chapter-nav\n" + "\n".join(shown) + "\n:::"

    def _drawings_of(self, walk_through: Section) -> list[str]:
        """A walk-through has the chapter's picture of its place, the last one all that are left."""
        names = drawings.OF_CHAPTER.get(places.slug(self.chapter), ())
        titles = [s.title for s in self._sections() if s.title.lower().startswith("walk-through")]
        at = titles.index(walk_through.title)
        return list(names[at:] if len(titles) == at + 1 else names[at:at + 1])

    def _section(self, section: Section) -> str:
        title = section.title
        lines = [f"## {title}"] if title else []
        if title.lower().startswith("walk-through"):
            lines += [f"```{{drawing}} {name}\n```" for name in self._drawings_of(section)]
            lines += [self._annotated(block) for block in gathered(section.blocks)]
        elif title.lower().startswith("reproduce"):
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
        return "\n\n".join(line.replace("@@code ", "").strip() if line.startswith("@@code") else line for line in lines)

    # --- Code beside the text --------------------------------------------------------------------------

    def _annotated(self, block: str) -> str:
        asked = re.findall(r"@@code (\S+)@@", block)
        prose = re.sub(r"@@code \S+@@\n?", "", block).strip("\n").rstrip()  # a block of code begins with spaces
        targets = [self._own(target) for target in asked] or self._spoken_of(prose)
        self._shown.update(self._name_of(target) for target in asked)
        if not targets:
            return prose
        code = "\n\n".join(f"```{{listing}} {target}\n```" for target in targets)
        if not prose:
            return code
        return (f"::::{{container}} annotated\n:::{{container}} prose\n{prose}\n:::\n"
                f":::{{container}} code\n{code}\n:::\n::::")

    def _name_of(self, target: str) -> str:
        return f"{self.project.namespace}::{target.partition('#')[2]}"

    def _own(self, target: str) -> str:
        """A README names its own files shortly."""
        file = target.partition("#")[0]
        return f"chapters/{self.chapter.name}/{target}" if (self.chapter.path / file).exists() else target

    def _spoken_of(self, prose: str) -> list[str]:
        """The definitions, at most two, that a paragraph of a walk-through speaks of for the first time."""
        if not prose or FENCE.match(prose) or prose.startswith("|"):
            return []
        return self._definitions(prose, 2)

    def _definitions(self, prose: str, at_most: int) -> list[str]:
        found = []
        for name in re.findall(r"`([A-Za-z_][\w:]*)(?:\(\))?`", prose):
            symbol = None if DULL.fullmatch(name) else self._definition(name)
            if symbol and symbol.name not in self._shown and len(found) < at_most:
                self._shown.add(symbol.name)
                found.append(f"{symbol.file}#{short_name(symbol)}")
        return found

    def _rest_of_the_code(self) -> str:
        """What the table of changes names and no paragraph has shown yet."""
        table = re.search(r"^## What changed\n(.*?)(?=^## )", self.text, re.S | re.M)
        targets = self._definitions(table[1], 8) if table and self._projects()[0].headers() else []
        if not targets:
            return ""
        return "### The code\n\n" + "\n\n".join(f"```{{listing}} {target}\n```" for target in targets)

    def _definition(self, name: str) -> symbols.Symbol | None:
        """Of the chapter itself; of the oracle where the chapter has no kernels of its own."""
        for project in self._projects():
            for symbol in symbols.load(self.out, project).named(name):
                first, last = symbols.extent(symbol)
                if (symbol.kind in ("function", *symbols.CLASSES) and 3 < last - first + 1 <= LONGEST_LISTING
                        and name[0] != "~" and is_definition(symbol)):
                    return symbol
        return None

    def _projects(self) -> list[Project]:
        has_kernels = any(path.suffix in (".cu", ".cuh") for path in self.project.files())
        return [self.project] if has_kernels else [self.project, *reversed(places.shared_projects())]

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
        return [":::{dropdown} Solutions\nReasoned, not measured, but where a machine is named. What only a machine can answer "
                f"is left to yours.\n\n{path.read_text(encoding='utf-8').strip()}\n:::"]

    def _api(self) -> str:
        listed = [*self.chapter.files(), *sorted(p.relative_to(self.chapter.path)
                                                for p in (self.chapter.path / "dead-ends").glob("*.patch"))]
        links = ", ".join(f"[`{path}`](/source/chapters/{self.chapter.name}/{path}.md)" for path in listed
                          if has_source_page(self.chapter.path / path))
        diff = "" if self.before is None else f" [All that changed]({self.diff_page}) from the chapter before."
        return (f"## Reference\n\n[Every kernel and class of this chapter](/chapters/{self.chapter.name}/api.md), "
                f"from the comments in its sources.{diff}\n\nThe sources whole: {links}.")

    # --- Links -----------------------------------------------------------------------------------------------

    def _link(self, match: re.Match) -> str:
        text, target = match.groups()
        if re.match(r"[a-z]+:|#|/", target):
            return match[0]
        path = (self.chapter.path / target.partition("#")[0]).resolve()
        return f"[{text}]({site_target(path)})" if path.is_relative_to(ROOT) else text


def short_name(symbol: symbols.Symbol) -> str:
    parts = [part for part in symbol.name.split("::") if not part.startswith(symbols.HIDDEN)]
    return "::".join(parts[-2:]) if len(parts) > 1 and parts[-2][:1].isupper() else parts[-1]


def is_definition(symbol: symbols.Symbol) -> bool:
    return symbol.last > symbol.first or "{" in symbols.text_lines(symbol.file)[symbol.first - 1]


def anchor(title: str) -> str:
    """The heading's anchor, as MyST makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


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
