# SPDX-License-Identifier: MIT
"""The `minfer` command: what it takes, what it refuses and how, and what it does to a machine. Programs
that would change the machine are replaced by scripts on the PATH that write down how they were called."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli import VERSION, build, chapters, console, gpu, models, run, system, venv
from cli.main import make_parser
from minfer_tools import cache
from minfer_tools.errors import Failure

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("run", "chat", "tokenize", "detokenize", "model", "try", "test", "doctor", "chapters", "diff",
            "bench", "compare", "lab", "docs")


def minfer(*words: str, **kwargs) -> subprocess.CompletedProcess:
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([sys.executable, ROOT / "minfer", *words], capture_output=True, text=True,
                          timeout=60, **kwargs)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


# --- the command line


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_examples(command):
    result = minfer(command, "--help")
    assert result.returncode == 0
    assert f"  ./minfer {command}" in result.stdout.partition("examples:")[2]


def test_help_says_what_becomes_of_a_last_line_end():
    assert "standard input, without a line end" in " ".join(minfer("run", "--help").stdout.split())


def test_help_names_every_command():
    result = minfer("--help")
    assert result.returncode == 0
    assert all(re.search(rf"^    {command}\b", result.stdout, re.M) for command in COMMANDS)


def test_no_command_is_wrong_usage():
    result = minfer()
    assert result.returncode == 2 and "usage: minfer" in result.stdout


@pytest.mark.parametrize("words, part", [
    (("run", "-n", "-1", "hi"), "minfer run: argument -n: found '-1', expected a number, 0 or more"),
    (("bench", "--nonsense"), "unrecognized arguments: --nonsense"),
    (("frobnicate",), "invalid choice: 'frobnicate'"),
    (("run", "--model"), "minfer run: argument --model: expected one argument"),
])
def test_wrong_usage_is_one_line(words, part):
    result = minfer(*words)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and part in result.stderr


def test_one_version_everywhere():
    assert minfer("--version").stdout == f"minfer {VERSION}\n"
    assert f"VERSION {VERSION} " in (ROOT / "CMakeLists.txt").read_text()
    assert f'kVersion[] = "{VERSION}";' in (ROOT / "common/minfer/program/version.h").read_text()
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {VERSION}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("words, complaint", [
    (["run"], "give one of PROMPT (- for standard input) and --prompt-ids"),
    (["run", "hello", "--prompt-ids", "1 2"], "give one of PROMPT (- for standard input) and --prompt-ids"),
    (["run", "-n", "-1", "hello"], "argument -n: found '-1', expected a number, 0 or more"),
    (["run", "-n", "many", "hello"], "argument -n: found 'many'"),
    (["run", "-n", "1.5", "hello"], "argument -n: found '1.5'"),
    (["run", "-c", "0", "hello"], "argument -c: found '0', expected a number, 1 or more"),
    (["run", "--threads", "0", "hello"], "argument --threads: found '0'"),
    (["run", "--colour", "hello"], "unrecognized arguments: --colour"),
    (["run", "--print", "hello"], "unrecognized arguments: --print"),
    (["run", "--device", "tpu", "hello"], "invalid choice: 'tpu'"),
    (["run", "--chapter", "77", "hello"], "no chapter '77'; there are: 00, 01"),
    (["run", "hello", "sea"], "unrecognized arguments: sea"),
    (["tokenize"], "the following arguments are required: TEXT"),
    (["detokenize"], "the following arguments are required: ID"),
    (["model", "gpt-5"], "no model is named 'gpt-5'"),
    (["test", "-L", "fast"], "invalid choice: 'fast'"),
    (["chat", "-n", "0"], "argument -n: found '0', expected a number, 1 or more"),
    (["compare", "--cases", "0"], "argument --cases: found '0', expected a number, 1 or more"),
    (["compare", "-n", "0"], "argument -n: found '0', expected a number, 1 or more"),
    (["diff"], "diff: which chapters?"),
    (["diff", "01", "77"], "77"),
    (["sing"], "invalid choice: 'sing'"),
])
def test_wrong_usage_is_said_and_nothing_is_installed(words, complaint, programs, monkeypatch):
    called = programs / "called"
    for name in ("apt-get", "cmake", "sudo"):
        script(programs / name, f'echo "{name} $*" >>{called}\n')
    result = minfer(*words)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr
    assert not called.exists()


@pytest.mark.parametrize("text", ["->", "-", "--", "-3", "(x):\n", "", "- a list", "-.5"])
def test_text_that_looks_like_an_option_is_text(text):
    words = ["--", text] if text == "--" else [text]
    assert make_parser().parse_args(["tokenize", *words]).text == text
    assert make_parser().parse_args(["run", *words]).prompt == text


def test_docs_says_what_it_needs(tmp_path):
    result = minfer("docs", "--no-install", env={**os.environ, "PATH": str(tmp_path)})
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "Doxygen (doxygen)" in result.stderr


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} {ROOT / 'minfer'} --help; echo $? >&2"
    result = subprocess.run(f"({command}) | true", shell=True, stderr=subprocess.PIPE, text=True)
    assert "Traceback" not in result.stderr


# --- what becomes of a run


FAKE_CMAKE = """
case "$1" in
 --build) cat >"$2/reference" <<'END'
