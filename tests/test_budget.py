"""Budgets: their conversions against high precision and exact divergences, shares, refusals."""

import contextlib
import dataclasses
import math
import pickle
import re
import signal
from collections.abc import Callable, Iterator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, PureDP, check_budget, noise_laws
from beam_dpcount.budget.conversions import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian

BOTH = frozenset({"laplace", "gaussian"})
RHOS = [1e-12, 1e-6, 1e-3, 0.0243, 0.5, 5.0, 20.0, 100.0, 1e4, 1e6, 1e9, 1e12]
EPSILONS = [1e-6, 1e-3, 0.1, 1.0, 3.0, 10.0, 100.0, 1e3]
DELTAS = [1e-300, 1e-100, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.999]

repeatable = settings(derandomize=True, database=None, deadline=None, max_examples=100)
epsilons = st.floats(1e-6, 1e3)
deltas = st.floats(1e-300, 0.999)
rhos = st.floats(1e-12, 1e12)


# --- The conversion, in 60 digits ----------------------------------------------------------------


def exact_log_delta(rho: float, epsilon: float) -> Decimal:
    """log of the infimum over alpha = 1 + x of [CKS20, Corollary 13], at most 0."""
    with localcontext(Context(prec=60)):
        r, e = Decimal(rho), Decimal(epsilon)

        def log_delta(x: Decimal) -> Decimal:
            return x * ((1 + x) * r - e) - x.ln() + (1 + x) * (x / (1 + x)).ln()

        def slope(x: Decimal) -> Decimal:
            return (1 + 2 * x) * r - e + (x / (1 + x)).ln()

        low, high = Decimal("1e-400"), Decimal(1)
        while slope(high) < 0:
            high *= 4
        while high - low > high * Decimal("1e-25"):
            middle = (low * high).sqrt() if high > 4 * low else (low + high) / 2
            low, high = (middle, high) if slope(middle) < 0 else (low, middle)
        return min(log_delta(high), Decimal(0))


def log(x: float) -> Decimal:
    with localcontext(Context(prec=60)):
        return Decimal(x).ln()


def test_the_references_own_values() -> None:
    """Against the formula as it is printed, at alphas beside the optimum and at it."""
    for rho, epsilon in ((0.0243560, 1.0), (0.5, 5.0), (3.0, 2.0)):
        best = float(exact_log_delta(rho, epsilon))
        alphas = 1 + np.geomspace(1e-4, 1e5, 200_001)
        a = alphas
        printed = (a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a)
        assert printed.min() == pytest.approx(best, abs=1e-7)
        assert printed.min() >= best - 1e-9


def test_check_value() -> None:
    assert zcdp_rho(1, 1e-6) == pytest.approx(0.0243560, abs=1e-7)
    assert ApproxDP(1, 1e-6).to_zcdp().rho == zcdp_rho(1, 1e-6)
    assert ZCDP(0.0243560).to_approx(1e-6).epsilon == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("rho", [0.03, 0.5, 5.0, 40.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 8.0])
