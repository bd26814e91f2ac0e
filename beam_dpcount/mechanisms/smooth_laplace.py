"""The smooth binary mechanism's tree of leaves, shaped for Laplace noise."""

from __future__ import annotations

import itertools
from bisect import bisect
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import comb

from beam_dpcount.mechanisms.smooth import SmoothBinary


@dataclass(frozen=True)
class SmoothLaplace(SmoothBinary):
    """`SmoothBinary` with the number of zeros that suits Laplace noise, which k costs in full.

    The leaves are the h-bit numbers with k zeros, of the (h, k) with the least k^2 (h - k): fewer
    zeros, and more ones, than Gaussian noise asks for, which the square root of k costs. Nothing
    is drawn early, so that it may meet replays and streaming input.

    Guarantee: an item lies in one node for every zero of its leaf: Delta_1 = k and
      Delta_2 = sqrt(k), exactly. Laplace noise: takes pure and approximate budgets. Variance of
      release t: at most h - k draws, each of variance 2 k^2 / epsilon^2, or a little less, as the
      noise is discrete.

    Source: [AP23, Algorithm 2]; that any (h, k) will do: docs/proofs/trees.md, "SmoothBinary".

    Example:
      >>> import beam_dpcount as dp
      >>> smooth = dp.mechanisms.SmoothLaplace(horizon=1000)
      >>> smooth.shape
      (20, 3)
      >>> counter = dp.calibrate(smooth, dp.PureDP(1.0))
      >>> round(counter.max_variance()), round(counter.mean_variance())
      (303, 221)
    """

    balanced: bool = field(default=False, init=False, repr=False)  # there is no such variant

    laws = frozenset({"laplace"})  # only: `SmoothBinary` is the one for Gaussian noise

    @property
    def shape(self) -> tuple[int, int]:
        """(h, k): bits of a leaf and zeros among them."""
        return _shape(self.horizon)


def _leaves(zeros: int, ones: int) -> int:
    return comb(zeros + ones, zeros)


@lru_cache(maxsize=256)
def _shape(horizon: int) -> tuple[int, int]:
    """The (h, k) with C(h, k) > horizon of least k^2 (h-k); in a tie that of largest k."""
    best = (horizon, -1, horizon + 1)
    for k in itertools.count(2):
        if k * k > best[0]:
            return best[2], -best[1]
        ones = bisect(range(best[0] // k**2 + 1), horizon, key=partial(_leaves, k))
        best = min(best, (k * k * ones, -k, k + ones))
    raise AssertionError("k^2 is unbounded")
