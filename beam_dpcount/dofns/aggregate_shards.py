"""The DoFns that count vectors of keys that nobody listed: see `shards`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import numpy as np

from beam_dpcount.dofns.aggregates import add_all
from beam_dpcount.dofns.pending import tick_of
from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.shards import GATHERED, CountAllShards, CountShards, SumShards
from beam_dpcount.dofns.ticks import TickIntake
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.states.all_shards import (
    FRESH,
    AggregateShardPlan,
    AllVectorShards,
    dense,
    shard_of,
)
from beam_dpcount.states.codecs import ShardCodec
from beam_dpcount.states.wire import batches_of, tick_of_batch

_WindowedValue: Any = beam.DoFn.WindowedValueParam


class SumVectorShards(SumShards):
    """(key, value) to (group, sums of keys' ticks), as SumShards."""

    def __init__(self, intake: TickIntake, groups: int, ticks_apart: bool, width: int) -> None:
        super().__init__(intake, groups, ticks_apart)
        self._width = width

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        windows, micros = windowed.windows, windowed.timestamp_micros
        read: Any = self._intake.read(element, micros, windows)
        if read is None:
            return ()
        key, step, additions = read
        group = 0 if self._groups == 1 else shard_of(key, self._groups)
        place = self._intake.origin, step if self._ticks_apart else 0, group
        found = self._sums.get(place)
        if found is None:
            found = self._sums[place] = [windows, micros, {}]
        elif micros < found[1]:
            found[1] = micros
        sums, first = found[2], (step - 1) * self._width + 1
        for coordinate, x in additions:
            entry = key, first + coordinate
            sums[entry] = sums.get(entry, 0) + x
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()


class CountVectorShards(CountShards):
    """Streaming: at each tick the TickReleases of a shard's keys that are shown, by key."""

    _plan: AggregateShardPlan

    def _tick_of(self, batch: bytes) -> int:
        return tick_of(tick_of_batch(batch), self._plan.joint.width)

    def _codec_of(self) -> ShardCodec:
        plan, size = self._plan, self._draws.digest_size
        return ShardCodec(plan.counter, plan.said, plan.clock, size, np.uint8)

    def _added_up(self, due: bytes) -> dict[str, IntArray]:
        return add_vectors(due, self._plan.limits)

    def _made(self, key: str, step: int, micros: int, value: Any, stddev: float) -> Any:
        sums, since = value
        (made,) = self._plan.reading.rows(
            key, step, sums[None], np.array([stddev]), int(since <= FRESH)
        )
        return TickRelease(*made)


def add_vectors(joined: bytes, limits: IntArray) -> dict[str, IntArray]:
    """The vector of each key in joined batches, clipped; sorted by key."""
    width = len(limits)
    sums: dict[str, dict[int, int]] = {}
    for keys, steps, xs in batches_of(joined):
        found = zip(keys, (steps - 1) % width, xs.tolist(), strict=True)
        for key, column, x in found:
            add_all(sums.setdefault(key, {}), ((int(column), x),))
    return {key: dense(sums[key], limits) for key in sorted(sums)}


class CountAllVectorShards(CountAllShards):
    """Bounded, after the grouping: all TickReleases of a group's keys that are shown."""

    _kind = AllVectorShards
    _release = TickRelease
