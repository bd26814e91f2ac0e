"""Columns counted by a run that goes on where one before it came to, as a stream does.

Each run counts the rows of the ticks that have ended since, and keeps what a stream keeps: the very
cells of shards of keys and of people. Rows of ticks that are released do not count any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NoReturn

import numpy as np

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.people import Bound
from beam_dpcount.lanes.cells import BoolArray
from beam_dpcount.lanes.contents import Contents
from beam_dpcount.lanes.people import Group, Ties
from beam_dpcount.lanes.remembered import Remembered
from beam_dpcount.lanes.spill import MEMORY
from beam_dpcount.lanes.ticks import ListedLane, Series
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.states.all_ticks import restart_of
from beam_dpcount.states.all_vectors import AggregatePlan
from beam_dpcount.states.codecs import OTHER_KEYS
from beam_dpcount.states.count_state import PartState
from beam_dpcount.states.envelope import StateError, corrupt
from beam_dpcount.states.tick_shards import KeyShard, TickOfShard


class ResumedLane(ListedLane):
    """Of listed keys, from the ticks on that an earlier run released.

    Args:
      count, contents, label, memory: as for TickLane. Noise is replayable, by a secret that lives
        with the state; late events are dropped, as they are where rows of released ticks are not
        read again.
      state: what the run before kept; without shards, there was none.

    Attributes:
      state: what this run keeps, once all releases were taken.

    Raises:
      ParameterError: late events would count at a later tick.
      StateError: the state is not one of this count.
    """

    _asks_whose = True

    def __init__(
        self,
        count: TickNumbersPlan,
        contents: Contents,
        label: str,
        memory: int = MEMORY,
        state: PartState = PartState(),
    ) -> None:
        self.state = state
        super().__init__(count, contents, label, memory)
        self._people = None
        if self._bound is not None:
            self._people = Remembered(count, state.people, self._name_of)

    def _came_to(self) -> int:
        plan = self.plan
        if plan.fold:
            raise ParameterError(
                "late",
                "counts late events at the next tick, and rows of released ticks count no more",
                "give {late=}'drop'",
            )
        draws = plan.draws("streaming")
        self._of = [KeyShard(plan, number, draws) for number in range(plan.shards)]
        self._cells_before = list(self.state.shards) or [shard.begin() for shard in self._of]
        if len(self._cells_before) != len(self._of):
            raise StateError(OTHER_KEYS)
        pairs = zip(self._of, self._cells_before, strict=True)
        ticks = {shard.released(cell) for shard, cell in pairs}
        begun, people = bool(self.state.shards), bool(self.state.people)
        # All shards release the same; and who is forgotten would count again.
        if len(ticks) > 1 or people != (begun and self._bound is not None):
            raise corrupt()
        return ticks.pop()

    def _name_of(self, code: int) -> bytes:
        """A key as its person's shard names it, given its code."""
        counts, place = divmod(code, len(self._keys))
        name = self._keys[place].encode("utf-8", "surrogatepass")
        return name if self._restarts is None else counts.to_bytes(8, "big") + name

    def _counted(self, bound: Bound, group: Group, ties: Ties) -> tuple[IntArray, BoolArray | None]:
        if self._people is None:
            raise TypeError("people are bounded, and nobody remembers them")
        return self._people.counted(bound, group, ties, self._contents.asks_first)

    def releases(self) -> Iterator[Series]:
        """All releases of ticks that ended since, by key in the public order, then by time."""
        self._count_all()
        plan, found = self.plan, dict[str, list[tuple[TickOfShard, Any]]]()
        width, keys = self._contents.width, len(plan.keys)
        sums = self._totals.between(0, keys * self._ticks * width)
        sums = sums.reshape(keys, self._ticks, width)
        cells = []
        for number, (shard, cell) in enumerate(zip(self._of, self._cells_before, strict=True)):
            of_shard = sums[number :: plan.shards]
            for tick in range(self._after + 1, self._ended + 1):
                due = _packed(of_shard[:, tick - self._after - 1].ravel(), tick, shard.size)
                of_tick = shard.next(cell, due, _NOTHING_LATER)
                if of_tick is None:
                    raise ValueError("there are more ticks than the clock has")
                cell = of_tick.data
                for key, value in of_tick.values:
                    found.setdefault(key, []).append((of_tick, value))
            cells.append(cell)
        people = () if self._people is None else self._people.shards(plan.until)
        self.state = PartState(tuple(cells), people)
        for key in plan.keys:
            for _, some in groupby(found.get(key, ()), lambda one: one[0].origin):
                yield self._series(key, [*some])

    def _series(self, key: str, some: list[tuple[TickOfShard, Any]]) -> Series:
        """The releases of a key in one count of the clock."""
        first = some[0][0].number
        values = [value for _, value in some]
        return Series(
            key,
            range(first, first + len(some)),
            [of.micros for of, _ in some],
            np.stack(values) if isinstance(self.plan, AggregatePlan) else values,
            [of.stddev for of, _ in some],
            restart_of(self.plan, first),
        )


def _packed(sums: IntArray, tick: int, size: int) -> list[bytes]:
    """The sums of a tick as they arrive at a shard; none where all are 0."""
    there = np.flatnonzero(sums)
    if not len(there):
        return []
    pairs = np.stack(((tick - 1) * size + there + 1, sums[there]), axis=1).astype("<i8")
    return [pairs.tobytes()]


class _NothingLater:
    """The bag of a shard to which nothing comes before its tick."""

    def read(self) -> tuple[()]:
        return ()

    def clear(self) -> None:
        """There is nothing in it."""

    def add(self, data: bytes) -> NoReturn:
        raise ValueError("sums of later ticks wait in the rows")


_NOTHING_LATER = _NothingLater()
