"""The DoFns that count keys that nobody listed, and show those whose count is high enough.

Keys are spread over public shards, each of which has releases or none, and no one can tell which
keys are in it: one cell of state holds the columns of all of its keys, with one timer a tick.

A cell a key would not do, even hidden: it would be made at the key's first event, so that a later
one, too late for its tick, would be folded into the next if the key were known, and else counted at
its own tick. One event would decide how another counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.dofns.horizon import Horizon
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.ticks import GATHERED, SEED, CountEachTick, TickIntake
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.dofns.windows import window_from
from beam_dpcount.states.all_shards import AllShards, ShardPlan, shard_of
from beam_dpcount.states.selected_shards import SelectedShard
from beam_dpcount.states.tick_shards import TickShard
from beam_dpcount.states.wire import origin_of_batch, pack_batch

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
