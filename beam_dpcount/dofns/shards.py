"""The DoFns that count keys that nobody listed, and show those whose count is high enough.

Keys are spread over public shards, each of which has releases or none, and no one can tell which
keys are in it: one cell of state holds the columns of all of its keys, with one timer a tick.

A cell a key would not do, even hidden: it would be made at the key's first event, so that a later
one, too late for its tick, would be folded into the next if the key were known, and else counted at
its own tick. One event would decide how another counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import apache_beam as beam
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

from beam_dpcount.dofns.horizon import Horizon
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.ticks import SEED, TickIntake, origin_of, window_from
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.states.all_shards import AllShards, ShardPlan, shard_of
from beam_dpcount.states.all_ticks import name_of, restart_of
from beam_dpcount.states.codecs import ShardCodec
from beam_dpcount.states.wire import batches_of, origin_of_batch, pack_batch, tick_of_batch

GATHERED = 1 << 17  # events that a bundle sums up before it passes the sums on

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_Key: Any = beam.DoFn.KeyParam
_Window: Any = beam.DoFn.WindowParam
_WindowedValue: Any = beam.DoFn.WindowedValueParam
_placed: Any = windowed_value.create


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

    _kind: ClassVar[Any] = AllShards
    _release: ClassVar[Any] = Release

    def __init__(self, plan: ShardPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        self._all, self._horizon = self._kind(self._plan), Horizon(self._plan.clock)

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        (group, everything), clock = element, self._plan.clock
        if group == 0:
            self._horizon.reached(clock.all_ended(self._plan.until))
        found: dict[int, list[bytes]] = defaultdict(list)
        for packed in everything:
            if packed != SEED:
                found[origin_of_batch(packed)].append(packed)
        windows = (GlobalWindow(),)
        for origin in sorted(found):
            names, sums = self._all.joined(found.pop(origin))
            window = window_from(clock, origin)
            last = window.max_timestamp().micros
            for row in self._all.rows(names, sums, origin, window):
                made = self._release(*row)
                micros = made.timestamp
                yield _placed(made, micros if micros < last else last, windows)
