#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs a chapter's program on small synthetic models and compares bits and tokens.

    whole_model.py make FOLDER                     writes the models (needs numpy)
    whole_model.py check PROGRAM FOLDER --reference PROGRAM
    whole_model.py try PROGRAM FOLDER              how far the logits and tokens are from the recorded ones: for
                                                   `minfer try`; exit status 3 where sums only have another order
    whole_model.py steps PROGRAM FOLDER            the same logits, however many tokens a step carries
    whole_model.py schedules PROGRAM FOLDER        an emulated program, under several schedules: the smallest
                                                   model alone, or with --every-model all of them
    whole_model.py speculation PROGRAM FOLDER      the same tokens with drafts as without, whatever is drafted and
                                                   wherever an answer ends, on --prompts N prompts, --jobs N at once
    whole_model.py refusals PROGRAM FOLDER         an emulated program, on a device with too little memory,
                                                   and with options that it has not
    whole_model.py real PROGRAM [--cases 0 1]      coder-0.5b, whose hashes an H200 gave: records/

The committed hashes and tokens are in logits_hash.json, the last logits of each small model in
logits/; `check --update` writes PROGRAM's. Exit status: 0 equal, 1 different, 77 skipped, with the
reason.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
HASHES = HERE / "logits_hash.json"
LOGITS = HERE / "logits"
REAL_MODEL = "coder-0.5b"
REAL_CASES = HERE.parent / "reference" / "llama_cpp_0.5b.json"
REAL_HASHES = HERE / "records" / "h200-correctness.json"
MAKE_MODEL = HERE.parents[1] / "tools" / "make_model"
SEEDS = range(1, 9)
SM_COUNTS = (1, 8, 132)
STEPS = (1, 2, 3, 5, 8)  # tokens a step carries: TCHUNK
SPECULATION_MODELS = ("tiny-loop", "tiny-d")  # one whose texts repeat themselves, and one whose do not
REAL_TOKENS = 480  # of the small models
RAGGED = 11  # tokens of a prompt, and of what is forced after it: no step size but 1 divides it
# What another order of sums does to logits: next to nothing, but where an activation was about to be
# rounded to another integer.
ROUNDING, TIPPED = 1e-4, 0.05
OTHER_ORDER = 3
NO_GPU = ("there is no NVIDIA GPU", "no NVIDIA driver")


class Skip(Exception):
    """The test can't be run here, and why."""


@dataclass
class Forced:
    """What a program says under teacher forcing: argmax and margin of each position, the hash, and the last
    position's logits where they were asked for."""

    predictions: dict[int, tuple[int, float]]
    hash: str
    last: array

    @property
    def tokens(self) -> list[int]:
        return [best for best, _ in self.predictions.values()]


def slug(program: Path) -> str:
    return program.name.removesuffix("-emulated")


def start(program: Path, arguments: list[str], stdin: str = "", **environment: str) -> subprocess.CompletedProcess:
    """Runs the program to its end. MINFER_RUN_WITH runs programs for another processor."""
    return subprocess.run(
        [*shlex.split(os.environ.get("MINFER_RUN_WITH", "")), str(program), *arguments],
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


def run(program: Path, arguments: list[str], **environment: str) -> str:
    """What the program prints; its failure is ours."""
    done = start(program, arguments, **environment)
    if done.returncode != 0:
        if any(words in done.stderr for words in NO_GPU):
            raise Skip(done.stderr.strip().splitlines()[-1])
        raise RuntimeError(f"{program.name} {' '.join(arguments)}: exit status {done.returncode}\n{done.stderr}")
    if "is no option here" in done.stderr:
        raise RuntimeError(f"{program.name} with {environment}: {done.stderr.splitlines()[0]}")
    return done.stdout


def force(program: Path, model: Path, ids: list[int], prompt: int, keep: bool = False, **environment: str) -> Forced:
    """The ids after the first `prompt` forced, through the specification's form MODEL N IDS."""
    logits = array("f")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "logits.npy")
        options = ["--logits", str(file)] if keep else []
        output = run(program, [*options, str(model), "0", *map(str, ids)], TEACHER=str(prompt), **environment)
        if keep:
            logits = last_row(file)
    *lines, last = output.splitlines()
    predictions = {}
    for line in lines:
        position, best, margin = line.split()
        predictions[int(position)] = (int(best), float(margin))
    word, value, _, rows = last.split()
    if word != "logits-hash" or int(rows) != len(ids) - prompt + 1 or len(predictions) != int(rows):
        raise RuntimeError(f"{program.name}: {last!r} after {len(lines)} lines; expected the hash of "
                           f"{len(ids) - prompt + 1} rows")
    return Forced(predictions, value, logits)


