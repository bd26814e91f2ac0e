"""What `make unit`, `make test` and CI leave to `make test-all`, which leaves only audits."""

from __future__ import annotations

import itertools
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from types import ModuleType

import pytest

from tests import runners
from tests.selection import cover, part_of, starts

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest"]


def command(target: str) -> list[str]:
    """The words of pytest's command in a target of the Makefile."""
    rules = (ROOT / "Makefile").read_text("utf-8").split("\n\n")
    (rule,) = (rule for rule in rules if f"\n{target}: " in f"\n{rule}")
    return rule.split("-m pytest ")[1].splitlines()[0].split()


def test_all_tests_but_audits_are_in_test_all() -> None:
    """Whichever markers there are: only these words choose, and CI runs one part or another."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    options = settings["tool:pytest"]["addopts"]
    assert options.endswith('-m "not audit"')
    assert "-k" not in options
    words = ["-rs", "-n", "$(JOBS)", "--dist", "worksteal", "$(PART:%=--part", "%)", "tests"]
    assert command("test-all") == words
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    assert '\nmake check PART="$part/12"\n' in ci
    assert "\nPART ?=\n" in (ROOT / "Makefile").read_text("utf-8")
    assert "\ncheck: lint test-all\n" in (ROOT / "Makefile").read_text("utf-8")


@pytest.mark.long
def test_parts_are_all_together_and_leave_out_exhaustive_cases_only() -> None:
    """Of a module that has such cases and others."""

    def cases(*words: str) -> set[str]:
        listed = [*PYTEST, "--collect-only", *words, "tests/test_binned.py"]
        done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
        return {line for line in done.stdout.splitlines() if "::" in line}

    every, plain = cases(), cases("-m", "not (audit or exhaustive or long)")
    thirds = [cases("--part", f"{part}/3") for part in range(3)]
    assert set[str]().union(*thirds) == every
    assert all(one & other == plain for one, other in itertools.combinations(thirds, 2))
    assert all(len(plain) < len(third) < len(every) for third in thirds)


@pytest.mark.parametrize("text", ["2/2", "-1/2", "1", "a/b", "1/2/3"])
def test_parts_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        part_of(text)


@pytest.mark.parametrize("sizes", [(3, 1), (3, 4), (12, 2, 5), (1,)])
def test_a_cover_has_each_value_and_is_small(sizes: tuple[int, ...]) -> None:
    cases: list[frozenset[tuple[int, int]]] = [frozenset()]
    for axis, size in enumerate(sizes):
        cases = [case | {(axis, value)} for case in cases for value in range(size)]
    kept = cover(cases)
    assert len(kept) == max(sizes)
    assert set().union(*(cases[i] for i in kept)) == set().union(*cases)
    assert kept == cover(cases)


def test_a_cover_of_two_values_takes_turns() -> None:
    cases = [{f"kind {kind}", f"path {path}"} for kind in range(8) for path in range(2)]
    paths = [max(cases[i]) for i in cover(cases)]
    assert paths.count("path 0") == paths.count("path 1") == 4


def _helper() -> object:
    return runners.run(lambda pipeline: pipeline)


def test_what_starts_a_pipeline_is_seen_through_helpers() -> None:
    def inside() -> object:
        return _helper()

    def process() -> None:
        subprocess.run(["true"], check=True)

    def by_default(run: object = _helper) -> object:
        return run

    def none(module: ModuleType) -> int:
        return len(module.__name__)

    assert all(starts(thing, {}) for thing in (inside, process, by_default, _helper))
    assert not starts(none, {})
    assert not starts(cover, {})


def test_pipelines_are_marked(request: pytest.FixtureRequest) -> None:
    """This one names a process, in code that never runs."""
    if request is None:
        subprocess.run(["true"], check=True)
    assert request.node.get_closest_marker("pipeline")
