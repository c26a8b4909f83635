# SPDX-License-Identifier: MIT
"""The command line of a chapter's program, on a small synthetic model: what it answers, what it refuses
and how, and how it ends."""

import json
import os
import pty
import re
import resource
import select
import signal
import stat
import subprocess
import termios
import time
from pathlib import Path

import numpy as np
import pytest

from cli import VERSION
from cli.build import usable_cpus
from minfer_tools import cache, catalogue, gguf_file, synthetic

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MINFER_BUILD_DIR", ROOT / "build"))
PROGRAM = BUILD / "reference"
VARIABLES = "SPEC LMHEAD KVQ ATTN RAWIDS MSTEP BENCHT TEACHER TCHUNK MODEL".split()
CLEAN = {name: value for name, value in os.environ.items() if name not in VARIABLES}

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "tiny-a.gguf"
    synthetic.make(path, synthetic.PRESETS["tiny-a"])
    return path


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory) -> Path:
    """A model that takes milliseconds a token, to be interrupted."""
    path = tmp_path_factory.mktemp("cli") / "slow.gguf"
    shape = {"n_layers": 32, "d_ff": 1024, "context": 32768}
    synthetic.make(path, synthetic.overridden(synthetic.PRESETS["tiny-a"], shape))
    return path


def program(*words, stdin: str | None = None, env: dict | None = None, **kwargs):
    text = kwargs.pop("text", True)
    kwargs.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([PROGRAM, *map(str, words)], input=stdin, stderr=subprocess.PIPE, text=text,
                          env={**CLEAN, **(env or {})}, timeout=60, **kwargs,
                          **({} if stdin is not None else {"stdin": subprocess.DEVNULL}))


def ids_of(result) -> list[int]:
    assert result.returncode == 0, result.stderr
    return [int(word) for word in result.stdout.split()]


def refused(result, status: int, *parts: str) -> None:
    """One line on standard error with these parts, nothing on standard output."""
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr  # so no engine was made before
    assert result.stderr.startswith("reference: ")
    for part in parts:
        assert part in result.stderr


# --- forms and options


def test_the_specifications_form_gives_text_or_ids(model):
    ids = ids_of(program(model, 6, 1, 2, 3, env={"RAWIDS": "1"}))
    assert len(ids) <= 6
    text = program(model, 6, 1, 2, 3)
    assert text.returncode == 0
    assert ids_of(program(model, 6, 1, 2, 3, "--print-ids")) == ids
    shown = [i for i in ids if i not in stop_ids(model)]
    assert text.stdout == program("detokenize", "--model", model, *shown).stdout


def stop_ids(model) -> list[int]:
    named = program("tokenize", "--special", "--model", model, "<|im_end|><|endoftext|>")
    return ids_of(named)


def test_every_way_to_give_a_prompt_is_the_same(model):
    text = "the sea"
    words = ("--model", model, "-n", 5, "--print-ids")
    expected = ids_of(program("run", *words, text))
    assert ids_of(program("run", *words, "--", text)) == expected
    assert ids_of(program("run", *words, "-", stdin=text)) == expected
    assert ids_of(program("run", *words, "-", stdin=text + "\n")) == expected
    assert ids_of(program("run", *words[2:], text, env={"MODEL": str(model)})) == expected


def test_raw_leaves_the_template_out(model):
    ids = program("tokenize", "--model", model, "the sea").stdout
    words = ("--model", model, "-n", 5, "--print-ids")
    by_ids = ids_of(program("run", *words, "--prompt-ids", ids))
    assert ids_of(program("run", *words, "--raw", "the sea")) == by_ids
    with_template = int(re.search(r"prompt: (\d+) token", program("run", *words, "the sea").stderr)[1])
    assert with_template > len(ids.split())


def test_a_system_message_is_part_of_the_prompt(model):
    def n_prompt(*words):
        shown = program("run", "--model", model, "-n", 1, *words, "hi").stderr
        return int(re.search(r"prompt: (\d+) token", shown)[1])

    assert n_prompt("--system", "be brief, be very brief, and then be briefer still, "
                    "as brief as the briefest of all that is brief") > n_prompt("--system", "x")


def test_a_special_tokens_name_is_text_unless_told_otherwise(model):
    plain = program("tokenize", "--model", model, "<|im_end|>").stdout.split()
    special = program("tokenize", "--special", "--model", model, "<|im_end|>").stdout.split()
    assert len(special) == 1
    assert special[0] not in plain
    assert program("detokenize", "--model", model, *special).stdout == "<|im_end|>\n"


