"""Folds of releases: a state and a release give a state, and what is given out, on both paths.

What is computed from releases and public parameters alone is as private as they are.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.utils import windowed_value

from beam_dpcount.counters.alarms import watched
from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.counters.isotonic import Block, cap, isotonic, push
from beam_dpcount.counters.shrinkage import shrunk
from beam_dpcount.counters.sliding import SlidingStddevs
from beam_dpcount.dofns.releases import Release, TopRelease, VectorRelease
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.states.codecs import FoldCodec
from beam_dpcount.statistics.items import largest, places

# An alias, because the declared default is Beam's marker.
_Window: Any = beam.DoFn.WindowParam
FloatArray = npt.NDArray[np.float64]
# A whole number and an array of its own, which `add` may change.
FoldState = tuple[int, FloatArray]


class Whole(ABC):
    """What the releases of one group give, once all of them are there."""

    group: str  # the field of a release by which it is grouped
    order: str  # the field by which a group is sorted, on bounded input

    @abstractmethod
    def all(self, releases: Sequence[Any]) -> Iterator[Any]:
        """What sorted releases give."""

    def micros(self, given: Any) -> int:
        """The time of what is given out."""
        at: int = given.timestamp
        return at


class Fold(Whole):
    """What is remembered of the releases of one group, and what they give."""

    parameters: tuple[Any, ...]

    @abstractmethod
    def add(self, state: FoldState | None, release: Any) -> tuple[FoldState | None, list[Any]]:
        """The state after one more release (None: nothing to remember), and what to give out."""

    def all(self, releases: Sequence[Any]) -> Iterator[Any]:
        state: FoldState | None = None
        for release in releases:
            state, given = self.add(state, release)
            yield from given


RESTARTS = (
    "releases of clock.restart(n) start anew every n ticks, those of clock.each() at every tick, "
    "and sums and fits over many ticks do not follow: count clock.last(n), or the clock itself"
)


def step_of(release: Any, counter: LatticeCounter) -> int:
    """The step of the counter at a release: windows restart the counter, but not the step numbers.

    A window has as many ticks as its counter has steps.

    Raises:
      TypeError: the release is of a view that restarts, where windows of local days have fewer.
    """
    step, horizon = release.step, counter.horizon
    if getattr(release, "restart", None) is not None or (horizon == 1 and step > 1):
        raise TypeError(RESTARTS)
    return step if horizon is None else (step - 1) % horizon + 1


class KnownStddevs:
    """Those of a counter's releases, by their steps; and whether releases have them."""

    _MOST = 1 << 16  # remembered

    def __init__(self, counter: LatticeCounter) -> None:
        self._counter = counter
        self._known: list[float] = []

    def check(self, release: Any, use: str) -> float:
        """The standard deviation of a release, or a ValueError if it is another counter's."""
        t = step_of(release, self._counter)
        if len(self._known) < t <= self._MOST:
            many = min(max(2 * t, 64), self._MOST, self._counter.horizon or self._MOST)
            self._known = self._counter.stddevs(many).tolist()
        own = self._known[t - 1] if t <= len(self._known) else math.sqrt(self._counter.variance(t))
        if not math.isclose(own, release.stddev, rel_tol=1e-6):
            raise ValueError(
                f"the release of step {t} has a stddev of {release.stddev:g}, where the counter "
                f"has {own:g}: give the counter of the transform that made the releases, as it is "
                f"after applying it, and take {use} before averages and sliding sums"
            )
        return own


class IsotonicPast(Fold):
    """Of each coordinate, the last value of the isotonic regression of all releases so far.

    The array holds how many blocks each coordinate has, and then their means and weights. Weights
    are multiples of that of step 1. Of the blocks of the past at most `most` are kept.
    """

    group, order = "key", "step"

    def __init__(self, counter: LatticeCounter, most: int) -> None:
        self._most = most
        self.parameters = ("isotonic", most)
        self._stddevs, self._first = KnownStddevs(counter), float(counter.stddevs(1)[0])

    def add(self, state: FoldState | None, release: Any) -> tuple[FoldState | None, list[Any]]:
        values = np.atleast_1d(np.asarray(release.value, dtype=np.float64)).tolist()
        last, stacks = (0, [[] for _ in values]) if state is None else _unpacked(state, len(values))
        if release.step <= last:
            return state, []
        weight = weight_of(self._first, self._stddevs.check(release, "Isotonic"))
        for blocks, value in zip(stacks, values, strict=True):
            push(blocks, value, weight)
            cap(blocks, self._most)
        counts = [float(len(blocks)) for blocks in stacks]
        flat = [number for blocks in stacks for block in blocks for number in block]
        fitted = np.array([max(blocks[-1][0], 0.0) for blocks in stacks])
        made = _with(release, fitted, release.stddev)
        return (release.step, np.array(counts + flat)), [made]


