"""Exact errors of calibrated counters, confidence intervals, and the choice of a mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np

from beam_dpcount import mechanisms
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.counter import Counter, UnsupportedBudgetError, calibrate
from beam_dpcount.mechanisms import Binned, KAry, Sparse, Unbounded
from beam_dpcount.mechanisms.base import Mechanism, UnsupportedHorizonError, check_horizon
from beam_dpcount.noise.laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    Law,
    RoundedGaussian,
    ScaleError,
)

_FINE = 64  # lattice units a scale at which a law has its continuous shape to plotting accuracy
_FINE_LAWS: dict[type[Law], Law] = {
    DiscreteLaplace: DiscreteLaplace(Fraction(_FINE)),
    DiscreteGaussian: DiscreteGaussian(Fraction(_FINE**2)),
    RoundedGaussian: RoundedGaussian(Fraction(_FINE**2)),
}
_QUICK = 1 << 12  # beyond it Binned takes seconds to find its sensitivity
_LARGE = 1000  # numbers of state that no default takes
_LARGEST = 1 << 20  # reach of a sum that is still transformed; a wider one is normal


def half_width(counter: Counter, t: int, level: float = 0.95) -> float:
    """Half the width of the confidence interval of release t.

    The exact count lies within value +/- half_width with probability `level`, or a little more as
    noise is discrete. For releases that sum draws of weight 1 it comes from the exact law of the
    sum, by Fourier inversion (scales above 64 lattice units are taken as 64 and stretched), or
    from the normal law where there are tens of thousands of them; for other weights from the
    normal law if noise is Gaussian, and else from Chernoff's bound, which is wider.

    Args:
      counter: the calibrated counter.
      t: the step, from 1 to the horizon.
      level: between 0 and 1, both excluded.

    Raises:
      ValueError: t or level is outside its range.
    """
    counter.variance(t)  # checks t
    return _half_width(counter, counter.mechanism.row_norm2(t), level)


def largest_half_width(counter: Counter, level: float = 0.95) -> float:
    """`half_width` of the release that has the largest variance."""
    return _half_width(counter, counter.mechanism.max_row_norm2(), level)


def _half_width(counter: Counter, terms: float, level: float) -> float:
    _check_level(level)
    law = counter.law
    variance = law.variance * counter.grid**2 * terms
    if variance == 0:
        return 0.0
    stretch = max(1.0, law.scale / _FINE)
    fine = law if stretch == 1 else _FINE_LAWS[type(law)]
    if counter.mechanism.unit_weights and _reach(fine, terms) <= _LARGEST:
        width = _sum_quantile(fine, round(terms), level)
        return (width if stretch == 1 else (width + 1) * stretch) * counter.grid
    if not isinstance(law, DiscreteLaplace) or counter.mechanism.unit_weights:
        return normal_half_width(math.sqrt(variance), level) + counter.grid / 2
    return chernoff(law, terms, math.log(2 / (1 - level))) * counter.grid


def _reach(law: Law, terms: float) -> int:
    """Beyond it lies nothing of the sum of `terms` draws that double precision could see."""
    return int(12 * math.sqrt(law.variance * terms) + 40 * law.scale + 10)


def _sum_quantile(law: Law, terms: int, level: float) -> int:
    """The least m with P(|sum of `terms` draws| <= m) >= level."""
    size = 1 << (2 * _reach(law, terms) + 1).bit_length()
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
    terms = counter.mechanism.max_row_norm2()
    if counter.law.variance * terms * releases < 1 - level and counter.mechanism.unit_weights:
        return 0.0  # Chebyshev: no draw differs from 0
    return chernoff(counter.law, terms, math.log(2 * releases / (1 - level))) * counter.grid


def chernoff(law: Law, norm2: float, nats: float) -> float:
    """m with P(noise >= m) <= exp(-nats), for weights of at most 1 with this sum of squares."""
    if isinstance(law, DiscreteGaussian | RoundedGaussian):
        return math.sqrt(2 * law.variance_proxy * norm2 * nats)
    # E exp(l z) = (1-q)^2 / ((1 - q e^l)(1 - q e^-l)) for l < 1/scale. Its logarithm is convex in
    # l^2, so a draw of weight w <= 1 contributes at most w^2 of it.
    best = math.inf
    for share in np.linspace(0.001, 0.999, 999):
        lam = share / law.scale
        log_mgf = 2 * math.log(-math.expm1(-1 / law.scale)) - sum(
            math.log(-math.expm1(sign * lam - 1 / law.scale)) for sign in (1, -1)
        )
        best = min(best, (norm2 * log_mgf + nats) / lam)
    return best


@dataclass(frozen=True)
class Row:
    """One mechanism in the table behind a choice; errors are standard deviations."""

    counter: Counter
    max_stddev: float
    mean_stddev: float
    state_size: int
    draws_per_step: float

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism itself."""
        return self.counter.mechanism


