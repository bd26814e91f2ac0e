"""Small laws of noise, counters with them, and what they add up to, by enumeration."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

import beam_dpcount as dp
from beam_dpcount.counters.change import TickChange
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian
from tests.audit.exact import log_pmf
from tests.rounding import coarse

EVENT = TickChange(0, 1)


def laplace(scale) -> DiscreteLaplace:
    return DiscreteLaplace(Fraction(scale))


def discrete(sigma) -> DiscreteGaussian:
    return DiscreteGaussian(Fraction(sigma) ** 2)


def rounded(sigma) -> RoundedGaussian:
    return RoundedGaussian(Fraction(sigma) ** 2)


def takes(kind, law: Law) -> bool:
    return ("laplace" if isinstance(law, DiscreteLaplace) else "gaussian") in kind(4).laws


def counter_of(kind, horizon: int, law: Law):
    """With this law, whatever it is worth; R x is rounded to quarters of a unit, where it is."""
    mechanism = (coarse(kind) if issubclass(kind, RoundedMechanism) else kind)(horizon)
    budget = dp.ZCDP(1.0) if "gaussian" in mechanism.laws else dp.PureDP(1.0)
    return replace(dp.calibrate(mechanism, budget, EVENT), law=law)


def weighted(law: Law, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All values of a weighted sum of draws, rising, and the probabilities of at least them.

    The last of these is 0, of more than all values.
    """
    return _weighted(law, tuple(sorted(np.abs(row[row != 0]).tolist())))


@lru_cache(maxsize=64)
def _weighted(law: Law, weights: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    reach = 1
    while np.exp(log_pmf(law, np.array([reach])))[0] > 1e-14 and (2 * reach) ** len(weights) < 1e6:
        reach += 1
    z = np.arange(-reach, reach + 1)
    p = np.exp(log_pmf(law, z))
    values, chances = np.zeros(1), np.ones(1)
    for weight in weights:
        values = np.add.outer(values, weight * z).ravel()
        chances = np.multiply.outer(chances, p).ravel()
    order = np.argsort(values)
    return values[order], np.append(np.cumsum(chances[order][::-1])[::-1], 0)
