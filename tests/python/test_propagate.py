# SPDX-License-Identifier: MIT
"""tools/propagate.py on toy chapters in a git repository of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "propagate.py"


def kernel(idea: str) -> str:
    """A source file whose middle is the chapter's idea and whose ends all chapters share."""
    return "".join(f"head {n}\n" for n in range(8)) + f"idea {idea}\n" + "".join(f"tail {n}\n" for n in range(8))


class Toy:
    def __init__(self, root: Path):
        self.root = root
        self.git("init", "-q")
        self.git("config", "user.name", "toy")
        self.git("config", "user.email", "toy@example.org")

    def git(self, *arguments):
        return subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True).stdout

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "toy")

    def path(self, name):
        return self.root / "chapters" / name

    def write(self, name, text):
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_text(text)

    def read(self, name):
        return self.path(name).read_text()

    def fix(self, name, old, new):
        text = self.read(name)
        assert text.count(old) == 1
        self.write(name, text.replace(old, new))

    def run(self, *arguments):
        return subprocess.run([sys.executable, TOOL, "--root", self.root, *arguments], capture_output=True, text=True,
                              check=False)

    def snapshot(self):
        """Every file of the working tree with its content and mode."""
        return {p.relative_to(self.root): (p.read_bytes(), p.stat().st_mode)
                for p in self.root.rglob("*") if p.is_file() and ".git" not in p.relative_to(self.root).parts}


CHAPTERS = ["00-roofline", "01-reference", "02-naive", "03-warp", "04-graph", "05-dp4a"]


@pytest.fixture
def toy(tmp_path):
    toy = Toy(tmp_path)
    for name in CHAPTERS:
        toy.write(f"{name}/engine.cu", kernel(name))
        toy.write(f"{name}/main.cpp", "int main() {}\n")
        toy.write(f"{name}/README.md", f"# {name}\n\nOwn words of {name}.\n\n<!-- table: speed -->\n| {name} |\n"
                  f"<!-- /table -->\n\n<!-- code: engine.cu#run -->\ncode of {name}\n<!-- /code -->\n\n"
                  + "".join(f"shared {n}\n" for n in range(6)))
        toy.write(f"{name}/results/machine.json", f'{{"chapter": "{name}"}}\n')
        toy.write(f"{name}/dead-ends/lost.patch", "lost\n")
    toy.commit()
    return toy


def test_carries_an_uncommitted_fix_through_all_later_chapters(toy):
    toy.fix("02-naive/engine.cu", "head 1\n", "head one\n")
    before = toy.snapshot()
    done = toy.run()
    assert done.returncode == 0, done.stderr
    for name in CHAPTERS[3:]:
        assert toy.read(f"{name}/engine.cu") == kernel(name).replace("head 1\n", "head one\n")
        assert f"{name}/engine.cu: merged" in done.stdout.splitlines()
    touched = {p for p, content in toy.snapshot().items() if before[p] != content}
    assert touched == {Path("chapters") / n / "engine.cu" for n in CHAPTERS[3:]}


def test_earlier_chapters_and_the_benchmark_are_left_alone(toy):
    toy.fix("03-warp/engine.cu", "head 1\n", "head one\n")
    toy.run()
    for name in CHAPTERS[:3]:
        assert toy.read(f"{name}/engine.cu") == kernel(name)
    toy.git("checkout", "-q", ".")
    toy.fix("00-roofline/engine.cu", "head 1\n", "head one\n")
    done = toy.run()
    assert done.returncode == 1 and "nothing to carry" in done.stderr


def test_a_second_run_changes_nothing(toy):
    toy.fix("02-naive/engine.cu", "head 1\n", "head one\n")
    toy.run()
    before = toy.snapshot()
    assert toy.run("--from", "02").returncode == 0
    assert toy.snapshot() == before


def test_since_takes_what_was_committed(toy):
    toy.fix("03-warp/engine.cu", "tail 6\n", "tail six\n")
    toy.commit()
    assert "nothing to carry" in toy.run().stderr
    assert toy.run("--since", "HEAD~1").returncode == 0
    assert toy.read("05-dp4a/engine.cu") == kernel("05-dp4a").replace("tail 6\n", "tail six\n")
    assert toy.run("--since", "nowhere").returncode == 1


