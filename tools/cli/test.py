# SPDX-License-Identifier: MIT
"""`minfer test`: sets the machine up, builds everything, and runs all that it can run.

What can't run here is counted as skipped, with the reason, and never as passed."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cli import ROOT, build, cross, docs, gpu, models, places, system, venv
from cli.build import Build
from cli.console import run_to_end, say
from cli.tally import Tally, from_ctest, from_pytest
from minfer_tools.errors import Failure

MODELS = ("coder-0.5b", "coder-1.5b")
# Which pytest tests belong to a label: those without a marker are `cpu`.
MARKERS = {"cpu": "not (emulated or model or gpu or docs or lint or exhaustive)"}
# Why a label may have no tests at all.
NOTHING = {"gpu": "no program for a GPU was built"}


@dataclass
class Session:
    """One run of `minfer test`."""

    arguments: argparse.Namespace
    device: gpu.Gpu | None
    tally: Tally = field(default_factory=Tally)
    seconds: list[tuple[str, float]] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)  # need -> why it isn't there

    @property
    def env(self) -> dict[str, str]:
        """What tests see: the virtual environment's programs first, and no colour codes."""
        path = f"{venv.location() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(venv.location()),
                "MINFER_BUILD_DIR": str(build.folder())}

    @property
    def main(self) -> Build:
        return Build(build.folder(), build.default_options(self.device), self.env)

    def stage(self, name: str, work: Callable[[], None]) -> None:
        """Runs one stage: a Failure in it is a failed test, and the other stages still run."""
        print(f"\n== {name}", flush=True)
        start = time.monotonic()
        try:
            work()
        except Failure as failure:
            print(f"minfer: {failure}")
            self.tally.failed.append(f"{name}: {failure}")
        self.seconds.append((name, time.monotonic() - start))

    def have(self, stage: str, needs: tuple[system.Need, ...]) -> bool:
        """Whether a stage's optional needs are met; where not, the stage counts as skipped."""
        absent = system.missing(needs)
        if absent:
            reason = self.lacking.get(absent[0].apt, "not installed")
            self.skip(stage, f"{system.missing_line(absent)}: {reason}")
        return not absent

    def skip(self, name: str, reason: str) -> None:
        print(f"skipped: {reason}")
        self.tally.skip(name, reason)


def test(arguments: argparse.Namespace) -> int:
    """Runs the stages that the options ask for; prints the counts in the last line."""
    with places.turn(build.folder() / "test.lock", f"testing in {build.folder()}"):
        return test_all(arguments)


def test_all(arguments: argparse.Namespace) -> int:
    session = Session(arguments, gpu.find())
    whole = not arguments.label
    thorough = whole and not arguments.quick
    labels = [arguments.label] if arguments.label else [
        "lint", "cpu", "emulated", *(() if arguments.quick else ("model",)), "gpu",
        *(() if arguments.quick else ("docs",))]

    session.stage("set-up", lambda: set_up(session, thorough, "docs" in labels))
    if not session.tally.failed:
        session.stage("build", lambda: build_all(session))
    if not session.tally.failed:  # else nothing is built that could be tested
        for label in labels:
            work = site if label == "docs" else run_label
            session.stage(label, lambda label=label, work=work: work(session, label))
        if arguments.label == "exhaustive":
            session.stage("sanitizers", lambda: sanitizers(session, "-L", "^exhaustive$"))
        if thorough:
            session.stage("sanitizers", lambda: sanitizers(session))
            session.stage("fuzz", lambda: fuzz(session))
            session.stage("aarch64", lambda: aarch64(session))
    report(session)
    return session.tally.status


def set_up(session: Session, thorough: bool, with_site: bool) -> None:
    """Installs what the tests need. Without the packages of a single stage the others still run."""
    arguments = session.arguments
    log = build.log_dir()
    system.ensure((*system.BUILD_NEEDS, *system.TEST_NEEDS), log, arguments.install)
    optional = [*system.CHAT_NEEDS, *system.LINT_NEEDS]
    if thorough:
        optional += system.FUZZ_NEEDS + (system.CROSS_NEEDS if system.is_x86_64() else ())
    if with_site:
        optional += system.DOCS_NEEDS + system.FONT_NEEDS + system.BROWSER_NEEDS
    try:
        system.ensure(optional, log, arguments.install)
    except Failure as failure:
        say(f"minfer: {failure}")
        session.lacking.update((need.apt, "not installed") for need in optional)
    venv.ensure(venv.TOOLS, log, arguments.install)
    venv.ensure(venv.TESTS, log, arguments.install)