@pytest.mark.parametrize("text", ["", "\n", "two\nlines\n", "n\u00e4h \u4e2d\u6587 \U0001f600", "  "])
def test_tokenize_and_detokenize_are_inverse(model, text):
    ids = program("tokenize", "--model", model, "-", stdin=text)
    assert ids.stdout.count("\n") == 1
    assert program("detokenize", "--model", model, *ids.stdout.split()).stdout == text + "\n"


def test_version_is_the_projects():
    shown = program("--version")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[0] == f"minfer {VERSION} (reference)"


def test_the_program_says_how_it_was_built(model):
    """As its build folder has it, so that it can be carried without that."""
    said = dict(line.strip().split(": ", 1) for line in program("--version").stdout.splitlines()[1:])
    cache = (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
    assert f"CMAKE_BUILD_TYPE:STRING={said['CMAKE_BUILD_TYPE']}\n" in cache
    compiler, version = said["compiler"].split(" ")
    found = "".join(path.read_text() for path in BUILD.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"))
    assert f'CMAKE_CXX_COMPILER_ID "{compiler}")' in found and f'CMAKE_CXX_COMPILER_VERSION "{version}")' in found
    assert "\nCMAKE_CXX_FLAGS:STRING=\n" not in cache or "CMAKE_CXX_FLAGS" not in said  # what is not set is left out
    bench = program("bench", "--model", model, "-p", "0", "-n", "1", "-r", "1", "-o", "jsonl")
    assert json.loads(bench.stdout)["build"] == said


def test_help_says_what_becomes_of_standard_inputs_last_newline():
    assert "- reads it from standard input, where a newline at its end is left out\n" in program("run", "--help").stdout
    assert "- reads it from standard input, whole\n" in program("tokenize", "--help").stdout


@pytest.mark.parametrize("command", [(), ("run",), ("chat",), ("tokenize",), ("detokenize",), ("dump",)])
def test_help_has_examples(command):
    shown = program(*command, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Example" in shown.stdout


@pytest.mark.parametrize("command", [(), ("run",), ("chat",), ("bench",)])
def test_help_names_the_options_that_the_engine_has(command):
    shown = program(*command, "--help").stdout
    assert "--tchunk N                  tokens in a teacher-forced step (also: TCHUNK)\n" in shown
    assert "--lmhead" not in shown


# --- refusals


@pytest.mark.parametrize("words, part", [
    ((), "expected MODEL N IDS..."),
    (("nonsense",), "'nonsense'"),
    (("M", "x", "1"), "N: found 'x', expected a whole number"),
    (("M", "-4", "1"), "-4"),
    (("M", "4", "one"), "IDS: found 'one'"),
    (("M", "4", "1", "-2"), "-2"),
    (("M", "4", "1", "2.5"), "IDS: found '2.5'"),
    (("M", "4", "99999999999999999999"), "IDS: found '99999999999999999999'"),
    (("M", "4", "4096000"), "token id 4096000: the model's tokens are 0 to"),
    (("run", "--model", "M", "-n", "-1", "hi"), "-n: found '-1'"),
    (("run", "--model", "M", "-n", "x", "hi"), "-n: found 'x'"),
    (("run", "--model", "M", "-n", "", "hi"), "-n: found ''"),
    (("run", "--model", "M", "-c", "0", "hi"), "-c: found '0'"),
    (("run", "--model", "M", "-c", "-8", "hi"), "-c: found '-8'"),
    (("run", "--model", "M", "--threads", "0", "hi"), "--threads: found '0'"),
    (("run", "--model", "M", "--threads", "100000", "hi"), "--threads: found '100000'"),
    (("run", "--model", "M", "--tchunk", "0", "hi"), "--tchunk (TCHUNK): found '0'"),
    (("run", "--model", "M", ""), "the prompt is empty"),
    (("run", "--model", "M", "--prompt-ids", " , "), "no prompt ids"),
    (("run", "--model", "M"), "give one of PROMPT"),
    (("run", "--model", "M", "--prompt-ids", "1", "hi"), "give one of PROMPT"),
    (("run", "--model", "M", "--special", "hi"), "--special: needs --raw"),
    (("run", "--model", "M", "--raw", "--system", "x", "hi"), "--system: is part of the chat template, which --raw"),
    (("run", "--model", "M", "--prompt-ids", "1", "--system", "x"), "which --raw and --prompt-ids leave out"),
    (("run", "--model", "M", "-c", "64", "-c", "32", "hi"), ": -c,--context: given 2 times, expected once"),
    (("run", "--model", "M", "-c", "64", "--context", "32", "hi"), "-c,--context: given 2 times"),
    (("bench", "--model", "M", "-n", "1", "-n", "2", "-n", "3"), ": -n: given 3 times, expected once"),
    (("M", "4", "1", "-c", "3", "-c", "4"), ": -c,--context: given 2 times"),
    (("run", "--model", "M", "hi", "-c"), ": -c,--context: found no value, expected one"),
    (("bench", "--model", "M", "-o", "csv"), ": -o: csv not in {md,jsonl}"),
    (("run", "--model", "M", "hi", "there"), "there"),
    (("run", "--model", "M", "--spec", "1", "hi"), "--spec: reference has no such option"),
    (("run", "--model", "M", "--teacher", "0", "--prompt-ids", "1"), "--teacher: found '0'"),
    (("run", "--model", "M", "--teacher", "3", "--prompt-ids", "1 2"), "found 3, but there are only 2"),
    (("run", "hi"), "no model"),
    (("tokenize", "--model", "M"), "give a TEXT"),
    (("dump", "--model", "M", "--stop-after", "q_turn", "hi"), "--stop-after: found 'q_turn'"),
    (("dump", "--model", "M", "--stop-after", "q", "--layer", "9", "hi"), "--layer: found 9"),
])
def test_wrong_usage_is_one_line_and_status_2(model, words, part):
    refused(program(*(model if word == "M" else word for word in words)), 2, part)


def test_an_empty_standard_input_is_an_empty_prompt(model):
    refused(program("run", "--model", model, "-", stdin=""), 2, "the prompt is empty")


def test_files_that_are_no_models_fail_with_one_line(model, tmp_path):
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html><html></html>")
    refused(program("run", "--model", page, "hi"), 1, str(page))
    refused(program("run", "--model", tmp_path / "missing.gguf", "hi"), 1, "missing.gguf")
    refused(program("tokenize", "--model", tmp_path, "hi"), 1, "directory")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:-1])
    refused(program(cut, 1, 1), 1, "cut.gguf")


@pytest.mark.parametrize("words", [("run", "hi"), ("chat",)])
def test_a_template_that_is_not_rendered_exactly_is_refused(model, tmp_path, words):
    template = ("{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content.split('</think>')[-1]"
                " + '<|im_end|>\\n' -}}{%- endfor -%}{{- '<|im_start|>assistant\\n' -}}")
    source, path = gguf_file.Reader(model), tmp_path / "think.gguf"
    key = "tokenizer.chat_template"
    pairs = [gguf_file.string(key, template) if pair.key == key else pair for pair in source.pairs]
    with path.open("wb") as file:
        gguf_file.write(file, pairs, source.tensors, source.read)
    refused(program(*words, "--model", path, **({} if "hi" in words else {"stdin": "hi\n"})), 1,
            f'{path}: key "{key}" has the field "split" in ', "which is not rendered here; run --raw")
    assert program("run", "--raw", "--model", path, "-n", 1, "hi").returncode == 0


def test_an_option_the_engine_lacks_is_ignored_in_the_environment(model):
    result = program("run", "--model", model, "-n", 1, "hi", env={"SPEC": "1", "LMHEAD": "nonsense"})
    assert result.returncode == 0
    assert "SPEC is set in the environment" in result.stderr
    assert "LMHEAD is set in the environment" in result.stderr


def test_an_option_it_has_is_checked_in_the_environment(model):
    refused(program("run", "--model", model, "hi", env={"TCHUNK": "many"}), 2, "TCHUNK", "'many'")
    refused(program(model, 1, 1, env={"TEACHER": "x"}), 2, "--teacher: found 'x'")


def test_variables_of_other_commands_leave_a_conversation_alone(model):
    words = ("chat", "--model", model, "-n", 6)
    expected = program(*words, stdin="hi\n").stdout
    assert program(*words, stdin="hi\n", env={"RAWIDS": "1", "TEACHER": "1"}).stdout == expected


def test_more_threads_than_memory_has_room_for_are_refused(model):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    refused(program("run", "--model", model, "--threads", 1024, "hi", preexec_fn=limit), 1,
            "cannot start 1024 threads")


def test_an_engine_has_as_many_threads_as_cpus_are_usable(model):
    def threads(**kwargs) -> int:
        return int(re.search(r"CPU, fp32, (\d+) thread", program("run", "--model", model, "-n", 1, "hi", **kwargs).stderr)[1])

    first = min(os.sched_getaffinity(0))
    assert threads() == usable_cpus()
    assert threads(preexec_fn=lambda: os.sched_setaffinity(0, {first})) == 1


# --- lengths


def test_no_new_tokens_are_nothing(model):
    result = program("run", "--model", model, "-n", 0, "hi")
    assert (result.returncode, result.stdout) == (0, "")
    assert (program(model, 0, 1).returncode, program(model, 0, 1).stdout) == (0, "")


def test_a_prompt_longer_than_the_context_is_refused_with_both_counts(model):
    refused(program("run", "--model", model, "-c", 3, "--prompt-ids", "1 2 3 4"), 1,
            "the prompt has 4 tokens, the context 3")


def test_decoding_stops_at_the_contexts_end_and_says_so(model):
    result = program("run", "--model", model, "-c", 12, "--ignore-eos", "-n", 2000000000, "--print-ids",
                     "--prompt-ids", "1 2 3")
    assert len(ids_of(result)) == 10  # 3 + 9 are consumed, the tenth has no successor
    assert "the context of 12 tokens is full" in result.stderr
    full = program("run", "--model", model, "-c", 3, "--ignore-eos", "--print-ids", "--prompt-ids", "1 2 3")
    assert len(ids_of(full)) == 1


def test_a_context_beyond_the_models_is_capped(model):
    result = program("run", "--model", model, "-c", 2000000000, "-n", 1, "hi")
    assert result.returncode == 0
    assert re.search(r"-c 2000000000: the model's limit is \d+, which is used", result.stderr)


# --- teacher forcing


def teacher(model, k, ids, *words, **env):
    result = program("run", "--model", model, "--teacher", k, "--prompt-ids", " ".join(map(str, ids)),
                     *words, env=env)
    assert result.returncode == 0, result.stderr
    *rows, last = result.stdout.splitlines()
    match = re.fullmatch(r"logits-hash ([0-9a-f]{16}) rows (\d+)", last)
    assert int(match[2]) == len(rows)
    return [(int(p), int(t), float(m)) for p, t, m in map(str.split, rows)], match[1]


def test_teacher_forcing_predicts_what_decoding_emits(model):
    prompt = [5, 6, 7, 8]
    answer = ids_of(program("run", "--model", model, "-n", 8, "--ignore-eos", "--print-ids",
                            "--prompt-ids", "5 6 7 8"))
    rows, _ = teacher(model, len(prompt), prompt + answer)
    assert [position for position, _, _ in rows] == list(range(3, 12))
    assert [token for _, token, _ in rows[:-1]] == answer
    assert all(margin >= 0 for _, _, margin in rows)


def test_the_hash_does_not_depend_on_how_it_is_computed(model):
    ids = [(7 * i) % 50 for i in range(40)]
    expected = teacher(model, 5, ids)
    for chunk in (1, 2, 3, 8, 100):
        assert teacher(model, 5, ids, "--tchunk", chunk) == expected
        assert teacher(model, 5, ids, TCHUNK=str(chunk)) == expected
    for threads in (1, 2, 3, 7):
        assert teacher(model, 5, ids, "--threads", threads) == expected
    assert teacher(model, 5, ids, "--no-mmap") == expected
    by_variable = program(model, 0, *ids, env={"TEACHER": "5"})
    assert by_variable.stdout.endswith(f"logits-hash {expected[1]} rows 36\n")
    assert teacher(model, 5, ids[:-1] + [1])[1] != expected[1]  # the last id counts


def test_the_logits_are_those_of_the_predictions(model, tmp_path):
    ids, file = [5, 6, 7, 8, 9], tmp_path / "logits.npy"
    rows, _ = teacher(model, 2, ids, "--logits", file)
    logits = np.load(file)
    assert logits.dtype == np.float32 and logits.shape == (4, 480)
    assert logits.argmax(axis=1).tolist() == [token for _, token, _ in rows]
    first, second = np.sort(logits)[:, :-3:-1].T
    assert (first - second).tolist() == pytest.approx([margin for _, _, margin in rows])
    refused = program("run", "--model", model, "--logits", file, "hi")
    assert refused.returncode == 2
    assert refused.stderr == "reference: --logits: they are those of --teacher, which is not given (see --help)\n"


HASHES = json.loads((ROOT / "tests" / "oracle" / "hashes.json").read_text())


@pytest.mark.parametrize("preset", sorted(HASHES))
def test_synthetic_models_have_their_committed_hash(preset, tmp_path):
    path = tmp_path / f"{preset}.gguf"
    synthetic.make(path, synthetic.PRESETS[preset])
    case = HASHES[preset]
    rows, digest = teacher(path, case["k"], case["ids"])
    assert [token for _, token, _ in rows] == case["argmax"]
    assert digest == case["hash"]


# --- dump


def test_dump_writes_text_and_npy_alike(model, tmp_path):
    words = ("dump", "--model", model, "--stop-after", "q_rope", "--layer", 1, "--prompt-ids", "1 2 3")
    text = program(*words)
    assert text.returncode == 0
    rows = np.array([line.split() for line in text.stdout.splitlines()], dtype=np.float32)
    out = tmp_path / "q.npy"
    assert program(*words, "--output", out).returncode == 0
    assert np.array_equal(np.load(out), rows)
    assert rows.shape[0] == 3
    assert not list(tmp_path.glob("*.partial"))


def test_dump_of_a_long_prompt_has_a_row_for_every_token(model):
    ids = [i % 50 for i in range(250)]
    words = ("dump", "--model", model, "--stop-after", "ffn_add", "--layer", 0)
    long = program(*words, "--prompt-ids", " ".join(map(str, ids)))
    assert len(long.stdout.splitlines()) == 250
    short = program(*words, "--prompt-ids", " ".join(map(str, ids[:7])))
    assert long.stdout.splitlines()[:7] == short.stdout.splitlines()


def test_dump_that_can_not_be_written_fails(model, tmp_path):
    words = ("dump", "--model", model, "--stop-after", "embed", "--prompt-ids", "1")
    missing = program(*words, "--output", tmp_path / "no" / "x.npy")
    assert missing.returncode == 1 and missing.stdout == ""
    assert "x.npy: cannot write: No such file" in missing.stderr.splitlines()[-1]


def test_dump_of_what_stands_in_no_layer(model):
    words = ("dump", "--model", model, "--stop-after", "embed", "--layer", "1", "--prompt-ids", "1")
    result = program(*words)
    assert result.returncode == 2 and result.stdout == ""
    assert "--layer: 'embed' stands in no layer but 0" in result.stderr.splitlines()[-1]


def test_dump_writes_to_what_is_no_file_and_does_not_replace_it(model, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ("dump", "--model", model, "--stop-after", "embed", "--prompt-ids", "1")
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert program(*words, "--output", pipe).returncode == 0
        assert reader.stdout.read().startswith(b"\x93NUMPY")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and not list(tmp_path.glob("*.partial"))
    if Path("/dev/full").is_char_device():
        full = tmp_path / "full"
        full.symlink_to("/dev/full")
        result = program(*words, "--output", full)
        assert result.returncode == 1
        assert "full: cannot write: No space left on device" in result.stderr.splitlines()[-1]
        assert full.is_symlink()


# --- how it ends


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("run", "--help")])
def test_help_on_a_full_disk(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=CLEAN)
    assert done.returncode == 1
    assert done.stderr == "reference: cannot write standard output: No space left on device\n"


