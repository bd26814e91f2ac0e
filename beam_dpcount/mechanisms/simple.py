"""The two baselines of [Chan, Shi, Song 2011], and their two-level compromise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray, State, owned, zero
from beam_dpcount.mechanisms.trees import Forest
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class Simple1(Forest):
    """Fresh noise on every prefix sum, whose scale grows with T (pure) or its square root.

    Guarantee: R is the matrix of prefix sums, whose first column has T ones: Delta_1 = T and
      Delta_2 = sqrt(T), exactly. Takes every budget. Variance of release t: that of one draw.

    Source: [CSS11, Simple Counting Mechanism I].
    """

    state_size = 2

    @property
    def l1_sensitivity(self) -> int:
        return self.horizon

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Exact: prefixes that end at the later of two items or after it hold both."""
        return tuple(max(self.horizon - d, 0) for d in range(n))

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        total = state[1] + x
        return (t, total), total + noise.one(t)

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        return (self.check_steps(n), zero(dimension))

    def parents(self, n: int) -> IntArray:
        return np.zeros(n, dtype=np.int64)

    def products(self, s: IntArray, lag: int) -> FloatArray:
        return np.zeros(len(s))

    def row_norm2(self, t: int) -> float:
        return 1

    def max_row_norm2(self) -> float:
        return 1

    def mean_row_norm2(self) -> float:
        return 1


@dataclass(frozen=True)
class Simple2(Forest):
    """Fresh noise on every item: release t sums t of them.

    Guarantee: R = I, Delta_1 = Delta_2 = 1. Takes every budget. Variance of release t: t draws.

    Source: [CSS11, Simple Counting Mechanism II].
    """

    l1_sensitivity, state_size = 1, 3

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Exact: two items share nothing."""
        return tuple(int(d == 0) for d in range(n))

    def init(self, dimension: int | None = None) -> State:
        return (0, zero(dimension), zero(dimension))

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        total, noises = state[1] + x, state[2] + noise.one(t)
        return (t, total, noises), total + noises

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        noises = _drawn(noise, 1, self.check_steps(n), dimension)
        return (n, zero(dimension), noises)

    def parents(self, n: int) -> IntArray:
        return np.arange(n, dtype=np.int64)

    def _noise_sums(self, z: IntArray) -> IntArray:
        return np.asarray(np.cumsum(z, axis=0))

    def row_norms2(self, n: int) -> Any:
        return np.arange(1.0, self.check_steps(n) + 1)

    def products(self, s: IntArray, lag: int) -> FloatArray:
        return s.astype(np.float64)

    def row_norm2(self, t: int) -> float:
        return t

    def max_row_norm2(self) -> float:
        return self.horizon

    def mean_row_norm2(self) -> float:
        return (self.horizon + 1) / 2


@dataclass(frozen=True)
class TwoLevel(Forest):
    """Noise on every block of B items, and on the items since the last full block.

    Args:
      block: B, from 1 to T; default round(sqrt(T)).

    Guarantee: an item lies in one block, and in one node of its own unless it ends the block:
      Delta_1 = 2, Delta_2 = sqrt(2), or 1 where blocks have one item. Takes every budget.
      Variance of release t: floor(t/B) + t mod B times that of one draw.

    Source: [CSS11, Two-Level Counting Mechanism].
    """

    block: int | None = None

    state_size = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block is None:
            object.__setattr__(self, "block", max(1, round(math.sqrt(self.horizon))))
        block = self.block
        if isinstance(block, bool) or not isinstance(block, int) or not 1 <= block <= self.horizon:
            rule = f"block must be a whole number from 1 to the horizon {self.horizon}"
            raise ValueError(f"{rule}, got {block!r}: leave it out for round(sqrt(horizon))")

    @property
    def size(self) -> int:
        """B."""
        return self.block or 1

    @property
    def l1_sensitivity(self) -> int:
        return 1 if self.size == 1 else 2

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Exact: two items share their block, if they lie in one, and nothing else."""
        return tuple(self.l1_sensitivity if d == 0 else int(d < self.size) for d in range(n))

    def init(self, dimension: int | None = None) -> State:
        return (0, zero(dimension), zero(dimension), zero(dimension))

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        total, blocks, items, z = state[1] + x, state[2], state[3], noise.one(t)
        if t % self.size:
            items = items + z
        else:
            blocks, items = blocks + z, items * 0
        return (t, total, blocks, items), total + blocks + items

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        full = self.check_steps(n) // self.size * self.size
        ends = range(self.size, full + 1, self.size)
        blocks = sum(map(noise.one, ends), zero(dimension))
        return (n, zero(dimension), blocks, _drawn(noise, full + 1, n - full, dimension))

    def parents(self, n: int) -> IntArray:
        t = np.arange(1, n + 1, dtype=np.int64)
        return np.where(t % self.size == 0, t - self.size, t - 1)

    def row_norms2(self, n: int) -> Any:
        t = np.arange(1, self.check_steps(n) + 1)
        return (t // self.size + t % self.size).astype(np.float64)

    def _noise_sums(self, z: IntArray) -> IntArray:
        t = np.arange(1, len(z) + 1)
        ends = (t % self.size == 0).reshape(-1, *[1] * (z.ndim - 1))
        # Prefix sums of the blocks' noises, and of the items' within each block.
        blocks = np.cumsum(np.where(ends, z, 0), axis=0)
        items = np.cumsum(np.where(ends, 0, z), axis=0)
        before = np.concatenate([np.zeros_like(items[:1]), items])[t // self.size * self.size]
        return np.asarray(blocks + items - before)

    def products(self, s: IntArray, lag: int) -> FloatArray:
        block = s // self.size
        items = np.where((s + lag) // self.size == block, s % self.size, 0)
        return (block + items).astype(np.float64)

    def row_norm2(self, t: int) -> float:
        return t // self.size + t % self.size

    def max_row_norm2(self) -> float:
        full = (self.horizon + 1) // self.size * self.size - 1  # ends one item before a block does
        return max(self.row_norm2(self.horizon), self.row_norm2(full) if full > 0 else 0)

    def mean_row_norm2(self) -> float:
        size, blocks, rest = self.size, *divmod(self.horizon, self.size)
        within = blocks * size * (size - 1) // 2 + rest * (rest + 1) // 2
        of_blocks = size * blocks * (blocks - 1) // 2 + blocks * (rest + 1)
        return (within + of_blocks) / self.horizon


def _drawn(noise: Noise, first: int, n: int, dimension: int | None) -> Any:
    """The sum of n coordinates."""
    return owned(noise.draw(first, n).sum(axis=0)) if n else zero(dimension)
