"""People who are active: a person's events, as the ticks at which the person starts and stops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from apache_beam.utils import windowed_value

from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.counters.periods import Periods
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.users import EVERYWHERE, Bounding
from beam_dpcount.states.wire import PAIR, parcel_of, records_of, time_of

_placed: Any = windowed_value.create


class Interval(NamedTuple):
    """Ticks in which a person is active, from the first to the last, under a key."""

    first: int
    last: int
    key: str


@dataclass(frozen=True)
class Activity:
    """How events make a person active.

    Args:
      active: for how many ticks an event does.
      ticks: how many there are.
      intervals: how many of a person's count, the earliest first; None: all.
      changes: whether an interval counts as its first tick and the one after its last; else as each
        of its ticks.
    """

    active: int
    ticks: int
    intervals: int | None = None
    changes: bool = False

    def intervals_of(self, events: Iterable[tuple[int, str]]) -> list[Interval]:
        """When a person is active, from the ticks and keys of the events that count.

        It depends on the ticks of that person's events, and never on when they arrived.
        """
        by_key: dict[str, list[int]] = defaultdict(list)
        for tick, key in sorted(set(events)):
            by_key[key].append(tick)
        found = []
        for key, ticks in by_key.items():
            first = last = 0
            for tick in ticks:
                if last and tick > last + 1:
                    found.append(Interval(first, last, key))
                first = first if last and tick <= last + 1 else tick
                last = tick + self.active - 1
            found.append(Interval(first, last, key))
        return sorted(found)[: self.intervals]

    def counted(self, interval: Interval) -> Iterator[tuple[int, int]]:
        """The ticks at which an interval counts, and what it adds there."""
        if not self.changes:
            yield from ((t, 1) for t in range(interval.first, min(interval.last, self.ticks) + 1))
            return
        yield interval.first, 1
        if interval.last < self.ticks:
            yield interval.last + 1, -1


class BoundActive(Bounding):
    """Bounded: what the activity of each person of a shard adds to the ticks of its keys.

    Args:
      bound, parcels, periods: as for BoundShards. A person's events of one period are bounded by
        themselves, and all that count make the person active.
      activity: how they do.
    """

    def __init__(
        self, bound: Bound, parcels: Parcels, activity: Activity, periods: Periods | None = None
    ) -> None:
        super().__init__(bound, parcels)
        self._activity, self._periods = activity, periods

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        people: dict[bytes, list[bytes]] = defaultdict(list)
        for joined in element[1]:
            for name, entry in records_of(joined):
                people[name].append(entry)
        for name, entries in people.items():
            if not name:
                continue
            micros = min(map(time_of, entries))
            for interval in self._activity.intervals_of(self._events(entries)):
                for tick, x in self._activity.counted(interval):
                    yield _placed((interval.key, PAIR.pack(tick, x)), micros, EVERYWHERE)

    def _events(self, entries: list[bytes]) -> Iterator[tuple[int, str]]:
        """The ticks and keys of the events that count.

        An event in ticks and keys where the person counts already takes nothing of the bound.
        """
        seen: dict[int, Seen] = defaultdict(Seen)
        active: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for entry in self._parcels.ordered(entries):
            period = 0 if self._periods is None else self._periods.of(time_of(entry))
            parcel = parcel_of(entry)
            names = self._parcels.names(parcel)
            all_of_it = self._parcels.unwrap(parcel, range(len(names)))
            places = [(PAIR.unpack(packed)[0], key) for key, packed in all_of_it]
            if active[period].issuperset(places):
                continue
            for place in self._bound.take(seen[period], names, time_of(entry)):
                active[period].add(places[place])
                yield places[place]
