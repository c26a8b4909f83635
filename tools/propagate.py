#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Carries a fix from the chapter where it was made through all later chapters.

    tools/propagate.py [--from NN] [--to NN] [--since REV] [--dry-run]
    tools/propagate.py --continue | --abort

Every chapter is a whole snapshot, so a fix in one has to reach all that follow. File by file it is
merged three ways into the next chapter: the base is the file before the fix, ours the next chapter's,
theirs the fixed one. What that did to the next chapter is then what the one after it gets, and so on
in numeric order: each merge bridges only one chapter's idea.

The fix is what is not yet committed in the one chapter that has changed, or what changed in it since
REV. A conflict ends the run after the chapter it is in; its files keep conflict markers, which are
edited by hand before --continue. --abort puts back every file as it was before the run.

Left alone: results/, dead-ends/, the generated tables in README.md, and what else README.md says in
words of its own (only the parts that both chapters share are merged). Chapter 00 is no engine and
takes no part.

examples:
  tools/propagate.py --dry-run          what would happen to the uncommitted fix
  tools/propagate.py --since HEAD~1     the fix was committed already
  tools/propagate.py --from 03 --to 07  only chapters 04 to 07
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from minfer_tools.chapter_merge import Conflict, Journal, Tree, carry, committed_tree, edited_tree
from minfer_tools.chapter_tree import REPOSITORY, Chapter, find_chapters, git, resolve
from minfer_tools.command_line import Parser, exit_status
from minfer_tools.errors import Failure


def choose_source(chapters: list[Chapter], name: str | None, root: Path, since: str) -> Chapter:
    """The chapter that the fix was made in: the one named, or the only one that has changed."""
    if name is not None:
        return resolve(chapters, name)
    changed = [c for c in chapters if committed_tree(root, c, since) not in (None, edited_tree(root, c))]
    if len(changed) == 1:
        return changed[0]
    if not changed:
        raise Failure(f"no chapter has changed since {since}; nothing to carry")
    names = ", ".join(f"{c.number:02d}" for c in changed)
    raise Failure(f"chapters {names} have changed since {since}: "
                  "name the one whose change is to be carried with --from", 2)


def refuse_markers(chapter: Chapter, tree: Tree) -> None:
    """A chapter with conflict markers in it is not a fix."""
    for file, entry in sorted(tree.items()):
        for number, line in enumerate(entry.data.split(b"\n"), 1):
            if line.startswith((b"<<<<<<< ", b">>>>>>> ")):
                raise Failure(f"{chapter.path / file}:{number}: a conflict marker; expected the conflict resolved")


def run_chain(root: Path, chain: list[Chapter], old: Tree, new: Tree, journal: Journal | None) -> int:
    """Merges old -> new into each chapter of `chain`; returns the exit status.

    Without a journal nothing is written. A chapter is merged whole in memory before its first file is
    touched, and the journal has each file's former content before that file is replaced.
    """
    for position, chapter in enumerate(chain):
        before = edited_tree(root, chapter)
        after, notes, conflicts = carry(old, new, before, chapter.name)
        for note in notes:
            print(f"{chapter.name}/{note}")
        if journal is not None:
            journal.write(chapter, before, after, rest=chain[position + 1:], stopped=bool(conflicts))
        if conflicts:
            report_conflicts(chapter, conflicts, dry=journal is None)
            return 1
        if before == after:
            print(f"{chapter.name}: unchanged" + (", so are those after it" if position + 1 < len(chain) else ""))
            break
        old, new = before, after
    if journal is not None:
        journal.forget()
    return 0


def report_conflicts(chapter: Chapter, conflicts: list[Conflict], dry: bool) -> None:
    for conflict in conflicts:
        print(f"{chapter.name}/{conflict.file}: conflict: {conflict.reason}", file=sys.stderr)
    hint = "would stop there" if dry else "resolve it, then --continue; or --abort"
    print(f"propagate: stopped at {chapter.name}: {hint}", file=sys.stderr)


def start(options: argparse.Namespace, root: Path, journal: Journal) -> int:
    if journal.exists():
        raise Failure("an earlier run stopped at a conflict: --continue it or --abort it first")
    chapters = [c for c in find_chapters(root) if c.is_engine]
    git(["rev-parse", "--verify", "--quiet", f"{options.since}^{{commit}}"], root)
    source = choose_source(chapters, options.source, root, options.since)
    last = resolve(chapters, options.to).number if options.to is not None else 99
    if last <= source.number:
        raise Failure(f"--to {options.to}: expected a chapter after {source.name}", 2)
    old, new = committed_tree(root, source, options.since), edited_tree(root, source)
    if old is None:
        raise Failure(f"{source.name} is not in {options.since}: expected a chapter with a committed state "
                      "to compare with")
    if old == new:
        raise Failure(f"{source.name} has not changed since {options.since}; nothing to carry")
    refuse_markers(source, new)
    chain = [c for c in chapters if source.number < c.number <= last]
    if not chain:
        print(f"{source.name} is the last chapter; nothing to carry it to")
    return run_chain(root, chain, old, new, None if options.dry_run else journal)


def resume(root: Path, journal: Journal) -> int:
    """Goes on from the chapter whose conflict was resolved by hand."""
    stopped, rest, old = journal.stopped_at(find_chapters(root))
    new = edited_tree(root, stopped)
    refuse_markers(stopped, new)
    return run_chain(root, rest, old, new, journal)


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


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        root = options.root.resolve()
        journal = Journal(root)
        if options.abort:
            print(f"put back {journal.restore()} files")
            return 0
        return resume(root, journal) if options.resume else start(options, root, journal)
    except Failure as failure:
        print(f"propagate: {failure}", file=sys.stderr)
        return failure.status


if __name__ == "__main__":
    sys.exit(exit_status("propagate", main))
