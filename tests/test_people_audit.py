"""The person-level guarantee, exactly: the rule as it is run, for all events of one person.

Events go through the DoFns that bound them, without a runner; what comes out is summed, and every
difference of the sums goes through the encoder of the transform's own counter, whose noise is then
held against its budget. Mutants of the rule and of the calibration must fail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.budget.spender import Protection
from beam_dpcount.counters import users as norms
from beam_dpcount.counters.change import TickChange, spread_norms
from beam_dpcount.counters.people import Bound
from beam_dpcount.dofns.intake import Excess
from beam_dpcount.dofns.parcels import ElementParcels, Parcels, StepParcels
from beam_dpcount.dofns.users import SendToShards
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.mechanisms import NormalizedBLT
from tests.audit.exact import keeps_budget
from tests.person_audit import (
    LAWS,
    PATHS,
    PURE,
    RHO,
    SECOND,
    TICK,
    Event,
    Noised,
    Sums,
    added,
    audit,
    by,
    changes,
    collection,
    each_law,
    each_path,
    lists,
    number,
    survivors,
    tick_count,
    universe,
)
from tests.sentences import counted

BOUNDS: dict[str, dict[str, Any]] = {
    "people": {"events": 2},
    "one key": {"events": 2, "most_keys": 1, "per_key": 2},
    "two of three in a key": {"events": 3, "per_key": 2},
    "a gap": {"events": 2, "per_key": 2, "gap": 2 * TICK},
    "a gap of a tick and a half": {"events": 3, "per_key": 3, "gap": 1.5 * TICK},
    "others": {"events": 2, "other": "b"},
}
# Two public keys, one that nobody listed, and a time off the clock.
EVENTS = universe(["a", "b", "z"], [0, 1, 2, -1], [1])


@each_path
@each_law
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.exhaustive("law", "bound", "relation", "path")
def test_counts_hide_a_person(bound: str, relation: str, law: str, path: str) -> None:
    budget, mechanism = LAWS[law]
    options = BOUNDS[bound]
    count = tick_count(budget, mechanism, relation=relation, **options)
    assert audit(Sums(count, path), EVENTS, 3 if path == "streaming" else 4)


@each_law
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.exhaustive("law", "relation")
def test_numbers_of_two_signs_hide_a_person(relation: str, law: str) -> None:
    budget, mechanism = LAWS[law]
    count = tick_count(budget, mechanism, bounds=(-1, 1), relation=relation, per_key=2)
    events = universe(["a", "b"], [0, 1, 2], [-1, 1, 5, None])
    assert audit(Sums(count, "bounded"), events, 3)


@each_path
@each_law
@pytest.mark.exhaustive("law", "path")
def test_windows_of_the_input_hide_a_person(law: str, path: str) -> None:
    """k counts over all windows together."""
    budget, mechanism = LAWS[law]
    count = tick_count(budget, mechanism, horizon=4, per_key=2)
    function = FixedWindows(2 * TICK)
    sums = Sums(count, path, function)
    assert (sums.epochs, sums.ticks) == (2, 2)
    events = universe(["a", "b"], [0, 1, 2, 3], [1])
    assert audit(sums, events, 3)
    most = max(np.array(sums(chosen)).sum() for chosen in lists(events, 3, False))
    assert most == 2


@each_path
@each_law
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.exhaustive("law", "window", "path")
def test_distinct_people_hide_a_person(window: int | None, law: str, path: str) -> None:
    budget, mechanism = LAWS[law]
    clock: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": 4, "restart": window}
    users = dp.Users(by, 2)
    count = counted(budget, dp.People(), **clock, keys=["a", "b"], mechanism=mechanism, users=users)
    sums = Sums(count, path)
    assert sums.counter.l2_sensitivity == pytest.approx(
        math.sqrt(2) * column(sums.counter.mechanism), rel=1e-3
    )
    events = universe(["a", "b", "z"], [0, 1, 2, 3], ["x"])
    assert audit(sums, events, 3)
    assert {x for chosen in lists(events, 2, False) for xs in sums(chosen) for x in xs} == {0, 1}


def column(mechanism: Any) -> float:
    return math.sqrt(mechanism.l2_sensitivity_squared)


def test_no_noise_is_wasted() -> None:
    """Some person attains what was calibrated to: with less noise the audit fails."""
    for budget, mechanism in LAWS.values():
        count = tick_count(budget, mechanism, per_key=2)
        sums = Sums(count, "bounded")
        less = norms.UserChange(most=8)
        for change, kept in ((count.counter.change, True), (less, False)):
            counter = dp.calibrate(sums.counter.mechanism, budget, change)
            assert audit(sums, EVENTS, 2, counter) == kept


def test_others_change_nothing_of_a_person() -> None:
    """The rule reads a person's own events: sums of two are the sums of each."""
    count = tick_count(per_key=2, gap=2 * TICK)
    for path in PATHS:
        sums = Sums(count, path)
        few = universe(["a", "b"], [0, 1, 2], [1])
        for mine in lists(few, 2, True):
            for theirs in ([], few[:3], few[::-1]):
                renamed = [(key, ("q", x), t) for key, (_, x), t in theirs]
                for mixed in ([*mine, *renamed], [*renamed, *mine]):
                    assert sums(mixed) == added(sums(mine), sums(renamed))


