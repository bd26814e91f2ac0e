"""The binary tree mechanism [Chan, Shi, Song 2011; Dwork et al. 2010], left children only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray, Mechanism, State, zero
from beam_dpcount.mechanisms.digits import first_difference, ones
from beam_dpcount.mechanisms.trees import Forest
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class Dyadic(Mechanism):
    """Nodes of 2^i items: an item lies in at most one of each height up to log2(T)."""

    @property
    def l1_sensitivity(self) -> int:
        return self.horizon.bit_length()

    l2_sensitivity_squared = l1_sensitivity  # entries of R are 0 or 1

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Exact: items d apart share no node of 2^i <= d items, and 1 and 1 + d all larger ones."""
        levels = self.horizon.bit_length()
        return tuple(max(levels - d.bit_length(), 0) for d in range(n))


@dataclass(frozen=True)
class BinaryTree(Dyadic, Forest):
    """Binary tree: release t sums one node for every 1-bit of t.

    The node of bit i covers the 2^i items that end at (t >> i) << i. Right children are never
    used, so none is noised: an item lies in at most h = ceil(log2(T+1)) nodes.

    Guarantee: R has 0/1 entries and columns with at most h ones, so Delta_1 = h and
      Delta_2 = sqrt(h), exactly (item 1 lies in the nodes 1, 2, 4, ... <= T). Takes every budget.
      Variance of release t: popcount(t) times that of one draw.

    Source: [CSS11, Section 3.3]; the count of nodes is derived in docs/proofs/trees.md.
    """

    @property
    def falling_products(self) -> bool:
        return True  # each draw is of an interval, so products count those that hold both

    @property
    def state_size(self) -> int:
        return 2 + int(self.max_row_norm2())

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        total = state[1] + x
        # Nodes of the bits below the lowest 1-bit of t are merged into the new one.
        kept = state[2 : len(state) - (t & -t).bit_length() + 1]
        z = noise.one(t)
        return (t, total, *kept, z), total + sum(kept) + z

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        bits = range(self.check_steps(n).bit_length() - 1, -1, -1)
        live = [n >> i << i for i in bits if n >> i & 1]
        return (n, zero(dimension), *map(noise.one, live))

    def parents(self, n: int) -> IntArray:
        t = np.arange(1, n + 1, dtype=np.int64)
        return t & (t - 1)

    def products(self, s: IntArray, lag: int) -> FloatArray:
        shared = s >> first_difference(s, s + lag)
        total = np.zeros(len(s))
        while shared.any():
            total += shared & 1
            shared = shared >> 1
        return total

    def row_norm2(self, t: int) -> float:
        return t.bit_count()

    def max_row_norm2(self) -> float:
        return (self.horizon + 1).bit_length() - 1  # the largest 2^j - 1 that is at most T

    def mean_row_norm2(self) -> float:
        bits = range(self.horizon.bit_length())
        return sum(ones(self.horizon, i) for i in bits) / self.horizon