def weight_of(first: float, stddev: float) -> float:
    """That of a release, where 1 is that of the first: what has a smaller stddev counts more."""
    return (first / stddev) ** 2 if stddev else 1.0


def _unpacked(state: FoldState, dimension: int) -> tuple[int, list[list[Block]]]:
    last, numbers = state
    counts = numbers[:dimension].astype(np.int64)
    ends = np.cumsum(counts).tolist()
    pairs = [(mean, weight) for mean, weight in numbers[dimension:].reshape(-1, 2).tolist()]
    starts = [0, *ends[:-1]]
    return last, [pairs[start:end] for start, end in zip(starts, ends, strict=True)]


class IsotonicSeries(Whole):
    """Of each coordinate, the isotonic regression of all releases of a group."""

    group, order = "key", "step"

    def __init__(self, counter: LatticeCounter) -> None:
        self._stddevs, self._first = KnownStddevs(counter), float(counter.stddevs(1)[0])

    def all(self, releases: Sequence[Any]) -> Iterator[Any]:
        series = list({release.step: release for release in releases}.values())
        weights = [weight_of(self._first, self._stddevs.check(r, "Isotonic")) for r in series]
        values = np.array([np.atleast_1d(release.value) for release in series], dtype=np.float64)
        fitted = np.stack([isotonic(column, weights) for column in values.T.tolist()], axis=1)
        for release, row in zip(series, np.maximum(fitted, 0.0), strict=True):
            yield _with(release, row, release.stddev)


class Difference(Fold):
    """Release t minus release t - window, from the last `window` releases, t in place t % window.

    Missing steps are NaN. A release that comes late, or again, gives nothing itself.
    """

    group, order = "key", "step"

    def __init__(self, window: int, counter: LatticeCounter) -> None:
        self._window, self._counter = window, counter
        self.parameters = ("difference", window)
        self._stddevs = SlidingStddevs(counter, window)

    def add(self, state: FoldState | None, release: Any) -> tuple[FoldState | None, list[Any]]:
        t, w = step_of(release, self._counter), self._window
        values = np.atleast_1d(np.asarray(release.value, dtype=np.float64))
        last, kept = (0, np.full(w * len(values), np.nan)) if state is None else state
        ring = kept.reshape(w, len(values))
        place = t % w
        if t <= last:
            if t > last - w:
                ring[place] = values
            return (last, kept), []
        ring[np.arange(max(last + 1, t - w), t) % w] = np.nan
        own, stddev = self._stddevs.at(t)
        if not math.isclose(own, release.stddev, rel_tol=1e-6):
            raise ValueError(
                f"the release of step {t} has a stddev of {release.stddev:g}, where the counter "
                f"has {own:g}: give the counter of the transform that made the releases, as it is "
                "after applying it, and take SlidingSum before averages"
            )
        before = ring[place].copy() if t > w else np.zeros(len(values))
        ring[place] = values
        given = [] if np.isnan(before).any() else [_with(release, values - before, stddev)]
        return (t, kept), given


class FirstCrossings(Fold):
    """The releases at which a key rises above its threshold, after it was at or below its level.

    The array holds whether the alarm is on.

    Args:
      places: by key, its level and its threshold; others are not watched.
      column: which number of a TickRelease.
      stddev: the largest of a release.
    """

    group, order = "key", "step"

    def __init__(
        self, places: Mapping[str, tuple[float, float]], column: str, stddev: float
    ) -> None:
        self._places, self._column, self._most = places, column, stddev * (1 + 1e-6)
        self.parameters = ("alarm", column)  # levels may change while an alarm is on

    def add(self, state: FoldState | None, release: Any) -> tuple[FoldState | None, list[Any]]:
        place = self._places.get(release.key)
        last, raised = (0, False) if state is None else (state[0], bool(state[1][0]))
        if place is None or release.step <= last:
            return state, []
        value, stddev = release.values[self._column], release.stddevs[self._column]
        if value is None or stddev is None or not stddev <= self._most:
            raise ValueError(
                f"the release of step {release.step} has the stddev {stddev}, where those of the "
                f"count are at most {self._most:g}: apply Alarm to the count's own releases"
            )
        raised, starts = watched(raised, value, *place)
        return (release.step, np.array([float(raised)])), [release] if starts else []


class MarkedCrossings(FirstCrossings):
    """All releases, each with whether an alarm starts at it."""

    def add(self, state: FoldState | None, release: Any) -> tuple[FoldState | None, list[Any]]:
        after, starts = super().add(state, release)
        return after, [(release, bool(starts))]

    def micros(self, given: Any) -> int:
        return super().micros(given[0])


