"""How many of one person's events count: the rule, its state, and the DoFns that enforce it.

An event travels to its person as bytes, with its time; what the person's bound lets through comes
back as what it counts. Nothing tells which events did not: no metric, no log, no second output.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import apache_beam as beam
from apache_beam.coders import BytesCoder, FastPrimitivesCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.checks import check_flag, check_whole
from beam_dpcount.counters.clock import duration_of, seconds
from beam_dpcount.dofns.intake import Excess, Lost, has_str_key
from beam_dpcount.dofns.reading import UNREADABLE, call, read, text_of
from beam_dpcount.dofns.rows import Field, is_row
from beam_dpcount.dofns.ticks import TickIntake, check_timed, origin_of
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.states.codecs import PersonCodec, Seen
from beam_dpcount.states.wire import (
    PAIR,
    after_key,
    epoch_of,
    items_of,
    key_of,
    pack_items,
    pack_keyed,
    pack_texts,
    parcel_of,
    record_of,
    records_of,
    step_of,
    texts_of,
    time_bytes,
    time_of,
    timed,
)

SHARDS = 1024  # of people, where they are grouped: of 10^9 events one has a million

_NOBODY = ""
_GATHERED = 1 << 17  # events that a bundle gathers before it passes them on
_NEVER = GlobalWindow().max_timestamp().micros

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_WindowedValue: Any = beam.DoFn.WindowedValueParam
_placed: Any = windowed_value.create
_EVERYWHERE = (GlobalWindow(),)


@dataclass(frozen=True)
class Users:
    """Whom to protect: all events of one person, of which so many count.

    An event counts if fewer than `events` of its person's count so far, fewer than `per_key` in its
    key, its key is one of the first `keys` that count, and no event that counts is less than `gap`
    away. On bounded input events are taken by time, ties by what the event itself holds; streaming,
    as they arrive. The two agree where events arrive in their order.

    Args:
      by: the name of the field that holds the person's id, or a function that returns the id. Both
        read what `value=` gets: the payload of a (key, payload) pair, or the whole event if events
        have no key (TickHistogram). So `lambda pair: pair[1]` is a mistake: from the pair
        ("/home", "ann") it takes the letter "n". A field is an item of a mapping, or a field of a
        beam.Row, NamedTuple or dataclass; for a field within another, give a function. An id is a
        text or a whole number, which is taken as its decimal text: 7 and "7" are one person. Events
        with any other id (None, an empty text, 7.0, True, a text with lone surrogates) do not
        count, and neither do events for which the function raises an error. It must be a function
        of the event alone (docs/reliability.md, "Poison messages"). `beam_dpcount.check` says how
        many people there are, and why events have none.
      events: k, the most events of one person that count, in all keys together.
      keys: the most keys of one person; default: as many as there are events.
      per_key: the most events of one person in one key. Default 1, which is people, each once a
        key, and costs the least noise.
      gap: the least time between two events of a person, in seconds or as a timedelta: one at 12:00
        and one at 13:00 are an hour apart. With several events a key, a gap of many ticks takes
        far less noise; with one, or a gap below a tick, it lowers none. Streaming, it needs
        late="drop".
      asserted: True: your word that no person has more than that, `keys` and `per_key` included;
        nothing is left out, and nothing is enforced. The guarantee says so.

    Raises:
      ValueError, TypeError: an argument is outside its range; the message says what to pass.

    Example:
      >>> import beam_dpcount as dp
      >>> people = dp.Users("user", events=5)
      >>> print(people)
      at most 5 events a person (field 'user'), in 5 keys, 1 a key
      >>> count = dp.TickCount(
      ...     dp.ApproxDP(1.0, 1e-6), 3600, 0, horizon=1000, keys=["a", "b"],
      ...     value=lambda event: 1, users=people,
      ... )
      >>> round(count.counter.l2_sensitivity, 2)  # two keys of a person count, an event each
      1.41
    """

    by: str | Callable[[Any], Any]
    events: int
    keys: int | None = None
    per_key: int = 1
    gap: Any = None
    asserted: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.by, str) and self.by:
            object.__setattr__(self, "by", str.__str__(self.by))
        elif not callable(self.by):
            raise TypeError(
                "by must be the name of the field that holds a person's id, or a function that "
                f'returns it, got {self.by!r}: e.g. by="user", or by=lambda event: event["user"]'
            )
        for name in ("events", "keys", "per_key"):
            given = getattr(self, name)
            if given is not None or name != "keys":
                object.__setattr__(self, name, check_whole(name, given))
        check_flag("asserted", self.asserted)
        if self.gap is not None:
            duration_of(self.gap, "gap")

    @property
    def micros(self) -> int:
        """The gap in microseconds; 0: there is none."""
        return 0 if self.gap is None else duration_of(self.gap, "gap")

    def bound(self, items: int = 1) -> Bound:
        """The rule, for events of so many items, each of which is a key."""
        keys = self.events * items if self.keys is None else self.keys
        return Bound(self.events, keys, min(self.per_key, self.events), self.micros)

    @property
    def person_of(self) -> Callable[[Any], Any]:
        """The function that returns an event's person."""
        return Field(self.by) if isinstance(self.by, str) else self.by

    def has_same_people(self, other: Users) -> bool:
        """Whether both read the person in the same way."""
        return self.by is other.by or (isinstance(self.by, str) and self.by == other.by)

    def person(self, payload: Any) -> str:
        """The person of an event; an empty text if it has none."""
        return person_from(self.person_of, payload)

    def examine(self, payload: Any) -> tuple[str | None, str]:
        """Why an event has no person (None if it has one), and its person.

        `by` is called once; if it raises an error, that is a FunctionError.
        """
        person = text_of(call("users.by", self.person_of, payload)) or _NOBODY
        return (None if person else self._no_person), person

    @property
    def _no_person(self) -> str:
        by_field = isinstance(self.by, str)
        problem = f"field {self.by!r} does not hold" if by_field else "users.by did not return"
        return f"the event has no person: {problem} a whole number, or a text that is not empty"

    def __str__(self) -> str:
        bound = self.bound()
        keys = "one key" if bound.keys == 1 else f"{min(bound.keys, bound.events)} keys"
        apart = f", {seconds(self.micros)} apart" if self.micros else ""
        asserted = ", by your word" if self.asserted else ""
        field = f" (field {self.by!r})" if isinstance(self.by, str) else ""
        return (
            f"at most {bound.events} events a person{field}, in {keys}, {bound.per_key} a key"
            f"{apart}{asserted}"
        )


