"""What the tree mechanisms share: each step completes one node, each release sums a few of them.

Node t covers the items parent(t)+1 .. t. At step t it is complete, and gets its noise z_t. The live
nodes are then t, parent(t), parent(parent(t)), ... down to 0: they tile 1 .. t, so release t is the
exact prefix sum plus their noises, N(t) = N(parent(t)) + z_t. Encoder, decoder, variance and
vectorised release all follow from the parents.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray, Mechanism
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class Forest(Mechanism):
    """A mechanism whose state is (t, ..., S, noises of the live nodes, oldest first)."""

    unit_weights = True  # each live node's noise is added once

    def draws(self, n: int) -> int:
        return n

    @property
    def l2_sensitivity_squared(self) -> float:
        return self.l1_sensitivity  # entries of R are 0 or 1

    @abstractmethod
    def parents(self, n: int) -> IntArray:
        """parent(t) for t = 1 .. n, shape (n,); 0 is the empty prefix."""

    def release(self, xs: IntArray, noise: Noise) -> IntArray:
        z = noise.draw(1, self.check_steps(len(xs)))
        return np.asarray(np.cumsum(xs, axis=0)) + self._noise_sums(z)

    def _noise_sums(self, z: IntArray) -> IntArray:
        """N(1 .. n) from z_1 .. z_n: down the forest, one generation at a time."""
        n = len(z)
        parents, generations = _structure(self, n)
        sums = np.zeros((n + 1, *z.shape[1:]), dtype=np.int64)
        for nodes in generations:
            nodes = nodes[: np.searchsorted(nodes, n, side="right")]
            sums[nodes] = sums[parents[nodes - 1]] + z[nodes - 1]
        return sums[1:]

    def encoder(self, n: int) -> FloatArray:
        matrix = np.zeros((self.check_steps(n), n))
        for t, parent in enumerate(self.parents(n).tolist(), start=1):
            matrix[t - 1, parent:t] = 1
        return matrix

    def decoder(self, n: int) -> FloatArray:
        self.check_steps(n)
        matrix = np.zeros((n + 1, n))
        for t, parent in enumerate(self.parents(n).tolist(), start=1):
            matrix[t] = matrix[parent]
            matrix[t, t - 1] = 1
        return matrix[1:]

    def row_norms2(self, n: int) -> FloatArray:
        depths = np.zeros(self.check_steps(n))
        for depth, nodes in enumerate(_structure(self, n)[1], start=1):
            depths[nodes[: np.searchsorted(nodes, n, side="right")] - 1] = depth
        return depths


def _structure(forest: Forest, n: int) -> tuple[IntArray, tuple[IntArray, ...]]:
    """The parents of at least the first n nodes, and the nodes of each depth, ascending."""
    return _structure_of(forest, min(forest.horizon, 1 << max(n - 1, 63).bit_length()))


@lru_cache(maxsize=8)
def _structure_of(forest: Forest, n: int) -> tuple[IntArray, tuple[IntArray, ...]]:
    parents = forest.parents(n)
    # Doubling: `jump` is the 2^i-th ancestor, so depths are found in log(depth) passes.
    jump = np.concatenate([[0], parents])
    depths = np.minimum(np.arange(n + 1), 1).astype(np.int16)
    while jump.any():
        depths = depths + depths[jump]
        jump = jump[jump]
    order = np.argsort(depths[1:], kind="stable") + 1
    starts = np.searchsorted(depths[order], np.arange(1, int(depths.max()) + 2))
    return parents, tuple(order[a:b] for a, b in pairwise(starts.tolist()))
