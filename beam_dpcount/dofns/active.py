"""People who are active: a person's events, as the ticks at which the person starts and stops.

In a stream a shard of people decides who is active in a tick when its timer says that the tick has
ended, and says so to the one counter of all keys: always in one message, whatever there is to say.
The counter releases a tick once it has the messages of all shards, so that none can come too late:
a lost +1 whose -1 stays would no longer alternate.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.counters.periods import Periods
from beam_dpcount.dofns.horizon import Horizon
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.dofns.users import EVERYWHERE, Bounding, SendToShards
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.dofns.windows import window_from
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.states.all_ticks import TickPlan, name_of, shards_of
from beam_dpcount.states.envelope import corrupt
from beam_dpcount.states.people import Active, ActivityCodec, Mark
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.tick_shards import KeyShard
from beam_dpcount.states.wire import (
    PAIR,
    parcel_of,
    record_of,
    records_of,
    step_of,
    time_of,
)

_TICK = struct.Struct("<q")
_MILLI = 1000  # microseconds
_BITS = 62  # of a number, in which shards that have spoken are noted

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_Key: Any = beam.DoFn.KeyParam
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

        It depends on the ticks of that person's events, and never on when they arrived. Of those
        that begin in one tick, the keys decide: a stream does not know yet how long each will be.
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
        return sorted(found, key=lambda one: (one.first, one.key))[: self.intervals]

    def counted(self, interval: Interval) -> Iterator[tuple[int, int]]:
        """The ticks at which an interval counts, and what it adds there."""
        if not self.changes:
            yield from ((t, 1) for t in range(interval.first, min(interval.last, self.ticks) + 1))
            return
        yield interval.first, 1
        if interval.last < self.ticks:
            yield interval.last + 1, -1


class BoundingActive(Bounding):
    """What bounds events of people whose activity counts.

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

    def _events(
        self, entries: Iterable[bytes], seen: Callable[[int], Seen]
    ) -> Iterator[tuple[int, str]]:
        """The ticks and keys of a person's events that count.

        An event in ticks and keys where the person counts already takes nothing of the bound.

        Args:
          entries: the events.
          seen: what counts of the person in a period; it is changed.
        """
        active: dict[int, set[tuple[int, str]]] = defaultdict(set)
        for entry in self._parcels.ordered(entries):
            period = 0 if self._periods is None else self._periods.of(time_of(entry))
            parcel = parcel_of(entry)
            names = self._parcels.names(parcel)
            all_of_it = self._parcels.unwrap(parcel, range(len(names)))
            places = [(PAIR.unpack(packed)[0], key) for key, packed in all_of_it]
            if active[period].issuperset(places):
                continue
            for place in self._bound.take(seen(period), names, time_of(entry)):
                active[period].add(places[place])
                yield places[place]


def _same(seen: Seen, period: int) -> Seen:
    """What counts of a person, of whom one period is left."""
    return seen