def test_delta_is_the_least_over_a_dense_grid_of_orders(rho: float, epsilon: float) -> None:
    x = np.geomspace(1e-12, 1e6, 400_001)
    grid = (x * ((1 + x) * rho - epsilon) - np.log(x) + (1 + x) * -np.log1p(1 / x)).min()
    assert zcdp_delta(rho, epsilon) <= math.exp(min(grid, 0)) * (1 + 1e-9)
    assert zcdp_delta(rho, epsilon) >= math.exp(min(grid, 0)) * (1 - 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rho", RHOS)
def test_delta_is_never_below_the_exact_one_and_close_to_it(rho: float) -> None:
    spread = [rho, rho * 1.1, *(rho + 2 * math.sqrt(rho * c) for c in (0.5, 3, 14, 600))]
    for epsilon in [*EPSILONS, *spread]:
        exact = exact_log_delta(rho, epsilon)
        computed = log(zcdp_delta(rho, epsilon))
        assert exact <= computed <= max(exact, Decimal(-700)) + Decimal("1e-8")


def test_delta_rounds_upwards_where_floats_end() -> None:
    """At rho = 1 delta passes from 10^-297 to 10^-333 as epsilon goes from 53 to 56."""
    for epsilon in np.linspace(53, 56, 61).tolist():
        assert exact_log_delta(1.0, epsilon) <= log(zcdp_delta(1.0, epsilon))


@pytest.mark.parametrize("rho", [1e-3, 1e-6, 1e-100, 1e-160, 1e-320])
@pytest.mark.parametrize("epsilon", [1.0, 100.0, 1e300])
def test_delta_is_never_zero_nor_lost(rho: float, epsilon: float) -> None:
    """No rho-zCDP mechanism is promised to be pure, and none has a delta above 1."""
    assert 0 < zcdp_delta(rho, epsilon) <= 1


@pytest.mark.exhaustive("delta", "rho")
@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_is_safe_and_least(rho: float, delta: float) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    assert exact_log_delta(rho, epsilon) <= log(delta)
    assert epsilon <= (rho + 2 * math.sqrt(rho * -math.log(delta))) * (1 + 1e-10)
    assert ZCDP(rho).to_approx(delta) == ApproxDP(epsilon, delta)
    if epsilon > 1e-9 * rho and delta < 0.4:
        assert exact_log_delta(rho, epsilon * (1 - 1e-9)) > log(delta)


@pytest.mark.exhaustive("delta", "epsilon")
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_rho_is_safe_and_largest(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert exact_log_delta(rho, epsilon) <= log(delta)
    assert exact_log_delta(rho * (1 + 1e-9), epsilon) > log(delta) - Decimal("1e-11")
    assert exact_log_delta(rho * 1.001, epsilon) > log(delta)


@pytest.mark.slow
@given(rhos, deltas)
@example(1e-12, 0.999)
@example(1e12, 1e-300)
@repeatable
def test_epsilon_of_any_rho_is_safe(rho: float, delta: float) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    assert 0 < epsilon <= (rho + 2 * math.sqrt(rho * -math.log(delta))) * (1 + 1e-10)
    assert exact_log_delta(rho, epsilon) <= log(delta)


@pytest.mark.long
@pytest.mark.slow
@given(epsilons, deltas)
@repeatable
def test_rho_and_epsilon_are_inverse(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert exact_log_delta(rho, epsilon) <= log(delta)
    back = zcdp_epsilon(rho, delta)
    # At a large delta epsilon falls steeply as rho does: rho lost 1e-11 of itself to rounding.
    assert back <= epsilon * (1 + 1e-9)
    assert zcdp_rho(back, delta) == pytest.approx(rho, rel=1e-8)
    # And rho + 2 sqrt(rho ln(1/delta)) = epsilon would give less.
    classic = (math.sqrt(epsilon - math.log(delta)) - math.sqrt(-math.log(delta))) ** 2
    assert rho > classic * (1 - 1e-6)


@pytest.mark.long
@pytest.mark.slow
@given(epsilons, deltas, st.floats(1.0001, 10))
@repeatable
def test_conversions_are_monotone(epsilon: float, delta: float, factor: float) -> None:
    more_delta = min(delta * factor, 0.9995)
    rho = zcdp_rho(epsilon, delta)
    assert rho < zcdp_rho(epsilon * factor, delta)
    assert rho <= zcdp_rho(epsilon, more_delta)
    assert zcdp_epsilon(rho * factor, delta) > zcdp_epsilon(rho, delta)
    assert zcdp_epsilon(rho, more_delta) <= zcdp_epsilon(rho, delta) * (1 + 1e-10)
    assert zcdp_delta(rho * factor, epsilon) > zcdp_delta(rho, epsilon)
    assert zcdp_delta(rho, epsilon * factor) < zcdp_delta(rho, epsilon)


def test_pure_budgets_as_zcdp() -> None:
    for epsilon in (1e-6, 0.1, 1.0, 3.0, 1e3):
        rho = PureDP(epsilon).to_zcdp().rho
        exact = Fraction(epsilon) ** 2 / 2
        assert exact <= Fraction(rho) <= exact * (1 + Fraction(1, 10**10))
    budget = ZCDP(0.3)
    assert budget.to_zcdp() == budget


@pytest.mark.parametrize("rho", [1e-3, 0.02, 0.5, 5.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-6, 1e-3])
def test_dp_accounting_agrees(rho: float, delta: float) -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    accountant = rdp.RdpAccountant(orders=1 + np.geomspace(0.011, 1e4, 20_000))
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    theirs = accountant.get_epsilon(delta)  # over a grid of orders: never below the optimum
    assert zcdp_epsilon(rho, delta) <= theirs * (1 + 1e-10)
    assert zcdp_epsilon(rho, delta) >= theirs * (1 - 1e-6)


# --- The continuous Gaussian mechanism, in 80 digits ---------------------------------------------


def exact_delta(epsilon: Any, ratio: Any) -> Any:
    """[Balle, Wang 2018, Theorem 8] as it is printed, in digits that no cancellation exhausts."""
    with mpmath.workdps(80):
        e, a = mpmath.mpf(epsilon), mpmath.mpf(ratio)
        phi = [mpmath.erfc((e / a - side * a / 2) / mpmath.sqrt(2)) / 2 for side in (1, -1)]
        return phi[0] - mpmath.exp(e) * phi[1]


def exact_sigma(epsilon: float, delta: float) -> Any:
    with mpmath.workdps(80):
        low, high = mpmath.mpf("1e-100"), mpmath.mpf(1e50)  # ratios
        for _ in range(120):
            middle = mpmath.sqrt(low * high)
            low, high = (middle, high) if exact_delta(epsilon, middle) <= delta else (low, middle)
        return 1 / low


@pytest.mark.slow
def test_the_printed_formula_is_what_the_mechanism_spends() -> None:
    """Against the integral of (density - e^epsilon * shifted density)+."""
    for epsilon, ratio in ((0.5, 0.3), (1.0, 2.0), (3.0, 1.0), (0.0, 1.5)):
        y = np.linspace(-40, 40, 4_000_001)
        p, q = (np.exp(-((y - mean) ** 2) / 2) for mean in (0, ratio))
        spent = np.maximum(p - math.exp(epsilon) * q, 0).sum() * 2e-5 / math.sqrt(2 * math.pi)
        assert float(exact_delta(epsilon, ratio)) == pytest.approx(spent, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, *EPSILONS])
@pytest.mark.parametrize("ratio", [1e-9, 1e-6, 1e-3, 0.03, 0.2, 1.0, 4.0, 15.0, 60.0, 1e3, 1e6])
def test_gaussian_delta_is_never_below_the_exact_one_and_close_to_it(
    epsilon: float, ratio: float
) -> None:
    exact, computed = exact_delta(epsilon, ratio), gaussian_delta(epsilon, ratio)
    # A small difference of two terms, the more so for small ratios.
    u = 1 + epsilon / ratio + ratio / 2
    assert exact <= computed <= max(exact * (1 + 1e-14 * (10 + u**2) * u / min(ratio, 1)), 1e-304)


@pytest.mark.slow
@pytest.mark.exhaustive("delta", "epsilon")
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_sigma_is_safe_and_least(epsilon: float, delta: float) -> None:
    sigma, least = gaussian_sigma(epsilon, delta), exact_sigma(epsilon, delta)
    assert exact_delta(epsilon, 1 / mpmath.mpf(sigma)) <= delta
    assert least <= sigma <= least * (1 + 1e-10 + 1e-11 / epsilon)


@pytest.mark.slow
@given(epsilons, deltas)
@example(1e-6, 1e-300)
@example(1e3, 0.999)
@repeatable
def test_gaussian_sigma_of_any_budget_is_safe(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta)
    assert exact_delta(epsilon, 1 / mpmath.mpf(sigma)) <= delta
    zcdp = 1 / math.sqrt(2 * zcdp_rho(epsilon, delta))
    assert sigma < zcdp  # what is exact is never worse than a conversion


def test_gaussian_check_values() -> None:
    """[Balle, Wang 2018] by 80 digits, and the gain over zCDP: about 7 %."""
    values = {(1, 1e-6): (4.2246788893, 0.0676), (0.5, 1e-10): (11.4362399951, 0.0466)}
    values |= {(3, 1e-3): (1.0372517185, 0.0945), (0.1, 1e-9): (50.2098182631, 0.0549)}
    for (epsilon, delta), (sigma, gain) in values.items():
        assert gaussian_sigma(epsilon, delta) == pytest.approx(sigma, rel=1e-10)
        zcdp = 1 / math.sqrt(2 * zcdp_rho(epsilon, delta))
        assert 1 - gaussian_sigma(epsilon, delta) / zcdp == pytest.approx(gain, abs=1e-4)


@pytest.mark.parametrize("ratio", [1e-9, 1e-3, 0.2, 1.0, 5.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_epsilon_is_safe_and_least(ratio: float, delta: float) -> None:
    epsilon = gaussian_epsilon(ratio, delta)
    assert exact_delta(epsilon, ratio) <= delta
    assert epsilon <= zcdp_epsilon(ratio**2 / 2, delta)
    less = epsilon - 1e-9 * (epsilon + ratio)
    assert less < 0 or exact_delta(less, ratio) > delta * (1 - 0.2 * (ratio < 1e-6))


@pytest.mark.slow
@given(epsilons, st.floats(1e-12, 0.5))
@repeatable
def test_gaussian_sigma_and_epsilon_are_inverse(epsilon: float, delta: float) -> None:
    back = gaussian_epsilon(1 / gaussian_sigma(epsilon, delta), delta)
    assert back <= epsilon * (1 + 1e-10)
    # At a large delta, sigma settles epsilon only up to its rounding.
    assert back >= epsilon * (1 - 1e-6) - 1e-9


@pytest.mark.slow
@given(epsilons, deltas, st.floats(1.001, 10))
@repeatable
def test_gaussian_calibrations_are_monotone(epsilon: float, delta: float, factor: float) -> None:
    sigma, more_delta = gaussian_sigma(epsilon, delta), min(delta * factor, 0.9995)
    slack = 1 + 1e-11
    assert gaussian_sigma(epsilon * factor, delta) < sigma * slack
    assert gaussian_sigma(epsilon, more_delta) <= sigma * slack
    assert gaussian_epsilon(factor / sigma, delta) >= gaussian_epsilon(1 / sigma, delta)
    assert gaussian_epsilon(1 / sigma, more_delta) <= gaussian_epsilon(1 / sigma, delta) * slack
    assert gaussian_delta(epsilon, factor / sigma) >= gaussian_delta(epsilon, 1 / sigma)
    assert gaussian_delta(epsilon * factor, 1 / sigma) <= gaussian_delta(epsilon, 1 / sigma)


def test_gaussian_conversions_at_the_ends_of_floats() -> None:
    assert gaussian_epsilon(1e-3, 0.1) == 0  # the whole distance of the two laws is below 0.1
    assert gaussian_delta(1.0, 1e-300) == gaussian_delta(1e300, 1.0) > 0  # no Gaussian is pure
    assert gaussian_delta(1.0, 1e300) == 1
    # exp(-u^2 / 2) with u = 1e-310 / 5e-324, and 2 sigma^-2 = 1e300
    assert gaussian_epsilon(5e-324, 5e-324) < 1e-300
    assert gaussian_epsilon(1e150, 1e-6) == pytest.approx(5e299)
    assert exact_delta(gaussian_epsilon(1e20, 1e-6), 1e20) <= 1e-6
    assert gaussian_sigma(1e300, 1e-6) == pytest.approx(math.sqrt(0.5e-300))
    for epsilon, delta in ((1.0, 1e-310), (1e-302, 1e-300)):
        with pytest.raises(ValueError, match=r"no usable Gaussian noise: raise epsilon or delta"):
            gaussian_sigma(epsilon, delta)


# --- What the noise does, exactly ----------------------------------------------------------------


def rounded_cells(law: RoundedGaussian, x: np.ndarray) -> np.ndarray:
    """log of P(X = x) / density(x): the mean over s in (-1/2, 1/2) of exp(-(2xs + s^2)/2sigma2)."""
    s2, x = float(law.sigma2), np.abs(x)
    if s2 < 900:
        more, less = (log_ndtr(-(x + side) / law.scale) for side in (-0.5, 0.5))
        density = -(x**2) / (2 * s2) - math.log(2 * math.pi * s2) / 2
        return more + np.log(-np.expm1(less - more)) - density
    nodes, weights = np.polynomial.legendre.leggauss(16)
    cells = zip(nodes / 2, weights / 2, strict=True)
    return np.log(sum(w * np.exp(-(2 * x * s + s * s) / (2 * s2)) for s, w in cells))


def hockey_stick(law: Law, shift: int, epsilon: float) -> float:
    """sum of max(0, P(x) - e^epsilon P(x - shift)): the exact delta of this noise."""
    assert isinstance(law, DiscreteGaussian | RoundedGaussian)
    s2 = float(law.sigma2)
    reach = int(40 * math.sqrt(s2)) + 3
    last = math.ceil(shift / 2 - epsilon * s2 / shift)  # the privacy loss exceeds epsilon below
    x = np.arange(last - reach, last + 3.0)
    loss = (shift**2 - 2 * x * shift) / (2 * s2)
    if isinstance(law, RoundedGaussian):
        cells = rounded_cells(law, x)
        loss = loss + cells - rounded_cells(law, x - shift)
        probabilities = np.exp(-(x**2) / (2 * s2) + cells) / math.sqrt(2 * math.pi * s2)
    else:
        mass = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * s2)).sum()
        probabilities = np.exp(-(x**2) / (2 * s2)) / mass
    return float((probabilities * -np.expm1(np.minimum(epsilon - loss, 0))).sum())


def scaled(law: Any, factor: float) -> Law:
    return dataclasses.replace(law, sigma2=law.sigma2 * Fraction(factor) ** 2)


def test_the_hockey_stick_reference() -> None:
    """Against the definition, term by term."""
    for law in (DiscreteGaussian(Fraction(5, 2)), *map(RoundedGaussian, (Fraction(5, 2), 2000))):
        x = np.arange(-60, 61) * (1 if law.sigma2 < 100 else 10)
        x = np.arange(x[0], x[-1] + 1)
        for shift, epsilon in ((1, 0.3), (2, 1.0), (1, 0.01)):
            excess = law.pmf(x) - math.exp(epsilon) * law.pmf(x - shift)
            direct = excess[excess > 0].sum()
            assert hockey_stick(law, shift, epsilon) == pytest.approx(direct, rel=1e-9)


@pytest.mark.exhaustive("delta", "epsilon", "shift")
@pytest.mark.parametrize("epsilon", [1e-3, 0.01, 0.1, 1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("delta", [1e-200, 1e-30, 1e-12, 1e-6, 1e-3, 0.1, 0.9])
@pytest.mark.parametrize("shift", [1, 3])
def test_gaussian_noise_of_a_budget_keeps_it(epsilon: float, delta: float, shift: int) -> None:
    budget = ApproxDP(epsilon, delta)
    (law,) = noise_laws(budget, shift, shift**2, frozenset({"gaussian"}))
    spent = hockey_stick(law, shift, epsilon)
    assert spent <= delta
    if 0.1 <= epsilon <= 3 and 1e-12 <= delta <= 1e-3:  # and not much less than it, either way
        assert spent > 0.1 * delta
        assert hockey_stick(scaled(law, 2 / 3), shift, epsilon) > delta
        least = 0.06 if delta == 1e-3 and isinstance(law, RoundedGaussian) else 0.02
        assert hockey_stick(scaled(law, 3 / 2), shift, epsilon) < least * delta


@pytest.mark.exhaustive("delta", "epsilon", "shift")
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-200, 1e-12, 1e-6, 1e-3, 0.1, 0.9])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_rounded_noise_of_the_analytic_scale_keeps_the_budget(
    epsilon: float, delta: float, shift: int
) -> None:
    """Also where it is not the law that is taken; and it spends nearly all where sigma > 5."""
    law = RoundedGaussian(Fraction(gaussian_sigma(epsilon, delta)) ** 2 * shift**2)
    spent = hockey_stick(law, shift, epsilon)
    assert spent <= delta
    if law.scale > 5 and delta > 1e-30:
        assert spent > 0.9 * delta
        assert hockey_stick(scaled(law, 0.98), shift, epsilon) > delta


def test_the_analytic_scale_is_not_enough_for_discrete_gaussians() -> None:
    """They would spend up to three times the delta; they never get that scale."""
    for epsilon, delta, excess in ((8.0, 1e-6, 3.0), (3.0, 1e-3, 1.4), (1.0, 0.1, 1.1)):
        sigma2 = Fraction(gaussian_sigma(epsilon, delta)) ** 2
        assert hockey_stick(DiscreteGaussian(sigma2), 1, epsilon) > excess * delta
        assert hockey_stick(RoundedGaussian(sigma2), 1, epsilon) <= delta


@pytest.mark.parametrize("sigma2", [0.2, 1.0, 7.3, 2000.0])
@pytest.mark.parametrize("shift", [1, 3])
def test_rounding_keeps_zcdp(sigma2: float, shift: int) -> None:
    """D_alpha is at most alpha shift^2 / (2 sigma2), and that of the continuous law where fine."""
    law = RoundedGaussian(Fraction(sigma2))
    for alpha in (1.01, 2.0, 5.0, 40.0):
        centre = int((1 - alpha) * shift)
        reach = int(40 * law.scale) + 40 + shift
        y = np.arange(centre - reach, centre + reach + 1.0)
        shifted = y - shift
        logs = [rounded_cells(law, v) - v**2 / (2 * sigma2) for v in (y, shifted)]
        exponents = alpha * logs[0] + (1 - alpha) * logs[1] - math.log(2 * math.pi * sigma2) / 2
        divergence = np.log(np.exp(exponents - exponents.max()).sum()) + exponents.max()
        bound = alpha * shift**2 / (2 * sigma2)
        assert divergence / (alpha - 1) <= bound * (1 + 1e-9)
        assert sigma2 < 1000 or divergence / (alpha - 1) > bound * 0.999


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 3.0, 50.0])
@pytest.mark.parametrize("delta", [1e-200, 1e-12, 1e-6, 1e-3, 0.1])
def test_zcdp_noise_keeps_every_budget_it_converts_to(rho: float, delta: float) -> None:
    budget = ZCDP(rho)
    (law,) = noise_laws(budget, 1, 1, BOTH)
    assert isinstance(law, DiscreteGaussian)
    epsilon = budget.to_approx(delta).epsilon
    assert hockey_stick(law, 1, epsilon) <= delta
    if rho <= 3 and delta <= 1e-6:
        assert hockey_stick(scaled(law, 2 / 3), 1, epsilon) > delta


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 7.0])
@pytest.mark.parametrize("shift", [1, 5])
def test_laplace_noise_of_a_pure_budget_spends_all_of_it(epsilon: float, shift: int) -> None:
    (law,) = noise_laws(PureDP(epsilon), shift, shift**2, BOTH)
    x = np.arange(-40, 41)
    ratios = np.log(law.pmf(x)) - np.log(law.pmf(x - shift))
    assert np.abs(ratios).max() == pytest.approx(epsilon, rel=1e-9)