# After every element: all contents of one person's elements


def steps_of(
    count: Any, rows: Sequence[tuple[Any, int]], path: str, parcels: Any = None
) -> dict[str, np.ndarray]:
    """What each key's steps add, shape (steps, dimension)."""
    made = parcels or StepParcels(WindowCheck(None), count.element_id)
    left = survivors(count.users, count.users.bound(), made, rows, path)
    intake, added_up = count._intake(), {}
    if path == "bounded":
        left = sorted(left, key=lambda row: row[1])
    for (key, payload), micros in left:
        codes, _ = intake.codes(key, payload, micros)
        _, x = count.statistic.count(count.statistic.init(), codes)
        added_up.setdefault(key, []).append(np.atleast_1d(np.array(x)))
    return {key: np.array(steps) for key, steps in sorted(added_up.items())}


def keeps_contents(
    count: Any, people: str, values: Sequence[Any], path: str, parcels: Any = None
) -> bool:
    """Whether all contents of p's elements stay hidden; elements are of key a, or b if upper."""

    def noised(contents: Sequence[Any]) -> np.ndarray:
        given = iter(contents)
        rows = [
            (
                "b" if who.isupper() else "a",
                (who.lower(), next(given) if who in "pP" else values[0], i),
            )
            for i, who in enumerate(people)
        ]
        timed = [(row, i * SECOND) for i, row in enumerate(rows)]
        parts = steps_of(count, timed, path, parcels)
        assert sum(map(len, parts.values())) == len(people)  # each element takes its step
        R = count.counter.mechanism.encoder(count.counter.horizon)
        columns = [R[:, : len(x)] @ x for x in parts.values()]
        return np.concatenate([c.ravel() for c in columns]) * count.counter.resolution

    mine = sum(who in "pP" for who in people)
    all_of_them = {tuple(noised(c).tolist()) for c in itertools.product(values, repeat=mine)}
    pairs = itertools.combinations(map(np.array, all_of_them), 2)
    found = {tuple(np.rint(np.abs(one - other)).astype(np.int64).tolist()) for one, other in pairs}
    assert found
    return keeps_budget(count.counter, [*map(np.array, found)])


PEOPLE = ("ppp", "pqp", "qpp", "pPp", "pPPp", "qPpQ")


def prefix(
    budget: Any = RHO,
    mechanism: Any = "BinaryTree",
    bounds: Any = (-1, 2),
    horizon: int = 4,
    **given: Any,
) -> Any:
    users = dp.Users(by, **{"events": 2, **given})
    return dp.PrefixCount(
        budget, horizon, mechanism=mechanism, bounds=bounds, users=users, value=number
    )


