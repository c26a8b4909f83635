# SPDX-License-Identifier: MIT
"""tools/lint_chapters.py: a toy tree that keeps every rule, and for each rule what breaks it."""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lint_chapters
from minfer_tools.lint.source import Source

TOOL = Path(__file__).resolve().parents[2] / "tools" / "lint_chapters.py"

ENGINE = """\
// SPDX-License-Identifier: MIT
#include <minfer/engine.h>

#include "kernels.cuh"

namespace minfer {
namespace {
int steps = 16;  // a 16-byte load
}  // namespace
}  // namespace minfer
"""

KERNELS = """\
// SPDX-License-Identifier: MIT
#pragma once

namespace minfer {

/// y = a x, in blocks.
__global__ void scale(float* y,        ///< out [n] f32
                      const float* x,  ///< [n] f32
                      unsigned* counts) {
  MINFER_SHARED(float, part, [128]);
  part[threadIdx.x] = fmaf(x[0], sqrtf(2.0f), fabsf(x[1]));
  __syncthreads();  // part: written by every thread, read by thread 0
  if (threadIdx.x == 0) y[0] = part[1];
  atomicAdd(&counts[0], 1u);
}

/// Launches scale().
void scale(float* y, const float* x, unsigned* counts, cudaStream_t stream) {
  launch(scale, dim3(1), dim3(128), 0, stream, y, x, counts);
}

}  // namespace minfer
"""

README = """\
# {name}

## Numerics

The same bits.

## Results

<!-- table: speed -->
<!-- /table -->
"""

CHAPTERS = {"00-roofline": ["bench.cu"], "01-reference": ["engine.cpp"], "02-naive": ["engine.cu", "kernels.cuh"],
            "03-warp": ["engine.cu", "kernels.cuh"]}


class Toy:
    """A tree with chapters/, common/cuda/ and a compile_commands.json."""

    def __init__(self, root: Path):
        self.root = root
        self.commands = root / "build" / "compile_commands.json"

    def path(self, name: str) -> Path:
        return self.root / (name if "/" in name and name.split("/")[0] in ("common", "tests") else f"chapters/{name}")

    def write(self, name: str, text: str) -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        text = self.path(name).read_text()
        assert old in text
        self.path(name).write_text(text.replace(old, new))

    def append(self, name: str, text: str) -> None:
        self.write(name, self.path(name).read_text() + text)

    def compile(self, file: str, command: str) -> None:
        """Makes compile_commands.json say that `file` is compiled so."""
        self.commands.parent.mkdir(exist_ok=True)
        entry = {"directory": str(self.commands.parent), "file": str(self.root / file), "command": command}
        self.commands.write_text(json.dumps([entry]))

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        """What the tool does, inside this process, which is faster."""
        out, err = io.StringIO(), io.StringIO()
        arguments = ["--root", str(self.root), *map(str, arguments)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = lint_chapters.main(arguments)
            except SystemExit as leave:
                status = leave.code
        return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())

    def findings(self, *arguments: str) -> list[str]:
        """"path:line: rule: message" without chapters/."""
        done = self.run(*arguments)
        found = [line.removeprefix("chapters/") for line in done.stdout.splitlines() if re.match(r"\S+:\d+: \S+: ", line)]
        assert done.returncode == (1 if found else 0), done.stdout + done.stderr
        return found

    def only(self, rule: str) -> str:
        """The one finding that there is, which must be of this rule."""
        found = self.findings()
        assert len(found) == 1 and f": {rule}: " in found[0], found
        return found[0]


@pytest.fixture
def toy(tmp_path):
    toy = Toy(tmp_path)
    for name, sources in CHAPTERS.items():
        toy.write(f"{name}/README.md", README.format(name=name))
        toy.write(f"{name}/CMakeLists.txt", "# SPDX-License-Identifier: MIT\nproject(engine)\n")
        toy.write(f"{name}/main.cpp", "// SPDX-License-Identifier: MIT\nint main() { return minfer::run_cli(); }\n")
        for source in sources:
            toy.write(f"{name}/{source}", KERNELS if source == "kernels.cuh" else ENGINE)
    toy.write("common/cuda/launch.h", "namespace minfer {\nvoid launch() { kernel<<<1, 1>>>(); }\n}\n")
    toy.write("common/cuda/ptx.h", 'namespace minfer {\nvoid f() { asm("mov.u32 %0, 1;"); }\n}\n')
    toy.compile("chapters/02-naive/engine.cu", "nvcc --fmad=false -Xcompiler=-ffp-contract=off,-Wall -c engine.cu")
    return toy