# --- Noise laws ----------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    st.floats(1e-3, 50),
    st.floats(1e-30, 0.5),
    st.integers(1, 10**4) | st.fractions(Fraction(1, 10), 100),
    st.integers(1, 10**6) | st.fractions(Fraction(1, 10), 10**4),
)
@repeatable
def test_laws_have_exact_rational_scales(epsilon: float, delta: float, l1: Any, l2: Any) -> None:
    laplace = DiscreteLaplace(Fraction(l1) / Fraction(epsilon))
    rho = Fraction(zcdp_rho(epsilon, delta))
    discrete = DiscreteGaussian(Fraction(l2) / 2 / rho)
    rounded = RoundedGaussian(Fraction(l2) * Fraction(gaussian_sigma(epsilon, delta)) ** 2)
    gaussian = rounded if rounded.variance <= 0.9604 * discrete.variance else discrete
    of_epsilon = DiscreteGaussian(Fraction(l2) / 2 / Fraction(epsilon))
    assert noise_laws(PureDP(epsilon), l1, l2, BOTH) == (laplace,)
    assert noise_laws(ZCDP(epsilon), l1, l2, BOTH) == (of_epsilon,)
    both = noise_laws(ApproxDP(epsilon, delta), l1, l2, BOTH)
    assert set(both) == {laplace, gaussian}
    assert {type(getattr(law, "parameter", None) or law.sigma2) for law in both} == {Fraction}  # type: ignore[attr-defined]


