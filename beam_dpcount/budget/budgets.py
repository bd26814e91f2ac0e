"""Privacy budgets, the conversions between them, and the noise that a budget buys.

Pure functions and frozen values; nothing here knows of mechanisms or of Beam.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np

from beam_dpcount.noise.laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    Law,
    RoundedGaussian,
    ScaleError,
)

# Conversions are computed in double precision; this relative margin, always to the safe side,
# is far above their rounding error and far below anything that a user could notice.
_MARGIN = 1e-11
# Below it floats lose digits; and no rho-zCDP or Gaussian mechanism is promised to be pure.
_LEAST_DELTA = math.exp(-700)
# The rounded Gaussian is taken where it spares 2 % of the scale; elsewhere the discrete one, whose
# guarantee is the simpler.
_WORTH = 0.98**2
# From these on a budget is weak. At delta = 1e-6, rho = 0.18 is about epsilon = 3.
_WEAK_EPSILON, _WEAK_DELTA, _WEAK_RHO = 3.0, 1e-5, 0.18
_USUAL_DELTA = 1e-6


def _positive(name: str, value: Any, remedy: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}: {remedy}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {value!r}: {remedy}")
    return number


@dataclass(frozen=True)
class PureDP:
    """Pure epsilon-differential privacy.

    Args:
      epsilon: bound on the log-ratio of the probabilities of any output under neighbouring
        streams; positive and finite. Smaller is more private; 0.1 to 3 is usual.

    Raises:
      ValueError, TypeError: epsilon is no positive, finite number.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "epsilon", _positive("epsilon", self.epsilon, "give e.g. PureDP(epsilon=1.0)")
        )

    def split(self, parts: int | Sequence[float]) -> tuple[PureDP, ...]:
        """Shares that compose to at most this budget: `parts` equal ones, or fractions."""
        return tuple(PureDP(e) for e in _shares(self.epsilon, parts))

    def to_zcdp(self) -> ZCDP:
        """The zCDP that every epsilon-DP mechanism satisfies: rho = epsilon^2 / 2 [BS16, 1.4]."""
        return ZCDP(self.epsilon**2 / 2 * (1 + _MARGIN))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g} (pure)"


