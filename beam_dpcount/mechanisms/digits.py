"""Sums and maxima of digit costs over t = 1 .. T, in closed form, for mixed radices.

A number t has digits d_i with t = sum d_i w_i, w_0 = 1, w_{i+1} = w_i k_i. Digits are 0 .. k_i - 1,
or balanced, -(k_i-1)/2 .. (k_i-1)/2 (k_i odd). The cost of t is sum |d_i|.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from beam_dpcount.noise.tables import IntArray


def digits(t: int, radices: Sequence[int], balanced: bool) -> list[int]:
    """The digits of t >= 0, lowest first; the number must fit."""
    result = []
    for k in radices:
        t, digit = divmod(t, k)
        if balanced and digit > k // 2:
            t, digit = t + 1, digit - k
        result.append(digit)
    return result


def ones(top: int, bit: int) -> int:
    """How many of 1 .. top have this bit."""
    cycles, rest = divmod(top + 1, 2 << bit)
    return (cycles << bit) + max(0, rest - (1 << bit))


def first_difference(s: IntArray, t: IntArray) -> IntArray:
    """The highest bit in which s and t differ; t is the larger, so it has it."""
    return np.asarray(np.frexp(s ^ t)[1] - 1, dtype=np.int64)


def total_cost(top: int, radices: Sequence[int], balanced: bool) -> int:
    """The sum of the costs of t = 1 .. top."""
    total, weight = 0, 1
    for k in radices:
        # |d_i| depends on q = floor((t + shift) / w) mod k only.
        shift = weight // 2 if balanced else 0
        cycles, rest = divmod(top + shift + 1, weight * k)
        full, part = divmod(rest, weight)
        last = min(full, k - full) if balanced else full
        total += weight * (cycles * _sum(k, k, balanced) + _sum(full, k, balanced)) + part * last
        weight *= k  # t + shift from 0 on adds only q = 0, which costs nothing
    return total


def _sum(n: int, k: int, balanced: bool) -> int:
    """The sum of |d_i| over q = 0 .. n - 1, n <= k: of q, or of the lesser of q and k - q."""
    up = min(n, k // 2 + 1) if balanced else n
    down = n - up  # of k - up, k - up - 1, ...
    return up * (up - 1) // 2 + down * (k - up) - down * (down - 1) // 2


def largest_cost(top: int, radices: Sequence[int], balanced: bool) -> int:
    """The largest cost of any t = 1 .. top."""
    limits = digits(top, radices, balanced)

    @cache
    def best(i: int, tight: bool, leading: bool) -> int:
        if i < 0:
            return 0
        half = radices[i] // 2
        low = -half if balanced and not leading else 0
        high = limits[i] if tight else half if balanced else radices[i] - 1
        costs = [
            abs(d) + best(i - 1, tight and d == limits[i], leading and d == 0)
            for d in {low, high, high - 1}
            if low <= d <= high
        ]
        return max(costs, default=-(10**9))

    return best(len(radices) - 1, True, True)