def test_laws_are_of_the_allowed_kinds() -> None:
    pure, approx, zcdp = PureDP(1), ApproxDP(1, 1e-6), ZCDP(0.5)
    cases = [
        (pure, "laplace", [DiscreteLaplace]),
        (pure, "gaussian", []),
        (zcdp, "laplace", []),
        (zcdp, "gaussian", [DiscreteGaussian]),
        (approx, "laplace", [DiscreteLaplace]),
        (approx, "gaussian", [RoundedGaussian]),
    ]
    for budget, kind, expected in cases:
        assert [type(law) for law in noise_laws(budget, 4, 4, frozenset({kind}))] == expected
        assert noise_laws(budget, 4, 4, frozenset()) == ()


def test_a_route_out_of_range_does_not_close_the_other() -> None:
    """Simple1 over 2^34 steps: Laplace noise of scale 2^34, Gaussian noise of only 6e5."""
    laws = noise_laws(ApproxDP(1, 1e-6), 2**34, 2**34, BOTH)
    assert [type(law) for law in laws] == [RoundedGaussian]
    # Nor does the discrete Gaussian, whose scale is 7 % larger than the rounded one's.
    laws = noise_laws(ApproxDP(1, 1e-6), 2**40, int((2**33 / 4.4) ** 2), BOTH)
    assert [type(law) for law in laws] == [RoundedGaussian]


