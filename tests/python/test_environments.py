# SPDX-License-Identifier: MIT
"""`minfer` where something is unusual: a checkout that was copied, another minfer at work, a CUDA toolkit that does
not work, closed streams, no home folder, a file system without programs, and what users set for other programs."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from test_minfer import FAKE_CMAKE, ROOT, minfer, script

from cli import build, console, main, models, places, system, venv
from minfer_tools.errors import Failure
from minfer_tools.measure.programs import run_program

# --- a checkout that was copied or moved

PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(p LANGUAGES NONE)
add_custom_command(OUTPUT reference DEPENDS ${CMAKE_SOURCE_DIR}/text
                   COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/text reference)
add_custom_target(all_of_it ALL DEPENDS reference)
"""


def build_here(checkout: Path, monkeypatch) -> str:
    """What the program of a checkout is after `minfer` has built it."""
    monkeypatch.setattr(build, "ROOT", checkout)
    monkeypatch.setenv("MINFER_BUILD_DIR", str(checkout / "build"))
    place = build.Build(build.folder(), {})
    place.configure()
    place.build("reference")
    return place.binary("reference").read_text()


@pytest.mark.parametrize("take", [shutil.copytree, shutil.move])
def test_a_checkout_that_was_copied_or_moved_builds_its_own_sources(take, tmp_path, monkeypatch, capfd):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    (one / "CMakeLists.txt").write_text(PROJECT)
    (one / "text").write_text("first")
    assert build_here(one, monkeypatch) == "first"
    assert build.is_built("reference") and not build.stranger(one / "build")
    take(one, two)
    (two / "text").write_text("second")
    os.utime(two / "text", (0, 0))  # older than all that was built
    monkeypatch.setattr(build, "ROOT", two)
    monkeypatch.setenv("MINFER_BUILD_DIR", str(two / "build"))
    assert not build.is_built("reference") and build.stranger(two / "build") == str(one)
    capfd.readouterr()
    assert build_here(two, monkeypatch) == "second"
    assert f"configuring afresh: {two}/build was made for {one}\n" in capfd.readouterr().err
    assert build.is_built("reference")
    if one.exists():
        assert (one / "build" / "reference").read_text() == "first"


def test_doctor_says_that_a_build_is_anothers(programs):
    (programs.parent / "build").mkdir()
    (programs.parent / "build" / "CMakeCache.txt").write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
    (programs.parent / "build" / "reference").touch()
    assert re.search(r"^build .*, made for /elsewhere: to be configured afresh$", minfer("doctor").stdout, re.M)
    assert "built" not in minfer("chapters").stdout


# --- two at once


