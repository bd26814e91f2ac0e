"""All parts of a TickCount, counted in columns, and what they say of each tick."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.counters.views import CombinedColumns
from beam_dpcount.lanes.contents import Contents, contents_of
from beam_dpcount.lanes.keys import KeysLane
from beam_dpcount.lanes.resumed import ResumedLane
from beam_dpcount.lanes.spill import MEMORY
from beam_dpcount.lanes.ticks import Columns, ListedLane, Row, Series, TickLane
from beam_dpcount.plans.sentence import Part, TickCountPlan
from beam_dpcount.states.all_vectors import AggregatePlan, Reading, TickRow
from beam_dpcount.states.codecs import OTHER_COUNTER
from beam_dpcount.states.count_state import CountState, PartState
from beam_dpcount.states.envelope import StateError
from beam_dpcount.statistics.metrics import Metric
from beam_dpcount.statistics.metrics.joint import Joint


class PartsLane:
    """Counts columns, and then releases all ticks that have ended.

    Args:
      count: what is counted.
      label: that of the transform which would count it in a pipeline: noise goes by it.
      memory: as for TickLane, of all parts.
      split: gives the keys of a cell that has several; None: a cell is a key.
      state: what an earlier run of the same count kept, or `CountState()` where this is the first
        of several; None: it is the only one.

    Attributes:
      contents: what makes columns of what events count.

    Raises:
      ParameterError: a count that goes on later does not take such arguments.
      StateError: the state is not one of this count.
    """

    def __init__(
        self,
        count: TickCountPlan,
        label: str,
        memory: int = MEMORY,
        split: Callable[[str], Sequence[str]] | None = None,
        state: CountState | None = None,
    ) -> None:
        self._count, self._split, parts = count, split, count._parts
        if state is not None:
            _check_goes_on(count)
        self._views = None if state is None else dict(state.views)
        self._combined: CombinedColumns | None = None
        before = [PartState()] * len(parts)
        if state is not None and state.parts:
            before = [*state.parts]
        if len(before) != len(parts):
            raise StateError(OTHER_COUNTER)
        known: dict[tuple[Metric, ...], Contents] = {}  # views of the same metrics read alike
        lanes = list[TickLane]()
        for part, of_part in zip(parts, before, strict=True):
            contents = known.setdefault(part.metrics, contents_of(part))
            name = "TickCount" if count.engine is not None else f"Part {part.label}"
            share = max(memory // len(parts), 1)
            how = part.engine, contents, f"{label}/{name}", share
            if state is not None:
                lanes.append(ResumedLane(*how, of_part))
                continue
            lanes.append((ListedLane if part.engine.selection is None else KeysLane)(*how))
        self.contents = [*known.values()]
        self._lanes = [
            (part, lane, [*known].index(part.metrics))
            for part, lane in zip(parts, lanes, strict=True)
        ]

    def add(self, columns: Columns) -> None:
        """Takes events."""
        if self._split is not None:
            columns = _under_each_key(columns, self._split)
        micros, contents, keys, people = columns
        for _, lane, place in self._lanes:
            lane.add(micros, contents[place], keys, people)

    def rows(self) -> Iterator[Row | TickRow]:
        """All releases, by key in the public order, then by time."""
        if self._count.engine is not None:
            ((_, only, _),) = self._lanes
            yield from only.rows()
            return
        listed = [(part, lane) for part, lane, _ in self._lanes if isinstance(lane, ListedLane)]
        known = [self._by_step(part, lane) for part, lane in listed]
        combined = self._combined = self._count.combined
        for of_key in zip(*known, strict=True):
            key = of_key[0][0]
            state: Sequence[float] | None = (self._views or {}).get(key)
            for step in sorted(of_key[0][1]):
                rows = [steps[step] for _, steps in of_key]
                columns = [_together([row[place] for row in rows]) for place in range(6, 11)]
                if combined is not None:
                    state = combined.row(state, step, columns[:4])
                yield self._joined(key, step, rows, columns)
            if self._views is not None and state is not None:
                self._views[key] = tuple(state)

    @property
    def state(self) -> CountState:
        """What a later run goes on from, once all rows were taken.

        Raises:
          TypeError: this is the only run.
        """
        if self._views is None:
            raise TypeError("a count that does not go on keeps no state")
        parts = [lane.state for _, lane, _ in self._lanes if isinstance(lane, ResumedLane)]
        return CountState(tuple(parts), self._views)

    def _by_step(self, part: Part, lane: ListedLane) -> Iterator[tuple[str, dict[int, TickRow]]]:
        """The rows of each key, by tick; counts that start anew may go on beyond the clock."""
        ticks = self._count.grid.ticks
        for key, some in groupby(lane.releases(), attrgetter("key")):
            rows = (row for series in some for row in self._of_part(part, lane, series))
            yield key, {row.step: row for row in rows if row.step <= ticks}

    def _of_part(self, part: Part, lane: ListedLane, series: Series) -> Iterator[TickRow]:
        if isinstance(lane.plan, AggregatePlan):
            yield from series.rows(lane.plan.reading)
            return
        counter, level = part.engine.counter, self._count.confidence
        reading = Reading(counter, Joint(part.metrics), level, self._count.grid)
        half_of = lru_cache(maxsize=None)(reading.half_width)
        names, (name, *_) = list(part.names[:1]), part.names
        key, restart = series.key, series.restart
        numbers = zip(series.steps, series.ends, series.values, series.stddevs, strict=True)
        for step, end, value, stddev in numbers:
            low, high = ({name: value + side * half_of(stddev)} for side in (-1, 1))
            columns = {name: value}, {name: stddev}, low, high, {name: ""}
            yield TickRow(key, step, 0, end, restart, names, *columns)

    def _joined(
        self, key: str, step: int, rows: Sequence[TickRow], columns: Sequence[dict[str, Any]]
    ) -> TickRow:
        """The row of these columns, which those of parts make."""
        start, end = self._count.grid.borders(step, 1)
        numbers = [row.restart for row in rows if row.restart is not None]
        if self._combined is not None:
            numbers += filter(None, [self._combined.restart(step)])
        names = list(self._count.columns)
        *numbers_of, notes = columns
        in_order: list[dict[str, Any]] = [{name: of[name] for name in names} for of in numbers_of]
        in_order.append({name: notes.get(name, "") for name in names})
        number = numbers[-1] if numbers else None
        return TickRow(key, step, start, end, number, names, *in_order)


def _check_goes_on(count: TickCountPlan) -> None:
    """Refuse what a count does not remember from one run to the next."""
    if isinstance(count.keys, SelectKeys):
        raise ParameterError(
            "keys",
            "are not listed, and a count that goes on later knows listed ones only",
            "list {keys}",
        )
    for part in count._parts:
        if not part.engine.noise.is_replayable:
            raise ParameterError(
                "entropy", "is new in each run, and a state has noise of its own", "leave it out"
            )


def _under_each_key(columns: Columns, split: Callable[[str], Sequence[str]]) -> Columns:
    """Events whose cells hold several keys, once under each of them."""
    micros, contents, cells, people = columns
    encoded = pa.array([], pa.string()) if cells is None else cells
    encoded = encoded.dictionary_encode()
    keys = [[*split(cell)] for cell in encoded.dictionary.to_pylist()] + [[]]  # of a null: none
    many = np.array([len(some) for some in keys], dtype=np.int64)
    codes = pc.fill_null(encoded.indices, len(keys) - 1).to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(codes)), many[codes])
    first = np.cumsum(many) - many  # of each cell, among all keys
    within = np.arange(len(rows)) - np.repeat(np.cumsum(many[codes]) - many[codes], many[codes])
    names = pa.array([key for some in keys for key in some], pa.string())
    return Columns(
        micros[rows],
        [[column[rows] for column in each] for each in contents],
        names.take(pa.array(first[codes[rows]] + within)),
        None if people is None else people.take(pa.array(rows)),
    )


def _together(of: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of all parts."""
    return {name: value for each in of for name, value in each.items()}