def build_all(session: Session) -> None:
    """Builds all targets; what CMake left out is reported as skipped, in its own words."""
    session.main.configure(again=True)
    for what in session.main.left_out():
        session.skip(*what)
    session.main.build()
    if session.arguments.label == "exhaustive":
        session.main.build("exhaustive_programs")


def run_label(session: Session, label: str) -> None:
    """Runs the tests of one label: those that ctest knows, then those in Python."""
    if label == "model" and not fetch_models(session):
        return
    names = ctest_names(session.main, label)
    if label == "gpu" and names and not session.device:
        for name in names:
            session.tally.skip(f"gpu: {name}", "no GPU on this machine")
        print(f"skipped: {len(names)} tests, no GPU on this machine")
        return
    before = session.tally.ran + len(session.tally.skipped)
    if names:
        jobs = 1 if label in ("model", "gpu") else build.usable_cpus()
        ctest(session, session.main, label, ["-L", f"^{label}$", *without("exhaustive", label)],
              jobs)
    if has_python_tests(label):
        pytest(session, label)
    if before == session.tally.ran + len(session.tally.skipped):
        session.skip(label, NOTHING.get(label, "no test has this label"))


def without(label: str, chosen: str) -> list[str]:
    return [] if label == chosen else ["-LE", f"^{label}$"]


def fetch_models(session: Session) -> bool:
    """Gets the models that the tests name. In CI it is a failure where they can't be had."""
    try:
        for name in MODELS:
            models.resolve(name, session.arguments.install)
        return True
    except Failure as failure:
        if os.environ.get("CI"):
            raise Failure(str(failure) or f"{name} can't be fetched") from None
        session.skip("model", str(failure) or f"{name} can't be fetched")
        return False


def ctest_names(place: Build, label: str) -> list[str]:
    result = subprocess.run(
        ["ctest", "--test-dir", place.where, "--show-only=json-v1", "-L", f"^{label}$",
         *without("exhaustive", label)], capture_output=True, text=True)
    try:
        return [test["name"] for test in json.loads(result.stdout)["tests"]]
    except (ValueError, KeyError):
        raise Failure(f"ctest can't list the tests of {place.where}: {result.stderr.strip()}"
                      ) from None


def ctest(session: Session, place: Build, stage: str, selection: list[str], jobs: int,
          env: dict[str, str] | None = None) -> None:
    """Runs a selection of a build's ctest tests, their output on a failure shown, and counts."""
    junit = build.log_dir() / f"{stage}-ctest.xml"
    junit.unlink(missing_ok=True)
    result = run_to_end(
        "ctest", ["ctest", "--test-dir", place.where, "--output-on-failure", "-j", jobs,
         "--test-output-size-passed", "200000", "--test-output-size-failed", "200000",
         "--output-junit", junit, *selection],
        env={**session.env, **(env or {})}, stdin=subprocess.DEVNULL)
    counted = from_ctest(junit, stage)
    if result.returncode != 0 and not counted.failed:
        counted.failed.append(f"{stage}: ctest ended with status {result.returncode}")
    session.tally.add(counted)


def has_python_tests(label: str) -> bool:
    """Whether any Python test bears the label's marker; those without one are `cpu`."""
    return label == "cpu" or any(f"pytest.mark.{label}" in path.read_text(encoding="utf-8")
                                 for path in (ROOT / "tests" / "python").glob("test_*.py"))


def pytest(session: Session, label: str, folder: str = "tests/python",
           env: dict[str, str] | None = None) -> None:
    """Runs the Python tests of a label, as many at once as there are CPUs; pytest's status 5 is that there are none."""
    junit = build.log_dir() / f"{label}-pytest.xml"
    junit.unlink(missing_ok=True)
    result = run_to_end(
        "pytest", [venv.python(), "-m", "pytest", "-q", "-rs", "--color=no", "-p", "no:cacheprovider",
         "-n", build.usable_cpus(), "--dist", "worksteal", "--junitxml", junit, "-m", MARKERS.get(label, label), folder],
        cwd=ROOT, env={**session.env, **(env or {})}, stdin=subprocess.DEVNULL)
    counted = from_pytest(junit, label)
    if result.returncode not in (0, 5) and not counted.failed:
        counted.failed.append(f"{label}: pytest ended with status {result.returncode}")
    session.tally.add(counted)


