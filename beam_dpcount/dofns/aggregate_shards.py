"""The DoFns that count vectors of keys that nobody listed: see `shards`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np

from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.counters.columns import Columns, NoiseOf, Sums
from beam_dpcount.counters.vector_columns import advance, all_ticks, no_keys
from beam_dpcount.dofns.aggregates import add_all
from beam_dpcount.dofns.pending_vectors import tick_of
from beam_dpcount.dofns.placement import shard_of
from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.shards import (
    GATHERED,
    SIDE_BY_SIDE,
    CountAllShards,
    CountShards,
    ShardPlan,
    SumShards,
    joined_sums,
)
from beam_dpcount.dofns.ticks import TickIntake, window_from
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.noise.entropy import Draws, Noise
from beam_dpcount.states.all_vectors import OfVectors
from beam_dpcount.states.codecs import ShardCodec
from beam_dpcount.states.wire import batches_of, pack_batch, tick_of_batch

FRESH = 10  # ticks, from the one that shows a key on, in which no interval is given
_KEPT = 1 << 23  # noisy sums of keys that are computed together

_WindowedValue: Any = beam.DoFn.WindowedValueParam


@dataclass(frozen=True)
class AggregateShardPlan(OfVectors, ShardPlan):
    """A ShardPlan of vectors."""

    @property
    def place(self) -> int:
        """Of the sum that shows a key."""
        return self.joint.tested or 0

    def no_keys(self) -> Columns:
        return no_keys()

    def history_of(self, step: int, sums: dict[str, IntArray]) -> bytes:
        entries = {(key, 0): step for key in sums}
        for key, vector in sums.items():
            there = np.flatnonzero(vector)
            found = zip(there.tolist(), vector[there].tolist(), strict=True)
            entries |= {(key, 1 + place): x for place, x in found}
        return pack_batch(entries) if entries else b""

    def noise(self, draws: Draws, keys: Sequence[str], window: object, digest: bytes) -> Noise:
        # Each sum is a stream of its own.
        sums = [f"{place} {key}" for key in keys for place in range(self.joint.width)]
        return draws.of_keys(sums, window, digest)

    def advance(self, columns: Columns, sums: Any, noise: NoiseOf) -> Any:
        return advance(self.selection, columns, sums, noise, self.place)


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
    return {key: _dense(sums[key], limits) for key in sorted(sums)}


def _dense(sums: Mapping[int, int], limits: IntArray) -> IntArray:
    made = np.zeros(len(limits), dtype=np.int64)
    for column, x in sums.items():
        cap = int(limits[column])
        made[column] = min(max(x, -cap), cap)
    return made


class CountAllVectorShards(CountAllShards):
    """Bounded, after the grouping: all TickReleases of a group's keys that are shown."""

    _plan: AggregateShardPlan

    def _joined(self, batches: list[bytes], skipped: int) -> tuple[list[str], Sums]:
        limits = self._plan.limits
        names, sums = joined_sums(batches, LARGEST)
        caps = limits[(sums.steps - 1) % len(limits)]
        return names, Sums(sums.places, sums.steps, np.clip(sums.xs, -caps, caps))

    def _all_ticks(self, group: int, names: Any, sums: Sums, origin: int) -> Iterator[Any]:
        plan = self._plan
        window, width = window_from(plan.clock, origin), plan.joint.width
        steps = self._ended(origin)
        many = max(1, min(SIDE_BY_SIDE // width, _KEPT // (width * steps)))
        for first in range(0, len(names), many):
            last = min(first + many, len(names))
            part = slice(*np.searchsorted(sums.places, [first, last]))
            some = Sums(sums.places[part] - first, sums.steps[part], sums.xs[part])
            keys = names[first:last]
            noise = plan.noise(self._draws, keys, window, b"")
            found = all_ticks(plan.selection, some, len(keys), noise, plan.place, steps)
            for place, since, values in found:
                yield from self._placed(keys[place], since, values, origin, window)

    def _ticks_of(self, sums: Sums) -> Iterator[tuple[int, int, Any]]:
        width = self._plan.joint.width
        ticks, coordinates = np.divmod(sums.steps - 1, width)
        arrays = sums.places, ticks, coordinates, sums.xs
        entries = zip(*(array.tolist() for array in arrays), strict=True)
        for (place, tick), found in groupby(entries, itemgetter(0, 1)):
            yield place, tick + 1, {coordinate: x for _, _, coordinate, x in found}

    def _addition(self, kept: dict[int, int]) -> IntArray:
        # Only now, as most coordinates of most ticks are 0.
        return _dense(kept, self._plan.limits)

    def _value_of(self, shown: Any) -> Any:
        return shown[0]

    def _made(self, key: str, since: int, values: Any, origin: int) -> Iterator[Any]:
        clock = self._plan.clock
        stddevs = np.array(self._stddevs[since - 1 : since - 1 + len(values)])
        step = clock.passed_at(origin) + since
        made = self._plan.reading.rows(key, step, np.asarray(values), stddevs, FRESH)
        return (TickRelease(*row) for row in made)
