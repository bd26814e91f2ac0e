"""WeakBudgetWarning: once a budget, before anything runs, from the user's own line."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import beam_dpcount as dp
from beam_dpcount.budget import budgets
from beam_dpcount.budget.budgets import weakness
from beam_dpcount.transforms.ticks import TickNumbers
from tests import sentences
from tests.sentences import counted

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.filterwarnings("always::beam_dpcount.errors.WeakBudgetWarning")


@pytest.fixture(autouse=True)
def _none_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "_warned", set())


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (dp.PureDP(3.0), r"weak budget: epsilon = 3 \(pure\) lets .* e\^3 = 20; epsilon from 0\.1"),
        (dp.PureDP(100.0), r"e\^100; epsilon"),
        (dp.ApproxDP(10.0, 1e-6), r"up to e\^10 = 22,026;"),
        (dp.ApproxDP(0.1, 1e-5), "may fail altogether with probability 1e-05; delta well below"),
        (
            dp.ApproxDP(5.0, 1e-3),
            r"e\^5 = 148; .*, and may fail .* probability 0\.001",
        ),
        (dp.ZCDP(0.18), r"rho = 0\.18 \(zCDP\) \(as epsilon = 2\.\d+ at delta = 1e-06\) lets"),
        (dp.ZCDP(1e12), "rho from"),
    ],
    ids=str,
)
def test_weak_budgets(budget: Any, words: str) -> None:
    with pytest.warns(dp.errors.WeakBudgetWarning, match=words) as caught:
        dp.PrefixCount(budget, 10)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "budget", [dp.PureDP(2.99), dp.ApproxDP(2.99, 9.9e-6), dp.ZCDP(0.179)], ids=str
)
def test_others(budget: Any) -> None:
    assert not weakness(budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.PrefixCount(budget, 10)
        dp.Ledger(budget).rest("all")


def _each(budget: Any) -> Iterator[Any]:
    clock: dict[str, Any] = {"tick": 1, "start": 0, "horizon": 4}
    yield lambda: dp.PrefixCount(budget, 10)
    yield lambda: dp.Histogram(budget, 10, ["a"])
    yield lambda: dp.SubstringCount(budget, 10, ["a"], 1)
    yield lambda: dp.EpisodeCount(budget, 10, ["a"], 1)
    yield lambda: dp.EdgeCount(budget, 10, 3)
    yield lambda: dp.CutGraph(budget, 10, 3)
    yield lambda: TickNumbers(budget, keys=["a"], **clock)
    yield lambda: counted(budget, keys=["a"], last=2, **clock)
    yield lambda: dp.local.LocalMedian(budget, 4)


@pytest.mark.exhaustive
def test_every_kind_of_transform_warns_and_only_the_first_of_a_budget() -> None:
    for number in range(len(list(_each(dp.PureDP(1.0))))):
        made = list(_each(dp.ApproxDP(5.0 + number, 1e-6)))
        with pytest.warns(dp.errors.WeakBudgetWarning) as caught:
            made[number]()
        (warning,) = caught
        assert warning.filename in (__file__, sentences.__file__)  # where the class is called
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for again in made:
                again()


def test_a_ledger_warns_of_the_whole_and_not_of_shares() -> None:
    with pytest.warns(dp.errors.WeakBudgetWarning, match="epsilon = 10") as caught:
        ledger = dp.Ledger(dp.ApproxDP(10.0, 1e-6))
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dp.PrefixCount(ledger.share(0.9, "most"), 10)  # a rho of 2 and more
        dp.PrefixCount(ledger.rest("others"), 10)


def test_what_says_what_a_budget_would_give_does_not_warn() -> None:
    weak = dp.ApproxDP(10.0, 1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice = dp.choose(100, weak)
        dp.calibrate(choice.mechanism, weak)
        weak.to_zcdp().split(3)


@pytest.mark.long
def test_it_can_be_silenced_as_the_docstring_says() -> None:
    program = (
        "import warnings, beam_dpcount\n"
        'warnings.filterwarnings("ignore", category=beam_dpcount.errors.WeakBudgetWarning)\n'
        "beam_dpcount.PrefixCount(beam_dpcount.PureDP(10), 10)\n"
    )
    assert 'warnings.filterwarnings("ignore", category=beam_dpcount.errors.WeakBudgetWarning)' in (
        dp.errors.WeakBudgetWarning.__doc__ or ""
    )
    for silent in (True, False):
        words = program if silent else program.replace('"ignore"', '"default"')
        ended = subprocess.run(
            [sys.executable, "-c", words], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0
        assert ("weak budget" in ended.stderr) is not silent
