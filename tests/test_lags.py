"""Bounds on products of columns of the encoder some lags apart, against its dense Gram matrix."""

from __future__ import annotations

import dataclasses
import math
import time

import mpmath
import numpy as np
import pytest

from beam_dpcount import mechanisms
from beam_dpcount.mechanisms import (
    BLT,
    Binned,
    BridgedKAry,
    Endless,
    KAry,
    NormalizedBLT,
    ProfiledBLT,
    SmoothBinary,
    SquareRoot,
    binned_tables,
)
from beam_dpcount.mechanisms.base import MAX_HORIZON, Mechanism
from beam_dpcount.mechanisms.binned_tables import _COLUMNS, _LAGS
from beam_dpcount.mechanisms.blt_tables import scale_index
from beam_dpcount.mechanisms.rounded import RoundedMechanism, lag_bounds
from beam_dpcount.mechanisms.workload import Workload

MADE = {
    **{kind.__name__: kind for kind in mechanisms.ALL},
    "SmoothBinary, balanced": lambda T: SmoothBinary(T, balanced=True),
    "TwoLevel, blocks of 1": lambda T: mechanisms.TwoLevel(T, block=1),
    "TwoLevel, one block": lambda T: mechanisms.TwoLevel(T, block=T),
    "KAry, k = 3": lambda T: KAry(T, 3),
    "KAry, no subtraction": lambda T: KAry(T, subtraction=False),
    "KAry, mixed": lambda T: KAry(T, (3, 5, 7, 9, 11)),
    "KAry, mixed, no subtraction": lambda T: KAry(T, (2, 5, 3, 4, 20), subtraction=False),
    "BridgedKAry, k = 2": lambda T: BridgedKAry(T, 2),
    "BridgedKAry, k = 7": lambda T: BridgedKAry(T, 7),
    "SquareRoot, momentum": lambda T: SquareRoot(T, momentum=0.5, decay=0.9),
    "SquareRoot, much momentum": lambda T: SquareRoot(T, momentum=0.999),
    "Binned, momentum": lambda T: Binned(T, momentum=0.9),
    "Binned, decay": lambda T: Binned(T, momentum=0.5, decay=0.9),
    "Binned, wide": lambda T: Binned(T, c=0.5),
    "Binned, widest": lambda T: Binned(T, c=0.3),
    "BLT, 8 buffers": lambda T: BLT(T, 8),
    "NormalizedBLT, 2 buffers": lambda T: NormalizedBLT(T, 2),
}
every = pytest.mark.parametrize("make", MADE.values(), ids=MADE)
HORIZONS = (*range(1, 41), 63, 64, 100, 200)


def largest_products(mechanism, n=None):
    """The largest |G[t, t']| over |t - t'| >= d, for d < n (or T), from the dense encoder."""
    R = mechanism.encoder(mechanism.horizon)
    G = np.abs(R.T @ R)
    at = np.array([np.diagonal(G, d).max() for d in range(mechanism.horizon)])
    return np.maximum.accumulate(at[::-1])[::-1][:n]


def covers(bounds, products) -> bool:
    """Whether they are bounds, but for what the sums of the test itself round."""
    return bool((np.asarray(bounds) >= products * (1 - 1e-9)).all())


def relative(bounds, products):
    """The largest factor between the two, where there is anything to bound."""
    bounds, some = np.asarray(bounds), products > 0
    assert not bounds[~some].any()
    return float((bounds[some] / products[some]).max())


# Validity


@pytest.mark.long
@pytest.mark.slow
@every
def test_bounds_hold_fall_and_start_at_the_sensitivity(make):
    for horizon in HORIZONS:
        mechanism = make(horizon)
        bounds = mechanism.lag_bounds(horizon)
        assert len(bounds) == horizon
        assert bounds[0] == mechanism.l2_sensitivity_squared
        assert (np.diff(bounds) <= 0).all(), horizon
        assert covers(bounds, largest_products(mechanism)), horizon