@pytest.mark.parametrize(
    ("budget", "l2_squared", "kind"),
    [
        (ApproxDP(1, 1e-6), 1, RoundedGaussian),
        (ApproxDP(0.1, 1e-9), 20, RoundedGaussian),
        (ApproxDP(1, 1e-300), 1, DiscreteGaussian),  # 0.3 % less scale is not worth it
        (ApproxDP(8, 1e-6), 1, DiscreteGaussian),  # 5 % less, but rounding adds 1/12 to 0.43
        (ApproxDP(8, 1e-6), 4, RoundedGaussian),
    ],
)
def test_the_better_gaussian_is_taken(budget: ApproxDP, l2_squared: int, kind: type[Law]) -> None:
    (law,) = noise_laws(budget, l2_squared, l2_squared, frozenset({"gaussian"}))
    assert type(law) is kind


def test_noise_beyond_every_law_is_refused() -> None:
    with pytest.raises(ValueError, match=r"outside \(0, 2\^33\]: raise the budget"):
        noise_laws(PureDP(1e-12), 1, 1, BOTH)
    with pytest.raises(ValueError, match=r"outside \(0, 2\^33\]: raise the budget"):
        noise_laws(ZCDP(1e-25), 1, 1, BOTH)
    with pytest.raises(ValueError, match=r"outside \(0, 2\^33\]: raise the budget"):
        noise_laws(ApproxDP(1, 1e-6), 2**40, 2**80, BOTH)


