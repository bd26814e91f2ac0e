"""Notebooks show public parameters, as all else that describes them; the page on budgets runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import beam_dpcount as dp
from beam_dpcount.budget.shares import ClaimedError
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.selection import selection_of
from beam_dpcount.counters.sparse import sparse_for
from beam_dpcount.notebooks import table
from beam_dpcount.transforms.ticks import TickNumbers
from tests import notebooks

PAGE = Path(__file__).resolve().parents[1] / "examples" / "notebooks" / "budget.ipynb"
NASTY = "<script>alert('&amp;')</script>\"<td>"
PURE = dp.PureDP(1.0)
COUNTERS: list[Callable[[], Any]] = [
    lambda: dp.calibrate(dp.mechanisms.BinaryTree(1000), PURE),
    lambda: dp.calibrate(dp.mechanisms.SquareRoot(100), dp.ZCDP(0.1), dimension=3, unit=0.5),
    lambda: dp.calibrate(dp.mechanisms.Unbounded(dp.mechanisms.SmoothBinary), dp.ZCDP(0.1)),
    lambda: dp.calibrate(sparse_for(10, 1000, PURE), PURE),
]


@pytest.mark.parametrize("make", COUNTERS)
def test_counters(make: Callable[[], Any]) -> None:
    counter = make()
    html = counter._repr_html_()
    assert notebooks.named(html) == dict(counter.describe())
    assert notebooks.read(html)[0] == type(counter).__name__


def test_selections() -> None:
    counter = dp.calibrate(dp.mechanisms.SmoothBinary(50), dp.ZCDP(0.1), TickChange(most=2**20))
    selection = selection_of(dp.SelectKeys(delta=1e-6), dp.ZCDP(0.1), counter, 1e-6)
    assert notebooks.named(selection._repr_html_()) == dict(selection.describe())


def test_choices() -> None:
    """The same cells as print, in the same order."""
    choice = dp.choose(1000, dp.ZCDP(0.1), objective="mean")
    title, rows, note = notebooks.read(choice._repr_html_())
    printed = str(choice).splitlines()
    assert [" ".join(row) for row in rows] == [" ".join(line.split()) for line in printed[:-2]]
    assert note == printed[-1]
    assert note.startswith("not listed: ")
    assert title == f"{choice.mechanism.name} has the least mean stddev"


@pytest.mark.parametrize("keys_delta", [None, 4e-7])
def test_ledgers_and_shares(keys_delta: float | None) -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), NASTY, keys_delta)
    mine, _ = ledger.share(0.25, NASTY), ledger.share(0.5, "other")
    mine.claim(NASTY)
    caption, rows, note = notebooks.read(ledger._repr_html_())
    heading, _, *lines = ledger.account().splitlines()
    assert caption == heading
    assert ("delta for keys" in rows[0]) is (keys_delta is not None)
    assert [" ".join(row).rstrip() for row in rows] == [
        " ".join(line.split()) for line in lines[: len(rows)]
    ]
    assert note == "\n".join(lines[len(rows) + 1 :])
    assert notebooks.named(mine._repr_html_()) == {
        **mine.describe(),
        "budget": str(mine.budget),
        "claimed_by": NASTY,
    }


def test_text_is_escaped() -> None:
    """Names and keys may hold anything."""
    read = notebooks.read(table(NASTY, [[NASTY, NASTY]], [NASTY, NASTY], NASTY))
    assert read == (NASTY, [[NASTY, NASTY]] * 2, NASTY)
    entropy = dp.ReplayableEntropy("NOTEBOOK_SECRET", run_id=NASTY)
    count = TickNumbers(PURE, 1, 0, horizon=5, keys=[NASTY], entropy=entropy)
    assert notebooks.named(count._repr_html_())["entropy"] == repr(entropy)
    assert NASTY.split("'")[0] in repr(entropy)


def test_what_is_private_is_not_shown() -> None:
    """Bounds of people are compared without noise: print them on purpose, or see nothing."""
    count = TickNumbers(
        PURE, 1, 0, horizon=5, keys=["a"], value=lambda _: 1, users=dp.Users(str, 1, per_key=1)
    )
    suggested = dp.suggest_bounds([("a", "who", 1)], count)
    for private in (suggested, suggested.best):
        assert not hasattr(private, "_repr_html_")


# The page


@pytest.mark.long
@pytest.mark.pipeline
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it says of its cells is so."""
    monkeypatch.chdir(tmp_path)
    names, shown = notebooks.run(PAGE)
    first, choice, count, counter, *_, same = shown
    assert same is True
    assert isinstance(first, dp.Ledger)
    for value in (first, choice, count, counter):
        assert notebooks.read(value._repr_html_())[1]

    # Running again draws anew, and no ledger sees it; applying again is refused.
    code = ["".join(cell["source"]) for cell in notebooks.cells(PAGE, "code")]
    (runs,) = (cell for cell in code if "pipeline.run()" in cell)
    before, account = (tmp_path / "releases").read_text(), names["ledger"].account()
    exec(runs, names)
    after = (tmp_path / "releases").read_text()
    assert len(before.split()) == len(after.split()) == 4 * 48
    assert before != after
    assert names["ledger"].account() == account
    (applies,) = (cell for cell in code if '| "Visits" >> count' in cell)
    with pytest.raises(ClaimedError):
        exec(applies, names)


def test_the_page_has_no_outputs() -> None:
    """They would be those of one run, in the history of the repository."""
    for cell in notebooks.cells(PAGE, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