def last_row(file: Path) -> array:
    """Of a matrix of float32 in an .npy file."""
    content = file.read_bytes()
    begin = 10 + int.from_bytes(content[8:10], "little")
    columns = int(re.search(rb"'shape': \(\d+, (\d+)\)", content[:begin])[1])
    return array("f", content[-4 * columns:])


def generate(program: Path, model: Path, ids: list[int], n: int) -> list[int]:
    """n tokens after these ids, greedily."""
    output = run(program, ["--print-ids", "--ignore-eos", str(model), str(n), *map(str, ids)])
    return [int(word) for word in output.split()]


def check(program: Path, reference: Path, folder: Path, data: dict, cases: list[str], update: bool) -> list[str]:
    """What is wrong with a program: hashes, tokens against the reference, decoding against forcing."""
    problems = []
    name = slug(program)
    dead_end = data["dead_ends"].get(name)
    same_as = dead_end.get("as") if dead_end else None
    if same_as:  # its chapter: the bits are the same
        dead_end = {"tolerance": data["tolerances"][same_as], "hashes": dict(data["hashes"][same_as])}
    tolerance = dead_end["tolerance"] if dead_end else data["tolerances"][name]
    committed = dead_end["hashes"] if dead_end else data["hashes"].setdefault(name, {})
    tokens, last = {}, array("f")
    if dead_end and not committed and not update:
        problems.append(f"{name}: no hash is committed for it")
    deep = {case: data["deep"][case] for case in data["deep"] if (same_as or name) in data["deep"][case]["chapters"]}
    for model_name in cases or (committed if dead_end else [*data["cases"], *deep]):
        case = data["cases"].get(model_name) or deep[model_name]
        model, ids, prompt = model_path(folder, case.get("model", model_name)), case["ids"], case["prompt"]
        ids = ids * case.get("times", 1)

        forced = force(program, model, ids, prompt, keep=True)
        if model_name in data["cases"]:
            last += forced.last
            tokens[model_name] = forced.tokens
        if update and not same_as:
            committed[model_name] = forced.hash
        elif forced.hash != committed.get(model_name):
            problems.append(f"{model_name}: logits hash {forced.hash}, committed {committed.get(model_name)}")

        expected = force(reference, model, ids, prompt)
        for position, (best, margin) in expected.predictions.items():
            found, found_margin = forced.predictions[position]
            if found != best and not margin <= tolerance:
                problems.append(f"{model_name}: position {position}: token {found}; the reference has "
                                f"{best}, by {margin}")
            if found == best and not abs(found_margin - margin) <= tolerance:
                problems.append(f"{model_name}: position {position}: margin {found_margin}; the reference "
                                f"has {margin}, tolerance {tolerance}")

        if "generate" in case:
            answer, again = decoded(program, model, case)
            if answer != again:
                problems.append(f"{model_name}: decoding gives {answer}, forcing the same {again}")

        for same in data["same_bits"].get(name, []):
            if model_name in deep and not same.get("deep"):
                continue
            found = force(program, model, ids, prompt, **same["environment"]).hash
            wanted = data["hashes"].get(same["as"], {}).get(model_name)
            if found != wanted:
                problems.append(f"{model_name}: with {same['environment'] or 'no option'} the logits hash is "
                                f"{found}; expected {wanted}, that of {same['as']}")
    if not dead_end and not cases and record_of(name, data) == name:
        file = LOGITS / f"{name}.f32"
        if update:
            data["tokens"][name] = tokens
            file.write_bytes(last.tobytes())
        if data["tokens"].get(name) != tokens or not file.is_file() or file.read_bytes() != last.tobytes():
            problems.append(f"{name}: its tokens or {file.name} are those of another program, or none")
    return problems


def record_of(name: str, data: dict) -> str:
    """The program whose tokens and logits are recorded: of those with the same bits, the first."""
    same = next((same["as"] for same in data["same_bits"].get(name, []) if not same["environment"]), name)
    return same if same == name else record_of(same, data)


