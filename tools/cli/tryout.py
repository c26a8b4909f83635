# SPDX-License-Identifier: MIT
"""`minfer try`: one chapter after an edit, in the emulator, in four lines; and the primer's program."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from cli import ROOT, build, chapters, gpu, system, venv
from cli.chapters import Chapter
from cli.console import DONE, FAILED, USAGE, become, run_to_end, say, started
from minfer_tools.chapter_tree import OWN_FOLDERS, PATCHES
from minfer_tools.command_line import ending
from minfer_tools.errors import Failure

EXAMPLES = """\
  ./minfer try first            the primer's program, docs/first.cu
  ./minfer try 05               the chapter as it lies in chapters/
  ./minfer try 05 --in ../mine  ../mine/chapters/05-dp4a, which is copied first where it is not there
  ./minfer try 05 --in ../mine --patch faults/NAME
                                the same, once chapters/05-dp4a/faults/NAME.patch is applied to the copy

exit status: 0 right, be it with the recorded bits or with those of another order of sums; 1 something is wrong
"""
WHOLE_MODEL = ROOT / "tests" / "chapters" / "whole_model.py"
OTHER_ORDER = 3  # its exit status for logits that have other bits, and are right
SECONDS = 60  # for what takes less than ten
SEEDS = ("", "1", "2")  # schedules of a kernel's threads; the first runs them in order
# What a chapter is built and tested with, beside itself.
SHARED = ("common", "CMakeLists.txt", "oracle", "chapters/01-reference", "tests/CMakeLists.txt",
          "tests/chapters/CMakeLists.txt", "tests/main.cpp", "tests/catch.h", "tests/kernel_testing.h")


def try_it(arguments: argparse.Namespace) -> int:
    """Builds and runs a chapter's tests; prints four lines, or two where it does not compile."""
    if arguments.chapter == "first":
        return try_first(arguments)
    chapter = chapters.find(arguments.chapter, chapters.discover())
    if not (chapter.path / "kernels_test.cu").exists():
        raise Failure(f"try: {chapter.name} has no kernels that could be emulated", USAGE)
    patch = patch_of(chapter, arguments.patch) if arguments.patch else None
    if patch and not arguments.folder:
        raise Failure("--patch: is applied to a copy; expected --in DIR as well", USAGE)
    if arguments.folder:
        chapter = in_copy(chapter, Path(arguments.folder))
    if patch:
        apply(patch, chapter.path)
    root = chapter.path.parents[1]
    log = build.log_dir()
    installed = system.ensure((*system.BUILD_NEEDS, *system.KERNEL_TEST_NEEDS), log, arguments.install)
    python = venv.ensure(venv.TOOLS, log, arguments.install)
    models = build.folder() / "tests" / "chapters" / "models"
    run_to_end("whole_model.py", [python, WHOLE_MODEL, "make", models])

    place = place_of(root)
    place.configure(again=installed)
    program = f"{chapter.slug}-emulated"
    test = f"tests/chapters/test-kernels-{program}"
    try:
        place.build(program, Path(test).name, shown=0)
    except Failure as failure:
        print(complaint(str(failure), root))
        return FAILED
    return say_what_came(chapter.path, place.binary(test),
                         [python, WHOLE_MODEL, "try", place.binary(program), models])


def try_first(arguments: argparse.Namespace) -> int:
    """Builds the primer's program and becomes it."""
    if arguments.folder or arguments.patch:
        raise Failure("--in, --patch: found one with 'first', expected it with a chapter", USAGE)
    installed = system.ensure((*system.BUILD_NEEDS, *system.EMULATOR_NEEDS), build.log_dir(), arguments.install)
    place = build.Build(build.folder(), build.default_options(gpu.find()))
    place.configure(again=installed)
    try:
        place.build("first-emulated", shown=0)
    except Failure as failure:
        print(complaint(str(failure), ROOT))
        return FAILED
    become([place.binary("first-emulated")])


# --- the copy