def person_from(by: Callable[[Any], Any], payload: Any) -> str:
    """The person of an event; an empty text if it has none."""
    return text_of(read(by, payload)) or _NOBODY


@dataclass(frozen=True)
class Bound:
    """Which of one person's events count; see `Users`. `gap` in microseconds, 0 is none."""

    events: int
    keys: int
    per_key: int
    gap: int

    @property
    def most(self) -> int:
        """The most events of a person that count, each in one key."""
        return min(self.events, self.keys * self.per_key)

    def is_full(self, events: int) -> bool:
        """Whether no more events count where so many do."""
        return events >= self.events

    def take(self, seen: Seen, names: Sequence[Hashable], micros: int) -> list[int]:
        """The places of the names under which an event counts, and note it in `seen`.

        Args:
          seen: what counts of the person so far; it is changed.
          names: the keys of the event: one, or one an item.
          micros: its time.
        """
        if self.is_full(seen.events) or (self.gap and not self._is_apart(seen.times, micros)):
            return []
        kept, counted = [], seen.names
        for place, name in enumerate(names):
            n = counted.get(name, 0)
            if n < self.per_key and (n or len(counted) < self.keys):
                counted[name] = n + 1
                kept.append(place)
        if kept:
            seen.events += 1
            if self.gap:
                insort(seen.times, micros)
        return kept

    def _is_apart(self, times: Sequence[int], micros: int) -> bool:
        at = bisect_left(times, micros)
        return all(abs(micros - time) >= self.gap for time in times[max(at - 1, 0) : at + 1])


