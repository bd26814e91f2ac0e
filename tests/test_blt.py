"""BLT and NormalizedBLT: their errors against the optimum and against plain recurrences, the column
scales, streams across blocks, and the bound on rounding against exact arithmetic."""

from __future__ import annotations

import json
import math
import time
from fractions import Fraction
from importlib import resources
from itertools import pairwise

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.mechanisms import BLT, NormalizedBLT, blt_tables
from beam_dpcount.mechanisms.base import UnsupportedHorizonError
from beam_dpcount.mechanisms.blt_tables import (
    _Variances,
    scale_index,
    scale_indices,
    scale_nodes,
)
from beam_dpcount.mechanisms.workload import PREFIX_SUMS
from beam_dpcount.noise.laws import DiscreteGaussian
from benchmarks.fit_blt import square_root_max_se
from tests.scripted import Script, SeededNoise, random_script

FITS = json.loads((resources.files("beam_dpcount.mechanisms") / "blt_parameters.json").read_text())
NAMES = {BLT: "blt", NormalizedBLT: "normalized_blt"}
both = pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
dimensions = pytest.mark.parametrize("dimension", [None, 2], ids=["scalar", "vector"])
all_buffers = pytest.mark.parametrize("buffers", [None, 2, 3, 5, 8])


def max_se(mechanism):
    """The largest variance at rho = 1/2, where a draw's variance is the squared sensitivity."""
    return mechanism.max_row_norm2() * mechanism.l2_sensitivity_squared


def take_steps(mechanism, xs, noise, dimension=None, state=None):
    state, values = mechanism.init(dimension) if state is None else state, []
    for x in xs.tolist() if dimension is None else xs:
        state, value = mechanism.step(state, x, noise)
        values.append(value)
    return state, np.array(values)


# Errors against the optimum


@pytest.mark.parametrize("log", [10, 16, 20])
def test_plain_errors_are_within_one_percent_of_the_square_roots(log):
    counter = dp.calibrate(BLT(2**log), dp.ZCDP(0.5))
    assert counter.mechanism._poles.buffers <= 6
    optimum = square_root_max_se(2**log)
    assert optimum <= max_se(counter.mechanism) <= counter.max_variance() <= 1.01 * optimum


@pytest.mark.parametrize(("log", "largest"), [(10, 9.6), (16, 19.6), (20, 28.1)])
def test_normalized_errors(log, largest):
    counter = dp.calibrate(NormalizedBLT(2**log), dp.ZCDP(0.5))
    assert counter.mechanism._poles.buffers <= 7
    assert counter.max_variance() <= largest
    # Mathias' bound for all factorizations.
    T = 2**log
    G = np.abs(1 / np.sin((2 * np.arange(1, T + 1) - 1) * np.pi / (2 * T))).mean()
    assert counter.max_variance() > (G / 2 * (1 + 1 / T)) ** 2


def every_fit(kind, logs):
    return [
        (log, d, FITS[NAMES[kind]][str(log)][str(d)]["max_se"]) for log in logs for d in range(2, 9)
    ]


@pytest.mark.slow
def test_no_plain_fit_is_better_than_the_optimum():
    """It would be impossible: a formula would have lost its digits."""
    for log, d, stored in every_fit(BLT, range(4, 31)):
        mechanism = BLT(2**log, d)
        assert mechanism._poles.buffers == d
        assert max_se(mechanism) >= square_root_max_se(2**log) * (1 - 1e-9), (log, d)
        assert max_se(mechanism) == pytest.approx(stored, rel=1e-9), (log, d)


@pytest.mark.exhaustive
def test_errors_of_normalized_fits_are_those_that_are_stored():
    """Column scales are kept constant for a while, which costs at most 2e-4."""
    for log, d, stored in every_fit(NormalizedBLT, range(4, 23)):
        ratio = max_se(NormalizedBLT(2**log, d)) / stored
        assert 1 - 1e-6 <= ratio <= 1 + 2e-4, (log, d)
    for log, d, stored in every_fit(NormalizedBLT, range(23, 31)):
        ratio = max_se(NormalizedBLT(2**log, d)) / stored  # of an upper bound to an estimate
        assert 1 <= ratio <= 1 + 1e-3, (log, d)


