#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that the chapters keep their contract, a line for each thing that is wrong.

    file:line: rule: what was found; what was expected

The exit status is 0 if nothing was found, 1 if something was, 2 for wrong usage.

examples:
  tools/lint_chapters.py --list
  tools/lint_chapters.py --rule maths --rule float-atomics
  tools/lint_chapters.py --compile-commands build/compile_commands.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import minfer_tools.lint.code_rules  # these two register their rules
import minfer_tools.lint.tree_rules  # noqa: F401
from minfer_tools.chapter_tree import REPOSITORY
from minfer_tools.command_line import Parser, tool
from minfer_tools.lint.rule import RULES, Finding, Project


def run(project: Project, names: list[str]) -> list[Finding]:
    """The findings of the rules named; of all, if none is."""
    chosen = [rule for rule in RULES.values() if not names or rule.name in names]
    return sorted({finding for rule in chosen for finding in rule.check(project)})


def list_rules() -> None:
    width = max(map(len, RULES))
    for known in RULES.values():
        print(f"{known.name:<{width}}  {known.summary}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    summary, _, details = __doc__.partition("\n\n")
    parser = Parser(prog="lint_chapters", description=summary, epilog=details)
    parser.add_argument("--list", action="store_true", help="the rules, and what each asks for")
    parser.add_argument("--rule", action="append", default=[], choices=list(RULES), metavar="RULE",
                        help="only this rule (may be repeated)")
    parser.add_argument("--compile-commands", action="append", type=Path, metavar="FILE",
                        help="a build's compile_commands.json (default: that of build/, if there is one)")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


@tool("lint_chapters")
def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.list:
        list_rules()
        return 0
    root = options.root.resolve()
    commands = options.compile_commands
    if commands is None:
        commands = [path for path in [root / "build" / "compile_commands.json"] if path.is_file()]
    project = Project(root, commands)
    findings = run(project, options.rule)
    for finding in findings:
        path = finding.path.relative_to(root) if root in finding.path.parents else finding.path
        print(f"{path}:{finding.line}: {finding.rule}: {finding.message}")
    if not commands:
        print("compile-flags: not checked, for want of compile_commands.json (see --compile-commands)")
    if not project.engines:
        print("no engine chapters: the rules that compare chapters had nothing to compare")
    print(f"chapters: {len(project.chapters)} checked, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
