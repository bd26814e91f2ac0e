"""A minimum spanning forest that grows by insertions: rooted trees in two arrays.

An edge u-v either joins two trees, or closes a cycle with the path from u to v, whose heaviest edge
then leaves. Either way, one part is turned over to hang from the new edge. That takes as long as
the paths to the roots, and one copy of the arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from beam_dpcount.statistics.graph import IntArray


class Forest(NamedTuple):
    """A minimum spanning forest of a graph; never changed in place.

    Fields:
      parents: shape (n,), -1 at a root.
      weights: shape (n,), of the edge to the parent; 0 at a root.
    """

    parents: IntArray
    weights: IntArray

    @classmethod
    def empty(cls, n: int) -> Forest:
        return cls(np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64))

    def insert(self, u: int, v: int, weight: int) -> tuple[Forest, int]:
        """The forest after the edge u-v, and what that adds to its cost."""
        up, vp = self._to_root(u), self._to_root(v)
        if up[-1] != vp[-1]:
            if len(up) > len(vp):  # turn the shorter path over
                u, v, up = v, u, vp
            return self._hang(up, v, weight), weight
        while len(up) > 1 and len(vp) > 1 and up[-2] == vp[-2]:
            up.pop()
            vp.pop()
        most, place, side = weight, -1, up
        for path in (up, vp):
            for here, x in enumerate(path[:-1]):
                if self.weights[x] > most:
                    most, place, side = int(self.weights[x]), here, path
        if place < 0:
            return self, 0
        other = v if side is up else u
        return self._hang(side[: place + 1], other, weight), weight - most

    def _to_root(self, u: int) -> list[int]:
        path = [u]
        while (u := int(self.parents[u])) >= 0:
            path.append(u)
        return path

    def _hang(self, path: list[int], new_parent: int, weight: int) -> Forest:
        """Turn over the tree below the edge above path[-1], and hang it by path[0]."""
        parents, weights = self.parents.copy(), self.weights.copy()
        for x in path:
            parents[x], new_parent = new_parent, x
            weights[x], weight = weight, int(weights[x])
        return Forest(parents, weights)
