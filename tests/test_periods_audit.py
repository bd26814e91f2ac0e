"""One person's events of any one period, exactly: the rule as it is run, for every neighbour.

As in `test_people_audit.py`: events go through the DoFns that bound them, and every difference of
the sums goes through the encoder of the transform's own counter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.counters.period_costs import PeriodCosts, TogetherCosts
from beam_dpcount.counters.periods import periods_of
from beam_dpcount.counters.selection import Selection
from beam_dpcount.counters.users import UserChange, cross_products
from beam_dpcount.dofns.periods import BoundPeriods
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.dofns.users import SendToShards
from beam_dpcount.mechanisms import BinaryTree, NormalizedBLT, ProfiledBLT, SquareRoot
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import PAIR
from benchmarks.cells import PeopleShards
from tests.audit.exact import keeps_budget
from tests.person_audit import (
    LAWS,
    RHO,
    TICK,
    Event,
    Noised,
    added,
    by,
    collection,
    each_law,
    lists,
    placed,
    universe,
)
from tests.person_periods import PERIOD, SECOND, count_of, differences, sums_of


def without(events: Sequence[Event], period: int) -> list[Event]:
    """Events without those of one person-period."""
    return [event for event in events if event[2] // PERIOD != period]


def neighbours(count: Any, events: Sequence[Event], most: int, **how: Any) -> Iterator[Any]:
    """All pairs of sums of lists that differ in one person-period: there or not, or another."""
    replaces = count.counter.change.relation == "replace_one"
    known: dict[tuple[Event, ...], Any] = {}

    def summed(some: Sequence[Event]) -> Any:
        key = tuple(some)
        if key not in known:
            known[key] = sums_of(count, some, **how)
        return known[key]

    for chosen in lists(events, most, False):
        for period in {event[2] // PERIOD for event in chosen}:
            rest = without(chosen, period)
            yield summed(chosen), summed(rest)
            if replaces:
                mine = [event for event in events if event[2] // PERIOD == period]
                for other in lists(mine, 2, False):
                    yield summed(chosen), summed([*rest, *other])


BOUNDS: dict[str, dict[str, Any]] = {
    "two a period": {"events": 2},
    "people": {"events": 2, "per_key": 1},
    "one key": {"events": 2, "keys": 1},
    "a gap": {"events": 2, "gap": TICK, "per_key": 2},
}
EVENTS = universe(["a", "b"], [0, 1, 2, 3], [1])


@each_law
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.exhaustive("law", "bound", "relation")
def test_counts_hide_one_person_period(bound: str, relation: str, law: str) -> None:
    budget, mechanism = LAWS[law]
    users = dp.Users(by, **BOUNDS[bound], per=PERIOD)
    count = count_of(users, budget, mechanism, relation=relation)
    most = 3 if relation == "replace_one" else 4
    found = differences(count, neighbours(count, EVENTS, most))
    assert len(found) > 3
    assert keeps_budget(count.counter, found)


@pytest.mark.parametrize("bound", ["two a period", "one key"])
def test_a_period_that_remembers_the_one_before_is_no_such_bound(bound: str) -> None:
    """Under one bound over the whole stream another event takes the place of one less."""
    count = count_of(dp.Users(by, **BOUNDS[bound], per=PERIOD))
    found = differences(count, neighbours(count, EVENTS, 4, periods=None))
    assert not keeps_budget(count.counter, found)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_period_has_the_norms_of_the_whole_stream(bound: str) -> None:
    for mechanism in ("BinaryTree", "NormalizedBLT"):
        plain = count_of(dp.Users(by, **BOUNDS[bound]), RHO, mechanism).counter
        period = count_of(dp.Users(by, **BOUNDS[bound], per=PERIOD), RHO, mechanism).counter
        assert period.l1_sensitivity == plain.l1_sensitivity
        assert period.l2_sensitivity == plain.l2_sensitivity
        assert period.law == plain.law


def test_someone_may_count_in_every_period() -> None:
    count = count_of(dp.Users(by, 1, per=PERIOD), keys=("a",))
    assert sums_of(count, [("a", ("p", 1), t) for t in (0, 1, 2, 3)]) == ((1, 0, 1, 0),)
    assert sums_of(count, [("a", ("p", 1), t) for t in (0, 1, 2, 3)], periods=None) == (
        (1, 0, 0, 0),
    )


def test_the_rule_reads_only_events_of_its_period() -> None:
    """Sums of all events are the sums of each period's, whatever the bound."""
    for options in BOUNDS.values():
        count = count_of(dp.Users(by, **options, per=PERIOD))
        for chosen in lists(EVENTS, 3, False):
            apart = [
                sums_of(count, [event for event in chosen if event[2] // PERIOD == period])
                for period in (0, 1)
            ]
            assert sums_of(count, chosen) == added(*apart)


# Streams: every arrival, every time of closing


def streamed(count: Any, slots: Sequence[Event | None], moves: Sequence[int]) -> Any:
    """The sums of events that arrive in slots; `moves` is the watermark's tick before each."""
    parcels = count.parcels(collection(None))
    placement = Placement(2)
    sending = SendToShards(count.users, parcels, placement, True)
    bounding = BoundPeriods(count.users.bound(), parcels, placement, count._periods)
    shards = PeopleShards(sending, bounding)
    for shard in range(2):
        shards.take((shard, SEED))
    sums = np.zeros((len(count.keys), count.counter.horizon), dtype=np.int64)
    for slot, tick in zip(slots, moves, strict=True):
        shards.advance(tick * TICK * SECOND)
        if slot is None:
            continue
        key, payload, at = slot
        for windowed in shards.bundle([placed((key, payload), at * TICK * SECOND, None)]):
            name, packed = windowed.value
            step, x = PAIR.unpack(packed)
            sums[count.keys.index(name), step - 1] += x
    return tuple(map(tuple, sums.tolist()))


# Nothing is closed; the first period at once; between events; and both before the last one.
MOVES = [(0, 0, 0), (4, 4, 4), (0, 4, 4), (0, 0, 4), (4, 4, 9), (0, 4, 9)]


def arrivals(events: Sequence[Event]) -> Iterator[tuple[Event | None, ...]]:
    yield from itertools.permutations([*events, None], 3)


@pytest.mark.long
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.exhaustive("bound")
def test_streams_hide_one_person_period(bound: str) -> None:
    """Every event of a period taken away from its slot; the others stay in theirs."""
    options = {k: v for k, v in BOUNDS[bound].items() if k != "gap"}
    count, pairs = count_of(dp.Users(by, **options, per=PERIOD)), list[Any]()
    for moves in MOVES:
        known: dict[Any, Any] = {}
        for slots in arrivals(EVENTS):
            for period in (0, 1):
                rest = tuple(e if e is None or e[2] // PERIOD != period else None for e in slots)
                if rest == slots:
                    continue
                for each in (slots, rest):
                    if each not in known:
                        known[each] = streamed(count, each, moves)
                pairs.append((known[slots], known[rest]))
    found = differences(count, pairs)
    assert len(found) > 3
    assert keeps_budget(count.counter, found)


# Several periods of one person


def costs(mechanism: Any, periods: int, each: int = 1, **more: Any) -> PeriodCosts:
    """What periods of so many ticks cost in a counter of people with so many events in each."""
    clock = dp.Clock(1, start=0, ticks=mechanism.horizon)
    known = periods_of(clock, periods)
    change = UserChange(events=each, keys=1, per_key=each, most=8, periods=known)
    return PeriodCosts(dp.calibrate(mechanism, RHO, change), change, known, **more)


KINDS = (BinaryTree, NormalizedBLT, ProfiledBLT, SquareRoot)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("ticks", "many"), [(3, 3), (1, 4), (2, 3)])
def test_several_periods_cost_at_most_what_is_said(kind: Any, ticks: int, many: int) -> None:
    """Every choice of periods, and every placement in them."""
    mechanism = kind(12)
    R = mechanism.encoder(12)
    G, c2 = R.T @ R, Fraction(mechanism.l2_sensitivity_squared)
    worst = max(
        float(G[np.ix_(at, at)].sum())
        for chosen in itertools.combinations(range(12 // ticks), many)
        for at in itertools.product(*[range(p * ticks, (p + 1) * ticks) for p in chosen])
    )
    bound = float(many * c2 + cross_products(mechanism, many, ticks))
    assert worst <= bound * (1 + 1e-9)
    assert bound <= many**2 * float(c2) * (1 + 1e-9)
    if ticks == 1:
        assert bound < many**2 * float(c2)
    if ticks == 1 and kind is SquareRoot:
        assert worst > 0.97 * bound  # a much smaller bound would be none


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_norms_of_periods_bound_what_is_noised(kind: Any) -> None:
    """With two events in each, rounding and all."""
    mechanism = kind(6)
    known = costs(mechanism, 2, each=2)
    noised = Noised(known.counter)
    for many in (1, 2, 3):
        l1, l2_squared = known.norms(many)
        for chosen in itertools.combinations(range(3), many):
            for places in itertools.product(itertools.product((0, 1), repeat=2), repeat=many):
                x = [0] * 6
                for period, pair in zip(chosen, places, strict=True):
                    for place in pair:
                        x[2 * period + place] += 1
                for base in ([0] * 6, [1] * 6):
                    there = tuple(a + b for a, b in zip(x, base, strict=True))
                    d = noised.one(there) - noised.one(tuple(base))
                    assert d @ d <= l2_squared * (1 + Fraction(1, 10**9))
                    assert np.abs(d).sum() <= l1 * (1 + Fraction(1, 10**9))
    assert known.norms(1) == known.counter.change.norms(mechanism, 1, None)


def test_late_events_that_are_folded_meet_in_one_tick() -> None:
    """Then the spaced bound is too small, and n^2 is attained."""
    mechanism = SquareRoot(12)
    G = mechanism.encoder(12).T @ mechanism.encoder(12)
    worst = max(float(G[t, t]) * 9 for t in range(12))
    spaced, folded = costs(mechanism, 3), costs(mechanism, 3, moves=True)
    one = float(spaced.norms(1)[1])
    column = float(mechanism.l2_sensitivity_squared)
    assert worst == pytest.approx(9 * column)
    assert float(spaced.norms(3)[1]) < 9 * one < float(folded.norms(3)[1]) * (1 + 1e-3)


def test_restarts_add_up_what_each_costs() -> None:
    """Windows have noise of their own: periods in different ones do not meet."""
    clock = dp.Clock(1, start=0, ticks=12)
    daily = clock.restart(3).grid
    mechanism = NormalizedBLT(3)
    change = UserChange(most=8, periods=periods_of(clock, 3))
    counter = dp.calibrate(mechanism, RHO, change)
    known = PeriodCosts(counter, change, periods_of(clock, 3), counts=daily)
    assert known.factor(4) == pytest.approx(4, rel=1e-3)
    # Windows of six ticks hold two periods each, which meet.
    six = NormalizedBLT(6)
    counter = dp.calibrate(six, RHO, change)
    two = PeriodCosts(counter, change, periods_of(clock, 3), counts=clock.restart(6).grid)
    assert two.factor(4) == pytest.approx(2 * float(two.factor(2)), rel=1e-3)
    assert 2 < two.factor(2) < 4
    # Windows that cut periods in two: all may meet.
    across = PeriodCosts(counter, change, periods_of(clock, 4), counts=clock.restart(6).grid)
    assert across.factor(3) == pytest.approx(9, rel=1e-3)


def test_delta_of_periods_is_what_shows_all_of_their_events() -> None:
    """By brute force over the law: someone alone in a key, day after day. Never n times delta."""
    clock, ticks = dp.Clock(1, start=0, ticks=16), np.arange(1, 17)
    known = periods_of(clock, 1)
    change = UserChange(most=8, periods=known)
    counter = dp.calibrate(BinaryTree(16), dp.PureDP(4.0), change)
    selection = Selection(counter, 1e-3)
    period = PeriodCosts(counter, change, known, selection=selection)
    random, L, many = np.random.default_rng(1), counter.mechanism.decoder(16), 200_000
    p = -np.expm1(-1 / counter.law.scale)
    noise = random.geometric(p, (many, len(L))) - random.geometric(p, (many, len(L)))
    release = noise @ L.T
    for n in (1, 4, 8, 16):
        counts = np.minimum(ticks, n)
        shown = ((release + counts) >= selection.lattice_thresholds).any(axis=1).mean()
        margin = 5 * np.sqrt(max(shown, 1e-5) / many)
        assert shown - margin <= float(period.keys_delta(n))
    assert float(period.keys_delta(1)) == selection.delta
    assert shown > 16 * 5 * selection.delta


def test_without_delta_left_there_is_no_guarantee() -> None:
    users = dp.Users("user", events=1, per="1d")
    clock = dp.Clock("1d", start=0, ticks=100)
    count = dp.TickCount(dp.ApproxDP(1.0, 1e-6), clock, keys=dp.SelectKeys(), users=users)
    said = count.display_data()["together"]
    assert "30 days: no guarantee: keys that one person alone uses will be shown" in said
    with pytest.raises(ValueError, match="no guarantee"):
        count.epsilon_at(1e-6, periods=30)
    assert count.epsilon_at(1e-6, periods=1) == pytest.approx(1, rel=1e-6)
    listed = dp.TickCount(dp.ApproxDP(1.0, 1e-6), clock, keys=["a"], users=users)
    assert listed.epsilon_at(1e-6, periods=30) > listed.epsilon_at(1e-6, periods=7) > 1
    (part,) = listed._parts
    assert TogetherCosts((part.engine.period_costs,)).epsilon(1e-6, 7) == listed.epsilon_at(
        1e-6, periods=7
    )


def test_a_bound_is_one_pure_function() -> None:
    """`Bound.take` knows of no periods: each has its own `Seen`."""
    bound, seen = Bound(1, 1, 1, 0), Seen()
    assert [bound.take(seen, ["a"], t) for t in (0, 10**12)] == [[0], []]
    assert replace(seen).events == 1
