"""Columns of events under keys that nobody listed, counted at the ticks of a clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.counters.columns import Sums
from beam_dpcount.lanes.cells import BoolArray
from beam_dpcount.lanes.contents import Contents
from beam_dpcount.lanes.spill import MEMORY
from beam_dpcount.lanes.ticks import Row, TickLane
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.states.all_shards import AggregateShardPlan, AllShards, AllVectorShards
from beam_dpcount.states.all_vectors import TickRow
from beam_dpcount.states.windows import window_from

_PENDING = 1 << 20  # sums that are there before equal ones are added up


class KeysLane(TickLane):
    """Of keys that nobody listed: those whose private counts are high enough have releases."""

    _is_listed = False

    def __init__(
        self, count: TickNumbersPlan, contents: Contents, label: str, memory: int = MEMORY
    ) -> None:
        super().__init__(count, contents, label, memory)
        self._known: dict[str, int] = {}
        self._sums = SparseSums()

    @property
    def _keys(self) -> Sequence[str]:
        return [*self._known]

    def _places(self, keys: pa.Array | None, rows: int) -> IntArray:
        if keys is None:
            raise ValueError("keys that nobody listed need a column of keys")
        encoded, known = keys.dictionary_encode(), self._known
        found = [known.setdefault(key, len(known)) for key in encoded.dictionary.to_pylist()]
        places = np.array([*found, -1], dtype=np.int64)
        codes: IntArray = encoded.indices.fill_null(len(found)).to_numpy()
        return places[codes]

    def _add(
        self,
        places: IntArray,
        steps: IntArray,
        contents: Sequence[IntArray],
        firsts: BoolArray | None = None,
    ) -> None:
        cells = self._cells(places, steps)
        self._sums.add(cells, np.zeros(len(cells), dtype=np.int64))  # that there is an event
        for coordinates, xs in self._contents.items(contents, firsts):
            there = xs != 0
            self._sums.add((cells + coordinates)[there], xs[there])

    def rows(self) -> Iterator[Row | TickRow]:
        self._count_all()
        plan, clock, width = self.plan, self.plan.clock, self._contents.width
        vectors = isinstance(plan, AggregateShardPlan)
        shards = AllVectorShards(plan) if vectors else AllShards(plan)
        cells, xs = self._sums.all()
        places, steps = np.divmod(cells, self._ticks * width)
        names = self._keys
        # Of windows with events alone: a clock without an end has many more.
        some = {clock.count_of(tick)[0] for tick in np.unique(steps // width + 1).tolist()}
        for place in sorted(some):
            origin = clock.origins()[place]
            passed = clock.passed_at(origin) * width
            ticks = clock.steps_of(origin) * width
            now = (steps >= passed) & (steps < passed + ticks)
            there, own = np.unique(places[now], return_inverse=True)
            known = {names[place]: at for at, place in enumerate(there.tolist())}
            sums = Sums(own, steps[now] - passed + 1, xs[now])
            found, ordered = shards.ordered(known, sums)
            for row in shards.rows(found, ordered, origin, window_from(clock, origin)):
                if vectors:
                    yield row
                    continue
                key, step, end, value, stddev, _, restart = row
                yield Row(key, step, end, value, stddev, restart)


class SparseSums:
    """Exact sums of whole numbers in few of many cells."""

    def __init__(self) -> None:
        self._cells: list[IntArray] = []
        self._xs: list[IntArray] = []
        self._pending = 0

    def add(self, cells: IntArray, xs: IntArray) -> None:
        """Adds numbers to the sums of these cells; a cell with a 0 is there, too."""
        self._cells.append(cells)
        self._xs.append(xs)
        self._pending += len(cells)
        if self._pending > _PENDING:
            cells, xs = self.all()
            self._cells, self._xs, self._pending = [cells], [xs], 0

    def all(self) -> tuple[IntArray, IntArray]:
        """The cells and what is in them; a cell comes once where sums fit 64 bits."""
        none = [np.zeros(0, dtype=np.int64)]
        cells, xs = np.concatenate(none + self._cells), np.concatenate(none + self._xs)
        if not len(cells) or len(xs) * int(np.abs(xs).max()) > LARGEST:
            return cells, xs
        order = np.argsort(cells, kind="stable")
        cells, xs = cells[order], xs[order]
        starts = np.flatnonzero(np.diff(cells, prepend=cells[0] - 1))
        return cells[starts], np.add.reduceat(xs, starts)
