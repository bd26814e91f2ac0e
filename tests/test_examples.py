"""Examples in the docstrings of public names print what they say."""

from __future__ import annotations

import doctest

import pytest

import beam_dpcount as dp

NAMES = [name for name in dp.__all__ if ">>>" in (getattr(dp, name).__doc__ or "")]


def test_what_everyone_begins_with_has_an_example() -> None:
    assert {"calibrate", "choose", "Ledger"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_examples_print_what_they_say(name: str) -> None:
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(getattr(dp, name), name, module=False, globs={})
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
