"""Sums over the last W steps without an end, from whole draws: what pure budgets take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from beam_dpcount.checks import check_whole
from beam_dpcount.mechanisms.base import FloatArray, IntArray, Mechanism, State, zero
from beam_dpcount.mechanisms.sliding_blt import check_window
from beam_dpcount.mechanisms.workload import LastSteps, Workload
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class SlidingBlocks(Mechanism):
    """Sums over the last W steps from noised items and noised blocks of w items, all complete.

    A window is made of the blocks between its ends, and of single items. At its older end those
    that lie within it are added, or those that the first block has too many are taken away,
    whichever are fewer. A draw is made when its item, or block, is complete, so work may be
    replayed. The variance has a limit, however many steps there are.

    Args:
      horizon: number of steps T.
      window: W, from 1 to 2^20 steps. Public. A state holds some W + w noised numbers.
      block: w, from 2 steps; None (default) is the one of the least largest variance.

    Guarantee: R counts each item by itself and in its block, if that is complete by the horizon:
      Delta_1 = Delta_2^2 = 2 (1 for T < w). Takes every budget. Variance of release t: that of one
      draw times the number of draws in it, at most about 2 sqrt(W).

    Source: docs/proofs/sliding.md, "SlidingBlocks".
    """

    window: int
    block: int | None = None

    unit_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "window", check_window(self.window))
        block = _best_block(self.window) if self.block is None else self.block
        object.__setattr__(self, "block", max(2, check_whole("block", block, 1 << 20, "steps")))

    @property
    def workload(self) -> Workload:
        return LastSteps(window=self.window)

    @property
    def _block(self) -> int:
        return self.block or 2

    @property
    def _levels(self) -> int:
        return 1 + (self.horizon >= self._block)

    @property
    def l1_sensitivity(self) -> float:
        return self._levels

    @property
    def l2_sensitivity_squared(self) -> float:
        return self._levels

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Exact: two items share the draw of a block, or nothing."""
        shared = self._block if self._levels == 2 else 1
        return tuple(self._levels if d == 0 else int(d < shared) for d in range(n))

    def spaced_bounds(self, gap: int, n: int) -> tuple[float, ...]:
        near = self.lag_bounds(min((n - 1) * gap, self._block) + 1)
        return tuple(near[i * gap] if i * gap < len(near) else 0 for i in range(n))

    def draws(self, n: int) -> int:
        return n + n // self._block

    # The state: t, the sum of the block that is not complete, the last noised items, then blocks.

    @property
    def _kept(self) -> tuple[int, int]:
        """How many noised items, and how many blocks."""
        return self.window + self._block, self.window // self._block + 2

    @property
    def state_size(self) -> int:
        return 2 + sum(self._kept)

    def init(self, dimension: int | None = None) -> State:
        return (0, *(zero(dimension),) * (self.state_size - 1))

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t, w, places = self.next_step(state), self._block, self._kept
        items, blocks = state[2 : 2 + places[0]], state[2 + places[0] :]
        coordinate = t + (t - 1) // w
        items, inside = (*items[1:], x + noise.one(coordinate)), state[1] + x
        if t % w == 0:
            blocks, inside = (*blocks[1:], inside + noise.one(coordinate + 1)), x * 0
        start, low = (int(part) for part in self._parts(np.array(t)))
        if low < 0:
            return (t, inside, *items, *blocks), sum(items[start - t :])
        # Whole blocks, the items behind them, and those at the older end.
        value = sum(blocks[len(blocks) - (t // w - low) :]) + sum(items[len(items) - t % w :])
        first, last = sorted((start, low * w))
        edge = sum(items[len(items) - (t - first) : len(items) - (t - last)])
        value = value + edge if start == first else value - edge
        return (t, inside, *items, *blocks), value

    def release(self, xs: IntArray, noise: Noise) -> IntArray:
        n, w = self.check_steps(len(xs)), self._block
        z = noise.draw(1, self.draws(n))
        items, blocks = self._coordinates(n)
        sums = np.concatenate([np.zeros((1, *xs.shape[1:]), np.int64), np.cumsum(xs, axis=0)])
        ends = np.arange(w, n + 1, w)
        return self._released(xs + z[items], sums[ends] - sums[ends - w] + z[blocks])

    def _coordinates(self, n: int) -> tuple[IntArray, IntArray]:
        """Of items and of blocks, from 0."""
        t, b = np.arange(n), np.arange(1, n // self._block + 1)
        return t + t // self._block, b * (self._block + 1) - 1

    def _released(self, items: IntArray, blocks: IntArray) -> IntArray:
        """The releases, from noised items and blocks."""
        first = np.zeros((1, *items.shape[1:]), items.dtype)
        of_items = np.concatenate([first, np.cumsum(items, axis=0)])
        of_blocks = np.concatenate([first, np.cumsum(blocks, axis=0)])
        t = np.arange(1, len(items) + 1)
        start, low = self._parts(t)
        whole = np.maximum(low, 0)
        inner = of_blocks[t // self._block] - of_blocks[whole]
        inner += of_items[t] - of_items[t // self._block * self._block]
        inner += of_items[whole * self._block] - of_items[start]
        plain = (low < 0).reshape(-1, *[1] * (items.ndim - 1))
        return np.asarray(np.where(plain, of_items[t] - of_items[start], inner))

    def _parts(self, t: IntArray) -> tuple[IntArray, IntArray]:
        """Of windows that end with step t: the step before each, and the number of blocks before
        its first; -1 where it is made of items alone."""
        w = self._block
        start = np.maximum(t - self.window, 0)
        below, rest = start // w, start % w
        above = below + (rest > 0)
        last, after = t // w, t % w
        down, up = rest + last - below, above * w - start + last - above
        up = np.where(last >= above, up, self.window + 2 * w)
        low = np.where(up <= down, above, below)
        low = np.where(t - start <= after + np.minimum(up, down), -1, low)
        return start, low

    def _count(self, t: IntArray) -> FloatArray:
        """How many draws releases have."""
        start, low = self._parts(t)
        w = self._block
        blocks = t // w - low + t % w + np.abs(low * w - start)
        return np.where(low < 0, t - start, blocks).astype(np.float64)

    def encoder(self, n: int) -> FloatArray:
        items, blocks = self._coordinates(self.check_steps(n))
        matrix = np.zeros((self.draws(n), n))
        matrix[items, np.arange(n)] = 1
        for i, row in enumerate(blocks):
            matrix[row, i * self._block : (i + 1) * self._block] = 1
        return matrix

    def decoder(self, n: int) -> FloatArray:
        one = np.eye(self.draws(self.check_steps(n)), dtype=np.int64)
        items, blocks = self._coordinates(n)
        return self._released(one[items], one[blocks]).astype(np.float64)

    def row_norm2(self, t: int) -> float:
        return float(self._count(np.array(t)))

    def row_norms2(self, n: int) -> FloatArray:
        return self._count(np.arange(1, self.check_steps(n) + 1))

    def row_norms2_between(self, first: int, last: int) -> FloatArray:
        return self._count(np.arange(first, last + 1))

    @property
    def _whole(self) -> int:
        """From W on they repeat themselves every w steps: this is the end of the first time."""
        return min(self.horizon, self.window + self._block - 1)

    def max_row_norm2(self) -> float:
        return float(self.row_norms2(self._whole).max())

    def mean_row_norm2(self) -> float:
        norms, left = self.row_norms2(self._whole), self.horizon - self._whole
        total = float(norms.sum())
        if left > 0:
            times, more = divmod(left, self._block)
            again = norms[-self._block :]
            total += times * float(again.sum()) + float(again[:more].sum())
        return total / self.horizon


@lru_cache(maxsize=64)
def _best_block(window: int) -> int:
    """That of the fewest draws in the largest release, among those near the root of the window."""
    root = math.isqrt(window)
    sizes: Sequence[int] = range(max(2, root // 2), max(3, 2 * root + 1))

    def most(block: int) -> float:
        made = SlidingBlocks(2 * window + 2 * block, window, block)
        return float(made._count(np.arange(window, window + block)).max())

    return min(sizes, key=most)
