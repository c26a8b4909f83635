# SPDX-License-Identifier: MIT
"""Runs Doxygen once a project: each chapter's symbols get a namespace of their own on the way in, for
the same names stand in all of them. The sources stay as they are."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .places import DOCS, ROOT, Project, projects

# Doxygen wants every parameter of every commented function described. The project asks that of kernels
# alone: elsewhere a name and a shape in the comment say as much. Return values are part of the formula.
PARAMETERS = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+): warning: (?:The following parameters? of|return type of member) "
                        r"(?P<function>[^\n]+?) (?:is|are) not documented.*(?:\n  parameter [^\n]*)*", re.M)


class DocsError(Exception):
    """The site can't be built: one line that says why."""


def xml_folder(out: Path, project: Project) -> Path:
    return out / "doxygen" / project.name / "xml"


def doxyfile(out: Path, project: Project) -> str:
    """The committed Doxyfile and what differs from project to project."""
    files = " ".join(f'"{path}"' for path in project.files())
    settings = [
        (DOCS / "Doxyfile").read_text(encoding="utf-8"),
        f"PROJECT_NAME = {project.name}",
        f'OUTPUT_DIRECTORY = "{out / "doxygen" / project.name}"',
        f"INPUT = {files}",
    ]
    if project.renamed:
        settings.append(f"INPUT_FILTER = \"sed -e 's/^namespace minfer {{/namespace {project.namespace} {{/'\"")
    return "\n".join(settings) + "\n"


def run(out: Path, project: Project) -> list[str]:
    """Writes the project's XML; returns Doxygen's warnings."""
    xml_folder(out, project).mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(["doxygen", "-"], input=doxyfile(out, project), cwd=ROOT, capture_output=True,
                              text=True, check=False)
    except FileNotFoundError:
        raise DocsError("doxygen is not installed (1.9.2 or newer)") from None
    text = (done.stderr + done.stdout).replace(f"{ROOT}/", "")
    warnings = [line for line in text_without_allowed(text).splitlines() if line.strip()]
    if done.returncode and not warnings:
        warnings.append(f"doxygen ended with status {done.returncode}")
    return warnings


def text_without_allowed(text: str) -> str:
    """Warnings about undescribed parameters are kept where the function is a kernel."""
    return PARAMETERS.sub(lambda match: match[0] if is_kernel(match["file"], int(match["line"])) else "", text)


def is_kernel(file: str, line: int) -> bool:
    """Whether the function that the comment around `line` describes is one."""
    below = (ROOT / file).read_text(encoding="utf-8").splitlines()[line - 1:]
    code = [text for text in below if not text.lstrip().startswith(("///", "template"))]
    return bool(code) and code[0].startswith("__global__")


def run_all(out: Path) -> None:
    """All projects, two at a time. Raises DocsError with every warning."""
    with ThreadPoolExecutor(2) as pool:
        found = [line for lines in pool.map(lambda project: run(out, project), projects()) for line in lines]
    if found:
        raise DocsError("\n".join(["Doxygen's warnings:", *found]))