def test_from_and_to(toy):
    toy.fix("02-naive/engine.cu", "head 1\n", "head one\n")
    assert toy.run("--from", "02", "--to", "04").returncode == 0
    assert "head one" in toy.read("04-graph/engine.cu") and "head one" not in toy.read("05-dp4a/engine.cu")
    assert toy.run("--from", "02", "--to", "02").returncode == 2
    assert toy.run("--from", "09").returncode == 2


def test_two_changed_chapters_need_from(toy):
    toy.fix("02-naive/engine.cu", "head 1\n", "head one\n")
    toy.fix("04-graph/engine.cu", "tail 6\n", "tail six\n")
    done = toy.run()
    assert done.returncode == 2 and "chapters 02, 04 have changed" in done.stderr
    assert toy.run("--from", "02").returncode == 0
    # Only the fix of 02 went on to 05, not what else was new in 04.
    assert toy.read("05-dp4a/engine.cu") == kernel("05-dp4a").replace("head 1\n", "head one\n")
    assert "head one\n" in toy.read("04-graph/engine.cu") and "tail six\n" in toy.read("04-graph/engine.cu")


def test_each_merge_starts_from_the_chapter_before(toy):
    """Chapter 03 rewrites a line that 04 moves on from: only chaining bridges the two."""
    for name, line in (("02-naive", "a = f(1);\n"), ("03-warp", "a = f(1);\nb = g(a);\n"),
                       ("04-graph", "b = g(a);\n"), ("05-dp4a", "b = g(a);\n")):
        toy.write(f"{name}/extra.cu", f"begin\n{line}end\n" + "".join(f"rest {n}\n" for n in range(5)))
    toy.commit()
    toy.fix("02-naive/extra.cu", "rest 3\n", "rest three\n")
    assert toy.run().returncode == 0
    assert toy.read("05-dp4a/extra.cu") == "begin\nb = g(a);\nend\nrest 0\nrest 1\nrest 2\nrest three\nrest 4\n"


def test_dry_run_says_the_same_and_writes_nothing(toy):
    toy.fix("02-naive/engine.cu", "head 1\n", "head one\n")
    before = toy.snapshot()
    dry = toy.run("--dry-run")
    assert toy.snapshot() == before
    assert dry.returncode == 0 and dry.stdout == toy.run().stdout != ""


def test_dry_run_of_a_conflict(toy):
    toy.fix("02-naive/engine.cu", "idea 02-naive\n", "idea repaired\n")
    before = toy.snapshot()
    done = toy.run("--dry-run")
    assert done.returncode == 1 and "03-warp/engine.cu: conflict: 1 place to resolve" in done.stderr
    assert toy.snapshot() == before
    assert "nothing to undo" in toy.run("--abort").stderr


def conflict_in_04(toy):
    """A fix of 02 that reaches 03 whole, and one of 04's files not."""
    toy.write("03-warp/engine.cu", kernel("02-naive").replace("tail 7\n", "tail 7\nwarp\n"))
    toy.commit()
    toy.fix("02-naive/engine.cu", "idea 02-naive\n", "idea repaired\n")
    toy.fix("02-naive/main.cpp", "int main() {}\n", "int main() { return 0; }\n")
    return toy.run()


def test_a_conflict_stops_the_run_and_leaves_markers(toy):
    done = conflict_in_04(toy)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "04-graph/engine.cu: conflict: 1 place to resolve",
        "propagate: stopped at 04-graph: resolve it, then --continue; or --abort",
    ]
    text = toy.read("04-graph/engine.cu")
    assert re.search("<<<<<<< 04-graph\nidea 04-graph\n\\|{7} .*\nidea 02-naive\n=======\nidea repaired\n>>>>>>> fixed\n", text)
    assert "idea repaired" in toy.read("03-warp/engine.cu")
    assert "return 0" in toy.read("04-graph/main.cpp")
    assert toy.read("05-dp4a/engine.cu") == kernel("05-dp4a") and "return 0" not in toy.read("05-dp4a/main.cpp")


def test_abort_restores_everything(toy):
    toy.write("03-warp/engine.cu", kernel("02-naive"))
    toy.path("03-warp/main.cpp").chmod(0o755)
    toy.commit()
    toy.fix("02-naive/engine.cu", "idea 02-naive\n", "idea repaired\n")
    toy.write("02-naive/new.cuh", "new\n")
    toy.path("02-naive/main.cpp").unlink()
    before = toy.snapshot()
    assert toy.run().returncode == 1
    assert toy.snapshot() != before
    assert toy.run("--abort").returncode == 0
    assert toy.snapshot() == before
    assert toy.run("--abort").returncode == 1