def test_a_tree_that_keeps_every_rule(toy):
    done = subprocess.run([sys.executable, TOOL, "--root", toy.root], cwd="/", capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("chapters: 4 checked, 0 findings\n", "", 0)


def test_list_names_every_rule_that_is_tested_here(toy):
    listed = {line.split()[0] for line in toy.run("--list").stdout.splitlines()}
    tested = set(re.findall(r"only\(\"([\w-]+)\"\)", Path(__file__).read_text()))
    assert listed == tested


def test_a_finding_is_one_line(toy):
    toy.append("03-warp/main.cpp", "// more\n")
    done = toy.run()
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "chapters/03-warp/main.cpp:3: identical: differs from 01-reference/main.cpp; expected the same bytes",
        "chapters: 4 checked, 1 findings",
    ]


def test_without_engines_only_what_applies_is_checked(toy):
    for name in list(CHAPTERS)[1:]:
        for file in toy.path(name).iterdir():
            file.unlink()
        toy.path(name).rmdir()
    toy.commands.unlink()
    done = toy.run()
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "compile-flags: not checked, for want of compile_commands.json (see --compile-commands)",
        "no engine chapters: the rules that compare chapters had nothing to compare",
        "chapters: 1 checked, 0 findings",
    ]
    toy.append("00-roofline/bench.cu", "void f() { __expf(1); }\n")
    assert "00-roofline/bench.cu:11" in toy.only("fast-math")


def test_rule_chooses(toy):
    toy.append("03-warp/main.cpp", "// more\n")
    toy.append("03-warp/engine.cu", "void f() { asm(\"nop;\"); }\n")
    assert len(toy.findings()) == 2
    assert "asm" in toy.findings("--rule", "asm")[0]
    assert toy.findings("--rule", "chevrons", "--rule", "maths") == []
    assert toy.run("--rule", "nonsense").returncode == 2


# --- The series ----------------------------------------------------------------------------------------------------------


def test_identical(toy):
    toy.append("02-naive/CMakeLists.txt", "# more\n")
    assert toy.only("identical").startswith("02-naive/CMakeLists.txt:3: ")
    toy.path("02-naive/CMakeLists.txt").unlink()
    assert "missing" in toy.only("identical")


def test_the_benchmark_may_differ(toy):
    toy.append("00-roofline/CMakeLists.txt", "# more\n")
    toy.write("00-roofline/main.cpp", "int main() {}\n")
    assert toy.findings() == []


@pytest.mark.parametrize("text, passes", [
    ("namespace minfer::detail {\nnamespace inner { int x; }\n}\n", True),
    ("namespace minfer { namespace other { int x; } }\n", True),
    ("namespace other { int x; }\n", False),
    ("namespace minfer_next { int x; }\n", False),
])
def test_namespace(toy, text, passes):
    toy.append("03-warp/engine.cu", text)
    if passes:
        assert toy.findings() == []
    else:
        assert "expected minfer" in toy.only("namespace")


def test_namespace_is_there(toy):
    toy.write("03-warp/engine.cu", "int x;  // namespace minfer {\n")
    assert "no namespace minfer" in toy.only("namespace")


@pytest.mark.parametrize("line", [
    "int gemv_v2;", "int gemvV2;", "int chapter3;", "int ch03_x;", "int gemv_03;", "// as in chapter 3",
    "// see Chapter 03", "// M14 was wrong", "// milestone 3", 'const char* s = "chapter 3";', "// 02-naive did it otherwise",
    '#include "../02-naive/kernels.cuh"', '#include "chapters/x.h"',
])
def test_no_numbers(toy, line):
    toy.append("03-warp/engine.cu", line + "\n")
    assert {f.split(": ")[1] for f in toy.findings()} == {"no-numbers"}
    assert all(f.startswith("03-warp/engine.cu:11: ") for f in toy.findings())


@pytest.mark.parametrize("line", [
    "int gemv_q4_0; int v2; // GGUF v3, [M, K], 16-byte and 32-bit loads", "int m16n8k32; int f16x2; int x = 0x1F;",
    '#include "cuda/launch.h"', "// this chapter, the chapter before", "float a0, a1; // sm_87, 3.0 tok/s",
])
def test_numbers_that_are_no_chapter_s(toy, line):
    toy.append("03-warp/engine.cu", line + "\n")
    assert toy.findings() == []