def copy_of(chapter: Chapter, folder: Path) -> Path:
    """The folder, with the chapter and what it is built with copied to where they lie in this checkout."""
    folder = Path(os.path.abspath(folder))
    own, shared = f"chapters/{chapter.name}", folder / SHARED[0]
    if (folder / own).is_dir() and shared.is_dir():
        return folder
    if folder.exists() and not shared.is_dir() and (not folder.is_dir() or any(folder.iterdir())):
        raise Failure(f"--in {folder}: found something else, expected a folder that try made, or none", USAGE)
    folder.mkdir(parents=True, exist_ok=True)
    scratch = shutil.ignore_patterns(*OWN_FOLDERS, "build", "__pycache__", ".*")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".copy-") as partial:  # so that no part is there by half
        for part in (*SHARED, own):  # what says that the copy is whole comes last
            if (folder / part).exists():
                continue
            copied = Path(partial, Path(part).name)
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, copied, ignore=scratch)
            else:
                shutil.copy2(ROOT / part, copied)
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            copied.rename(folder / part)
    say(f"copied {chapter.name} to {folder / own}, and beside it what it is built with")
    return folder


def in_copy(chapter: Chapter, folder: Path) -> Chapter:
    """The chapter as it lies in a copy."""
    return dataclasses.replace(chapter, path=copy_of(chapter, folder) / "chapters" / chapter.name)


def place_of(root: Path) -> build.Build:
    """Where a checkout or a copy is built."""
    if root == ROOT:
        return build.Build(build.folder(), build.default_options(gpu.find()))
    return build.Build(root / "build", {"CMAKE_BUILD_TYPE": "Release", "MINFER_CUDA": "OFF"}, source=root)


def patch_of(chapter: Chapter, name: str) -> Path:
    """"faults/NAME" as a file of the chapter."""
    folder, _, stem = name.removesuffix(".patch").partition("/")
    path = chapter.path / folder / f"{stem}.patch"
    if folder not in PATCHES or "/" in stem or not path.is_file():
        known = [f"{folder}/{file.stem}" for folder in PATCHES
                 for file in sorted((chapter.path / folder).glob("*.patch"))]
        raise Failure(f"--patch: found {name!r}, expected one of {chapter.name}'s: {', '.join(known) or 'it has none'}",
                      USAGE)
    return path


def apply(patch: Path, folder: Path) -> None:
    """Changes a copy as the patch says; one that is changed so already is left alone."""
    def git(*options: str) -> subprocess.CompletedProcess:
        # The ceiling: git is not to take the folder for part of a repository that it may lie in.
        return subprocess.run(["git", "apply", *options, str(patch)], cwd=folder, capture_output=True, text=True,
                              check=False, env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)})

    if git("--reverse", "--check").returncode == 0:
        return
    done = git()
    if done.returncode != 0:
        raise Failure(f"--patch: {patch.name} does not fit {here(folder)}, which was changed otherwise; another folder "
                      f"has a copy as it was: {done.stderr.strip().splitlines()[0]}")
    say(f"applied {here(patch)} to {here(folder)}")


# --- what is said


def shown(text: str, root: Path) -> str:
    """The text with the paths in it as one would type them here."""
    return text.replace(f"{root}/", f"{here(root)}/".removeprefix("./"))


def here(path: Path) -> str:
    """How one would type a path where this command is run."""
    return min(os.path.relpath(path), str(path), key=len)


def complaint(failure: str, root: Path) -> str:
    """Where a build failed, place first: the compiler's, or of an error in what a kernel calls the kernel's line."""
    error, log = re.search(r"\): (?:.*(?=undefined reference))?(.*); all of its output: (.*)$", failure).groups()
    lines = Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
    at = next((number for number, line in enumerate(lines) if error in line), 0)
    ours = rf"{re.escape(str(root))}/(?!common/cuda/emulator/)\S+:\d+"
    place = ""
    while at > 0 and re.search(r"required from|In instantiation of|In substitution of", lines[at - 1]):
        at -= 1  # from the error outwards: what is said first is nearest to it
        called = re.match(rf"({ours}\S*) +required from", lines[at])
        place = called[1] if called else place
    if place and not re.match(ours, error):
        error = f"{place} {error.partition(': ')[2]}"
    return f"{shown(error, root)}\nnext     mend that line; all of the compiler's words: {shown(log, root)}"