def test_continue_goes_on_from_the_resolved_chapter(toy):
    conflict_in_04(toy)
    unresolved = toy.run("--continue")
    assert unresolved.returncode == 1 and "engine.cu:9: a conflict marker" in unresolved.stderr
    resolved = kernel("04-graph").replace("head 0\n", "head 0, repaired\n")
    toy.write("04-graph/engine.cu", resolved)
    done = toy.run("--continue")
    assert done.returncode == 0, done.stderr
    assert toy.read("04-graph/engine.cu") == resolved
    assert toy.read("05-dp4a/engine.cu") == kernel("05-dp4a").replace("head 0\n", "head 0, repaired\n")
    assert "return 0" in toy.read("05-dp4a/main.cpp")
    assert toy.run("--continue").returncode == 1


def test_abort_after_a_continue_undoes_both(toy):
    conflict_in_04(toy)
    toy.git("checkout", "-q", "chapters/03-warp", "chapters/04-graph", "chapters/05-dp4a")
    before = toy.snapshot()
    toy.run("--abort")
    toy.run()
    toy.write("04-graph/engine.cu", kernel("04-graph").replace("idea 04-graph\n", "idea repaired\n"))
    again = toy.run("--continue")
    assert again.returncode == 1 and "05-dp4a/engine.cu: conflict" in again.stderr
    assert toy.run("--abort").returncode == 0
    assert toy.snapshot() == before


def test_a_new_run_waits_for_the_old_one(toy):
    conflict_in_04(toy)
    before = toy.snapshot()
    done = toy.run("--from", "02")
    assert done.returncode == 1 and "--continue it or --abort it" in done.stderr
    assert toy.snapshot() == before


def test_a_cut_off_run_can_be_undone(toy):
    toy.fix("02-naive/engine.cu", "head 1\n", "head one\n")
    toy.fix("02-naive/main.cpp", "int main() {}\n", "int main() { return 0; }\n")
    before = toy.snapshot()
    folder = toy.path("05-dp4a")
    cut = ("import sys, os; sys.path.insert(0, sys.argv.pop(1)); import propagate\n"
           "copy = propagate.shutil.copy\n"
           "def cut(a, b):\n"
           f"    if str(b) == {str(folder / 'main.cpp')!r}: os._exit(9)\n"
           "    copy(a, b)\n"
           "propagate.shutil.copy = cut\n"
           "propagate.main(sys.argv[1:])\n")
    done = subprocess.run([sys.executable, "-c", cut, TOOL.parent, "--root", toy.root], check=False)
    assert done.returncode == 9 and "head one" in toy.read("05-dp4a/engine.cu")
    assert "return 0" not in toy.read("05-dp4a/main.cpp")
    assert "cut off" in toy.run("--continue").stderr
    assert toy.run("--abort").returncode == 0
    assert toy.snapshot() == before


def test_new_files_reach_all_later_chapters(toy):
    toy.write("03-warp/kernels/rope.cuh", "rope\n")
    toy.path("03-warp/kernels/rope.cuh").chmod(0o755)
    assert toy.run().returncode == 0
    for name in CHAPTERS[4:]:
        assert toy.read(f"{name}/kernels/rope.cuh") == "rope\n"
        assert os.access(toy.path(f"{name}/kernels/rope.cuh"), os.X_OK)
    assert not toy.path("02-naive/kernels").exists()


def test_a_new_file_that_a_later_chapter_has_otherwise_is_a_conflict(toy):
    toy.write("05-dp4a/rope.cuh", "another rope\n")
    toy.commit()
    toy.write("03-warp/rope.cuh", "rope\n")
    done = toy.run()
    assert done.returncode == 1 and "05-dp4a/rope.cuh: conflict" in done.stderr
    assert toy.read("04-graph/rope.cuh") == "rope\n"


def test_deleted_files_go_from_later_chapters(toy):
    for name in CHAPTERS[2:]:
        toy.write(f"{name}/extra/scratch.cuh", "scratch\n")
    toy.commit()
    toy.path("03-warp/extra/scratch.cuh").unlink()
    done = toy.run()
    assert done.returncode == 0 and "05-dp4a/extra/scratch.cuh: deleted" in done.stdout
    assert toy.path("02-naive/extra/scratch.cuh").exists()
    assert not any(toy.path(f"{name}/extra").exists() for name in CHAPTERS[4:])


