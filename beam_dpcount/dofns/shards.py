"""The DoFns that count keys that nobody listed, and show those whose count is high enough.

Keys are spread over public shards, each of which has releases or none, and no one can tell which
keys are in it: one cell of state holds the columns of all of its keys, with one timer a tick.

A cell a key would not do, even hidden: it would be made at the key's first event, so that a later
one, too late for its tick, would be folded into the next if the key were known, and else counted at
its own tick. One event would decide how another counts.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isqrt
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.dofns.horizon import Horizon
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.tick_shards import TickShard, window_from
from beam_dpcount.dofns.ticks import GATHERED, SEED, CountEachTick, TickIntake
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.noise.entropy import Draws
from beam_dpcount.states.all_shards import AllShards, ShardPlan, shard_of
from beam_dpcount.states.codecs import ShardCodec
from beam_dpcount.states.wire import batches_of, origin_of_batch, pack_batch, tick_of_batch

_NEAR = 64  # ticks of a backlog that a cell holds, at least: all of it is written at each tick
_UNTIL = 0  # no tick: where a cell says up to which tick the bag holds nothing
_TICK = struct.Struct("<q")

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
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
        origin = self._intake.origin
        place = origin, step if self._ticks_apart else 0, group
        found = self._sums.get(place)
        if found is None:
            # On the streaming path ticks are those of all windows, as for ReadTicks.
            passed = self._intake.clock.passed_at(origin) if self._ticks_apart else 0
            found = self._sums[place] = [windows, micros, passed, {}]
        elif micros < found[1]:
            found[1] = micros
        self._add(found[3], key, found[2] + step, x)
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()

    def _add(self, sums: dict[tuple[str, int], int], key: str, step: int, x: Any) -> None:
        """Add what an event counts of a key in a tick."""
        entry = key, step
        sums[entry] = sums.get(entry, 0) + x

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        made = [
            _placed((group, pack_batch(sums, origin)), micros, windows)
            for (origin, _, group), (windows, micros, _, sums) in self._sums.items()
        ]
        self.start_bundle()
        return made


class CountShards(CountEachTick):
    """Streaming: at each tick the releases of a shard's keys that are shown, sorted by key."""

    def setup(self) -> None:
        super().setup()
        self._stddevs = self._plan.counter.stddevs(self._plan.clock.steps).tolist()

    def _shard(self, shard: int) -> TickShard:
        return SelectedShard(self._plan, shard, self._draws, self._stddevs)


class SelectedShard(TickShard):
    """A shard of keys that nobody listed: their columns, and one digest.

    Args:
      plan, shard, draws: what counts which shard, with what noise.
      stddevs: of all ticks of a window.
    """

    _no_pending: Mapping[int, bytes] = {}

    def __init__(self, plan: ShardPlan, shard: int, draws: Draws, stddevs: Sequence[float]) -> None:
        super().__init__(plan, draws)
        self._name, self._stddevs = str(shard), stddevs
        self.codec = self._codec_of(plan, draws.digest_size)

    def _begun(self, window: Any) -> tuple[Any, bytes]:
        return self._plan.no_keys(), self._draws.begin(self._name, window)

    def _read(self, data: bytes) -> tuple[int, Any, dict[int, bytes]]:
        columns, pending = self.codec.decode(data)
        return columns.step, (columns, self.codec.digest_of(data)), pending

    def _packed(self, states: Any, front: bytes, pending: Mapping[int, bytes]) -> bytes:
        packed: bytes = self.codec.encode(*states, pending, front)
        return packed

    def _moved(self, data: bytes, tick: int) -> bytes:
        return data  # what a tick counts is added up, whatever tick it was of

    def _take(
        self,
        pending: dict[int, bytes],
        tick: int,
        due: list[bytes],
        early: dict[int, list[bytes]],
        later: Any,
    ) -> tuple[Any, dict[int, bytes]]:
        until = tick  # up to which tick all that is pending is in the cell, and not in the bag
        if _UNTIL in pending:
            (until,) = _TICK.unpack(pending[_UNTIL])
        if tick > until:
            del pending[_UNTIL]
            for part in later.read():
                early.setdefault(self._tick_of(part), []).append(part)
            later.clear()
            due += early.pop(tick, [])
        sums = self._added_up(b"".join([pending.pop(tick, b""), *due]))
        if _UNTIL not in pending:
            until = tick + max(_NEAR, isqrt(len(early)))
        for at, parts in sorted(early.items()):
            if at <= until:
                pending[at] = b"".join([pending.get(at, b""), *parts])
            else:
                later.add(b"".join(parts))
                pending[_UNTIL] = _TICK.pack(until)
        return sums, pending

    def _step(
        self, states: Any, window: Any, step: int, x: Any
    ) -> tuple[Any, Iterable[tuple[str, Any]], float]:
        *states, shown = self._plan.tick(self._draws, window, *states, x)
        return states, shown, self._stddevs[step - 1]

    # What of it is of numbers.

    def _codec_of(self, plan: Any, digest_size: int) -> ShardCodec:
        return ShardCodec(plan.counter, plan.said, plan.clock, digest_size)

    def _tick_of(self, data: bytes) -> int:
        return tick_of_batch(data)

    def _added_up(self, due: bytes) -> Any:
        """What a tick adds to each key, sorted by key."""
        return add_batches(due, self._plan.cap)


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
