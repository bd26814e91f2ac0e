"""What a shard of keys that nobody listed holds at a clock: see `tick_shards`."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from math import isqrt
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.noise.entropy import Draws
from beam_dpcount.states.all_shards import AggregateShardPlan, ShardPlan, dense
from beam_dpcount.states.codecs import ShardCodec
from beam_dpcount.states.pending import tick_of
from beam_dpcount.states.tick_shards import TickShard
from beam_dpcount.states.wire import add_all, batches_of, tick_of_batch

_NEAR = 64  # ticks of a backlog that a cell holds, at least: all of it is written at each tick
_UNTIL = 0  # no tick: where a cell says up to which tick the bag holds nothing
_TICK = struct.Struct("<q")


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
