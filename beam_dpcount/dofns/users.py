"""DoFns that let through those of a person's events that count.

An event travels to its person as bytes, with its time; what the person's bound lets through comes
back as what it counts. Nothing tells which events did not: no metric, no log, no second output.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from zlib import crc32

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.counters.people import NOBODY, Bound, Seen, Users
from beam_dpcount.counters.periods import Periods
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.states.codecs import PersonCodec
from beam_dpcount.states.wire import parcel_of, record_of, records_of, time_of, timed

SHARDS = 1024  # of people, where they are grouped: of 10^9 events one has a million

_GATHERED = 1 << 17  # events that a bundle gathers before it passes them on
_NEVER = GlobalWindow().max_timestamp().micros

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_WindowedValue: Any = beam.DoFn.WindowedValueParam
_placed: Any = windowed_value.create
EVERYWHERE = (GlobalWindow(),)


def _newcomer(source: Callable[[int], bytes] = os.urandom) -> Seen:
    """A person of whom nothing counts yet. The salt keys digests; it is in no release."""
    return Seen(salt=source(8))


class SendToPeople(VersionedDoFn):
    """An event to (person, its time and itself as bytes)."""

    def __init__(self, users: Users, parcels: Parcels) -> None:
        self._by, self._parcels = users.person_of, parcels

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        parcels, micros, windows = self._parcels, windowed.timestamp_micros, windowed.windows
        if not windows:  # in a gap between windows, where nothing is counted
            return ()
        parcel = parcels.wrap(element, micros, windows)
        if parcel is None:
            return ()
        person = parcels.person(self._by, element)
        if person == NOBODY and not parcels.keeps_all:
            return ()
        window = windows[0]
        if isinstance(window, IntervalWindow):  # times that Beam has cut may lie outside
            micros = min(max(micros, window.start.micros), window.end.micros - 1)
        return ((person, timed(micros, parcel)),)


class SendToShards(SendToPeople):
    """Bounded: events to (shard of people, many of them joined), one a shard and bundle.

    Each goes with its person. To group by person would cost a local runner 100 us a person.
    """

    def start_bundle(self) -> None:
        self._gathered, self._earliest = 0, _NEVER
        self._shards: dict[int, list[bytes]] = defaultdict(list)

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        for person, entry in super().process(element, windowed):
            name = person.encode()
            # The same on every worker, as Python's own hash is not.
            self._shards[crc32(name) % SHARDS].append(record_of(name, entry))
            if (micros := time_of(entry)) < self._earliest:
                self._earliest = micros
            self._gathered += 1
        return self._flushed() if self._gathered >= _GATHERED else ()

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        micros, shards = self._earliest, self._shards
        self.start_bundle()
        return [
            _placed((shard, b"".join(records)), micros, EVERYWHERE)
            for shard, records in shards.items()
        ]


class Bounding(VersionedDoFn):
    """What lets through the events of a person that count."""

    def __init__(self, bound: Bound, parcels: Parcels) -> None:
        self._bound, self._parcels = bound, parcels

    def _passed(self, person: str, seen: Seen | None, entry: bytes, named: Any = None) -> list[Any]:
        """What comes of one event; `seen` is changed. None: it does not count, as nobody's."""
        parcels, micros, parcel = self._parcels, time_of(entry), parcel_of(entry)
        kept: list[int] = []
        if seen is not None:
            names = parcels.names(parcel)
            known = names if named is None else named(names)
            kept = self._bound.take(seen, known, micros)
        if not kept and not parcels.keeps_all:
            return []
        if seen is not None and parcels.asks_first:
            first = [seen.names[known[place]] == 1 for place in kept]
            made = parcels.unwrap_first(parcel, kept, first)
            return [_placed(each, micros, EVERYWHERE) for each in made]
        return [
            _placed(element, micros, EVERYWHERE)
            for element in parcels.unwrap(parcel, kept)
            if parcels.is_still_of(person, element)
        ]


class BoundShards(Bounding):
    """Bounded, after the grouping: all events of the people of a shard, a person at a time.

    With periods, all that a person does in one of them, apart from what the person did before.
    """

    def __init__(self, bound: Bound, parcels: Parcels, periods: Periods | None = None) -> None:
        super().__init__(bound, parcels)
        self._periods = periods

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        people: dict[tuple[bytes, int], list[bytes]] = defaultdict(list)
        periods = self._periods
        for joined in element[1]:
            for name, entry in records_of(joined):
                period = 0 if periods is None else periods.of(time_of(entry))
                people[name, period].append(entry)
        for (name, _), entries in people.items():
            yield from self._counting(name.decode(), Seen() if name else None, entries)

    def _counting(self, person: str, seen: Seen | None, entries: Iterable[bytes]) -> Iterator[Any]:
        """What comes of the events of one person, in their order."""
        for entry in self._parcels.ordered(entries):
            yield from self._passed(person, seen, entry)
            if seen and self._bound.is_full(seen.events) and not self._parcels.keeps_all:
                return


class BoundArriving(Bounding):
    """Streaming: each event as it arrives, from one cell of state a person. It never expires."""

    STATE = ReadModifyWriteStateSpec("person", BytesCoder())

    def setup(self) -> None:
        self._codec = PersonCodec(repr(self._bound), self._bound.gap > 0)

    def process(
        self, element: tuple[str, bytes], cell: Any = beam.DoFn.StateParam(STATE)
    ) -> Iterable[Any]:
        person, entry = element
        if person == NOBODY:
            return self._passed(person, None, entry)
        data = cell.read()
        if data is None:
            seen = _newcomer()
        elif self._bound.is_full(self._codec.events_of(data)):  # most events of some people
            return self._passed(person, None, entry)
        else:
            seen = self._codec.decode(data)
        before = seen.events
        made = self._passed(person, seen, entry, seen.digests)
        if seen.events > before:
            cell.write(self._codec.encode(seen))
        return made
