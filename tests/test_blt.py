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
from beam_dpcount.dofns.states import StateCodec, StateError
from beam_dpcount.mechanisms import BLT, NormalizedBLT
from beam_dpcount.mechanisms.base import UnsupportedHorizonError
from beam_dpcount.mechanisms.blt_tables import (
    _Variances,
    scale_index,
    scale_indices,
    scale_nodes,
)
from beam_dpcount.mechanisms.doubles import two_product, two_sum
from beam_dpcount.mechanisms.workload import PREFIX_SUMS
from beam_dpcount.noise.laws import DiscreteGaussian
from benchmarks import rounding
from benchmarks.fit_blt import square_root_max_se
from benchmarks.rounding import ONE, Watch
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
        mechanism = kind(horizon)
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
    assert norms.max() <= mechanism.l2_sensitivity_squared <= norms.max() * (1 + 1e-11)
    sums = R.sum(axis=0)
    assert sums.max() <= mechanism.l1_sensitivity <= sums.max() * (1 + 1e-11)
    chosen = [0, 1, 31, 32, 500, 574, 575, 576, 577, 578, 1000, 1598, 1599]
    noise = np.eye(horizon, dtype=np.int64)[:, chosen]
    released = mechanism.release(np.zeros_like(noise), Script(noise))
    assert np.allclose(released, L[:, chosen], rtol=1e-12, atol=1e-12)
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


def exact_coefficients(p, n):
    """r_0 .. r_(n-1) in units of 2^-160: R of a unit impulse."""
    return list(rounding.encode(p, [1.0] * n, [1, *[0] * (n - 1)]))


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
            slack = Fraction(1, 10**11) + (left > 1024) * Fraction(1, 2**9)
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
                result = result * base >> rounding.BITS
            base, exponent = base * base >> rounding.BITS, exponent >> 1
        return result

    c = [rounding.fixed(x) for x in rounding.residues(p)[1]]
    kept = [ONE - rounding.fixed(a) for a in p.a.tolist()]
    total = 0
    for i, (ci, ki) in enumerate(zip(c, kept, strict=True)):
        for j, (cj, kj) in enumerate(zip(c, kept, strict=True)):
            ratio = ki * kj >> rounding.BITS
            both_c = ci * cj >> rounding.BITS
            gone = ONE - power(ratio, n)
            total += both_c * n if i == j == 0 else both_c * gone // (ONE - ratio)
    return total


@pytest.mark.slow
@both
def test_norms_of_long_columns_are_rounded_up(kind):
    """Against geometric sums to 40 digits, over the whole range of horizons and buffers."""
    p = kind(4096)._poles
    r = exact_coefficients(p, 3000)
    assert abs(exact_norm2(p, 3000) - sum(x * x >> rounding.BITS for x in r)) < ONE >> 110
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
                assert exact <= Fraction(claim) <= exact * (1 + Fraction(1, 10**11)), (log, n)


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
            for computed, exact in zip((p.w, p.c), rounding.residues(p), strict=True):
                assert min(exact) > 0
                errors = [
                    abs(Fraction(x) / y - 1) for x, y in zip(computed.tolist(), exact, strict=True)
                ]
                assert max(errors) <= 32 * Fraction(1, 2**53), (log, d)


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
        lambda: mechanism.encoding_error,
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
    assert 2 * mechanism.encoding_error * 2**15 < 5e-5 * mechanism.l2_sensitivity_squared**0.5


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


def test_a_state_is_constant_and_small():
    for kind in NAMES:
        for buffers in (2, 4, 8):
            mechanism = kind(300, buffers)
            state, _ = take_steps(mechanism, np.arange(40), random_script(40))
            assert len(state) == mechanism.state_size == 5 * buffers + 5
            assert mechanism.state_types(len(state)) == "q" + "d" * (len(state) - 1)
        assert len(kind(2**30).init()) == 45


# Streams across blocks


@both
def test_blocks_shorten_again_with_the_horizon(kind):
    logs = (4, 6, 10, 12, 16, 18, 20, 25, 26, 28, 30)
    sizes = [kind(2**log)._block for log in logs]
    assert sizes == [4, 8, 32, 64, 256, 512, 1024, 1024, 512, 128, 32]


