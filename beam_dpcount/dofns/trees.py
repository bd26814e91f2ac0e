"""The DoFns that count all nodes of a tree of keys at the ticks of a clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.dofns.horizon import Horizon
from beam_dpcount.dofns.releases import NodeRelease
from beam_dpcount.dofns.ticks import SEED, CountAllTicks, CountEachTick
from beam_dpcount.dofns.windows import window_from
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.states.all_ticks import name_of, restart_of
from beam_dpcount.states.tree_shards import TreePlan, TreeShard
from beam_dpcount.states.wire import PAIR, add_up

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_placed: Any = windowed_value.create


def node_release(
    plan: TreePlan, path: Sequence[str], step: int, micros: int, value: float, stddev: float
) -> NodeRelease:
    """A release; its step is numbered over the whole clock."""
    level, restart = plan.nodes.tree.level_of(path), restart_of(plan, step)
    return NodeRelease([*path], level, step, micros, value, stddev, name_of(plan), restart)


class CountEachTree(CountEachTick):
    """Streaming: a release of each node at each tick, by the one cell of a tree."""

    def _shard(self, shard: int) -> TreeShard:
        return TreeShard(self._plan, shard, self._draws)

    def _made(self, key: Any, step: int, micros: int, value: Any, stddev: float) -> NodeRelease:
        return node_release(self._plan, key, step, micros, *value)


class CountAllTrees(CountAllTicks):
    """Bounded, after the grouping: all releases of a tree, by node, then by time."""

    _plan: TreePlan

    def setup(self) -> None:
        plan, clock = self._plan, self._plan.clock
        self._draws = plan.draws("bounded")
        self._deviations = plan.stddevs(min(clock.steps, clock.all_ended(plan.until)))
        self._horizon = Horizon(clock)

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        (_, everything), plan = element, self._plan
        self._horizon.reached(plan.clock.all_ended(plan.until))
        found: dict[tuple[int, int], list[bytes]] = {}
        for packed in everything:
            if packed != SEED:
                found.setdefault(PAIR.unpack_from(packed), []).append(packed[PAIR.size :])
        counts = list[tuple[int, Any, FloatArray]]()
        for origin in plan.clock.origins():
            if steps := plan.clock.ended(origin, plan.until):
                leaves = np.zeros((steps, len(plan.keys)), dtype=np.int64)
                for place in range(len(plan.keys)):
                    if sums := found.pop((place, origin), []):
                        leaves[:, place] = add_up(sums, steps, plan.cap)
                window = window_from(plan.clock, origin)
                counts.append((origin, window, plan.releases(self._draws, window, leaves)))
        for node, path in enumerate(plan.nodes.tree.paths):
            for origin, window, values in counts:
                yield from self._of_node(path, origin, window, values[:, node], node)

    def _of_node(
        self, path: Sequence[str], origin: int, window: Any, values: FloatArray, node: int
    ) -> Iterator[Any]:
        clock = self._plan.clock
        last, windows = window.max_timestamp().micros, (GlobalWindow(),)
        passed, stddevs = clock.passed_at(origin), self._deviations[:, node].tolist()
        numbers = zip(values.tolist(), stddevs, strict=False)  # a later count may have fewer
        for step, (value, stddev) in enumerate(numbers, start=1):
            micros = clock.end(origin, step)
            release = node_release(self._plan, path, passed + step, micros, value, stddev)
            yield _placed(release, min(micros, last), windows)
