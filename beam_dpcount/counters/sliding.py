"""The exact variance of a difference of two releases, and so of sliding sums."""

from __future__ import annotations

import math
import operator

import numpy as np

from beam_dpcount.checks import check_whole
from beam_dpcount.counters.counter import Counter, LatticeCounter
from beam_dpcount.counters.unbounded import UnboundedCounter
from beam_dpcount.mechanisms.base import FloatArray, IntArray, Mechanism
from beam_dpcount.mechanisms.unbounded import Unbounded


def difference_variance(counter: LatticeCounter, t: int, lag: int) -> float:
    """The exact variance of release t minus release t - lag (0 for lag >= t), of one coordinate.

    In squared units of the values; t is from 1 to the horizon, lag from 1. Exact for all of
    `mechanisms.ALL`, and for `Unbounded` of them: in closed form, except that SquareRoot sums over
    its horizon once a lag, and Binned over t. A mechanism without `products` of its own takes the
    dense decoder, for horizons up to 4096.

    Raises:
      ValueError: t or lag is outside its range, or the counter is `Sparse`, which is not linear.
    """
    check_whole("lag", lag)
    steps = np.array([operator.index(t)], dtype=np.int64)
    return float(difference_variances(counter, steps, lag)[0])


def difference_variances(counter: LatticeCounter, t: IntArray, lag: int) -> FloatArray:
    """`difference_variance` of many steps, shape (n,)."""
    if isinstance(counter, UnboundedCounter):
        return counter.share * np.array([_of_epochs(counter, step, lag) for step in t.tolist()])
    if not isinstance(counter, Counter):
        problem = "is not linear, so differences of its releases have no exact variance"
        raise ValueError(f"{counter.mechanism.name} {problem}: use Unbounded, or give a horizon")
    for step in (t.min(), t.max()):
        counter.variance(int(step))  # checks its range
    # In draws, which are whole numbers for trees: differences of large ones stay exact.
    draws, both = _norms2(counter.mechanism, t), t > lag
    s = t[both] - lag
    if len(s):
        draws[both] += _norms2(counter.mechanism, s) - 2 * counter.mechanism.products(s, lag)
    return np.asarray(np.maximum(draws, 0) * counter.noise_variance)


def _norms2(mechanism: Mechanism, t: IntArray) -> FloatArray:
    return np.array([mechanism.row_norm2(step) for step in t.tolist()], dtype=np.float64)


def _of_epochs(counter: UnboundedCounter, t: int, lag: int) -> float:
    """Before any fitting, of which the bases of epochs do not know."""
    if lag >= t:
        return counter.variance(t) / counter.share
    (i, place), (j, before) = Unbounded.place(t), Unbounded.place(t - lag)
    if i == j:
        return difference_variance(counter.of_epoch(i), place, lag)
    # The totals of epochs j .. i-1, and both bases, are noised independently.
    totals = (i - j) * counter.law.variance * counter.unit**2
    return totals + counter.of_epoch(i).variance(place) + counter.of_epoch(j).variance(before)


class SlidingStddevs:
    """The standard deviations of releases and of sliding sums, a block of steps at a time."""

    _BLOCK = 1024

    def __init__(self, counter: LatticeCounter, window: int) -> None:
        self._counter, self._window = counter, window
        self._blocks: dict[int, list[tuple[float, float]]] = {}

    def at(self, t: int) -> tuple[float, float]:
        """Of release t, and of release t minus release t - window."""
        block, place = divmod(t - 1, self._BLOCK)
        if block not in self._blocks:
            if len(self._blocks) >= 64:
                self._blocks.clear()
            first, last = block * self._BLOCK + 1, (block + 1) * self._BLOCK
            steps = np.arange(first, min(last, self._counter.horizon or last) + 1, dtype=np.int64)
            own = [math.sqrt(self._counter.variance(step)) for step in steps.tolist()]
            sliding = np.sqrt(difference_variances(self._counter, steps, self._window)).tolist()
            self._blocks[block] = list(zip(own, sliding, strict=True))
        return self._blocks[block][place]
