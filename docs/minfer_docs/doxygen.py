# SPDX-License-Identifier: MIT
"""Runs Doxygen once a project: each chapter's symbols get a namespace of their own on the way in, for
the same names stand in all of them. The sources stay as they are."""

from __future__ import annotations

import shutil
import subprocess
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .places import DOCS, ROOT, Project, projects


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
    rename = f" -e 's/^namespace minfer {{/namespace {project.namespace} {{/'" if project.renamed else ""
    settings.append(f'INPUT_FILTER = "sed -f docs/doxygen.sed{rename}"')
    return "\n".join(settings) + "\n"


def run(out: Path, project: Project) -> list[str]:
    """Writes the project's XML anew; returns Doxygen's warnings."""
    shutil.rmtree(xml_folder(out, project), ignore_errors=True)  # what is no longer there has no XML
    xml_folder(out, project).mkdir(parents=True)
    try:
        done = subprocess.run(["doxygen", "-"], input=doxyfile(out, project), cwd=ROOT, capture_output=True,
                              text=True, check=False)
    except FileNotFoundError:
        raise DocsError("doxygen is not installed (1.9.4 or newer)") from None
    text = (done.stderr + done.stdout).replace(f"{ROOT}/", "")
    warnings = [line for line in text.splitlines() if line.strip()]
    if done.returncode:
        return warnings or [f"doxygen ended with status {done.returncode}"]
    return [*warnings, *undescribed_pointers(out, project)]


def undescribed_pointers(out: Path, project: Project) -> list[str]:
    """A kernel's pointers each have a comment beside them, with the shape of what they point to."""
    found = []
    for path in sorted(xml_folder(out, project).glob("*.xml")):
        for member in ET.parse(path).getroot().iter("memberdef"):
            if "__global__" not in text_of(member, "type"):
                continue
            place = member.find("location")
            found += [f"{place.get('file')}:{place.get('line')}: {member.findtext('name')}: found no shape beside "
                      f"{parameter.findtext('declname')}, expected a comment such as ///< [M, K]"
                      for parameter in member.iter("param")
                      if "*" in text_of(parameter, "type") and "[" not in text_of(parameter, "briefdescription")]
    return list(dict.fromkeys(found))  # a file's symbols stand in its own XML and in their namespace's


def text_of(node: ET.Element, tag: str) -> str:
    child = node.find(tag)
    return "" if child is None else "".join(child.itertext())


def run_all(out: Path) -> None:
    """All projects, two at a time. Raises DocsError with every warning."""
    with ThreadPoolExecutor(2) as pool:
        found = [line for lines in pool.map(lambda project: run(out, project), projects()) for line in lines]
    if found:
        raise DocsError("\n".join(["Doxygen's warnings:", *found]))