@pytest.mark.long
@pytest.mark.slow
@each_path
@pytest.mark.parametrize("law", [law for law in LAWS if law != "rounded"])
@pytest.mark.exhaustive("law", "path")
def test_prefix_counts_hide_all_contents_of_a_person(law: str, path: str) -> None:
    budget, mechanism = LAWS[law]
    for options in ({}, {"per_key": 2}, {"events": 3, "per_key": 2}, {"keys": 1, "per_key": 2}):
        count = prefix(budget, mechanism, **options)
        for people in PEOPLE:
            assert keeps_contents(count, people, [0, -1, 2, 9, None], path), (options, people)


@each_path
@pytest.mark.parametrize("budget", [PURE, RHO], ids=str)
@pytest.mark.exhaustive("budget", "path")
def test_histograms_hide_all_contents_of_a_person(budget: Any, path: str) -> None:
    count = dp.Histogram(
        *(budget, 4, ["a", "b"]),
        max_items=2,
        mechanism="BinaryTree",
        users=dp.Users(by, 2, per_key=2),
        value=number,
    )
    for people in PEOPLE:
        assert keeps_contents(count, people, ["a", "b", ("a", "b"), "z", None], path), people


def test_contents_at_the_noise_of_one_element_show() -> None:
    count = prefix(per_key=2)
    object.__setattr__(count, "counter", prefix(events=1).counter)
    assert not keeps_contents(count, "pp", [0, -1, 2], "bounded")


class ValidOnly(StepParcels):
    """A mutant: elements that would be rejected take no place: contents decide."""

    def names(self, parcel: bytes) -> Sequence[bytes]:
        (element,) = self.unwrap(parcel, [0])
        return [] if element[1][1] is None else super().names(parcel)


class TiesByContents(StepParcels):
    """A mutant: elements of one time are taken in the order of what they hold."""

    def ordered(self, entries: Iterable[bytes]) -> list[bytes]:
        return sorted(entries)


@pytest.mark.long
def test_first_k_valid_elements_are_not_private() -> None:
    """Their contents would decide which ones count: an element less moves the next one in."""
    for events in (1, 2):
        count = prefix(RHO, "NormalizedBLT", (0, 1), 9, events=events, per_key=events)
        check = WindowCheck(None)
        for parcels, kept in ((StepParcels(check, None), True), (ValidOnly(check, None), False)):
            found = keeps_contents(count, 9 * "p", [1, None], "bounded", parcels)
            assert found == kept, (events, kept)


def test_ties_by_contents_are_not_private() -> None:
    """One person's elements at one time, of which the smallest counts."""
    count = prefix(events=1)
    check = WindowCheck(None)

    def places(contents: Sequence[int], parcels: Parcels) -> list[int]:
        rows: list[Any] = [(("a", ("p", x, i)), 0) for i, x in enumerate(contents)]
        left = survivors(count.users, count.users.bound(), parcels, rows, "bounded")
        return sorted(p[2] for (_, p), _ in left if not isinstance(p, Excess))

    ids = StepParcels(check, lambda payload: -payload[2])
    for contents in itertools.product((0, 1, 2), repeat=3):
        assert places(contents, StepParcels(check, None)) == [0]
        assert places(contents, ids) == [2]
    mutant = {tuple(places(c, TiesByContents(check, None))) for c in ((0, 1, 2), (2, 1, 0))}
    assert len(mutant) == 2


# Mutants that the audit must find


def test_k_for_k_squared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All events may fall into one tick."""

    def once_each(mechanism: Any, k: int, gap: int) -> Any:
        return k * Fraction(mechanism.l2_sensitivity_squared)

    right = tick_count(per_key=2)
    monkeypatch.setattr(norms, "column_cost", once_each)
    wrong = tick_count(per_key=2)
    sums = Sums(right, "bounded")
    assert wrong.counter.law.scale < right.counter.law.scale
    assert audit(sums, EVENTS, 2, right.counter)
    assert not audit(sums, EVENTS, 2, wrong.counter)


def test_noise_for_one_key_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a person who counts in two."""
    monkeypatch.setattr(norms, "worst", lambda total, each, cost: cost(each))
    assert not audit(Sums(tick_count(), "bounded"), EVENTS, 2)


