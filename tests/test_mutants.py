"""The table of mutants lives with the code, what judges them is right, and all of them die."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from tests.mutants.runner import ALIVE, BROKEN, KILLED, ROOT, TableError, judged, mutated
from tests.mutants.table import MUTANTS, Mutant

# Quick ones, of several kinds; `make mutants` has them all.
SOME = ("Laplace noise of half its scale", "a tree is a level lower at powers of two")
ROOMS = {"noise", "budget", "mechanisms", "counters", "statistics", "dofns", "transforms", "local"}
ROOMS |= {"arguments", "plans", "lanes", "commands", "pipelines", "rows", "states", "reading.py"}
KINDS = {
    *("half the noise", "fresh noise", "shared noise", "heights", "norms a hair small"),
    *("published constants", "truncation by current degree", "skipped steps", "caps", "clipping"),
    *("digests without something", "shares twice", "tails", "early draws", "splices of state"),
    *("order of output", "logs and metrics", "bounding", "selection"),
}


def named(name: str) -> Mutant:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == name)
    return mutant


def test_mutants_are_of_all_kinds_and_rooms() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) > 100
    assert {mutant.kind for mutant in MUTANTS} >= KINDS
    files = [mutant.file.removeprefix("beam_dpcount/") for mutant in MUTANTS]
    assert {file.split("/")[0] for file in files} == ROOMS


@pytest.mark.slow
def test_mutants_change_code_that_is_there_and_name_tests() -> None:
    for mutant in MUTANTS:
        ast.parse(mutated(mutant))  # it is still a program
        file, _, test = mutant.check.partition("::")
        name = test.partition("[")[0]
        assert f"\ndef {name}(" in (ROOT / file).read_text("utf-8"), mutant.name


def test_what_is_not_there_once_is_an_error() -> None:
    mutant = named(SOME[0])
    for old in ("nowhere to be found", "import"):
        with pytest.raises(TableError, match=rf"{mutant.name}: .* is \d+ times in {mutant.file}"):
            mutated(replace(mutant, old=old))


BEFORE = "    routes: list[tuple[Callable[[Fraction], Law], Fraction]] = []\n"
# What proves nothing, though a check ends with an error: by what it changes.
BROKEN_ONES = {
    "no name": {"old": BEFORE, "new": f"{BEFORE}    undefined + 1\n"},
    "not of a test": {"old": BEFORE, "new": f'{BEFORE}    raise AssertionError("of the code")\n'},
    "no import": {"old": "import math\n", "new": "import there_is_no_such_module\n"},
    "no program": {"old": BEFORE, "new": f"{BEFORE})\n"},
    "no check": {"check": "tests/test_audit.py::test_that_is_not_there"},
}


@pytest.mark.long
@pytest.mark.parametrize(
    "names", [[*BROKEN_ONES][:2], pytest.param([*BROKEN_ONES], marks=pytest.mark.exhaustive)]
)
def test_who_is_killed_and_who_is_not(names: list[str]) -> None:
    """Only those that a check finds by an assertion, and which it passes without them."""
    mutants = [named(name) for name in SOME]
    harmless = replace(mutants[0], old=BEFORE, new=f"{BEFORE}    unused = 0\n")
    broken = [replace(mutants[0], **BROKEN_ONES[name]) for name in names]
    fates = [verdict.fate for _, verdict in judged([*mutants, harmless, *broken])]
    assert fates == [KILLED] * len(mutants) + [ALIVE] + [BROKEN] * len(broken)


@pytest.mark.audit
def test_all_mutants_die() -> None:
    fates = {mutant.name: verdict for mutant, verdict in judged(MUTANTS)}
    assert {name: v for name, v in fates.items() if v.fate != KILLED} == {}