def test_a_full_disk_is_one_line_and_status_1(model):
    with open("/dev/full", "w") as full:
        result = program("run", "--model", model, "-n", 4, "hi", stdout=full)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "reference: cannot write standard output: No space left on device")


def a_file_of_at_most(n: int):
    """What a program does first, to be under a limit on the size of files (`ulimit -f`)."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))


@pytest.mark.parametrize("n", [0, 100, 1024])
def test_dump_beyond_the_file_size_limit_leaves_nothing_half_written(model, tmp_path, n):
    words = ("dump", "--model", model, "--stop-after", "embed", "--prompt-ids", "1 2 3")
    old = tmp_path / "old.npy"
    old.write_bytes(b"kept")
    for path in (old, tmp_path / "new.npy"):
        result = program(*words, "--output", path, preexec_fn=a_file_of_at_most(n))
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1] == f"reference: {path}: cannot write: File too large"
    assert list(tmp_path.iterdir()) == [old] and old.read_bytes() == b"kept"


@pytest.mark.parametrize("words", [
    ("run", "--model", "MODEL", "--ignore-eos", "-n", 40, "--print-ids", "hi"),
    ("dump", "--model", "MODEL", "--stop-after", "embed", "--prompt-ids", "1"),
    ("tokenize", "--model", "MODEL", "hi " * 100),
    ("--help",),
])
def test_standard_output_beyond_the_file_size_limit_is_one_line_and_status_1(model, tmp_path, words):
    words = [model if word == "MODEL" else word for word in words]
    out = tmp_path / "out"
    with out.open("w") as file:
        result = program(*words, stdout=file, preexec_fn=a_file_of_at_most(20))
    assert result.returncode == 1 and out.stat().st_size == 20
    assert result.stderr.splitlines()[-1] == "reference: cannot write standard output: File too large"


def test_a_reader_that_leaves_ends_it_quietly(model):
    command = f"'{PROGRAM}' run --model '{model}' --ignore-eos -c 2000 --print-ids hi | head -c 1"
    result = subprocess.run(["bash", "-c", command + "; exit ${PIPESTATUS[0]}"], env=CLEAN,
                            capture_output=True, text=True, timeout=60)
    assert result.returncode == 141
    assert "cannot write" not in result.stderr
    # The same where SIGPIPE is ignored, as some parents leave it.
    ignored = subprocess.run(["bash", "-c", f"trap '' PIPE; {command}; exit ${{PIPESTATUS[0]}}"],
                             env=CLEAN, capture_output=True, text=True, timeout=60)
    assert ignored.returncode == 141
    assert "cannot write" not in ignored.stderr


def start(*words, **kwargs):
    return subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=CLEAN, **kwargs)


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_stop_an_answer_with_the_figures(slow_model, number, status):
    running = start("run", "--model", slow_model, "--ignore-eos", "-c", 1000000, "--print-ids", "hi",
                    stdin=subprocess.DEVNULL)
    assert running.stdout.read(1)
    running.send_signal(number)
    out, err = running.communicate(timeout=30)
    assert running.returncode == status
    assert out.endswith(b"\n")
    assert b"decode: " in err and b"interrupted" in err


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("words", [("run", "-"), ("tokenize", "-"), ("chat",)])
def test_they_are_heard_while_standard_input_is_awaited(model, words, number, status):
    running = start(words[0], "--model", model, *words[1:], stdin=subprocess.PIPE)
    if words == ("chat",):
        while b"ready in" not in running.stderr.readline():
            pass
    time.sleep(0.3)
    running.send_signal(number)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err.strip()) == (status, b"", b"")


def test_ctrl_c_is_heard_during_a_long_prompt(slow_model):
    prompt = " ".join(str(i % 50) for i in range(30000))  # a minute and more
    running = start("run", "--model", slow_model, "-c", 32768, "--threads", 1, "--prompt-ids", prompt,
                    stdin=subprocess.DEVNULL)
    while b"ready in" not in running.stderr.readline():
        pass
    time.sleep(0.5)
    begin = time.monotonic()
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == b""
    assert time.monotonic() - begin < 20  # on a busy machine; alone it takes half a second


# --- conversation


class Terminal:
    """The program in a pseudo-terminal of its own, as a person has it. Lines are edited where its kind has the signs
    for that."""

    def __init__(self, *words, kind="xterm"):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = {**CLEAN, "TERM": kind, "LC_ALL": "C", "EDITRC": os.devnull}
            os.execve(PROGRAM, [str(PROGRAM), *map(str, words)], environment)
        self.seen = ""
        self.before = termios.tcgetattr(self.fd)

    def type(self, text: str) -> None:
        data = text.encode(errors="surrogateescape")
        while data:
            self._read()
            if select.select([], [self.fd], [], 0.1)[1]:
                data = data[os.write(self.fd, data[:512]):]

    def _read(self, seconds: float = 0) -> None:
        if select.select([self.fd], [], [], seconds)[0]:
            self.seen += os.read(self.fd, 65536).decode(errors="replace")

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Everything up to and with `text`, which is then forgotten."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"expected {text!r}, found {self.seen!r}"
            try:
                self._read(0.1)
            except OSError as error:
                raise AssertionError(f"it ended; expected {text!r}, found {self.seen!r}") from error
        head, _, self.seen = self.seen.partition(text)
        return head + text

    def ended(self) -> int:
        """The exit status; the terminal's settings must be as they were."""
        _, status = os.waitpid(self.pid, 0)
        after = termios.tcgetattr(self.fd)
        os.close(self.fd)
        assert after == self.before
        return os.waitstatus_to_exitcode(status)


