#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Carries a fix from the chapter where it was made through all later chapters.

    tools/propagate.py [--from NN] [--to NN] [--since REV] [--dry-run]
    tools/propagate.py --continue | --abort

Every chapter is a whole snapshot, so a fix in one has to reach all that follow. Git merges it three ways into
the next chapter: the base is the chapter before the fix, ours the next chapter, theirs the fixed one. What that
did to the next chapter is then what the one after it gets, and so on in numeric order: each merge bridges only
one chapter's idea.

The fix is what is not yet committed in the one chapter that has changed, or what changed in it since
REV. A conflict ends the run after the chapter it is in; its files keep conflict markers, which are
edited by hand before --continue. --abort puts back every file as it was before the run.

Left alone: results/, patches, the generated tables and code in README.md, and what else README.md says in
words of its own (only the parts that both chapters share are merged). Chapter 00 is no engine and
takes no part.

examples:
  tools/propagate.py --dry-run          what would happen to the uncommitted fix
  tools/propagate.py --since HEAD~1     the fix was committed already
  tools/propagate.py --from 03 --to 07  only chapters 04 to 07
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from minfer_tools.chapter_tree import OWN_FOLDERS, REPOSITORY, Chapter, find_chapters, resolve
from minfer_tools.command_line import Parser, tool
from minfer_tools.errors import Failure
from minfer_tools.whole_file import replace_text

#: Merges a README: tables and code stay as this chapter has them, and so do words that both sides have changed; how many
#: places those are is left beside the work tree.
README_DRIVER = (r"sed -i '/^<!-- \(table\|code\): /,/^<!-- .\(table\|code\) -->/{//!d}' %O %B;"
                 " git merge-file -p -q %A %O %B >../merged; echo $? >../left_out; git merge-file -q --ours %A %O %B")


class Git:
    """Git on the repository at `root`, with an index and a work tree of its own: the person's index is not touched."""

    def __init__(self, root: Path, folder: Path):
        self.root, self.tree, self.folder = root, folder / "tree", folder
        self.tree.mkdir()
        self._own = {"GIT_DIR": self("rev-parse", "--absolute-git-dir"), "GIT_INDEX_FILE": os.fspath(folder / "index"),
                     "GIT_WORK_TREE": os.fspath(self.tree)}
        (folder / "attributes").write_text("/README.md merge=readme\n")

    def __call__(self, *words: str, allow: tuple[int, ...] = (0,), **variables: str) -> str:
        """What `git WORDS` prints; an exit status outside `allow` is a Failure."""
        where = Path(variables["GIT_WORK_TREE"]) if "GIT_WORK_TREE" in variables else self.root
        try:
            done = subprocess.run(["git", *words], cwd=where, env={**os.environ, **variables}, capture_output=True, text=True)
        except FileNotFoundError:
            raise Failure("git is not installed; expected it on PATH") from None
        if done.returncode not in allow:
            said = done.stderr.strip().splitlines() or ["no message"]
            raise Failure(f"git {words[0]}: {said[-1]}")
        return done.stdout.strip("\n")

    def own(self, *words: str, **options) -> str:
        return self(*words, **{**self._own, **options})

    def snapshot(self) -> str:
        """The tree of the whole repository with chapters/ as it lies there, what git ignores left out."""
        here = {"GIT_WORK_TREE": os.fspath(self.root)}
        self.own("read-tree", "HEAD")
        self.own("add", "-A", "--", "chapters", **here)
        return self.own("write-tree")

    def chapter(self, tree: str, number: int) -> str | None:
        """The tree of the chapter of that number, under whatever slug, without what it owns alone."""
        folders = self("ls-tree", "-d", "--name-only", tree, "--", "chapters/").splitlines()
        folder = next((f for f in folders if f.startswith(f"chapters/{number:02d}-")), None)
        if folder is None:
            return None
        self.own("read-tree", f"{tree}:{folder}")
        self.own("rm", "-r", "-q", "--cached", "--ignore-unmatch", "--", *OWN_FOLDERS)
        return self.own("write-tree")

    def changes(self, a: str, b: str, renames: str = "--no-renames") -> list[tuple[str, list[str]]]:
        """(letter, paths) for each file that differs: M, A, D, or with "-M" R and the old and the new name."""
        fields = self("diff-tree", "-r", "-z", renames, "--name-status", a, b).split("\0")
        found = []
        while len(fields) > 1:
            count = 2 if fields[0][0] == "R" else 1
            found.append((fields[0][0], fields[1:1 + count]))
            fields = fields[1 + count:]
        return found

    def merge(self, base: str, ours: str, theirs: str, label: str) -> tuple[str, list[str], dict[str, str]]:
        """Does to `ours` what was done from `base` to `theirs`: the tree (which lies in self.tree, markers and all), notes,
        and why each file with a conflict has one."""
        shutil.rmtree(self.tree)
        self.tree.mkdir()
        self.own("read-tree", ours)
        self.own("checkout-index", "-a", "-u")
        (self.folder / "left_out").unlink(missing_ok=True)
        self.own("-c", "merge.conflictStyle=diff3", "-c", f"core.attributesFile={self.folder / 'attributes'}",
                 "-c", f"merge.readme.driver={README_DRIVER}", "merge-recursive", base, "--", ours, theirs, allow=(0, 1),
                 **{f"GITHEAD_{ours}": label, f"GITHEAD_{theirs}": "fixed"})
        stages: dict[str, str] = {}
        for line in filter(None, self.own("ls-files", "-u", "-z").split("\0")):
            state, path = line.split("\t", 1)
            stages[path] = stages.get(path, "") + state[-1]
        notes, conflicts = [], {}
        for path, found in stages.items():
            if found == "13":
                (self.tree / path).unlink()
                notes.append(f"{path}: not in this chapter, left out")
            elif found == "12":
                conflicts[path] = "the fix deletes it, and this chapter has changed it"
            else:
                lines = (self.tree / path).read_bytes().split(b"\n") if (self.tree / path).is_file() else []
                places = sum(line.startswith(b"<<<<<<< ") for line in lines)
                conflicts[path] = f"{_count(places, 'place')} to resolve" if places else "binary"
        self.own("add", "-A")
        merged = self.own("write-tree")
        for letter, paths in self.changes(ours, merged, "-M"):
            if paths[-1] not in conflicts:
                what = {"A": "new", "D": "deleted", "R": f"renamed from {paths[0]}"}.get(letter, "merged")
                notes.append(f"{paths[-1]}: {what}")
        left_out = self.folder / "left_out"
        if left_out.exists() and (places := int(left_out.read_text())):
            notes.append(f"README.md: left out {_count(places, 'change')} to words of its own")
        return merged, sorted(notes), conflicts


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