def decoded(program: Path, model: Path, case: dict) -> tuple[list[int], list[int]]:
    """What is decoded after a case's prompt, and what forcing that predicts: the same."""
    prompt = case["ids"][:case["prompt"]]
    answer = generate(program, model, prompt, case["generate"])
    return answer, force(program, model, prompt + answer[:-1], len(prompt)).tokens


def attempt(program: Path, folder: Path, data: dict) -> int:
    """Says in two lines how the logits and the tokens differ from the recorded ones; returns the exit status."""
    name = slug(program)
    tokens = data["tokens"][record_of(name, data)]
    recorded = array("f", (LOGITS / f"{record_of(name, data)}.f32").read_bytes())
    differences, parted, same_bits, count = {}, [], True, 0
    for model_name, case in data["cases"].items():
        model, ids, prompt = model_path(folder, model_name), case["ids"], case["prompt"]
        forced = force(program, model, ids, prompt, keep=True)
        same_bits = same_bits and forced.hash == data["hashes"][name][model_name]
        before, recorded = recorded[:len(forced.last)], recorded[len(forced.last):]
        differences[model_name] = max(abs(a - b) for a, b in zip(forced.last, before))
        parted += [f"{model_name}, position {position}: {found}, recorded {expected}" for position, found, expected
                   in zip(forced.predictions, forced.tokens, tokens[model_name]) if found != expected]
        count += len(forced.tokens)
        if model_name == next(iter(data["cases"])):  # a loop around the model, whichever that is
            answer, again = decoded(program, model, case)
            parted += [f"{model_name}, decoding: {answer}, reading the same {again}"] if answer != again else []
            count += len(answer)
    worst = max(differences, key=differences.get)
    typical = statistics.median(differences.values())
    same_sums = same_bits or (typical <= ROUNDING and differences[worst] <= TIPPED)
    if same_bits:
        print(f"logits   the recorded bits, on {len(differences)} small models")
    elif same_sums:
        print(f"logits   other bits, but by rounding alone: off by {differences[worst]:.2g} at most, {typical:.2g} typically")
    else:
        print(f"logits   wrong: off by {differences[worst]:.2g} at most, on {worst}, and {typical:.2g} typically")
    print(f"tokens   part at {parted[0]}" if parted else f"tokens   equal, all {count}")
    return 1 if parted or not same_sums else 0 if same_bits else OTHER_ORDER


def has_steps(name: str, data: dict) -> bool:
    """Whether a chapter's steps carry several tokens."""
    return "TCHUNK" in data["refused_options"].get(name, {})


def steps(program: Path, folder: Path, data: dict, cases: list[str]) -> list[str]:
    """How many tokens go through the model at once is not to be seen in the logits."""
    problems = []
    for name in cases or data["cases"]:
        ids = (data["cases"][name]["ids"] * 2 * RAGGED)[:2 * RAGGED]
        hashes = {step: force(program, model_path(folder, name), ids, RAGGED + 1, TCHUNK=str(step)).hash for step in STEPS}
        problems += [f"{name}, {step} tokens a step: logits hash {found}, one by one {hashes[1]}"
                     for step, found in hashes.items() if found != hashes[1]]
    return problems


def schedules(program: Path, folder: Path, data: dict, every_model: bool) -> list[str]:
    """What changes when blocks run in another order, or on more or fewer SMs: nothing may."""
    problems = []
    seeds = [{"MINFER_EMULATOR_SEED": str(seed)} for seed in SEEDS]
    counts = [{"MINFER_EMULATOR_SMS": str(count)} for count in SM_COUNTS]
    if every_model:
        runs = counts + [{**seed, **counts[i % 2]} for i, seed in enumerate(seeds)]  # 132 one after the other take a minute
        cases = [{"model": name, **case} for name, case in data["cases"].items()]
    else:
        runs = seeds + counts
        cases = [data["schedules"]]
    for case in cases:
        model = model_path(folder, case["model"])
        expected = force(program, model, case["ids"], case["prompt"]).hash
        for variables in runs:
            found = force(program, model, case["ids"], case["prompt"], **variables).hash
            if found != expected:
                problems.append(f"{case['model']}, {variables}: logits hash {found}, without {expected}")
    return problems


