"""Every public transform has an example in its docstring, and every example is run."""

from __future__ import annotations

import doctest
import inspect

import apache_beam as beam
import pytest

from tests.public import PUBLIC

TRANSFORMS = [
    name
    for name, given in PUBLIC.items()
    if inspect.isclass(given) and issubclass(given, beam.PTransform)
]
NEEDED = [*TRANSFORMS, "Ledger", "calibrate", "check", "choose"]


def examples(name: str) -> list[doctest.DocTest]:
    given = PUBLIC[name]
    return list(doctest.DocTestFinder(recurse=False).find(given, name))


def test_all_that_needs_an_example_has_one() -> None:
    assert len(TRANSFORMS) >= 24
    assert [name for name in NEEDED if not any(test.examples for test in examples(name))] == []


@pytest.mark.pipeline
@pytest.mark.parametrize("name", PUBLIC)
def test_examples_give_what_they_say(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runner = doctest.DocTestRunner()
    for test in examples(name):
        runner.run(test)
    assert runner.failures == 0, capsys.readouterr().out
