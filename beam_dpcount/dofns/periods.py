"""Streaming: people of public periods, each of which is closed and forgotten at a public time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.counters.people import Bound
from beam_dpcount.counters.periods import Periods
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.dofns.users import BoundArriving
from beam_dpcount.states.people import Mark
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import time_of


class BoundPeriods(BoundArriving):
    """BoundArriving where the rule starts afresh in each period.

    A shard has one timer: when its next period closes. Only a seed sets the first one, and each
    sets the next, so that nothing about events shows in whether there is one. When it fires, all
    rows of that period go, whosever they are. Which events count no more is decided by the mark of
    the shard, and never by whether anything is remembered of the person.

    Args:
      bound, parcels, placement: as for BoundArriving.
      periods: the periods, which say when each closes.
    """

    CELL, PIECES = BoundArriving.CELL, BoundArriving.PIECES
    TIMER = TimerSpec("period", TimeDomain.WATERMARK)

    def __init__(
        self, bound: Bound, parcels: Parcels, placement: Placement, periods: Periods
    ) -> None:
        super().__init__(bound, parcels, placement)
        self._periods = periods

    def setup(self) -> None:
        self._codec = self._codec_of(self._periods)

    def process(
        self,
        element: tuple[int, bytes],
        cell: Any = beam.DoFn.StateParam(CELL),
        bag: Any = beam.DoFn.StateParam(PIECES),
        timer: Any = beam.DoFn.TimerParam(TIMER),
    ) -> Iterable[Any]:
        counted = super().process(element, cell, bag)
        if element[1] == SEED:
            self._set(timer, self._codec.mark(cell.read()))
        return counted

    @on_timer(TIMER)
    def close(
        self,
        cell: Any = beam.DoFn.StateParam(CELL),
        bag: Any = beam.DoFn.StateParam(PIECES),
        timer: Any = beam.DoFn.TimerParam(TIMER),
    ) -> None:
        codec = self._codec
        mark = codec.mark(cell.read() or b"")
        mark, pieces = codec.closed(mark, codec.held(mark, bag.read()))
        bag.clear()
        for piece in pieces:
            bag.add(piece)
        cell.write(codec.cell(mark))
        self._set(timer, mark)

    def _set(self, timer: Any, mark: Mark) -> None:
        """Set the timer of the next period that closes, if there is one."""
        micros = self._periods.closes(mark.closed)
        if micros is not None:
            timer.set(Timestamp(micros=micros))

    def _people(self, mark: Mark, records: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        number_of, known = self._periods.of, dict[tuple[bytes, int], bytes]()
        people = []
        for name, entry in records:
            period = number_of(time_of(entry))
            place = name, period
            if place not in known:
                counts = name and period >= mark.closed
                known[place] = mark.person(name, period) if counts else b""
            people.append(known[place])
        return people
