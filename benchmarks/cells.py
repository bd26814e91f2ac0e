"""State of one key, for DoFns that are run without an engine: a cell, a bag, a timer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.coders import Coder
from apache_beam.transforms.window import GlobalWindow

from beam_dpcount.dofns.kept import KeptCoder
from beam_dpcount.dofns.periods import BoundPeriods
from beam_dpcount.dofns.ticks import SEED, CountEachTick
from beam_dpcount.dofns.users import SendToShards

_KEPT = KeptCoder()


class Cell:
    """A cell of state, which holds bytes as an engine's does."""

    def __init__(self, coder: Coder = _KEPT) -> None:
        self._coder = coder
        self.data: bytes | None = None

    def read(self) -> Any:
        return None if self.data is None else self._coder.decode(self.data)

    def write(self, data: Any) -> None:
        self.data = self._coder.encode(data)


class Bag:
    """A bag of state."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def add(self, entry: bytes) -> None:
        self.entries.append(entry)

    def read(self) -> list[bytes]:
        return list(self.entries)

    def clear(self) -> None:
        self.entries.clear()


class Timer:
    """A timer that is fired by hand: when it is set for, in microseconds; None: it is not."""

    at: int | None = None

    def set(self, moment: Any) -> None:
        self.at = moment.micros


class TickShards:
    """A streaming count at the ticks of a clock, whose shards have a state each."""

    def __init__(self, counting: CountEachTick) -> None:
        self._counting, self._shards = counting, counting._plan.shards
        counting.setup()
        states = [(Bag(), Cell(), Timer(), Bag()) for _ in range(self._shards)]
        self.arrived, self.cells, self.timers, self.later = zip(*states, strict=True)

    def seed(self) -> None:
        """Start the clock."""
        for shard in range(self._shards):
            self.take((shard, SEED))

    def take(self, element: tuple[int, bytes]) -> None:
        """What arrives at a shard."""
        at = element[0]
        self._counting.process(element, self.arrived[at], self.cells[at], self.timers[at])

    def release(self, shard: int = 0) -> list[Any]:
        """The releases of a shard's next tick."""
        timer = self.timers[shard]
        timer.at = None
        states = self.arrived[shard], self.cells[shard], timer, self.later[shard]
        return [made.value for made in self._counting.release(shard, GlobalWindow(), *states)]

    def tick(self) -> list[Any]:
        """The same of all shards."""
        return [made for shard in range(self._shards) for made in self.release(shard)]

    def advance(self, micros: int) -> Iterator[Any]:
        """The releases of all timers that are due; a timer that one sets may be due, too."""
        for shard, timer in enumerate(self.timers):
            while timer.at is not None and timer.at <= micros:
                yield from self.release(shard)


class PeopleShards:
    """The DoFns that bound people in a stream, one after the other; a state for each shard.

    `cells`, `bags` and `timers` are by shard; a shard is seeded when the first event reaches it.
    """

    def __init__(self, sending: SendToShards, bounding: Any) -> None:
        self.cells: dict[int, Cell] = {}
        self.bags: dict[int, Bag] = {}
        self.timers: dict[int, Timer] = {}
        self.resume(sending, bounding)

    def resume(self, sending: SendToShards, bounding: Any) -> None:
        """Go on with other DoFns, as a worker does that a savepoint is restored on."""
        self._sending, self._bounding = sending, bounding
        for dofn in (sending, bounding):
            dofn.setup()

    def bundle(self, events: Iterable[Any]) -> list[Any]:
        """What comes of windowed events that are a bundle both to one DoFn and to the other."""
        self._sending.start_bundle()
        self._bounding.start_bundle()
        sent = [each for event in events for each in self._sending.process(event.value, event)]
        made: list[Any] = []
        for batch in (*sent, *self._sending.finish_bundle()):
            if batch.value[0] not in self.cells:
                made += self.take((batch.value[0], SEED))
            made += self.take(batch.value)
        return [*made, *self._bounding.finish_bundle()]

    def take(self, element: tuple[int, bytes]) -> Iterable[Any]:
        """What comes of one element of a shard, before its bundle ends."""
        cell = self.cells.setdefault(element[0], Cell())
        bag = self.bags.setdefault(element[0], Bag())
        if not isinstance(self._bounding, BoundPeriods):
            return self._bounding.process(element, cell, bag)
        timer = self.timers.setdefault(element[0], Timer())
        return self._bounding.process(element, cell, bag, timer)

    def advance(self, micros: int) -> None:
        """Fire all timers that are due at a time."""
        for shard, timer in self.timers.items():
            while timer.at is not None and timer.at <= micros:
                timer.at = None
                self._bounding.close(self.cells[shard], self.bags[shard], timer)

    @property
    def size(self) -> int:
        """Bytes of all states."""
        cells = sum(len(cell.data or b"") for cell in self.cells.values())
        return cells + sum(len(entry) for bag in self.bags.values() for entry in bag.entries)
