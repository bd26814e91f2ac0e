"""Exact errors of calibrated counters: confidence intervals of releases."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from beam_dpcount.checks import check_real, check_whole
from beam_dpcount.counters.counter import Counter
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian

_FINE = 64  # lattice units a scale at which a law has its continuous shape to plotting accuracy
_FINE_LAWS: dict[type[Law], Law] = {
    DiscreteLaplace: DiscreteLaplace(Fraction(_FINE)),
    DiscreteGaussian: DiscreteGaussian(Fraction(_FINE**2)),
    RoundedGaussian: RoundedGaussian(Fraction(_FINE**2)),
}
_INVERTED = 1 - 1e-5  # the largest level far enough from 1 for the error of the inversion
_NEWTON_STEPS, _CLOSE = 60, 1e-12  # for quantiles; bisection alone would do with as many, too
_LARGEST = 1 << 20  # reach of a sum that is still transformed; a wider one is normal


def half_width(counter: Counter, t: int, level: float = 0.95) -> float:
    """Half the width of the confidence interval of release t.

    The exact count lies within value +/- half_width with probability `level`, or a little more as
    noise is discrete. For releases that sum draws of weight 1 it comes from the exact law of the
    sum, by Fourier inversion (scales above 64 lattice units are taken as 64 and stretched), or
    from the normal law where there are tens of thousands of them; for other weights from the
    normal law if noise is Gaussian, from that of the weighted sum of continuous Laplace noise if
    the mechanism knows its weights (BridgedKAry), and else from Chernoff's bound, which is wider.

    Raises:
      ValueError: t is not from 1 to the horizon, or level not between 0 and 1, both excluded.
    """
    check_counter(counter)
    check_whole("t", t, counter.horizon, "steps")
    return _half_width(counter, counter.mechanism.row_norm2(t), level, t)


def half_width_of_draws(counter: Counter, draws: int, level: float = 0.95) -> float | None:
    """`half_width` of a release that sums so many draws; None if its draws are weighted."""
    if not counter.mechanism.unit_weights or counter.share != 1:
        return None
    return _half_width(counter, draws, level, None)


def largest_half_width(counter: Counter, level: float = 0.95) -> float:
    """`half_width` of the release that has the largest variance."""
    check_counter(counter)
    return _half_width(counter, counter.mechanism.max_row_norm2(), level, None)


def _half_width(counter: Counter, terms: float, level: float, t: int | None) -> float:
    check_level(level)
    law = counter.law
    variance = counter.noise_variance * terms
    if variance == 0:
        return 0.0
    stretch = max(1.0, law.scale / _FINE)
    fine = law if stretch == 1 else _FINE_LAWS[type(law)]
    unit_weights = counter.mechanism.unit_weights and counter.share == 1
    if unit_weights and _reach(fine, terms) <= _LARGEST:
        width = _sum_quantile(fine, round(terms), level)
        return (width if stretch == 1 else (width + 1) * stretch) * counter.grid
    if unit_weights or not isinstance(law, DiscreteLaplace):
        return normal_half_width(math.sqrt(variance), level) + counter.grid / 2
    row = counter.mechanism.weights(t) if counter.share == 1 else None
    if row is not None and level <= _INVERTED:
        # Discrete Laplace noise is less spread than continuous noise of its scale.
        return (law.scale * _laplace_quantile(*row, level) + 0.5) * counter.grid
    return chernoff(law, terms * counter.share, math.log(2 / (1 - level))) * counter.grid


def _laplace_quantile(weights: FloatArray, counts: FloatArray, level: float) -> float:
    """The x with P(|X| <= x) = level, for X a weighted sum of Laplace noises of scale 1."""
    return _remembered_quantile(tuple(weights.tolist()), tuple(counts.tolist()), level)


@lru_cache(maxsize=256)  # reports ask for the same release several times
def _remembered_quantile(
    weights: tuple[float, ...], counts: tuple[float, ...], level: float
) -> float:
    """By Fourier inversion: P(|X| <= x) is the integral of 2 phi(a) sin(a x) / (pi a) over a > 0.

    Its derivative, the density, is that of 2 phi(a) cos(a x) / pi. So Newton's method finds x in a
    few steps. Each stays within the interval that is known to hold x.
    """
    of_weight, number = np.array(weights), np.array(counts)
    stddev = math.sqrt(2 * float(np.square(of_weight) @ number))
    reach = 12 * stddev + 40  # beyond it lies nothing that double precision could see
    # The midpoint rule errs by what lies beyond 2 pi / step - x; phi is below 1e-6 at its end.
    step = math.pi / reach
    at = (np.arange(int(1000 * reach / stddev)) + 0.5) * step
    phi = np.exp(-np.log1p(np.square(np.multiply.outer(at, of_weight))) @ number)
    density = phi * (2 * step / math.pi)
    low, high, x = 0.0, reach, normal_half_width(stddev, level)
    for _ in range(_NEWTON_STEPS):
        angles = at * x
        # Sums, not dot products: BLAS may spread them over threads, at ten times the CPU.
        excess = float(np.sum(density / at * np.sin(angles))) - level
        low, high = (low, x) if excess >= 0 else (x, high)
        slope = float(np.sum(density * np.cos(angles)))
        after = x - excess / slope if slope > 0 else math.inf
        after = after if low < after < high else (low + high) / 2
        if abs(after - x) <= _CLOSE * stddev:
            return after
        x = after
    return high


def _reach(law: Law, terms: float) -> int:
    """Beyond it lies nothing of the sum of `terms` draws that double precision could see."""
    return int(12 * math.sqrt(law.variance * terms) + 40 * law.scale + 10)


@lru_cache(maxsize=1 << 12)
def _sum_quantile(law: Law, terms: int, level: float) -> int:
    """The least m with P(|sum of `terms` draws| <= m) >= level."""
    size = 1 << (2 * _reach(law, terms) + 1).bit_length()
    x = np.arange(size)
    x = np.minimum(x, size - x)
    transform = np.fft.rfft(law.pmf(x))
    probabilities = np.fft.irfft(transform**terms, size)
    inside = np.cumsum(probabilities[: size // 2]) * 2 - probabilities[0]
    return int(np.searchsorted(inside, level))


def check_counter(counter: object) -> None:
    """Raise an error unless it is one of `calibrate`."""
    if not isinstance(counter, Counter):
        remedy = "give that of a transform, count.counter, or calibrate(mechanism, budget)"
        raise TypeError(f"counter must be a Counter, got {counter!r}: {remedy}")


def chernoff(law: Law, norm2: float, nats: float) -> float:
    """m with P(noise >= m) <= exp(-nats), for weights of at most 1 with this sum of squares."""
    return float(chernoffs(law, np.array([norm2]), nats)[0])


def chernoffs(law: Law, norms2: FloatArray, nats: float) -> FloatArray:
    """`chernoff` of many sums of squares, shape (n,)."""
    if isinstance(law, DiscreteGaussian | RoundedGaussian):
        return np.asarray(np.sqrt(2 * law.variance_proxy * norms2 * nats))
    # E exp(l z) = 1 / (1 - (sinh(l/2) / sinh(1/(2 scale)))^2) for l < 1/scale. Its logarithm is
    # convex in l^2, so a draw of weight w <= 1 contributes at most w^2 of it.
    lam = np.linspace(0.001, 0.999, 999) / law.scale
    ratio = np.exp((lam - 1 / law.scale) / 2) * np.expm1(-lam) / np.expm1(-1 / law.scale)
    slopes, starts = -np.log1p(-(ratio**2)) / lam, nats / lam
    # Each l gives a bound, a line over norms2, and is the best of all between two of these ends,
    # which fall as l grows. For tiny scales slopes vanish: the largest l is best.
    with np.errstate(divide="ignore", over="ignore"):
        ends = (starts[:-1] - starts[1:]) / np.diff(slopes)
    best = len(ends) - np.searchsorted(ends[::-1], norms2)
    return np.asarray(norms2 * slopes[best] + starts[best])


def normal_half_width(stddev: float, level: float = 0.95) -> float:
    """Half the width of the normal confidence interval of a release with this stddev."""
    check_level(level)
    return NormalDist().inv_cdf((1 + level) / 2) * stddev


def check_level(level: float) -> None:
    """Raise an error unless `level` is a probability between 0 and 1, both excluded."""
    if not 0 < check_real("level", level, "give e.g. 0.95") < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}: give e.g. 0.95")
