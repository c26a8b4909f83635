# SPDX-License-Identifier: MIT
"""Puts the site's source folder together: the written pages, and those that come out of the checkout."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from . import chapter_page, places
from .places import DOCS, PAGES, ROOT

# The pages of common/ and oracle/: project, title, folder.
API = (
    ("common", "The words that all parts share", "common/minfer"),
    ("common", "A GGUF file and what is in it", "common/minfer/gguf"),
    ("common", "Vocabulary, tokenizer, chat template", "common/minfer/text"),
    ("common", "The command line and what it runs", "common/minfer/program"),
    ("common", "CUDA: launching, buffers, graphs, PTX", "common/cuda"),
    ("common", "The emulator", "common/cuda/emulator"),
    ("common", "The lab", "common/cuda/emulator/lab"),
    ("oracle", "The oracle", "oracle"),
)

# Texts of the project that pages take sections from: `<!-- readme: Platforms -->`.
TEXTS = {"readme": "README.md", "contributing": "CONTRIBUTING.md", "cuda-readme": "common/cuda/README.md"}


def assemble(out: Path) -> Path:
    """Writes the source folder anew; returns it. Files that did not change keep their time."""
    target = out / "source"
    wanted: dict[str, str] = {}
    for path in PAGES.rglob("*.md"):
        wanted[str(path.relative_to(PAGES))] = filled(path.read_text(encoding="utf-8"), out)
    wanted |= chapter_pages(out) | api_pages(out) | source_pages()
    for name, text in wanted.items():
        path = target / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in list(target.rglob("*.md")):
        if str(path.relative_to(target)) not in wanted:
            path.unlink()
    shutil.rmtree(target / "_static", ignore_errors=True)
    shutil.copytree(DOCS / "_static", target / "_static")
    return target


def filled(page: str, out: Path) -> str:
    """A written page with what it takes from the project's own texts in place."""
    def section(match: re.Match) -> str:
        file = TEXTS[match[1]]
        sections = chapter_page.sections_of((ROOT / file).read_text(encoding="utf-8"))
        found = next((s for s in sections if s.title == match[2]), None)
        if found is None:
            raise ValueError(f"{file}: found no section {match[2]!r}, which a page of the site takes from it")
        return chapter_page.linked("\n\n".join(found.blocks), (ROOT / file).parent)

    page = re.sub(rf"<!-- ({'|'.join(TEXTS)}): ([^>]+?) -->", section, page)
    return page.replace("<!-- dead-ends -->", "\n\n".join(
        text for text in (chapter_page.Page(out, chapter, None).dead_ends() for chapter in places.chapters()) if text))


def chapter_pages(out: Path) -> dict[str, str]:
    chapters = places.chapters()
    pages = {}
    for before, chapter in zip([None, *chapters], chapters):
        # The first chapter of an engine has nothing to be compared with.
        changed = before if before is not None and before.on_gpu and chapter.on_gpu else None
        page = chapter_page.Page(out, chapter, changed)
        pages[f"chapters/{chapter.name}.md"] = page.render()
        pages[f"chapters/{chapter.name}/api.md"] = chapter_page.api_page(out, chapter)
        if page.before is not None:
            pages[f"chapters/{chapter.name}/diff.md"] = page.diff()
    entries = [f"{c.number:02d} {chapter_page.title_of(c)} <{c.name}>" for c in chapters]
    pages["chapters/index.md"] = ("---\nhide-toc: true\n---\n\n# The chapters\n\n```{chapter-list}\n```\n"
                                  + toctree(entries, hidden=True))
    return pages


def toctree(entries: list[str], hidden: bool = False) -> str:
    return "\n```{toctree}\n" + (":hidden:\n" if hidden else "") + "\n" + "\n".join(entries) + "\n```\n"


def api_pages(out: Path) -> dict[str, str]:
    projects = {project.name: project for project in places.shared_projects()}
    pages, entries = {}, []
    for name, title, folder in API:
        headers = [path for path in projects[name].headers() if str(path.parent) == folder]
        page = folder.replace("/", "-")
        body = "\n".join(chapter_page.api_section(out, projects[name], path) for path in headers)
        pages[f"api/{page}.md"] = f"# {title}\n\nThe headers of {{file}}`{folder}`.\n\n{body}"
        entries.append(page)
    chapters = [f"{c.number:02d} {chapter_page.title_of(c)} </chapters/{c.name}/api>" for c in places.chapters()]
    pages["api/index.md"] = (
        "# Reference\n\nEvery public class and function of what the chapters share, from the comments in the sources.\n"
        + toctree(entries) + "\nEach chapter has a reference of its own:\n\n" + toctree(chapters))
    return pages


def source_files() -> list[Path]:
    """Every file that has a page of its own, relative to the checkout."""
    found = []
    for project in places.projects():
        folder = ROOT / project.folder
        found += [path.relative_to(ROOT) for path in sorted(folder.rglob("*"))
                  if chapter_page.has_source_page(path) and not places.is_scratch(path.relative_to(folder))]
    return found


def source_pages() -> dict[str, str]:
    pages = {}
    files = source_files()
    for path in files:
        pages[f"source/{path}.md"] = (f"---\norphan: true\nnosearch: true\n---\n\n# {{file}}`{path}`\n\n"
                                      f"```{{listing}} {path}\n:lines:\n```\n")
    folders: dict[str, list[Path]] = {}
    for path in files:
        folders.setdefault(str(path.parent), []).append(path)
    body = "\n\n".join(f"## {{file}}`{folder}`\n\n" + "\n".join(f"- [`{p.name}`](/source/{p}.md)" for p in paths)
                       for folder, paths in sorted(folders.items()))
    pages["source/index.md"] = ("---\nnosearch: true\n---\n\n# The sources\n\nEvery file of the chapters, of `common/` and of "
                                f"`oracle/`, as it is compiled.\n\n{body}\n")
    return pages
