#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the chapters keep their contract, a line for each thing that is wrong.

    file:line: rule: what was found; what was expected

Limits of size give way to a reason: in the chapter's README.md, `<!-- reason: RULE -->`, or
`<!-- reason: RULE SUBJECT -->` for one file or kernel, and right below it the reason, for the reader.
A reason that excuses nothing is itself a finding.

The exit status is 0 if nothing was found, 1 if something was, 2 for wrong usage.

examples:
  tools/lint_chapters.py --list
  tools/lint_chapters.py --rule diff-size --rule kernel-size
  tools/lint_chapters.py --compile-commands build/compile_commands.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import minfer_tools.lint.code_rules  # noqa: F401  (registers its rules)
import minfer_tools.lint.tree_rules as tree_rules
from minfer_tools.chapter_tree import REPOSITORY
from minfer_tools.command_line import Parser, exit_status
from minfer_tools.errors import Failure
from minfer_tools.lint.rule import RULES, Finding, Project, rule


@rule("reason")
def reason(project: Project):
    """A reason names an excusable rule, says it in a few words right below its marker, and is needed."""
    for chapter in project.chapters:
        for found in chapter.reasons:
            known = RULES.get(found.rule)
            if known is None or not known.excusable:
                names = ", ".join(r.name for r in RULES.values() if r.excusable)
                message = f"no reason beats {found.rule!r}; expected one of {names}"
            elif len(found.text.split()) < tree_rules.REASON_WORDS:
                message = f"nothing is said below the marker of {found.rule}"
            elif not found.used:
                message = f"{found.rule} {found.subject}".rstrip() + " needs no reason any more"
            else:
                continue
            yield Finding(chapter.readme_path, found.line, "reason", message)


def run(project: Project, names: list[str]) -> list[Finding]:
    """The findings of the rules named (all, if none is), those excused left out.

    Only when all rules have run is it known which reasons were needed.
    """
    chosen = [r for r in RULES.values() if r.check is not reason and (not names or r.name in names)]
    by_chapter = {c.chapter.path: c for c in project.chapters}
    findings = []
    for checked in chosen:
        for finding in checked.check(project):
            chapter = next((by_chapter[p] for p in finding.path.parents if p in by_chapter), None)
            reasons = [r for r in chapter.reasons if r.covers(finding)] if chapter and checked.excusable else []
            for excuse in reasons:
                excuse.used = True
            if not reasons:
                findings.append(finding)
    if not names:
        findings += reason(project)
    return sorted(set(findings))


def list_rules() -> None:
    width = max(map(len, RULES))
    for known in RULES.values():
        print(f"{known.name:<{width}}  {known.summary}" + (" A reason beats it." if known.excusable else ""))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(prog="lint_chapters", description=summary, epilog=details)
    parser.add_argument("--list", action="store_true", help="the rules, and what each asks for")
    parser.add_argument("--rule", action="append", default=[], choices=[n for n in RULES if n != "reason"], metavar="RULE",
                        help="only this rule (may be repeated)")
    parser.add_argument("--compile-commands", action="append", type=Path, metavar="FILE",
                        help="a build's compile_commands.json (default: that of build/, if there is one)")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        list_rules()
        return 0
    root = options.root.resolve()
    commands = options.compile_commands
    if commands is None:
        commands = [path for path in [root / "build" / "compile_commands.json"] if path.is_file()]
    try:
        project = Project(root, commands)
        findings = run(project, options.rule)
        for finding in findings:
            path = finding.path.relative_to(root) if root in finding.path.parents else finding.path
            print(f"{path}:{finding.line}: {finding.rule}: {finding.message}")
    except Failure as failure:
        print(f"lint_chapters: {failure}", file=sys.stderr)
        return failure.status
    if not commands:
        print("compile-flags: not checked, for want of compile_commands.json (see --compile-commands)")
    if not project.engines:
        print("no engine chapters: the rules that compare chapters had nothing to compare")
    print(f"chapters: {len(project.chapters)} checked, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(exit_status("lint_chapters", main))
