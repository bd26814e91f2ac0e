"""DoFns that let through those of a person's events that count.

An event travels to the shard of its person as bytes, with its time; what the person's bound lets
through comes back as what it counts. Nothing tells which events did not: no metric, no log, no
second output.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any
from uuid import uuid4

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from beam_dpcount.counters.people import NOBODY, Bound, Seen, Users
from beam_dpcount.counters.periods import Periods
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.states.people import MERGED, Mark, PeopleCodec, Rows
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import parcel_of, record_of, records_of, time_of, timed

SHARDS = 1024  # of people, where they are grouped: of 10^9 events one has a million

_GATHERED = 1 << 17  # events that a bundle gathers before it passes them on
_NEVER = GlobalWindow().max_timestamp().micros
_BEGINNING = MIN_TIMESTAMP.micros
_TAG = 8  # bytes that tell what one bundle has gathered from what others have
_PLACE = struct.Struct("<I")

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_WindowedValue: Any = beam.DoFn.WindowedValueParam
_placed: Any = windowed_value.create
EVERYWHERE = (GlobalWindow(),)


class SendToShards(VersionedDoFn):
    """Events to (shard of people, many of them joined), one a shard and bundle.

    Each goes with its person. A group, or a state, of each person's own would cost a local runner
    100 us a person, and Flink a millisecond an event.

    Args:
      users, parcels: whose events they are, and how they travel.
      placement: of people.
      arriving: streaming. Per element each then goes with its place in the bundle, so that all can
        come back in order.
    """

    def __init__(
        self, users: Users, parcels: Parcels, placement: Placement, arriving: bool = False
    ) -> None:
        self._by, self._parcels, self._placement = users.person_of, parcels, placement
        self._arriving, self._ordered = arriving, arriving and parcels.keeps_all

    def setup(self) -> None:
        self._shard_of = self._placement.finder()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("_shard_of", "_shards"):  # a key of the secret, and the bundle's events
            state.pop(name, None)
        return state

    def start_bundle(self) -> None:
        self._gathered, self._earliest = 0, _NEVER
        self._shards: dict[int, list[bytes]] = defaultdict(list)

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        found = self.read(element, windowed)
        if found is None:
            return ()
        person, entry = found
        if (micros := time_of(entry)) < self._earliest:
            self._earliest = micros
        if self._ordered:
            entry = _PLACE.pack(self._gathered) + entry
        self._shards[self._shard_of(person)].append(record_of(person.encode(), entry))
        self._gathered += 1
        return self._flushed() if self._gathered >= _GATHERED else ()

    def read(self, element: Any, windowed: Any) -> tuple[str, bytes] | None:
        """An event's person, and its time and itself as bytes; None if it can never count."""
        parcels, micros, windows = self._parcels, windowed.timestamp_micros, windowed.windows
        if not windows:  # in a gap between windows, where nothing is counted
            return None
        parcel = parcels.wrap(element, micros, windows)
        if parcel is None:
            return None
        person = parcels.person(self._by, element)
        if person == NOBODY and not parcels.keeps_all:
            return None
        window = windows[0]
        if isinstance(window, IntervalWindow):  # times that Beam has cut may lie outside
            micros = min(max(micros, window.start.micros), window.end.micros - 1)
        return person, timed(micros, parcel)

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        # Some runners order a key's elements by time: with that of the earliest event one person
        # could move others' events. What comes back has times of its own.
        micros = _BEGINNING if self._arriving else self._earliest
        shards = self._shards
        self.start_bundle()
        joined = {shard: b"".join(records) for shard, records in shards.items()}
        tag = b""
        if self._ordered:  # of chance: by contents, bundles that are equal would be taken for one
            tag = uuid4().bytes[:_TAG]
        return [_placed((shard, tag + data), micros, EVERYWHERE) for shard, data in joined.items()]


