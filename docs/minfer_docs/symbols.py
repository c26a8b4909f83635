# SPDX-License-Identifier: MIT
"""What Doxygen found: which symbols there are, and where each stands in its file."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .doxygen import xml_folder
from .places import Project

CLASSES = ("class", "struct", "union")
HIDDEN = "@"  # Doxygen's name of an unnamed namespace


@dataclass(frozen=True)
class Symbol:
    """A class, function, variable, type or macro, its lines counted from 1."""

    kind: str
    name: str  # "minfer::dp4a::GpuEngine::forward"
    arguments: str
    file: str
    first: int
    last: int
    declared: tuple[str, int]  # where a header declares it
    is_member: bool  # of a class
    on_site: bool  # it has an entry in the API pages

    @property
    def short(self) -> str:
        return self.name.rsplit("::", 1)[-1]


class Symbols:
    """The symbols of a project."""

    def __init__(self, found: list[Symbol]):
        self.all = found
        self._by_name: dict[str, list[Symbol]] = {}
        for symbol in found:
            parts = [part for part in symbol.name.split("::") if not part.startswith(HIDDEN)]
            for start in range(len(parts)):
                self._by_name.setdefault("::".join(parts[start:]), []).append(symbol)

    def named(self, name: str) -> list[Symbol]:
        """All that a name may mean, qualified as far as it is: "gemv", "Workspace::ids"."""
        return self._by_name.get(name, [])

    def declared_in(self, file: str) -> list[Symbol]:
        """What a header offers, in its order; members are shown with their class."""
        found = [symbol for symbol in self.all if symbol.declared[0] == file and symbol.on_site and not symbol.is_member]
        return sorted(found, key=lambda symbol: symbol.declared[1])


def load(out: Path, project: Project) -> Symbols:
    return _load(xml_folder(out, project), tuple(str(path) for path in project.headers()))


@cache
def _load(folder: Path, headers: tuple[str, ...]) -> Symbols:
    found: dict[str, Symbol] = {}
    index = ET.parse(folder / "index.xml").getroot()
    classes = {c.findtext("name") for c in index.iter("compound") if c.get("kind") in CLASSES}
    for path in sorted(folder.glob("*.xml")):
        if path.name in ("index.xml", "Doxyfile.xml"):
            continue
        for compound in ET.parse(path).getroot().iter("compounddef"):
            scope = compound.findtext("compoundname", "") if compound.get("kind") != "file" else ""
            is_class = compound.get("kind") in CLASSES
            if is_class:
                parent = scope.rpartition("::")[0]
                _add(found, compound, compound.get("kind"), scope, headers, parent in classes)
            for member in compound.iter("memberdef"):
                name = member.findtext("name", "")
                qualified = member.findtext("qualifiedname") or (f"{scope}::{name}" if scope else name)
                _add(found, member, member.get("kind"), qualified, headers, is_class)
    return Symbols(list(found.values()))


def _add(found: dict[str, Symbol], node: ET.Element, kind: str, name: str, headers: tuple[str, ...],
         is_member: bool) -> None:
    place = node.find("location")
    if place is None or not name or place.get("bodyfile", place.get("file")) is None:
        return
    file = place.get("bodyfile") or place.get("file")
    declared = place.get("declfile") or place.get("file"), int(place.get("declline") or place.get("line") or 0)
    first = int(place.get("bodystart") or place.get("line") or 0)
    last = int(place.get("bodyend") or -1)
    described = any("".join(node.find(tag).itertext()).strip() for tag in ("briefdescription", "detaileddescription")
                    if node.find(tag) is not None)
    # What the emulator calls as CUDA does is CUDA's to describe.
    ours = described if kind == "define" else name.startswith("minfer::")
    named = not set(HIDDEN + "<").intersection(name)
    public = ours and named and node.get("prot", "public") == "public" and declared[0] in headers
    found.setdefault(node.get("id"), Symbol(kind, name, node.findtext("argsstring") or "", file, first,
                                            max(first, last), declared, is_member, public))