class Run:
    """A run's state, kept in git's own folder until it is done or undone: the snapshot from before it, the chapters that it
    has written (a cut-off run's last one perhaps in part), where it stopped, and what is still to come."""

    def __init__(self, git: Git):
        self.git = git
        self.path = git.root / git("rev-parse", "--git-path", "minfer-propagate.json")
        self.state = json.loads(self.path.read_text()) if self.path.exists() else None

    def save(self, **changes) -> None:
        self.state = {**(self.state or {"written": []}), **changes}
        replace_text(self.path, json.dumps(self.state))

    def write(self, chapter: Chapter, before: str, after: str) -> None:
        """Makes the chapter's files, which are those of `before`, those of `after`, which lie in git.tree."""
        self.save(written=[*self.state["written"], chapter.name], stopped=None)
        for letter, (file,) in self.git.changes(before, after):
            if letter == "D":
                _remove(chapter.path / file)
            else:
                (chapter.path / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.git.tree / file, chapter.path / file)

    def undo(self) -> int:
        """Puts back every file that the run has changed; returns how many there were."""
        if self.state is None:
            raise Failure("no run has stopped at a conflict; nothing to undo")
        changed = [(letter, path) for letter, (path,) in self.git.changes(self.state["before"], self.git.snapshot())
                   if path.split("/")[1] in self.state["written"] and path.split("/")[2] not in OWN_FOLDERS]
        for letter, path in changed:
            if letter == "A":
                _remove(self.git.root / path)
        if old := [path for letter, path in changed if letter != "A"]:
            self.git("restore", "--worktree", f"--source={self.state['before']}", "--", *old)
        self.path.unlink()
        return len(changed)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    if path.parent.is_dir() and not any(path.parent.iterdir()):
        path.parent.rmdir()


def refuse_markers(chapter: Chapter) -> None:
    """A chapter with conflict markers in it is not a fix."""
    for file in chapter.files():
        for number, line in enumerate((chapter.path / file).read_bytes().split(b"\n"), 1):
            if line.startswith((b"<<<<<<< ", b">>>>>>> ")):
                raise Failure(f"{chapter.path / file}:{number}: a conflict marker; expected the conflict resolved")