def test_one_of_two_waits_for_the_other_and_says_so(programs, tiny_model):
    log = f">>{programs}/called"
    script(programs / "cmake", f'what=$1\necho "begin $what" {log}\nsleep 1\n{FAKE_CMAKE}\necho "end $what" {log}\n')
    both = [subprocess.Popen([sys.executable, ROOT / "minfer", "tokenize", "--model", tiny_model, "x"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [42, 42]
    steps = (programs / "called").read_text().splitlines()
    assert steps == ["begin -S", "end -S", *["begin --build", "end --build"] * 2]
    assert any(f"waiting for another minfer, which is building in {programs.parent}/build\n" in text for text in said)


def test_the_environment_is_made_by_one_of_two(tmp_path, monkeypatch):
    monkeypatch.setattr(venv, "location", lambda: tmp_path / ".venv")
    called = []
    monkeypatch.setattr(venv, "run_logged", lambda *words: called.append(words))
    monkeypatch.setattr(venv, "pip_install", lambda *words: called.append(words))
    said = threading.Event()
    monkeypatch.setattr(places, "say", lambda text: said.set())
    with places.turn(tmp_path / ".venv.lock", "installing"):
        other = threading.Thread(target=venv.ensure, args=(venv.TOOLS, tmp_path))
        other.start()
        assert said.wait(30)
        script(venv.python(), "true\n")
        venv.stamp(venv.TOOLS).write_text(venv.wanted(venv.TOOLS))
    other.join(30)
    assert not other.is_alive() and not called


# --- CUDA


def cuda_problem(nvcc: Path | str) -> str:
    done = subprocess.run(["cmake", "-D", f"NVCC={nvcc}", "-P", ROOT / "common/cmake/CudaProblem.cmake"],
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


GNU = "host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 14 are not supported!"


def test_what_is_wrong_with_a_toolkit_is_one_line(tmp_path):
    new_gcc = script(tmp_path / "nvcc", f"echo 'In file included from x:' >&2\necho '{GNU}' >&2\necho more >&2\nexit 1\n")
    works = script(tmp_path / "works", 'while [ "$1" != -o ]; do shift; done\ntouch "$2"\n')
    assert cuda_problem(new_gcc) == f"{new_gcc} does not work: {GNU}\n"
    assert cuda_problem("/bin/true") == "/bin/true does not work: it ended with '0' and built nothing\n"
    assert cuda_problem(tmp_path / "none") == f"{tmp_path}/none does not work: it ended with 'No such file or directory' and " \
                                              "built nothing\n"
    assert cuda_problem(works) == ""


def test_without_a_toolkit_that_works_the_oracle_is_configured(tmp_path):
    done = subprocess.run(["cmake", "-S", ROOT / "chapters/01-reference", "-B", tmp_path], capture_output=True, text=True,
                          env={**os.environ, "CUDACXX": "/bin/false"})
    assert done.returncode == 0, done.stderr
    assert "-- left out: kernels for a GPU: /bin/false does not work: it ended with '1' and built nothing\n" in done.stdout


def test_doctor_names_a_toolkit_that_does_not_work():
    told = minfer("doctor", env={**os.environ, "CUDACXX": "/bin/false"}).stdout
    assert re.search(r"^nvcc +/bin/false does not work: ", told, re.M)


def test_a_gpu_program_that_cannot_be_built_is_refused_with_the_reason(programs, monkeypatch, capfd):
    script(programs / "cmake", 'echo "-- left out: kernels for a GPU: nvcc does not work: old"\n' + FAKE_CMAKE)
    place = build.Build(build.folder(), {"CMAKE_CUDA_COMPILER": "nvcc"})
    place.configure()
    assert "  left out: kernels for a GPU: nvcc does not work: old\n" in capfd.readouterr().err
    with pytest.raises(Failure, match="no kernels for a GPU can be built: nvcc does not work: old; --chapter oracle"):
        place.require_cuda()
    script(programs / "cmake", FAKE_CMAKE)  # mended
    build.Build(build.folder(), {"CMAKE_CUDA_COMPILER": "nvcc"}).require_cuda()


@pytest.mark.parametrize("output, expected", [
    ("-- a\nCMake Error at a.cmake:7 (message):\n  The compiler\n  is broken.\nCall Stack (most recent call first):\n\n-- b",
     "CMake Error at a.cmake:7 (message): The compiler is broken."),
    ("CMake Error: x\n\n  as: error: a.s\n  /usr/bin/ld: final link failed: No space left on device\n",
     "/usr/bin/ld: final link failed: No space left on device"),
    ("CMake Error at b.cmake:1 (message):\n\n  1\n\n  #error --\n  unsupported GNU version! gcc later\n",
     "unsupported GNU version! gcc later"),
    ("FAILED: a.o\na.c:1:2: error: bad\na.c:9:9: error: too", "a.c:1:2: error: bad"),
    ("Reading lists\nE: Unable to locate package x\n", "E: Unable to locate package x"),
    ("one\ntwo\n\n", "two"),
    ("", "it said nothing"),
])
def test_the_line_with_the_cause_is_told(output, expected):
    assert console.cause(output.splitlines())[1] == expected


# --- streams that are closed


COMMANDS = (("chapters",), ("model",), ("doctor",), ("diff", "05", "06"), ("--help",))


def closed(descriptor: int, *words: str, **kwargs) -> subprocess.CompletedProcess:
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
    return subprocess.run([sys.executable, ROOT / "minfer", *words], text=True, timeout=60,
                          preexec_fn=lambda: os.close(descriptor), **kwargs)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_closed_standard_output_is_one_line_and_a_failure(words):
    done = closed(1, *words)
    assert done.returncode in (1, 2)  # 2 is diff's failure
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("Bad file descriptor\n")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_without_standard_error_or_input_the_answer_is_the_same(words):
    expected = minfer(*words)
    for descriptor in (0, 2):
        done = closed(descriptor, *words)
        assert (done.returncode, done.stdout.splitlines()[:5]) == (expected.returncode, expected.stdout.splitlines()[:5])


def test_a_program_is_built_and_answers_without_standard_error(programs, tiny_model):
    script(programs / "cmake", FAKE_CMAKE)
    done = closed(2, "tokenize", "--model", str(tiny_model), "x")
    assert (done.returncode, done.stdout) == (42, f"<tokenize><--model><{tiny_model}><--><x>")


# --- folders


def test_without_a_home_folder_there_is_the_root(monkeypatch):
    def nobody(_):
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    assert main.main(["chapters"]) == 0
    assert os.environ["HOME"] == "/"


def test_a_cache_that_cannot_be_made_names_the_variable():
    done = minfer("model", "coder-1.5b", env={**os.environ, "XDG_CACHE_HOME": "/proc/none"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "minfer: /proc/none: No such file or directory; XDG_CACHE_HOME can name another place\n"


def test_a_build_folder_that_cannot_be_made_names_the_variable(tiny_model):
    done = minfer("tokenize", "--model", str(tiny_model), "x", env={**os.environ, "MINFER_BUILD_DIR": "/proc/none"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "minfer: /proc/none: No such file or directory; MINFER_BUILD_DIR can name another place\n"


def test_where_programs_cannot_run_nothing_is_built(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert places.folder("build") == ROOT / "build" and places.folder(".venv") == ROOT / ".venv"
    monkeypatch.setattr(places, "forbids_programs", lambda place: place in (ROOT, tmp_path / "minfer"))
    assert places.folder("build").parent == places.folder(".venv").parent == tmp_path / "minfer"
    with pytest.raises(Failure, match=f"^{tmp_path}/minfer: is mounted noexec.*; XDG_CACHE_HOME can name another place"):
        with places.turn(tmp_path / "minfer" / "x.lock", "building"):
            raise AssertionError


def test_a_mount_that_forbids_programs_is_known(monkeypatch):
    for flags in (os.ST_NODEV, os.ST_NOEXEC | os.ST_NODEV):
        monkeypatch.setattr(os, "statvfs", lambda _, flags=flags: os.statvfs_result([0] * 8 + [flags, 0]))
        assert places.forbids_programs(ROOT) == bool(flags & os.ST_NOEXEC)


@pytest.mark.parametrize("name", ["br[ack]et", "a[b", "a;b", 'a"b', "a|b", "a<b", "${HOME}"])
def test_a_path_that_cmake_cannot_take_is_refused_in_one_line(name):
    with tempfile.TemporaryDirectory() as place:  # a short one: CMake breaks long lines
        folder = Path(place, name)
        shutil.copytree(ROOT / "common" / "cmake", folder / "common" / "cmake")
        (folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\ninclude(common/cmake/Minfer.cmake)\n"
                                               "project(p LANGUAGES NONE)\n")
        done = subprocess.run(["cmake", "-S", folder, "-B", Path(place, "b")], capture_output=True, text=True)
    assert done.returncode == 1
    told = console.cause(done.stderr.splitlines())[1]
    assert told.startswith("CMake Error at common/cmake/Minfer.cmake:") and told.endswith("rename the folder")


def test_line_ends_are_what_was_committed(tmp_path):
    def git(*words):
        subprocess.run(["git", "-C", tmp_path, "-c", "core.autocrlf=true", *words], check=True, capture_output=True)

    shutil.copy(ROOT / ".gitattributes", tmp_path)
    (tmp_path / "minfer").write_bytes(b"#!/usr/bin/env python3\nprint()\n")
    git("init", "-q")
    git("add", "minfer")
    (tmp_path / "minfer").unlink()
    git("checkout-index", "-a")
    assert (tmp_path / "minfer").read_bytes() == b"#!/usr/bin/env python3\nprint()\n"


# --- what is meant for other programs


def test_modules_of_pythonpath_are_for_other_programs(tmp_path):
    for name in ("argparse", "json", "http", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not ours')\n")
    for words in (("chapters",), ("model",), ("diff", "05", "06")):
        done = minfer(*words, env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert (done.returncode, done.stderr) == (0, "") and done.stdout


@pytest.mark.parametrize("status, expected", [
    (9, r"get_model was ended by signal 9 \(Killed\): was there too little memory\?"),
    (15, r"get_model was ended by signal 15 \(Terminated\)"),
])
def test_a_fetcher_that_was_killed_is_told(status, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(system, "ensure", lambda *_: None)
    monkeypatch.setattr(venv, "ensure", lambda *_: script(tmp_path / "python", f"kill -{status} $$\n"))
    with pytest.raises(Failure, match=f"^{expected}$") as failure:
        models.fetch("coder-0.5b")
    assert failure.value.status == 1


def test_a_program_that_was_killed_was_not_interrupted(tmp_path):
    with pytest.raises(Failure, match=r"p failed with signal 9 \(Killed\)"):
        run_program([script(tmp_path / "p", "kill -9 $$\n")])
    with pytest.raises(KeyboardInterrupt):
        run_program([script(tmp_path / "p", "kill -2 $$\n")])


# --- CPUs

V1 = "3:cpuset:/\n2:cpu,cpuacct:/a/b\n1:name=systemd:/\n0::/a\n"
V2 = "0::/a/b\n"
PERIOD = "cpu.cfs_period_us"


@pytest.mark.parametrize("groups, files, one", [  # as in tests/oracle/test_threads.cpp
    (V2, {"a/b/cpu.max": "max 100000\n"}, False),
    (V2, {"a/b/cpu.max": "100000 100000\n"}, True),
    (V2, {"a/cpu.max": "199999 100000\n"}, True),
    (V2, {"cpu.max": "1000 100000\n"}, True),
    (V2, {"cpu.max": "999900000 100000\n"}, False),
    (V2, {"a/cpu/cpu.max": "100000 100000\n"}, False),
    (V1, {"cpu/a/b/cpu.cfs_quota_us": "-1\n", f"cpu/a/b/{PERIOD}": "50000\n"}, False),
    (V1, {"cpu/a/b/cpu.cfs_quota_us": "50000\n", f"cpu/a/b/{PERIOD}": "50000\n"}, True),
    (V1, {"cpu/cpu.cfs_quota_us": "99999\n", f"cpu/{PERIOD}": "50000\n"}, True),
    (V1, {"cpuset/cpu.cfs_quota_us": "50000\n", f"cpuset/{PERIOD}": "50000\n"}, False),
    (None, {}, False),
])
def test_cpus_are_those_of_the_affinity_within_the_quotas(groups, files, one, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3, 5})
    texts = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in ({**texts, "proc/self/cgroup": groups} if groups else texts).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert build.usable_cpus(tmp_path) == (1 if one else 3)


def test_doctor_counts_the_cpus_of_its_affinity():
    first = min(os.sched_getaffinity(0))
    told = minfer("doctor", preexec_fn=lambda: os.sched_setaffinity(0, {first})).stdout
    assert re.search(r"^CPU .*, 1 of \d+ cores usable$", told, re.M)
