"""The DoFns that count keys that nobody listed, and show those whose count is high enough.

Keys are spread over public shards, each of which has releases or none, and no one can tell which
keys are in it: one cell of state holds the columns of all of its keys, with one timer a tick.

A cell a key would not do, even hidden: it would be made at the key's first event, so that a later
one, too late for its tick, would be folded into the next if the key were known, and else counted at
its own tick. One event would decide how another counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

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
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.counters.columns import Columns, NoiseOf, Sums, advance, all_ticks, counted
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.selection import Selection
from beam_dpcount.dofns.horizon import Horizon
from beam_dpcount.dofns.placement import shard_of
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.ticks import SEED, TickIntake, origin_of, window_from
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.noise.entropy import Draws, Entropy, Noise
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.states.all_ticks import name_of, restart_of
from beam_dpcount.states.codecs import ShardCodec
from beam_dpcount.states.wire import batches_of, origin_of_batch, pack_batch, tick_of_batch

GATHERED = 1 << 17  # events that a bundle sums up before it passes the sums on
SIDE_BY_SIDE = 1 << 13  # keys whose ticks are computed together: their vectors stay in the cache

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_Key: Any = beam.DoFn.KeyParam
_Window: Any = beam.DoFn.WindowParam
_WindowedValue: Any = beam.DoFn.WindowedValueParam
_placed: Any = windowed_value.create


@dataclass(frozen=True)
class ShardPlan:
    """What counts which events of keys that nobody listed, and shows them.

    Args:
      selection: each key's counter, and when it is shown.
      clock: the ticks.
      cap: a tick's sum is clipped to +-cap, on the lattice.
      fold: events of ticks already released count at the next one; else they do not count.
      entropy: where the noise comes from.
      shards: over how many keys are spread.
      counted: what else decides which events count, for replayable noise and for states.
      alone: on the bounded path, whether each shard is a group of its own, as for `groups_of`.
      until, names, numbered: as for TickPlan.
    """

    selection: Selection
    clock: Grid
    cap: int
    fold: bool
    entropy: Entropy
    shards: int
    counted: Any = None
    alone: bool = False
    until: int | None = None
    names: Sequence[str] | None = None
    numbered: bool = False

    @property
    def counter(self) -> Counter:
        """Of each key."""
        return self.selection.counter

    @property
    def said(self) -> str:
        """All but counter and clock that decides what is shown, as text."""
        fingerprint = self.selection.fingerprint
        return ascii((fingerprint, self.shards, self.cap, self.fold, self.counted))

    def draws(self, path: str) -> Draws:
        """The noise of the counters, another on each path; see `TickPlan.draws`."""
        counter = self.counter
        parameters = ascii((path, self.clock, self.said, counter.fingerprint))
        return self.entropy.draws(counter.law, None, parameters)

    def tick(
        self, draws: Draws, window: Any, columns: Columns, digest: bytes, sums: dict[str, Any]
    ) -> tuple[Columns, bytes, list[tuple[str, Any]]]:
        """A shard's next tick: its columns and digest after it, and the keys that are shown.

        Args:
          draws, window: where the noise comes from.
          columns, digest: the shard's so far.
          sums: what the tick adds to each key, sorted by key.
        """
        digest = draws.follow(digest, NO_ID, self.history_of(columns.step + 1, sums))
        columns, shown = self.advance(
            columns, sums, lambda keys: self.noise(draws, keys, window, digest)
        )
        return columns, digest, shown

    # What of it is of numbers; vectors have others.

    def no_keys(self) -> Columns:
        """The columns of a shard before its first tick."""
        return Columns()

    def history_of(self, step: int, sums: dict[str, Any]) -> bytes:
        """What a tick adds to the history of a shard: all keys that it counts something of."""
        return pack_batch({(key, step): x for key, x in sums.items()}) if sums else b""

    def noise(self, draws: Draws, keys: Sequence[str], window: object, digest: bytes) -> Noise:
        """The noise of keys, next to each other."""
        return draws.of_keys(keys, window, digest)

    def advance(self, columns: Columns, sums: Any, noise: NoiseOf) -> Any:
        """The columns a tick later, and what is shown."""
        return advance(self.selection, columns, sums, noise)


class SumShards(VersionedDoFn):
    """(key, value) to (group, sums of keys' ticks), one a group, window and bundle.

    Args:
      intake: what reads events.
      groups: over how many groups keys are spread.
      ticks_apart: streaming, sums of each tick travel apart, at a time within it: together with a
        late event, those that are in time would have its time, and might become late themselves.
    """

    def __init__(self, intake: TickIntake, groups: int, ticks_apart: bool) -> None:
        self._intake, self._groups, self._ticks_apart = intake, groups, ticks_apart

    def start_bundle(self) -> None:
        self._gathered = 0
        # By origin, tick and group: the windows, the earliest time, and the sums.
        self._sums: dict[tuple[int, int, int], list[Any]] = {}

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        windows, micros = windowed.windows, windowed.timestamp_micros
        read = self._intake.read(element, micros, windows)
        if read is None:
            return ()
        key, step, x = read
        group = 0 if self._groups == 1 else shard_of(key, self._groups)
        place = self._intake.origin, step if self._ticks_apart else 0, group
        found = self._sums.get(place)
        if found is None:
            found = self._sums[place] = [windows, micros, {}]
        elif micros < found[1]:
            found[1] = micros
        sums, entry = found[2], (key, step)
        sums[entry] = sums.get(entry, 0) + x
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        made = [
            _placed((group, pack_batch(sums, origin)), micros, windows)
            for (origin, _, group), (windows, micros, sums) in self._sums.items()
        ]
        self.start_bundle()
        return made


class CountShards(VersionedDoFn):
    """Streaming: at each tick the releases of a shard's keys that are shown, sorted by key."""

    ARRIVED = BagStateSpec("arrived", BytesCoder())
    STATE = ReadModifyWriteStateSpec("keys", BytesCoder())
    TIMER = TimerSpec("tick", TimeDomain.WATERMARK)

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        plan, self._draws = self._plan, self._plan.draws("streaming")
        self._codec = self._codec_of()
        self._horizon = Horizon(plan.clock)
        self._stddevs = plan.counter.stddevs(plan.clock.steps).tolist()

    def process(
        self,
        element: tuple[int, bytes],
        windowed: Any = _WindowedValue,
        arrived: Any = beam.DoFn.StateParam(ARRIVED),
        cell: Any = beam.DoFn.StateParam(STATE),
        timer: Any = beam.DoFn.TimerParam(TIMER),
    ) -> None:
        shard, data = element
        if data != SEED:
            arrived.add(data)  # the cell is large: it is read once a tick
            return
        # Only a seed starts a clock; see CountEachTick.
        window, before = windowed.windows[0], cell.read()
        if before is None:
            digest = self._draws.begin(str(shard), window)
            cell.write(self._codec.encode(self._plan.no_keys(), digest, {}))
        if before is None or not self._codec.open(before)[0]:
            self._set(timer, window, 1)

    @on_timer(TIMER)
    def release(
        self,
        shard: Any = _Key,
        window: Any = _Window,
        arrived: Any = beam.DoFn.StateParam(ARRIVED),
        cell: Any = beam.DoFn.StateParam(STATE),
        timer: Any = beam.DoFn.TimerParam(TIMER),
    ) -> Iterator[Any]:
        plan, codec = self._plan, self._codec
        clock, data = plan.clock, cell.read()
        columns, pending = codec.decode(data)
        origin, step = origin_of(clock, window), columns.step + 1
        steps = clock.steps_of(origin)
        if step > steps:
            return
        due = take_due(pending, arrived.read(), step, plan.fold, self._tick_of)
        arrived.clear()
        sums, digest = self._added_up(due), codec.digest_of(data)
        columns, digest, shown = plan.tick(self._draws, window, columns, digest, sums)
        # State first: what is yielded must never be ahead of what is remembered.
        cell.write(codec.encode(columns, digest, pending))
        if step < steps:
            self._set(timer, window, step + 1)
        stddev = self._stddevs[step - 1]
        tick, micros = clock.passed_at(origin) + step, clock.end(origin, step)
        if shard == 0:  # all shards have the same ticks
            self._horizon.passed(tick)
        last, windows = window.max_timestamp().micros, (window,)
        for key, value in shown:
            made = self._made(key, tick, micros, value, stddev)
            yield _placed(made, min(micros, last), windows)

    # What of it is of numbers.

    _tick_of = staticmethod(tick_of_batch)

    def _codec_of(self) -> ShardCodec:
        plan, size = self._plan, self._draws.digest_size
        return ShardCodec(plan.counter, plan.said, plan.clock, size)

    def _added_up(self, due: bytes) -> Any:
        """What a tick adds to each key, sorted by key."""
        return add_batches(due, self._plan.cap)

    def _made(self, key: str, step: int, micros: int, value: Any, stddev: float) -> Any:
        """A release; its step is numbered over the whole clock."""
        plan = self._plan
        return Release(key, step, micros, value, stddev, name_of(plan), restart_of(plan, step))

    def _set(self, timer: Any, window: Any, step: int) -> None:
        clock = self._plan.clock
        timer.set(Timestamp(micros=clock.alarm(origin_of(clock, window), step)))


def take_due(
    pending: dict[int, bytes],
    arrived: Iterable[bytes],
    step: int,
    fold: bool,
    tick_of: Callable[[bytes], int] = tick_of_batch,
) -> bytes:
    """What is due at a tick, as joined batches; what comes later stays in `pending`.

    Each batch that arrived since the last tick is of one tick. One of a tick before came too late:
    it counts now, with `fold`, and else not at all.
    """
    due = [pending.pop(step, b"")]
    for batch in arrived:
        at = tick_of(batch)
        if at > step:
            pending[at] = pending.get(at, b"") + batch
        elif at == step or fold:
            due.append(batch)
    return b"".join(due)


def add_batches(joined: bytes, cap: int) -> dict[str, int]:
    """The sum of each key in joined batches, clipped to +-cap; sorted by key."""
    sums: dict[str, int] = {}
    for keys, _, xs in batches_of(joined):
        for key, x in zip(keys, xs.tolist(), strict=True):
            sums[key] = sums.get(key, 0) + x
    return {key: min(max(sums[key], -cap), cap) for key in sorted(sums)}


class CountAllShards(VersionedDoFn):
    """Bounded, after the grouping: all releases of a group's keys that are shown.

    By window, then key, then time; never by what came first. The input is in the global window.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        plan, clock = self._plan, self._plan.clock
        self._draws = plan.draws("bounded")
        most = min(clock.steps, clock.all_ended(plan.until))  # of any count
        self._stddevs = plan.counter.stddevs(most).tolist()
        self._horizon = Horizon(clock)

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        group, everything = element
        if group == 0:
            self._horizon.reached(self._plan.clock.all_ended(self._plan.until))
        found: dict[int, list[bytes]] = defaultdict(list)
        for packed in everything:
            if packed != SEED:
                found[origin_of_batch(packed)].append(packed)
        replayed = self._draws.digest_size > 0  # of whatever there is, keys of few events too
        skipped = 0 if replayed else self._plan.selection.skipped
        for origin in sorted(found):
            names, sums = self._joined(found.pop(origin), skipped)
            made = self._replayed if replayed else self._all_ticks
            yield from made(group, names, sums, origin)

    def _joined(self, batches: list[bytes], skipped: int) -> tuple[list[str], Sums]:
        return joined_sums(batches, self._plan.cap, skipped)

    def _all_ticks(self, group: int, names: Any, sums: Sums, origin: int) -> Iterator[Any]:
        plan = self._plan
        selection, window = plan.selection, window_from(plan.clock, origin)
        sums = counted(sums, selection.skipped)
        there, places = np.unique(sums.places, return_inverse=True)
        for first in range(0, len(there), SIDE_BY_SIDE):
            last = min(first + SIDE_BY_SIDE, len(there))
            part = slice(*np.searchsorted(places, [first, last]))
            some = Sums(places[part] - first, sums.steps[part], sums.xs[part])
            keys = [names[i] for i in there[first:last].tolist()]
            noise = self._draws.of_keys(keys, window, b"")
            found = all_ticks(selection, some, len(keys), noise, self._ended(origin))
            for place, since, values in found:
                yield from self._placed(keys[place], since, values.tolist(), origin, window)

    def _replayed(self, group: int, names: Any, sums: Sums, origin: int) -> Iterator[Any]:
        """The releases that CountShards makes of these sums, tick after tick, shard by shard."""
        plan, draws = self._plan, self._draws
        window = window_from(plan.clock, origin)
        shards: dict[int, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
        for place, step, x in self._ticks_of(sums):
            shards[shard_of(names[place], plan.shards)][step][names[place]] = x
        series: dict[str, tuple[int, list[Any]]] = {}
        for shard, ticks in shards.items():
            columns, digest = plan.no_keys(), draws.begin(str(shard), window)
            for step in range(1, self._ended(origin) + 1):
                found = sorted(ticks.get(step, {}).items())
                tick = {key: self._addition(kept) for key, kept in found}
                columns, digest, shown = plan.tick(draws, window, columns, digest, tick)
                for key, value in shown:
                    series.setdefault(key, (step, []))[1].append(self._value_of(value))
        for key, (since, values) in sorted(series.items()):
            yield from self._placed(key, since, values, origin, window)

    def _ended(self, origin: int) -> int:
        """How many ticks of a count are released."""
        return self._plan.clock.ended(origin, self._plan.until)

    def _ticks_of(self, sums: Sums) -> Iterator[tuple[int, int, Any]]:
        """The place of a key, a tick, and what is kept of what it adds, for all of them."""
        return zip(*(array.tolist() for array in sums), strict=True)

    def _addition(self, kept: Any) -> Any:
        """What a tick adds to a key, of what was kept of it."""
        return kept

    def _value_of(self, shown: Any) -> Any:
        """The value of a key that `ShardPlan.tick` shows."""
        return shown

    def _placed(self, key: str, since: int, values: Any, origin: int, window: Any) -> Iterator[Any]:
        last, windows = window.max_timestamp().micros, (GlobalWindow(),)
        for made in self._made(key, since, values, origin):
            micros = made.timestamp
            yield _placed(made, micros if micros < last else last, windows)

    def _made(self, key: str, since: int, values: Any, origin: int) -> Iterator[Any]:
        """The releases of a key from a tick on."""
        clock, stddevs = self._plan.clock, self._stddevs
        passed, name = clock.passed_at(origin), name_of(self._plan)
        restart = restart_of(self._plan, passed + 1)
        for step, value in enumerate(values, start=since):
            micros = clock.end(origin, step)
            yield Release(key, passed + step, micros, value, stddevs[step - 1], name, restart)


def joined_sums(batches: Iterable[bytes], cap: int, skipped: int = 0) -> tuple[list[str], Sums]:
    """The keys of batches, sorted, and their sums, each tick's clipped to +-cap.

    Keys whose sums, none of them negative, do not exceed `skipped` are left out; or some of them.
    """
    known: dict[str, int] = {}
    columns: list[tuple[IntArray, IntArray, IntArray]] = []
    for batch in batches:
        for keys, steps, xs in batches_of(batch):
            found = [known.setdefault(key, len(known)) for key in keys]
            columns.append((np.array(found, dtype=np.int64), steps, xs))
    places, steps, xs = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    if skipped:  # most keys of a long tail: they are not even sorted
        totals = np.bincount(places, xs)  # floats, a little off where they are very large
        much = totals >= (skipped + 1) * (1 - 1e-9)
        names = sorted(name for name, is_much in zip(known, much.tolist(), strict=True) if is_much)
        there = much[places]
        places, steps, xs = places[there], steps[there], xs[there]
    else:
        names = sorted(known)
    ranks = np.zeros(len(known), dtype=np.int64)
    ranks[[known[name] for name in names]] = np.arange(len(names))
    places = ranks[places]
    order = np.lexsort((steps, places))
    places, steps, xs = places[order], steps[order], xs[order]
    is_first = np.ones(len(places), dtype=np.bool_)
    is_first[1:] = (places[1:] != places[:-1]) | (steps[1:] != steps[:-1])
    starts = np.flatnonzero(is_first)
    if len(xs) * int(np.abs(xs).max(initial=0)) <= LARGEST:
        sums = np.add.reduceat(xs, starts)
    else:  # beyond 64 bits
        ends = [*starts[1:].tolist(), len(xs)]
        exact = [sum(xs[a:b].tolist()) for a, b in zip(starts.tolist(), ends, strict=True)]
        sums = np.array([min(max(x, -cap), cap) for x in exact], dtype=np.int64)
    return names, Sums(places[starts], steps[starts], np.clip(sums, -cap, cap))