@both
def test_more_buffers_are_better_and_the_default_takes_no_more_than_it_needs(kind):
    for log in range(4, 31):
        stored = [fit for _, _, fit in every_fit(kind, [log])]
        # Beyond some number there is nothing to gain, and fits end within 2e-5 of the best.
        assert all(more <= fewer * (1 + 2e-5) for fewer, more in pairwise(stored)), log
        d = kind(2**log)._poles.buffers
        assert stored[d - 2] <= 1.005 * min(stored)
        assert d == 2 or stored[d - 3] > 1.005 * min(stored)
        shortest = kind(2 ** (log - 1) + 1 if log > 4 else 1)
        assert np.array_equal(kind(2**log)._poles.e, shortest._poles.e)


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [1000, 5000, 70_000, 10**6])
def test_horizons_between_powers_of_two(horizon):
    optimum = square_root_max_se(horizon)
    assert max_se(NormalizedBLT(horizon)) < 0.95 * optimum
    assert optimum < max_se(BLT(horizon)) < 1.02 * optimum
    for kind in (BLT, NormalizedBLT):
        mechanism = kind(horizon).within(2**30, 1)
        xs = np.random.default_rng(1).integers(-(2**30), 2**30, horizon)
        last = mechanism.release(xs, Script(np.zeros(horizon)))
        reach = 0.5 * mechanism.release(xs * 0, Script(np.ones(horizon))) + 1
        assert (np.abs(last - np.cumsum(xs)) <= reach).all()  # L R = A at every step


@both
@all_buffers
def test_matrices_multiply_to_prefix_sums(kind, buffers):
    for horizon in (1, 2, 3, 16, 17, 64, 65, 200, 300):
        mechanism = kind(horizon, buffers)
        product = mechanism.decoder(horizon) @ mechanism.encoder(horizon)
        assert np.allclose(product, PREFIX_SUMS.matrix(horizon), rtol=0, atol=1e-11), horizon


# Variances


@pytest.mark.slow
@pytest.mark.exhaustive("buffers", "kind")
@both
@all_buffers
def test_variances_are_those_of_dense_decoders(kind, buffers):
    for horizon in (*range(1, 40), 63, 64, 65, 100, 127, 128, 129, 200, 256, 257, 300):
        mechanism = kind(horizon, buffers)
        norms = np.square(mechanism.decoder(horizon)).sum(axis=1)
        assert mechanism.row_norms2(horizon) == pytest.approx(norms, rel=1e-12), horizon
        assert mechanism.row_norm2(horizon) == pytest.approx(norms[-1], rel=1e-12)
        assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-12)
        assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)


@pytest.mark.slow
@both
def test_dense_matrices_where_scales_are_constant_for_a_while(kind):
    """From 1025 steps on. L is also what unit noises give, and R's columns are no longer than 1."""
    horizon = 1600
    mechanism = kind(horizon, 3)
    L, R = mechanism.decoder(horizon), mechanism.encoder(horizon)
    assert np.allclose(L @ R, np.tri(horizon), rtol=0, atol=1e-10)
    assert mechanism.row_norms2(horizon) == pytest.approx(np.square(L).sum(axis=1), rel=1e-12)
    norms = np.square(R).sum(axis=0)
    assert norms.max() <= mechanism.l2_sensitivity_squared <= norms.max() * (1 + 1e-9)
    sums = R.sum(axis=0)
    assert sums.max() <= mechanism.l1_sensitivity <= sums.max() * (1 + 1e-11)
    chosen = [0, 1, 31, 32, 500, 574, 575, 576, 577, 578, 1000, 1598, 1599]
    noise = np.eye(horizon, dtype=np.int64)[:, chosen] << 36
    released = mechanism.release(np.zeros_like(noise), Script(noise)) / 2**36
    assert np.allclose(released, L[:, chosen], rtol=1e-10, atol=1e-10)
    if kind is NormalizedBLT:
        scales = mechanism._column_scales(horizon)
        runs = np.flatnonzero(np.diff(scales))
        assert (np.diff(scales) <= 0).all()
        assert np.diff(runs)[:287].tolist() == [2] * 287  # 2 steps each, while 1025 are left
        assert np.diff(runs)[290:].tolist() == [1] * (len(runs) - 291)


