"""The exact variance of a difference of two releases, and so of sliding sums."""

from __future__ import annotations

import math
import operator
from functools import lru_cache, singledispatch
from math import comb

import numpy as np
import numpy.typing as npt

from beam_dpcount.checks import check_whole
from beam_dpcount.counters.counter import Counter, LatticeCounter
from beam_dpcount.counters.unbounded import UnboundedCounter
from beam_dpcount.mechanisms import (
    BLT,
    BinaryTree,
    Binned,
    Honaker,
    KAry,
    Simple1,
    Simple2,
    SmoothBinary,
    SquareRoot,
    TwoLevel,
    Unbounded,
)
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.mechanisms.blt_tables import powers
from beam_dpcount.mechanisms.square_root import coefficients

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# The longest horizon for which a decoder that is known only as a matrix is held as one.
_DENSE = 4096


def difference_variance(counter: LatticeCounter, t: int, lag: int) -> float:
    """The exact variance of release t minus release t - lag (0 for lag >= t), of one coordinate.

    Exact for all mechanisms in `mechanisms.ALL`, up to their horizons, and for `Unbounded` of
    them: in closed form (Toeplitz decoders: by closed sums) but for SquareRoot, which sums over
    its horizon once a lag, and Binned, which sums over t. For a mechanism of one's own it takes
    the dense decoder, for horizons up to 4096.

    Args:
      counter: the calibrated counter.
      t: the step, from 1 to the horizon.
      lag: a number of steps, from 1.

    Returns:
      A variance, in squared units of the values.

    Raises:
      ValueError: t or lag is outside its range; or the counter is none of these (`Sparse` is not
        linear, and has no exact variance).
    """
    check_whole("lag", lag)
    steps = np.array([operator.index(t)], dtype=np.int64)
    return float(difference_variances(counter, steps, lag)[0])


def difference_variances(counter: LatticeCounter, t: IntArray, lag: int) -> FloatArray:
    """`difference_variance` of many steps, shape (n,)."""
    if isinstance(counter, UnboundedCounter):
        return np.array([_of_epochs(counter, step, lag) for step in t.tolist()])
    if not isinstance(counter, Counter):
        raise ValueError(
            f"{counter.mechanism.name} is not linear, so differences of its releases have no exact "
            "variance: use Unbounded, or give a horizon"
        )
    for step in (t.min(), t.max()):
        counter.variance(int(step))  # checks its range
    # In draws, which are whole numbers for trees: differences of large ones stay exact.
    draws, both = _norms2(counter.mechanism, t), t > lag
    s = t[both] - lag
    if len(s):
        draws[both] += _norms2(counter.mechanism, s) - 2 * _products(counter.mechanism, s, lag)
    return np.asarray(np.maximum(draws, 0) * (counter.law.variance * counter.grid**2))


def _norms2(mechanism: Mechanism, t: IntArray) -> FloatArray:
    return np.array([mechanism.row_norm2(step) for step in t.tolist()], dtype=np.float64)


def _of_epochs(counter: UnboundedCounter, t: int, lag: int) -> float:
    if lag >= t:
        return counter.variance(t)
    (i, place), (j, before) = Unbounded.place(t), Unbounded.place(t - lag)
    if i == j:
        return difference_variance(counter.of_epoch(i), place, lag)
    # The totals of epochs j .. i-1, and both bases, are noised independently.
    totals = (i - j) * counter.law.variance * counter.unit**2
    return totals + counter.of_epoch(i).variance(place) + counter.of_epoch(j).variance(before)


@singledispatch
def _products(mechanism: Mechanism, s: IntArray, lag: int) -> FloatArray:
    """The products of rows s and s + lag of the decoder L, shape (n,)."""
    if mechanism.horizon > _DENSE:
        raise ValueError(
            f"the variance of differences is not known for {mechanism.name} beyond a horizon of "
            f"{_DENSE}, got {mechanism.horizon}: use one of mechanisms.ALL"
        )
    decoder = _decoder(mechanism)
    return np.asarray(np.einsum("ij,ij->i", decoder[s - 1], decoder[s + lag - 1]))