@dataclass(frozen=True)
class ApproxDP:
    """Approximate (epsilon, delta)-differential privacy.

    Args:
      epsilon: positive and finite; 0.1 to 3 is usual.
      delta: between 0 and 1, both excluded. Choose it well below 1 / (number of people in
        the data): 1e-6 and smaller are usual.

    Raises:
      ValueError, TypeError: an argument is outside its range; the message says which.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        example = "give e.g. ApproxDP(epsilon=1.0, delta=1e-6)"
        object.__setattr__(self, "epsilon", _positive("epsilon", self.epsilon, example))
        object.__setattr__(self, "delta", _delta(self.delta))

    def split(self, parts: int | Sequence[float]) -> tuple[ApproxDP, ...]:
        """Shares of epsilon and of delta by basic composition: `parts` equal ones, or fractions.

        For more than two shares, `budget.to_zcdp().split(parts)` composes more tightly.
        """
        epsilons, deltas = _shares(self.epsilon, parts), _shares(self.delta, parts)
        return tuple(ApproxDP(e, d) for e, d in zip(epsilons, deltas, strict=True))

    def to_zcdp(self) -> ZCDP:
        """The largest rho such that rho-zCDP implies this budget (numeric conversion)."""
        return ZCDP(zcdp_rho(self.epsilon, self.delta))

    def __str__(self) -> str:
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"


@dataclass(frozen=True)
class ZCDP:
    """Zero-concentrated differential privacy [Bun, Steinke 2016].

    Args:
      rho: positive and finite. `ZCDP(rho).to_approx(delta)` says which (epsilon, delta) it gives.

    Raises:
      ValueError, TypeError: rho is no positive, finite number.
    """

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", _positive("rho", self.rho, "give e.g. ZCDP(rho=0.1)"))

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
        return f"rho = {self.rho:g} (zCDP)"


Budget = PureDP | ApproxDP | ZCDP


class WeakBudgetWarning(UserWarning):
    """A budget protects little. Given once for a budget, before anything runs.

    It is weak from epsilon = 3, delta = 1e-5 or rho = 0.18 on. Transforms give the warning, and
    ledgers; `calibrate`, which may get a share, does not. Where so much is meant:
    `warnings.filterwarnings("ignore", category=beam_dpcount.WeakBudgetWarning)`.
    """


def weakness(budget: Budget) -> str:
    """Why a budget is weak, in a sentence; empty where it is not."""
    reasons = []
    if isinstance(budget, ZCDP):
        epsilon = zcdp_epsilon(budget.rho, _USUAL_DELTA) if budget.rho >= _WEAK_RHO else 0.0
        usual = "rho from 0.005 to 0.1 is usual"
        means = f"(as epsilon = {epsilon:.3g} at delta = {_USUAL_DELTA:g}) "
    else:
        epsilon, usual, means = budget.epsilon, "epsilon from 0.1 to 1 is usual", ""
    if epsilon >= _WEAK_EPSILON or (isinstance(budget, ZCDP) and epsilon):
        factor = f" = {math.exp(epsilon):,.0f}" if epsilon < 20 else ""
        reasons.append(
            f"{means}lets one event shift the odds of a conclusion by a factor of up to "
            f"e^{epsilon:.3g}{factor}; {usual}"
        )
    if isinstance(budget, ApproxDP) and budget.delta >= _WEAK_DELTA:
        reasons.append(
            f"may fail altogether with probability {budget.delta:g}; delta well below 1 / (number "
            "of people) is usual, as 1e-6"
        )
    return f"weak budget: {budget} {', and '.join(reasons)}" if reasons else ""


_warned: set[Budget] = set()


def warn_if_weak(budget: Budget) -> None:
    """Give the WeakBudgetWarning of a whole budget, once; as from the line outside the package."""
    if budget in _warned:
        return
    text = weakness(budget)
    if not text:
        return
    _warned.add(budget)
    package, level, frame = __name__.partition(".")[0], 1, sys._getframe(0)
    while frame.f_back is not None and _module(frame).partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, WeakBudgetWarning, stacklevel=level)


def _module(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", ""))


def check_budget(budget: object) -> Budget:
    """`budget`, or a TypeError that says what to pass instead."""
    if isinstance(budget, PureDP | ApproxDP | ZCDP):
        return budget
    raise TypeError(
        f"budget must be PureDP, ApproxDP or ZCDP, got {budget!r}: "
        "write e.g. ApproxDP(epsilon=1.0, delta=1e-6)"
    )


def _delta(delta: float) -> float:
    remedy = "give a number between 0 and 1, e.g. 1e-6"
    number = _positive("delta", delta, remedy + "; for delta = 0 use PureDP(epsilon)")
    if number >= 1:
        raise ValueError(f"delta must be below 1, got {delta!r}: {remedy}")
    return number


def _shares(total: float, parts: Any) -> list[float]:
    """Fractions of a total as floats whose exact sum is at most the total."""
    if isinstance(parts, int | np.integer) and not isinstance(parts, bool):
        if parts < 1:
            raise ValueError(f"parts must be at least 1, got {parts}")
        fractions = [Fraction(1, int(parts))] * int(parts)
    elif (
        isinstance(parts, bool | str)
        or not isinstance(parts, Sequence | np.ndarray)
        or (not len(parts))
    ):
        raise TypeError(f"parts must be a number of shares or their fractions, got {parts!r}")
    else:
        fractions = [
            Fraction(_positive("a fraction of a budget", p, "give e.g. 0.5")) for p in parts
        ]
        # Ten times 0.1 is a hair above 1 in binary: meant as the whole, and paid as at most it.
        if sum(fractions) > 1 + Fraction(1, 10**12):
            raise ValueError(
                f"the fractions {list(parts)!r} sum to {float(sum(fractions)):g}, more than 1: "
                "lower them, a budget cannot be overspent"
            )
    whole = max(Fraction(1), sum(fractions, Fraction(0)))
    floats = [float(f / whole * Fraction(total)) for f in fractions]
    while sum(map(Fraction, floats)) > Fraction(total):
        floats = [math.nextafter(f, 0.0) for f in floats]
    return floats


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The delta for which rho-zCDP implies (epsilon, delta)-DP.

    inf over alpha > 1 of exp((alpha-1)(alpha rho - epsilon)) / (alpha-1) * (1-1/alpha)^alpha
    [Canonne, Kamath, Steinke 2020, Proposition 12 and Corollary 13]. Every alpha gives a valid
    bound, so the search need not be exact to be safe; rounding is charged to the bound.
    """
    rho, epsilon = _positive("rho", rho, "e.g. 0.1"), float(epsilon)
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be a number from 0, got {epsilon!r}: e.g. 1.0")

    excess = epsilon - rho
    if excess > 0 and excess * excess / 4 / rho > 800:  # alpha = (epsilon/rho + 1) / 2
        return _LEAST_DELTA

    # In x = alpha - 1, free of cancellation for x near 0 and for large x.
    def slope(x: float) -> float:
        return rho - epsilon + 2 * x * rho - math.log1p(1 / x)

    low, high = math.log(1e-300), 0.0
    while slope(math.exp(high)) < 0:
        high += 1
    for _ in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if slope(math.exp(middle)) < 0 else (low, middle)
    x = math.exp(high)
    terms = x * (rho - epsilon), x * x * rho, -x * math.log1p(1 / x), -math.log1p(x)
    rounding = 2.0**-50 * sum(map(abs, terms))
    delta = math.exp(min(sum(terms) + rounding, 0.0)) * (1 + _MARGIN)
    return min(max(delta, _LEAST_DELTA), 1.0)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The smallest epsilon for which rho-zCDP implies (epsilon, delta)-DP, rounded up."""
    rho, delta = _positive("rho", rho, "e.g. 0.1"), _delta(delta)
    # rho + 2 sqrt(rho ln(1/delta)) is valid [BS16, Proposition 1.3], though never tight.
    low, high = 0.0, rho + 2 * math.sqrt(rho * -math.log(delta))
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if zcdp_delta(rho, middle) <= delta else (middle, high)
    return high * (1 + _MARGIN)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho for which rho-zCDP implies (epsilon, delta)-DP, rounded down."""
    epsilon, delta = _positive("epsilon", epsilon, "e.g. 1.0"), _delta(delta)
    low, high = 0.0, 1.0
    while zcdp_delta(high, epsilon) <= delta:
        high *= 2
    for _ in range(1100):  # rho may be as small as the smallest normal float
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if zcdp_delta(middle, epsilon) <= delta else (low, middle)
        if high - low < high * _MARGIN:
            break
    if low < 1e-300:
        raise ValueError(
            f"epsilon = {epsilon:g} with delta = {delta:g} leaves no usable zCDP budget: "
            "raise epsilon or delta"
        )
    return low * (1 - _MARGIN)


