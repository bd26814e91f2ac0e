"""Reads events by the fields that a user names, and joins what several counts say of a tick."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.views import CombinedColumns
from beam_dpcount.dofns.intake import has_str_key, is_pair
from beam_dpcount.dofns.releases import Release, TickRelease
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.reading import UNREADABLE, read, text_of
from beam_dpcount.states.all_vectors import Reading
from beam_dpcount.states.envelope import StateError
from beam_dpcount.statistics.items import keys_of, places

_FORMAT = 2  # of what a join keeps of a key
_PLACE = struct.Struct("<q")
_NEVER = GlobalWindow().max_timestamp().micros

OTHER_VIEWS = (
    "the state belongs to rows of other metrics or views, or to another version of beam_dpcount: "
    "resume with those it was started with"
)

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_placed: Any = windowed_value.create


@dataclass(frozen=True)
class EventReader:
    """The key, the payload and the time of an event.

    Args:
      key: reads the key; None: events are (key, payload) pairs.
      total: the one key of all events, the keys of pairs included; None: each has its own.
      time: reads the time, as microseconds; None: events carry it.
      most: under how many keys one event counts, where `key` reads a collection of them; None: it
        reads one.
      listed: of more distinct ones the first in this order, and no others; None: as they come.
    """

    key: Callable[[Any], Any] | None = None
    total: str | None = None
    time: Callable[[Any], int] | None = None
    most: int | None = None
    listed: tuple[str, ...] | None = None

    def pairs(self, event: Any) -> list[tuple[str, Any]]:
        """(key, payload) under each key of an event."""
        if self.total is not None:
            return [(self.total, event[1] if is_pair(event) else event)]
        if self.key is None:
            return [(str.__str__(event[0]), event[1])] if has_str_key(event) else []
        keys = read(self._keys, event)
        return [] if keys is UNREADABLE else [(key, event) for key in keys]

    def _keys(self, event: Any) -> list[str]:
        content = self.key(event) if self.key is not None else None
        if self.most is not None:
            return keys_of(content, self.most, self._places)
        text = text_of(content)
        return [] if text is None else [text]

    @cached_property
    def _places(self) -> dict[str, int] | None:
        return None if self.listed is None else places(self.listed)

    def micros(self, event: object) -> int | None:
        """The time of an event, where a field has it; None if it cannot be read."""
        if self.time is None:
            return None
        micros = read(self.time, event)
        return micros if type(micros) is int else None  # nothing of the event's own is compared


class ReadEvents(VersionedDoFn):
    """Events to (key, payload), at their time. An event without a key or a time leaves no trace."""

    def __init__(self, reader: EventReader, clock: Grid) -> None:
        self._reader, self._first, self._stop = reader, clock.start, clock.stop

    def process(self, event: object) -> Iterable[Any]:
        pairs = self._reader.pairs(event)
        if self._reader.time is None or not pairs:
            return pairs
        micros = self._reader.micros(event)
        if micros is None or not self._first <= micros < self._stop:
            return ()
        return [TimestampedValue(pair, Timestamp(micros=micros)) for pair in pairs]


@dataclass(frozen=True)
class Parts:
    """What a join knows: the columns, and how many parts make a row.

    Args:
      clock: the ticks.
      names: the columns, in their order.
      many: how many parts there are.
      keys: all keys, in their order.
      combined: columns that are combined, if there are any.
    """

    clock: Grid
    names: Sequence[str]
    many: int
    keys: Sequence[str]
    combined: CombinedColumns | None = None

    def row(
        self, key: str, step: int, parts: Iterable[bytes], state: Sequence[float] | None
    ) -> tuple[TickRelease, Sequence[float] | None]:
        """The row that parts make, and what combined columns remember from then on.

        `state` is what they remember of the ticks before, each of which was there.
        """
        found: list[dict[str, Any]] = [{} for _ in range(5)]
        restart = None
        for _, _, number, *columns in sorted(map(json.loads, parts), key=itemgetter(1)):
            restart = restart if number is None else number
            for known, column in zip(found, columns, strict=True):
                known.update(column)
        if self.combined is not None:
            state = self.combined.row(state, step, found[:4])
            restart = self.combined.restart(step) or restart
        start, end = self.clock.borders(step, 1)
        *numbers, notes = found
        columns = [{name: each[name] for name in self.names} for each in numbers]
        columns.append({name: notes.get(name, "") for name in self.names})
        return TickRelease(key, step, start, end, restart, list(self.names), *columns), state


class ToPart(VersionedDoFn):
    """A release of one count to (key, its step and its part of the row, as bytes).

    Args:
      part: which part it is.
      reading: knows intervals, where releases are of one number; None: they have them.
      ticks: how many there are. Counts that start anew may go on beyond, but rows do not.
      places: the place of each key, on bounded input: to (place, ...) instead.
    """

    def __init__(
        self,
        part: int,
        reading: Reading | None,
        ticks: int,
        places: Mapping[str, int] | None,
    ) -> None:
        self._part, self._reading, self._ticks = part, reading, ticks
        self._places = places

    def process(self, release: Any) -> Iterator[Any]:
        if release.step > self._ticks:
            return
        columns: Sequence[Mapping[str, Any]]
        if self._reading is None:
            found = (release.values, release.stddevs, release.lows, release.highs, release.notes)
            columns = [dict(each) for each in found]
        else:
            columns = self._of_number(release)
        part = json.dumps([_FORMAT, self._part, release.restart, *columns]).encode()
        key = release.key if self._places is None else self._places[release.key]
        yield key, _PLACE.pack(release.step) + part

    def _of_number(self, release: Release) -> list[dict[str, Any]]:
        half = 0.0 if self._reading is None else self._reading.half_width(release.stddev)
        ends = release.value - half, release.value + half
        found: list[Any] = [release.value, release.stddev, *ends, ""]
        return [{release.name: each} for each in found]


class JoinEach(VersionedDoFn):
    """Streaming: parts of a key's ticks to rows, tick by tick, once all parts of a tick are there.

    A cell a key: how many ticks came out, what combined columns remember, and parts that wait. It
    holds noised releases only.
    """

    CELL = ReadModifyWriteStateSpec("rows", BytesCoder())

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def process(
        self, element: tuple[str, bytes], cell: Any = beam.DoFn.StateParam(CELL)
    ) -> list[Any]:
        key, packed = element
        names = list(self._parts.names)
        data: Any = cell.read()
        whole: Any = [_FORMAT, names, 0, None, {}] if data is None else json.loads(data)
        if whole[:2] != [_FORMAT, names]:
            raise StateError(OTHER_VIEWS)
        passed, state, waiting = whole[2:]
        (step,), part = _PLACE.unpack_from(packed), packed[_PLACE.size :].decode()
        waiting.setdefault(str(step), {})[str(json.loads(part)[1])] = part
        rows = []
        while len(waiting.get(str(passed + 1), ())) == self._parts.many:
            passed += 1
            row, state = self._parts.row(key, passed, waiting.pop(str(passed)).values(), state)
            rows.append(TimestampedValue(row, Timestamp(micros=min(row.timestamp, _NEVER))))
        # State first: what is returned must never be ahead of what is remembered.
        cell.write(json.dumps([_FORMAT, names, passed, state, waiting]).encode())
        return rows


class JoinAll(VersionedDoFn):
    """Bounded, after the grouping by key: all rows of a key, by time."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        place, packed = element
        steps: dict[int, list[bytes]] = {}
        for each in packed:
            steps.setdefault(_PLACE.unpack_from(each)[0], []).append(each[_PLACE.size :])
        state: Sequence[float] | None = None
        for step in sorted(steps):
            row, state = self._parts.row(self._parts.keys[place], step, steps[step], state)
            yield _placed(row, min(row.timestamp, _NEVER), (GlobalWindow(),))
