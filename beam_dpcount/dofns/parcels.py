"""How events travel to their person, as bytes, and what comes back of those that count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from apache_beam.coders import FastPrimitivesCoder

from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.people import NOBODY, person_from
from beam_dpcount.dofns.intake import Excess, Lost, has_str_key
from beam_dpcount.dofns.rows import is_row
from beam_dpcount.dofns.ticks import TickIntake, check_timed
from beam_dpcount.dofns.windows import WindowCheck, origin_of
from beam_dpcount.reading import UNREADABLE, Function, read
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
    step_of,
    texts_of,
    time_bytes,
)


class Parcels(ABC):
    """How events travel to their person, and what comes back of them."""

    @abstractmethod
    def wrap(self, element: object, micros: int, windows: object) -> bytes | None:
        """An event as bytes; None: it counts nothing whosever it is, and does not travel."""

    @abstractmethod
    def payload(self, element: Any) -> Any:
        """What `Users.by` is given."""

    def person(self, by: Function, element: object) -> str:
        """Whose event it is; an empty text: nobody's."""
        return person_from(by, self.payload(element))

    @abstractmethod
    def names(self, parcel: bytes) -> Sequence[bytes]:
        """The keys of an event."""

    @abstractmethod
    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        """What is counted of an event of which these names count."""

    def is_still_of(self, person: str, element: object) -> bool:
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
      restart: the ticks, in whose windows a key counts anew, and is another to the bound; None:
        never.
    """

    def __init__(
        self,
        intake: TickIntake,
        keys: Sequence[str],
        restart: Grid | None = None,
    ) -> None:
        self._intake, self._keys, self._restart = intake, tuple(keys), restart
        self._places = {key: place for place, key in enumerate(self._keys)}
        self._names = [key.encode("utf-8", "surrogatepass") for key in self._keys]

    def wrap(self, element: object, micros: int, windows: object) -> bytes | None:
        check_timed(micros)
        read = self._intake.read(element, micros, windows)
        if read is None:
            return None
        key, step, x = read
        epoch, step = (0, step) if self._restart is None else self._restart.count_of(step)
        return self._packed(step, epoch, key, x)

    def _packed(self, step: int, epoch: int, key: str, x: int) -> bytes:
        return pack_items(step, epoch, [(self._places[key], x)])

    def payload(self, element: Any) -> Any:
        return element[1]

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

    def _packed(self, step: int, epoch: int, key: str, x: int) -> bytes:
        return pack_texts(step, epoch, [(key, x)])

    def _names_of(self, parcel: bytes) -> list[bytes]:
        return [name for name, _ in texts_of(parcel)]

    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        step, items = step_of(parcel), texts_of(parcel)
        return [(items[i][0].decode(), PAIR.pack(step, items[i][1])) for i in kept]


class ElementParcels(Parcels):
    """Pairs as they are, for several counts at a clock.

    A pair comes back under the key that was bounded, whatever its own encoding makes of the key.

    Args:
      readers: how each count reads them: what none of them counts does not travel.
      by: how counts read an event's person again; None: none of them does.
    """

    def __init__(self, readers: Sequence[Parcels], by: Function | None = None) -> None:
        self._readers, self._by, self._coder = readers, by, FastPrimitivesCoder()

    def wrap(self, element: object, micros: int, windows: object) -> bytes | None:
        read = [reader.wrap(element, micros, windows) for reader in self._readers]
        if all(found is None for found in read):
            return None
        if not has_str_key(element):
            return None
        key, payload = _plain_pair(element)
        return _pack_element(self._coder, key, (key, payload))

    def payload(self, element: Any) -> Any:
        return element[1]

    def names(self, parcel: bytes) -> Sequence[bytes]:
        return [key_of(parcel)]

    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        # As rows stop counts, none comes back.
        return [element for element in _decoded(self._coder, parcel) if not is_row(element)]

    def is_still_of(self, person: str, element: object) -> bool:
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

    def __init__(self, check: WindowCheck, element_id: Function | None) -> None:
        self._check, self._element_id, self._coder = check, element_id, FastPrimitivesCoder()

    def wrap(self, element: object, micros: int, windows: object) -> bytes | None:
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

    def person(self, by: Function, element: object) -> str:
        return super().person(by, element) if has_str_key(element) else NOBODY

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

    def _place(self, entry: bytes) -> tuple[object, ...]:
        element = self._coder.decode(after_key(parcel_of(entry)))
        if self._element_id is None or not has_str_key(element):  # refused later, without an id
            return time_bytes(entry), False
        payload = element[1]
        found = payload.identity if type(payload) is Lost else self._element_id(payload)
        return time_bytes(entry), True, found


class ReadyTicks:
    """Reads what TickParcels made, as TickIntake reads events."""

    def __init__(self, clock: Grid) -> None:
        self.clock, self.origin, self._window = clock, 0, None

    def __reduce__(self) -> Any:
        return type(self), (self.clock,)  # without the window of the last event

    def read(self, element: Any, micros: int, windows: Any) -> tuple[str, int, int]:
        if windows[0] is not self._window:
            self._window, self.origin = windows[0], origin_of(self.clock, windows[0])
        return (element[0], *PAIR.unpack(element[1]))


def _encoded(coder: Any, element: Any) -> bytes | None:
    """An element as bytes; None if no coder takes it, which its contents can cause."""
    encoded = read(coder.encode, element)
    return None if encoded is UNREADABLE else bytes(encoded)


def _plain_pair(element: Any) -> tuple[str, Any]:
    """A keyed element as a plain pair of a plain text, neither of which has code of its own.

    The key's class, or the pair's, may pickle as another key, in which nothing was bounded.
    """
    return str.__str__(element[0]), element[1]


def _pack_element(coder: object, key: str, element: object) -> bytes | None:
    """An encoded element behind its key; None if no coder takes it."""
    encoded = _encoded(coder, element)
    return None if encoded is None else pack_keyed(key, encoded)


def _decoded(coder: Any, parcel: bytes) -> list[Any]:
    """The element in a parcel; none if it does not come back, which its contents can cause."""
    element = read(coder.decode, after_key(parcel))
    return [] if element is UNREADABLE else [element]