class Bounding(VersionedDoFn):
    """What lets through the events of a person that count."""

    def __init__(self, bound: Bound, parcels: Parcels) -> None:
        self._bound, self._parcels = bound, parcels

    def _passed(
        self, person: str, seen: Seen | None, entry: bytes, named: Any = None, note: Any = None
    ) -> list[Any]:
        """What comes of one event; `seen` is changed. None: it does not count.

        Args:
          named: gives keys the names that `seen` has; None: their own.
          note: is told of an event that counts, under which of these names and when.
        """
        parcels, micros, parcel = self._parcels, time_of(entry), parcel_of(entry)
        kept: list[int] = []
        if seen is not None:
            names = parcels.names(parcel)
            known = names if named is None else named(names)
            kept = self._bound.take(seen, known, micros)
            if kept and note is not None:
                note([known[place] for place in kept], micros)
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
    """Streaming: events as they arrive, a bundle's of a shard at once; see states/people.py.

    State is of the whole shard, and never expires. Only a seed starts it: under another number of
    shards, or where state was lost, an event must not begin a memory in which everybody is new.
    What comes before the seed waits for it in the bag.

    Per element, what comes back waits for the end of the bundle, to leave in the order in which the
    bundle before had it.

    Args:
      bound, parcels: the rule, and how events travel.
      placement: as for the SendToShards before.
    """

    CELL = ReadModifyWriteStateSpec("shard", BytesCoder())
    PIECES = BagStateSpec("people", BytesCoder())

    def __init__(self, bound: Bound, parcels: Parcels, placement: Placement) -> None:
        super().__init__(bound, parcels)
        self._placement = placement

    def setup(self) -> None:
        self._codec = self._codec_of(None)

    def _codec_of(self, periods: Periods | None) -> PeopleCodec:
        placement = self._placement
        return PeopleCodec(self._bound, placement.shards, placement.fingerprint, periods)

    def start_bundle(self) -> None:
        self._tag, self._later = b"", list[tuple[int, list[Any]]]()

    def process(
        self,
        element: tuple[int, bytes],
        cell: Any = beam.DoFn.StateParam(CELL),
        bag: Any = beam.DoFn.StateParam(PIECES),
    ) -> Iterable[Any]:
        codec, batch, state = self._codec, element[1], cell.read()
        if state is not None:
            mark = codec.mark(state)
            return () if batch == SEED else self._taken(batch, mark, cell, bag)
        if batch != SEED:
            bag.add(_PLACE.pack(len([*bag.read()])) + batch)
            return ()
        mark = codec.begin()
        cell.write(codec.cell(mark))
        waiting = sorted(bag.read(), key=_PLACE.unpack_from)
        bag.clear()
        made: list[Any] = []
        for each in waiting:
            mark = codec.mark(cell.read())
            made += self._taken(each[_PLACE.size :], mark, cell, bag)
        return made

    def finish_bundle(self) -> Iterable[Any]:
        return self._in_order()

    def _taken(self, batch: bytes, mark: Mark, cell: Any, bag: Any) -> list[Any]:
        """What comes of a bundle's events; what counts of people is kept first."""
        codec, is_full, ordered = self._codec, self._bound.is_full, self._parcels.keeps_all
        made: list[Any] = []
        if ordered:
            if batch[:_TAG] != self._tag:
                made, self._tag = self._in_order(), batch[:_TAG]
            batch = batch[_TAG:]
        records = [*records_of(batch)]
        people = self._people(mark, records)
        wanted = {who for who in people if who}
        held = codec.held(mark, bag.read()) if wanted else []
        seen, rows = codec.seen(held, wanted), Rows()
        for (name, entry), who in zip(records, people, strict=True):
            if ordered:
                (place,), entry = _PLACE.unpack_from(entry), entry[_PLACE.size :]
            one = seen.get(who)
            if one is not None and is_full(one.events):  # most events of some people
                one = None
            if one is not None:
                named = partial(mark.names, who) if codec.keeps_names else None
                passed = self._passed(name.decode(), one, entry, named, partial(rows.add, who))
            elif ordered:
                passed = self._passed(name.decode(), None, entry)
            else:
                continue
            if ordered:
                self._later.append((place, passed))
            else:
                made += passed
        if rows.people:
            columns = codec.columns(rows)
            if mark.pieces - mark.merged < MERGED:
                mark, piece = codec.piece(mark, columns)
                bag.add(piece)
            else:
                both = zip(held, columns, strict=True)
                mark, pieces = codec.merged(mark, [old + new for old, new in both])
                bag.clear()
                for piece in pieces:
                    bag.add(piece)
            cell.write(codec.cell(mark))
        return made

    def _people(self, mark: Mark, records: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        """The digest of each record's person, whom the rule takes; empty: it cannot count."""
        digests = {name: mark.person(name) for name in {name for name, _ in records} if name}
        return [digests.get(name, b"") for name, _ in records]

    def _in_order(self) -> list[Any]:
        """What was put off, in the order of the bundle that it came in."""
        later = sorted(self._later, key=itemgetter(0))
        self._later = []
        return [each for _, passed in later for each in passed]