class BoundActive(BoundingActive):
    """Bounded: what the activity of each person of a shard adds to the ticks of its keys."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        people: dict[bytes, list[bytes]] = defaultdict(list)
        for joined in element[1]:
            for name, entry in records_of(joined):
                people[name].append(entry)
        for name, entries in people.items():
            if not name:
                continue
            micros = min(map(time_of, entries))
            seen = defaultdict[int, Seen](Seen)
            events = self._events(entries, seen.__getitem__)
            for interval in self._activity.intervals_of(events):
                for tick, x in self._activity.counted(interval):
                    yield _placed((interval.key, PAIR.pack(tick, x)), micros, EVERYWHERE)


class SendTicks(SendToShards):
    """Streaming: events to shards, each tick behind its number and at its last millisecond.

    So the watermark waits for what is on its way, and together with a late event no other is late.
    Of a person's equal events of a bundle the earliest travels: the others cannot count.
    """

    def __init__(self, *how: Any, clock: Grid) -> None:
        super().__init__(*how)
        self._clock = clock

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        made = []
        for each in super()._flushed():
            shard, joined = each.value
            ticks = defaultdict[int, dict[tuple[bytes, bytes], bytes]](dict)
            for name, entry in records_of(joined):
                parcel = parcel_of(entry)
                known = ticks[step_of(parcel)]
                known[name, parcel] = min(entry, known.get((name, parcel), entry))
            for tick, known in ticks.items():
                records = [record_of(name, entry) for (name, _), entry in known.items()]
                micros = self._clock.alarm(self._clock.start, tick) - _MILLI
                made.append(
                    _placed((shard, _TICK.pack(tick) + b"".join(records)), micros, EVERYWHERE)
                )
        return made


class ActiveShards(BoundingActive):
    """Streaming: who is active in each tick, decided when it has ended, by the timer of the shard.

    Events wait for the end of their tick; those that come after it never count. Only a seed begins
    a shard, and sets the first timer, and each timer sets the next. A row is forgotten when its
    person is no longer active, and no rule has to know of it.

    At each tick a shard says how many people are active for each key, or how many more than in the
    tick before, in one message to the counter of each shard of keys.

    Args:
      bound, parcels, periods, activity: as for BoundActive.
      placement: as for the SendTicks before.
      clock: the ticks.
      keys: the public keys, in their order.
    """

    CELL = ReadModifyWriteStateSpec("shard", BytesCoder())
    PIECES = BagStateSpec("people", BytesCoder())
    ARRIVED = BagStateSpec("arrived", BytesCoder())
    TIMER = TimerSpec("tick", TimeDomain.WATERMARK)

    def __init__(
        self,
        bound: Bound,
        parcels: Parcels,
        placement: Placement,
        periods: Periods | None = None,
        *,
        activity: Activity,
        clock: Grid,
        keys: Sequence[str],
    ) -> None:
        super().__init__(bound, parcels, activity, periods)
        self._placement, self._clock, self._keys = placement, clock, tuple(keys)

    def setup(self) -> None:
        rule, placement = self._activity, self._placement
        more = ascii((rule.active, rule.intervals, self._clock.fingerprint, self._keys))
        people = placement.shards, placement.fingerprint
        self._codec = ActivityCodec(self._bound, *people, self._periods, more)
        self._names = [key.encode("utf-8", "surrogatepass") for key in self._keys]
        self._places = {key: place for place, key in enumerate(self._keys)}

    def process(
        self,
        element: tuple[int, bytes],
        cell: Any = beam.DoFn.StateParam(CELL),
        arrived: Any = beam.DoFn.StateParam(ARRIVED),
        timer: Any = beam.DoFn.TimerParam(TIMER),
    ) -> None:
        if element[1] != SEED:
            arrived.add(element[1])
            return
        before = cell.read()
        mark = self._codec.begin() if before is None else self._codec.mark(before)
        if before is None:
            cell.write(self._codec.cell(mark))
        self._set(timer, mark.closed + 1)

    @on_timer(TIMER)
    def close(
        self,
        shard: Any = _Key,
        cell: Any = beam.DoFn.StateParam(CELL),
        pieces: Any = beam.DoFn.StateParam(PIECES),
        arrived: Any = beam.DoFn.StateParam(ARRIVED),
        timer: Any = beam.DoFn.TimerParam(TIMER),
    ) -> Iterator[Any]:
        codec, clock = self._codec, self._clock
        mark = codec.mark(cell.read() or b"")
        step = mark.closed + 1
        if clock.place_of(step) is None:
            return
        held = [*pieces.read()]
        rows = codec.active(mark, held)
        before = self._active(rows, step - 1) if self._activity.changes else 0
        rows = self._next(mark, rows, step, self._due(arrived, step))
        sums = self._active(rows, step) - before
        mark, written = codec.rewritten(mark, rows, self._stays(rows, step))
        if held:
            pieces.clear()
        for piece in written:
            pieces.add(piece)
        cell.write(codec.cell(mark))
        self._set(timer, step + 1)
        parts, micros = shards_of(len(self._keys), 1), clock.end(clock.start, step)
        for part in range(parts):
            said = PAIR.pack(step, shard) + sums[part::parts].tobytes()
            yield _placed((part, said), micros, EVERYWHERE)

    def _due(self, arrived: Any, step: int) -> list[tuple[bytes, bytes]]:
        """The (person, entry) pairs of a tick, of those that have arrived."""
        batches = [*arrived.read()]
        later = [batch for batch in batches if _TICK.unpack_from(batch)[0] > step]
        # Else they are of a backlog, which is not written at each tick.
        if batches and 2 * len(later) <= len(batches):
            arrived.clear()
            for batch in later:
                arrived.add(batch)
        due = [batch for batch in batches if _TICK.unpack_from(batch)[0] == step]
        return [record for batch in due for record in records_of(batch[_TICK.size :])]

    def _next(
        self, mark: Mark, rows: Active, step: int, due: Iterable[tuple[bytes, bytes]]
    ) -> Active:
        """The rows after a tick with these events."""
        people: dict[bytes, list[bytes]] = defaultdict(list)
        for name, entry in due:
            people[name].append(entry)
        found = {mark.person(name): entries for name, entries in people.items()}
        known = defaultdict[bytes, dict[int, int]](dict)
        for at, who in self._codec.rows_of(rows.people, found):
            known[who][int(rows.places[at])] = at
        _, places, lasts, counts = rows
        first, limit = self._first(step), self._activity.intervals
        last, new = step + self._activity.active - 1, list[tuple[bytes, int]]()
        for who, entries in found.items():
            mine = known[who]
            begun = sum(int(counts[at]) for at in mine.values())
            # What counts of a period before is over.
            so_far = {
                place: int(counts[at])
                for place, at in mine.items()
                if lasts[at] - self._activity.active + 1 >= first
            }
            seen = Seen(sum(so_far.values()), {self._names[at]: n for at, n in so_far.items()})
            events = self._events(entries, partial(_same, seen))
            for key in sorted({key for _, key in events}):
                place = self._places[key]
                row = mine.get(place)
                begins = row is None or lasts[row] < step - 1
                if limit is not None and begins:
                    if begun == limit:
                        continue
                    begun += 1
                if row is None:
                    new.append((who, place))
                    continue
                lasts[row] = last
                counts[row] = so_far.get(place, 0) + (1 if limit is None else begins)
        more = np.full(len(new), last)
        return Active(
            rows.people + b"".join(who for who, _ in new),
            np.append(places, np.array([place for _, place in new], dtype=np.int64)),
            np.append(lasts, more),
            np.append(counts, np.ones_like(more)),
        )

    def _active(self, rows: Active, step: int) -> IntArray:
        """How many people are active for each key in a tick."""
        return np.bincount(rows.places[rows.lasts >= step], minlength=len(self._keys))

    def _stays(self, rows: Active, step: int) -> Any:
        """Whether something may still depend on each row once a tick is closed."""
        if self._periods is None:  # what counts of a person counts in the whole stream
            return np.ones(len(rows.lasts), dtype=np.bool_)
        in_period = rows.lasts - self._activity.active + 1 >= self._first(step + 1)
        return (rows.lasts >= step) | in_period

    def _first(self, step: int) -> int:
        """The first tick of the period that a tick is of; 1 if there are no periods."""
        clock, periods = self._clock, self._periods
        if periods is None:
            return 1
        begins = periods.starts[periods.of(clock.borders(step, 1)[0])]
        return clock.tick_of(max(begins, clock.start))

    def _set(self, timer: Any, step: int) -> None:
        """Set the timer of a tick, if there is one."""
        if self._clock.place_of(step) is not None:
            timer.set(Timestamp(micros=self._clock.alarm(self._clock.start, step)))


class CountTogether(VersionedDoFn):
    """Streaming: the releases of a shard of keys at a tick, once all shards of people have spoken.

    The keys are in the shards of CountEachTick. A cell holds their counters, side by side, and what
    waits: a row for each tick of which some have spoken, with its number, a bit for each that has,
    and the sum of each key. How many have would not do: one twice and another never are as many.

    Args:
      plan: what counts.
      people: how many shards of people there are.
    """

    STATE = ReadModifyWriteStateSpec("together", BytesCoder())

    def __init__(self, plan: TickPlan, people: int) -> None:
        self._plan, self._people = plan, people

    def setup(self) -> None:
        plan, self._draws = self._plan, self._plan.draws("streaming")
        self._shards = [KeyShard(plan, shard, self._draws) for shard in range(plan.shards)]
        self._all = [
            (1 << min(_BITS, self._people - first)) - 1 for first in range(0, self._people, _BITS)
        ]
        self._horizon = Horizon(plan.clock)
        self._window = window_from(plan.clock, plan.clock.start)

    def process(
        self, element: tuple[int, bytes], cell: Any = beam.DoFn.StateParam(STATE)
    ) -> list[Any]:
        mine, data = self._shards[element[0]], cell.read()
        codec = mine.codec
        if data is None:
            data = codec.encode(*mine.begun(self._window))
        state, digests = codec.decode(data), codec.digest_of(data)
        words = len(self._all)
        rows = np.frombuffer(codec.memory_of(data), "<i8").reshape(-1, 1 + words + mine.size)
        waiting = {int(row[0]): row[1:].copy() for row in rows}
        step, shard, *sums = np.frombuffer(element[1], "<i8").tolist()
        row = waiting.setdefault(step, np.zeros(words + mine.size, dtype=np.int64))
        word, bit = divmod(shard, _BITS)
        if step <= state[0] or row[word] >> bit & 1:  # a shard has spoken twice
            raise corrupt()
        row[word] |= 1 << bit
        row[words:] += sums
        made = list[Any]()
        while (ready := waiting.get(state[0] + 1)) is not None:
            if ready[:words].tolist() != self._all:
                break
            del waiting[state[0] + 1]
            x = mine.clipped(ready[words:])
            (state, digests), values, stddev = mine.step(
                (state, digests), self._window, state[0] + 1, x
            )
            made += self._releases(state[0], values, stddev)
            if element[0] == 0:  # all shards have the same ticks
                self._horizon.passed(state[0])
        memory = b"".join(_TICK.pack(tick) + row.tobytes() for tick, row in waiting.items())
        # State first: what is returned must never be ahead of what is remembered.
        cell.write(codec.encode(state, digests, memory))
        return made

    def _releases(
        self, step: int, values: Iterable[tuple[str, float]], stddev: float
    ) -> Iterator[Any]:
        clock, name = self._plan.clock, name_of(self._plan)
        micros = clock.end(clock.start, step)
        at = min(micros, self._window.max_timestamp().micros)
        for key, value in values:
            yield _placed(Release(key, step, micros, value, stddev, name), at, EVERYWHERE)