def _mills(x: float) -> float:
    """P(Y > x) / density(x) of a standard normal Y, for x >= -9, within 2^-46 of itself."""
    if x < 2:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    ratio = x  # of Laplace's continued fraction 1 / (x + 1 / (x + 2 / (x + ...))), from its end
    for k in range(20 + int(600 / (x * x)), 0, -1):
        ratio = x + k / ratio
    return 1 / ratio


def gaussian_delta(epsilon: float, ratio: float) -> float:
    """The least delta, rounded up, at which a continuous Gaussian mechanism is (epsilon, delta)-DP.

    Phi(-u) - e^epsilon Phi(-v), u and v = epsilon/ratio -+ ratio/2 [Balle, Wang 2018, Theorem 8].
    As e^epsilon density(v) = density(u), it is density(u) (mills(u) - mills(v)), which neither
    overflows nor underflows before delta does; rounding is charged to it.

    Args:
      epsilon: at least 0.
      ratio: Delta_2 / sigma, positive.
    """
    ratio, epsilon = _positive("ratio", ratio, "e.g. 0.2"), float(epsilon)
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be a number from 0, got {epsilon!r}: e.g. 1.0")
    u, v = epsilon / ratio - ratio / 2, epsilon / ratio + ratio / 2
    if u < -9:
        return 1.0
    if u > 40:  # Phi(-u) < exp(-u^2 / 2)
        return _LEAST_DELTA
    # u and v err by up to 2^-52 v.
    rounding = 2.0**-45 + 2.0**-49 * (abs(u) + 1) * (v + 1)
    delta = (_mills(u) * (1 + rounding) - _mills(v) * (1 - rounding)) * math.exp(-u * u / 2)
    return min(max(delta / math.sqrt(2 * math.pi), _LEAST_DELTA), 1.0)


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """The least sigma / Delta_2 of an (epsilon, delta)-DP continuous Gaussian, rounded up.

    It is not enough for the discrete Gaussian, only for a continuous one and what is made of it.

    Raises:
      ValueError: epsilon and delta are too small for floats.
    """
    epsilon, delta = _positive("epsilon", epsilon, "e.g. 1.0"), _delta(delta)
    low = 1.0
    while gaussian_delta(epsilon, low) > delta:
        low /= 2
        if low < 1e-300:
            raise ValueError(
                f"epsilon = {epsilon:g} with delta = {delta:g} leaves no usable Gaussian noise: "
                "raise epsilon or delta"
            )
    high = 2 * low
    while gaussian_delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    while high - low > low * _MARGIN / 10:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, middle) <= delta else (low, middle)
    return math.nextafter(1 / low, math.inf)


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """The least epsilon, rounded up, at which a Gaussian with this Delta_2 / sigma has this delta.

    Of a continuous Gaussian mechanism, and of what is made of it; 0 where delta alone is enough.
    """
    ratio, delta = _positive("ratio", ratio, "e.g. 0.2"), _delta(delta)
    if gaussian_delta(0.0, ratio) <= delta:
        return 0.0
    # There u = sqrt(2 ln(1/delta)), and Phi(-u) is below exp(-u^2 / 2).
    low, high = 0.0, ratio * (ratio / 2 + math.sqrt(-2 * math.log(delta)))
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if gaussian_delta(middle, ratio) <= delta else (middle, high)
    return high * (1 + _MARGIN)