def test_no_numbers_in_cmake_either(toy):
    toy.append("00-roofline/CMakeLists.txt", "# chapter 2\n")
    assert toy.findings() == []
    toy.append("03-warp/engine.cu", "// 03-warp\n")
    toy.only("no-numbers")


def test_readme(toy):
    toy.replace("03-warp/README.md", "## Numerics\n", "## Else\n")
    assert toy.only("readme") == "03-warp/README.md:1: readme: no section that states its numerics"
    toy.replace("03-warp/README.md", "## Else\n", "## The same bits everywhere\n")
    assert toy.findings() == []
    toy.path("03-warp/README.md").unlink()
    assert "missing" in toy.only("readme")


@pytest.mark.parametrize("old, new", [
    ("<!-- /table -->\n", ""),
    ("<!-- table: speed -->\n", ""),
    ("<!-- /table -->\n", "<!-- /table -->\n<!-- table: speed -->\n<!-- /table -->\n"),
    ("<!-- /table -->\n", "<!-- table: other -->\n<!-- /table -->\n"),
])
def test_readme_tables_are_closed(toy, old, new):
    toy.replace("03-warp/README.md", old, new)
    toy.only("readme")


LISTED = "`twice` is %s.\n<!-- code: %s -->\n<!-- /code -->\n"


@pytest.fixture
def listing(toy):
    """A tree with a function in a chapter, in another, and in common/."""
    for name in ("02-naive/twice.h", "03-warp/twice.h", "common/cuda/twice.h"):
        toy.write(name, "namespace minfer {\ninline int twice(int a) {\n  return 2 * a;\n}\n}  // namespace minfer\n")
    toy.append("03-warp/README.md", "\n" + LISTED % ("easy", "twice.h#twice"))
    assert toy.findings() == []
    return toy


@pytest.mark.parametrize("old, new, message", [
    ("code: twice.h", "code: common/cuda/twice.h",
     "lists common/cuda/twice.h#twice; expected a file of the chapter, or one that the paragraph names"),
    ("code: twice.h", "code: chapters/02-naive/twice.h",
     "lists chapters/02-naive/twice.h#twice; expected a file of the chapter, or one that the paragraph names"),
    ("`twice` is easy", "That is easy", "lists twice.h#twice; expected a paragraph that names `twice`"),
    ("`twice` is easy", "`twice` is easy.\n\nThat is not", "lists twice.h#twice; expected a paragraph that names `twice`"),
    ("twice.h#twice", "twice.h#thrice", "lists twice.h#thrice; expected a paragraph that names `thrice`"),
    ("`twice` is easy.\n<!-- code: twice.h#twice -->", "`thrice` is.\n<!-- code: twice.h#thrice -->",
     "chapters/03-warp/twice.h: found 0 definitions of thrice, expected one"),
    ("<!-- /code -->\n", "", "<!-- code --> alone; expected a pair, as of a table"),
    ("<!-- /code -->\n", "<!-- /code -->\n```cuda\nint twice;\n```\n",
     "code written by hand; expected <!-- code: FILE#NAME -->"),
])
def test_listings(listing, old, new, message):
    listing.replace("03-warp/README.md", old, new)
    assert listing.only("listings").endswith(f": listings: {message}")


def test_a_listing_that_stands_alone_is_of_the_chapter(listing):
    listing.append("03-warp/README.md", "\n## More\n\n<!-- code: twice.h#twice -->\n<!-- /code -->\n")
    assert listing.findings() == []
    listing.append("03-warp/README.md", "\n## More\n\n<!-- code: common/cuda/twice.h#twice -->\n<!-- /code -->\n")
    assert "expected a file of the chapter" in listing.only("listings")


def test_a_paragraph_that_names_another_file_may_have_its_code(listing):
    listing.append("03-warp/README.md", "\n" + LISTED % ("in `common/cuda/twice.h` too", "common/cuda/twice.h#twice"))
    assert listing.findings() == []


# --- Barriers -----------------------------------------------------------------------------------------------------------


BARRIER = "  __syncthreads();  // part: written by every thread, read by thread 0\n"


