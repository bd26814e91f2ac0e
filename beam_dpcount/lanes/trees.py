"""Columns counted of all nodes of a tree, and paths in columns as texts of leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpcount.counters.hierarchy import text_of_path
from beam_dpcount.lanes.ticks import ListedLane, Series
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.states.all_ticks import restart_of
from beam_dpcount.states.tree_shards import TreePlan
from beam_dpcount.states.windows import window_from


class TreeLane(ListedLane):
    """Of a tree: its leaves are the keys of events, and all nodes are released."""

    plan: TreePlan

    def releases(self) -> Iterator[Series]:
        """All releases, by node, level by level from the root on, then by time."""
        self._count_all()
        plan, clock = self.plan, self.plan.clock
        draws = plan.draws("bounded")
        stddevs = plan.stddevs(min(clock.steps, self._ended))
        counts = list[tuple[int, int, Any]]()
        for origin in clock.origins():
            steps = clock.ended(origin, plan.until)
            if not steps:
                break  # later ones have not begun
            passed, window = clock.passed_at(origin), window_from(clock, origin)
            counts.append((origin, steps, plan.releases(draws, window, self._sums(passed, steps))))
        for node, path in enumerate(plan.nodes.tree.paths):
            for origin, steps, values in counts:
                passed = clock.passed_at(origin)
                yield Series(
                    path,
                    range(passed + 1, passed + steps + 1),
                    [clock.end(origin, step) for step in range(1, steps + 1)],
                    values[:, node].tolist(),
                    stddevs[:steps, node].tolist(),
                    restart_of(plan, passed + 1),
                )

    def _sums(self, passed: int, steps: int) -> IntArray:
        """What so many ticks count of all leaves, shape (steps, leaves)."""
        firsts = [place * self._ticks + passed for place in range(len(self.plan.keys))]
        sums = [self._totals.between(first, first + steps) for first in firsts]
        return np.stack(sums, axis=1)


def texts_of_paths(columns: Sequence[pa.Array]) -> pa.Array:
    """The texts of leaves, given a column of texts a level; null where one of them is."""
    encoded = [column.dictionary_encode() for column in columns]
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in encoded:
        mine = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        # Together with the columns before, renumbered so that they never overflow.
        codes = np.where((codes < 0) | (mine < 0), -1, codes * (len(column.dictionary) + 1) + mine)
        _, codes_of = np.unique(codes[codes >= 0], return_inverse=True)
        codes[codes >= 0] = codes_of
    there = codes >= 0
    _, first, places = np.unique(codes[there], return_index=True, return_inverse=True)
    rows = np.flatnonzero(there)[first]
    parts = [column.take(pa.array(rows)).to_pylist() for column in columns]
    texts = pa.array([*map(text_of_path, zip(*parts, strict=True))], pa.string())
    taken = np.zeros(len(codes), dtype=np.int64)
    taken[there] = places
    return texts.take(pa.array(taken, mask=~there))