def test_deleting_what_a_later_chapter_has_changed_is_a_conflict(toy):
    for name in CHAPTERS[3:]:
        toy.write(f"{name}/scratch.cuh", "scratch\n" + (name if name == "05-dp4a" else ""))
    toy.commit()
    toy.path("03-warp/scratch.cuh").unlink()
    done = toy.run()
    assert done.returncode == 1 and "05-dp4a/scratch.cuh: conflict: the fix deletes it" in done.stderr
    assert not toy.path("04-graph/scratch.cuh").exists() and toy.path("05-dp4a/scratch.cuh").exists()
    assert toy.run("--continue").returncode == 0  # kept: that is a decision too


def test_a_renamed_file_keeps_each_chapter_s_idea(toy):
    text = toy.read("03-warp/engine.cu").replace("head 1\n", "head one\n")
    toy.path("03-warp/engine.cu").unlink()
    toy.write("03-warp/forward.cu", text)
    done = toy.run()
    assert done.returncode == 0, done.stderr
    for name in CHAPTERS[4:]:
        assert not toy.path(f"{name}/engine.cu").exists()
        assert toy.read(f"{name}/forward.cu") == kernel(name).replace("head 1\n", "head one\n")
        assert f"{name}/forward.cu: renamed from engine.cu" in done.stdout.splitlines()


def test_a_rename_onto_a_file_that_is_there_is_a_conflict(toy):
    toy.write("05-dp4a/forward.cu", "forward\n")
    toy.commit()
    toy.path("03-warp/engine.cu").rename(toy.path("03-warp/forward.cu"))
    done = toy.run()
    assert done.returncode == 1 and "05-dp4a/forward.cu: conflict: 1 place to resolve" in done.stderr
    text = toy.read("05-dp4a/forward.cu")
    assert text.count("forward\n") == 1 and text.count("idea 05-dp4a\n") == 1


def test_a_file_that_a_later_chapter_dropped_is_left_out(toy):
    toy.path("04-graph/engine.cu").unlink()
    toy.commit()
    toy.fix("03-warp/engine.cu", "head 1\n", "head one\n")
    done = toy.run()
    assert done.returncode == 0
    assert "04-graph/engine.cu: not in this chapter, left out" in done.stdout
    assert not toy.path("04-graph/engine.cu").exists()


def test_results_and_dead_ends_stay(toy):
    toy.write("03-warp/results/other.json", "{}\n")
    toy.write("03-warp/results/machine.json", '{"fixed": true}\n')
    toy.write("03-warp/dead-ends/lost.patch", "fixed\n")
    before = toy.snapshot()
    done = toy.run()
    assert done.returncode == 1 and "nothing to carry" in done.stderr
    assert toy.snapshot() == before


def test_readme_tables_and_own_words_stay(toy):
    toy.fix("03-warp/README.md", "| 03-warp |\n", "| 03-warp, measured again |\n")
    toy.fix("03-warp/README.md", "Own words of 03-warp.", "Other words.")
    toy.fix("03-warp/README.md", "shared 3\n", "shared three\n")
    toy.fix("03-warp/README.md", "code of 03-warp\n", "code of 03-warp, changed\n")
    done = toy.run()
    assert done.returncode == 0, done.stderr
    assert "04-graph/README.md: left out 1 change to words of its own" in done.stdout
    for name in CHAPTERS[4:]:
        text = toy.read(f"{name}/README.md")
        assert f"#run -->\ncode of {name}\n<!-- /code -->\n" in text
        assert f"Own words of {name}." in text and f"<!-- table: speed -->\n| {name} |\n<!-- /table -->\n" in text
        assert "shared three\n" in text and "<<<<" not in text


def test_a_table_alone_is_no_change(toy):
    toy.fix("03-warp/README.md", "| 03-warp |\n", "| 03-warp, measured again |\n")
    before = toy.snapshot()
    assert toy.run().returncode == 0
    assert toy.snapshot() == before


def test_executable_bits_are_kept_and_carried(toy):
    toy.path("04-graph/engine.cu").chmod(0o755)
    toy.commit()
    toy.fix("03-warp/engine.cu", "head 1\n", "head one\n")
    toy.path("03-warp/main.cpp").chmod(0o755)
    assert toy.run().returncode == 0
    executable = {n: os.access(toy.path(n), os.X_OK) for n in
                  ("04-graph/engine.cu", "05-dp4a/engine.cu", "04-graph/main.cpp", "05-dp4a/main.cpp")}
    assert executable == {"04-graph/engine.cu": True, "05-dp4a/engine.cu": False, "04-graph/main.cpp": True,
                          "05-dp4a/main.cpp": True}