def finish(argv: list, output, complaints: int, **env: str) -> int | None:
    """A program's exit status; none where it hangs and was ended."""
    with started(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=complaints, env={**os.environ, **env}) as process:
        try:
            return process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None


def say_what_came(path: Path, test: Path, of_model: list) -> int:
    """The four lines, of a chapter that lies at `path` and is built; returns the exit status."""
    wrong, hangs = wrong_kernel(test, path.parents[1])
    status = whole_model(of_model, hangs)
    print(f"next     {advice(path, test, wrong, status)}")
    return DONE if not wrong and status in (DONE, OTHER_ORDER) else FAILED


def wrong_kernel(program: Path, root: Path) -> tuple[str, bool]:
    """Says whether every kernel is right; returns the name of the first test that finds one that is not, and whether it
    hangs."""
    for seed in SEEDS:
        with tempfile.TemporaryFile() as output:
            status = finish([program, "-r", "xml", "-a"], output, subprocess.DEVNULL,
                            **({"MINFER_EMULATOR_SEED": seed} if seed else {}))
            output.seek(0)
            tests, name, why = read_report(output.read())
        if status != 0:
            why = why or (f"had not ended after {SECONDS} s" if status is None else f"ended by {ending(status)}")
            schedule = f", under schedule {seed} of its threads: is a barrier missing? (minfer lab --races)" if seed else ""
            print(f"kernels  wrong: {name}: {shown(why, root)}{schedule}")
            return name, status is None
    print(f"kernels  right: {tests} tests under {len(SEEDS)} schedules")
    return "", False


def read_report(report: bytes) -> tuple[int, str, str]:
    """Of Catch2's XML, which ends where the program did: the tests, the one that was begun last, and what failed in it."""
    parser = ElementTree.XMLPullParser(("start", "end"))
    parser.feed(report)
    tests, name, told = 0, "nothing was tested", []
    for event, element in parser.read_events():
        text = " ".join((element.text or "").split())
        if element.tag == "TestCase" and event == "start":
            tests, name, told = tests + 1, element.get("name"), []
        elif event == "start":
            continue
        elif element.tag == "Info":
            told.append(text)
        elif element.tag == "Expression" and element.get("success") == "false" and element.find("Exception") is None:
            original, expanded = (" ".join((element.findtext(tag) or "").split()) for tag in ("Original", "Expanded"))
            values = f", found {expanded}" if len(expanded) <= 80 else ""
            told.append(f"expected {original}{values} ({element.get('filename')}:{element.get('line')})")
            return tests, name, ": ".join(told)
        elif element.tag in ("Exception", "FatalErrorCondition"):
            return tests, name, ": ".join([*told, text])
    return tests, name, ""


def whole_model(argv: list, hangs: bool) -> int | None:
    """Lets the logits and the tokens be said, unless a kernel hangs; returns how they are."""
    if hangs:
        print("logits   not tried\ntokens   not tried")
        return None
    with tempfile.TemporaryFile() as output:
        status = finish(argv, output, subprocess.STDOUT)
        output.seek(0)
        said = output.read().decode(errors="replace")
    print(said.strip() if status is not None else f"logits   none: had not ended after {SECONDS} s\ntokens   none")
    return status


def advice(path: Path, test: Path, wrong: str, status: int | None) -> str:
    """What to run or look at next, for a chapter that lies at `path`."""
    if wrong:
        name = wrong.replace(",", "\\,")  # which would begin another name
        return f'{here(test)} "{name}" has all that this test says'
    if status == DONE:
        return f"edit a kernel in {here(path)} and run this again"
    if status == OTHER_ORDER:
        return "all is right, but the bits are no longer the recorded ones, to which ./minfer test holds a chapter"
    return f"each kernel is right by itself: see what {here(path)}/engine.cu launches, in which order and with what"
