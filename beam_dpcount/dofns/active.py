"""People who are active: each event that counts, spread over the ticks that follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.utils import windowed_value

from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.counters.periods import Periods
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.users import BoundShards
from beam_dpcount.states.wire import PAIR

_placed: Any = windowed_value.create


class BoundActive(BoundShards):
    """Bounded: a person's events that count, as the ticks in which they make the person active.

    An event of tick t makes its person active under its key in ticks t to t + active - 1. A tick in
    which an earlier one does already counts nothing more.

    Args:
      bound, parcels: as for BoundShards.
      active: for how many ticks.
      ticks: how many there are.
    """

    def __init__(
        self,
        bound: Bound,
        parcels: Parcels,
        active: int,
        ticks: int,
        periods: Periods | None = None,
    ) -> None:
        super().__init__(bound, parcels, periods)
        self._active, self._ticks = active, ticks

    def _counting(self, person: str, seen: Seen | None, entries: Iterable[bytes]) -> Iterator[Any]:
        until: dict[str, int] = {}  # the last tick in which the person is active, by key
        for event in super()._counting(person, seen, entries):
            key, packed = event.value
            tick, _ = PAIR.unpack(packed)
            first = max(tick, until.get(key, 0) + 1)
            last = min(tick + self._active - 1, self._ticks)
            until[key] = max(last, until.get(key, 0))
            for each in range(first, last + 1):
                yield _placed((key, PAIR.pack(each, 1)), event.timestamp.micros, event.windows)
