"""The DoFns that count vectors of keys that nobody listed: see `shards`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import apache_beam as beam
import numpy as np

from beam_dpcount.counters.columns import Columns, NoiseOf, Sums
from beam_dpcount.counters.vector_columns import advance, all_ticks, no_keys
from beam_dpcount.dofns.aggregates import Reading, add_all
from beam_dpcount.dofns.clock import LARGEST
from beam_dpcount.dofns.pending_vectors import tick_of
from beam_dpcount.dofns.shards import (
    GATHERED,
    SIDE_BY_SIDE,
    CountAllShards,
    CountShards,
    ShardPlan,
    SumShards,
    joined_sums,
    shard_of,
)
from beam_dpcount.dofns.states import ShardCodec, batches_of, pack_batch, tick_of_batch
from beam_dpcount.dofns.ticks import window_from
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.entropy import Draws, Noise
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.statistics.metrics.joint import Joint

FRESH = 10  # ticks, from the one that shows a key on, in which no interval is given
_KEPT = 1 << 23  # noisy sums of keys that are computed together

_WindowedValue: Any = beam.DoFn.WindowedValueParam


@dataclass(frozen=True)
class AggregateShardPlan(ShardPlan):
    """A ShardPlan of vectors; the rest as for AggregatePlan."""

    _: KW_ONLY
    joint: Joint
    caps: tuple[int, ...]
    level: float

    @cached_property
    def limits(self) -> IntArray:
        """`caps` as an array."""
        return np.array(self.caps, dtype=np.int64)

    @cached_property
    def reading(self) -> Reading:
        """What makes releases of vectors."""
        return Reading(self.selection.counter, self.joint, self.level, self.clock.tick)

    @property
    def place(self) -> int:
        """Of the sum that shows a key."""
        return self.joint.tested or 0

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "_"}

    def noise(self, draws: Draws, keys: Sequence[str], window: Any, digest: bytes) -> Noise:
        """The noise of the vectors of many keys, next to each other."""
        # Each sum is a stream of its own.
        sums = [f"{place} {key}" for key in keys for place in range(self.joint.width)]
        return draws.of_keys(sums, window, digest)


class SumVectorShards(SumShards):
    """(key, value) to (group, sums of keys' ticks), as SumShards."""

    def __init__(self, intake: Any, groups: int, ticks_apart: bool, width: int) -> None:
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
    """Streaming: at each tick the AggregateReleases of a shard's keys that are shown, by key."""

    _plan: AggregateShardPlan

    def _tick_of(self, batch: bytes) -> int:
        return tick_of(tick_of_batch(batch), self._plan.joint.width)

    def _codec_of(self) -> ShardCodec:
        plan, size = self._plan, self._draws.digest_size
        return ShardCodec(plan.selection.counter, plan.said, plan.clock, size, np.uint8)

    def _nothing(self) -> Columns:
        return no_keys()

    def _added_up(self, due: bytes) -> dict[str, IntArray]:
        return add_vectors(due, self._plan.limits)

    def _said(self, step: int, sums: Any) -> bytes:
        return said_of(step, sums)

    def _noise(self, keys: Sequence[str], window: Any, digest: bytes) -> Noise:
        return self._plan.noise(self._draws, keys, window, digest)

    def _advance(self, columns: Columns, sums: Any, noise: NoiseOf) -> Any:
        return advance(self._plan.selection, columns, sums, noise, self._plan.place)

    def _made(self, key: str, step: int, micros: int, value: Any, stddev: float) -> Any:
        sums, since = value
        (made,) = self._plan.reading.releases(
            key, step, micros, sums[None], np.array([stddev]), int(since <= FRESH)
        )
        return made


def add_vectors(joined: bytes, limits: IntArray) -> dict[str, IntArray]:
    """The vector of each key in joined batches, clipped; sorted by key."""
    width = len(limits)
    sums: dict[str, dict[int, int]] = {}
    for keys, steps, xs in batches_of(joined):
        found = zip(keys, (steps - 1) % width, xs.tolist(), strict=True)
        for key, column, x in found:
            add_all(sums.setdefault(key, {}), ((int(column), x),))
    return {key: _dense(sums[key], limits) for key in sorted(sums)}


def _dense(sums: Mapping[int, int], limits: IntArray) -> IntArray:
    made = np.zeros(len(limits), dtype=np.int64)
    for column, x in sums.items():
        cap = int(limits[column])
        made[column] = min(max(x, -cap), cap)
    return made


def said_of(step: int, sums: Mapping[str, IntArray]) -> bytes:
    """What a tick adds to the history of a shard: all keys that it counts something of."""
    entries = {(key, 0): step for key in sums}
    for key, vector in sums.items():
        there = np.flatnonzero(vector)
        found = zip(there.tolist(), vector[there].tolist(), strict=True)
        entries |= {(key, 1 + place): x for place, x in found}
    return pack_batch(entries) if entries else b""


class CountAllVectorShards(CountAllShards):
    """Bounded, after the grouping: all AggregateReleases of a group's keys that are shown."""

    _plan: AggregateShardPlan

    def _joined(self, batches: list[bytes], skipped: int) -> tuple[list[str], Sums]:
        limits = self._plan.limits
        names, sums = joined_sums(batches, LARGEST)
        caps = limits[(sums.steps - 1) % len(limits)]
        return names, Sums(sums.places, sums.steps, np.clip(sums.xs, -caps, caps))

    def _all_ticks(self, group: int, names: Any, sums: Sums, origin: int) -> Iterator[Any]:
        plan = self._plan
        window, width = window_from(plan.clock, origin), plan.joint.width
        many = max(1, min(SIDE_BY_SIDE // width, _KEPT // (width * plan.clock.steps)))
        for first in range(0, len(names), many):
            last = min(first + many, len(names))
            part = slice(*np.searchsorted(sums.places, [first, last]))
            some = Sums(sums.places[part] - first, sums.steps[part], sums.xs[part])
            keys = names[first:last]
            noise = plan.noise(self._draws, keys, window, b"")
            found = all_ticks(plan.selection, some, len(keys), noise, plan.place)
            for place, since, values in found:
                yield from self._placed(keys[place], since, values, origin, window)

    def _replayed(self, group: int, names: Any, sums: Sums, origin: int) -> Iterator[Any]:
        plan, draws, width = self._plan, self._draws, self._plan.joint.width
        window = window_from(plan.clock, origin)
        shards: dict[int, dict[int, dict[str, dict[int, int]]]] = {}
        for place, step, x in zip(*(array.tolist() for array in sums), strict=True):
            name, (tick, column) = names[place], divmod(step - 1, width)
            ticks = shards.setdefault(shard_of(name, plan.shards), {})
            ticks.setdefault(tick + 1, {}).setdefault(name, {})[column] = x
        series: dict[str, tuple[int, list[FloatArray]]] = {}
        for shard, ticks in shards.items():
            columns, digest = no_keys(), draws.begin(str(shard), window)
            for step in range(1, plan.clock.steps + 1):
                found = sorted(ticks.get(step, {}).items())
                tick = {name: _dense(vector, plan.limits) for name, vector in found}
                digest = draws.follow(digest, NO_ID, said_of(step, tick))

                def noise(keys: Sequence[str], digest: bytes = digest) -> Noise:
                    return plan.noise(draws, keys, window, digest)

                columns, shown = advance(plan.selection, columns, tick, noise, plan.place)
                for key, (values, _) in shown:
                    series.setdefault(key, (step, []))[1].append(values)
        for key, (since, rows) in sorted(series.items()):
            yield from self._placed(key, since, np.stack(rows), origin, window)

    def _made(self, key: str, since: int, values: Any, origin: int) -> Iterator[Any]:
        clock, stddevs = self._plan.clock, np.array(self._stddevs[since - 1 :])
        end = clock.end(origin, since)
        return self._plan.reading.releases(key, since, end, values, stddevs, FRESH)