def test_chat_keeps_the_history_and_reads_only_what_is_new(model):
    result = program("chat", "--model", model, "-n", 8, stdin="first\nsecond\nthird\n")
    assert result.returncode == 0
    first, second, third = (int(n) for n in re.findall(r"prompt: (\d+) token", result.stderr))
    assert second < first and third < first  # the system message is not read again
    # A conversation of one message is shorter by what the others add, so those did count.
    alone = program("run", "--model", model, "-n", 1, "third")
    assert int(re.search(r"prompt: (\d+) token", alone.stderr)[1]) == first
    fresh = program("run", "--model", model, "-n", 8, "third").stdout
    assert not result.stdout.endswith(fresh)


KINDS = ("xterm", "dumb")  # with LineEditor and without
CACHE = (BUILD / "CMakeCache.txt").read_text() if PROGRAM.exists() else ""
EDITS = "MINFER_LIBEDIT:BOOL=ON\n" in CACHE and "MINFER_LIBEDIT_LIBRARY:FILEPATH=/" in CACHE
edited = pytest.mark.skipif(not EDITS, reason="built without libedit")


@pytest.mark.terminal
@pytest.mark.parametrize("kind", KINDS)
def test_chat_in_a_terminal_leaves_with_ctrl_d(model, kind):
    chat = Terminal("chat", "--model", model, "-n", 8, kind=kind)
    chat.wait_for("ready in")
    chat.wait_for("\n> ")
    chat.type("n\u00e4h\x7f\x7f\x7fhello\n")  # the terminal takes back whole characters
    assert "hello" in chat.wait_for("decode: ")
    chat.wait_for("\n> ")
    chat.type("\x04")
    assert chat.ended() == 0