@every
def test_bounds_of_fewer_lags_begin_those_of_more_and_no_pairs_lie_beyond_the_horizon(make):
    for horizon in (1, 2, 7, 40):
        mechanism = make(horizon)
        bounds = mechanism.lag_bounds(horizon + 3)
        assert bounds[horizon:] == (0, 0, 0)
        for n in range(horizon + 3):
            assert mechanism.lag_bounds(n) == bounds[:n], (horizon, n)


@every
def test_bounds_that_are_one_lag_late_are_found_out(make):
    """g(d + 1) in place of g(d), from d = 1 on: these differ from g wherever items share less."""
    mechanism = make(40)
    products, bounds = largest_products(mechanism), mechanism.lag_bounds(41)
    late = (bounds[0], *bounds[2:])
    if len(set(bounds[1:])) > 1:  # else the identity, whose products are 0 from d = 1 on
        assert not covers(late, products)
    assert not covers(bounds[1:], products)
    assert len(set(bounds[1:])) > 1 or not products[1:].any()


def test_mechanisms_that_know_nothing_of_it_have_the_constant():
    @dataclasses.dataclass(frozen=True)
    class Plain(mechanisms.BinaryTree):
        lag_bounds = Mechanism.lag_bounds

    assert Plain(40).lag_bounds(3) == (6, 6, 6)
    assert covers(Plain(40).lag_bounds(40), largest_products(Plain(40)))


# Tightness


@pytest.mark.slow
@every
def test_bounds_are_exact_for_integer_encoders_and_close_for_real_ones(make):
    for horizon in HORIZONS:
        mechanism = make(horizon)
        products, bounds = largest_products(mechanism), mechanism.lag_bounds(horizon)
        if isinstance(mechanism, Binned) and horizon > _LAGS:
            continue  # below
        if isinstance(mechanism, RoundedMechanism):
            slack = 1e-6 if isinstance(mechanism, Binned) else 1e-8
            assert relative(bounds, products) <= 1 + slack, horizon
        elif getattr(mechanism, "balanced", False):
            assert (bounds - products).max() <= 1, horizon  # a top node that is never completed
        else:
            assert np.array_equal(bounds, products), horizon


def test_lags_of_the_binary_tree_by_hand():
    for h in range(1, 7):
        tree = mechanisms.BinaryTree(2**h - 1)
        sharing = tuple(sum(2**i > d for i in range(h)) for d in range(2**h - 1))
        assert tree.lag_bounds(2**h - 1) == sharing


def test_lags_of_the_smooth_tree_by_hand():
    smooth = SmoothBinary(5, balanced=True)  # leaves 0011, 0101, 0110, 1001, 1010
    assert smooth.shape == (4, 2)
    assert smooth.lag_bounds(6) == (2, 1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    "horizon", [1025, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (2000, 2600))]
)
def test_normalized_bounds_are_close_where_one_scale_stands_for_many_columns(horizon):
    for buffers in (None, 2, 8):
        mechanism = NormalizedBLT(horizon, buffers)
        products = largest_products(mechanism, 17)
        bounds = mechanism.lag_bounds(17)
        assert covers(bounds, products)
        assert relative(bounds, products) <= 1 + 1e-3


@pytest.mark.slow
@pytest.mark.exhaustive("c", "horizon")
@pytest.mark.parametrize("c", [None, 0.5, 0.3])
@pytest.mark.parametrize("horizon", [_LAGS, _LAGS + 1, 255, 257, 1000, _COLUMNS + 130])
def test_products_of_binned_columns_hold_in_blocks_and_beyond(horizon, c):
    mechanism = Binned(horizon, c=c)
    products, bounds = largest_products(mechanism), mechanism.lag_bounds(horizon)
    assert covers(bounds, products)
    assert relative(bounds[:17], products[:17]) <= (1.11 if c == 0.3 else 1 + 1e-5)
    beyond = mechanism.lag_bounds(horizon)[_LAGS:]
    assert len(set(beyond)) <= 1
    assert not beyond or beyond[0] < bounds[0]


