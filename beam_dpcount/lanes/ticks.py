"""Whole columns of events counted at the ticks of a clock, as a pipeline counts them in rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpcount.counters.people import Bound
from beam_dpcount.lanes.cells import BoolArray
from beam_dpcount.lanes.contents import Contents
from beam_dpcount.lanes.people import Group, Ties, counted_rows, firsts_of
from beam_dpcount.lanes.spill import MEMORY, Waiting
from beam_dpcount.lanes.totals import Totals
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.states.all_ticks import restart_of, values_of
from beam_dpcount.states.all_vectors import AggregatePlan, Reading, TickRow, vectors_of
from beam_dpcount.states.windows import window_from


class Columns(NamedTuple):
    """Events, a row each.

    Fields:
      micros: their times.
      contents: what they count, in columns, for each of some `Contents`; 0 of what counts nothing.
      keys: texts, or null: no key. None: all are of one total.
      people: texts; null or empty: nobody's. None: people are not protected.
    """

    micros: IntArray
    contents: Sequence[Sequence[IntArray]]
    keys: pa.Array | None = None
    people: pa.Array | None = None


class Series(NamedTuple):
    """The releases of one key in one count of the clock.

    Fields:
      key: whose they are; of a node of a tree its path.
      steps, ends: the ticks, over the whole clock, and when they end, in microseconds.
      values: of each a number, or a vector of sums.
      stddevs: of each.
      restart: the number of the count, if releases show it.
    """

    key: Any
    steps: range
    ends: list[int]
    values: Any
    stddevs: list[float]
    restart: int | None

    def rows(self, reading: Reading) -> Iterator[TickRow]:
        """What vectors say."""
        stddevs = np.array(self.stddevs)
        return reading.rows(self.key, self.steps[0], self.values, stddevs, 0)


class Row(NamedTuple):
    """What is released of one number at a tick: as a Release, without Beam's coder.

    The key is a text, or of a node of a tree its path.
    """

    key: Any
    step: int
    timestamp: int
    value: float
    stddev: float
    restart: int | None


class TickLane(ABC):
    """Counts columns in any order, and then releases all ticks that have ended.

    Args:
      count: what is counted; its input is bounded.
      contents: what adds it up.
      label: that of the transform which would count it in a pipeline: noise goes by it.
      memory: about how many bytes rows of people may take before they go to disk.
    """

    plan: Any  # of the count

    def __init__(
        self, count: TickNumbersPlan, contents: Contents, label: str, memory: int = MEMORY
    ) -> None:
        self.count, self.plan = count, count.on_bounded_input(label)
        plan = self.plan
        self._contents, self._bound, clock = contents, count.bound, plan.clock
        self._ended = clock.all_ended(plan.until)
        self._after = self._came_to()
        # A clock without an end has many more.
        self._ticks = max(self._ended - self._after, 1)
        self._restarts = None if count.restarts is None else self._passed()
        self._periods, self._waiting = count.periods, Waiting(memory)

    def _came_to(self) -> int:
        """How many ticks an earlier run has released: their events do not count any more."""
        return 0

    def _passed(self) -> IntArray:
        """How many ticks there are before each count of the clock that has begun."""
        clock, passed = self.plan.clock, list[int]()
        for origin in clock.origins():
            before = clock.passed_at(origin)
            if before >= max(self._ended, 1):
                break
            passed.append(before)
        return np.array(passed, dtype=np.int64)

    def add(
        self,
        micros: IntArray,
        contents: Sequence[IntArray],
        keys: pa.Array | None,
        people: pa.Array | None,
    ) -> None:
        """Takes events; as for Columns."""
        steps = self.plan.clock.ticks_of(micros)
        takes = (steps > self._after) & (steps <= self._ended) & (contents[0] != 0)
        places = self._places(keys, len(micros))
        takes &= places >= 0
        if self._bound is not None and people is not None:
            takes &= _named(people)
        rows = np.flatnonzero(takes)
        places, contents = places[rows], [column[rows] for column in contents]
        if self._bound is None or people is None:
            self._add(places, steps[rows], contents)
        elif len(rows):
            columns = {
                "person": people.take(pa.array(rows)),
                "micros": micros[rows],
                "place": places.astype(np.int32),
            }
            kinds = zip(contents, self._contents.kinds, strict=True)
            columns |= {str(at): column.astype(kind) for at, (column, kind) in enumerate(kinds)}
            self._waiting.add(pa.RecordBatch.from_pydict(columns))

    @abstractmethod
    def _places(self, keys: pa.Array | None, rows: int) -> IntArray:
        """The places of keys; -1: the key does not count."""

    @property
    @abstractmethod
    def _keys(self) -> Sequence[str]:
        """The keys, by their places."""

    _is_listed = True  # whether the keys were listed
    _asks_whose = False  # whether the texts of people are asked for once their rows are sorted

    @abstractmethod
    def rows(self) -> Iterator[Row | TickRow]:
        """All releases, by key, then by time."""

    def _count_all(self) -> None:
        """Counts people, once all of their rows are there."""
        if self._bound is None:
            return
        ranks = self._contents.ranks(self._keys, self._is_listed)
        for group in self._waiting.groups():
            self._count_people(self._bound, group, ranks)

    @abstractmethod
    def _add(
        self,
        places: IntArray,
        steps: IntArray,
        contents: Sequence[IntArray],
        firsts: BoolArray | None = None,
    ) -> None:
        """Adds what counts; `firsts`: which events are the first of their person under a key."""

    def _cells(self, places: IntArray, steps: IntArray) -> IntArray:
        """The first cell of events, of those of all keys, ticks and sums."""
        return np.asarray(
            (places * self._ticks + (steps - 1 - self._after)) * self._contents.width,
            dtype=np.int64,
        )

    def _count_people(
        self, bound: Bound, table: pa.Table, ranks: tuple[IntArray, IntArray]
    ) -> None:
        """Adds what counts of the rows of some people."""
        people = table["person"].dictionary_encode()
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in people.chunks])
        whose = people.chunks[0].dictionary if self._asks_whose else None
        micros, places, *contents = (
            table[name].to_numpy().astype(np.int64, copy=False) for name in table.column_names[1:]
        )
        del table, people
        steps, names, (last, first) = self.plan.clock.ticks_of(micros), places, ranks
        if self._restarts is not None:  # each count of a key is another key
            counts = np.searchsorted(self._restarts, steps - 1, side="right") - 1
            names = counts * len(self._keys) + names
        codes = codes.astype(np.int64)
        if self._periods is not None:  # in each a person is bounded apart
            codes = codes * len(self._periods) + self._periods.starts.ranks(micros) - 1
        group = Group(whose, codes, micros, names)

        def ties(some: IntArray) -> list[npt.NDArray[Any]]:
            counted = self._contents.ties([column[some] for column in contents])
            return [last[places[some]], *counted, first[places[some]]]

        rows, firsts = self._counted(bound, group, ties)
        self._add(places[rows], steps[rows], [column[rows] for column in contents], firsts)

    def _counted(self, bound: Bound, group: Group, ties: Ties) -> tuple[IntArray, BoolArray | None]:
        """The rows of some people that count, and, if that is asked, which are a person's first."""
        rows = counted_rows(bound, group.codes, group.micros, group.names, ties)
        if not self._contents.asks_first:
            return rows, None
        return rows, firsts_of(group.codes[rows], group.names[rows])


