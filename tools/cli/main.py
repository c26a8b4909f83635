# SPDX-License-Identifier: MIT
"""The command line of `minfer`: what it takes, and which module does it."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import signal

from cli import VERSION
from cli.bench import EXAMPLES as BENCH_EXAMPLES
from cli.bench import add_options as add_bench
from cli.compare import EXAMPLES as COMPARE_EXAMPLES
from cli.compare import add_options as add_compare
from cli.console import USAGE, say
from cli.lab import EXAMPLES as LAB_EXAMPLES
from cli.lab import add_options as add_lab
from cli.tryout import EXAMPLES as TRY_EXAMPLES
from minfer_tools import command_line
from minfer_tools.command_line import exit_status, natural, positive

ABOUT = "A from-scratch inference engine for Qwen2.5, told chapter by chapter."
EPILOG = """\
examples:
  ./minfer run "Write a haiku about the sea."
  ./minfer chat
  ./minfer test --quick
  ./minfer run --help           every command has examples of its own

exit status: 0 done, 1 failed, 2 wrong usage, 77 skipped, 130 interrupted
"""

# The specification's environment variables for engines: each is also an option. A chapter's own program
# knows which of them its engine has, and what they mean.
ENGINE_OPTIONS = ("SPEC", "LMHEAD", "KVQ", "ATTN", "MSTEP", "BENCHT", "TCHUNK")


class Parser(command_line.Parser):
    """A parser to which only `-x` and `--word` look like options: `->` is text."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def _parse_optional(self, arg_string):
        if not re.match(r"-[A-Za-z]|--[A-Za-z]|--$", arg_string):
            return None
        return super()._parse_optional(arg_string)

    def error(self, message):
        """Wrong usage in one line, as every refusal; the usage is what --help is for."""
        self.exit(USAGE, f"{self.prog}: {message} (see --help)\n")


class PassOn(argparse.Action):
    """Keeps an option as it was given, for the chapter's own program."""

    def __call__(self, parser, namespace, values, option_string=None):
        words = [option_string] if self.nargs == 0 else [option_string, str(values)]
        namespace.passed_on = [*getattr(namespace, "passed_on", []), *words]


def add_command(commands, name: str, action: str, about: str, examples: str) -> Parser:
    """A subcommand whose work is the function `module:function` of this package."""
    parser = commands.add_parser(name, help=about, description=about,
                                 epilog="examples:\n" + examples)
    parser.set_defaults(action=action)
    return parser


def add_model(parser: Parser) -> None:
    parser.add_argument("--model", metavar="NAME|PATH",
                        help="a model of models.json, whatever files there are, or a GGUF file; "
                             "else the variable MODEL says which")
    add_install(parser)


def add_install(parser: Parser) -> None:
    parser.add_argument("--no-install", dest="install", action="store_false",
                        help="install nothing: say what is missing and stop")


def add_engine(parser: Parser) -> None:
    add_model(parser)
    parser.add_argument("--chapter", metavar="NN|oracle",
                        help="which chapter's engine (default: the fastest that runs here)")
    parser.add_argument("--device", choices=("auto", "gpu", "emulator"), default="auto",
                        help="emulator: the GPU's kernels on the CPU, slowly, with the same bits")
    parser.add_argument("-c", type=positive, metavar="N", action=PassOn,
                        help="the context (default 4096, capped by the model)")
    parser.add_argument("--threads", type=positive, metavar="T", action=PassOn, help="CPU threads")
    parser.add_argument("--system", metavar="TEXT", action=PassOn, help="the system message")
    parser.add_argument("--no-mmap", nargs=0, action=PassOn,
                        help="read the file into memory instead of mapping it")
    parser.add_argument("--requantize", nargs=0, action=PassOn,
                        help="requantize all layer matrices to Q4_0, as the GPU engines do")
    group = parser.add_argument_group("options of some chapters (also as variables: SPEC=1)",
                                      "what a chapter's engine makes of them, --help of its own program says")
    for name in ENGINE_OPTIONS:
        group.add_argument(f"--{name.lower()}", action=PassOn, metavar="N")


def add_prompt(parser: Parser) -> None:
    parser.add_argument("-n", type=natural, metavar="N", action=PassOn, help="tokens at most")
    parser.add_argument("--print-ids", "--rawids", nargs=0, action=PassOn,
                        help="print token ids instead of text (also: RAWIDS=1)")
    parser.add_argument("--raw", nargs=0, action=PassOn, help="no chat template around the prompt")
    parser.add_argument("--special", nargs=0, action=PassOn,
                        help="with --raw: take <|im_end|> and its like as tokens")
    parser.add_argument("--ignore-eos", nargs=0, action=PassOn,
                        help="go on after the end of turn (for timing)")
    parser.add_argument("--teacher", type=positive, metavar="K", action=PassOn,
                        help="the first K ids are the prompt and the rest are forced (also: "
                             "TEACHER=K)")
    parser.add_argument("--prompt-ids", metavar='"1 2 3"', help="token ids instead of a prompt")
    parser.add_argument("prompt", nargs="?", metavar="PROMPT",
                        help="the prompt; -: standard input, without a line end that closes it")