def site(session: Session, label: str) -> None:
    """Builds the documentation site, where a single warning is a failure, and reads it in a browser."""
    if not session.have(label, system.DOCS_NEEDS):
        return
    venv.ensure(venv.DOCS, build.log_dir(), session.arguments.install)
    docs.build_site()
    session.tally.passed += 1
    if session.have("docs in a browser", system.BROWSER_NEEDS):
        venv.ensure(venv.BROWSER, build.log_dir(), session.arguments.install)
        pytest(session, label, "tests/docs", {"MINFER_SITE": str(docs.folder() / "html")})


def sanitizers(session: Session, *selection: str) -> None:
    """Everything that needs no weights, or what ctest selects, under AddressSanitizer and UBSan."""
    place = Build(build.folder() / "asan", {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo", "CMAKE_CXX_FLAGS_RELWITHDEBINFO": "-O1 -g1",
        "MINFER_SANITIZE": "address,undefined", "MINFER_CUDA": "OFF",
        "MINFER_WERROR": "ON" if os.environ.get("CI") else "OFF"}, session.env)
    place.configure(again=True)
    place.build()
    if selection:
        place.build("exhaustive_programs")
    ctest(session, place, "sanitizers",
          [*(selection or ("-L", "^(cpu|emulated)$", "-LE", "^(slow|exhaustive)$"))], build.usable_cpus())


def fuzz(session: Session) -> None:
    """Each libFuzzer target for a minute, from its committed seeds."""
    if not session.have("fuzz", system.FUZZ_NEEDS):
        return
    place = Build(build.folder() / "fuzz", {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo", "CMAKE_CXX_COMPILER": shutil.which("clang++"),
        "MINFER_FUZZ": "ON", "MINFER_CUDA": "OFF",
        "MINFER_SANITIZE": "address,undefined,fuzzer-no-link",
        "MINFER_WERROR": "ON" if os.environ.get("CI") else "OFF"}, session.env)
    place.configure(again=True)
    if not ctest_names(place, "fuzz"):
        session.skip("fuzz", "this version has no fuzz targets")
        return
    place.build("fuzz_targets")
    ctest(session, place, "fuzz", ["-L", "^fuzz$"], build.usable_cpus())


def aarch64(session: Session) -> None:
    """Host code for the Jetson's processor, its quick tests run under qemu-user."""
    if not system.is_x86_64():
        session.skip("aarch64", "this machine is no x86-64: the other stages ran natively")
        return
    if not session.have("aarch64", system.CROSS_NEEDS):
        return
    sysroot = cross.sysroot(session.arguments.install)
    place = Build(build.folder() / "aarch64", {
        "CMAKE_BUILD_TYPE": "Release", "MINFER_CUDA": "OFF", "MINFER_SYSROOT": str(sysroot),
        "CMAKE_TOOLCHAIN_FILE": str(ROOT / "common/cmake/aarch64-toolchain.cmake")}, session.env)
    place.configure(again=True)
    place.build()
    ctest(session, place, "aarch64", ["-L", "^(cpu|emulated)$", "-LE", "^(slow|exhaustive)$"],
          build.usable_cpus(), {"MINFER_RUN_WITH": cross.run_with()})


def report(session: Session) -> None:
    """Seconds per stage, then what was skipped and what failed, and the counts alone at the end."""
    tally = session.tally
    print("\n== seconds")
    for name, seconds in session.seconds:
        print(f"{name:12} {seconds:8.1f}")
    print(f"{'all':12} {sum(seconds for _, seconds in session.seconds):8.1f}")
    if tally.skipped:
        print("\n== skipped")
        for name, reason in tally.skipped:
            print(f"{name}: {reason}")
    if tally.failed:
        print("\n== failed")
        for name in tally.failed:
            print(name)
    print(f"\n{tally.line()}", flush=True)