def plain_recursion(mechanism, scales):
    """Var n_t step by step from the covariance of (buffers, b, n): no closed form, no table."""
    p = mechanism._poles
    d, theta = p.buffers, 1 - p.e
    # Coordinates: d buffers, b, n. Only y is new at each step.
    covariance, norms = np.zeros((d + 2, d + 2)), []
    for scale in scales:
        moved = np.zeros((d + 2, d + 2))
        moved[range(d), range(d)] = theta
        moved[d, :d] = p.w
        moved[d + 1] = scale * moved[d]
        moved[d + 1, d] -= scale
        moved[d + 1, d + 1] += 1
        # b = y + w.m of the buffers before the step, which then take y in.
        new = np.append(np.ones(d), [1.0, scale])
        covariance = moved @ covariance @ moved.T + np.outer(new, new)
        norms.append(covariance[-1, -1])
    return norms


@pytest.mark.slow
@pytest.mark.exhaustive("buffers", "horizon", "kind")
@both
@pytest.mark.parametrize(("horizon", "buffers"), [(40, 3), (700, None), (4096, 4), (5000, None)])
def test_variances_are_those_of_a_plain_recursion(kind, horizon, buffers):
    mechanism = kind(horizon, buffers)
    norms = plain_recursion(mechanism, mechanism._column_scales(horizon))
    assert mechanism.row_norms2(horizon) == pytest.approx(norms, rel=1e-11)


