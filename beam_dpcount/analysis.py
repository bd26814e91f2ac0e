"""Exact errors of calibrated counters, confidence intervals, and the choice of a mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from beam_dpcount import mechanisms
from beam_dpcount.budget import Budget
from beam_dpcount.counter import Counter, UnsupportedBudgetError, calibrate
from beam_dpcount.laws import DiscreteGaussian, DiscreteLaplace, Law
from beam_dpcount.mechanisms.base import Mechanism, check_horizon
from beam_dpcount.sensitivity import Change

_FINE = 64  # lattice units a scale at which a law has its continuous shape to plotting accuracy


def half_width(counter: Counter, t: int, level: float = 0.95) -> float:
    """Half the width of the confidence interval of release t.

    The exact count lies within value +/- half_width with probability at least `level`. The law
    is the exact one of the sum of t's noises, computed by Fourier inversion, up to noise scales
    of 64 lattice units; larger scales are rescaled to that.

    Args:
      counter: the calibrated counter.
      t: the step, from 1 to the horizon.
      level: between 0 and 1, both excluded.

    Raises:
      ValueError: t or level is outside its range.
    """
    _check_level(level)
    variance = counter.variance(t)
    if variance == 0:
        return 0.0
    terms = round(counter.mechanism.row_norm2(t))
    law, stretch = counter.law, 1.0
    if law.scale > _FINE:
        stretch = law.scale / _FINE
        law = (
            DiscreteLaplace(Fraction(_FINE))
            if isinstance(law, DiscreteLaplace)
            else DiscreteGaussian(Fraction(_FINE**2))
        )
    return _sum_quantile(law, terms, level) * stretch * counter.unit


def _sum_quantile(law: Law, terms: int, level: float) -> int:
    """The least m with P(|sum of `terms` draws| <= m) >= level."""
    reach = int(12 * math.sqrt(law.variance * terms) + 40 * law.scale + 10)
    size = 1 << (2 * reach + 1).bit_length()
    x = np.arange(size)
    x = np.minimum(x, size - x)
    transform = np.fft.rfft(law.pmf(x))
    probabilities = np.fft.irfft(transform**terms, size)
    inside = np.cumsum(probabilities[: size // 2]) * 2 - probabilities[0]
    return int(np.searchsorted(inside, level))


def largest_error(counter: Counter, streams: int = 1, level: float = 0.95) -> float:
    """A bound that the errors of all releases of all streams keep, with probability `level`.

    A union bound over horizon * streams releases of Chernoff's bound for the widest of them
    [discrete Gaussians are sub-Gaussian: CKS20, Lemma 22].

    Args:
      counter: the calibrated counter of each stream.
      streams: number of keys (times coordinates).
      level: between 0 and 1, both excluded.
    """
    _check_level(level)
    if streams < 1:
        raise ValueError(f"streams must be at least 1, got {streams}")
    releases = counter.mechanism.horizon * streams
    budget = math.log(2 * releases / (1 - level))
    terms = counter.mechanism.max_row_norm2()
    law = counter.law
    if isinstance(law, DiscreteGaussian):
        bound = math.sqrt(2 * float(law.sigma2) * terms * budget)
        if law.variance * terms * releases < 1 - level:  # no draw differs from 0: Chebyshev
            bound = 0.0
        return bound * counter.unit
    # E exp(lambda z) = (1-q)^2 / ((1 - q e^lambda)(1 - q e^-lambda)) for lambda < 1/scale.
    best = math.inf
    for share in np.linspace(0.001, 0.999, 999):
        lam = share / law.scale
        log_mgf = 2 * math.log(-math.expm1(-1 / law.scale)) - sum(
            math.log(-math.expm1(sign * lam - 1 / law.scale)) for sign in (1, -1)
        )
        best = min(best, (terms * log_mgf + budget) / lam)
    return best * counter.unit


@dataclass(frozen=True)
class Row:
    """One mechanism in the table behind a choice; errors are standard deviations."""

    mechanism: Mechanism
    counter: Counter
    max_stddev: float
    mean_stddev: float
    state_size: int


@dataclass(frozen=True)
class Choice:
    """The best mechanism for a horizon and a budget, and the table that shows it; prints."""

    mechanism: Mechanism
    objective: str
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        head = f"{'mechanism':<16}{'noise':<18}{'max stddev':>12}{'mean stddev':>13}{'state':>7}"
        lines = [
            f"{row.mechanism.name:<16}{type(row.counter.law).__name__:<18}"
            f"{row.max_stddev:>12.4g}{row.mean_stddev:>13.4g}{row.state_size:>7}"
            for row in self.rows
        ]
        return "\n".join([head, *lines])


def choose(
    horizon: int,
    budget: Budget,
    objective: str = "max",
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
) -> Choice:
    """The mechanism of least exact error for this horizon and budget.

    Args:
      horizon: number of steps.
      budget: for the whole stream of one key.
      objective: "max" compares the largest variance of a release, "mean" the mean.
      change, dimension, unit: as for `calibrate`.

    Returns:
      A Choice: its `mechanism`, and the table of all that take the budget, best first.
    """
    if objective not in ("max", "mean"):
        raise ValueError(f'objective must be "max" or "mean", got {objective!r}')
    rows = []
    for kind in mechanisms.ALL:
        try:
            mechanism = kind(check_horizon(horizon))
            counter = calibrate(mechanism, budget, change, dimension, unit)
        except UnsupportedBudgetError:
            continue
        rows.append(
            Row(
                mechanism,
                counter,
                math.sqrt(counter.max_variance()),
                math.sqrt(counter.mean_variance()),
                counter.state_size,
            )
        )
    rows.sort(key=lambda r: r.max_stddev if objective == "max" else r.mean_stddev)
    return Choice(rows[0].mechanism, objective, tuple(rows))


def resolve(
    mechanism: Mechanism | type[Mechanism] | str | None,
    horizon: int,
    budget: Budget,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
) -> Mechanism:
    """The mechanism that a user named: an instance, a class, a name, or None for the best."""
    if mechanism is None:
        return choose(horizon, budget, "max", change, dimension, unit).mechanism
    names = {kind.__name__: kind for kind in mechanisms.ALL}
    if isinstance(mechanism, str):
        if mechanism not in names:
            raise ValueError(f"unknown mechanism {mechanism!r}: choose one of {', '.join(names)}")
        return names[mechanism](check_horizon(horizon))
    if isinstance(mechanism, type) and issubclass(mechanism, Mechanism):
        return mechanism(check_horizon(horizon))
    if not isinstance(mechanism, Mechanism):
        raise TypeError(
            f"mechanism must be one of {', '.join(names)} (an instance, the class, or its name), "
            f"got {mechanism!r}"
        )
    if mechanism.horizon != check_horizon(horizon):
        raise ValueError(
            f"horizon is {horizon}, but the mechanism was made for {mechanism.horizon}: give both "
            "the same"
        )
    return mechanism


def normal_half_width(stddev: float, level: float = 0.95) -> float:
    """Half the width of the normal confidence interval of a release with this stddev."""
    _check_level(level)
    return NormalDist().inv_cdf((1 + level) / 2) * stddev


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level!r}: give e.g. 0.95")