@both
@dimensions
@pytest.mark.parametrize(("horizon", "block"), [(4096, 64), (1000, 32), (300, 32)])
def test_steps_and_releases_agree_around_blocks(kind, dimension, horizon, block):
    mechanism = kind(horizon)
    assert mechanism._block == block
    n = 4 * block
    shape = (n,) if dimension is None else (n, dimension)
    xs = np.random.default_rng(4).integers(-(2**36), 2**36, shape)
    noise = random_script(n, dimension, spread=2**40)
    _, stepped = take_steps(mechanism, xs, noise, dimension)
    for blocks in range(4):
        for end in range(blocks * block - 2, blocks * block + 3):
            if end > 0:
                released = mechanism.release(xs[:end], Script(noise.z[:end]))
                assert released.tobytes() == stepped[:end].tobytes(), end


@pytest.mark.slow
@pytest.mark.exhaustive("dimension", "kind")
@both
@dimensions
def test_steps_and_releases_agree_to_the_end_of_a_stream(kind, dimension):
    """Horizons that end in a block, at its end, and where scales are constant for a while."""
    for horizon in (1023, 1024, 1025, 2100):
        mechanism = kind(horizon)
        shape = (horizon,) if dimension is None else (horizon, dimension)
        xs = np.random.default_rng(horizon).integers(0, 2**24, shape)
        noise = random_script(horizon, dimension, spread=2**30)
        _, stepped = take_steps(mechanism, xs, noise, dimension)
        assert mechanism.release(xs, noise).tobytes() == stepped.tobytes()


@both
@dimensions
@pytest.mark.parametrize("cut", [1, 40, 63, 64, 65, 100, 127, 128, 129])
def test_streams_resumed_from_bytes_within_a_block_and_at_its_end(kind, dimension, cut):
    counter = dp.calibrate(kind(4096), dp.ZCDP(0.5), dp.Change(-9, 9), dimension)
    assert counter.mechanism._block == 64
    shape = (200,) if dimension is None else (200, dimension)
    xs = np.random.default_rng(5).integers(-9, 10, shape)
    noise = random_script(200, dimension, spread=2**30)
    state = counter.init()
    for x in xs[:cut]:
        state, _ = counter.step(state, x, noise)
    data = StateCodec(counter).encode(state)
    resumed = StateCodec(dp.calibrate(kind(4096), dp.ZCDP(0.5), dp.Change(-9, 9), dimension))
    kept, values = resumed.decode(data), []
    for x in xs[cut:]:
        kept, value = counter.step(kept, x, noise)
        values.append(value)
    released = counter.release(xs, Script(noise.z))
    assert np.array(values).tobytes() == released[cut:].tobytes()


def test_states_belong_to_one_set_of_parameters():
    """Poles and blocks are part of what a state is checked against."""
    counters = [
        dp.calibrate(mechanism, dp.ZCDP(0.5))
        for mechanism in (BLT(100), BLT(100, 3), BLT(100, 4), NormalizedBLT(100, 4), BLT(101, 4))
    ]
    for counter in counters:
        data = StateCodec(counter).encode(counter.init())
        for other in counters:
            if other is not counter:
                with pytest.raises(StateError):
                    StateCodec(other).decode(data)
    mechanism = NormalizedBLT(5000, 4)
    for part in (mechanism._poles.e.tolist(), mechanism._poles.a[1:].tolist(), "blocks of 128"):
        assert str(part) in mechanism.fingerprint


# Rounding of the encoder, in exact arithmetic


@both
@all_buffers
def test_the_exact_recurrences_are_the_matrices(kind, buffers):
    """The yardstick itself: decoding undoes encoding to 30 digits, and both are what is dense."""
    mechanism, n = kind(120, buffers), 120
    p, scales = mechanism._poles, mechanism._column_scales(120).tolist()
    xs = np.random.default_rng(6).integers(-9, 10, n)
    encoded = list(rounding.encode(p, scales, xs.tolist()))
    dense = mechanism.encoder(n) @ xs
    assert [v / ONE for v in encoded] == pytest.approx(dense, rel=1e-12, abs=1e-11)
    decoded = list(rounding.decode(p, scales, encoded))  # linear: in units of 2^-320
    for value, total in zip(decoded, np.cumsum(xs).tolist(), strict=True):
        assert abs(value - total * ONE * ONE) < ONE * ONE >> 100


