"""Thresholds of keys that nobody listed: what all of them let through, and what moves them."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

import beam_dpcount as dp
from beam_dpcount.counters.change import TickChange, Touched
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.selection import Selection
from beam_dpcount.mechanisms import BinaryTree
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.transforms.ticks import TickNumbers

BUDGET = dp.ApproxDP(1.0, 1e-6)


def selection_of(budget: Any, horizon: int, **options: Any) -> Selection:
    keys = dp.SelectKeys(**options.pop("select", {}))
    made = TickNumbers(budget, 60, 0, horizon=horizon, keys=keys, **options).selection
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("epsilon", "delta", "largest"),
    [(1, 1e-9, (90.7, 123.8, 159.9)), (3, 1e-6, (22.4, 30.8, 40.1))],
)
def test_the_largest_of_other_budgets(
    epsilon: float, delta: float, largest: tuple[float, ...]
) -> None:
    """As a prototype with normal quantiles had them, whose noise is fine enough for those."""
    for horizon, expected in zip((100, 1000, 10_000), largest, strict=True):
        budget = dp.ApproxDP(epsilon, delta)
        selection = selection_of(budget, horizon, mechanism="NormalizedBLT")
        assert max(selection.thresholds) == pytest.approx(expected, rel=5e-3)


def allocations(events: int, keys: int, per_key: int) -> set[tuple[int, ...]]:
    """How many events a person may have in each key."""
    each = itertools.combinations_with_replacement(range(per_key + 1), keys)
    return {found for found in each if sum(found) <= events}


@pytest.mark.parametrize("mechanism", ["NormalizedBLT", "BinaryTree", "SmoothBinary"])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.exhaustive("relation", "mechanism")
def test_all_allocations_are_within_delta(mechanism: str, relation: str) -> None:
    """The union over ticks and keys, from the exact law of each release's noise."""
    for bound in ((1, 1, 1), (2, 2, 1), (4, 2, 2), (4, 4, 4), (4, 3, 2), (3, 1, 3)):
        events, keys, per_key = bound
        users = dp.Users(lambda payload: payload, events, keys, per_key=per_key)
        given: dict[str, Any] = {"users": users, "value": lambda payload: 1, "relation": relation}
        selection = selection_of(BUDGET, 12, mechanism=mechanism, **given)
        q = [union(selection, k) for k in range(per_key + 1)]
        assert q == sorted(q)
        spent = max(sum(q[k] for k in chosen if k) for chosen in allocations(*bound))
        if relation == "replace_one":  # as many keys have nothing yet, and are there on one side
            spent += q[0] * max(sum(k > 0 for k in chosen) for chosen in allocations(*bound))
        assert spent <= selection.delta
        if per_key == 1 and relation == "add_remove":
            assert spent > 0.8 * selection.delta


def union(selection: Selection, k: int) -> float:
    """The sum over ticks of P(k + noise >= threshold)."""
    counter = selection.counter
    levels = (selection.lattice_thresholds - k) * counter.resolution
    decoder = counter.mechanism.decoder(counter.horizon)
    return sum(map(partial(beyond, counter.law), decoder, levels))


def beyond(law: Any, row: np.ndarray, x: float) -> float:
    """P(row . z >= x)."""
    if not np.array_equal(row, np.rint(row)):  # so fine that the sum is as good as normal
        assert law.scale > 1000
        return float(ndtr(-x / (np.sqrt(law.variance) * np.linalg.norm(row))))
    reach = int(60 * law.scale)
    one, sums = law.pmf(np.arange(-reach, reach + 1)), np.ones(1)
    for _ in range(np.count_nonzero(row)):
        sums = np.convolve(sums, one)
    return float(sums[len(sums) // 2 + int(np.ceil(x)) :].sum())


def test_a_union_without_the_event_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TickChange, "touched", lambda self, mechanism: Touched(1, 0))
    for mechanism in ("NormalizedBLT", "BinaryTree", "SmoothBinary"):
        selection = selection_of(BUDGET, 12, mechanism=mechanism)
        assert union(selection, 0) <= selection.delta < union(selection, 1)


def test_every_and_at_least() -> None:
    """`every`: fewer ticks share delta. `at_least`: the same, and what is left out."""
    plain = selection_of(BUDGET, 1000)
    seldom = selection_of(BUDGET, 1000, select={"every": 100})
    tested = np.isfinite(seldom.thresholds)
    assert np.flatnonzero(tested).tolist() == [99 + 100 * i for i in range(10)]
    assert max(seldom.thresholds[tested]) < 0.9 * max(plain.thresholds)
    later = selection_of(BUDGET, 1000, select={"at_least": 11})
    assert np.array_equal(later.thresholds, plain.thresholds + 10)
    assert np.array_equal(later.lattice_thresholds, plain.lattice_thresholds)
    assert len({one.fingerprint for one in (plain, seldom, later)}) == 3


def test_they_are_in_the_units_of_values() -> None:
    """Bounds ten times as wide, and a unit ten times as large: ten times everything."""
    plain = selection_of(BUDGET, 100)
    wide = selection_of(BUDGET, 100, bounds=(0, 10), unit=10)
    assert np.allclose(wide.thresholds, 10 * plain.thresholds)
    skipped = selection_of(BUDGET, 100, bounds=(0, 10), unit=10, select={"at_least": 31})
    assert np.allclose(skipped.thresholds, wide.thresholds + 30)
    both = selection_of(BUDGET, 100, bounds=(-1, 1))
    assert np.allclose(both.thresholds, plain.thresholds)


def test_keys_that_take_too_long_are_said_to() -> None:
    change = TickChange(0, 1, most=64)
    counter = Counter(BinaryTree(8), dp.ZCDP(1.0), DiscreteLaplace(30), change, None, 1)
    (row,) = Selection(counter, 1e-6).outlook([1])
    assert row[2:] == (None, None, None, None)
    assert "not within the ticks that were tried" in str(Selection(counter, 1e-6))


def test_it_says_the_same_whenever_it_is_printed() -> None:
    """It simulates once: a report does not contradict the terminal."""
    counter = TickNumbers(dp.ZCDP(0.1), 60, 0, horizon=300, keys=["a"]).counter
    selection = Selection(counter, 1e-6)
    assert str(selection) == str(selection)
    assert selection.outlook() != selection.outlook()