@pytest.mark.parametrize("new", [
    "  __syncthreads();\n",
    "  __syncthreads();  // all threads are here\n",
    "  // part is read next\n  __syncthreads();\n",
    "  // part: written by all, read by all\n  f();\n  __syncthreads();\n",
    "  grid_barrier(&counts[0]);\n",
    "  grid.sync();\n",
    "  barrier.arrive_and_wait();\n",
    "  if (__syncthreads_or(n)) return;\n",
])
def test_barrier_comment(toy, new):
    toy.replace("03-warp/kernels.cuh", BARRIER, new)
    assert "no comment that names who wrote and who reads" in toy.only("barrier-comment")


@pytest.mark.parametrize("new", [
    "  // part: every thread wrote its own,\n  // and thread 0 reads all\n  __syncthreads();\n",
    "  __syncthreads();  // part: written by every thread,\n                    // read by thread 0\n",
    "  grid_barrier(&counts[0]);  // y: CTAs wrote their rows, all CTAs read it\n",
    "  // __syncthreads() is not needed\n",
])
def test_barriers_that_are_explained(toy, new):
    toy.replace("03-warp/kernels.cuh", BARRIER, new)
    assert toy.findings() == []


def test_a_barrier_s_own_definition_needs_no_comment(toy):
    toy.append("03-warp/engine.cu", "namespace minfer {\n__device__ inline void grid_barrier(unsigned* n) {}\n}\n")
    assert toy.findings() == []


# --- The same bits -------------------------------------------------------------------------------------------------------


def test_asm(toy):
    toy.append("03-warp/engine.cu", '// asm is elsewhere\nconst char* s = "asm";\n')
    assert toy.findings() == []
    toy.append("03-warp/engine.cu", 'void f() { asm volatile("nop;"); }\n')
    assert toy.only("asm").startswith("03-warp/engine.cu:13: ")


def test_asm_in_common(toy):
    toy.write("common/minfer/threads.cpp", 'void f() { asm("pause"); }\n')
    toy.write("common/cuda/emulator/fiber.cpp", 'void f() { asm("pause"); }\n')
    assert toy.findings() == []
    toy.write("common/cuda/math.h", 'void f() { asm("nop;"); }\n')
    assert toy.only("asm").startswith("common/cuda/math.h:1: ")


def test_chevrons(toy):
    toy.append("03-warp/engine.cu", '// launch() is kernel<<<grid, block>>>()\nconst char* s = "<<<";\n')
    assert toy.findings() == []
    toy.write("tests/test.cu", "void f() { kernel<<<1, 1>>>(); }\n")
    assert toy.only("chevrons").startswith("tests/test.cu:1: ")


@pytest.mark.parametrize("text", ["__expf(x)", "rsqrtf(x)", "__fdividef(x, y)", "__fmaf_rz(x, y, z)", "rsqrt(x)",
                                  'f("ex2.approx.ftz.f32 %0, %1;")'])
def test_fast_math(toy, text):
    toy.append("03-warp/engine.cu", f"float g = {text};\n")
    assert toy.only("fast-math").startswith("03-warp/engine.cu:11: ")


@pytest.mark.parametrize("text", ["exp_f32(x)", "rsqrt_f32(x)", "__fmaf_rn(x, y, z)", "1.0f / sqrtf(x); // not __expf(x)"])
def test_what_is_no_fast_math(toy, text):
    toy.append("03-warp/engine.cu", f"float g = {text};\n")
    assert toy.findings() == []


@pytest.mark.parametrize("text", ["expf(x)", "std::exp(x)", "fmaxf(x, y)", "std::floor(x)", "cos(x)", "rintf(x)"])
def test_maths(toy, text):
    toy.append("03-warp/kernels.cuh", f"float g = {text};\n")
    assert "expected a function of <minfer/math.h>" in toy.only("maths")


@pytest.mark.parametrize("text", ["fabsf(x) + sqrtf(x) + fmaf(x, y, z)", "options.log(x)", "minfer::exp(x)", "silu_f32(x)",
                                  "max_f32(x, y)"])
def test_maths_that_is_ours(toy, text):
    toy.append("03-warp/kernels.cuh", f"float g = {text};\n")
    assert toy.findings() == []


def test_host_files_may_use_the_maths_library(toy):
    toy.append("01-reference/engine.cpp", "double g = std::cos(x);\n")
    assert toy.findings() == []