#!/bin/sh
for word in "$@"; do printf '<%s>' "$word"; done
exit 42
END
  chmod +x "$2/reference";;
 *) while [ "$1" != -B ]; do shift; done; mkdir -p "$2"; touch "$2/CMakeCache.txt" "$2/build.ninja";;
esac
"""


@pytest.mark.parametrize("words, passed_on", [
    (["run", "Hi there"], "<--><Hi there>"),
    (["run", "->"], "<--><->>"),
    (["run", ""], "<--><>"),
    (["run", "-n", "0", "-c", "64", "--raw", "--print-ids", "--threads=2", "--system", "Be brief.", "-"],
     "<-n><0><-c><64><--raw><--print-ids><--threads><2><--system><Be brief.><--><->"),
    (["run", "--spec", "1", "--lmhead=4", "hello"], "<--spec><1><--lmhead><4><--><hello>"),
    (["run", "--prompt-ids", "1 2 3", "--teacher", "2", "--rawids"], "<--teacher><2><--rawids><--prompt-ids><1 2 3>"),
    (["chat", "--system", ""], "<--system><>"),
    (["chat", "-n", "6"], "<-n><6>"),
    (["tokenize", "--special", "a b"], "<--special><--><a b>"),
    (["detokenize", "1", "2"], "<--><1><2>"),
])
def test_words_reach_the_engine_and_its_status_comes_back(words, passed_on, programs, tiny_model, monkeypatch):
    script(programs / "cmake", FAKE_CMAKE)
    monkeypatch.setenv("MODEL", str(tiny_model))
    chapter = ["--chapter", "oracle"] if words[0] in ("run", "chat") else []
    result = minfer(words[0], *chapter, *words[1:])
    assert result.stdout == f"<{words[0]}><--model><{tiny_model}>{passed_on}"
    assert result.returncode == 42


def test_a_second_run_configures_nothing(programs, tiny_model):
    script(programs / "cmake", f'echo "$1" >>{programs}/called\n' + FAKE_CMAKE)
    for _ in range(2):
        minfer("tokenize", "--model", str(tiny_model), "x")
    assert (programs / "called").read_text().split() == ["-S", "--build", "--build"]


@pytest.mark.parametrize("content, complaint", [
    (b"<!DOCTYPE html><html>", "is a web page: use the /resolve/ link"),
    (b"version https://git-lfs.github.com/spec/v1\n", "run git lfs pull"),
    (b"", "is empty"),
    (b"FUGG\0\0\0\3", "is big-endian, expected a little-endian GGUF file"),
    (b"tjgg....", "is a GGML file from before GGUF"),
    (b"PK\3\4....", "is an archive or a compressed file"),
    (b"\0\1AB", 'begins with "\\x00\\x01AB", expected "GGUF"'),
    (None, "No such file"),
])
def test_a_file_that_is_no_model_is_refused_in_one_line(content, complaint, programs, tmp_path):
    script(programs / "cmake", FAKE_CMAKE)
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    result = minfer("run", "--chapter", "oracle", "--model", str(path), "hello")
    assert result.returncode == 1
    line = result.stderr.splitlines()[-1]
    assert str(path) in line and complaint in line


def test_a_build_that_fails_shows_why_and_where(programs, tiny_model):
    script(programs / "cmake", 'case "$1" in --build) echo "a.cpp:1: error: no such thing"; exit 3;; '
           '*) while [ "$1" != -B ]; do shift; done; mkdir -p "$2";; esac\n')
    result = minfer("tokenize", "--model", str(tiny_model), "x")
    assert result.returncode == 1
    assert "a.cpp:1: error: no such thing" in result.stderr
    log = re.search(r"the build failed \(exit status 3\): a.cpp:1: error: no such thing; all of its output: (\S+)",
                    result.stderr)
    assert "no such thing" in Path(log[1]).read_text()


@pytest.mark.parametrize("number, status, last", [(signal.SIGINT, 130, "minfer: interrupted"),
                                                  (signal.SIGTERM, 143, "minfer: terminated"),
                                                  (signal.SIGHUP, 129, "minfer: terminated")])
def test_a_build_ends_with_the_command_and_so_does_what_it_started(number, status, last, programs, tiny_model):
    script(programs / "sleeper", f"echo $$ >{programs}/pid\nmv {programs}/pid {programs}/started\nexec sleep 60\n")
    script(programs / "cmake", "sleeper\ntrue\n")
    heard = lambda: signal.signal(number, signal.SIG_DFL)  # noqa: E731 - also where the tests run under nohup
    process = subprocess.Popen([sys.executable, ROOT / "minfer", "tokenize", "--model", tiny_model, "x"],
                               stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    while not (programs / "started").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said.splitlines()[-1]) == (status, last)
    assert "Traceback" not in said
    sleeper = Path("/proc", (programs / "started").read_text().strip(), "stat")
    for _ in range(100):
        if not sleeper.exists() or sleeper.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("what the build started goes on")


# --- which chapter runs


GPU = gpu.Gpu("NVIDIA Test", 87, 8 << 30, (12, 6))
OLD_GPU = gpu.Gpu("NVIDIA Old", 75, 8 << 30, (12, 6))


@pytest.fixture
def book(tmp_path, monkeypatch) -> list[chapters.Chapter]:
    """A book of four chapters, two of them for the GPU."""
    for name, source in (("00-roofline", "roofline.cu"), ("01-reference", "engine.cpp"),
                         ("02-naive", "engine.cu"), ("03-warp-gemv", "engine.cu")):
        folder = tmp_path / "chapters" / name
        folder.mkdir(parents=True)
        for file in ("CMakeLists.txt", source):
            (folder / file).touch()
    (tmp_path / "chapters" / "notes").mkdir()
    found = chapters.discover(tmp_path)
    monkeypatch.setattr(chapters, "discover", lambda: found)
    return found


def machine(monkeypatch, device: gpu.Gpu | None, nvcc: str | None = None) -> None:
    monkeypatch.setattr(gpu, "find", lambda: device)
    monkeypatch.setattr(gpu, "nvcc", lambda: nvcc)


def test_chapters_are_the_folders_in_order(book):
    assert [(c.number, c.slug, c.on_gpu) for c in book] == [
        (0, "roofline", True), (1, "reference", False), (2, "naive", True), (3, "warp-gemv", True)]


@pytest.mark.parametrize("name", ["3", "03", "warp-gemv", "03-warp-gemv"])
def test_a_chapter_has_four_names(book, name):
    assert chapters.find(name, book).name == "03-warp-gemv"
    assert chapters.find("oracle", book).name == "01-reference"


@pytest.mark.parametrize("device, nvcc, target, why", [
    (None, "nvcc", "reference", "no GPU here: running the CPU oracle"),
    (GPU, None, "reference", "NVIDIA Test, but no nvcc to build for it"),
    (OLD_GPU, "nvcc", "reference", "NVIDIA Old is sm_75, and minfer needs sm_80 or newer"),
    (GPU, "nvcc", "warp-gemv", ""),
])
def test_the_newest_chapter_that_runs_here(book, monkeypatch, device, nvcc, target, why):
    machine(monkeypatch, device, nvcc)
    choice = run.choose(None, "auto")
    assert choice.target == target
    assert why in choice.why


def test_what_answers_is_the_fastest_that_was_measured_or_the_newest(book):
    assert chapters.fastest_on_gpu(chapters.find_chapters(ROOT)).slug == chapters.FASTEST
    assert chapters.fastest_on_gpu(book) == chapters.newest_on_gpu(book)


def test_a_gpu_without_a_gpu_chapter_says_so(book, monkeypatch):
    machine(monkeypatch, GPU, "nvcc")
    monkeypatch.setattr(chapters, "discover", lambda: book[:2])
    choice = run.choose(None, "auto")
    assert choice.target == "reference" and "has no GPU chapter" in choice.why


@pytest.mark.parametrize("chapter, device, complaint, status", [
    ("02", "auto", "no GPU here; --device emulator runs it on the CPU", 1),
    ("02", "gpu", "no GPU here", 1),
    (None, "gpu", "no GPU here", 1),
    ("01", "gpu", "01-reference runs on the CPU", 2),
    ("01", "emulator", "01-reference has no GPU code to emulate", 2),
    ("00", "auto", "00-roofline measures the machine and runs no model", 2),
])
def test_what_cannot_run_is_said(book, monkeypatch, chapter, device, complaint, status):
    machine(monkeypatch, None)
    with pytest.raises(Failure, match=re.escape(complaint)) as failure:
        run.choose(chapter, device)
    assert failure.value.status == status


def test_the_emulator_needs_no_gpu(book, monkeypatch):
    machine(monkeypatch, None)
    assert run.choose("2", "emulator").target == "naive-emulated"
    assert run.choose(None, "emulator").target == "warp-gemv-emulated"


def test_the_gpu_that_is_there_is_built_for(monkeypatch):
    machine(monkeypatch, GPU, "/opt/cuda/nvcc")
    options = build.default_options(GPU)
    assert options["CMAKE_CUDA_ARCHITECTURES"] == "87"
    assert options["CMAKE_CUDA_COMPILER"] == "/opt/cuda/nvcc"


# --- installing


ABSENT = system.Need("Frobnicator", "libfrob-dev", lambda: False)
PRESENT = system.Need("Python", "python3", lambda: True)


@pytest.fixture
def apt(programs, tmp_path, monkeypatch) -> Path:
    """An apt-get that writes its words down and installs by making a file; a machine with package lists."""
    log = programs / "called"
    script(programs / "apt-get", f'echo "apt-get $*" >>{log}\n[ -e {programs}/broken ] && '
           f'{{ rm {programs}/broken; echo "E: Unable to locate package"; exit 100; }}\n'
           f'for last in "$@"; do :; done\n[ "$last" = update ] || touch {programs}/installed\n')
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "main_Packages").touch()
    monkeypatch.setattr(system.Apt, "LISTS", str(lists))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return log


def need_made_by(programs: Path) -> system.Need:
    return system.Need("Frobnicator", "libfrob-dev", (programs / "installed").exists)


def apt_calls(log: Path) -> list[str]:
    return [re.sub(r" -o \S+| -y| --no-install-recommends", "", line)
            for line in log.read_text().splitlines()]


def test_nothing_is_asked_of_apt_when_all_is_there(apt, tmp_path):
    assert system.ensure([PRESENT], tmp_path) is False
    assert not apt.exists()


def test_what_is_missing_is_named_then_installed(apt, programs, tmp_path, capfd):
    assert system.ensure([PRESENT, need_made_by(programs)], tmp_path) is True
    assert apt_calls(apt) == ["apt-get install libfrob-dev"]
    assert "installing: libfrob-dev (apt-get install)" in capfd.readouterr().err


def test_what_only_would_be_good_is_installed_along(apt, programs, tmp_path):
    better = system.Need("Better", "libbetter-dev", lambda: False)
    assert system.ensure([PRESENT], tmp_path, also=[better]) is False
    assert system.ensure([need_made_by(programs)], tmp_path, also=[better, PRESENT]) is True
    assert apt_calls(apt) == ["apt-get install libfrob-dev libbetter-dev"]


def test_missing_package_lists_are_fetched_first(apt, programs, tmp_path):
    next((tmp_path / "lists").iterdir()).unlink()
    system.ensure([need_made_by(programs)], tmp_path)
    assert apt_calls(apt) == ["apt-get update", "apt-get install libfrob-dev"]


def test_old_package_lists_are_refreshed_and_the_install_tried_again(apt, programs, tmp_path):
    (programs / "broken").touch()
    system.ensure([need_made_by(programs)], tmp_path)
    assert apt_calls(apt) == ["apt-get install libfrob-dev", "apt-get update", "apt-get install libfrob-dev"]


def test_an_install_that_changes_nothing_is_a_failure(apt, tmp_path):
    with pytest.raises(Failure, match="still missing after installing libfrob-dev: Frobnicator"):
        system.ensure([ABSENT], tmp_path)


def test_no_install_only_lists(apt, tmp_path):
    with pytest.raises(Failure, match=r"missing: Frobnicator \(libfrob-dev\); run without --no-install"):
        system.ensure([ABSENT], tmp_path, install=False)
    assert not apt.exists()


def test_a_system_without_apt_is_told_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match=r"missing: Frobnicator \(libfrob-dev\); install them with this system's"):
        system.ensure([ABSENT], tmp_path)


def test_a_user_without_sudo_is_told_the_command(apt, programs, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(Failure, match="as root: apt-get install libfrob-dev"):
        system.ensure([ABSENT], tmp_path)


def test_a_user_installs_through_sudo(apt, programs, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    script(programs / "sudo", f'echo sudo >>{apt}\n[ "$1" = -n ] && shift\nexec "$@"\n')
    system.ensure([need_made_by(programs)], tmp_path)
    assert apt_calls(apt) == ["sudo", "sudo", "apt-get install libfrob-dev"]  # first: whether it asks
    assert "(sudo -n apt-get install)" in capfd.readouterr().err


def test_sudo_that_needs_a_password_and_has_no_terminal(apt, programs, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    script(programs / "sudo", "exit 1\n")
    with pytest.raises(Failure, match="no terminal to type it: sudo apt-get install libfrob-dev"):
        system.ensure([ABSENT], tmp_path)


def test_every_need_of_this_machine_is_found_or_named():
    for need in (*system.BUILD_NEEDS, *system.FETCH_NEEDS, *system.PYTHON_NEEDS, *system.TEST_NEEDS,
                 *system.OPTIONAL_NEEDS):
        assert need.found() in (True, False)
        assert re.fullmatch(r"[a-z0-9+.-]+", need.apt)


def test_pip_without_a_network_says_so(tmp_path, monkeypatch):
    requirements = tmp_path / "some" / "requirements.txt"
    requirements.parent.mkdir()
    requirements.write_text("# SPDX\nno-such-package-of-ours==1.0\n")
    monkeypatch.setattr(venv, "python", lambda: Path(sys.executable))
    for name, value in (("PIP_INDEX_URL", "http://127.0.0.1:9/simple"), ("PIP_RETRIES", "1"),
                        ("PIP_NO_CACHE_DIR", "1"), ("PIP_CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(name, value)
    with pytest.raises(Failure, match="the Python package index can't be reached") as failure:
        venv.pip_install(requirements, tmp_path / "pip.log")
    assert "\n" not in str(failure.value)


def test_an_environment_is_ready_only_for_the_requirements_it_has(tmp_path, monkeypatch):
    monkeypatch.setattr(venv, "location", lambda: tmp_path / "venv")
    requirements = tmp_path / "tools" / "requirements.txt"
    requirements.parent.mkdir()
    requirements.write_text("numpy==1\n")
    script(venv.python(), "true\n")
    assert not venv.is_ready(requirements)
    venv.stamp(requirements).write_text(venv.wanted(requirements))
    assert venv.is_ready(requirements)
    requirements.write_text("numpy==2\n")
    assert not venv.is_ready(requirements)


def test_an_environment_that_was_copied_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(venv, "location", lambda: tmp_path / "one" / ".venv")
    script(venv.python(), "true\n")
    venv.stamp(venv.TOOLS).write_text(venv.wanted(venv.TOOLS))
    assert venv.is_ready(venv.TOOLS) and venv.works()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    monkeypatch.setattr(venv, "location", lambda: tmp_path / "two" / ".venv")
    assert not venv.is_ready(venv.TOOLS) and not venv.works()


def test_pip_installs_in_the_environment_whatever_the_user_has_set(tmp_path, monkeypatch):
    script(tmp_path / "python", f'echo "$@" >{tmp_path}/called\n')
    monkeypatch.setattr(venv, "python", lambda: tmp_path / "python")
    venv.pip_install(venv.TOOLS, tmp_path / "pip.log")
    assert "--no-user" in (tmp_path / "called").read_text().split()


def test_the_names_of_packages_are_said_once():
    assert venv.package_names(venv.TOOLS) == ["gguf", "huggingface_hub", "numpy", "tqdm"]


# --- smaller parts


def test_output_is_kept_and_its_telling_part_shown(tmp_path, capfd):
    program = script(tmp_path / "program", "seq 1 100\necho 'x.cpp: error: bad'\nseq 1 30\nexit 7\n")
    with pytest.raises(Failure, match=r"it failed \(exit status 7\): x\.cpp: error: bad; all of its output: "):
        console.run_logged([program], tmp_path / "log", "it", shown=25)
    shown = capfd.readouterr().err.split("\n")
    assert shown[0] == "  x.cpp: error: bad" and len(shown) == 26
    assert len((tmp_path / "log").read_text().splitlines()) == 132


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(Failure, match="it failed: no-such-program-of-ours: No such file"):
        console.run_logged(["no-such-program-of-ours"], tmp_path / "log", "it")


def test_the_model_comes_from_the_option_then_from_the_variable(tmp_path, tiny_model, monkeypatch):
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    monkeypatch.setenv("MODEL", str(other))
    assert models.find(str(tiny_model)) == tiny_model
    assert models.find(None) == other
    monkeypatch.setenv("MODEL", "")
    with pytest.raises(Failure, match="^--model: found nothing") as empty:
        models.find("")
    assert empty.value.status == 2


def test_a_name_is_a_name_whatever_files_there_are(tmp_path, monkeypatch):
    (tmp_path / "coder-0.5b").write_bytes(b"no model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache, "find", lambda model: Path("cached") / model.name)
    assert models.find("coder-0.5b") == Path("cached/coder-0.5b")
    monkeypatch.setenv("MODEL", "coder-0.5b")
    assert models.find(None) == Path("cached/coder-0.5b")
    with pytest.raises(Failure, match="coder-0.5b"):
        models.find("./coder-0.5b")


def test_doctor_agrees_with_what_is_missing():
    result = minfer("doctor")
    missing = system.missing(system.BUILD_NEEDS)
    assert result.returncode == (1 if missing else 0)
    for word in ("CPU", "SIMD", "memory", "GPU", "compiler", "CMake", "cache"):
        assert re.search(rf"^{word}\b", result.stdout, re.M)


@pytest.mark.parametrize("words", [("chapters",), ("model",), ("diff", "05", "06"), ("diff", "05", "06", "--stat")])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_and_a_reader_who_has_gone(words, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, ROOT / "minfer", *words], stdout=full, stderr=subprocess.PIPE,
                              text=True, env=environment)
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr
    gone = subprocess.run(["bash", "-c", f"{sys.executable} {ROOT}/minfer {' '.join(words)} | true; exit ${{PIPESTATUS[0]}}"],
                          capture_output=True, text=True, env=environment)
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "", "")


def test_the_presets_are_valid():
    result = subprocess.run(["cmake", "--list-presets"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert re.findall(r'^  "([a-z-]+)"', result.stdout, re.M) == ["cpu", "asan", "jetson-orin", "desktop", "ci"]


def test_the_readme_maps_the_chapters_that_are_here():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    there = re.findall(r"^- \*\*\[.*\]\(chapters/([\w-]+)/README\.md\)\.", text, re.M)
    planned = re.findall(r"^- (\d\d-[\w-]+): ", text, re.M)
    assert there == [c.name for c in chapters.discover()]
    assert planned == sorted(planned) and not {name[:2] for name in planned} & {name[:2] for name in there}


def test_the_sites_builder_without_sphinx_says_so_and_still_has_its_help(tmp_path):
    python = [sys.executable, "-S", ROOT / "docs" / "build.py"]  # -S: no installed packages
    done = subprocess.run([*python, tmp_path / "site"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"docs/build\.py: \w+ is not installed \(.*\)\n", done.stderr)
    helped = subprocess.run([*python, "--help"], capture_output=True, text=True, timeout=60)
    assert helped.returncode == 0 and "--no-epub" in helped.stdout
