"""The DoFns that count vectors of keys that nobody listed: see `shards`."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.shards import CountAllShards, CountShards, SumShards
from beam_dpcount.dofns.ticks import TickIntake
from beam_dpcount.states.all_shards import FRESH, AggregateShardPlan, AllVectorShards
from beam_dpcount.states.selected_shards import SelectedVectors
from beam_dpcount.states.tick_shards import TickShard


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


class CountAllVectorShards(CountAllShards):
    """Bounded, after the grouping: all TickReleases of a group's keys that are shown."""

    _kind = AllVectorShards
    _release = TickRelease