@dataclass(frozen=True)
class Choice:
    """The best mechanism for a horizon and a budget, and the table that shows it; prints."""

    mechanism: Mechanism
    objective: str
    rows: tuple[Row, ...]
    not_listed: tuple[tuple[str, str], ...] = ()  # name, and why

    def __str__(self) -> str:
        lines = [
            f"{'mechanism':<14}{'noise':<18}{'max stddev':>11}{'mean stddev':>12}"
            f"{'state':>8}{'draws/step':>11}"
        ]
        for row in self.rows:
            lines.append(
                f"{row.mechanism.name:<14}{type(row.counter.law).__name__:<18}"
                f"{row.max_stddev:>11.4g}{row.mean_stddev:>12.4g}"
                f"{row.state_size:>8}{row.draws_per_step:>11.3g}"
            )
        if self.not_listed:
            lines += ["", "not listed: " + ", ".join(f"{n} ({why})" for n, why in self.not_listed)]
        return "\n".join(lines)


def choose(
    horizon: int,
    budget: Budget,
    objective: str = "max",
    max_state: int | None = None,
    replays: bool = False,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
) -> Choice:
    """The mechanism of least exact error for this horizon and budget.

    Args:
      horizon: number of steps.
      budget: for the whole stream of one key.
      objective: "max" compares the largest variance of a release, "mean" the mean.
      max_state: the most numbers that may be kept per key and coordinate; None: any.
      replays: only mechanisms that draw no noise early, and so may meet replays of other data
        from the same state: KAry goes without subtraction.
      change, dimension, unit: as for `calibrate`.

    Returns:
      A Choice: its `mechanism`, and the table of all that take budget and horizon, best first.
      Binned, which NormalizedBLT beats, is tried up to 2^12 steps only: it is slow to calibrate.

    Raises:
      ValueError, TypeError: an argument is outside its range, or no mechanism fits.
    """
    if objective not in ("max", "mean"):
        raise ValueError(f'objective must be "max" or "mean", got {objective!r}')
    rows: list[Row] = []
    missing: list[tuple[str, str]] = []
    scale_error: ScaleError | None = None
    for kind in mechanisms.ALL:
        if kind is Binned and _QUICK < horizon <= Binned.longest:
            missing.append((kind.__name__, "slow to calibrate"))
            continue
        try:
            mechanism = kind(check_horizon(horizon))
            if replays and isinstance(mechanism, KAry):
                mechanism = KAry(horizon, subtraction=False)
            counter = calibrate(mechanism, budget, change, dimension, unit)
        except UnsupportedBudgetError:
            missing.append((kind.__name__, "budget"))
            continue
        except UnsupportedHorizonError:
            missing.append((kind.__name__, "horizon"))
            continue
        except ScaleError as error:  # out of range for this one; others may need less noise
            missing.append((kind.__name__, "scale of its noise"))
            scale_error = error
            continue
        rows.append(
            Row(
                counter,
                math.sqrt(counter.max_variance()),
                math.sqrt(counter.mean_variance()),
                counter.state_size,
                counter.mechanism.draws(horizon) / horizon,
            )
        )
    if not rows and scale_error is not None:
        raise scale_error
    by_error = sorted(rows, key=lambda r: r.max_stddev if objective == "max" else r.mean_stddev)
    fitting = [row for row in by_error if max_state is None or row.state_size <= max_state]
    if not fitting:
        least = min(row.state_size for row in rows)
        problem = f"is {max_state!r}, but the smallest state has {least} numbers"
        raise ParameterError("max_state", problem)
    dropped = [(row.mechanism.name, "state") for row in by_error if row not in fitting]
    return Choice(fitting[0].mechanism, objective, tuple(fitting), (*missing, *dropped))


def resolve(
    mechanism: Any,
    horizon: int | None,
    budget: Budget,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
    replays: bool = False,
) -> Any:
    """The mechanism that a user named: an instance, a class, a name, or None for the best."""
    if mechanism is None:
        return choose(
            check_horizon(horizon), budget, "max", _LARGE, replays, change, dimension, unit
        ).mechanism
    if isinstance(mechanism, Unbounded | Sparse):
        if horizon is not None:
            raise ValueError(
                f"{mechanism.name} has no horizon, got horizon={horizon!r}: leave it out"
            )
        return mechanism
    names = {kind.__name__: kind for kind in mechanisms.ALL}
    if isinstance(mechanism, str):
        if mechanism not in names:
            raise ValueError(f"unknown mechanism {mechanism!r}: choose one of {', '.join(names)}")
        mechanism = names[mechanism]
    if isinstance(mechanism, type) and issubclass(mechanism, KAry) and replays:
        return mechanism(check_horizon(horizon), subtraction=False)
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
