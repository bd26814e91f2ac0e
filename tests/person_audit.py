"""A person's events through the DoFns that bound them, and what noise must hide."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows, GlobalWindow, GlobalWindows, IntervalWindow
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.counters.people import Bound
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.users import BoundArriving, BoundShards, SendToShards
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import PAIR
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import PeopleShards
from tests.audit.exact import Tape, keeps_budget, seen_weights

SECOND, TICK = 1_000_000, 10
PATHS = ("bounded", "streaming")
PURE, RHO, APPROXIMATE = dp.PureDP(1.0), dp.ZCDP(0.1), dp.ApproxDP(1.0, 1e-4)

each_path = pytest.mark.parametrize("path", PATHS)

# Key, (person, number), and the tick, from 0.
Event = tuple[Any, Any, int]


def by(payload: Any) -> str:
    return payload[0]


def number(payload: Any) -> Any:
    return payload[1]


# The rule that is run


def placed(element: Any, micros: int, function: Any) -> SimpleNamespace:
    """Where an element is, for a DoFn that asks."""
    window: Any = GlobalWindow()
    if isinstance(function, FixedWindows):
        size = function.size.micros
        start = micros // size * size
        window = IntervalWindow(Timestamp(micros=start), Timestamp(micros=start + size))
    return SimpleNamespace(timestamp_micros=micros, windows=(window,), value=element)


def survivors(
    users: dp.Users,
    bound: Bound,
    parcels: Parcels,
    rows: Sequence[tuple[Any, int]],
    path: str,
    function: Any = None,
) -> list[tuple[Any, int]]:
    """Of elements and their times, what the DoFns let through, with its time."""
    made: list[Any] = []
    if path == "bounded":
        shards = SendToShards(users, parcels, Placement(3))
        shards.setup()
        shards.start_bundle()
        for row in rows:
            assert not shards.process(row[0], placed(*row, function))
        at_once = BoundShards(bound, parcels)
        for shard in shards.finish_bundle():
            made += at_once.process((shard.value[0], [shard.value[1]]))
    else:
        placement = Placement(3)
        sending = SendToShards(users, parcels, placement, True)
        arriving = PeopleShards(sending, BoundArriving(bound, parcels, placement))
        events = [placed(*row, function) for row in rows]
        made = arriving.bundle(events[:1]) + arriving.bundle(events[1:])
    return [(windowed.value, windowed.timestamp.micros) for windowed in made]


def at_ticks(count: Any, function: Any = None) -> tuple[Any, Any]:
    """The TickCount inside, and its counter in such windows."""
    inner = getattr(count, "engine", count)
    clock = inner._windowed(collection(function))
    return inner, inner._at(clock, False)[False]


def collection(function: Any) -> Any:
    """All that is asked of a collection in such windows."""
    windowing = SimpleNamespace(windowfn=function or GlobalWindows())
    return SimpleNamespace(windowing=windowing, is_bounded=True)


class Sums:
    """What a count at a clock adds up of lists of events: an array (counters, ticks)."""

    def __init__(
        self, count: Any, path: str, function: Any = None, parcels: Any = None, bound: Any = None
    ) -> None:
        self.count, self.path, self.function = count, path, function
        self.inner, self.counter = at_ticks(count, function)
        self.parcels = parcels or self.inner.parcels(collection(function))
        self.bound = bound or self.inner.users.bound()
        self.ticks = self.counter.horizon
        clock = self.inner._whole
        self.epochs = -(-clock.steps // self.ticks)

    def rows(self, events: Iterable[Event]) -> list[tuple[Any, int]]:
        """Events as elements."""
        return [((key, p), t * TICK * SECOND) for key, p, t in events]

    def __call__(self, events: Iterable[Event]) -> tuple[tuple[int, ...], ...]:
        left = survivors(
            self.count.users, self.bound, self.parcels, self.rows(events), self.path, self.function
        )
        sums = np.zeros((len(self.inner.keys), self.epochs, self.ticks), dtype=np.int64)
        for (key, packed), micros in left:
            step, x = PAIR.unpack(packed)
            epoch = micros // (TICK * SECOND) // self.ticks
            sums[self.inner.keys.index(key), epoch, step - 1] += x
        return tuple(map(tuple, sums.reshape(-1, self.ticks).tolist()))


# What is noised


class Noised:
    """The integers that noise is added to: Rx, or its rounding as the counter rounds it."""

    def __init__(self, counter: Any) -> None:
        self.counter, self.known = counter, {}
        self.R = counter.mechanism.encoder(counter.horizon)
        self.weights = None
        if isinstance(counter.mechanism, RoundedMechanism):
            self.weights = seen_weights(counter, len(self.R))[0]

    def __call__(self, sums: tuple[tuple[int, ...], ...]) -> np.ndarray:
        return np.concatenate([self.one(xs) for xs in sums])

    def one(self, xs: tuple[int, ...]) -> np.ndarray:
        if xs not in self.known:
            self.known[xs] = self._one(xs)
        return self.known[xs]

    def _one(self, xs: tuple[int, ...]) -> np.ndarray:
        counter = self.counter
        if self.weights is None:
            return (self.R @ np.array(xs)).astype(np.int64)
        state, tape, releases = counter.init(), Tape(np.zeros(counter.horizon, int)), []
        for x in xs:
            state, value = counter.step_lattice(state, x, tape)
            releases.append(value)
        q = np.linalg.solve(self.weights, np.array(releases) / counter.grid)
        assert np.allclose(q, np.rint(q), atol=1e-6)
        return np.rint(q).astype(np.int64)


def added(one: Any, other: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, (np.array(one) + np.array(other)).tolist()))


def changes(counter: Any, sums: Iterable[Any], others: Iterable[Any]) -> list[np.ndarray]:
    """What noise must hide: a person's sums against none, or any others, beside other people's."""
    noised, sums = Noised(counter), set(sums)
    nothing = added(next(iter(sums)), -np.array(next(iter(sums))))
    against = {nothing} if counter.change.relation == "add_remove" else sums | {nothing}
    return [
        noised(added(one, base)) - noised(added(other, base))
        for base in set(others)
        for one in sums
        for other in against
    ]


def lists(events: Sequence[Event], most: int, ordered: bool) -> Iterator[tuple[Event, ...]]:
    """All lists of so many of the events; in every order, if it matters."""
    for n in range(most + 1):
        if ordered:
            yield from itertools.product(events, repeat=n)
        else:
            yield from itertools.combinations_with_replacement(events, n)


def universe(keys: Sequence[str], ticks: Sequence[int], values: Sequence[Any]) -> list[Event]:
    """The events that a person p may have."""
    return [(key, ("p", x), t) for key in keys for t in ticks for x in values]


def others_of(sums: Sums, events: Sequence[Event]) -> list[Any]:
    """What other people's events add, next to none: of one person q, with all of them or some."""
    theirs = [(key, ("q", x), t) for key, (_, x), t in events]
    return [sums(theirs[:n]) for n in (0, 1, len(theirs))]