@pytest.mark.slow
@pytest.mark.exhaustive("horizon", "kind")
@both
@pytest.mark.parametrize(
    "horizon", [2**12, 2**13 + 1, 2**14, 50_000, 2**16, 99_999, 2**18 - 1, 2**18]
)
def test_largest_and_mean_variances_are_those_of_all_steps(kind, horizon):
    mechanism = kind(horizon)
    norms = mechanism.row_norms2(horizon)
    assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-13)
    assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)
    worst = int(norms.argmax()) + 1
    # The maximum is flat.
    assert worst == horizon if kind is BLT else 0.45 < worst / horizon < 0.62
    for t in (1, 2, 4095, 4096, horizon // 2, worst, horizon):
        assert mechanism.row_norm2(t) == pytest.approx(norms[t - 1], rel=1e-13)
        assert mechanism.state_row_norm2((t, 0.0)) == mechanism.row_norm2(t)


@pytest.mark.slow
@pytest.mark.parametrize("log", [23, 24, 30])
def test_beyond_2_to_the_22_the_largest_variance_is_bounded_from_above(log):
    mechanism, T = NormalizedBLT(2**log), 2**log
    rng = np.random.default_rng(log)
    steps = np.concatenate(
        [
            rng.integers(1, T + 1, 100_000),
            np.linspace(0.45 * T, 0.65 * T, 100_001).astype(np.int64),
            [1, 2, T - 1, T],
        ]
    )
    norms = mechanism._tables.row_norms2(steps)
    worst = int(steps[norms.argmax()])
    around = mechanism._tables.row_norms2(np.arange(worst - 20_000, worst + 20_000))
    seen, bound = max(norms.max(), around.max()), mechanism.max_row_norm2()
    assert seen <= bound <= seen * 1.001
    assert 0.45 < worst / T < 0.62


@pytest.mark.parametrize("log", [20, 21])
def test_that_bound_holds_where_the_largest_variance_is_known(log, monkeypatch):
    exact = NormalizedBLT(2**log).max_row_norm2()
    monkeypatch.setattr("beam_dpcount.mechanisms.blt_tables._EXACT", 1 << 19)
    assert exact < NormalizedBLT(2**log).max_row_norm2() < exact * 1.001


@both
@pytest.mark.parametrize("horizon", [1, 2, 16, 1023, 1024, 1025, 5000, 2**20 + 7, 2**22, 2**30])
def test_one_steps_variance_is_that_of_many_to_the_last_bit(kind, horizon):
    """However it came about: by itself, from a block, or from a call of any length and order."""
    mechanism, rng = kind(horizon), np.random.default_rng(horizon)
    variances = mechanism._tables._variances
    n = min(horizon, 10_000)
    scattered = np.unique(np.append(rng.integers(1, horizon + 1, 3000), [1, horizon]))
    for steps in (np.arange(1, n + 1), np.arange(horizon - n + 1, horizon + 1), scattered):
        norms = mechanism._tables.row_norms2(steps)
        assert norms.tolist() == [variances.of_one(t) for t in steps.tolist()]
        assert norms.tolist() == [mechanism.row_norm2(t) for t in steps.tolist()]
        mixed = rng.permutation(len(steps))
        for size in (1, 3, 17):
            some = mixed[:size]
            assert mechanism._tables.row_norms2(steps[some]).tolist() == norms[some].tolist()
    assert mechanism.row_norms2(n).tolist() == [mechanism.row_norm2(t) for t in range(1, n + 1)]
    counter = dp.calibrate(mechanism, dp.ZCDP(0.5))
    shown = [counter.stddev_at((t, 0.0)) for t in range(1, n + 1)]
    assert counter.stddevs(n).tolist() == shown


@pytest.mark.parametrize("horizon", [2**20, 2**22, 2**30])
def test_one_steps_variances_are_those_of_the_recursions_table(horizon):
    """What a fast product of powers gives is what the powers themselves do."""
    tables = NormalizedBLT(horizon)._tables
    steps = np.unique(np.random.default_rng(1).integers(1, horizon + 1, 5000))
    j = np.searchsorted(tables._starts, steps, side="right") - 1
    D, (_, B), p = tables._D[j], tables._buffers(steps), tables._p
    faded = np.exp((steps - tables._starts[j])[:, None] * np.log1p(-p.e))
    expected = D * D * B + 2 * D * ((tables._q[j] * faded) @ p.w) + tables._V[j]
    assert tables.row_norms2(steps) == pytest.approx(expected, rel=1e-14)


class Work:
    """Counts how variances were computed: steps one by one, and calls for many at once."""

    def __init__(self, monkeypatch):
        self.ones = self.blocks = 0
        of, of_one = _Variances.of, _Variances.of_one

        def many(variances, t):
            self.blocks += 1
            return of(variances, t)

        def single(variances, t):
            self.ones += 1
            return of_one(variances, t)

        monkeypatch.setattr(_Variances, "of", many)
        monkeypatch.setattr(_Variances, "of_one", single)


def test_a_key_that_goes_on_is_told_its_variances_by_blocks(monkeypatch):
    mechanism, work = NormalizedBLT(2**24), Work(monkeypatch)
    for t in range(5_000_000, 5_000_000 + 50_000):
        mechanism.row_norm2(t)
    assert work.blocks <= 14
    assert work.ones <= 14  # the first step of each


def test_many_keys_that_go_on_are_told_theirs_by_blocks(monkeypatch):
    blt_tables.tables.cache_clear()
    mechanism, work = NormalizedBLT(2**24), Work(monkeypatch)
    for t in range(100, 200):
        for key in range(200):
            mechanism.row_norm2((key << 16) + t)
    assert work.blocks == work.ones == 200


def test_young_keys_share_few_blocks(monkeypatch):
    mechanism, work = NormalizedBLT(2**24), Work(monkeypatch)
    for t in np.random.default_rng(1).integers(1, 20_000, 10_000).tolist():
        mechanism.row_norm2(t)
    assert work.blocks <= 5
    assert work.ones <= 5 * 64


def test_keys_far_apart_cost_no_blocks(monkeypatch):
    """10,000 keys of any age, in turns, each going on: no blocks that make room for others."""
    mechanism, work = NormalizedBLT(2**30), Work(monkeypatch)
    ages = np.random.default_rng(1).integers(1, 2**30 - 10, 10_000).tolist()
    for further in range(3):
        for age in ages:
            mechanism.row_norm2(age + further)
    assert work.blocks <= 300  # 1 % of the steps; a block costs as much as 50 of them
    assert work.ones >= 29_000


def test_blocks_of_variances_are_few(monkeypatch):
    monkeypatch.setattr("beam_dpcount.mechanisms.blt_tables._BLOCKS", 16)
    blt_tables.tables.cache_clear()
    mechanism = NormalizedBLT(2**24)
    for block in range(64):
        for t in (1, 2):
            mechanism.row_norm2((block << 12) + t)
    for block in range(64, 200):
        mechanism.row_norm2((block << 12) + 1)
    assert list(mechanism._tables._blocks) == [*range(48, 64)]  # the oldest made room
    assert len(mechanism._tables._asked) <= 17


REPLICATES = 1500


@pytest.mark.slow
@both
def test_released_noise_has_the_stated_variance(kind):
    """Mean squares over 1500 independent coordinates, within 5 standard errors (of a Gaussian's
    squares); noise of 1.3 times the variance is told apart at every step that is looked at."""
    T = 2**10
    counter = dp.calibrate(kind(T), dp.ZCDP(0.5), dp.Change(coordinates=1), dimension=REPLICATES)
    steps = np.array([1, 2, 32, 33, 200, round(0.55 * T), 900, T])
    stated = np.array([counter.variance(int(t)) for t in steps])
    standard_errors = stated * math.sqrt(2 / REPLICATES)
    xs = np.random.default_rng(3).integers(0, 2, (T, 1)).repeat(REPLICATES, axis=1)
    wrong = DiscreteGaussian(counter.law.sigma2 * Fraction(13, 10))
    seen = []
    for law in (counter.law, wrong):
        noise = counter.release(xs, SeededNoise(law, 5, REPLICATES)) - np.cumsum(xs, axis=0)
        seen.append(np.square(noise[steps - 1]).mean(axis=1))
        if law == counter.law:
            means = noise[steps - 1].mean(axis=1)
    assert (np.abs(seen[0] - stated) <= 5 * standard_errors).all()
    assert (np.abs(means) <= 5 * np.sqrt(stated / REPLICATES)).all()
    assert (np.abs(seen[1] - stated) > 5 * standard_errors).all()


# Column scales


def test_scales_stand_for_the_steps_left():
    left = np.arange(1, 100_001)
    index = scale_indices(left)
    assert index.tolist() == [scale_index(n) for n in range(1, 100_001)]
    assert (np.diff(index) >= 0).all()
    assert (np.diff(index) <= 1).all()  # no index is left out
    nodes = scale_nodes(int(index[-1]) + 1)
    assert nodes.tolist() == sorted(set(nodes.tolist()))
    assert (nodes[index] >= left).all()
    assert (nodes[index] <= left * (1 + 2.0**-9)).all()
    assert nodes[:1024].tolist() == list(range(1, 1025))
    # A node is the most steps left that its index stands for.
    assert [scale_index(n) for n in nodes.tolist()] == list(range(len(nodes)))
    assert [scale_index(n + 1) for n in nodes.tolist()] == list(range(1, len(nodes) + 1))


def test_scales_stand_for_the_steps_left_up_to_the_longest_horizon():
    rng = np.random.default_rng(2)
    powers = np.array([2**k + j for k in range(12, 49) for j in (-1, 0, 1)])
    left = np.unique(np.concatenate([2 ** rng.uniform(0, 48, 20_000), powers]).astype(np.int64))
    index = scale_indices(left)
    assert index.tolist() == [scale_index(n) for n in left.tolist()]
    assert (np.diff(index) >= 0).all()
    nodes = scale_nodes(int(index[-1]) + 1)
    assert (np.diff(nodes) > 0).all()
    assert (nodes[index] >= left).all()
    assert (nodes[index] - left <= left >> 9).all()


BITS = 160  # of the fixed-point numbers here
ONE = 1 << BITS


def fixed(value):
    """A number as a multiple of 2^-160, rounded down; poles and weights are multiples of it."""
    numerator, denominator = Fraction(value).as_integer_ratio()
    return numerator * ONE // denominator


def digits(mechanism):
    """By how much the rounding of V may lengthen the square of D = 1 / V."""
    slack = Fraction(1, 10**11)
    if isinstance(mechanism, NormalizedBLT):
        slack += Fraction(max(mechanism._tables.scales)) * 3 / 2**mechanism._stretches.fraction
    return slack


def exact_coefficients(p, n):
    """r_0 .. r_(n-1) in units of 2^-160, a product losing one at most."""
    kept = [ONE - fixed(a) for a in p.a.tolist()]
    sums, made = [fixed(c) for c in p.c.tolist()], []
    for _ in range(n):
        made.append(sum(sums))
        sums = [x * k >> BITS for x, k in zip(sums, kept, strict=True)]
    return made


def exact_residues(p):
    """w and c as rational numbers, for the poles e and a as they are."""

    def residues(at, zeros):
        return [
            math.prod(zero - x for zero in zeros) / math.prod(y - x for y in at if y != x)
            for x in at
        ]

    e, a = ([Fraction(x) for x in poles] for poles in (p.e.tolist(), p.a[1:].tolist()))
    c = [-r / x for r, x in zip(residues(a, e), a, strict=True)]
    return residues(e, a), [math.prod(e, start=Fraction(1)) / math.prod(a), *c]


@pytest.mark.slow
@all_buffers
def test_scales_are_no_smaller_than_the_columns_exactly(buffers):
    """So no column of R is longer than 1; nor are they much larger."""
    for horizon in (1, 5, 16, 100, 1024, 4096):
        mechanism, total, norms = NormalizedBLT(horizon, buffers), 0, [0]
        for r in exact_coefficients(mechanism._poles, horizon):
            assert r > 0
            total += r * r
            norms.append(total)
        scales = mechanism._column_scales(horizon)
        assert scales.tolist() == [
            mechanism._tables.scales[scale_index(left)] for left in range(horizon, 0, -1)
        ]
        for t, scale in enumerate(scales.tolist(), start=1):
            squared = Fraction(scale) ** 2 * ONE**2
            left = horizon - t + 1
            slack = digits(mechanism) + (left > 1024) * Fraction(1, 2**9)
            assert norms[left] <= squared <= norms[left] * (1 + slack), (horizon, t)
        # Of the plain one the first column is the longest.
        claimed = Fraction(BLT(horizon, buffers).l2_sensitivity_squared) * ONE**2
        first = sum(r * r for r in exact_coefficients(BLT(horizon, buffers)._poles, horizon))
        assert first <= claimed <= first * (1 + Fraction(1, 10**11))


def exact_norm2(p, n):
    """r_0^2 + ... + r_(n-1)^2 from geometric sums, in units of 2^-160."""

    def power(base, exponent):  # of a number below 1, in units of 2^-160
        result = ONE
        while exponent:
            if exponent & 1:
                result = result * base >> BITS
            base, exponent = base * base >> BITS, exponent >> 1
        return result

    c = [fixed(x) for x in p.c.tolist()]
    kept = [ONE - fixed(a) for a in p.a.tolist()]
    total = 0
    for i, (ci, ki) in enumerate(zip(c, kept, strict=True)):
        for j, (cj, kj) in enumerate(zip(c, kept, strict=True)):
            ratio = ki * kj >> BITS
            both_c = ci * cj >> BITS
            gone = ONE - power(ratio, n)
            total += both_c * n if i == j == 0 else both_c * gone // (ONE - ratio)
    return total


@pytest.mark.slow
@both
def test_norms_of_long_columns_are_rounded_up(kind):
    """Against geometric sums to 40 digits, over the whole range of horizons and buffers."""
    p = kind(4096)._poles
    r = exact_coefficients(p, 3000)
    assert abs(exact_norm2(p, 3000) - sum(x * x >> BITS for x in r)) < ONE >> 110
    for log in (4, 9, 14, 20, 25, 30):
        for buffers in (2, 5, 8):
            horizon = 2**log - log
            mechanism = kind(horizon, buffers)
            if kind is BLT:
                claims = [(horizon, mechanism.l2_sensitivity_squared)]
            else:
                lefts = [*np.geomspace(1, horizon, 9).astype(int).tolist()[:-1], horizon]
                nodes = [scale_nodes(scale_index(n) + 1)[-1] for n in lefts]
                claims = [
                    (int(node), Fraction(mechanism._tables.scales[scale_index(n)]) ** 2)
                    for n, node in zip(lefts, nodes, strict=True)
                ]
                assert mechanism.l2_sensitivity_squared == 1
            for n, claim in claims:
                exact = Fraction(exact_norm2(mechanism._poles, n), ONE)
                assert exact <= Fraction(claim) <= exact * (1 + digits(mechanism)), (log, n)


@pytest.mark.slow
@both
def test_poles_interlace_and_residues_are_positive(kind):
    """So that all norms are sums of positive terms, computed to some units in the last place."""
    for log in range(4, 31):
        for d in range(2, 9):
            p = kind(2**log, d)._poles
            ladder = np.stack([p.e[::-1], p.a[:0:-1]], axis=1).ravel()
            assert (np.diff(ladder) > 0).all()
            assert ladder[0] > 0
            assert ladder[-1] < 1
            assert p.a[0] == 0
            unit = Fraction(1, 2**p.bits)
            for computed, exact in zip((p.w, p.c), exact_residues(p), strict=True):
                assert min(computed) > 0
                for x, y in zip(map(Fraction, computed.tolist()), exact, strict=True):
                    assert x % unit == 0
                    assert abs(x - y) <= unit / 2 + 32 * y / 2**53, (log, d)
            for pole in (*p.e.tolist(), *p.a[1:].tolist()):
                assert math.ldexp(math.frexp(pole)[0], 31).is_integer()


# Arguments


@both
@pytest.mark.parametrize("buffers", [0, 1, 9, -2, 100, True, 4.0, "4", [4]])
def test_bad_buffers_are_refused(kind, buffers):
    with pytest.raises((ValueError, TypeError), match="whole number from 2 to 8") as caught:
        kind(100, buffers)
    assert repr(buffers) in str(caught.value)


@both
@pytest.mark.parametrize("horizon", [2**30 + 1, 2**40, 2**48])
def test_long_horizons_can_be_named_but_not_used(kind, horizon):
    mechanism = kind(horizon)
    assert str(horizon) in mechanism.fingerprint
    for use in (
        lambda: dp.calibrate(mechanism, dp.ZCDP(0.5)),
        lambda: mechanism.init(),
        lambda: mechanism.release(np.ones(3, dtype=np.int64), random_script(3)),
        lambda: mechanism.l1_sensitivity,
        lambda: mechanism.rounding,
        lambda: mechanism.max_row_norm2(),
        lambda: mechanism.decoder(3),
    ):
        with pytest.raises(UnsupportedHorizonError, match="use SmoothBinary"):
            use()


@both
def test_the_longest_horizon_can_be_used(kind):
    counter = dp.calibrate(kind(2**30), dp.ZCDP(0.5))
    assert counter.max_variance() < 60
    mechanism, n = counter.mechanism, 100
    released = counter.release(np.ones(n), Script(np.zeros(n)))
    assert np.abs(released - np.arange(1, n + 1)).max() < 1e-6
    assert 1 < mechanism.rounding < 1 + 2**-8


@both
@pytest.mark.parametrize("log", [10, 16, 20])
def test_construction_and_calibration_take_milliseconds(kind, log):
    times = []
    for _ in range(5):
        start = time.process_time()
        counter = dp.calibrate(kind(2**log), dp.ZCDP(0.5))
        counter.step(counter.init(), 1, random_script(1))
        assert counter.max_variance() > 5
        times.append(time.process_time() - start)
    assert min(times) < 0.05


@both
@pytest.mark.parametrize("horizon", [100, 2**12])
def test_rounding_moves_releases_by_half_a_unit_a_row_at_most(kind, horizon):
    mechanism = kind(horizon)
    # L is positive: what it makes of ones is the sum of each of its rows.
    sums = mechanism.release(np.zeros(horizon, np.int64), Script([2**20] * horizon)) / 2**20
    if horizon <= 100:
        assert (mechanism.decoder(horizon) >= 0).all()
        assert sums == pytest.approx(mechanism.decoder(horizon).sum(axis=1), rel=1e-10)
    rng, largest = np.random.default_rng(10), 0.0
    for m in (1, 100, mechanism.resolution(1)):
        for xs in (rng.integers(0, m + 1, horizon), np.full(horizon, m), np.arange(horizon) % 2):
            released = mechanism.release(xs, Script(np.zeros(horizon)))
            moved = np.abs(released - np.cumsum(xs))
            assert (moved <= sums * mechanism.rounding / 2 + 1e-12 * m * horizon + 1e-3).all()
            largest = max(largest, float((moved / sums).max()))
    assert largest > 0.1
    # In counts, at the resolution that is used, nobody sees it.
    assert sums.max() / 2 / mechanism.resolution(1) < 1e-4