class Parcels(ABC):
    """How events travel to their person, and what comes back of them."""

    @abstractmethod
    def wrap(self, element: Any, micros: int, windows: Any) -> bytes | None:
        """An event as bytes; None: it counts nothing whosever it is, and does not travel."""

    @abstractmethod
    def payload(self, element: Any) -> Any:
        """What `Users.by` is given."""

    def person(self, by: Callable[[Any], Any], element: Any) -> str:
        """Whose event it is; an empty text: nobody's."""
        return person_from(by, self.payload(element))

    @abstractmethod
    def names(self, parcel: bytes) -> Sequence[bytes]:
        """The keys of an event."""

    @abstractmethod
    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        """What is counted of an event of which these names count."""

    def is_still_of(self, person: str, element: Any) -> bool:
        """Whether what came back is the same person's to those who read the person again."""
        return True

    # Whether it matters if an event is the first that counts of its person under a name.
    asks_first = False

    def unwrap_first(self, parcel: bytes, kept: Sequence[int], first: Sequence[bool]) -> list[Any]:
        """The same where that is known, of each name."""
        return self.unwrap(parcel, kept)

    def ordered(self, entries: Iterable[bytes]) -> list[bytes]:
        """A person's events in the order in which they are taken: here by time, then contents."""
        return sorted(entries)

    # Whether those that do not count, or are nobody's, come back too, as empty steps.
    keeps_all = False


class TickParcels(Parcels):
    """Events that were read at a clock: their tick, and the keys and numbers that they count.

    Args:
      intake: what reads events.
      keys: the public keys, in their order.
      split: makes (key, value) pairs of an event; None: it is one.
      restart: after how many ticks a key counts anew, and is another to the bound; None: never.
    """

    def __init__(
        self,
        intake: TickIntake,
        keys: Sequence[str],
        split: Callable[[Any], Iterable[Any]] | None = None,
        restart: int | None = None,
    ) -> None:
        self._intake, self._split, self._keys, self._restart = intake, split, tuple(keys), restart
        self._places = {key: place for place, key in enumerate(self._keys)}
        self._names = [key.encode("utf-8", "surrogatepass") for key in self._keys]

    def wrap(self, element: Any, micros: int, windows: Any) -> bytes | None:
        check_timed(micros)
        pairs = (element,) if self._split is None else self._split(element)
        items, step, epoch = [], 0, 0
        for pair in pairs:
            read = self._intake.read(pair, micros, windows)
            if read is not None:
                key, step, x = read
                items.append((key, x))
        if not items:
            return None
        if self._restart is not None:
            epoch, step = divmod(step - 1, self._restart)
            step += 1
        return self._packed(step, epoch, items)

    def _packed(self, step: int, epoch: int, items: Iterable[tuple[str, int]]) -> bytes:
        return pack_items(step, epoch, sorted((self._places[key], x) for key, x in items))

    def payload(self, element: Any) -> Any:
        return element[1] if self._split is None else element

    def names(self, parcel: bytes) -> Sequence[bytes]:
        names = self._names_of(parcel)
        if self._restart is None:
            return names
        epoch = epoch_of(parcel)
        return [epoch + name for name in names]

    def _names_of(self, parcel: bytes) -> list[bytes]:
        return [self._names[place] for place, _ in items_of(parcel)]

    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        step, items = step_of(parcel), items_of(parcel)
        return [(self._keys[items[i][0]], PAIR.pack(step, items[i][1])) for i in kept]


class TextParcels(TickParcels):
    """The same for keys that nobody listed: their texts travel. `keys` is empty."""

    def _packed(self, step: int, epoch: int, items: Iterable[tuple[str, int]]) -> bytes:
        return pack_texts(step, epoch, items)

    def _names_of(self, parcel: bytes) -> list[bytes]:
        return [name for name, _ in texts_of(parcel)]

    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        step, items = step_of(parcel), texts_of(parcel)
        return [(items[i][0].decode(), PAIR.pack(step, items[i][1])) for i in kept]


