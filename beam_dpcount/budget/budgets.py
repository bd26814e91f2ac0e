"""Privacy budgets, and the noise that a budget buys."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from beam_dpcount.budget.conversions import (
    MARGIN,
    USUAL_DELTA,
    check_delta,
    gaussian_sigma,
    positive,
    rounded_up,
    zcdp_epsilon,
    zcdp_rho,
)
from beam_dpcount.errors import WeakBudgetWarning
from beam_dpcount.noise.laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    Law,
    RoundedGaussian,
    ScaleError,
)

# The rounded Gaussian must save 2 % of the scale: the discrete one has the simpler guarantee.
_WORTH = 0.98**2
# From these on a budget is weak. At delta = 1e-6, rho = 0.18 is about epsilon = 3.
_WEAK_EPSILON, _WEAK_DELTA, _WEAK_RHO = 3.0, 1e-5, 0.18


@dataclass(frozen=True)
class PureDP:
    """Pure epsilon-differential privacy.

    Args:
      epsilon: bound on the log-ratio of the probabilities of any output under neighbouring
        streams; smaller is more private, 0.1 to 3 is usual.

    Raises:
      ValueError, TypeError: epsilon is not a positive, finite number.
    """

    epsilon: float

    def __post_init__(self) -> None:
        epsilon = positive("epsilon", self.epsilon, "give e.g. PureDP(epsilon=1.0)")
        object.__setattr__(self, "epsilon", epsilon)

    def split(self, parts: int | Sequence[float]) -> tuple[PureDP, ...]:
        """Shares that compose to at most this budget: `parts` equal ones, or fractions."""
        return tuple(PureDP(e) for e in _shares(self.epsilon, parts))

    def to_zcdp(self) -> ZCDP:
        """The zCDP that every epsilon-DP mechanism satisfies: rho = epsilon^2 / 2 [BS16, 1.4]."""
        return ZCDP(self.epsilon**2 / 2 * (1 + MARGIN))

    def __str__(self) -> str:
        return f"epsilon = {rounded_up(self.epsilon)} (pure)"


@dataclass(frozen=True)
class ApproxDP:
    """Approximate (epsilon, delta)-differential privacy.

    Args:
      epsilon: positive and finite; 0.1 to 3 is usual.
      delta: between 0 and 1, both excluded. Choose it well below 1 / (number of people in
        the data): 1e-6 and smaller are usual.

    Raises:
      ValueError, TypeError: an argument is outside its range.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        example = "give e.g. ApproxDP(epsilon=1.0, delta=1e-6)"
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon, example))
        object.__setattr__(self, "delta", check_delta(self.delta))

    def split(self, parts: int | Sequence[float]) -> tuple[ApproxDP, ...]:
        """As for `PureDP`, of epsilon and delta; more than two compose better by `to_zcdp()`."""
        epsilons, deltas = _shares(self.epsilon, parts), _shares(self.delta, parts)
        return tuple(ApproxDP(e, d) for e, d in zip(epsilons, deltas, strict=True))

    def to_zcdp(self) -> ZCDP:
        """The largest rho such that rho-zCDP implies this budget (numeric conversion)."""
        return ZCDP(zcdp_rho(self.epsilon, self.delta))

    def __str__(self) -> str:
        return f"epsilon = {rounded_up(self.epsilon)}, delta = {rounded_up(self.delta)}"


@dataclass(frozen=True)
class ZCDP:
    """Zero-concentrated differential privacy [Bun, Steinke 2016].

    Args:
      rho: smaller is more private. `ZCDP(rho).to_approx(delta)` says which epsilon it gives.

    Raises:
      ValueError, TypeError: rho is not a positive, finite number.
    """

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", positive("rho", self.rho, "give e.g. ZCDP(rho=0.1)"))

    def split(self, parts: int | Sequence[float]) -> tuple[ZCDP, ...]:
        """Shares that compose to at most this budget: `parts` equal ones, or fractions."""
        return tuple(ZCDP(r) for r in _shares(self.rho, parts))

    def to_zcdp(self) -> ZCDP:
        """This budget."""
        return self

    def to_approx(self, delta: float) -> ApproxDP:
        """The smallest epsilon at this delta (numeric conversion)."""
        return ApproxDP(zcdp_epsilon(self.rho, delta), delta)

    def __str__(self) -> str:
        return f"rho = {rounded_up(self.rho)} (zCDP)"


Budget = PureDP | ApproxDP | ZCDP


def weakness(budget: Budget, keys_delta: float = 0.0) -> str:
    """Why a budget is weak, in a sentence; empty where it is not.

    Args:
      budget: what it is.
      keys_delta: what comes beside one that has no delta, where keys that nobody listed are shown.
    """
    reasons = []
    if isinstance(budget, ZCDP):
        epsilon = zcdp_epsilon(budget.rho, USUAL_DELTA) if budget.rho >= _WEAK_RHO else 0.0
        usual = "rho from 0.005 to 0.1 is usual"
        means = f"(as epsilon = {epsilon:.3g} at delta = {USUAL_DELTA:g}) "
    else:
        epsilon, usual, means = budget.epsilon, "epsilon from 0.1 to 1 is usual", ""
    if epsilon >= _WEAK_EPSILON or (isinstance(budget, ZCDP) and epsilon):
        factor = f"e^{epsilon:.3g}" + (f" = {math.exp(epsilon):,.0f}" if epsilon < 20 else "")
        shift = "lets one event shift the odds of a conclusion by a factor of up to"
        reasons.append(f"{means}{shift} {factor}; {usual}")
    delta = budget.delta if isinstance(budget, ApproxDP) else keys_delta
    if delta >= _WEAK_DELTA:
        usual = "delta well below 1 / (number of people) is usual, as 1e-6"
        reasons.append(f"may fail altogether with probability {delta:g}; {usual}")
    return f"weak budget: {budget} {', and '.join(reasons)}" if reasons else ""


