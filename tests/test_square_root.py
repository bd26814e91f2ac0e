"""SquareRoot: the published errors, its coefficients as rational numbers, what it refuses, and the
bound on its rounding in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.mechanisms import SquareRoot
from beam_dpcount.mechanisms.base import UnsupportedHorizonError
from beam_dpcount.mechanisms.square_root import _all_convolved, _convolved, coefficients
from beam_dpcount.mechanisms.workload import PREFIX_SUMS, Workload
from benchmarks.fit_blt import square_root_max_se
from tests.scripted import Script, random_script

WORKLOADS = [(0.0, 1.0), (0.5, 1.0), (0.9, 1.0), (0.9, 0.99), (0.0, 0.75), (0.25, 0.5), (0.998, 1)]
workloads = pytest.mark.parametrize(("momentum", "decay"), WORKLOADS)


def take_steps(mechanism, xs, noise, dimension=None):
    state, values = mechanism.init(dimension), []
    for x in xs.tolist() if dimension is None else xs:
        state, value = mechanism.step(state, x, noise)
        values.append(value)
    return state, np.array(values)


# Errors


@pytest.mark.parametrize(
    ("log", "largest", "mean"),
    [(10, 10.710, 9.671), (16, 21.127, 19.664), (20, 30.019, 28.275)],
)
def test_reference_errors(log, largest, mean):
    """At rho = 1/2, where the variance of a draw is the squared sensitivity."""
    mechanism = SquareRoot(2**log)
    noise = mechanism.l2_sensitivity_squared
    # What the matrices give, to the digits that are known.
    assert noise * mechanism.max_row_norm2() == pytest.approx(largest, abs=6e-4)
    assert noise * mechanism.mean_row_norm2() == pytest.approx(mean, abs=6e-4)
    assert noise * mechanism.max_row_norm2() == pytest.approx(square_root_max_se(2**log), rel=1e-8)
    # And the counter, with what rounding adds.
    counter = dp.calibrate(mechanism, dp.ZCDP(0.5))
    assert counter.max_variance() == pytest.approx(largest, rel=1e-3)
    assert counter.mean_variance() == pytest.approx(mean, rel=1e-3)
    assert noise * mechanism.max_row_norm2() < counter.max_variance()


def test_variances_are_sums_of_squared_coefficients():
    norms, total = [], Fraction(0)
    for j in range(1000):
        total += Fraction(comb(2 * j, j), 4**j) ** 2
        norms.append(float(total))
    mechanism = SquareRoot(1000)
    assert mechanism.row_norms2(1000) == pytest.approx(norms, rel=1e-13)
    assert total <= Fraction(mechanism.l2_sensitivity_squared) <= total * (1 + Fraction(2, 10**9))
    counter = dp.calibrate(mechanism, dp.ZCDP(0.5))
    unit = counter.law.variance * counter.grid**2
    for t in (1, 2, 500, 1000):
        assert counter.variance(t) == pytest.approx(unit * norms[t - 1], rel=1e-13)


# Coefficients


def test_coefficients_of_prefix_sums_in_closed_form():
    r = coefficients(PREFIX_SUMS, 600)
    assert r[:5].tolist() == [1, 1 / 2, 3 / 8, 5 / 16, 35 / 128]
    assert r == pytest.approx([comb(2 * j, j) / 4**j for j in range(600)], rel=1e-13)
    # f(j) = (1 - 1/(8 j) + 1/(128 j^2) + ...) / sqrt(pi j)
    j = 2**20 - 1
    last = coefficients(PREFIX_SUMS, j + 1)[j]
    assert last == pytest.approx((1 - 1 / (8 * j)) / np.sqrt(np.pi * j), rel=1e-10)


def exact_coefficients(momentum, decay, n):
    f = [Fraction(comb(2 * j, j), 4**j) for j in range(n)]
    beta, alpha = Fraction(momentum), Fraction(decay)
    slow, fast = ([f[j] * rate**j for j in range(n)] for rate in (alpha, beta))
    return [sum(fast[i] * slow[j - i] for i in range(j + 1)) for j in range(n)]


@pytest.mark.slow
@workloads
def test_coefficients_squared_are_the_workload(momentum, decay):
    n = 60
    r = exact_coefficients(momentum, decay, n)
    beta, alpha = Fraction(momentum), Fraction(decay)
    sums = [sum(alpha**i * beta ** (j - i) for i in range(j + 1)) for j in range(n)]
    assert [sum(r[i] * r[j - i] for i in range(j + 1)) for j in range(n)] == sums
    # What is computed are these numbers, to some units in the last place.
    workload = Workload(momentum, decay)
    assert coefficients(workload, n) == pytest.approx(list(map(float, r)), rel=3e-14)
    assert workload.coefficients(n) == pytest.approx(list(map(float, sums)), rel=3e-14)


@workloads
def test_releases_are_sums_with_momentum_and_decay(momentum, decay):
    """V_t = beta V_(t-1) + x_t and W_t = alpha W_(t-1) + V_t, in fine units."""
    mechanism = SquareRoot(80, momentum, decay)
    xs = np.random.default_rng(1).integers(-(2**40), 2**40, 80)
    v, w = Fraction(0), Fraction(0)
    for x, value in zip(xs, mechanism.release(xs, Script(np.zeros(80))), strict=True):
        v = Fraction(momentum) * v + int(x)
        w = Fraction(decay) * w + v
        assert abs(Fraction(value) - w) < 60


def test_coefficients_are_shared_and_cannot_be_changed():
    mechanism = SquareRoot(8)
    with pytest.raises(ValueError, match="read-only"):
        mechanism._r[0] = 2.0
    norms = mechanism.row_norms2(8)
    norms[:] = 0
    assert mechanism.row_norms2(8)[0] == 1


# Arguments


@pytest.mark.parametrize(
    ("momentum", "decay"),
    [
        (-0.1, 1.0),
        (0.5, 0.5),
        (0.9, 0.5),
        (0.0, 0.0),
        (0.0, 1.0000001),
        (1.0, 1.0),
        (float("nan"), 1.0),
        (0.0, float("nan")),
        (0.0, float("inf")),
    ],
)
def test_momentum_and_decay_out_of_range_are_refused(momentum, decay):
    with pytest.raises(ValueError, match="0 <= momentum < decay <= 1") as caught:
        SquareRoot(10, momentum, decay)
    assert f"momentum={momentum!r}, decay={decay!r}" in str(caught.value)


def test_equal_momentum_and_decay_of_other_types_are_one_mechanism():
    assert SquareRoot(10, 0, 1) == SquareRoot(10) == SquareRoot(10, np.float32(0), Fraction(1))
    assert repr(SquareRoot(10, 0, 1)) == repr(SquareRoot(10))
    assert SquareRoot(10, 0.5).fingerprint != SquareRoot(10).fingerprint
    assert SquareRoot(10, 0.5).workload == Workload(0.5, 1.0)


@pytest.mark.parametrize("horizon", [2**20 + 1, 2**30, 2**48])
def test_long_horizons_can_be_named_but_not_used(horizon):
    mechanism = SquareRoot(horizon)
    assert str(horizon) in repr(mechanism)
    assert mechanism.state_size == 2 * horizon + 1
    for use in (
        lambda: dp.calibrate(mechanism, dp.ZCDP(0.5)),
        lambda: mechanism.step(mechanism.init(), 1, random_script(1)),
        lambda: mechanism.release(np.ones(3, dtype=np.int64), random_script(3)),
        lambda: mechanism.l1_sensitivity,
        lambda: mechanism.l2_sensitivity_squared,
        lambda: mechanism.resolution(1),
        lambda: mechanism.max_row_norm2(),
        lambda: mechanism.encoder(3),
    ):
        with pytest.raises(UnsupportedHorizonError, match="use NormalizedBLT") as caught:
            use()
        assert str(horizon) in str(caught.value)
    assert SquareRoot(2**20).max_row_norm2() > 5


def test_a_state_is_the_inputs_and_the_noisy_encoded_values():
    mechanism, noise = SquareRoot(20), random_script(20)
    state = mechanism.init()
    assert state == (0,)
    xs = list(range(5, 25))
    for t, x in enumerate(xs, start=1):
        state, _ = mechanism.step(state, x, noise)
        assert len(state) == 2 * t + 1
        assert state[: t + 1] == (t, *xs[:t])
        assert all(type(number) is int for number in state)
    assert mechanism.state_size == len(state) == 41
    assert mechanism.state_types(41) == "q" * 41
    encoded = np.array(state[21:]) - noise.z
    assert np.abs(encoded - mechanism.encoder(20) @ xs).max() <= 0.5 + 1e-9


# Sums in blocks of 1024


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("dimension", [None, 2])
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 1.0), (0.9, 0.9999)])
def test_steps_and_releases_agree_across_blocks(dimension, momentum, decay):
    mechanism = SquareRoot(2050, momentum, decay)
    shape = (2050,) if dimension is None else (2050, dimension)
    xs = np.random.default_rng(2).integers(-(2**24), 2**24, shape)
    noise = random_script(2050, dimension, spread=2**24)
    _, stepped = take_steps(mechanism, xs, noise, dimension)
    for n in (1, 1023, 1024, 1025, 1026, 2047, 2048, 2049, 2050):
        released = mechanism.release(xs[:n], Script(noise.z[:n]))
        assert released.tobytes() == stepped[:n].tobytes(), n


def test_sums_of_many_blocks_have_one_order():
    """More than 8 of them, which numpy's own sum() adds in another order."""
    r = coefficients(PREFIX_SUMS, 12_000)
    xs = np.random.default_rng(3).integers(-(2**50), 2**50, 12_000)
    whole = _all_convolved(r, xs)
    for n in (8191, 8192, 8193, 9217, 10_000, 12_000):
        assert _convolved(r, xs[:n].tolist()) == whole[n - 1], n