@pytest.mark.parametrize("budget", [PureDP(5e-324), ZCDP(5e-324)], ids=str)
def test_budgets_that_overflow_floats_are_refused_alike(budget: Any) -> None:
    with pytest.raises(ValueError, match=r"outside \(0, 2\^33\]"):
        noise_laws(budget, 1, 1, BOTH)


# --- Shares --------------------------------------------------------------------------------------

totals = st.floats(1e-12, 1e12)


@pytest.mark.slow
@given(totals, st.integers(1, 300))
@example(0.1, 3)
@example(1.0, 10)
@repeatable
def test_equal_shares_never_exceed_the_total(total: float, parts: int) -> None:
    for budget, field in ((PureDP(total), "epsilon"), (ZCDP(total), "rho")):
        shares = budget.split(parts)
        values = [getattr(share, field) for share in shares]
        assert {type(share) for share in shares} == {type(budget)}
        assert len(values) == parts
        assert sum(map(Fraction, values)) <= Fraction(total)
        assert min(values) >= total / parts * (1 - 1e-12)


@given(totals, st.floats(1e-300, 0.99), st.lists(st.floats(1e-6, 1), min_size=1, max_size=30))
@repeatable
def test_fractional_shares_never_exceed_the_total(
    total: float, delta: float, weights: list[float]
) -> None:
    fractions = [w / sum(weights) for w in weights]  # whose sum may be a hair above 1
    assume(delta * min(fractions) > 1e-305)
    shares = ApproxDP(total, delta).split(fractions)
    assert len(shares) == len(fractions)
    assert sum(Fraction(share.epsilon) for share in shares) <= Fraction(total)
    assert sum(Fraction(share.delta) for share in shares) <= Fraction(delta)
    for share, fraction in zip(shares, fractions, strict=True):
        assert share.epsilon == pytest.approx(total * fraction, rel=1e-9)
        assert share.delta == pytest.approx(delta * fraction, rel=1e-9)


