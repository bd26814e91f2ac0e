"""People who are active, exactly: what one person, or one person-period, changes, by brute force.

Events go through the DoFn that bounds them; every difference of the sums goes through the encoder
of the transform's own counter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters import active as lemma
from beam_dpcount.counters.active import ActiveChange, AlternatingError, falls, one_interval
from beam_dpcount.counters.choose import resolve_active
from beam_dpcount.dofns.active import Activity
from beam_dpcount.mechanisms.single_steps import SingleSteps
from tests.active import (
    MECHANISMS,
    ONE_KEY,
    PERIOD,
    TICKS,
    TWO_KEYS,
    count_of,
    differences,
    sums_of,
    with_mechanism,
)
from tests.audit.exact import keeps_budget
from tests.person_audit import (
    APPROXIMATE,
    PURE,
    RHO,
    Event,
    by,
    universe,
)

BUDGETS = {"pure": PURE, "rho": RHO, "approximate": APPROXIMATE}


def sets(events: Sequence[Event], most: int) -> Iterator[tuple[Event, ...]]:
    for n in range(most + 1):
        yield from itertools.combinations(events, n)


def pairs_of(engine: Any, events: Sequence[Event], most: int) -> Iterator[tuple[Any, Any]]:
    """Sums of inputs that differ in a person, or in one person-period; there or not, or another."""
    known: dict[tuple[Event, ...], Any] = {}

    def summed(some: Iterable[Event]) -> Any:
        chosen = tuple(some)
        if chosen not in known:
            known[chosen] = sums_of(engine, chosen)
        return known[chosen]

    of_periods = engine._periods is not None
    replaces = engine.counter.change.relation == "replace_one"
    for chosen in sets(events, most):
        for period in {e[2] // PERIOD for e in chosen} if of_periods else [None]:
            mine = [e for e in events if period is None or e[2] // PERIOD == period]
            rest = [e for e in chosen if period is not None and e[2] // PERIOD != period]
            yield summed(chosen), summed(rest)
            if replaces:
                for other in sets(mine, 2):
                    yield summed(chosen), summed(sorted([*rest, *other], key=lambda e: e[2]))


TWICE = universe(["a"], range(0, TICKS, 2), [1, 2])
WHOM = {
    "changes": (dp.Users(by, changes=2), TWO_KEYS, 4),
    "four changes": (dp.Users(by, changes=4), ONE_KEY, 6),
    "periods": (dp.Users(by, keys=1, per=PERIOD), ONE_KEY, 6),
    "periods, two keys": (dp.Users(by, keys=2, per=PERIOD), TWO_KEYS, 4),
    "one of two keys a period": (dp.Users(by, keys=1, per=PERIOD), TWO_KEYS, 4),
    "events": (dp.Users(by, 2), TWO_KEYS, 4),
    "events twice a tick": (dp.Users(by, 2), TWICE, 4),
}


@pytest.mark.parametrize("budget", ["pure", "rho", "approximate"])
@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("whom", WHOM)
@pytest.mark.exhaustive("budget", "kind", "window", "whom")
def test_activity_hides_a_person_or_a_period(
    whom: str, window: int, kind: str, budget: str
) -> None:
    if (budget, kind) == ("pure", "rounded"):
        budget = "rho"  # which takes no Laplace noise
    users, events, most = WHOM[whom]
    engine = with_mechanism(
        count_of(users, window, BUDGETS[budget]), MECHANISMS[kind](horizon=TICKS)
    )
    assert keeps_budget(engine.counter, differences(engine, pairs_of(engine, events, most)))


@pytest.mark.parametrize("kind", ["fresh", "tree"])
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("whom", WHOM)
def test_a_key_that_only_one_person_begins_holds_one(whom: str, window: int, kind: str) -> None:
    """What `SelectKeys` rests on: before others come a count is 0 or 1, in at most so many keys."""
    users, events, most = WHOM[whom]
    engine = with_mechanism(count_of(users, window), MECHANISMS[kind](horizon=TICKS))
    change: Any = engine.counter.change
    touched, attained = change.touched(engine.counter.mechanism), 0
    for one, other in pairs_of(engine, events, most):
        begun = 0
        for mine, without in zip(map(np.array, one), map(np.array, other), strict=True):
            if kind == "tree":
                mine, without = np.cumsum(mine), np.cumsum(without)
            there, later = mine > 0, without > 0
            first = int(np.argmax(there)) if there.any() else TICKS
            begins = int(np.argmax(later)) if later.any() else TICKS
            assert first <= begins
            assert set(mine[first:begins].tolist()) <= {0, 1}
            begun += first < begins
        assert begun <= touched.counters
        attained = max(attained, begun)
    assert (touched.each, attained) == (1, min(touched.counters, len({e[0] for e in events})))


@pytest.mark.parametrize("whom", ["changes", "periods", "one of two keys a period"])
def test_another_activity_hides_it_too(whom: str) -> None:
    users, events, most = WHOM[whom]
    for kind in (SingleSteps, mechanisms.BinaryTree):
        engine = count_of(users, 2, relation="replace_one")
        engine = with_mechanism(engine, kind(horizon=TICKS))
        found = differences(engine, pairs_of(engine, events, min(most, 4)))
        assert keeps_budget(engine.counter, found)


def test_two_for_a_replacement_would_be_too_little() -> None:
    """Each tick alone: 3 w c^2 at w = 2, where 2 w c^2 would be said by analogy."""
    engine = count_of(dp.Users(by, changes=2), 1, keys=("a",), relation="replace_one")
    change: Any = engine.counter.change
    assert change.norms(mechanisms.Simple2(TICKS), 1, None)[1] >= 4 * 2 * (1 - 1e-9)
    up, down = np.eye(TICKS)[1] - np.eye(TICKS)[2], np.eye(TICKS)[2] - np.eye(TICKS)[3]
    assert (up - down) @ (up - down) == 6


def activity(ticks: Iterable[int], window: int, horizon: int) -> np.ndarray:
    """Who is active, from the words."""
    active = np.zeros(horizon, dtype=int)
    for tick in ticks:
        active[tick : tick + window] = 1
    return active


@pytest.mark.parametrize("window", [1, 2, 5])
def test_sums_are_who_is_active(window: int) -> None:
    """Both ways of counting, for every set of ticks of a person."""
    users = dp.Users(by, keys=1, per=PERIOD)
    changes = with_mechanism(count_of(users, window), mechanisms.BinaryTree(TICKS))
    fresh = with_mechanism(count_of(users, window), SingleSteps(TICKS))
    for chosen in sets(ONE_KEY, 6):
        expected = activity([e[2] for e in chosen], window, TICKS)
        assert np.cumsum(sums_of(changes, chosen)[0]).tolist() == expected.tolist()
        assert sums_of(fresh, chosen)[0] == tuple(expected)


def test_changes_beyond_those_that_count_leave_nobody_active() -> None:
    engine = with_mechanism(count_of(dp.Users(by, changes=2), 1), mechanisms.BinaryTree(TICKS))
    found = np.cumsum(sums_of(engine, [("a", ("p", 1), t) for t in (0, 1, 4)]), axis=1)
    assert found.tolist() == [[1, 1, 0, 0, 0, 0], [0] * 6]


def test_events_of_a_tick_and_key_take_the_bound_once() -> None:
    """Else someone who comes twice an hour is gone after half as many hours as were said."""
    engine = with_mechanism(count_of(dp.Users(by, 2), 1), mechanisms.BinaryTree(TICKS))
    events: list[Event] = [("a", ("p", 1), 0)] * 3 + [("a", ("p", 2), 2), ("b", ("p", 1), 4)]
    found = np.cumsum(sums_of(engine, events), axis=1)
    assert found.tolist() == [[1, 0, 1, 0, 0, 0], [0] * 6]


@pytest.mark.long
@pytest.mark.parametrize(("ticks", "period"), [(8, 2), (9, 3), (12, 4)])
def test_a_period_changes_few_intervals(ticks: int, period: int) -> None:
    """At most ceil(P / (W + 1)), each of at most W + P - 1 ticks, all together; attained."""
    for window in range(1, ticks + 1):
        rule, worst, longest = Activity(window, ticks), 0, 0
        for chosen in sets([("a", None, t) for t in range(ticks)], ticks):
            days = [t for _, _, t in chosen]
            for first in range(0, ticks, period):
                rest = [t for t in days if not first <= t < first + period]
                if len(rest) == len(days):
                    continue
                lost = activity(days, window, ticks) - activity(rest, window, ticks)
                assert lost.min() >= 0
                worst = max(worst, int((np.diff(lost, prepend=0) == 1).sum()))
                longest = max(longest, int(lost.sum()))
        assert rule.intervals_of([]) == []
        assert worst <= -(-period // (window + 1))
        assert longest <= min(window + period - 1, ticks)
        assert worst == min(-(-period // (window + 1)), worst if window < ticks else 1)


def alternating(mechanism: Any, changes: int) -> float:
    """The largest squared norm of so many alternating changes, by every placement."""
    R = np.asarray(mechanism.encoder(mechanism.horizon), dtype=float)
    signs = np.array([(-1) ** i for i in range(changes)])
    places = itertools.combinations(range(mechanism.horizon), changes)
    return max(float(np.square(R[:, list(at)] @ signs).sum()) for at in places)


@pytest.mark.parametrize(
    "kind", [k for k in mechanisms.ALL if k is not mechanisms.Binned], ids=lambda k: k.__name__
)
def test_alternating_changes_cost_as_many_columns(kind: Any) -> None:
    mechanism = kind(10)
    assert falls(mechanism)
    column = float(mechanism.l2_sensitivity_squared)
    for changes in (1, 2, 3, 4, 5):
        assert alternating(mechanism, changes) <= changes * column * (1 + 1e-9)
    for longest in (1, 2, 4):
        R = np.asarray(mechanism.encoder(10), dtype=float)
        worst = max(
            float(np.square(R[:, i] - (R[:, j] if j < 10 else 0)).sum())
            for i in range(10)
            for j in range(i + 1, min(i + longest, 10) + 1)
        )
        assert worst <= float(one_interval(mechanism, longest)) * (1 + 1e-9)


@pytest.mark.parametrize(
    "kind", [mechanisms.BinaryTree, mechanisms.SmoothBinary, mechanisms.SquareRoot]
)
def test_what_is_proved_of_columns_is_so(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for ticks in (1, 7, 50, 90, 365):
        mechanism = kind(ticks)
        products = lemma._products(mechanism)
        assert products.min() >= -1e-12
        for i in range(ticks - 2):
            assert np.diff(products[i, i + 1 :]).max() <= 1e-12 * products.max()
    assert falls(kind(100_000))


def test_a_mechanism_whose_columns_rise_is_refused() -> None:
    binned = mechanisms.Binned(120)
    assert not falls(binned)
    change = ActiveChange(-1, 1, intervals=2, in_one=2, ticks=10)
    with pytest.raises(AlternatingError, match="products of its columns may rise"):
        dp.calibrate(binned, RHO, change)
    with pytest.raises(AlternatingError):
        dp.calibrate(mechanisms.ProfiledBLT(5000), RHO, change)  # too long to be compared
    assert resolve_active(120, RHO, change=change).name != "Binned"
    assert resolve_active(5000, RHO, change=replace(change, ticks=4000)).name in (
        "SmoothBinary",
        "SquareRoot",
        "BinaryTree",
    )


def test_several_periods_of_activity_cost_so_many_times_one() -> None:
    """What they change is disjoint: no n^2. By every set of ticks and of periods."""
    ticks, period, window = 9, 3, 2
    mechanism = mechanisms.NormalizedBLT(ticks)
    change = ActiveChange(-1, 1, intervals=1, in_one=1, ticks=4, longest=4, most=8)
    R, worst = mechanism.encoder(ticks), {1: 0.0, 2: 0.0, 3: 0.0}
    for chosen in sets([("a", None, t) for t in range(ticks)], ticks):
        days = [t for _, _, t in chosen]
        for many in worst:
            for gone in itertools.combinations(range(3), many):
                rest = [t for t in days if t // period not in gone]
                lost = activity(days, window, ticks) - activity(rest, window, ticks)
                worst[many] = max(worst[many], float(np.square(R @ np.diff(lost, prepend=0)).sum()))
    for many, found in worst.items():
        reach = change.reach_of_periods(mechanism, 1, many, period)
        assert found <= float(reach.l2_squared)
        assert float(reach.l2_squared) <= 2 * many * float(mechanism.l2_sensitivity_squared) * 1.01


@pytest.mark.parametrize(
    ("users", "window", "most"),
    [
        (dp.Users("u", keys=1, per="1d"), 30, 14.5),
        (dp.Users("u", keys=1, per="1d"), 7, 11.3),
        (dp.Users("u", changes=4), 30, 23.9),
        (dp.Users("u", changes=12), 7, 37),
    ],
    ids=str,
)
def test_the_noise_of_194_days(users: dp.Users, window: int, most: float) -> None:
    days = dp.Clock("1d", start=0, ticks=194)
    count = dp.TickCount(
        dp.ApproxDP(1, 1e-6), days.last(window), dp.People(), keys=dp.TOTAL, users=users
    )
    assert count.counter.mean_variance() ** 0.5 <= most
