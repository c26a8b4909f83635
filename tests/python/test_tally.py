# SPDX-License-Identifier: MIT
"""Counting tests: what ctest and pytest report, as the closing line of `minfer test` has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.tally import Tally, catch2_cases, from_ctest, from_pytest

PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(some NONE)
enable_testing()
function(some_test name text status)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E env sh -c "echo '${text}'; exit ${status}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()
some_test(good "fine" 0)
some_test(catch2 "All tests passed (12 assertions in 5 test cases)" 0)
some_test(mixed "test cases: 4 | 2 passed | 2 failed" 2)
some_test(bad "wrong" 1)
some_test(skipped "no weights here" 77)
add_test(NAME crashed COMMAND sh -c "kill -SEGV $$")
add_test(NAME gone COMMAND no-such-program-of-ours)
add_test(NAME slow COMMAND sleep 20)
set_tests_properties(slow PROPERTIES TIMEOUT 1)
"""


def test_ctest_outcomes(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    subprocess.run(["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "b"], check=True, capture_output=True)
    subprocess.run(["ctest", "--test-dir", tmp_path / "b", "--output-junit", tmp_path / "junit.xml"],
                   capture_output=True)
    tally = from_ctest(tmp_path / "junit.xml", "some")
    assert tally.passed == 1 + 5 + 2
    assert tally.failed == ["some: mixed"] * 2 + ["some: bad", "some: crashed", "some: gone", "some: slow"]
    assert tally.skipped == [("some: skipped", "no weights here")]
    assert tally.line() == "8 passed, 6 failed, 1 skipped"
    assert tally.status == 1


def test_pytest_outcomes(tmp_path):
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 1 == 2\n"
        "def test_skipped(): pytest.skip('no weights here')\n"
        "@pytest.fixture\ndef broken(): raise ValueError\n"
        "def test_error(broken): pass\n")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null",
                    "--rootdir", tmp_path, "--junitxml", tmp_path / "junit.xml", tmp_path], capture_output=True)
    tally = from_pytest(tmp_path / "junit.xml", "some")
    assert tally.passed == 1
    assert [name.rpartition("::")[2] for name in tally.failed] == ["test_bad", "test_error"]
    assert [reason for _, reason in tally.skipped] == ["no weights here"]


@pytest.mark.parametrize("line, counts", [
    ("All tests passed (1 assertion in 1 test case)", (1, 0)),
    ("All tests passed (3 assertions in 2 test cases)", (2, 0)),
    ("test cases: 1 | 1 failed", (0, 1)),
    ("test cases:  10 |  7 passed |  3 failed", (7, 3)),
    ("test cases: 5 | 3 passed | 1 failed | 1 failed as expected", (4, 1)),
    ("test cases: 3 | 1 passed | 2 skipped", (1, 0)),
    ("nothing of the kind", None),
])
def test_catch2_closing_lines(line, counts):
    assert catch2_cases(f"some output\n{line}\nassertions: 3 | 1 passed\n") == counts


def test_a_run_of_no_test_has_failed():
    assert Tally().status == 1
    only_skips = Tally()
    only_skips.skip("some", "reason")
    assert only_skips.status == 1
    assert Tally(passed=1).status == 0
    assert Tally(passed=1, failed=["some"]).status == 1


def test_no_report_is_no_test(tmp_path):
    assert from_ctest(tmp_path / "none.xml", "some").ran == 0
    (tmp_path / "cut.xml").write_text("<testsuite><testcase name='a'")
    assert from_pytest(Path(tmp_path / "cut.xml"), "some").ran == 0