class ElementParcels(Parcels):
    """Events as they are, for several counts at a clock.

    A pair comes back under the key that was bounded, whatever its own encoding makes of the key. An
    event comes back as a row only if it can have been one, as rows stop some counts.

    Args:
      readers: how each count reads them: what none of them counts does not travel.
      of_pairs: whether events are pairs, of a key: what has no key does not travel. Else events
        have no keys, and travel whole.
      takes_rows: whether all of the counts read events that are rows.
      by: how counts read an event's person again; None: none of them does.
    """

    def __init__(
        self,
        readers: Sequence[Parcels],
        of_pairs: bool,
        takes_rows: bool = False,
        by: Callable[[Any], Any] | None = None,
    ) -> None:
        self._readers, self._of_pairs, self._takes_rows = readers, of_pairs, takes_rows
        self._by, self._coder = by, FastPrimitivesCoder()

    def wrap(self, element: Any, micros: int, windows: Any) -> bytes | None:
        read = [reader.wrap(element, micros, windows) for reader in self._readers]
        if all(found is None for found in read):
            return None
        if not self._of_pairs:
            return _pack_element(self._coder, "", element)
        if not has_str_key(element):
            return None
        key, payload = _plain_pair(element)
        return _pack_element(self._coder, key, (key, payload))

    def payload(self, element: Any) -> Any:
        return element[1] if self._of_pairs else element

    def names(self, parcel: bytes) -> Sequence[bytes]:
        return [key_of(parcel)]

    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        elements = _decoded(self._coder, parcel)
        return [element for element in elements if self._takes_rows or not is_row(element)]

    def is_still_of(self, person: str, element: Any) -> bool:
        return self._by is None or self.person(self._by, element) == person


class StepParcels(Parcels):
    """Elements each of which takes a step: those that do not count come back as empty ones.

    A pair comes back under the key that was bounded, as it does from ElementParcels.

    Which ones count must be a function of what is public alone: the person, the key, the time, the
    id, the order. So ties in time are by the id, or in the order of arrival; never by contents, and
    elements that turn out to be rejected have used up their place.

    Args:
      check: that elements lie in one of the declared windows.
      element_id: gives an element's public id.
    """

    keeps_all = True

    def __init__(self, check: WindowCheck, element_id: Callable[[Any], Any] | None) -> None:
        self._check, self._element_id, self._coder = check, element_id, FastPrimitivesCoder()

    def wrap(self, element: Any, micros: int, windows: Any) -> bytes | None:
        self._check(windows)
        if not has_str_key(element):
            parcel = _pack_element(self._coder, "", element)
            # What does not come back as it was has no class by which it is refused.
            if parcel is None or not self._stays_keyless(parcel):
                parcel = pack_keyed("", self._coder.encode(None))
            return parcel
        key, payload = _plain_pair(element)
        parcel = _pack_element(self._coder, key, (key, payload))
        # What does not come back has no id.
        is_asked = self._element_id is not None
        if parcel is None or (is_asked and not _decoded(self._coder, parcel)):
            lost = Lost(self._element_id(payload) if self._element_id is not None else None)
            parcel = pack_keyed(key, self._coder.encode((key, lost)))
        return parcel

    def _stays_keyless(self, parcel: bytes) -> bool:
        elements = _decoded(self._coder, parcel)
        return bool(elements) and not has_str_key(elements[0])

    def payload(self, element: Any) -> Any:
        return element[1]

    def person(self, by: Callable[[Any], Any], element: Any) -> str:
        return super().person(by, element) if has_str_key(element) else _NOBODY

    def names(self, parcel: bytes) -> Sequence[bytes]:
        return [key_of(parcel)]

    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        for element in _decoded(self._coder, parcel):
            if kept or not has_str_key(element) or type(element[1]) is Lost:
                return [element]
            return [(element[0], Excess(element[1]))]
        return [(key_of(parcel).decode("utf-8", "surrogatepass"), Lost())]

    def ordered(self, entries: Iterable[bytes]) -> list[bytes]:
        if self._element_id is None:
            return sorted(entries, key=time_bytes)
        return sorted(entries, key=self._place)

    def _place(self, entry: bytes) -> tuple[Any, ...]:
        element = self._coder.decode(after_key(parcel_of(entry)))
        if self._element_id is None or not has_str_key(element):  # refused later, without an id
            return time_bytes(entry), False
        payload = element[1]
        found = payload.identity if type(payload) is Lost else self._element_id(payload)
        return time_bytes(entry), True, found