_warned: set[str] = set()


def warn_if_weak(budget: Budget, keys_delta: float = 0.0) -> None:
    """Give the WeakBudgetWarning of a whole budget, once; as from the line outside the package."""
    text = weakness(budget, keys_delta)
    if not text or text in _warned:
        return
    _warned.add(text)
    package, level, frame = __name__.partition(".")[0], 1, sys._getframe(0)
    while frame.f_back and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, WeakBudgetWarning, stacklevel=level)


def check_budget(budget: object) -> Budget:
    """`budget`, or a TypeError that says what to pass instead."""
    if isinstance(budget, PureDP | ApproxDP | ZCDP):
        return budget
    remedy = "write e.g. ApproxDP(epsilon=1.0, delta=1e-6)"
    raise TypeError(f"budget must be PureDP, ApproxDP or ZCDP, got {budget!r}: {remedy}")


def _shares(total: float, parts: Any) -> list[float]:
    """Fractions of a total as floats whose exact sum is at most the total."""
    if isinstance(parts, int | np.integer) and not isinstance(parts, bool):
        if parts < 1:
            raise ValueError(f"parts must be at least 1, got {parts}")
        fractions = [Fraction(1, int(parts))] * int(parts)
    elif isinstance(parts, str) or not isinstance(parts, Sequence | np.ndarray) or not len(parts):
        raise TypeError(f"parts must be a number of shares or their fractions, got {parts!r}")
    else:
        remedy = "give e.g. 0.5"
        fractions = [Fraction(positive("a fraction of a budget", p, remedy)) for p in parts]
        # Ten times 0.1 is a hair above 1 in binary: it is taken as the whole, and costs no more.
        if sum(fractions) > 1 + Fraction(1, 10**12):
            problem = f"the fractions {list(parts)!r} sum to {float(sum(fractions)):g}"
            raise ValueError(f"{problem}, more than 1: lower them")
    whole = max(Fraction(1), sum(fractions, Fraction(0)))
    floats = [float(f / whole * Fraction(total)) for f in fractions]
    while sum(map(Fraction, floats)) > Fraction(total):
        floats = [math.nextafter(f, 0.0) for f in floats]
    return floats


def noise_laws(
    budget: Budget, l1: int | Fraction, l2_squared: int | Fraction, allowed: frozenset[str]
) -> tuple[Law, ...]:
    """The noise laws, of those allowed, that make Rx + z satisfy the budget: none, one or two.

    For ApproxDP a Laplace law and the better of two Gaussians, for the caller to choose from.

    Args:
      budget: what the whole released stream may cost.
      l1, l2_squared: largest L1 norm, and square of the largest L2 norm, of R(x - x') over
        neighbouring x, x', in units of the lattice.
      allowed: some of "laplace" and "gaussian".

    Raises:
      ScaleError: every route needs noise out of range.

    Guarantee: discrete Laplace noise of scale l1/epsilon is epsilon-DP on integer vectors (the
      log-ratio of each coordinate is at most |change| / scale); discrete Gaussian noise of
      parameter sigma^2 = l2_squared/(2 rho) is rho-zCDP on integer vectors [CKS20, Theorem 14
      and Proposition 5 for adaptive inputs]; rounded Gaussian noise of sigma^2 = l2_squared *
      gaussian_sigma^2 is (epsilon, delta)-DP on integer vectors, by rounding what a continuous
      Gaussian mechanism gives [Balle, Wang 2018]. This also holds for adaptive inputs: the change
      is chosen from releases that hold none of the noise on it, and always keeps this norm.
      Parameters are exact rationals, so nothing is lost to rounding.
    """
    routes: list[tuple[Callable[[Fraction], Law], Fraction]] = []
    if "gaussian" in allowed and not isinstance(budget, PureDP):
        rho = Fraction(budget.to_zcdp().rho)
        routes.append((DiscreteGaussian, Fraction(l2_squared) / (2 * rho)))
        if isinstance(budget, ApproxDP):
            sigma = Fraction(gaussian_sigma(budget.epsilon, budget.delta))
            routes.append((RoundedGaussian, l2_squared * sigma**2))
    if "laplace" in allowed and not isinstance(budget, ZCDP):
        routes.append((DiscreteLaplace, Fraction(l1) / Fraction(budget.epsilon)))
    laws: list[Law] = []
    for kind, parameter in routes:
        try:
            laws.append(kind(parameter))
        except ScaleError:
            if kind is routes[-1][0] and not laws:  # no route is left
                raise
    match laws:
        case [DiscreteGaussian() as discrete, RoundedGaussian() as rounded, *_]:
            worse = rounded.variance > _WORTH * discrete.variance
            laws.remove(rounded if worse else discrete)
    return tuple(laws)