def test_bytes_pass_unchanged(toy):
    """CRLF, bytes that are no UTF-8, and no newline at the end."""
    for name in CHAPTERS[2:]:
        toy.path(f"{name}/odd.cuh").write_bytes(b"one\r\ntwo \xff\r\n" + b"x\n" * 6 + name.encode() + b"\n" * 6 + b"end")
    toy.commit()
    path = toy.path("02-naive/odd.cuh")
    path.write_bytes(path.read_bytes().replace(b"one\r\n", b"ONE\r\n"))
    assert toy.run().returncode == 0
    expected = b"ONE\r\ntwo \xff\r\n" + b"x\n" * 6 + b"05-dp4a" + b"\n" * 6 + b"end"
    assert toy.path("05-dp4a/odd.cuh").read_bytes() == expected


def test_a_binary_file_that_differs_is_a_conflict(toy):
    for name in CHAPTERS[2:]:
        toy.path(f"{name}/table.bin").write_bytes(b"\0one" + (b"\0mine" if name == "05-dp4a" else b""))
    toy.commit()
    toy.path("02-naive/table.bin").write_bytes(b"\0two")
    done = toy.run()
    assert done.returncode == 1 and "05-dp4a/table.bin: conflict: binary" in done.stderr
    assert toy.path("04-graph/table.bin").read_bytes() == b"\0two"
    assert toy.path("05-dp4a/table.bin").read_bytes() == b"\0one\0mine"


def test_markers_in_the_fix_are_refused(toy):
    toy.fix("03-warp/engine.cu", "head 1\n", "<<<<<<< mine\nhead 1\n>>>>>>> yours\n")
    before = toy.snapshot()
    done = toy.run()
    assert done.returncode == 1 and "03-warp/engine.cu:2: a conflict marker" in done.stderr
    assert toy.snapshot() == before


def test_an_uncommitted_chapter_receives_a_fix_but_is_no_source(toy):
    toy.write("06-new/engine.cu", kernel("06-new"))
    toy.fix("05-dp4a/engine.cu", "head 1\n", "head one\n")
    assert toy.run().returncode == 0
    assert toy.read("06-new/engine.cu") == kernel("06-new").replace("head 1\n", "head one\n")
    done = toy.run("--from", "06")
    assert done.returncode == 1 and "06-new is not in HEAD" in done.stderr


def test_a_chapter_s_slug_may_change(toy):
    toy.path("03-warp").rename(toy.path("03-warp-gemv"))
    toy.fix("03-warp-gemv/engine.cu", "head 1\n", "head one\n")
    assert toy.run("--from", "03").returncode == 0
    assert toy.read("04-graph/engine.cu") == kernel("04-graph").replace("head 1\n", "head one\n")


def test_ignored_files_are_left_out(toy):
    toy.write("03-warp/build/engine.o", "object\n")
    (toy.root / ".gitignore").write_text("build/\n")
    toy.fix("03-warp/engine.cu", "head 1\n", "head one\n")
    assert toy.run().returncode == 0
    assert not toy.path("04-graph/build").exists()


def test_the_last_chapter_has_nowhere_to_go(toy):
    toy.fix("05-dp4a/engine.cu", "head 1\n", "head one\n")
    done = toy.run()
    assert done.returncode == 0 and "05-dp4a is the last chapter" in done.stdout


def test_usage(toy):
    assert toy.run("--continue", "--abort").returncode == 2
    assert toy.run("--continue", "--dry-run").returncode == 2
    assert toy.run("--continue").returncode == 1
    assert "--dry-run" in toy.run("--help").stdout


def test_the_person_s_index_is_left_alone(toy):
    toy.fix("02-naive/engine.cu", "head 1\n", "head one\n")
    toy.git("add", "chapters/02-naive/engine.cu")
    toy.fix("02-naive/main.cpp", "int main() {}\n", "int main() { return 0; }\n")
    assert toy.run().returncode == 0
    assert toy.git("diff", "--cached", "--name-only").split() == ["chapters/02-naive/engine.cu"]


def test_a_chapter_abandoned_in_a_conflict_leaves_other_edits(toy):
    conflict_in_04(toy)
    toy.write("02-naive/main.cpp", "int main() { return 2; }\n")
    assert toy.run("--abort").returncode == 0
    assert toy.read("02-naive/main.cpp") == "int main() { return 2; }\n"
