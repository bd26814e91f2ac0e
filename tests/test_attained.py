"""What is calibrated is what some neighbours differ by: all of them, of a few events, are tried.

Of the transforms as users make them, through the encoder of their own counters. A bound that is too
small is exceeded by some pair, one that is too large is attained by none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters.change import Change, TickChange
from beam_dpcount.counters.joint import JointChange, JointUserChange, Part
from beam_dpcount.counters.users import UserChange
from beam_dpcount.transforms.ticks import TickNumbers
from beam_dpcount.transforms.vectors import TickVectors
from tests.sentences import counted

m = dp.metrics
CLOCK: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 2, "mechanism": "Simple2"}
KEYS = ("a", "b", "c", "d")

# An event: the tick, from 0, and what it adds to which (counter, coordinate), if it counts there.
Additions = Sequence[tuple[int, int]]
Event = tuple[int, Mapping[int, Additions]]


each_relation = pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
each_budget = pytest.mark.parametrize(
    "budget", [dp.PureDP(1.0), dp.ZCDP(0.5)], ids=["pure", "zCDP"]
)


def users(events: int, **options: Any) -> dp.Users:
    return dp.Users(str, events, **{"per_key": 1, **options})


def people(events: Sequence[Event], most: int, first: Additions = ()) -> Iterator[list[Event]]:
    """Up to so many events, at most one of them in each counter, each a person's first there."""
    yield []
    for n in range(1, most + 1):
        for chosen in itertools.combinations_with_replacement(events, n):
            names = [name for _, adds in chosen for name in adds]
            if len(names) == len(set(names)):
                yield [(t, {c: [*a, *first] for c, a in adds.items()}) for t, adds in chosen]


def noised(counter: Any, person: Iterable[Event], counters: int, width: int) -> np.ndarray:
    """R x of all counters, as one row of whole numbers."""
    x = np.zeros((counter.horizon, counters, width))
    for tick, adds in person:
        for name, additions in adds.items():
            for coordinate, amount in additions:
                x[tick, name, coordinate] += amount
    return np.tensordot(counter.mechanism.encoder(counter.horizon), x, 1).ravel()


def apart(rows: Iterable[np.ndarray], relation: str) -> tuple[float, float]:
    """The largest L1 norm of a difference, and the square of the largest L2 norm."""
    found = np.unique(np.array(list(rows)), axis=0)
    others = found if relation == "replace_one" else np.zeros((1, found.shape[1]))
    l1 = max(np.abs(found - other).sum(axis=1).max() for other in others)
    l2 = max(np.square(found - other).sum(axis=1).max() for other in others)
    return float(l1), float(l2)


def calibrated(counter: Any) -> tuple[float, float]:
    l1, l2_squared = counter.change.norms(counter.mechanism, counter.unit, counter.dimension)
    return float(l1) / counter.resolution, float(l2_squared) / counter.resolution**2


# Items


def several_items(items: int, most: int) -> list[Event]:
    """An event of each set of so many items, at each tick."""
    sets = [s for n in range(1, most + 1) for s in itertools.combinations(range(items), n)]
    return [(tick, {item: [(0, 1)] for item in s}) for tick in range(2) for s in sets]


@each_relation
def test_an_event_of_several_keys_changes_each(relation: str) -> None:
    count = TickNumbers(dp.ZCDP(0.5), **CLOCK, keys=KEYS, max_items=2, relation=relation)
    events = [[], *([event] for event in several_items(4, 2))]
    found = apart((noised(count.counter, event, 4, 1) for event in events), relation)
    assert found == calibrated(count.counter)


# Metrics


@each_relation
@each_budget
@pytest.mark.parametrize("most", [1, 3])
def test_distinct_people_count_once_beside_their_events(
    relation: str, budget: Any, most: int
) -> None:
    """In each of three keys an event is a person's first, and both sums change."""
    aggregate = counted(
        *(budget, [m.Count(), m.People()]),
        **CLOCK,
        keys=KEYS[:3],
        relation=relation,
        users=users(most),
    )
    joint, counter = aggregate.engine.joint, aggregate.counter
    adds = joint.additions({})
    events: list[Event] = [(t, {name: adds}) for t in range(2) for name in range(3)]
    persons = people(events, most, joint.first)
    found = apart((noised(counter, p, 3, 2) for p in persons), relation)
    assert found == calibrated(counter)
    assert found[0] == 2 * most * (1 + (relation == "replace_one"))