def make_parser() -> Parser:
    parser = Parser(prog="minfer", description=ABOUT, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"minfer {VERSION}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)

    run = add_command(commands, "run", "run:run", "answer one prompt", """\
  ./minfer run "Write a haiku about the sea."
  ./minfer run --model coder-1.5b -n 64 "Name three rivers."
  echo "Say hello." | ./minfer run -
  ./minfer run --raw --print-ids -n 8 "The capital of France is"
  ./minfer run --prompt-ids "785 6722 315 9625 374" -n 8
  ./minfer run --prompt-ids "785 6722 315 9625 374" --teacher 3
  ./minfer run --chapter oracle --model some/file.gguf "Hello"
""")
    add_engine(run)
    add_prompt(run)

    chat = add_command(commands, "chat", "run:chat",
                       "a conversation; Ctrl-C stops an answer, Ctrl-D leaves", """\
  ./minfer chat
  ./minfer chat --model coder-1.5b --system "Answer in one sentence."
""")
    add_engine(chat)
    chat.add_argument("-n", type=positive, metavar="N", action=PassOn, help="tokens of an answer at most")

    tokenize = add_command(commands, "tokenize", "run:tokenize", "the token ids of a text", """\
  ./minfer tokenize "Hello, sea."
  ./minfer tokenize "->"
  ./minfer tokenize --special "<|im_start|>user"
  ./minfer tokenize - <README.md
""")
    add_model(tokenize)
    tokenize.add_argument("--special", nargs=0, action=PassOn,
                          help="take <|im_end|> and its like as tokens, not as text")
    tokenize.add_argument("text", metavar="TEXT", help="the text; -: standard input")

    detokenize = add_command(commands, "detokenize", "run:detokenize", "the text of token ids", """\
  ./minfer detokenize 9707 11 9396 13
""")
    add_model(detokenize)
    detokenize.add_argument("ids", nargs="+", metavar="ID")

    model = add_command(commands, "model", "info:model",
                        "the path of a model's file, fetched first; without a name, a list", """\
  ./minfer model
  ./minfer model coder-0.5b
""")
    add_install(model)
    model.add_argument("name", nargs="?", metavar="NAME")

    trial = add_command(commands, "try", "tryout:try_it",
                        "build and test one chapter's kernels in the emulator, after an edit", TRY_EXAMPLES)
    add_install(trial)
    trial.add_argument("chapter", metavar="NN|first", help="the chapter; first: the primer's program")
    trial.add_argument("--in", dest="folder", metavar="DIR",
                       help="a copy of the chapter in DIR, with what it builds with; made where there is none")
    trial.add_argument("--patch", metavar="NAME",
                       help="applied to the copy first: solutions/NAME, faults/NAME or dead-ends/NAME of the chapter")

    test = add_command(commands, "test", "test:test",
                       "build everything and run every test that this machine can run", """\
  ./minfer test
  ./minfer test --quick         no real weights, site, sanitizers, fuzzing or cross build
  ./minfer test -L lint         one label: cpu emulated model gpu docs lint
""")
    add_install(test)
    test.add_argument("--quick", action="store_true",
                      help="leave out real weights, the documentation site, sanitizers, fuzzing and "
                           "the cross build")
    test.add_argument("-L", dest="label", metavar="LABEL",
                      choices=("cpu", "emulated", "model", "gpu", "docs", "lint", "exhaustive"),
                      help="only the tests with this label")

    add_command(commands, "doctor", "info:doctor",
                "what this machine is, has and lacks; exit 1 where `run` would fail", """\
  ./minfer doctor
""")
    add_command(commands, "chapters", "info:list_chapters", "the chapters of this checkout", """\
  ./minfer chapters
""")
    add_later(commands)
    return parser


def add_later(commands) -> None:
    """Commands whose work is done by a program of tools/ or a part of the project of its own."""
    # All that follows, options too, is tools/chapter_diff.py's: none looks like an option here.
    diff = commands.add_parser("diff", help="what one chapter changes in another", add_help=False,
                               prefix_chars="\0")
    diff.set_defaults(action="info:diff")
    diff.add_argument("rest", nargs="*")
    bench = add_command(commands, "bench", "bench:bench",
                        "time chapters as llama-bench does, and record the results", BENCH_EXAMPLES)
    add_bench(bench)
    compare = add_command(commands, "compare", "compare:compare",
                          "greedy tokens against llama.cpp's, on the same weights in F32",
                          COMPARE_EXAMPLES)
    add_model(compare)
    add_compare(compare)
    lab = add_command(commands, "lab", "lab:lab",
                      "what each line of a kernel asks of memory, and which accesses race; without a GPU",
                      LAB_EXAMPLES)
    add_install(lab)
    add_lab(lab)
    docs = add_command(commands, "docs", "docs:docs",
                       "build the documentation site; prints where its first page is", """\
  ./minfer docs --open          and shows it in a browser
  ./minfer docs --no-epub       the site alone, without the book
""")
    add_install(docs)
    docs.add_argument("--open", action="store_true", help="show it in a browser")
    docs.add_argument("--no-epub", dest="epub", action="store_false", help="leave the book out")


class Terminated(BaseException):
    """SIGTERM, or SIGHUP: the terminal was closed."""


def terminate(number, _frame):
    raise Terminated(number)


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, terminate)
    if os.path.expanduser("~") == "~":  # no HOME and no such user: as containers have it then
        os.environ["HOME"] = os.sep
    try:
        return exit_status("minfer", lambda: command(argv))
    except Terminated as end:
        say("minfer: terminated")
        return 128 + end.args[0]


def command(argv: list[str]) -> int:
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if not hasattr(arguments, "action"):
        parser.print_help()
        return USAGE
    module, function = arguments.action.split(":")
    return getattr(importlib.import_module(f"cli.{module}"), function)(arguments)