def audit(sums: Sums, events: Sequence[Event], most: int, counter: Any = None) -> bool:
    """Whether the counter's noise hides all of a person's events, whatever they are."""
    found = {sums(chosen) for chosen in lists(events, most, sums.path == "streaming")}
    assert len(found) > 3
    counter = counter or sums.counter
    return keeps_budget(counter, changes(counter, found, others_of(sums, events)))


CLOCK: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": 3, "max_per_tick": 8}


def tick_count(
    budget: Any = RHO, mechanism: Any = "BinaryTree", keys: Any = ("a", "b"), **given: Any
) -> Any:
    options = {name: given.pop(name) for name in ("events", "per_key", "gap") if name in given}
    most = given.pop("most_keys", None)
    users = dp.Users(by, options.pop("events", 2), most, **{"per_key": 1, **options})
    given = {**CLOCK, "keys": keys, "value": number, **given}
    return TickNumbers(budget, mechanism=mechanism, users=users, **given)


LAWS: dict[str, Any] = {
    "Laplace": (PURE, "BinaryTree"),
    "Gaussian": (RHO, "SmoothBinary"),
    "Gaussian, (epsilon, delta)": (APPROXIMATE, "BinaryTree"),
    "rounded": (RHO, "NormalizedBLT"),
}
each_law = pytest.mark.parametrize("law", LAWS)