def exact_products(r, xs, rows):
    """Rows of R x, with R as it is in double precision."""
    r, xs = [*map(Fraction, r)], [int(x) for x in xs]
    return {
        t: sum(a * b for a, b in zip(r, xs[t - 1 :: -1] if t else [], strict=False)) for t in rows
    }


def rounded_one_way(r, n, m):
    """Inputs within [m/2, m] of which the last row's roundings add up, most in one direction."""
    rng = np.random.default_rng(5)
    xs, total = np.zeros(n, dtype=np.int64), 0.0
    for j in range(n):
        choices = rng.integers(m // 2, m + 1, 16)
        sums = total + r[j] * choices
        lost = [
            Fraction(s) - Fraction(total) - Fraction(r[j]) * int(x)
            for s, x in zip(sums.tolist(), choices, strict=True)
        ]
        best = lost.index(max(lost))
        xs[n - 1 - j], total = choices[best], float(sums[best])
        if j % 1024 == 1023:
            total = 0.0
    return xs


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 1.0), (0.9, 1.0), (0.5, 0.999)])
@pytest.mark.parametrize("n", [1, 7, 1024, 1500, 3100])
def test_the_error_that_is_stated_covers_exact_arithmetic(momentum, decay, n):
    """Inputs are multiplied by a power of two, so that rounding to integers adds 2^-45 of it."""
    mechanism = SquareRoot(n, momentum, decay)
    m, r, t = 2**45, mechanism._r, np.arange(n)
    rng = np.random.default_rng(n)
    streams = {
        "ones": np.full(n, m),
        "alternating": np.where(t % 2 == 0, m, -m),
        "steps": np.where(t < n // 2, -m, m),
        "signs": rng.choice([-m, m], n),
        "odd": rng.integers(-m, m + 1, n),
        "one way": rounded_one_way(r, n, 2**20) * 2**25,
    }
    bound, largest = Fraction(mechanism.encoding_error), Fraction(0)
    assert bound < Fraction(1, 10**9)
    rows = sorted({1, n // 2, min(n, 1025), n} - {0})
    for name, xs in streams.items():
        computed = np.rint(_all_convolved(r, xs))
        for row, value in exact_products(r, xs, rows).items():
            error = abs(Fraction(computed[row - 1]) - value)
            assert error <= Fraction(1, 2) + m * bound, (name, row)
            largest = max(largest, (error - Fraction(1, 2)) / m)
    # The bound is not an idle one: additions lose a good part of what is allowed.
    assert largest > bound / 40 or n < 1024


@pytest.mark.slow
def test_encoded_values_of_steps_are_within_the_stated_error():
    n, m = 1200, 2**45
    mechanism = SquareRoot(n)
    xs = rounded_one_way(mechanism._r, n, 2**20) * 2**25
    state, _ = take_steps(mechanism, xs, Script(np.zeros(n)))
    tolerance = Fraction(1, 2) + m * Fraction(mechanism.encoding_error)
    for row, value in exact_products(mechanism._r, xs, (1, 600, 1024, 1025, n)).items():
        assert abs(state[n + row] - value) <= tolerance


def test_errors_that_are_stated_leave_room_up_to_the_longest_horizon():
    for log in (10, 16, 20):
        mechanism = SquareRoot(2**log)
        slack = 2 * mechanism.encoding_error * 2 ** (log / 2)
        assert slack < 5e-6 * mechanism.l2_sensitivity_squared**0.5
        # A product and at most 1024 + T/1024 + 2 additions, each of relative error 2^-53.
        roundings = mechanism.encoding_error / (2.0**-53 * mechanism._r.sum())
        assert roundings >= 1 + 1024 + 2**log / 1024 - 1


# Operator norms


@pytest.mark.parametrize(("momentum", "decay"), [(0, 1), (0.5, 1), (0.9, 1), (0.5, 0.9), (0, 0.75)])
def test_operator_norms_of_the_factor(momentum, decay):
    """[AP24, Lemmas 15 and 16]: of its inverse a constant, of itself sqrt(n), or a constant.

    The factor is 1 / sqrt((1 - decay z) (1 - momentum z)), largest on the unit circle at z = 1 (for
    a decay of 1 it is bounded by its coefficients' sum), and its inverse at z = -1.
    """
    inverse = np.sqrt((1 + decay) * (1 + momentum))
    for n in (16, 128):
        factor = SquareRoot(n, momentum=momentum, decay=decay).encoder(n)
        assert 0.99 * inverse < np.linalg.norm(np.linalg.inv(factor), 2) <= inverse
        largest = np.sqrt(1 / ((1 - decay) if decay < 1 else np.pi / (4 * n)) / (1 - momentum))
        assert factor[:, 0].sum() <= largest
        # Of prefix sums 0.73 of that bound, as n grows.
        assert (0.5 if n == 16 else 0.69) * largest < np.linalg.norm(factor, 2) <= largest
