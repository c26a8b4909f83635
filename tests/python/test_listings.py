# SPDX-License-Identifier: MIT
"""Code in the README files: found by name in the sources, and shown without what is meant for the reference."""

import re
from pathlib import Path

import pytest

from minfer_tools import listings
from minfer_tools.errors import Failure

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """\
#pragma once
namespace minfer {
void later(int a);

/// y = a x.
/// @param a  what x is scaled by. @pre a > 0
/// @pre n % 32 == 0
/// @why Two words of reason, with
/// a second line, and an "{".
template <class T>
__global__ void __launch_bounds__(128)
    scale(T* y,        ///< out [n]
          const T* x,  ///< [n]
          int n) {
  if (n > 0) {
    y[0] = x[0];  // '}' is a character
  }
}

inline void launch_scale(const Step& s, float* y, const float* x, int n) {
  const Traffic traffic = {8ull * std::uint64_t{n}, 4ull};
  s.launch(scale<float>, ceil_div(n, 128), 128, traffic, y, x, n);
}

/// A pair.
struct Pair {
  int first;  ///< of two

  /// @return the larger
  int larger() const { return first; }

 private:
  int second;
};

}  // namespace minfer
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "scale.cuh"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_a_kernel_is_found_whole_and_its_comment_has_no_tags(source):
    code = listings.find(source, "scale", "scale.cuh")
    assert (code.first, code.last) == (5, 18)
    assert code.text.splitlines()[:5] == ["// y = a x.", "// a: what x is scaled by.", "template <class T>",
                                          "__global__ void __launch_bounds__(128)", "    scale(T* y,        // out [n]"]
    assert code.body[0] == "template <class T>" and code.body_first == 10


def test_what_it_requires_and_how_it_is_launched_is_its_caption(source):
    assert listings.find(source, "scale", "scale.cuh").notes() == [
        "Requires: a > 0; n % 32 == 0.",
        "Launched with `ceil_div(n, 128)` blocks of `128` threads for each token, to move `8 * n` bytes, and `4` for each "
        "position."]
    assert listings.find(source, "launch_scale", "scale.cuh").notes() == []


def test_a_launch_may_have_template_arguments_and_no_bytes_but_those_of_positions(tmp_path):
    path = tmp_path / "twice.cuh"
    path.write_text("template <class T, int kN>\n__global__ void twice(T* y) {}\n\n"
                    "inline void launch_twice(const Step& s) {\n"
                    "  s.launch(twice<float, 2>, 3, 64, {0, 8ull * n}, y);\n}\n", encoding="utf-8")
    assert listings.find(path, "twice", "twice.cuh").notes() == [
        "Launched with `3` blocks of `64` threads for each token, to move `8 * n` bytes for each position."]


def test_classes_and_their_members(source):
    whole, member = (listings.find(source, name, "scale.cuh").text for name in ("Pair", "Pair::larger"))
    assert whole.splitlines()[:3] == ["// A pair.", "struct Pair {", "  int first;  // of two"]
    assert member == "// Returns the larger\nint larger() const { return first; }"


@pytest.mark.parametrize("name", ["later", "nothing", "Pair::nothing", "T"])
def test_what_is_no_definition_is_named(source, name):
    with pytest.raises(Failure, match=f"^scale.cuh: found 0 definitions of {name}, expected one$"):
        listings.find(source, name, "scale.cuh")


def test_two_definitions_are_one_too_many(source):
    source.write_text(SOURCE.replace("void later(int a);", "void scale(int a) {}"), encoding="utf-8")
    with pytest.raises(Failure, match="found 2 definitions of scale"):
        listings.find(source, "scale", "scale.cuh")


def test_two_names_are_a_diff(tmp_path):
    for name, factor in (("a.h", 2), ("b.h", 3)):
        text = f"/// Comment {name}.\nint times(int x) {{\n  return {factor} * x;\n}}\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
    text = listings.render("<!-- code: a.h#times b.h#times -->\n<!-- /code -->\n", tmp_path, tmp_path)
    assert text.splitlines()[1:-1] == ["```diff", " int times(int x) {", "-  return 2 * x;", "+  return 3 * x;", " }", "```"]


def test_nothing_for_the_reference_reaches_a_listing():
    """No tag, no comment of Doxygen's and no backslash in any README of the project."""
    shown = [match[3] for path in [ROOT / "README.md", *ROOT.glob("chapters/*/README.md")]
             for match in listings.MARKED.finditer(path.read_text(encoding="utf-8"))]
    assert len(shown) > 10 and all(shown)
    assert not [text for text in shown if re.search(r"///|@(pre|why|param|return)\b|\\\\", text)]