@each_budget
@pytest.mark.parametrize("bound", [None, 1, 2], ids=["event", "person", "two of a person"])
def test_a_sum_of_two_signs_may_change_by_twice_as_much(budget: Any, bound: int | None) -> None:
    """From -1 to 1, at one tick of one key: 4 squared, not 2."""
    engine = TickVectors(
        *(budget,),
        **CLOCK,
        metrics=(m.Sum("v", -1, 1, unit=1),),
        keys=KEYS[:2],
        relation="replace_one",
        users=None if bound is None else users(bound),
    )
    joint, counter = engine.joint, engine.counter
    events: list[Event] = [
        (t, {name: joint.additions({"v": v})})
        for t in range(2)
        for name in range(2)
        for v in (-1, 1)
    ]
    found = apart((noised(counter, p, 2, 1) for p in people(events, bound or 1)), "replace_one")
    assert found == calibrated(counter)
    assert found[1] == 4 * (bound or 1)


# Elements


EMPTY = (-1, -1, 0)  # the code of a step without an edge


@pytest.mark.parametrize("most", [1, 2, 3])
def test_an_edge_of_a_person_is_two_changes(most: int) -> None:
    """If others insert the same edges later, one step less is counted, and one more."""
    count = dp.EdgeCount(
        *(dp.PureDP(1.0), 2 * most),
        vertices=4,
        mechanism="Simple2",
        users=users(most, per_key=most),
    )
    statistic, l1 = count.statistic, set()
    edges = [(u, v, 1) for u, v in itertools.combinations(range(4), 2)][:most]

    def added(mine: Sequence[Any]) -> Any:
        return statistic.all(statistic.init(), np.array([*mine, *edges]))[1].astype(int)

    nothing = added([EMPTY] * most)
    for mine in itertools.product([EMPTY, *edges], repeat=most):
        d = added(mine) - nothing
        l1.add(float(np.abs(d).sum()))
        assert np.square(d).sum() <= calibrated(count.counter)[1]
    assert max(l1) == calibrated(count.counter)[0] == 2 * most


# Rounding


class Whole(mechanisms.NormalizedBLT):
    """Rounds R x to whole numbers, where others round to millionths: so that rounding shows."""

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        return 1


TICKS, MOST = 32, 40
RELATIONS = {"add_remove": 1, "replace_one": 2}


def tipped(mechanism: Any) -> tuple[np.ndarray, np.ndarray]:
    """What is in a counter, and how far an event at the first tick moves its rounded R x.

    Each row is brought just below where it is rounded up, by what is in its own tick.
    """
    R = mechanism.encoder(TICKS)
    x = np.zeros(TICKS)
    for t in range(TICKS):
        near = (R[t, :t] @ x[:t] + R[t, t] * np.arange(MOST) + 0.5) % 1
        moved = near + R[t, 0] >= 1
        moved[0] |= not moved.any()
        x[t] = np.flatnonzero(moved)[0]
    event = np.eye(TICKS)[0]
    return x, np.rint(R @ (x + event)) - np.rint(R @ x)


PART = Part(l1=1, l2_squared=1, span_squared=0, touched=1, largest=1)
FIRST = PART._replace(once=True)
# What changes, and how many sums of how many counters on one side.
CHANGES: dict[str, tuple[Callable[..., Change], int]] = {
    "an event": (TickChange, 1),
    "a person": (partial(UserChange, events=3, keys=3), 3),
    "metrics of an event": (partial(JointChange, parts=(PART, PART)), 2),
    "metrics of a person": (partial(JointUserChange, events=3, keys=3, parts=(PART,)), 3),
    "distinct people": (partial(JointUserChange, events=3, keys=3, parts=(PART, FIRST)), 6),
}


@each_relation
@pytest.mark.parametrize("kind", CHANGES)
def test_every_counter_that_changes_is_rounded_apart(kind: str, relation: str) -> None:
    """On both sides: the counters that a person's events leave, and those that they enter."""
    make, sums = CHANGES[kind]
    change, mechanism = make(relation=relation, most=MOST), Whole(TICKS)
    dimension = len(change.parts) if isinstance(change, JointChange | JointUserChange) else None
    calibrated = float(change.norms(mechanism, 1, dimension)[1])
    counters = RELATIONS[relation] * sums
    _, d = tipped(mechanism)
    assert d @ d >= 0.9 * TICKS  # far more than the column's 1
    assert counters * (d @ d) <= calibrated
    # With the rounding of half as many counters it would be exceeded.
    one = math.sqrt(counters) + math.sqrt(counters / 2) * mechanism.slack(MOST)[1]
    assert counters * (d @ d) > one**2