@pytest.mark.parametrize("text", [
    "void f(float* sum) { atomicAdd(sum, x); }",
    "void f(float* __restrict__ sum) { atomicAdd(&sum[i], x); }",
    "void f() { MINFER_SHARED(float, sum, [4]); atomicAdd(sum + 1, x); }",
    "void f(char* p) { atomicAdd(reinterpret_cast<float*>(p), x); }",
    "void f(auto sum) { atomicAdd(&sum, 1.0f); }",
    "void f(double* sum) { atomicAdd_system(sum, x); }",
    'void f() { g("red.global.add.f32 [%0], %1;"); }',
])
def test_float_atomics(toy, text):
    toy.append("03-warp/engine.cu", text + "\n")
    assert toy.only("float-atomics").startswith("03-warp/engine.cu:11: ")


@pytest.mark.parametrize("text", [
    "void f(unsigned* count, float x) { atomicAdd(count, 1u); }",
    "void f(float x, int count) { atomicAdd(&count, 0x1f); }",
    "void f(float* sum) { sum[0] += 1.0f; atomicMax(&best, key); }",
    'void f() { g("red.release.gpu.global.add.u32 [%0], %1;"); }',
])
def test_integer_atomics(toy, text):
    toy.append("03-warp/engine.cu", text + "\n")
    assert toy.findings() == []


@pytest.mark.parametrize("command", [
    "nvcc -Xcompiler=-ffp-contract=off -c x.cu",
    "nvcc --fmad=false -c x.cu",
    "nvcc --fmad=false -ffp-contract=off -c x.cu",
    "nvcc --fmad=false -Xcompiler=-ffp-contract=off --use_fast_math -c x.cu",
    "nvcc --fmad=false -Xcompiler=-ffp-contract=off -Xcompiler -ffast-math -c x.cu",
    "g++ -O2 -c x.cpp",
    "g++ -ffp-contract=off -ffp-contract=fast -c x.cpp",
    "g++ -ffp-contract=off -ffast-math -c x.cpp",
])
def test_compile_flags(toy, command):
    toy.compile("chapters/02-naive/engine.cu", command)
    assert toy.only("compile-flags").startswith("02-naive/engine.cu:1: ")


@pytest.mark.parametrize("command", [
    "nvcc --fmad=false -Xcompiler=-Wall,-ffp-contract=off -c x.cu",
    "/usr/local/cuda/bin/nvcc -fmad=false -Xcompiler -ffp-contract=off -c x.cu",
    "g++ -ffp-contract=fast -ffp-contract=off -c x.cpp",
])
def test_compile_flags_that_are_right(toy, command):
    toy.compile("chapters/02-naive/engine.cu", command)
    assert toy.findings() == []


def test_compile_commands_elsewhere(toy, tmp_path_factory):
    """A build folder outside the tree: its generated sources count, a dependency's do not."""
    build = tmp_path_factory.mktemp("build")
    entries = [{"directory": str(build), "file": str(build / "engine.cu.cpp"), "command": "g++ -c engine.cu.cpp"},
               {"directory": str(build / "x"), "file": "/usr/src/dependency.cpp", "command": "g++ -c dependency.cpp"}]
    (build / "compile_commands.json").write_text(json.dumps(entries))
    found = toy.findings("--compile-commands", build / "compile_commands.json")
    assert len(found) == 1 and found[0].startswith(f"{build}/engine.cu.cpp:1: compile-flags: ")
    (build / "compile_commands.json").write_text("[]")
    assert toy.findings("--compile-commands", build / "compile_commands.json") == [
        f"{build}/compile_commands.json:1: compile-flags: no file is compiled; expected some"]
    (build / "compile_commands.json").write_text("nonsense")
    done = toy.run("--compile-commands", build / "compile_commands.json")
    assert done.returncode == 1 and done.stderr.count("\n") == 1


# --- Reading sources -----------------------------------------------------------------------------------------------------


def test_comments_and_strings_are_told_from_code(tmp_path):
    text = "a // b \"c\"\n\"d // e\" /* f\n\"g */ h 'i' 1'000'000 R\"x(j // )\" k)x\" l\n// m \\\nn\no \"p\\\"q\" r\n"
    (tmp_path / "x.cu").write_text(text)
    source = Source.read(tmp_path / "x.cu")
    assert len(source.code) == len(source.comments) == len(source.strings) == len(text)
    assert source.code.split() == ["a", "h", "1'000'000", "l", "o", "r"]
    assert source.comments.split() == ["//", "b", '"c"', "/*", "f", '"g', "*/", "//", "m", "\\", "n"]
    assert source.strings.split() == ['"d', "//", 'e"', "'i'", 'R"x(j', "//", ')"', 'k)x"', '"p\\"q"']
