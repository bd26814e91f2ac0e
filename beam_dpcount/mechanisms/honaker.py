"""Honaker's refinement of the binary tree, online [Honaker 2015; Kairouz et al. 2021]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray, State, owned, zero
from beam_dpcount.mechanisms.binary import Dyadic
from beam_dpcount.mechanisms.digits import first_difference, ones
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class Honaker(Dyadic):
    """Binary tree whose nodes are estimated from their own noisy sum and from their children's.

    Every node is noised, right children too: y = sum + z. The estimate of a node of height j > 0
    weighs y by v_j = 1/(2(1 - 2^-(j+1))) and its children's estimates by 1 - v_j; a leaf's is y.
    Release t sums the estimates of the nodes of t's 1-bits. All after y is post-processing.

    Guarantee: an item lies in one node of every height up to log2(T):
      Delta_1 = floor(log2 T) + 1, Delta_2 its square root, exactly (item 1). Takes every budget.
      Variance of release t: the sum of v_j over the heights j of t's 1-bits, v_0 = 1.

    Source: [KMSTTX21, Appendix B.1]; variance by induction on the height.
    """

    @property
    def state_size(self) -> int:
        return 1 + 2 * ((self.horizon + 1).bit_length() - 1)

    def draws(self, n: int) -> int:
        return _drawn(n)

    def init(self, dimension: int | None = None) -> State:
        return (0,)  # then, largest node first: exact sum, estimate

    def state_types(self, n: int) -> str:
        return "q" + "qd" * (n // 2)

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        coordinate = _drawn(t - 1) + 1
        height = (t & -t).bit_length() - 1
        stack, merged = state[1 : len(state) - 2 * height], state[len(state) - 2 * height :]
        total = x + 0  # a copy: the state must not share memory with its input
        estimate = (total + noise.one(coordinate)) * 1.0
        for j in range(1, height + 1):
            left_sum, left_estimate = merged[len(merged) - 2 * j], merged[len(merged) - 2 * j + 1]
            total = left_sum + total
            y = (total + noise.one(coordinate + j)) * 1.0
            estimate = _estimate(j, y, left_estimate, estimate)
        state = (t, *stack, total, estimate)
        value: Any = 0.0
        for kept in state[2::2]:
            value = value + kept
        return state, value

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        if self.check_steps(n) == 0:
            return self.init(dimension)
        z = noise.draw(1, _drawn(n))
        estimates = _estimates(z[rows] * 1.0 for _, rows in _nodes(n))
        nodes = [(j, (n >> j) - 1) for j in range(n.bit_length() - 1, -1, -1) if n >> j & 1]
        return (n, *[v for j, i in nodes for v in (zero(dimension), owned(estimates[j][i]))])

    def release(self, xs: IntArray, noise: Noise) -> Any:
        n = self.check_steps(len(xs))
        z = noise.draw(1, _drawn(n))
        values = np.zeros((n + 1, *np.shape(xs)[1:]))
        sums = np.concatenate([np.zeros_like(xs[:1]), np.cumsum(xs, axis=0)])
        estimates = _estimates(
            (sums[ends] - sums[ends - (1 << j)] + z[rows]) * 1.0
            for j, (ends, rows) in enumerate(_nodes(n))
        )
        for j, estimate in reversed(list(enumerate(estimates))):
            ends = np.arange(1 << j, n + 1, 2 << j)
            values[ends] = values[ends - (1 << j)] + estimate[::2]
        return values[1:]

    def encoder(self, n: int) -> FloatArray:
        matrix = np.zeros((_drawn(self.check_steps(n)), n))
        row = 0
        for t in range(1, n + 1):
            for j in range((t & -t).bit_length()):
                matrix[row, t - (1 << j) : t] = 1
                row += 1
        return matrix

    def decoder(self, n: int) -> FloatArray:
        unit = np.eye(_drawn(self.check_steps(n)))
        stack: list[tuple[int, FloatArray]] = []
        matrix = np.zeros((n, len(unit)))
        row = 0
        for t in range(1, n + 1):
            estimate, height = unit[row], 0
            row += 1
            while stack and stack[-1][0] == height:
                height += 1
                estimate = _estimate(height, unit[row], stack.pop()[1], estimate)
                row += 1
            stack.append((height, estimate))
            matrix[t - 1] = sum(kept for _, kept in stack)
        return matrix

    def products(self, s: IntArray, lag: int) -> FloatArray:
        # Release t sums the estimate of a node of height j that covers the rest of s, whose nodes
        # are below it: an estimate weighs in its parent's by 1 - v.
        j, total = first_difference(s, s + lag), np.zeros(len(s))
        v = [_weight(i) for i in range(self.horizon.bit_length())]
        for i, variance in enumerate(v):
            below = np.cumprod([1 - w for w in v[i + 1 :]])
            faded = variance * np.concatenate([np.ones(i + 1), below])
            total += (s >> i & 1) * np.where(i > j, variance, faded[j])
        return total

    def row_norm2(self, t: int) -> float:
        return sum(_weight(i) for i in range(t.bit_length()) if t >> i & 1)

    def row_norms2(self, n: int) -> FloatArray:
        t = np.arange(1, self.check_steps(n) + 1, dtype=np.int64)
        norms = np.zeros(n)
        for i in range(n.bit_length()):
            norms += _weight(i) * (t >> i & 1)
        return norms

    def max_row_norm2(self) -> float:
        # The largest t <= T, or one that drops a 1-bit of T and has all bits below it.
        top = self.horizon
        below = [(top >> i << i) - 1 for i in range(top.bit_length()) if top >> i & 1]
        return max(self.row_norm2(t) for t in [top, *below] if t > 0)

    def mean_row_norm2(self) -> float:
        bits = range(self.horizon.bit_length())
        return sum(ones(self.horizon, i) * _weight(i) for i in bits) / self.horizon


def _weight(height: int) -> float:
    """v_j, which is also the variance of a node's estimate in draws."""
    return 1 / (2 * (1 - 0.5 ** (height + 1)))


def _estimate(height: int, y: Any, left: Any, right: Any) -> Any:
    v = _weight(height)
    return v * y + (1 - v) * (left + right)


def _nodes(n: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Of each height the last items of all nodes that n steps complete, and their rows of z."""
    t = np.arange(n + 1, dtype=np.int64)
    first = np.cumsum(np.frexp(t & -t)[1])  # `_drawn` of each step
    for j in range(n.bit_length()):
        ends = t[1 << j :: 1 << j]
        yield ends, first[ends - 1] + j


def _estimates(noisy: Iterable[Any]) -> list[FloatArray]:
    """The estimates of all nodes of each height, from their noisy sums."""
    estimates: list[FloatArray] = []
    for j, y in enumerate(noisy):
        if j:
            below = estimates[-1][: 2 * len(y)]
            y = _estimate(j, y, below[::2], below[1::2])
        estimates.append(y)
    return estimates


def _drawn(t: int) -> int:
    """Coordinates drawn by step t: the sum over s <= t of 1 + (trailing zeros of s)."""
    return 2 * t - t.bit_count()
