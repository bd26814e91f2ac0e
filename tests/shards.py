"""A shard of keys that nobody listed, without a runner: the DoFns with cells of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from apache_beam.transforms.window import GlobalWindow

from beam_dpcount.counters.clock import clock_of
from beam_dpcount.counters.selection import Selection
from beam_dpcount.dofns.aggregate_shards import (
    CountAllVectorShards,
    CountVectorShards,
)
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.shards import CountAllShards, CountShards
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.noise.entropy import Draws, Entropy
from beam_dpcount.noise.laws import Law
from beam_dpcount.states.all_shards import AggregateShardPlan, ShardPlan
from beam_dpcount.states.wire import pack_batch
from benchmarks.cells import Bag, Cell, Timer
from tests.scripted import Script, ScriptedEntropy

TICK, SECOND = 10, 1_000_000
# What ticks add to keys, on the lattice; to vectors, as (tick - 1) * width + coordinate + 1.
Sums = Mapping[tuple[str, int], int]


def plan_of(selection: Selection, fold: bool = True, entropy: Entropy | None = None) -> ShardPlan:
    """One shard at a clock of as many ticks as the selection's counter."""
    counter = selection.counter
    return ShardPlan(
        *(selection, clock_of(TICK, 0, horizon=counter.horizon)),
        cap=counter.change.largest(counter.unit),
        fold=fold,
        entropy=entropy or ScriptedEntropy(),
        shards=1,
    )


class Shard:
    """One shard on the streaming path."""

    def __init__(self, plan: ShardPlan) -> None:
        kind = CountVectorShards if isinstance(plan, AggregateShardPlan) else CountShards
        self.dofn = kind(plan)
        self.dofn.setup()
        self.bag, self.cell, self.timer, self.later = Bag(), Cell(), Timer(), Bag()

    def seed(self) -> None:
        self._process(SEED)

    def arrive(self, sums: Sums) -> None:
        """Each tick's sums in a batch of their own, as a bundle passes them on."""
        plan = self.dofn._plan
        for tick in sorted({tick_of(plan, place) for place in sums}):
            self._process(pack_batch(of_tick(plan, sums, tick)))

    def _process(self, data: bytes) -> None:
        self.dofn.process((0, data), self.bag, self.cell, self.timer)

    def fire(self) -> list[Release]:
        """The releases of the next tick."""
        self.timer.at = None
        states = self.bag, self.cell, self.timer, self.later
        placed = self.dofn.release(0, GlobalWindow(), *states)
        return [windowed.value for windowed in placed]

    def run(self, *arrivals: Sums) -> list[Release]:
        """All releases, where so much arrives before each tick is over; later nothing does."""
        self.seed()
        made: list[Release] = []
        for step in range(self.dofn._plan.clock.steps):
            self.arrive(arrivals[step] if step < len(arrivals) else {})
            made += self.fire()
        return made


def tick_of(plan: ShardPlan, place: tuple[str, int]) -> int:
    """The tick of one entry of sums."""
    width = plan.joint.width if isinstance(plan, AggregateShardPlan) else 1
    return (place[1] - 1) // width + 1


def of_tick(plan: ShardPlan, sums: Sums, tick: int) -> dict[tuple[str, int], int]:
    """The sums of one tick."""
    return {place: x for place, x in sums.items() if tick_of(plan, place) == tick}


def streamed(plan: ShardPlan, sums: Sums) -> list[Release]:
    """All releases on the streaming path; nothing comes late."""
    return Shard(plan).run(*(of_tick(plan, sums, t) for t in range(1, plan.clock.steps + 1)))


def bounded(plan: ShardPlan, sums: Sums) -> list[Release]:
    """All releases on the bounded path."""
    kind = CountAllVectorShards if isinstance(plan, AggregateShardPlan) else CountAllShards
    dofn = kind(plan)
    dofn.setup()
    batches = [pack_batch(sums)] if sums else []
    return [windowed.value for windowed in dofn.process((0, batches))]


class Scripts(Entropy):
    """Noise of keys whose names are numbers: those of columns of an array, shape (n, keys)."""

    def __init__(self, z: np.ndarray) -> None:
        self._z = z

    def source(self, law: Law, dimension: int | None) -> Any:
        return lambda key, window: Script(self._z[:, int(key)])

    def draws(self, law: Law, dimension: int | None, parameters: str) -> Draws:
        return _ScriptedColumns(self._z)


class _ScriptedColumns(Draws):
    """All at once, as there are many."""

    def __init__(self, z: np.ndarray) -> None:
        self._z = z

    def of_keys(self, keys: Sequence[str], window: Any, digest: bytes) -> Script:
        return Script(self._z[:, np.array(keys, dtype=np.int64)])