@pytest.mark.slow
@pytest.mark.parametrize("columns", [50, 64, 128, 200])
def test_products_across_blocks_of_columns_are_not_missed(monkeypatch, columns):
    mechanism = Binned(300)
    whole = binned_tables.lag_products(*mechanism._key)
    monkeypatch.setattr(binned_tables, "_COLUMNS", columns)
    cut = binned_tables.lag_products.__wrapped__(*mechanism._key)
    assert cut == pytest.approx(whole, rel=1e-12)


def test_products_of_binned_columns_may_be_negative_and_are_bounded_all_the_same():
    mechanism = Binned(200, c=0.3)
    R = mechanism.encoder(200)
    assert (R < 0).any()
    assert (R.T @ R < 0).any()
    assert covers(mechanism.lag_bounds(200), largest_products(mechanism))


@pytest.mark.parametrize(
    ("momentum", "decay"), [(0, 1), (0, 0.5), (0.3, 0.31), (0.5, 0.9), (0.999, 1), (0, 1e-3)]
)
def test_coefficients_of_the_square_root_are_moments_of_an_arcsine_law(momentum, decay):
    """E U^j for U on [beta, alpha], by Gauss-Chebyshev quadrature: so they fall."""
    n = 40
    r = SquareRoot(n, momentum=momentum, decay=decay).encoder(n)[:, 0]
    angles = (2 * np.arange(1, 65) - 1) * math.pi / 128
    u = (momentum + decay) / 2 + (decay - momentum) / 2 * np.cos(angles)
    assert r == pytest.approx((u[:, None] ** np.arange(n)).mean(axis=0), rel=1e-12, abs=1e-15)
    assert (np.diff(r) <= 1e-15).all()
    assert Workload(momentum, decay).matrix(3) == pytest.approx(
        np.linalg.matrix_power(SquareRoot(3, momentum, decay).encoder(3), 2), rel=1e-12
    )


def test_products_are_rounded_up_and_made_to_fall():
    bounds = lag_bounds(1.0, [0.9, 0.4, 0.4 * (1 + 1e-8), 2.0, 0.1], 8)
    assert bounds[:5] == (1,) * 5  # 2.0 is capped, and stands for all lags before it
    assert 0.1 < bounds[5] <= 0.1 * (1 + 1e-8)
    assert bounds[6:] == (0, 0)
    assert lag_bounds(1.0, [], 2) == (1, 0)
    low, high = lag_bounds(1.0, [0.4, 0.4 * (1 + 1e-8)], 3)[1:]
    assert low == high > 0.4 * (1 + 1e-8)


# Long horizons


@pytest.mark.slow
@pytest.mark.exhaustive("horizon", "make")
@every
@pytest.mark.parametrize("horizon", [2**20, 2**30, MAX_HORIZON])
def test_bounds_of_long_horizons_take_milliseconds(make, horizon):
    try:
        mechanism = make(horizon)
    except ValueError:
        return  # fixed radices that do not reach so far
    if horizon > mechanism.longest or getattr(mechanism, "momentum", 0) > 0.9:
        return  # its coefficients alone take minutes
    largest = mechanism.l2_sensitivity_squared
    _ = mechanism.l1_sensitivity  # fills the tables that any use of the mechanism needs
    times = []
    for _ in range(3):
        start = time.process_time()
        bounds = mechanism.lag_bounds(17)
        times.append(time.process_time() - start)
    assert min(times) < 0.2  # a pass over the horizon would take seconds
    assert bounds[0] == largest
    assert (np.diff(bounds) <= 0).all()
    trivial = isinstance(mechanism, mechanisms.Simple1) or largest == 1
    assert trivial or 0 < bounds[16] < largest or isinstance(mechanism, mechanisms.TwoLevel)