def test_shares_need_not_use_all() -> None:
    assert PureDP(2.0).split([0.25, 0.5]) == (PureDP(0.5), PureDP(1.0))
    assert ZCDP(2.0).split((1,)) == (ZCDP(2.0),)
    assert ApproxDP(1.0, 1e-6).split(2) == (ApproxDP(0.5, 5e-7),) * 2
    assert PureDP(1.0).split(np.array([0.5, 0.5])) == (PureDP(0.5),) * 2
    assert len(PureDP(1.0).split([0.1, 0.2, 0.7])) == 3  # 1 + 2^-54, meant as the whole


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        (0, ValueError, ["parts", "at least 1", "got 0"]),
        (-2, ValueError, ["parts", "at least 1", "got -2"]),
        ([0.5, 0.6], ValueError, ["[0.5, 0.6]", "1.1", "more than 1", "lower them"]),
        ([1.0, 1e-9], ValueError, ["more than 1", "lower them"]),
        ([0.5, 0.0], ValueError, ["fraction", "positive", "got 0.0"]),
        ([0.5, -0.1], ValueError, ["fraction", "positive", "got -0.1", "e.g. 0.5"]),
        ([math.nan], ValueError, ["fraction", "finite", "got nan"]),
        ([0.5, True], TypeError, ["fraction", "number", "got True"]),
        (["0.5"], TypeError, ["fraction", "number", "got '0.5'"]),
        ([], TypeError, ["parts", "got []", "number of shares or their fractions"]),
        (True, TypeError, ["parts", "got True", "number of shares or their fractions"]),
        (2.0, TypeError, ["parts", "got 2.0", "number of shares or their fractions"]),
        ("2", TypeError, ["parts", "got '2'", "number of shares or their fractions"]),
        (None, TypeError, ["parts", "got None", "number of shares or their fractions"]),
    ],
)
def test_wrong_shares_are_refused(parts: Any, error: type[Exception], words: list[str]) -> None:
    for budget in (PureDP(1.0), ZCDP(1.0), ApproxDP(1.0, 1e-6)):
        with pytest.raises(error) as refusal:
            budget.split(parts)
        assert [w for w in words if w not in str(refusal.value)] == []


def test_numpy_counts_of_shares_are_counts() -> None:
    assert PureDP(1.0).split(np.int64(2)) == (PureDP(0.5), PureDP(0.5))


# --- Refusals and values -------------------------------------------------------------------------