def run_chain(git: Git, chain: list[Chapter], now: str, old: str, new: str, run: Run | None) -> int:
    """Merges old -> new into each chapter of `chain`, whose trees are in `now`; returns the exit status. Without a run
    nothing is written."""
    for position, chapter in enumerate(chain):
        before = git.chapter(now, chapter.number)
        after, notes, conflicts = git.merge(old, before, new, chapter.name)
        for note in notes:
            print(f"{chapter.name}/{note}")
        if run is not None:
            run.write(chapter, before, after)
        if conflicts:
            for file, reason in conflicts.items():
                print(f"{chapter.name}/{file}: conflict: {reason}", file=sys.stderr)
            hint = "would stop there" if run is None else "resolve it, then --continue; or --abort"
            print(f"propagate: stopped at {chapter.name}: {hint}", file=sys.stderr)
            if run is not None:
                run.save(stopped=chapter.number, rest=[c.number for c in chain[position + 1:]])
            return 1
        if before == after:
            print(f"{chapter.name}: unchanged" + (", so are those after it" if position + 1 < len(chain) else ""))
            break
        old, new = before, after
    if run is not None:
        run.path.unlink(missing_ok=True)
    return 0


def choose_source(git: Git, chapters: list[Chapter], name: str | None, since: str, now: str) -> Chapter:
    """The chapter that the fix was made in: the one named, or the only one that has changed."""
    if name is not None:
        return resolve(chapters, name)
    changed = [c for c in chapters if git.chapter(since, c.number) not in (None, git.chapter(now, c.number))]
    if len(changed) == 1:
        return changed[0]
    if not changed:
        raise Failure(f"no chapter has changed since {since}; nothing to carry")
    names = ", ".join(f"{c.number:02d}" for c in changed)
    raise Failure(f"chapters {names} have changed since {since}: "
                  "name the one whose change is to be carried with --from", 2)


def start(options: argparse.Namespace, git: Git, run: Run) -> int:
    if run.state is not None:
        raise Failure("an earlier run stopped at a conflict: --continue it or --abort it first")
    chapters = [c for c in find_chapters(git.root) if c.is_engine]
    git("rev-parse", "--verify", "--quiet", f"{options.since}^{{commit}}")
    now = git.snapshot()
    source = choose_source(git, chapters, options.source, options.since, now)
    last = resolve(chapters, options.to).number if options.to is not None else 99
    if last <= source.number:
        raise Failure(f"--to {options.to}: expected a chapter after {source.name}", 2)
    old, new = git.chapter(options.since, source.number), git.chapter(now, source.number)
    if old is None:
        raise Failure(f"{source.name} is not in {options.since}: expected a chapter with a committed state "
                      "to compare with")
    if old == new:
        raise Failure(f"{source.name} has not changed since {options.since}; nothing to carry")
    refuse_markers(source)
    chain = [c for c in chapters if source.number < c.number <= last]
    if not chain:
        print(f"{source.name} is the last chapter; nothing to carry it to")
    if options.dry_run:
        return run_chain(git, chain, now, old, new, None)
    run.save(before=now, stopped=None)
    return run_chain(git, chain, now, old, new, run)


def resume(git: Git, run: Run) -> int:
    """Goes on from the chapter whose conflict was resolved by hand."""
    if run.state is None:
        raise Failure("no run has stopped at a conflict; nothing to continue")
    if run.state["stopped"] is None:
        raise Failure("the last run was cut off: --abort it, then run it again")
    chapters = {c.number: c for c in find_chapters(git.root)}
    stopped = chapters[run.state["stopped"]]
    refuse_markers(stopped)
    now = git.snapshot()
    old, new = git.chapter(run.state["before"], stopped.number), git.chapter(now, stopped.number)
    return run_chain(git, [chapters[n] for n in run.state["rest"]], now, old, new, run)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(prog="propagate", description=summary, epilog=details)
    parser.add_argument("--from", dest="source", metavar="NN", help="the chapter that was fixed")
    parser.add_argument("--to", metavar="NN", help="the last chapter that gets it (default: the newest)")
    parser.add_argument("--since", metavar="REV", default="HEAD", help="the fix is what changed since REV (default: HEAD)")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen, write nothing")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    unfinished = parser.add_mutually_exclusive_group()
    unfinished.add_argument("--continue", dest="resume", action="store_true", help="go on after a conflict was resolved")
    unfinished.add_argument("--abort", action="store_true", help="undo a run that stopped at a conflict")
    options = parser.parse_args(arguments)
    if (options.resume or options.abort) and (options.source or options.to or options.dry_run):
        parser.error("--continue and --abort take no other option")
    return options


@tool("propagate")
def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="minfer-propagate-") as folder:
        git = Git(options.root.resolve(), Path(folder))
        run = Run(git)
        if options.abort:
            print(f"put back {run.undo()} files")
            return 0
        return resume(git, run) if options.resume else start(options, git, run)


if __name__ == "__main__":
    sys.exit(main())