@pytest.mark.parametrize("kind", [BLT, NormalizedBLT])
def test_bounds_at_2_to_the_30_against_columns_taken_one_by_one(kind):
    """Pairs of columns whose products are summed from closed forms of pairs of poles."""
    horizon = 2**30
    mechanism = kind(horizon)
    p, bounds = mechanism._poles, mechanism.lag_bounds(17)

    def product(left, d):
        total = 0.0
        for ci, ai in zip(p.c.tolist(), p.a.tolist(), strict=True):
            for cj, aj in zip(p.c.tolist(), p.a.tolist(), strict=True):
                x = ai + aj - ai * aj
                steps = -math.expm1((left - d) * math.log1p(-x)) / x if x else left - d
                total += ci * cj * (1 - aj) ** d * steps
        return total

    def scaled(left, d):
        if kind is BLT:
            return product(left, d)
        scales = [mechanism._tables.scales[scale_index(n)] for n in (left, left - d)]
        for scale, n in zip(scales, (left, left - d), strict=True):
            assert product(n, 0) <= scale**2 <= product(n, 0) * 1.003
        return product(left, d) / math.prod(scales)

    lefts = [20, 1000, 1024, 1025, 2**20, 2**29 + 1, horizon - 12345, horizon]
    for d in (1, 2, 5, 16):
        seen = max(scaled(left, d) for left in lefts)
        assert seen * (1 - 1e-9) <= bounds[d] <= seen * (1 + 1e-3)


@pytest.mark.parametrize("made", [ProfiledBLT(1 << 30), ProfiledBLT(3 << 28), Endless()], ids=str)
def test_the_first_and_the_last_column_of_long_weighted_rows_in_fifty_digits(made):
    """They share one row. Powers of a rounded 1 - a lost up to 5e-8 in so many steps."""
    by, p, T = made._stretches, made._poles, made.horizon
    assert (by.starts[1], by.starts[-1]) == (2, T)  # so that nothing but rounding is left
    (bound,) = made._tables.lag_products([T - 1])
    with mpmath.workdps(50):
        c, a = ([mpmath.mpf(x) for x in of.tolist()] for of in (p.c, p.a))
        last = sum(x * (1 - y) ** (T - 1) for x, y in zip(c, a, strict=True))
        row = mpmath.ldexp(by.weights[-1], -by.weight_bits)
        exact = row**2 * sum(c) * last
        for v in (by.columns[0], by.columns[-1]):
            exact *= mpmath.ldexp(v, -by.fraction)
        assert exact <= bound <= exact * (1 + 3e-12)


def test_substrings_of_the_square_root_at_a_million_steps():
    """Two strings of each length up to l, one that leaves and one that enters, against one item."""
    g = SquareRoot(10**6).lag_bounds(3)

    def squared(j):
        return 2 * j * g[0] + 2 * sum((j - d) * g[d] for d in range(1, j))

    figures = [math.sqrt(sum(map(squared, range(1, most + 1))) / g[0]) for most in (1, 2, 3)]
    assert figures == pytest.approx([1.414, 2.787, 4.358], abs=5e-4)


@pytest.mark.parametrize("kind", [mechanisms.BLT, mechanisms.NormalizedBLT, mechanisms.ProfiledBLT])
@pytest.mark.parametrize(("horizon", "gap"), [(50, 7), (300, 1), (300, 40), (300, 400)])
def test_bounds_of_spaced_lags_hold_and_are_close(kind, horizon, gap):
    """Of columns so many gaps apart or more, without all the lags between."""
    mechanism, n = kind(horizon), 6
    R = mechanism.encoder(horizon)
    products = R.T @ R
    found = mechanism.spaced_bounds(gap, n)
    assert len(found) == n
    for i, bound in enumerate(found):
        exact = max((np.diagonal(products, d).max() for d in range(gap * i, horizon)), default=0)
        assert exact <= bound * (1 + 1e-12)
        assert bound <= 1.03 * exact + 1e-7