MAKERS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("epsilon", PureDP, "PureDP(epsilon=1.0)"),
    ("epsilon", lambda v: ApproxDP(v, 1e-6), "ApproxDP(epsilon=1.0, delta=1e-6)"),
    ("delta", lambda v: ApproxDP(1.0, v), "between 0 and 1, e.g. 1e-6"),
    ("rho", ZCDP, "ZCDP(rho=0.1)"),
    ("delta", lambda v: ZCDP(1.0).to_approx(v), "between 0 and 1, e.g. 1e-6"),
    ("epsilon", lambda v: zcdp_rho(v, 1e-6), "e.g. 1.0"),
    ("delta", lambda v: zcdp_rho(1.0, v), "e.g. 1e-6"),
    ("rho", lambda v: zcdp_epsilon(v, 1e-6), "e.g. 0.1"),
    ("delta", lambda v: zcdp_epsilon(1.0, v), "e.g. 1e-6"),
    ("epsilon", lambda v: gaussian_sigma(v, 1e-6), "e.g. 1.0"),
    ("delta", lambda v: gaussian_sigma(1.0, v), "e.g. 1e-6"),
    ("ratio", lambda v: gaussian_epsilon(v, 1e-6), "e.g. 0.2"),
    ("delta", lambda v: gaussian_epsilon(1.0, v), "e.g. 1e-6"),
    ("ratio", lambda v: gaussian_delta(1.0, v), "e.g. 0.2"),
]
everywhere = pytest.mark.parametrize(("argument", "make", "remedy"), MAKERS)


@everywhere
@pytest.mark.parametrize("value", [0, 0.0, -1, -1e-300, math.nan, math.inf, -math.inf])
def test_values_out_of_range_are_refused(
    argument: str, make: Callable[[Any], Any], remedy: str, value: float
) -> None:
    message = f"^{argument} must be positive and finite, got {re.escape(repr(value))}: "
    with pytest.raises(ValueError, match=message) as refusal:
        make(value)
    assert remedy in str(refusal.value)


@everywhere
@pytest.mark.parametrize("value", [True, False, "1", None, 1j, [1.0], Decimal(1), np.bool_(True)])
def test_values_that_are_no_numbers_are_refused(
    argument: str, make: Callable[[Any], Any], remedy: str, value: Any
) -> None:
    with pytest.raises(TypeError) as refusal:
        make(value)
    assert str(refusal.value).startswith(f"{argument} must be a number, got {value!r}: ")
    assert remedy in str(refusal.value)


@pytest.mark.parametrize("value", [1, 1.0, 1.5, 10**9])
def test_deltas_from_1_are_refused(value: float) -> None:
    for make in (m for argument, m, _ in MAKERS if argument == "delta"):
        with pytest.raises(ValueError, match=r"^delta must be below 1, got .*: give a number bet"):
            make(value)


def test_a_zero_delta_is_sent_to_pure_budgets() -> None:
    with pytest.raises(ValueError, match=r"for delta = 0 use PureDP\(epsilon\)"):
        ApproxDP(1.0, 0)


def test_integers_beyond_floats_are_refused_as_too_large() -> None:
    for argument, make, _ in MAKERS:
        with pytest.raises(ValueError, match=f"^{argument} must be"):
            make(10**400)


def test_a_budget_that_leaves_no_zcdp_is_refused() -> None:
    with pytest.raises(ValueError, match=r"epsilon = 1e-150 .* raise epsilon or delta"):
        ApproxDP(1e-150, 1e-300).to_zcdp()


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"still running after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timer on this system")
def test_delta_of_no_budget_is_refused_not_searched_for_ever() -> None:
    with at_most(1.0), pytest.raises(ValueError, match="rho must be positive"):
        zcdp_delta(-1.0, 1.0)
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ValueError, match="epsilon must be a number from 0"):
            gaussian_delta(epsilon, 1.0)


def test_budgets_are_frozen_values() -> None:
    budgets = [PureDP(1), ApproxDP(1, 1e-6), ZCDP(1)]
    assert len({*budgets, PureDP(1.0), ApproxDP(1.0, 1e-6), ZCDP(1.0)}) == 3
    for budget in budgets:
        assert check_budget(budget) is budget
        assert pickle.loads(pickle.dumps(budget)) == budget
        first = dataclasses.fields(budget)[0].name
        assert type(getattr(budget, first)) is float
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(budget, first, 2.0)


def test_numbers_of_other_types_are_taken() -> None:
    assert PureDP(Fraction(1, 2)) == PureDP(np.float64(0.5)) == PureDP(np.float32(0.5))
    assert ZCDP(np.int64(2)) == ZCDP(2)


def test_budgets_read_well() -> None:
    assert str(PureDP(1)) == "epsilon = 1 (pure)"
    assert str(ApproxDP(0.5, 1e-6)) == "epsilon = 0.5, delta = 1e-06"
    assert str(ZCDP(0.1)) == "rho = 0.1 (zCDP)"
