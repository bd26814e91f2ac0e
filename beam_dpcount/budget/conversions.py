"""Conversions between pure, approximate and zero-concentrated privacy, and Gaussian noise.

Every result is on the safe side: what a function is said to imply, it implies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from beam_dpcount.checks import check_real

USUAL_DELTA = 1e-6  # at which the epsilon of a rho is given, unless told otherwise
# A relative margin, to the safe side: far above the rounding errors of double precision, and far
# below anything that a user could notice.
MARGIN = 1e-11
# Below it floats lose digits; and no rho-zCDP or Gaussian mechanism is promised to be pure.
_LEAST_DELTA = math.exp(-700)
# Conversions that search are remembered: a choice of a mechanism asks for one many times. Their
# arguments are checked before, as True is not 1.0, though it would be found as it.
_remembered = lru_cache(maxsize=1024)


def positive(name: str, value: Any, remedy: str) -> float:
    number = check_real(name, value, remedy)
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {value!r}: {remedy}")
    return number


def _not_negative(epsilon: float) -> float:
    if not float(epsilon) >= 0:
        raise ValueError(f"epsilon must be a number from 0, got {epsilon!r}: e.g. 1.0")
    return float(epsilon)


def check_delta(delta: float) -> float:
    remedy = "give a number between 0 and 1, e.g. 1e-6"
    number = positive("delta", delta, remedy + "; for delta = 0 use PureDP(epsilon)")
    if number >= 1:
        raise ValueError(f"delta must be below 1, got {delta!r}: {remedy}")
    return number


def _narrowed(
    low: float, high: float, reached: Callable[[float], bool], steps: int = 200, close: float = 0.0
) -> tuple[float, float]:
    """The ends of the interval in which `reached` turns true, halved until they are this close."""
    for _ in range(steps):
        middle = (low + high) / 2
        if not low < middle < high or high - low <= low * close:
            break
        low, high = (low, middle) if reached(middle) else (middle, high)
    return low, high


def zcdp_delta(rho: float, epsilon: float) -> float:
    """The delta for which rho-zCDP implies (epsilon, delta)-DP.

    inf over alpha > 1 of exp((alpha-1)(alpha rho - epsilon)) / (alpha-1) * (1-1/alpha)^alpha
    [Canonne, Kamath, Steinke 2020, Proposition 12 and Corollary 13]. Every alpha gives a valid
    bound, so the search need not be exact to be safe; rounding is charged to the bound.
    """
    rho, epsilon = positive("rho", rho, "e.g. 0.1"), _not_negative(epsilon)
    excess = epsilon - rho
    if excess > 0 and excess * excess / 4 / rho > 800:  # alpha = (epsilon/rho + 1) / 2
        return _LEAST_DELTA

    # In x = alpha - 1, free of cancellation for x near 0 and for large x.
    def slope(x: float) -> float:
        return rho - epsilon + 2 * x * rho - math.log1p(1 / x)

    low, high = math.log(1e-300), 0.0
    while slope(math.exp(high)) < 0:
        high += 1
    x = math.exp(_narrowed(low, high, lambda log: slope(math.exp(log)) >= 0, 100)[1])
    terms = x * (rho - epsilon), x * x * rho, -x * math.log1p(1 / x), -math.log1p(x)
    rounding = 2.0**-50 * sum(map(abs, terms))
    delta = math.exp(min(sum(terms) + rounding, 0.0)) * (1 + MARGIN)
    return min(max(delta, _LEAST_DELTA), 1.0)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The smallest epsilon for which rho-zCDP implies (epsilon, delta)-DP, rounded up."""
    return _zcdp_epsilon(positive("rho", rho, "e.g. 0.1"), check_delta(delta))