def rounded_one_way(mechanism, m):
    """Inputs in [m/2, m] that make the roundings of local sums add up in one direction."""
    p, n = mechanism._poles, mechanism.horizon
    a, c = p.a[:, None], p.c[:, None]
    rng = np.random.default_rng(7)
    sums, xs = np.zeros_like(a), np.zeros(n, dtype=np.int64)
    scales = mechanism._column_scales(n)
    for t in range(n):
        if t % mechanism._block == 0:
            sums = np.zeros_like(a)
        choices = rng.integers(m // 2, m + 1, 16)
        product, lost1 = two_product(a, sums)
        left, lost2 = two_sum(sums, -product)
        gain, lost3 = two_product(c, choices / scales[t])
        total, lost4 = two_sum(left, gain)
        best = int((lost2 - lost1 + lost3 + lost4).sum(axis=0).argmax())
        xs[t], sums = choices[best], total[:, best : best + 1]
    return xs


def adversarial(mechanism, m):
    n = mechanism.horizon
    t, rng = np.arange(n), np.random.default_rng(8)
    row = rng.standard_normal(n)
    return {
        "ones": np.full(n, m),
        "minus ones": np.full(n, -m),
        "alternating": np.where(t % 2 == 0, m, -m),
        "alternating blocks": np.where(t // mechanism._block % 2 == 0, m, -m),
        "halves": np.where(t < n // 2, m, -m),
        "signs": np.where(row > 0, m, -m),
        "odd": rng.integers(-m, m + 1, n),
        "one way": rounded_one_way(mechanism, m),
    }


@pytest.mark.slow
@pytest.mark.exhaustive("buffers", "horizon", "kind")
@both
@pytest.mark.parametrize(("horizon", "buffers"), [(40, 3), (2**12, None), (2**12, 2), (2**12, 8)])
def test_the_error_that_is_stated_covers_exact_arithmetic(kind, horizon, buffers):
    """Inputs are multiplied by a power of two, so that rounding to integers adds 2^-45 of it."""
    mechanism = kind(horizon, buffers)
    m = min(rounding.fine_scale(mechanism), 2**52)
    assert m >= 2**45
    p, scales = mechanism._poles, mechanism._column_scales(horizon).tolist()
    bound, worst = Fraction(mechanism.encoding_error), 0.0
    for name, xs in adversarial(mechanism, m).items():
        watch = Watch()
        mechanism.release(xs, watch)
        (computed,) = watch.seen
        exact = rounding.encode(p, scales, xs.tolist())
        errors = [abs(q * ONE - v) for q, v in zip(computed.tolist(), exact, strict=True)]
        assert Fraction(max(errors), ONE) <= Fraction(1, 2) + m * bound, name
        worst = max(worst, (max(errors) / ONE - 0.5) / m)
    # No idle bound, given that it allows for machines that round constants otherwise.
    assert worst > float(bound) / 400


@both
def test_encoded_values_of_steps_are_within_the_stated_error(kind):
    mechanism, n = kind(700), 700
    m = rounding.fine_scale(mechanism)
    tolerance = Fraction(1, 2) + m * Fraction(mechanism.encoding_error)
    xs, watch = rounded_one_way(mechanism, m), Watch()
    take_steps(mechanism, xs, watch)
    exact = rounding.encode(mechanism._poles, mechanism._column_scales(n).tolist(), xs.tolist())
    for q, value in zip(watch.seen, exact, strict=True):
        assert type(q) is int
        assert abs(Fraction(q) - Fraction(value, ONE)) <= tolerance


@both
@pytest.mark.parametrize("log", [12, 30])
def test_sums_at_the_start_of_a_block_have_no_rounding_errors_to_speak_of(kind, log):
    """One 1 a block, at its end: local sums are exact, and what is left is how they are kept. In
    double precision alone a horizon of 2^30 would lose far more than is stated."""
    mechanism, blocks = kind(2**log), 60
    p, B, d = mechanism._poles, mechanism._block, mechanism._poles.buffers
    xs = np.arange(1, blocks * B + 1) % B == 0
    state, _ = take_steps(mechanism, xs.astype(np.int64), Script(np.zeros(len(xs))))
    gains = (1 / mechanism._column_scales(len(xs))[B - 1 :: B]).tolist()
    assert len(gains) == blocks
    places = range(d + 3, 2 * d + 4)
    for i, (a, c) in zip(places, zip(p.a.tolist(), p.c.tolist(), strict=True), strict=True):
        exact, faded = Fraction(0), (1 - Fraction(a)) ** B
        if faded.denominator.bit_length() > 400:  # to 300 bits, else it takes long
            faded = Fraction(int(faded * 2**300), 2**300)
        for gain in gains:
            exact = exact * faded + Fraction(c * gain)
        kept = Fraction(state[i]) + Fraction(state[i + d + 1])
        assert abs(kept - exact) <= exact * Fraction(1, 2**95)


@both
@dimensions
def test_encoded_values_of_steps_and_releases_are_the_same_to_the_last_bit(kind, dimension):
    """At a scale where each bit of them counts, over dozens of blocks."""
    mechanism, n = kind(2**30), 50 * 32
    assert mechanism._block == 32
    m = 2**52
    shape = (n,) if dimension is None else (n, dimension)
    xs = np.random.default_rng(12).integers(0, m + 1, shape)
    steps, whole = Watch(), Watch()
    take_steps(mechanism, xs, steps, dimension)
    mechanism.release(xs, whole)
    assert np.array_equal(np.array(steps.seen), whole.seen[0])
    assert 2**54 < whole.seen[0].max() < 2**62


@both
@pytest.mark.parametrize("log", [6, 12, 20, 26, 30])
def test_the_stated_error_counts_what_its_derivation_does(kind, log):
    """u ((2d + 43) G + 2 sum c_i m_i (g_i + 2B)), with g_i and m_i the lengths of memories."""
    mechanism = kind(2**log)
    p, B, u = mechanism._poles, mechanism._block, Fraction(1, 2**53)
    total = Fraction(0)
    for c, a in zip(map(Fraction, p.c.tolist()), map(Fraction, p.a.tolist()), strict=True):
        memory = min(Fraction(2**log), 1 / a) if a else Fraction(2**log)
        local = min(Fraction(B), memory)
        total += c * ((2 * p.buffers + 43) * memory + 2 * local * (memory + 2 * B))
    assert u * total <= Fraction(mechanism.encoding_error) <= u * total * Fraction(1002, 1000)


@both
def test_neighbours_differ_by_no_more_than_is_noised(kind):
    """Of the integers that noise is added to; without what rounding adds it would not hold."""
    horizon, beyond = 600, 0
    mechanism, rng = kind(horizon), np.random.default_rng(9)
    for magnitude in (1, 5):
        for unit in (magnitude, magnitude * mechanism.resolution(magnitude)):
            limit = mechanism.norms(unit)[1]
            plain = unit**2 * Fraction(mechanism.l2_sensitivity_squared)
            for s in (0, 31, 32, horizon // 2, horizon - 1):
                for xs in (rng.integers(0, unit + 1, horizon), np.full(horizon, unit)):
                    others = xs.copy()
                    xs[s], others[s] = unit, 0
                    watch = Watch()
                    mechanism.release(xs, watch)
                    mechanism.release(others, watch)
                    difference = (watch.seen[0] - watch.seen[1]).tolist()
                    assert not any(difference[:s])
                    squared = sum(d * d for d in difference)
                    assert squared <= limit
                    beyond += squared > plain
    assert beyond > 0


# Decoding without noise


@both
@pytest.mark.parametrize("horizon", [100, 2**12])
def test_rounding_moves_releases_by_half_a_unit_a_row_at_most(kind, horizon):
    mechanism = kind(horizon)
    # L is positive: what it makes of ones is the sum of each of its rows.
    sums = mechanism.release(np.zeros(horizon, dtype=np.int64), Script(np.ones(horizon)))
    if horizon <= 100:
        assert (mechanism.decoder(horizon) >= 0).all()
        assert sums == pytest.approx(mechanism.decoder(horizon).sum(axis=1), rel=1e-12)
    rng, largest = np.random.default_rng(10), 0.0
    for m in (1, 100, mechanism.resolution(1)):
        for xs in (rng.integers(0, m + 1, horizon), np.full(horizon, m), np.arange(horizon) % 2):
            released = mechanism.release(xs, Script(np.zeros(horizon)))
            arithmetic = m * (mechanism.encoding_error * sums + 1e-12 * horizon)
            moved = np.abs(released - np.cumsum(xs))
            assert (moved <= sums / 2 + arithmetic).all()
            largest = max(largest, float((moved / sums).max()))
    assert largest > 0.1
    # In counts, at the resolution that is used, nobody sees it.
    assert sums.max() / 2 / mechanism.resolution(1) < 1e-4


def test_the_errors_that_are_measured_are_those_of_the_steps():
    """benchmarks/rounding.py, with figures for T = 2^20 in docs/proofs/real_encoders.md."""
    mechanism = NormalizedBLT(1 << 11)
    xs = np.random.default_rng(11).integers(0, 2, 1 << 11)
    assert 0 < rounding.encoding_errors(mechanism, xs) < mechanism.encoding_error
    arithmetic, in_all = rounding.decoding_errors(mechanism, xs)
    assert 0 < arithmetic < 1e-10 < in_all < 1e-4
    counter = dp.calibrate(mechanism, dp.ZCDP(0.5))
    released = counter.release(xs, Script(np.zeros(1 << 11)))
    assert np.abs(released - np.cumsum(xs)).max() == pytest.approx(in_all, rel=1e-6)