def speculation(program: Path, folder: Path, n_prompts: int, also: list[str], jobs: int) -> list[str]:
    """Drafts change nothing but the number of steps: with every limit on their number, to the end of contexts and
    counts of all lengths, and in a conversation; nor do the options in `also`. Fails as well where no draft was ever
    right."""
    def attempt_at(i: int) -> tuple[list[str], int, int]:
        """Of prompt i: what was wrong, and the tokens and steps behind the first with drafts always on."""
        problems, tokens, steps = [], 0, 0
        numbers = random.Random(i)
        name = SPECULATION_MODELS[i // 2 % 4 == 3]
        model = str(model_path(folder, name))
        context = numbers.randrange(8, 129)
        length = numbers.randrange(1, (context if i % 8 == 5 else context // 4) + 1)
        period = numbers.randrange(1, length + 1)
        ids = ([numbers.randrange(REAL_TOKENS) for _ in range(period)] * length)[:length]
        n = numbers.randrange((context - length) // 2, context - length + 3)
        words = ["--print-ids", "-c", str(context), model, str(n), *map(str, ids)]
        if i % 4:
            words.insert(0, "--ignore-eos")
        plain = run(program, words, SPEC="0")
        environments = [{"SPEC": "2", "TCHUNK": str(8 - i % 8)}, dict(word.split("=") for word in also)]
        if i % 8 == 0:
            environments.append({"SPEC": "1"})
        for environment in filter(None, environments):
            done = start(program, words, **environment)
            if (done.stdout, done.returncode) != (plain, 0):
                problems.append(f"{name}, {environment}, {' '.join(words)}: {done.stdout!r}, exit status "
                                f"{done.returncode}; without drafts {plain!r}")
            found = re.search(r"decode: (\d+) tokens? .* ([\d.]+) tokens a step", done.stderr)
            if found and environment.get("SPEC") == "2":
                tokens += int(found[1]) - 1
                steps += round((int(found[1]) - 1) / float(found[2])) if float(found[2]) else 0
        return problems, tokens, steps

    with ThreadPoolExecutor(jobs) as pool:
        attempts = list(pool.map(attempt_at, range(n_prompts)))
    problems = [line for of_prompt, _, _ in attempts for line in of_prompt]
    tokens, steps = (sum(attempt[i] for attempt in attempts) for i in (1, 2))
    print(f"{n_prompts} prompts, {tokens} tokens in {steps} steps with drafts always on")
    if tokens - steps < n_prompts:
        problems.append(f"{tokens} tokens in {steps} steps: drafts were hardly ever right, so little was tested")
    lines = "a b a b\nb a b a\n/clear\na a a\n"
    for name in SPECULATION_MODELS:
        model = str(model_path(folder, name))
        said = [start(program, ["chat", "--model", model, "-c", "512", "-n", "24"], stdin=lines, SPEC=spec).stdout
                for spec in "012"]
        if not said[0].strip() or said != [said[0]] * 3:
            problems.append(f"{name}, chat: {said[1]!r} and {said[2]!r} with drafts, {said[0]!r} without")
    return problems


def refusals(program: Path, folder: Path, data: dict) -> list[str]:
    """One line and nothing else: for a device that is too small, and for an option that this engine has not."""
    problems = []
    model = str(model_path(folder, "tiny-d"))
    done = start(program, [model, "1", "8", "-c", "2048"], MINFER_EMULATOR_MEMORY=str(1 << 20))
    expected = r"[\w-]+: GPU memory: .*2048 tokens needs [1-9][\d.]* MiB, but the GPU has 1\.0 MiB .*-c\)\n"
    if done.returncode != 1 or done.stdout or not re.fullmatch(expected, done.stderr):
        problems.append(f"with 1 MiB of memory: exit status {done.returncode}, {done.stdout!r}, {done.stderr!r}; "
                        "expected 1 and one line with both sizes")
    for variable, value in data["refused_options"].get(slug(program), {}).items():
        done = start(program, [model, "1", "8"], **{variable: value})
        expected = rf"[\w-]+: .*\({variable}\): found '{value}', expected .*\n"
        if done.returncode != 2 or done.stdout or not re.fullmatch(expected, done.stderr):
            problems.append(f"with {variable}={value}: exit status {done.returncode}, {done.stdout!r}, "
                            f"{done.stderr!r}; expected 2 and one line with the variable and what it can be")
    return problems


def recorded_as(name: str, data: dict, recorded: dict) -> tuple[str, dict[str, str]] | None:
    """Under which name a program's bits are recorded, and with which options it has them: none if they are its own."""
    if name in recorded:
        return name, {}
    for same in sorted(data["same_bits"].get(name, []), key=lambda same: len(same["environment"])):
        found = recorded_as(same["as"], data, recorded)
        if found and not found[1]:
            return found[0], same["environment"]
    return None


def real(program: Path, data: dict, cases: list[str]) -> list[str]:
    """The real weights, along the reference's answers: the bits that the recorded GPU gave, with this chapter or with one that
    has the same."""
    tool = HERE.parents[1] / "tools" / "get_model"
    found = subprocess.run([sys.executable, str(tool), "--offline", "--quiet", REAL_MODEL],
                           capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise Skip(f"no {REAL_MODEL} on this machine (tools/get_model {REAL_MODEL})")
    model = Path(found.stdout.strip())
    prompts = json.loads(REAL_CASES.read_text(encoding="utf-8"))["cases"]
    recorded = json.loads(REAL_HASHES.read_text(encoding="utf-8"))["reference"][REAL_MODEL]
    found = recorded_as(slug(program), data, recorded)
    if not found:
        raise Skip(f"no GPU's hashes of {slug(program)} are recorded yet (tests/chapters/gpu_check.py)")
    name, environment = found
    expected = recorded[name]["logits_hash"]
    problems = []
    for number in map(int, cases or range(len(prompts))):
        prompt, answer = prompts[number]["prompt_ids"], prompts[number]["f32"]["ids"]
        found_hash = force(program, model, prompt + answer[:-1], len(prompt), **environment).hash
        print(f"{REAL_MODEL}, case {number}, {environment or 'no option'}: logits hash {found_hash}; {name}'s is recorded")
        if found_hash != expected[number]:
            problems.append(f"{REAL_MODEL}, case {number}: logits hash {found_hash}, recorded {expected[number]}")
    return problems


def model_path(folder: Path, name: str) -> Path:
    path = folder / f"{name}.gguf"
    if not path.is_file():
        raise Skip(f"{path} is missing: making it needs numpy")
    return path


def make(folder: Path, data: dict) -> None:
    try:
        import numpy  # noqa: F401
    except ModuleNotFoundError as error:
        raise Skip(f"{sys.executable} has no numpy, which tools/make_model needs") from error
    folder.mkdir(parents=True, exist_ok=True)
    made_by = max(file.stat().st_mtime for file in MAKE_MODEL.parent.glob("minfer_tools/*.py"))
    for name in {*data["cases"], data["schedules"]["model"], *SPECULATION_MODELS}:
        path = folder / f"{name}.gguf"
        if not path.is_file() or path.stat().st_mtime < made_by:
            subprocess.run([sys.executable, str(MAKE_MODEL), str(path), "--preset", name, "--quiet"], check=True)


def to_text(data: dict) -> str:
    """JSON whose innermost lists and objects take a line each, for people and for diffs."""
    def one_line(match: re.Match) -> str:
        words = re.sub(r"\s+", " ", match[0])
        return f"{words[0]}{words[1:-1].strip()}{words[-1]}"

    text = json.dumps(data, indent=2)
    return re.sub(r"[\[{][^{}\[\]]*[\]}]", one_line, text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "check", "try", "steps", "schedules", "speculation", "refusals", "real"))
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--cases", nargs="*", metavar="NAME", help="these models (real: these prompts) instead of all")
    parser.add_argument("--prompts", type=int, default=8, metavar="N")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="prompts at once")
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME=VALUE", help="options that change no token")
    parser.add_argument("--every-model", action="store_true")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    data = json.loads(HASHES.read_text(encoding="utf-8"))
    try:
        if options.command == "make":
            make(options.paths[0], data)
            return 0
        program, folder = options.paths[0], options.paths[-1]
        if options.command == "try":
            return attempt(program, folder, data)
        if options.command == "real":
            problems = real(program, data, options.cases)
        elif options.command == "check":
            problems = check(program, options.reference, folder, data, options.cases, options.update)
        elif options.command == "steps":
            problems = steps(program, folder, data, options.cases)
        elif options.command == "schedules":
            problems = schedules(program, folder, data, options.every_model)
        elif options.command == "speculation":
            problems = speculation(program, folder, options.prompts, options.also, options.jobs)
        else:
            problems = refusals(program, folder, data)
    except Skip as reason:
        print(f"skipped: {reason}")
        return 77
    except RuntimeError as error:  # a program's failure: its last line says which
        print(str(error) if options.command != "try" else
              f"logits   none: {str(error).splitlines()[-1]}\ntokens   none")
        return 1
    if options.update:
        HASHES.write_text(to_text(data), encoding="utf-8")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