@each_path
def test_a_rule_that_ignores_keys_is_found(path: str) -> None:
    count = tick_count(most_keys=1)
    right = count.users.bound()
    assert audit(Sums(count, path), EVENTS, 2)
    assert not audit(Sums(count, path, bound=replace(right, keys=2)), EVENTS, 2)
    assert not audit(Sums(count, path, bound=replace(right, per_key=2)), EVENTS, 2)


@each_path
def test_a_rule_without_the_gap_is_found(path: str) -> None:
    count = tick_count(per_key=2, gap=2 * TICK)
    right = count.users.bound()
    assert not audit(Sums(count, path, bound=replace(right, gap=0)), EVENTS, 2)


def test_a_gap_against_the_last_event_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As events arrive, one may come between two that count."""
    count = tick_count(events=3, per_key=3, gap=2 * TICK)
    events = universe(["a"], [0, 1, 2], [1])
    assert audit(Sums(count, "streaming"), events, 3)
    monkeypatch.setattr(
        Bound, "_is_apart", lambda self, times, t: not times or abs(t - times[-1]) >= self.gap
    )
    # 2, then 0, then 0 again, whose last one is not the last in time
    assert not audit(Sums(count, "streaming"), events, 3)


def in_windows(self: Any, element: Any, windowed: Any, original: Any) -> Any:
    """The mutant: a person in each window is another."""
    found = original(self, element, windowed)
    return found and (f"{found[0]} in {windowed.windows[0]}", found[1])


@each_path
def test_a_bound_in_every_window_is_found(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tick_count(horizon=4, per_key=2)
    events = universe(["a"], [0, 1, 2, 3], [1])
    mutant = partial(in_windows, original=SendToShards.read)
    monkeypatch.setattr(SendToShards, "read", lambda *given: mutant(*given))
    sums = Sums(count, path, FixedWindows(2 * TICK))
    assert not audit(sums, events, 4)
    # With the multiplication it is right: rho for each of two windows.
    twice = dp.calibrate(
        sums.counter.mechanism, dp.ZCDP(RHO.rho / 2), replace(sums.counter.change, windows=1)
    )
    both = changes(sums.counter, {sums(c) for c in lists(events, 4, False)}, [sums([])])
    assert keeps_budget(SimpleNamespace(law=twice.law, budget=RHO), both)


@each_path
def test_keys_that_are_bounded_before_they_are_mapped_are_found(path: str) -> None:
    """Two keys that nobody listed are one key, `other`."""
    count = tick_count(other="b")
    events = universe(["a", "y", "z"], [0, 1, 2], [1])
    reader = count.parcels(collection(None))
    assert audit(Sums(count, path), events, 2)

    def sums(chosen: Sequence[Event]) -> Any:
        right = Sums(count, path)
        before = ElementParcels([reader])
        left = survivors(count.users, count.users.bound(), before, right.rows(chosen), path)
        everything = replace(right.bound, events=99, keys=99, per_key=99)
        return Sums(count, path, bound=everything)(
            [(key, payload, micros // (TICK * SECOND)) for (key, payload), micros in left]
        )

    found = {sums(chosen) for chosen in lists(events, 2, False)}
    assert not keeps_budget(count.counter, changes(count.counter, found, [sums([])]))
    # So one bound for several counts, which is on keys as they come, pays for all in one counter.
    shared = dp.BoundUsers(count.users, {"a": replace(count, users=None)})._counts["a"]
    assert keeps_budget(shared.counter, changes(shared.counter, found, [sums([])]))


class Coarse(NormalizedBLT):
    """Rounds to quarters, where others round to millionths: so that rounding can be seen."""

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        return 4


@pytest.mark.parametrize("many", ["windows", "max_items", "keys"])
def test_counters_that_are_not_counted_for_rounding_are_found(
    many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counter that a person touches is rounded apart, and may be off by as much."""
    mechanism, k = Coarse(3), 24
    given: dict[str, Any] = {
        "windows": {"events": k, "per_key": k, "windows": k, "gap": 3},
        "max_items": {"keys": k, "max_items": k},
        "keys": {"events": k, "keys": k},
    }
    change = norms.UserChange(**given[many], most=40)
    R = mechanism.encoder(3) * mechanism.resolution(1, 40)
    # One event in each counter, beside others that make its rounding worst.
    best = max(
        int(np.square(np.rint(R @ (base + event)) - np.rint(R @ base)).sum())
        for event in np.eye(3)
        for base in map(np.array, itertools.product(range(14), repeat=3))
    )
    assert k * best <= change.norms(mechanism, 1, None)[1]

    def as_one(mechanism: Any, reach: Any, *more: Any) -> Any:
        return spread_norms(mechanism, reach._replace(touched=1), *more)

    monkeypatch.setattr(norms, "spread_norms", as_one)
    assert k * best > change.norms(mechanism, 1, None)[1]