def count_of(model, line: str) -> str:
    """What chat says of the conversation that this line begins, which is too long."""
    said = program("chat", "--model", model, "-c", 60, stdin=line + "\n").stderr
    return re.search(r"the conversation has \d+ tokens", said)[0]


LONG = "".join(f"{i} \u00e9\u65e5\U0001f600 a\tb\u00a0c\u00e4 " for i in range(700))  # 18 KB


@edited
@pytest.mark.terminal
@pytest.mark.parametrize("line", [LONG, "x" * 4095, "y" * 100000])
def test_a_long_line_arrives_whole(model, line):
    chat = Terminal("chat", "--model", model, "-c", 60)
    chat.wait_for("\n> ")
    chat.type(line + "\n")
    chat.wait_for(count_of(model, line) + ", the context 60")
    chat.type("\x04")
    assert chat.ended() == 0


@edited
@pytest.mark.terminal
def test_a_long_line_typed_during_an_answer_arrives_whole(slow_model):
    chat = Terminal("chat", "--model", slow_model, "-c", 4000, "-n", 200, "--threads", 1)
    chat.wait_for("\n> ")
    chat.type("hi\n")
    chat.wait_for("hi\r\n")
    time.sleep(0.1)
    chat.type("z" * 9000 + "\n")
    answered = chat.wait_for("200 tokens in")
    assert "zzz" not in answered  # what is typed ahead is shown at the prompt
    found = int(re.search(r"the conversation has (\d+) tokens", chat.wait_for(", the context 4000"))[1])
    alone = int(re.search(r"\d+", count_of(slow_model, "z" * 9000))[0])
    assert alone < found < alone + 1000
    chat.type("\x04")
    assert chat.ended() == 0


