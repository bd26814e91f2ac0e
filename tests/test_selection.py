"""What `make unit` and `make test` leave to `make test-all`, which leaves nothing but audits."""

from __future__ import annotations

import subprocess
from configparser import ConfigParser
from pathlib import Path
from types import ModuleType

import pytest

from tests import runners
from tests.selection import cover, starts

ROOT = Path(__file__).resolve().parents[1]


def command(target: str) -> list[str]:
    """The words of pytest's command in a target of the Makefile."""
    rules = (ROOT / "Makefile").read_text("utf-8").split("\n\n")
    (rule,) = (rule for rule in rules if f"\n{target}: " in f"\n{rule}")
    return rule.split("-m pytest ")[1].splitlines()[0].split()


def test_all_tests_but_audits_are_in_test_all() -> None:
    """Whichever markers there are: only these words choose, and CI runs them."""
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    options = settings["tool:pytest"]["addopts"]
    assert options.endswith('-m "not audit"')
    assert "-k" not in options
    assert command("test-all") == ["-rs", "-n", "$(JOBS)", "--dist", "worksteal", "tests"]
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    assert "\nmake check\n" in ci
    assert "\ncheck: lint test-all\n" in (ROOT / "Makefile").read_text("utf-8")


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
