# SPDX-License-Identifier: MIT
"""How pages come out of the checkout: a new chapter needs no change under docs/, and what is wrong in a
source or a README stops the build with a line that names it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("chapters", "common", "oracle", "docs", "tools")
TEXTS = ("README.md", "CONTRIBUTING.md", "CITATION.cff")


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the site is made of."""
    for name in PARTS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    for name in TEXTS:
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def write_pages(checkout):
    return subprocess.run([sys.executable, checkout / "docs" / "build.py", checkout / "out", "--pages-only"],
                          capture_output=True, text=True, check=False)


def newest(checkout):
    return max(path for path in (checkout / "chapters").iterdir() if re.match(r"\d\d-", path.name))


def replace(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text, f"{path.name}: no {old!r} to replace"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_a_new_chapter_appears_by_itself(checkout):
    before = newest(checkout)
    added = checkout / "chapters" / f"{int(before.name[:2]) + 1:02d}-brand-new"
    shutil.copytree(before, added)
    replace(added / "README.md", "# ", "# A brand new idea\n\nNot the old ")
    result = write_pages(checkout)
    assert result.returncode == 0, result.stderr
    pages = checkout / "out" / "source"
    text = (pages / "chapters" / f"{added.name}.md").read_text(encoding="utf-8")
    assert "# A brand new idea" in text
    diff = (pages / "chapters" / added.name / "diff.md").read_text(encoding="utf-8")
    assert f"{{chapter-diff}} {before.name} {added.name}" in diff and f"](/chapters/{added.name}/diff.md)" in text
    assert not (pages / "chapters" / "02-naive" / "diff.md").exists(), "the first of its engine"
    assert f"{{listing}} chapters/{added.name}/" in text
    assert f"A brand new idea <{added.name}>" in (pages / "chapters" / "index.md").read_text(encoding="utf-8")
    api = (pages / "chapters" / added.name / "api.md").read_text(encoding="utf-8")
    names = re.findall(r"minfer::(\w+)::(\w+)", (pages / "chapters" / before.name / "api.md").read_text(encoding="utf-8"))
    assert names and all(f"minfer::brand_new::{name}" in api for _, name in names)
    assert (pages / "source" / "chapters" / added.name / "gemv.cuh.md").exists()


def test_a_kernel_must_give_each_pointer_its_shape(checkout):
    path = max(checkout.glob("chapters/*/kernels.cuh"))
    comment = re.search(r"__global__[^)]*?(  ///< [^\n]*\[[^\n]*)", path.read_text(encoding="utf-8"))
    replace(path, comment[1], "")
    result = write_pages(checkout)
    assert result.returncode == 1
    assert re.search(r"kernels\.cuh:\d+: \w+: found no shape beside \w+, expected", result.stderr), result.stderr


def test_a_parameter_keeps_its_comment_behind_the_brace_and_with_a_colon(checkout):
    path = checkout / "chapters" / "00-roofline" / "stream.cu"
    assert ") {        ///< index of the first 32-bit word" in path.read_text(encoding="utf-8")
    replace(path, "///< [n], dense", "///< [n]: dense")
    assert write_pages(checkout).returncode == 0
    text = "".join(path.read_text(encoding="utf-8") for path in (checkout / "out/doxygen/roofline/xml").glob("*.xml"))
    assert "<para>index of the first 32-bit word </para>" in text and "<para>[n]: dense </para>" in text


def test_any_other_warning_of_doxygen_fails(checkout):
    path = checkout / "oracle" / "ops.h"
    comment = re.search(r"\n/// [^\n]+", path.read_text(encoding="utf-8"))[0]
    replace(path, comment, f"{comment} @nonsense")
    result = write_pages(checkout)
    assert result.returncode == 1
    assert "oracle/ops.h" in result.stderr and "nonsense" in result.stderr


def test_a_listing_that_its_paragraph_does_not_name_fails(checkout):
    path = checkout / "chapters" / "03-warp-gemv" / "README.md"
    replace(path, "code: gemv.cuh#gemv", "code: common/cuda/reduce.h#block_sum")
    result = write_pages(checkout)
    assert result.returncode == 1
    assert re.fullmatch(r"chapters/03-warp-gemv/README\.md:\d+: lists common/cuda/reduce\.h#block_sum; expected a file of the "
                        r"chapter, or one that the paragraph names\n", result.stderr), result.stderr


def test_the_drawings_of_readmes_are_what_would_be_drawn(checkout):
    """And every picture of a README is there."""
    figures, drawn = ROOT / "docs" / "figures", checkout / "docs" / "figures"
    shown = [name for path in [ROOT / "README.md", *ROOT.glob("chapters/*/README.md")]
             for name in re.findall(r'(?:src|srcset)="\S*docs/figures/([\w.-]+)"', path.read_text(encoding="utf-8"))]
    assert len(set(shown)) > 10 and all((figures / name).is_file() for name in shown)
    for path in drawn.glob("*.svg"):
        if not path.name.startswith("ladder-"):
            path.write_text("", encoding="utf-8")
    result = subprocess.run([sys.executable, checkout / "docs" / "build.py", checkout / "out", "--pages-only", "--figures"],
                            capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not [path.name for path in drawn.glob("*.svg")
                if path.read_text(encoding="utf-8") != (figures / path.name).read_text(encoding="utf-8")]


def test_readme_and_site_have_one_order_of_reading():
    order = (ROOT / "README.md").read_text(encoding="utf-8").partition("## How to read it\n")[2].partition("\n## ")[0]
    assert re.findall(r"\]\((\S+)\)", order) == ["docs/pages/start/cuda.md", *(
        f"chapters/{name}/README.md" for name in ("00-roofline", "01-reference", "02-naive"))]
    for page in ("index.md", "start/index.md"):
        assert "<!-- readme: How to read it -->" in (ROOT / "docs" / "pages" / page).read_text(encoding="utf-8")


def test_a_section_that_a_page_takes_must_be_there(checkout):
    replace(checkout / "README.md", "## Platforms", "## Where it runs")
    result = write_pages(checkout)
    assert result.returncode == 1
    assert result.stderr.strip() == "README.md: found no section 'Platforms', which a page of the site takes from it"


def test_a_dark_page_is_as_dark_whether_asked_for_or_the_systems():
    """Furo's switch and the system's preference need two rules in CSS: the colours in both are the same."""
    sheet = (ROOT / "docs" / "_static" / "minfer.css").read_text(encoding="utf-8")
    asked, preferred = (re.search(re.escape(selector) + r" \{([^}]*)\}", sheet)[1].split()
                        for selector in ('body[data-theme="dark"]', 'body:not([data-theme="light"])'))
    assert len(asked) > 20 and asked == preferred