@_remembered
def _zcdp_epsilon(rho: float, delta: float) -> float:
    # rho + 2 sqrt(rho ln(1/delta)) is valid [BS16, Proposition 1.3], though never tight.
    high = rho + 2 * math.sqrt(rho * -math.log(delta))
    return _narrowed(0.0, high, lambda e: zcdp_delta(rho, e) <= delta)[1] * (1 + MARGIN)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho for which rho-zCDP implies (epsilon, delta)-DP, rounded down."""
    return _zcdp_rho(positive("epsilon", epsilon, "e.g. 1.0"), check_delta(delta))


@_remembered
def _zcdp_rho(epsilon: float, delta: float) -> float:
    high = 1.0
    while zcdp_delta(high, epsilon) <= delta:
        high *= 2
    # 1100 steps, as rho may be as small as the smallest normal float.
    low, _ = _narrowed(0.0, high, lambda rho: zcdp_delta(rho, epsilon) > delta, 1100, MARGIN)
    if low < 1e-300:
        raise _too_small(epsilon, delta, "zCDP budget")
    return low * (1 - MARGIN)


def _too_small(epsilon: float, delta: float, what: str) -> ValueError:
    budget = f"epsilon = {epsilon:g} with delta = {delta:g}"
    return ValueError(f"{budget} leaves no usable {what}: raise epsilon or delta")


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

    Phi(-u) - e^epsilon Phi(-v), u and v = epsilon/ratio -+ ratio/2, ratio = Delta_2 / sigma [Balle,
    Wang 2018, Theorem 8]. As e^epsilon density(v) = density(u), it is density(u) (mills(u) -
    mills(v)), which neither overflows nor underflows before delta does; rounding is charged to it.
    """
    ratio, epsilon = positive("ratio", ratio, "e.g. 0.2"), _not_negative(epsilon)
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

    Enough for a continuous Gaussian and what is made of it, but not for the discrete one.
    """
    return _gaussian_sigma(positive("epsilon", epsilon, "e.g. 1.0"), check_delta(delta))


@_remembered
def _gaussian_sigma(epsilon: float, delta: float) -> float:
    low = 1.0
    while gaussian_delta(epsilon, low) > delta:
        low /= 2
        if low < 1e-300:
            raise _too_small(epsilon, delta, "Gaussian noise")
    high = 2 * low
    while gaussian_delta(epsilon, high) <= delta:
        low, high = high, 2 * high
    low, _ = _narrowed(low, high, lambda r: gaussian_delta(epsilon, r) > delta, close=MARGIN / 10)
    return math.nextafter(1 / low, math.inf)


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """The least epsilon, rounded up, of a continuous Gaussian with this Delta_2 / sigma and delta.

    Also of what is made of it; 0 where delta alone is enough.
    """
    return _gaussian_epsilon(positive("ratio", ratio, "e.g. 0.2"), check_delta(delta))


@_remembered
def _gaussian_epsilon(ratio: float, delta: float) -> float:
    if gaussian_delta(0.0, ratio) <= delta:
        return 0.0
    # There u = sqrt(2 ln(1/delta)), and Phi(-u) is below exp(-u^2 / 2).
    high = ratio * (ratio / 2 + math.sqrt(-2 * math.log(delta)))
    return _narrowed(0.0, high, lambda e: gaussian_delta(e, ratio) <= delta)[1] * (1 + MARGIN)


def float_down(value: Fraction) -> float:
    """The largest float that is not above a value >= 0."""
    rounded = float(value)
    return rounded if Fraction(rounded) <= value else math.nextafter(rounded, 0.0)


def float_up(value: Fraction) -> float:
    """The least float that is not below a value >= 0."""
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)


def rounded_up(number: float, digits: int = 6) -> str:
    """A number as people read it, in so many digits, and not below it: but for its tenth digit,
    where a number that was computed may be off."""
    least = Decimal(repr(float(number))) * (1 - Decimal("1e-9"))
    above = Context(prec=digits, rounding=ROUND_CEILING).plus(least)
    return f"{float(above):.{digits}g}"


def root_down(square: Fraction) -> float:
    """The square root, rounded down; exact where it is a float."""
    root = math.nextafter(math.sqrt(float(square)), math.inf)
    while Fraction(root) ** 2 > square:
        root = math.nextafter(root, 0.0)
    return root