class OfAllKeys(Fold):
    """The values of the keys of a domain at one step, until all are there.

    The whole number is the latest timestamp; the array holds each key's value, NaN until it comes,
    and the largest stddev.
    """

    group, order = "step", "key"

    def __init__(self, name: str, domain: Sequence[str]) -> None:
        self._domain, self._places = domain, places(domain)
        self.parameters = (name, *domain)

    @abstractmethod
    def complete(self, whole: VectorRelease) -> list[Any]:
        """What a step gives, with a value for each key in the order of the domain."""

    def add(self, state: FoldState | None, release: Any) -> tuple[FoldState | None, list[Any]]:
        place = self._places.get(release.key)
        if place is None:
            return state, []
        latest, kept = release.timestamp, np.full(len(self._domain) + 1, np.nan)
        if state is None:
            kept[-1] = 0
        else:
            latest, kept = max(state[0], latest), state[1]
        kept[place - 1], kept[-1] = release.value, np.maximum(kept[-1], release.stddev)
        if np.isnan(kept[:-1]).any():
            return (latest, kept), []
        *values, stddev = kept.tolist()
        return None, self.complete(VectorRelease("", release.step, latest, values, stddev))


class TopOfKeys(OfAllKeys):
    """The keys of the largest values at a step."""

    def __init__(self, k: int, domain: Sequence[str]) -> None:
        super().__init__("top", domain)
        self._k = k

    def complete(self, whole: VectorRelease) -> list[Any]:
        return [top_items(whole, self._k, self._domain)]


class ShrunkKeys(OfAllKeys):
    """Every key's value at a step, shrunk to where the others' are; in the order of the domain."""

    def __init__(self, counter: LatticeCounter, domain: Sequence[str]) -> None:
        super().__init__("shrunk", domain)
        self._stddevs = KnownStddevs(counter)

    def complete(self, whole: VectorRelease) -> list[Any]:
        stddev = self._stddevs.check(whole, "ShrinkAcrossKeys")
        values = shrunk(np.array(whole.value), stddev).tolist()
        step, at = whole.step, whole.timestamp
        rows = zip(self._domain, values, strict=True)
        return [Release(key, step, at, value, whole.stddev) for key, value in rows]


class TopOfShown(VersionedDoFn):
    """The keys of the largest counts among those that have a release at a time, however many."""

    def __init__(self, k: int) -> None:
        self._k = k

    def process(self, element: tuple[int, Iterable[Any]], window: Any = _Window) -> Iterator[Any]:
        found = {release.key: release for release in element[1]}
        keys = sorted(found)  # ties, as for a domain; never by what came first
        releases = [found[key] for key in keys]
        step, latest = releases[0].step, element[0]
        stddev = max(release.stddev for release in releases)
        values = [release.value for release in releases]
        whole = VectorRelease("", step, latest, values, stddev)
        made = top_items(whole, self._k, keys)
        yield windowed_value.create(made, min(latest, window.max_timestamp().micros), (window,))


def _with(release: Any, values: FloatArray, stddev: float) -> Any:
    """The release with these values, in its own form."""
    scalar = isinstance(release.value, float | int)
    return release._replace(value=float(values[0]) if scalar else values.tolist(), stddev=stddev)


def top_items(release: Any, k: int, labels: Sequence[str]) -> TopRelease:
    """The k items of the largest values of a VectorRelease; ties in the order of the labels."""
    key, step, timestamp, values, stddev = release
    if len(values) != len(labels):
        problem = f"a release has {len(values)} values, but there are {len(labels)} labels"
        raise ValueError(f"{problem}: give those of the transform that counts")
    best = largest(values, k)
    items, counts = [labels[i] for i in best], [values[i] for i in best]
    return TopRelease(key, step, timestamp, items, counts, stddev)


class FoldEach(VersionedDoFn):
    """Streaming: a fold over one cell of state a group."""

    STATE = ReadModifyWriteStateSpec("fold", BytesCoder())

    def __init__(self, fold: Fold) -> None:
        self._fold = fold

    def setup(self) -> None:
        self._codec = FoldCodec(self._fold.parameters)

    def process(
        self, element: tuple[Any, Any], cell: Any = beam.DoFn.StateParam(STATE)
    ) -> Iterator[Any]:
        data = cell.read()
        before = None if data is None else self._codec.decode(data)
        state, given = self._fold.add(before, element[1])
        if state is not None:
            cell.write(self._codec.encode(state))
        elif data is not None:
            cell.clear()
        yield from given


class FoldGroup(VersionedDoFn):
    """Bounded: a sorted group, all of it."""

    def __init__(self, whole: Whole) -> None:
        self._whole = whole

    def process(self, element: tuple[Any, Iterable[Any]], window: Any = _Window) -> Iterator[Any]:
        last = window.max_timestamp().micros  # a tick may end where its window does
        for made in self._whole.all(sorted(element[1], key=operator.attrgetter(self._whole.order))):
            yield windowed_value.create(made, min(self._whole.micros(made), last), (window,))