# One event of a person who is bounded


def without_one(sums: Sums, events: Sequence[Event], most: int) -> list[tuple[Any, Any]]:
    """The sums of a person's events, and of the same without one of them."""
    found = {
        (sums(chosen), sums([*chosen[:i], *chosen[i + 1 :]]))
        for chosen in lists(events, most, sums.path == "streaming")
        for i in range(len(chosen))
    }
    return [(a, b) for a, b in found if a != b]


@each_path
@pytest.mark.parametrize("budget", [PURE, RHO], ids=str)
@pytest.mark.parametrize(("low", "factor"), [(0, 2), (-1, 4)])
def test_an_event_less_costs_more_than_one_event(
    low: int, factor: int, budget: Any, path: str
) -> None:
    """Of first k: it lets another one in. The ledger's factor is needed, and is enough."""
    count = tick_count(budget, events=1, bounds=(low, 1))
    events = universe(["a", "b"], [0, 1, 2], [1, -1] if low else [1])
    sums = Sums(count, path)
    noised, pairs = Noised(count.counter), without_one(sums, events, 2)
    found = [noised(a) - noised(b) for a, b in pairs]
    change, mechanism = count.counter.change, count.counter.mechanism
    assert change.event_cost(mechanism) == factor
    one_event = TickChange(low, 1, most=8).norms(mechanism, 1, None)[1]
    assert max(int(d @ d) for d in found) == factor * one_event
    protection = Protection(change.person, factor)
    costs = [
        (budget, False),
        (protection.budget_of(budget, "event"), True),
    ]
    if budget is RHO:
        costs.append((dp.ZCDP(0.99 * factor * RHO.rho), False))
    for cost, kept in costs:
        assert keeps_budget(SimpleNamespace(law=count.counter.law, budget=cost), found) == kept


def test_an_event_less_may_change_all_events_of_a_person() -> None:
    """A greedy gap lets other events in, one after the other; so do bounds on keys."""
    count = tick_count(horizon=6, events=3, per_key=3, gap=2 * TICK, keys=("a",))
    sums = Sums(count, "bounded")
    events = [("a", ("p", 1), t) for t in range(6)]
    (all_of_them,), (without,) = sums(events), sums(events[1:])
    assert np.abs(np.array(all_of_them) - without).sum() == 6
    # A B B B: only A's key counts; without A all of B's do.
    count = tick_count(events=3, most_keys=1, per_key=3)
    sums, noised = Sums(count, "bounded"), Noised(count.counter)
    events = [("a", ("p", 1), 0), *[("b", ("p", 1), 0)] * 3]
    d = noised(sums(events)) - noised(sums(events[1:]))
    one = TickChange(most=8).norms(count.counter.mechanism, 1, None)[1]
    assert count.counter.change.norms(count.counter.mechanism, 1, None)[1] == 9 * one
    assert d @ d == 10 * one
