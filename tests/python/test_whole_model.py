# SPDX-License-Identifier: MIT
"""Under which chapter's name whole_model.py looks for the bits that a GPU gave."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "chapters"))

import whole_model  # noqa: E402

SAME = {"b": [{"environment": {"LMHEAD": "0"}, "as": "a"}, {"environment": {}, "as": "c"}],
        "d": [{"environment": {}, "as": "b"}],
        "e": [{"environment": {"LMHEAD": "8"}, "as": "d"}],
        "f": [{"environment": {}, "as": "e"}]}


@pytest.mark.parametrize("name, recorded, expected", [
    ("b", "ab", ("b", {})),                 # its own first
    ("d", "ac", ("c", {})),                 # then one that has the same bits, however far back
    ("b", "a", ("a", {"LMHEAD": "0"})),     # then one that has them with an option
    ("e", "c", ("c", {"LMHEAD": "8"})),
    ("f", "ac", None),                      # whose predecessor's option it may not have
    ("g", "ac", None),
])
def test_bits_are_those_of_a_chapter_that_has_the_same(name, recorded, expected):
    assert whole_model.recorded_as(name, {"same_bits": SAME}, recorded) == expected
