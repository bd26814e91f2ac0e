"""The plan of a tree of keys at the ticks of a clock: its one shard, and all ticks at once.

The whole tree has one counter of vectors, so that at each tick all of its nodes are released
together. Only leaves travel and wait: the sums of the nodes above are those of a tick's leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from beam_dpcount.counters.nodes import NodesCounter
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.entropy import Draws
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.states.all_vectors import said_of
from beam_dpcount.states.tick_shards import KeyShard

_TREE = "tree"  # the stream by which noise goes; `counted` says which tree it is


@dataclass(frozen=True)
class TreePlan(TickPlan):
    """A TickPlan whose keys are the leaves of a tree, all nodes of which are released.

    Args:
      nodes: what counts them; `counter` is that of its vector.
    """

    _: KW_ONLY
    nodes: NodesCounter

    @property
    def width(self) -> int:
        return 1  # of a leaf

    @property
    def shards(self) -> int:
        return 1

    def side_by_side(self, keys: int) -> Any:
        return self.counter

    def follow(self, draws: Draws, digest: bytes, step: int, leaves: IntArray) -> bytes:
        """The digest of the tree after a tick."""
        return draws.follow(digest, NO_ID, said_of(step, leaves)) if draws.digest_size else b""

    def releases(self, draws: Draws, window: object, leaves: IntArray) -> FloatArray:
        """All releases of a count in a window, given the leaves' sums of each of its ticks.

        Shape (ticks, leaves) -> (ticks, nodes).
        """
        if not draws.digest_size:
            return self.nodes.release(leaves, draws.noise(_TREE, window, b""))
        digest, state = draws.begin(_TREE, window), self.nodes.init()
        found = np.empty((len(leaves), len(self.nodes.tree.paths)))
        for step, x in enumerate(np.clip(leaves, -self.cap, self.cap), start=1):
            digest = self.follow(draws, digest, step, x)
            noise = draws.noise(_TREE, window, digest)
            state, found[step - 1] = self.nodes.step(state, x, noise)
        return found

    def stddevs(self, ticks: int) -> FloatArray:
        """Those of all nodes at the first ticks of a count, shape (ticks, nodes)."""
        return self.nodes.stddevs(self.counter.stddevs(ticks))


class TreeShard(KeyShard):
    """The one shard of a tree: the counter of all nodes, and one digest."""

    _plan: TreePlan
    _together = True

    def begun(self, window: Any) -> tuple[Any, bytes]:
        return self.counter.init(), self._draws.begin(_TREE, window)

    def step(
        self, states: tuple[Any, bytes], window: Any, step: int, x: IntArray
    ) -> tuple[tuple[Any, bytes], Iterable[tuple[Any, Any]], float]:
        """State and digest after a tick, (path, (value, stddev)) pairs, and the counter's stddev.

        Args:
          x: what the tick counts of all leaves, shape (leaves,), clipped.
        """
        plan, (state, digest) = self._plan, states
        digest = plan.follow(self._draws, digest, step, x)
        state, values = plan.nodes.step(state, x, self._draws.noise(_TREE, window, digest))
        stddev = self.counter.stddev_at(state)
        stddevs = plan.nodes.stddevs(np.array([stddev]))[0]
        of_nodes: Sequence[Any] = [*zip(values.tolist(), stddevs.tolist(), strict=True)]
        pairs = zip(plan.nodes.tree.paths, of_nodes, strict=True)
        return (state, digest), pairs, stddev

    _begun, _step = begun, step
