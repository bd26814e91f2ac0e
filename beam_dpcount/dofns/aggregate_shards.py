"""The DoFns that count vectors of keys that nobody listed: see `shards`."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_dpcount.dofns.aggregates import add_all
from beam_dpcount.dofns.pending import tick_of
from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.shards import CountAllShards, CountShards, SelectedShard, SumShards
from beam_dpcount.dofns.tick_shards import TickShard
from beam_dpcount.dofns.ticks import TickIntake
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.states.all_shards import (
    FRESH,
    AggregateShardPlan,
    AllVectorShards,
    dense,
)
from beam_dpcount.states.codecs import ShardCodec
from beam_dpcount.states.wire import batches_of, tick_of_batch


class SumVectorShards(SumShards):
    """(key, value) to (group, sums of keys' ticks), as SumShards."""

    def __init__(self, intake: TickIntake, groups: int, ticks_apart: bool, width: int) -> None:
        super().__init__(intake, groups, ticks_apart)
        self._width = width

    def _add(self, sums: dict[tuple[str, int], int], key: str, step: int, x: Any) -> None:
        first = (step - 1) * self._width + 1
        for coordinate, number in x:
            entry = key, first + coordinate
            sums[entry] = sums.get(entry, 0) + number


class CountVectorShards(CountShards):
    """Streaming: at each tick the TickReleases of a shard's keys that are shown, by key."""

    _plan: AggregateShardPlan

    def _shard(self, shard: int) -> TickShard:
        return SelectedVectors(self._plan, shard, self._draws, self._stddevs)

    def _made(self, key: str, step: int, micros: int, value: Any, stddev: float) -> Any:
        sums, since = value
        (made,) = self._plan.reading.rows(
            key, step, sums[None], np.array([stddev]), int(since <= FRESH)
        )
        return TickRelease(*made)


class SelectedVectors(SelectedShard):
    """A shard of keys that nobody listed, with vectors."""

    _plan: AggregateShardPlan

    def _codec_of(self, plan: Any, digest_size: int) -> ShardCodec:
        return ShardCodec(plan.counter, plan.said, plan.clock, digest_size, np.uint8)

    def _tick_of(self, data: bytes) -> int:
        return tick_of(tick_of_batch(data), self._plan.joint.width)

    def _added_up(self, due: bytes) -> dict[str, IntArray]:
        return add_vectors(due, self._plan.limits)


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