def _encoded(coder: Any, element: Any) -> bytes | None:
    """An element as bytes; None if no coder takes it, which its contents can cause."""
    encoded = read(coder.encode, element)
    return None if encoded is UNREADABLE else bytes(encoded)


def _plain_pair(element: Any) -> tuple[str, Any]:
    """A keyed element as a plain pair of a plain text, neither of which has code of its own.

    The key's class, or the pair's, may pickle as another key, in which nothing was bounded.
    """
    return str.__str__(element[0]), element[1]


def _pack_element(coder: Any, key: str, element: Any) -> bytes | None:
    """An encoded element behind its key; None if no coder takes it."""
    encoded = _encoded(coder, element)
    return None if encoded is None else pack_keyed(key, encoded)


def _decoded(coder: Any, parcel: bytes) -> list[Any]:
    """The element in a parcel; none if it does not come back, which its contents can cause."""
    element = read(coder.decode, after_key(parcel))
    return [] if element is UNREADABLE else [element]


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
        if person == _NOBODY and not parcels.keeps_all:
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

    def finish_bundle(self) -> Iterable[Any]:
        return self._flushed()

    def _flushed(self) -> list[Any]:
        micros, shards = self._earliest, self._shards
        self.start_bundle()
        return [
            _placed((shard, b"".join(records)), micros, _EVERYWHERE)
            for shard, records in shards.items()
        ]


class _Bounding(VersionedDoFn):
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
            return [_placed(each, micros, _EVERYWHERE) for each in made]
        return [
            _placed(element, micros, _EVERYWHERE)
            for element in parcels.unwrap(parcel, kept)
            if parcels.is_still_of(person, element)
        ]


class BoundShards(_Bounding):
    """Bounded, after the grouping: all events of the people of a shard, a person at a time."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        people: dict[bytes, list[bytes]] = defaultdict(list)
        for joined in element[1]:
            for name, entry in records_of(joined):
                people[name].append(entry)
        for name, entries in people.items():
            yield from self._counting(name.decode(), Seen() if name else None, entries)

    def _counting(self, person: str, seen: Seen | None, entries: Iterable[bytes]) -> Iterator[Any]:
        """What comes of the events of one person, in their order."""
        for entry in self._parcels.ordered(entries):
            yield from self._passed(person, seen, entry)
            if seen and self._bound.is_full(seen.events) and not self._parcels.keeps_all:
                return


class BoundArriving(_Bounding):
    """Streaming: each event as it arrives, from one cell of state a person. It never expires."""

    STATE = ReadModifyWriteStateSpec("person", BytesCoder())

    def setup(self) -> None:
        self._codec = PersonCodec(repr(self._bound), self._bound.gap > 0)

    def process(
        self, element: tuple[str, bytes], cell: Any = beam.DoFn.StateParam(STATE)
    ) -> Iterable[Any]:
        person, entry = element
        if person == _NOBODY:
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


class ReadyTicks:
    """Reads what TickParcels made, as TickIntake reads events."""

    def __init__(self, clock: Any) -> None:
        self.clock, self.origin, self._window = clock, 0, None

    def __reduce__(self) -> Any:
        return type(self), (self.clock,)  # without the window of the last event

    def read(self, element: Any, micros: int, windows: Any) -> tuple[str, int, int]:
        if windows[0] is not self._window:
            self._window, self.origin = windows[0], origin_of(self.clock, windows[0])
        return (element[0], *PAIR.unpack(element[1]))