class ListedLane(TickLane):
    """Of listed keys."""

    def __init__(
        self, count: TickNumbersPlan, contents: Contents, label: str, memory: int = MEMORY
    ) -> None:
        super().__init__(count, contents, label, memory)
        keys = self.plan.keys
        self._known = pa.array(keys, pa.string())
        self._other = -1 if count.other is None else [*keys].index(count.other)
        self._totals = Totals(len(keys) * self._ticks * contents.width)

    @property
    def _keys(self) -> Sequence[str]:
        keys: Sequence[str] = self.plan.keys
        return keys

    def _places(self, keys: pa.Array | None, rows: int) -> IntArray:
        """The places of keys among those listed; -1: the key does not count."""
        if keys is None:
            return np.zeros(rows, dtype=np.int64)
        found = pc.fill_null(pc.index_in(keys, self._known), -1).to_numpy().astype(np.int64)
        if self._other >= 0:
            found[(found < 0) & _valid(keys)] = self._other
        return np.asarray(found, dtype=np.int64)

    def _add(
        self,
        places: IntArray,
        steps: IntArray,
        contents: Sequence[IntArray],
        firsts: BoolArray | None = None,
    ) -> None:
        cells = self._cells(places, steps)
        for coordinates, xs in self._contents.items(contents, firsts):
            self._totals.add(cells + coordinates, xs)

    def rows(self) -> Iterator[Row | TickRow]:
        for series in self.releases():
            if isinstance(self.plan, AggregatePlan):
                yield from series.rows(self.plan.reading)
                continue
            numbers = zip(series.steps, series.ends, series.values, series.stddevs, strict=True)
            for step, end, value, stddev in numbers:
                yield Row(series.key, step, end, value, stddev, series.restart)

    def releases(self) -> Iterator[Series]:
        """All releases, by key in the public order, then by time."""
        self._count_all()
        plan, clock = self.plan, self.plan.clock
        draws = plan.draws("bounded")
        stddevs = plan.counter.stddevs(min(clock.steps, self._ended)).tolist()
        for place, key in enumerate(plan.keys):
            for origin in clock.origins():
                steps = clock.ended(origin, plan.until)
                if not steps:
                    break  # later ones have not begun
                passed, window = clock.passed_at(origin), window_from(clock, origin)
                values = self._values(key, window, draws, place * self._ticks + passed, steps)
                ends = [clock.end(origin, step) for step in range(1, steps + 1)]
                numbers = range(passed + 1, passed + steps + 1)
                restart = restart_of(plan, passed + 1)
                yield Series(key, numbers, ends, values, stddevs[:steps], restart)

    def _values(self, key: str, window: object, draws: Any, first: int, steps: int) -> Any:
        """The releases of so many ticks, from a place on."""
        plan, width = self.plan, self._contents.width
        sums = self._totals.between(first * width, (first + steps) * width)
        if isinstance(plan, AggregatePlan):
            xs = np.clip(sums.reshape(steps, width), -plan.limits, plan.limits)
            return vectors_of(plan.counter, draws, key, window, xs)
        return values_of(plan.counter, draws, key, window, np.clip(sums, -plan.cap, plan.cap))


def _valid(array: pa.Array) -> BoolArray:
    valid: Any = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return np.asarray(valid, dtype=np.bool_)


def _named(people: pa.Array) -> BoolArray:
    """Which rows are somebody's."""
    named = pc.fill_null(pc.greater(pc.binary_length(people), 0), False)
    return np.asarray(named.to_numpy(zero_copy_only=False), dtype=np.bool_)