@lru_cache(maxsize=1)
def _decoder(mechanism: Mechanism) -> FloatArray:
    return mechanism.decoder(mechanism.horizon)


# Where releases sum whole nodes, the product is the number of nodes that both of them sum.


@_products.register
def _(mechanism: Simple1, s: IntArray, lag: int) -> FloatArray:
    return np.zeros(len(s))


@_products.register
def _(mechanism: Simple2, s: IntArray, lag: int) -> FloatArray:
    return s.astype(np.float64)


@_products.register
def _(mechanism: TwoLevel, s: IntArray, lag: int) -> FloatArray:
    block = s // mechanism.size
    items = np.where((s + lag) // mechanism.size == block, s % mechanism.size, 0)
    return (block + items).astype(np.float64)


@_products.register
def _(mechanism: BinaryTree, s: IntArray, lag: int) -> FloatArray:
    shared = s >> _first_difference(s, s + lag)
    total = np.zeros(len(s))
    while shared.any():
        total += shared & 1
        shared = shared >> 1
    return total


def _first_difference(s: IntArray, t: IntArray) -> IntArray:
    """The highest bit in which s and t differ; t is the larger, so it has it."""
    return np.asarray(np.frexp(s ^ t)[1] - 1, dtype=np.int64)


@_products.register
def _(mechanism: SmoothBinary, s: IntArray, lag: int) -> FloatArray:
    # Down the tree of leaves (see smooth.py): every turn right that both take is a node of both.
    # What a balanced one draws for empty nodes is in one release only.
    h, k = mechanism.shape
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


@_products.register
def _(mechanism: KAry, s: IntArray, lag: int) -> FloatArray:
    total, weight, t = np.zeros(len(s)), 1, s + lag
    for k in mechanism.radices:
        shift, half = (weight // 2, k // 2) if mechanism.subtraction else (0, 0)
        ends, starts = [], []
        for step in (s, t):
            end = (step + shift) // weight
            ends.append(end)
            starts.append((end + half) // k * k)
        low = np.maximum(*(np.minimum(a, q) for a, q in zip(starts, ends, strict=True)))
        high = np.minimum(*(np.maximum(a, q) for a, q in zip(starts, ends, strict=True)))
        signs = np.sign(ends[0] - starts[0]) * np.sign(ends[1] - starts[1])
        total += signs * np.maximum(high - low, 0)
        weight *= k
    return total


@_products.register
def _(mechanism: Honaker, s: IntArray, lag: int) -> FloatArray:
    # Release t sums the estimate of a node of height j that covers the rest of s, whose nodes are
    # below it: an estimate weighs in its parent's by 1 - v.
    j = _first_difference(s, s + lag)
    v = [1 / (2 * (1 - 0.5 ** (i + 1))) for i in range(mechanism.horizon.bit_length())]
    total = np.zeros(len(s))
    for i, variance in enumerate(v):
        below = np.cumprod([1 - w for w in v[i + 1 :]])
        faded = variance * np.concatenate([np.ones(i + 1), below])
        total += (s >> i & 1) * np.where(i > j, variance, faded[j])
    return total


@_products.register
def _(mechanism: SquareRoot, s: IntArray, lag: int) -> FloatArray:
    return _lagged(mechanism, lag)[s - 1]


@lru_cache(maxsize=8)
def _lagged(mechanism: SquareRoot, lag: int) -> FloatArray:
    r = coefficients(mechanism.workload, mechanism.horizon)
    return np.cumsum(r[:-lag] * r[lag:])


@_products.register
def _(mechanism: Binned, s: IntArray, lag: int) -> FloatArray:
    rows, total = mechanism._rows, []
    for step in s.tolist():
        # From right to left: the first `lag` columns of the later row are not in the other.
        first, second = (
            np.repeat([1.0, *row.weights], row.widths)
            for row in (rows[step - 1], rows[step + lag - 1])
        )
        total.append(float(first @ second[lag:]))
    return np.array(total)


@_products.register
def _(mechanism: BLT, s: IntArray, lag: int) -> FloatArray:
    # In the words of blt_tables: n_s = D_s b_s + E_s, and m_i(s+1) is what buffer i holds of it
    # then. G_i = Cov(n_s, m_i(s+1)) fades by theta_i a step, and all of n_t that n_s has a part
    # in is E_(s+1), the b_k of the falls s < k < t, and b_t.
    tables, p, t = mechanism._tables, mechanism._poles, s + lag
    starts, D = tables._starts, tables._D
    j = np.searchsorted(starts, s, side="right") - 1
    after, then = (D[np.searchsorted(starts, step, side="right") - 1] for step in (s + 1, t))
    q = tables._q[j] * powers(p.e, (s - starts[j])[:, None])
    Cw, B = tables._buffers(s)
    wq = q @ p.w
    wG = p.w * (D[j][:, None] * (1 + (1 - p.e) * Cw) + (1 - p.e) * q)
    faded = powers(p.e, np.full((len(s), 1), lag - 1))
    falls = _coming_falls(mechanism, s + 1) - faded * _coming_falls(mechanism, t)
    held = D[j] * wq + tables._V[j] + (D[j] - after) * (D[j] * B + wq)
    return np.asarray(held + (wG * (then[:, None] * faded + falls)).sum(axis=1))


def _coming_falls(mechanism: BLT, t: IntArray) -> FloatArray:
    """The sum of theta^(k-t) times the fall of D at k, over k >= t, shape (n, buffers)."""
    lasts, sums = _falls(mechanism)
    place = np.searchsorted(lasts, t)
    steps = np.append(lasts, 0)[place] - t
    return sums[place] * powers(mechanism._poles.e, np.maximum(steps, 0)[:, None])


@lru_cache(maxsize=8)
def _falls(mechanism: BLT) -> tuple[IntArray, FloatArray]:
    """The steps where D falls, and `_coming_falls` of them; and 0, of no fall."""
    tables, e = mechanism._tables, mechanism._poles.e
    lasts, falls = tables._starts[1:] - 1, tables._D[:-1] - tables._D[1:]
    sums = np.zeros((len(lasts) + 1, len(e)))
    gaps = powers(e, np.diff(lasts, append=lasts[-1:])[:, None])
    for n in range(len(lasts) - 1, -1, -1):
        sums[n] = falls[n] + gaps[n] * sums[n + 1]
    return lasts, sums


class SlidingStddevs:
    """The standard deviations of releases and of sliding sums, a block of steps at a time."""

    _BLOCK = 1024

    def __init__(self, counter: LatticeCounter, window: int) -> None:
        self._counter, self._window = counter, window
        self._blocks: dict[int, list[tuple[float, float]]] = {}

    def at(self, t: int) -> tuple[float, float]:
        """Of release t, and of release t minus release t - window."""
        block = self._blocks.get((t - 1) // self._BLOCK)
        if block is None:
            if len(self._blocks) >= 64:
                self._blocks.clear()
            block = self._blocks[(t - 1) // self._BLOCK] = self._make((t - 1) // self._BLOCK)
        return block[(t - 1) % self._BLOCK]

    def _make(self, number: int) -> list[tuple[float, float]]:
        first, horizon = number * self._BLOCK + 1, self._counter.horizon
        end = first + self._BLOCK if horizon is None else min(first + self._BLOCK, horizon + 1)
        t = np.arange(first, end, dtype=np.int64)
        own = [math.sqrt(self._counter.variance(step)) for step in t.tolist()]
        sliding = np.sqrt(difference_variances(self._counter, t, self._window)).tolist()
        return list(zip(own, sliding, strict=True))