@pytest.mark.terminal
def test_a_line_that_the_terminal_may_have_cut_is_refused(model):
    chat = Terminal("chat", "--model", model, "-c", 60, kind="dumb")
    chat.wait_for("\n> ")
    for size in (4095, 5000, 20000):
        chat.type("x" * size + "\n")
        chat.wait_for("this terminal cuts lines of 4095 bytes or more: run - < FILE takes longer ones")
        chat.wait_for("\n> ")
    chat.type("x" * 4094 + "\n")
    chat.wait_for(count_of(model, "x" * 4094))
    chat.type("\x04")
    assert chat.ended() == 0


@edited
@pytest.mark.terminal
def test_lines_are_edited_and_found_again(model):
    long = "a head that is longer than its tail, and all in all a line that has many tokens"
    for keys, line in [
        ("its tail\x01a head that is longer than \x05, and all in all a line that has many tokens", long),
        (f"{long}\n/clear\n\x1b[A\x1b[A", long),  # back in the history, over /clear
        (f"{long}\n/clear\n\x12longer", long),
        (f"{long} \u00e9\u65e5\x1b[D\x7f\x1b[3~", long + " "),
        (f"{long} one two\x17\x17", long + " "),
        (f"{long} \udce9a\udcf0\udc9fb", long + " \ufffda\ufffdb"),  # bytes that are not UTF-8
    ]:
        chat = Terminal("chat", "--model", model, "-c", 60)
        chat.wait_for("\n> ")
        chat.type(keys + "\n")
        counted = count_of(model, line)
        for _ in range(keys.count("\n") // 2 + 1):
            chat.wait_for(counted)
        chat.type("\x04")
        assert chat.ended() == 0


@pytest.mark.terminal
@pytest.mark.parametrize("kind", KINDS)
def test_sigterm_leaves_a_clean_terminal(slow_model, kind):
    for answering in (False, True):
        chat = Terminal("chat", "--model", slow_model, "-c", 30000, kind=kind)
        chat.wait_for("\n> ")
        chat.type("story\n" if answering else "half a line")
        chat.wait_for("story\r\n" if answering else "half a line")
        os.kill(chat.pid, signal.SIGTERM)
        assert chat.ended() == 143


@pytest.mark.terminal
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_again_and_again_leaves_a_clean_terminal(slow_model, kind):
    chat = Terminal("chat", "--model", slow_model, "-c", 30000, "--threads", 1, kind=kind)
    chat.wait_for("\n> ")
    chat.type("1 2 3 4 5 6 7 8 9 " * 200 + "\n")
    chat.wait_for("\r\n")
    time.sleep(1)  # a piece of the prompt takes half a second, and the third signal within it ends the process
    while os.waitid(os.P_PID, chat.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        os.kill(chat.pid, signal.SIGINT)
        time.sleep(0.01)
    assert chat.ended() == 130


@pytest.mark.terminal
def test_control_characters_reach_a_terminal_as_text(model):
    text = "a\x1b[31mb\r\x07\x7f\u009bc\td\ne"
    ids = program("tokenize", "--model", model, "-", stdin=text).stdout.split()
    shown = Terminal("detokenize", "--model", model, *ids)
    expected = "a\\x1b[31mb\\x0d\\x07\\x7f\\xc2\\x9bc\td\r\ne\r\n"
    assert shown.wait_for("e\r\n") == expected
    assert shown.ended() == 0
    assert program("detokenize", "--model", model, *ids).stdout == text.replace("\r", "\n") + "\n"


def test_chat_answers_as_a_fresh_run_of_the_same_conversation(model):
    def answers(*lines):
        result = program("chat", "--model", model, "-c", 300, "--system", "s",
                         stdin="".join(line + "\n" for line in lines))
        assert result.returncode == 0, result.stderr
        return result.stdout

    alone = program("run", "--model", model, "-c", 300, "--system", "s", "one")
    assert answers("one") == alone.stdout
    assert answers("two", "/clear", "one").endswith(alone.stdout)
    assert answers("two", "/clear \t", "one").endswith(alone.stdout)
    assert answers("two\r", "/clear\r", "one\r").endswith(alone.stdout)
    assert answers("one\r") == alone.stdout
    assert answers("", "  ", "one") == alone.stdout


def test_chat_with_a_full_context_says_so_and_goes_on(model):
    result = program("chat", "--model", model, "-c", 60, stdin="word " * 300 + "\n/clear\nhi\n")
    assert result.returncode == 0
    assert re.search(r"the conversation has \d+ tokens, the context 60: /clear", result.stderr)


@pytest.mark.terminal
def test_chat_ctrl_c_stops_an_answer_and_twice_at_the_prompt_leaves(slow_model):
    chat = Terminal("chat", "--model", slow_model, "-c", 1000000, "--threads", 1)
    chat.wait_for("ready in")
    chat.wait_for("\n> ")
    chat.type("\x03")
    chat.wait_for("Ctrl-C once more or Ctrl-D leaves")
    chat.wait_for("\n> ")
    chat.type("story\n")  # a message in between: the next Ctrl-C at the prompt is a first one again
    chat.wait_for("story\r\n")
    time.sleep(0.1)
    chat.type("\x03")
    assert "interrupted" in chat.wait_for("\n> ")
    chat.type("\x03")
    chat.wait_for("Ctrl-C once more or Ctrl-D leaves")
    chat.wait_for("\n> ")
    chat.type("\x03")
    assert chat.ended() == 130


# --- real weights

MODEL_FILES = {"0.5b": ("MINFER_CODER_05B", "coder-0.5b"), "1.5b": ("MINFER_CODER_15B", "coder-1.5b")}
CASES = [("0.5b", i) for i in range(6)] + [("1.5b", i) for i in (0, 4)]


def real_model(size: str) -> str:
    variable, name = MODEL_FILES[size]
    path = os.environ.get(variable) or cache.find(catalogue.load()[name])
    if not path:
        pytest.skip(f"{name} is not here (tools/get_model {name} fetches it)")
    return path


@pytest.mark.model
@pytest.mark.parametrize("size, case", CASES)
def test_tokens_equal_llama_cpps(size, case):
    reference = json.loads((ROOT / "tests" / "reference" / f"llama_cpp_{size}.json").read_text())
    expected = reference["cases"][case]
    result = subprocess.run([PROGRAM, "run", "--model", real_model(size), "-n", "128", "--print-ids",
                             "--prompt-ids", " ".join(map(str, expected["prompt_ids"]))],
                            capture_output=True, text=True, env=CLEAN, timeout=900)
    assert result.returncode == 0, result.stderr
    ids = [int(word) for word in result.stdout.split()]
    assert ids == expected["f32"]["ids"]
