"""The smooth binary mechanism [Andersson, Pagh 2023]."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.checks import check_flag
from beam_dpcount.mechanisms.base import FloatArray, IntArray, State, zero
from beam_dpcount.mechanisms.trees import Forest
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class SmoothBinary(Forest):
    """Binary tree restricted to leaves with equally many zeros, so that no item costs more.

    Item t sits at the t-th smallest h-bit number v_t with exactly k zeros. Release t has one term
    for every 1-bit i of v_{t+1} whose node (the leaves v with v >> i = (v_{t+1} >> i) - 1) holds
    an item: all but the trailing ones.

    Args:
      balanced: False (default) takes the (h, k) with the least k (h - k), and no noise for nodes
        without items. True is the paper's mechanism: h even, k = h/2, and fresh noise in place
        of every empty node, so that every release has the same law. It costs up to 1.5 times the
        largest variance of the default.

    Guarantee: an item lies in one node for every zero of its leaf, so the columns of R have at
      most k ones: Delta_2 = sqrt(k), exactly for the default. Gaussian noise: takes
      zero-concentrated and approximate budgets. Variance of release t: at most h - k times that
      of one draw (exactly, if balanced).

    Source: [AP23, Algorithm 2 and Theorem 1.1]; that h need not be 2k: docs/proofs/trees.md.
    """

    balanced: bool = False

    # t and v_{t+1}, and the number of coordinates drawn, which is t unless balanced.
    counters: ClassVar[int] = 3

    laws = frozenset({"gaussian"})  # only, as it costs the square root of k

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("balanced", self.balanced)

    @property
    def falling_products(self) -> bool:
        return True  # each draw is of an interval, so products count those that hold both

    @property
    def shape(self) -> tuple[int, int]:
        """(h, k): bits of a leaf and zeros among them."""
        return _balanced_shape(self.horizon) if self.balanced else _best_shape(self.horizon)

    @property
    def l1_sensitivity(self) -> int:
        return self.shape[1]

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """k - min {z: C(z + h - k, z) > d}: exact unless balanced, and then at most 1 too large.

        Two leaves share the nodes of the zeros of their common prefix. If z of their zeros come
        after it, so do at most h - k ones, and at most C(z + h - k, z) leaves have that prefix,
        all those between the two included: d + 1 or more. Items 1 and 1 + d attain it.
        """
        (h, k), z = self.shape, 0
        bounds = []
        for d in range(min(n, self.horizon)):
            while comb(z + h - k, z) <= d:
                z += 1
            bounds.append(k - z)
        return (*bounds, *[0] * (n - len(bounds)))

    @property
    def state_size(self) -> int:
        h, k = self.shape
        return self.counters + 1 + min(self.horizon, h - k)

    def init(self, dimension: int | None = None) -> State:
        h, k = self.shape
        return (0, (1 << h - k) - 1, 0, zero(dimension))

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        v, total = state[1], state[3] + x
        # The next number with as many ones: the lowest run of ones loses its top to the bit
        # above, and the rest of it falls to the bottom, where nodes are empty.
        low = v & -v
        carried = v + low
        run = (carried & ~v).bit_length() - low.bit_length()
        following = carried | (1 << run - 1) - 1
        kept = state[4:] if v & 1 else state[4 : len(state) - run]
        drawn, extra = state[2] + 1, 0
        if self.balanced:
            extra = sum(noise.one(drawn + i) for i in range(run - 1))
            drawn += run - 1
        z = noise.one(drawn)
        return (t, following, drawn, total, *kept, z), total + sum(kept) + z + extra

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        # Down the tree of leaves (see below) to v_{n+1}: a turn right is a 1-bit and a live node.
        # Where no item is left, only ones of empty nodes are.
        h, k = self.shape
        v, node, left = 0, 0, self.check_steps(n)
        live = []
        while left:
            h, first = h - 1, comb(h - 1, k - 1)
            if left < first:
                k -= 1
            else:
                v, node, left = v | 1 << h, node + first, left - first
                live.append(node)
        v |= (1 << h - k) - 1
        # Of the coordinates of a step the last one is its node's.
        coordinates = [self.draws(node) for node in live]
        return (n, v, self.draws(n), zero(dimension), *map(noise.one, coordinates))

    def parents(self, n: int) -> IntArray:
        h, k = self.shape
        while k > 0 and h > k and n < comb(h - 1, k - 1):
            h, k = h - 1, k - 1
        known: dict[tuple[int, int, int], IntArray] = {}

        def build(h: int, k: int, n: int) -> IntArray:
            if n == 0:
                return np.zeros(0, dtype=np.int64)
            first = comb(h - 1, k - 1)
            if n < first:
                return build(h - 1, k - 1, n)
            if (h, k, n) not in known:
                known[h, k, n] = np.concatenate(
                    [build(h - 1, k - 1, first - 1), [0], first + build(h - 1, k, n - first)]
                )
            return known[h, k, n]

        return build(h, k, n)

    def release(self, xs: IntArray, noise: Noise) -> IntArray:
        if not self.balanced:
            return super().release(xs, noise)
        n = self.check_steps(len(xs))
        first, rows = self._rows(n)
        z = noise.draw(1, self.draws(n))
        sums = np.concatenate([np.zeros_like(z[:1]), np.cumsum(z, axis=0)])
        extra: IntArray = sums[rows] - sums[first]
        return np.asarray(np.cumsum(xs, axis=0)) + self._noise_sums(z[rows]) + extra

    def _rows(self, n: int) -> tuple[IntArray, IntArray]:
        """For t = 1 .. n, the row of its first empty node, and of node t, which comes after those.

        Empty nodes are those of 1-bits of v_{t+1} without items below.
        """
        empty = np.asarray(self.row_norms2(n) - super().row_norms2(n), dtype=np.int64)
        rows = np.cumsum(empty + 1) - 1
        return rows - empty, rows

    def encoder(self, n: int) -> FloatArray:
        matrix = np.zeros((self.draws(n), n))
        matrix[self._rows(n)[1]] = super().encoder(n)
        return matrix

    def decoder(self, n: int) -> FloatArray:
        first, rows = self._rows(n)
        matrix = np.zeros((n, self.draws(n)))
        matrix[:, rows] = super().decoder(n)
        for t in range(n):
            matrix[t, first[t] : rows[t]] = 1
        return matrix

    def draws(self, n: int) -> int:
        h, k = self.shape
        return n * (h - k + 1) - _depth_sum(h, k, n) if self.balanced else n

    def products(self, s: IntArray, lag: int) -> FloatArray:
        # Down the tree of leaves (see below): every turn right that both take is a node of both.
        # What a balanced one draws for empty nodes is in one release only.
        h, k = self.shape
        binomials = np.array([[comb(n, m) for m in range(h + 1)] for n in range(h)])
        total, zeros, t = np.zeros(len(s)), np.full(len(s), k), s + lag
        for bit in range(h - 1, -1, -1):
            first = binomials[bit, zeros - 1]
            right, apart = s >= first, (s < first) & (t >= first)
            both = right & (s > 0)
            total += both
            zeros = np.where((s > 0) & (t < first), zeros - 1, zeros)
            t = np.where(both, t - first, t)
            s = np.where(apart, 0, np.where(both, s - first, s))  # at 0 no nodes are left
        return total

    def row_norm2(self, t: int) -> float:
        h, k = self.shape
        if self.balanced:
            return h - k
        depth = 0
        while t:
            first = comb(h - 1, k - 1)
            if t < first:
                k -= 1
            else:
                t, depth = t - first, depth + 1
            h -= 1
        return depth

    def row_norms2(self, n: int) -> FloatArray:
        if not self.balanced:
            return super().row_norms2(n)
        h, k = self.shape
        return np.full(self.check_steps(n), float(h - k))

    def max_row_norm2(self) -> float:
        h, k = self.shape
        # Release t <= h - k has t terms: the ones of v_1 leave the bottom one by one.
        return h - k if self.balanced else min(self.horizon, h - k)

    def mean_row_norm2(self) -> float:
        h, k = self.shape
        return h - k if self.balanced else _depth_sum(h, k, self.horizon) / self.horizon

    def state_row_norm2(self, state: State) -> float:
        return self.row_norm2(state[0]) if self.balanced else len(state) - self.counters - 1


@lru_cache(maxsize=256)
def _best_shape(horizon: int) -> tuple[int, int]:
    """The (h, k) with C(h, k) > horizon of least k (h-k); in a tie that of largest k."""
    h, k = _balanced_shape(horizon)
    best = (k * (h - k), -k, h)
    # Swapping zeros and ones changes neither k (h-k) nor C(h, k), so k <= h/2 covers all pairs;
    # and k (h-k) <= best with C(h, k) > horizon bounds the search.
    for few in range(1, k + 1):
        for many in range(few, best[0] // few + 1):
            if comb(few + many, few) > horizon:
                best = min(best, (few * many, -many, few + many))
                break
    return best[2], -best[1]


@lru_cache(maxsize=256)
def _balanced_shape(horizon: int) -> tuple[int, int]:
    k = next(k for k in itertools.count(1) if comb(2 * k, k) > horizon)
    return 2 * k, k


# The leaves of (h, k) are those of (h-1, k-1), under a 0, then those of (h-1, k), under a 1. The
# first leaf of the second part follows step a = C(h-1, k-1), which completes the node of the
# first part: node a, of which the nodes of the second part are descendants.


@lru_cache(maxsize=4096)
def _depth_sum(h: int, k: int, n: int) -> int:
    """The sum of depths of the nodes 1 .. n."""
    if n == 0:
        return 0
    first = comb(h - 1, k - 1)
    if n < first:
        return _depth_sum(h - 1, k - 1, n)
    rest = n - first
    return _depth_sum(h - 1, k - 1, first - 1) + 1 + rest + _depth_sum(h - 1, k, rest)
