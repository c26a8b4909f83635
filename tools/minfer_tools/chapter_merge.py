# SPDX-License-Identifier: MIT
"""Three-way merges of whole chapters, in memory, and the journal that makes a run undoable."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .chapter_tree import OWN_FOLDERS, Chapter, git
from .errors import Failure
from .whole_file import replacing


@dataclass(frozen=True)
class Entry:
    """A file's content and whether it is executable."""

    data: bytes
    executable: bool = False


#: A chapter's files by their path inside the chapter, without what it owns alone.
Tree = dict[str, Entry]


@dataclass(frozen=True)
class Conflict:
    """A file that a person has to decide about."""

    file: str
    reason: str


# --- Reading a chapter -------------------------------------------------------------------------------


def edited_tree(root: Path, chapter: Chapter) -> Tree:
    """The chapter as it lies in the working tree, what git ignores left out."""
    prefix = f"chapters/{chapter.name}/"
    listed = git(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", prefix], root)
    tree = {}
    for path in filter(None, listed.decode().split("\0")):
        file = root / path
        if _is_shared(path[len(prefix):]) and file.is_file():  # a deleted file is still in the index
            tree[path[len(prefix):]] = Entry(file.read_bytes(), os.access(file, os.X_OK))
    return tree


def committed_tree(root: Path, chapter: Chapter, revision: str) -> Tree | None:
    """The chapter of that number as REVISION has it, under whatever slug; None if it is not there."""
    folders = git(["ls-tree", "-d", "-z", "--name-only", revision, "--", "chapters/"], root).decode().split("\0")
    prefix = next((f + "/" for f in folders if f.startswith(f"chapters/{chapter.number:02d}-")), None)
    if prefix is None:
        return None
    tree = {}
    for line in filter(None, git(["ls-tree", "-r", "-z", revision, "--", prefix], root).decode().split("\0")):
        mode, kind, blob, path = re.split(r"[ \t]", line, maxsplit=3)
        if kind == "blob" and _is_shared(path[len(prefix):]):
            tree[path[len(prefix):]] = Entry(git(["cat-file", "blob", blob], root), mode == "100755")
    return tree


def _is_shared(file: str) -> bool:
    return file.split("/", 1)[0] not in OWN_FOLDERS


# --- Merging -----------------------------------------------------------------------------------------


def carry(old: Tree, new: Tree, ours: Tree, label: str) -> tuple[Tree, list[str], list[Conflict]]:
    """Does to the chapter `ours` what was done from `old` to `new`.

    Returns the merged chapter, a line for each file that was touched or left out, and the conflicts.
    """
    merged, notes, conflicts = dict(ours), [], []
    renames = _renames(old, new)
    for file in sorted(old.keys() | new.keys()):
        if file in renames.values() or old.get(file) == new.get(file):
            continue
        target = renames.get(file, file)
        note, conflict = _carry_file(old.get(file), new.get(target), merged, file, target, label)
        if note:
            notes.append(f"{target}: {note}")
        if conflict:
            conflicts.append(Conflict(target, conflict))
    return merged, notes, conflicts


def _carry_file(base: Entry | None, theirs: Entry | None, tree: Tree, file: str, target: str,
                label: str) -> tuple[str, str]:
    """One file's part of carry(): changes `tree`, returns a note and a conflict's reason ("" if none)."""
    if file != target and file in tree and target in tree:
        return "", f"the fix renames {file} to it, and both are here"
    ours = tree.get(file, tree.get(target))
    if base is not None and ours is None:
        return "not in this chapter, left out" if theirs is not None else "", ""
    if theirs is None:
        if base is not None and ours.data != base.data:
            return "", "the fix deletes it, and this chapter has changed it"
        del tree[file]
        return "deleted", ""
    if ours is None:
        # A new file. Its tables, if it has any, are the fixed chapter's.
        tree[target] = Entry(_blank_tables(theirs.data), theirs.executable) if _is_readme(target) else theirs
        return "new", ""
    entry, note, conflict = _merge(base, ours, theirs, target, label)
    renamed = file != target and file in tree
    if renamed:
        del tree[file]
    tree[target] = entry
    if note == "" and conflict == "" and (renamed or entry != ours):
        note = f"renamed from {file}" if renamed else "merged"
    return note, conflict


def _merge(base: Entry | None, ours: Entry, theirs: Entry, file: str, label: str) -> tuple[Entry, str, str]:
    """Merges one file that is in all three chapters (or new in two: then `base` is None)."""
    start = base or Entry(b"", ours.executable)
    executable = theirs.executable if theirs.executable != start.executable else ours.executable
    if base is None and ours.data == theirs.data:
        return Entry(ours.data, executable), "", ""
    if _is_readme(file):
        data, left_out = _merge_readme(start.data, ours.data, theirs.data, label)
        note = f"left out {_count(left_out, 'change')} to words of its own" if left_out else ""
        return Entry(data, executable), note, ""
    data, conflicts = _merge_text(start.data, ours.data, theirs.data, label)
    reason = "" if conflicts == 0 else "binary" if conflicts is None else f"{_count(conflicts, 'place')} to resolve"
    return Entry(data, executable), "", reason


def _merge_text(base: bytes, ours: bytes, theirs: bytes, label: str, *options: str) -> tuple[bytes, int | None]:
    """git's merge-file: the merged text and the number of conflicts, or ours and None for a binary file."""
    if base == theirs or ours == theirs:
        return ours, 0
    if base == ours:
        return theirs, 0
    with tempfile.TemporaryDirectory(prefix="minfer-merge-") as folder:
        paths = [Path(folder) / name for name in ("ours", "base", "theirs")]
        for path, data in zip(paths, (ours, base, theirs)):
            path.write_bytes(data)
        labels = [part for text in (label, "before the fix", "fixed") for part in ("-L", text)]
        done = subprocess.run(["git", "merge-file", "-p", "--quiet", "--diff3", *options, *labels, *map(str, paths)],
                              capture_output=True, check=False)
    if done.returncode >= 128:
        return ours, None
    return done.stdout, done.returncode


# --- README.md ---------------------------------------------------------------------------------------

_TABLE = re.compile(rb"(<!-- table: ([^>\n]*?) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)


def _is_readme(file: str) -> bool:
    return file == "README.md"


def _blank_tables(text: bytes) -> bytes:
    return _TABLE.sub(rb"\1\4", text)


def _merge_readme(base: bytes, ours: bytes, theirs: bytes, label: str) -> tuple[bytes, int]:
    """Merges the prose that chapters share; tables stay ours, and so does prose that differs.

    Returns the text, and how many changes were left out because the chapter says it otherwise.
    """
    tables = {match[2]: match[3] for match in _TABLE.finditer(ours)}
    texts = [_blank_tables(text) for text in (base, ours, theirs)]
    _, conflicts = _merge_text(*texts, label)
    if conflicts is None:
        return ours, 1
    merged, _ = _merge_text(*texts, label, "--ours")
    return _TABLE.sub(lambda m: m[1] + tables.get(m[2], b"") + m[4], merged), conflicts


def _renames(old: Tree, new: Tree) -> dict[str, str]:
    """Which file that went became which that came: the pair at least half alike, best first."""
    gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    scores = sorted(((_likeness(old[a].data, new[b].data), a, b) for a in gone for b in come), reverse=True)
    renames: dict[str, str] = {}
    for score, a, b in scores:
        if score >= 0.5 and a not in renames and b not in renames.values():
            renames[a] = b
    return renames


def _likeness(a: bytes, b: bytes) -> float:
    return difflib.SequenceMatcher(None, a.splitlines(), b.splitlines(), autojunk=False).ratio()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


# --- Writing -----------------------------------------------------------------------------------------


class Journal:
    """What a run has replaced, kept in git's own folder until the run is done or undone.

    A file's former content is saved before the file is replaced, so that restore() can undo a run
    that a conflict, or the machine, stopped at any point.
    """

    def __init__(self, root: Path):
        self._root = root
        folder = git(["rev-parse", "--git-path", "minfer-propagate"], root).decode().strip()
        self._folder = root / folder
        self._state = self._folder / "state.json"

    def exists(self) -> bool:
        return self._state.is_file()

    def write(self, chapter: Chapter, before: Tree, after: Tree, rest: list[Chapter], stopped: bool) -> None:
        """Makes the chapter's files in the working tree, which are `before`, those of `after`."""
        state = self._load() if self.exists() else {"saved": [], "created": []}
        changed = sorted(f for f in before.keys() | after.keys() if before.get(f) != after.get(f))
        known = {s["path"] for s in state["saved"]} | set(state["created"])
        for file in changed:
            path = f"chapters/{chapter.name}/{file}"
            if path in known:
                continue  # the content before the whole run is saved already
            if file in before:
                copy = f"{len(state['saved'])}"
                _replace(self._folder / copy, before[file])
                state["saved"].append({"path": path, "copy": copy, "executable": before[file].executable})
            else:
                state["created"].append(path)
        state["stopped"] = chapter.number if stopped else None
        state["rest"] = [c.number for c in rest]
        if stopped:
            state["old"] = self._save_tree(before)
        _replace(self._state, Entry(json.dumps(state, indent=1).encode()))
        for file in changed:
            path = chapter.path / file
            if file in after:
                _replace(path, after[file])
            else:
                path.unlink()
                if not any(path.parent.iterdir()):
                    path.parent.rmdir()

    def stopped_at(self, chapters: list[Chapter]) -> tuple[Chapter, list[Chapter], Tree]:
        """The chapter with the conflict, those after it, and what the former was before the run."""
        if not self.exists():
            raise Failure("no run has stopped at a conflict; nothing to continue")
        state = self._load()
        if state["stopped"] is None:
            raise Failure("the last run was cut off: --abort it, then run it again")
        by_number = {c.number: c for c in chapters}
        old = {s["file"]: Entry((self._folder / s["copy"]).read_bytes(), s["executable"]) for s in state["old"]}
        return by_number[state["stopped"]], [by_number[n] for n in state["rest"]], old

    def restore(self) -> int:
        """Puts back every file that the run has replaced; returns how many there were."""
        if not self.exists():
            raise Failure("no run has stopped at a conflict; nothing to undo")
        state = self._load()
        for saved in state["saved"]:
            data = (self._folder / saved["copy"]).read_bytes()
            _replace(self._root / saved["path"], Entry(data, saved["executable"]))
        for path in state["created"]:
            (self._root / path).unlink(missing_ok=True)
        self.forget()
        return len(state["saved"]) + len(state["created"])

    def forget(self) -> None:
        if self._folder.is_dir():
            self._state.unlink(missing_ok=True)
            shutil.rmtree(self._folder)

    def _load(self) -> dict:
        return json.loads(self._state.read_text())

    def _save_tree(self, tree: Tree) -> list[dict]:
        saved = []
        for number, (file, entry) in enumerate(sorted(tree.items())):
            copy = f"old-{number}"
            _replace(self._folder / copy, entry)
            saved.append({"file": file, "copy": copy, "executable": entry.executable})
        return saved


def _replace(path: Path, entry: Entry) -> None:
    """Writes the file beside its place and renames it there: it is the old one or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    mode = mode | (mode & 0o444) >> 2 if entry.executable else mode & ~0o111
    with replacing(path) as file:
        file.write(entry.data)
        os.fchmod(file.fileno(), mode)