def noise_laws(
    budget: Budget, l1: int | Fraction, l2_squared: int | Fraction, allowed: frozenset[str]
) -> tuple[Law, ...]:
    """The noise laws, of those allowed, that make Rx + z satisfy the budget.

    Args:
      budget: what the whole released stream may cost.
      l1, l2_squared: largest L1 norm, and square of the largest L2 norm, of R(x - x') over
        neighbouring x, x', in units of the lattice.
      allowed: some of "laplace" and "gaussian".

    Returns:
      No, one or two laws; for ApproxDP one Gaussian, the better of two, and a Laplace law, for
      the caller to take the better.

    Raises:
      ScaleError: every route needs noise out of range.

    Guarantee: discrete Laplace noise of scale l1/epsilon is epsilon-DP on integer vectors (the
      log-ratio of each coordinate is at most |change| / scale); discrete Gaussian noise of
      parameter sigma^2 = l2_squared/(2 rho) is rho-zCDP on integer vectors [CKS20, Theorem 14
      and Proposition 5 for adaptive inputs]; rounded Gaussian noise of sigma^2 = l2_squared *
      gaussian_sigma^2 is (epsilon, delta)-DP on integer vectors, by rounding what a continuous
      Gaussian mechanism gives [Balle, Wang 2018]. So it is for adaptive inputs: the change is
      chosen from releases that hold none of the noise on it, and has at most this norm whatever is
      chosen. Parameters are exact rationals, so nothing is lost to rounding.
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
