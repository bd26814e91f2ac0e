"""The comparison of two trees sees each part that differs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests import same_bits

FOUND: dict[str, Any] = {
    "a": {"figures": {"law": "Laplace"}, "releases": ["1"], "states": "00"},
    "b": {"refused": "ValueError: no"},
}


def test_equal_trees_do_not_differ() -> None:
    assert list(same_bits.differences(FOUND, copy.deepcopy(FOUND))) == []


@pytest.mark.parametrize(
    ("name", "part", "other"),
    [
        ("a", "figures", {"law": "Gaussian"}),
        ("a", "releases", ["1", "1"]),
        ("a", "states", "01"),
        ("b", "refused", "ValueError: yes"),
    ],
)
def test_each_part_that_differs_is_named(name: str, part: str, other: Any) -> None:
    theirs = copy.deepcopy(FOUND)
    theirs[name][part] = other
    assert list(same_bits.differences(FOUND, theirs)) == [f"{name}: {part}"]


def test_a_sentence_that_is_gone_is_named() -> None:
    (line,) = same_bits.differences(FOUND, {"a": FOUND["a"]})
    assert line == "b: refused"
