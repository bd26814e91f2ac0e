"""Sums over the last W steps: what they release, exactly; that noise hides one event; how large it
is; and whole numbers that hold it, for 2^30 steps."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.counters.active import ActiveChange, AlternatingError
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.counter import TAKES_GAUSSIAN
from beam_dpcount.counters.sliding import difference_variance
from beam_dpcount.counters.users import UserChange, column_cost
from beam_dpcount.mechanisms import CombBLT, NormalizedBLT, SlidingBLT
from beam_dpcount.mechanisms import fading_tables as tables
from beam_dpcount.mechanisms.base import UnsupportedHorizonError
from beam_dpcount.mechanisms.fading import FadingRecurrence
from beam_dpcount.states.codecs import StateCodec
from beam_dpcount.states.envelope import StateError
from benchmarks.fit_fading import fit, ladders, window_limit
from benchmarks.fit_fading import windows as windows_fitted
from tests.audit.exact import audit
from tests.fading import encoded, exactly_encoded, inputs, rational, stepped, streams
from tests.messages import says
from tests.rounding import coarse
from tests.scripted import Script, SeededNoise, random_script

WINDOWS = (1, 2, 3, 7, 10, 33)
HALF = dp.ZCDP(0.5)
windows = pytest.mark.parametrize("window", WINDOWS)
kinds = pytest.mark.parametrize("kind", [SlidingBLT, CombBLT])
dimensions = pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])


def summed(xs, window):
    sums = np.cumsum(xs, axis=0)
    sums[window:] -= sums[:-window].copy()
    return sums


# What is released


@kinds
@windows
@pytest.mark.parametrize("horizon", [1, 2, 9, 80])
def test_decoder_times_encoder_gives_sums_of_the_last_steps(kind, window, horizon):
    mechanism = kind(horizon, window)
    A = np.array([[float(0 <= t - s < window) for s in range(horizon)] for t in range(horizon)])
    assert np.array_equal(mechanism.workload.matrix(horizon), A)
    L, R = mechanism.decoder(horizon), mechanism.encoder(horizon)
    assert np.allclose(L @ R, A, rtol=0, atol=1e-11)
    assert (R >= 0).all() == (kind is SlidingBLT or horizon <= window)
    assert np.array_equal(L, np.tril(L))
    assert np.array_equal(R, np.tril(R))
    for n in (0, horizon // 2):
        assert np.array_equal(mechanism.encoder(n), R[:n, :n])
        assert np.allclose(mechanism.decoder(n), L[:n, :n], rtol=1e-14)


@pytest.mark.parametrize("window", [100, 1000, 2**14])
def test_long_windows_have_their_sums_too(window):
    n = 3 * window
    mechanism = SlidingBLT(2**30, window)
    r = mechanism._poles.c @ (1 - mechanism._poles.a[:, None]) ** np.arange(n)
    made = np.fft.irfft(
        np.fft.rfft(r, 2 * n) * np.fft.rfft(tables.window_variances(window).coefficients(n), 2 * n),
        2 * n,
    )[:n]
    assert np.allclose(made, np.arange(n) < window, rtol=0, atol=1e-9)


@kinds
@dimensions
@windows
def test_without_noise_releases_are_the_sums(kind, window, dimension):
    mechanism = kind(200, window)
    fine = mechanism.resolution(1)
    xs = inputs(200, dimension)
    silence = random_script(200, dimension, spread=0)
    released = mechanism.release(xs * fine, silence) / fine
    # q is at most 1/2 + 2^-9 off, and a decoder's row sums up to less than 4 sqrt(W).
    assert np.allclose(released, summed(xs, window), rtol=0, atol=4 * window**0.5 / fine)


@kinds
@dimensions
@windows
def test_each_noise_reaches_the_releases_with_the_decoders_weights(kind, window, dimension):
    horizon, loud = 60, 1 << 40
    mechanism, drawn = kind(horizon, window), 60 if dimension is None else 3
    L = mechanism.decoder(horizon)
    if dimension is None:
        for i in (0, 1, 17, 59):
            z = Script(loud * np.eye(horizon, dtype=np.int64)[i])
            _, values = stepped(mechanism, np.zeros(horizon, dtype=np.int64), z)
            assert np.allclose(values / loud, L[:, i], rtol=1e-9, atol=1e-9)
    else:
        z = Script(loud * np.eye(horizon, drawn, dtype=np.int64))
        values = mechanism.release(np.zeros((horizon, drawn), dtype=np.int64), z)
        assert np.allclose(values / loud, L[:, :drawn], rtol=1e-9, atol=1e-9)


@dimensions
@kinds
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_steps_and_releases_agree_to_the_last_bit(kind, dimension, data):
    numbers = st.integers(-(2**40), 2**40)
    row = numbers if dimension is None else st.tuples(*[numbers] * dimension)
    xs = np.array(data.draw(st.lists(row, min_size=1, max_size=40)), dtype=np.int64)
    horizon = len(xs) + data.draw(st.integers(0, 300))
    mechanism = kind(horizon, data.draw(st.integers(1, 50)))
    seed = data.draw(st.integers(0, 2**32))
    one, all_ = (random_script(len(xs), dimension, seed, spread=2**40) for _ in range(2))
    _, values = stepped(mechanism, xs, one, dimension)
    assert np.array_equal(mechanism.release(xs, all_), values)
    assert one.drawn == all_.drawn == list(range(1, len(xs) + 1))


@kinds
@windows
@pytest.mark.parametrize("taken", [0, 1, 9, 36])
def test_steps_in_a_row_are_those_one_by_one(kind, window, taken):
    mechanism, xs, z = kind(50, window), inputs(60), random_script(60, spread=10**6).z
    one, row = Script(z), Script(z)
    start, _ = stepped(mechanism, xs[:taken], one)
    row.drawn = list(one.drawn)
    state, expected = start, []
    for x in xs[taken : taken + 14].tolist():
        state, value = mechanism.step(state, x, one)
        expected.append(value)
    found, values = mechanism.steps(start, xs[taken : taken + 14], row)
    assert found == state
    assert values.tolist() == expected
    assert row.drawn == one.drawn
    assert len(mechanism.steps(found, xs[:0], row)[1]) == 0
    with pytest.raises(dp.errors.HorizonError):
        mechanism.steps(start, xs[: 51 - taken], row)


@kinds
@dimensions
@windows
def test_a_key_that_is_seen_late_has_the_state_of_empty_steps(kind, window, dimension):
    mechanism, noise = kind(40, window), random_script(40, dimension, spread=2**30)
    for n in (0, 1, 29, 40):
        nothing = np.zeros(n if dimension is None else (n, dimension), dtype=np.int64)
        expected, _ = stepped(mechanism, nothing, noise, dimension)
        t, packed = mechanism.after(n, noise, dimension)
        assert t == expected[0]
        assert np.asarray(packed).tobytes() == np.asarray(expected[1]).tobytes()
    with pytest.raises(dp.errors.HorizonError):
        mechanism.after(41, noise, dimension)


@kinds
def test_what_left_the_window_is_forgotten_but_for_what_fades(kind):
    """p loses nothing: after W steps without inputs and noise a release is 0 up to rounding."""
    mechanism = kind(2**30, 20)
    fine = mechanism.resolution(1)
    n, quiet = 7000, 400 if kind is SlidingBLT else 4000
    xs = np.where(np.arange(n) < n - quiet, fine << 20, 0)
    z = np.where(np.arange(n) < n - quiet, inputs(n, largest=fine << 20), 0)
    values = mechanism.release(xs, Script(z)) / fine
    assert abs(values[: n - quiet]).max() > 2**20
    assert abs(values[-100:]).max() < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("window", [16, 1000, 2**16, pytest.param(741_455, marks=pytest.mark.slow)])
def test_digits_of_constants_are_a_small_share_of_the_largest_window(window):
    """2^-38 of it; half would not do for the longest window here."""
    n, most = window + 100, 1 << 30
    counter = dp.calibrate(SlidingBLT(n, window), dp.ZCDP(0.5), TickChange(0, 1, most=most))
    xs = np.where(np.arange(n) == 0, most, 0)
    released = counter.release_lattice(xs, Script(np.zeros(n)))
    error = np.abs(released - summed(xs, window)).max() / most
    assert error < 2.0**-38
    assert error > 2.0**-39 or window < 741_455


# Sensitivity


@kinds
@pytest.mark.parametrize(
    ("window", "horizon", "fraction"), [(10, 40, None), (10, 40, 3), (64, 150, 4)]
)
def test_encoded_numbers_are_r_x_rounded(kind, window, horizon, fraction):
    """q - R x is from -1/2 to 1/2 + what floors add, `rounding` - 1: for inputs of any size. With
    constants so coarse that floors matter the bound must still hold, and is nearly reached."""
    full = kind(horizon, window)._recurrence
    more = full.fraction if fraction is None else fraction
    made = replace(full, fraction=more, largest=1 << 40)
    c, rates = rational(made)
    floors = sum(a * min(horizon, 1 / (1 - b)) for a, b in zip(c, rates, strict=True))
    below = Fraction(0)
    if kind is CombBLT:  # what is taken away W steps later has floors too
        alpha, beta, point = tables.COMB
        share = Fraction(beta - alpha, (1 << point) - alpha)
        below = (1 + share * floors) / (1 << made.fraction)
        floors += 1 + 2 * share
    most, seen = floors / (1 << made.fraction), Fraction(0)
    if fraction is None:
        stated = Fraction(kind(horizon, window).rounding) - 1
        most += below
        assert most <= stated <= most * (1 + Fraction(1, 10**9)) + Fraction(1, 10**11)
    for m in (1, 7, 1 << 20, 1 << 40):
        for name, xs in streams(horizon, m):
            for q, exact in zip(encoded(made, xs), exactly_encoded(made, xs), strict=True):
                off = q - exact
                assert -Fraction(1, 2) - below <= off <= Fraction(1, 2) + most, (name, m)
                seen = max(seen, off)
    if fraction is not None:
        assert seen > Fraction(1, 2) + most / 4


@kinds
@pytest.mark.parametrize("window", [*WINDOWS, 1000, 2**20])
def test_what_floors_add_is_little(kind, window):
    for horizon in (1, 40, 1000, 2**20, 2**30):
        assert 1 < kind(horizon, min(window, kind.widest)).rounding <= 1 + 2.0**-9 + 1e-9


@kinds
@pytest.mark.parametrize("horizon", [1, 2, 17, 200])
@windows
def test_columns_are_no_longer_than_noise_is_for(kind, window, horizon):
    """Exactly, and not much shorter, which would waste noise."""
    mechanism = kind(horizon, window)
    made = mechanism._recurrence
    column = exactly_encoded(made, [1, *[0] * (horizon - 1)])
    norm2, claimed = sum(r * r for r in column), Fraction(mechanism.l2_sensitivity_squared)
    assert norm2 <= claimed <= norm2 * (1 + Fraction(1, 10**11))
    assert (
        sum(map(abs, column))
        <= Fraction(mechanism.l1_sensitivity)
        <= sum(map(abs, column)) * (1 + Fraction(1, 10**11))
    )
    R = mechanism.encoder(horizon)
    assert np.allclose([float(r) for r in column], R[:, 0], rtol=1e-12, atol=1e-15)
    assert (R**2).sum(axis=0).max() == pytest.approx(float(claimed), rel=1e-11)


@pytest.mark.parametrize("window", [1, 10, 1000])
def test_columns_of_the_longest_horizon_are_summed_to_their_end(window):
    mechanism = SlidingBLT(2**30, window)
    p = mechanism._poles
    r = p.c @ np.exp(np.arange(60 * window + 60) * np.log1p(-p.a[:, None]))
    assert mechanism.l2_sensitivity_squared == pytest.approx(float((r**2).sum()), rel=1e-9)
    assert mechanism.l2_sensitivity_squared >= float((r**2).sum()) * (1 - 1e-13)


@windows
@pytest.mark.parametrize("horizon", [1, 2, 9, 60])
def test_products_of_columns_are_bounded_by_lag(window, horizon):
    mechanism = SlidingBLT(horizon, window)
    R = mechanism.encoder(horizon)
    products, bounds = R.T @ R, mechanism.lag_bounds(horizon + 3)
    for d in range(horizon):
        largest = max(float(np.diag(products, e).max()) for e in range(d, horizon))
        assert largest <= bounds[d] * (1 + 1e-12)
        assert bounds[d] <= largest * (1 + 1e-7) + 1e-13
    assert bounds[horizon:] == (0.0,) * 3
    assert list(bounds) == sorted(bounds, reverse=True)


@pytest.mark.parametrize("gap", [1, 2, 7, 60, 100])
def test_products_of_columns_that_are_gaps_apart_are_the_same_bounds(gap):
    for mechanism in (SlidingBLT(60, 7), NormalizedBLT(60)):
        for n in (1, 2, 9):
            bounds = mechanism.spaced_bounds(gap, n)
            every = mechanism.lag_bounds((n - 1) * gap + 1)[::gap]
            assert bounds == pytest.approx(every, rel=1e-8, abs=1e-13)
            assert len(bounds) == n
    # At once, where all lags between would fill the memory.
    far = SlidingBLT(2**30, 2**20).spaced_bounds(2**20, 1000)
    assert list(far) == sorted(far, reverse=True)
    assert far[1] > 1e-3 > far[-1] >= 0


def test_people_whose_events_are_a_window_apart_cost_little_more_than_events():
    """Far less than k^2 columns; and no less than the worst of all streams with such gaps."""
    window, k = 8, 4
    mechanism = SlidingBLT(40, window)
    claimed = float(column_cost(mechanism, k, window))
    R = mechanism.encoder(40)
    worst = max(
        float((R[:, list(at)].sum(axis=1) ** 2).sum())
        for at in itertools.combinations(range(40), k)
        if all(b - a >= window for a, b in itertools.pairwise(at))
    )
    assert worst <= claimed <= 1.1 * worst
    assert claimed < k * k * mechanism.l2_sensitivity_squared / 2
    change = UserChange(0, 1, most=1, events=k, keys=1, per_key=k, gap=window)
    assert dp.calibrate(mechanism, HALF, change).l2_sensitivity == pytest.approx(
        claimed**0.5, rel=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("budget", [HALF, dp.ApproxDP(1.0, 1e-6), dp.ApproxDP(3.0, 1e-3)], ids=str)
@pytest.mark.parametrize(
    "kind",
    [SlidingBLT, coarse(SlidingBLT), CombBLT, coarse(CombBLT)],
    ids=lambda kind: kind.__name__,
)
def test_bit_streams_keep_the_budget(kind, budget, relation):
    """Also where rounding is a good part of the sensitivity."""
    for horizon, window in ((1, 1), (5, 1), (6, 2), (6, 3), (4, 10)):
        counter = dp.calibrate(kind(horizon, window), budget, dp.Change(relation=relation))
        assert audit(counter) == [], (horizon, window)


@kinds
def test_numbers_and_vectors_keep_the_budget(kind):
    counter = dp.calibrate(kind(3, 2), HALF, dp.Change(-1.0, 2.0), unit=0.5)
    assert audit(counter, [-math.inf, -1.0, 0.0, 0.7, 2.0]) == []
    values = list(itertools.product((0, 1), repeat=2))
    for touched in (None, 1):
        change = dp.Change(coordinates=touched)
        counter = dp.calibrate(kind(3, 2), HALF, change, dimension=2)
        assert audit(counter, values) == []


@dataclass(frozen=True)
class Uncounted(SlidingBLT):
    """Calibrates to R alone, on a lattice where rounding matters."""

    def resolution(self, magnitude, largest=None):
        return 1

    def norms(self, magnitude, largest=None):
        return magnitude, magnitude**2 * Fraction(self.l2_sensitivity_squared)


@dataclass(frozen=True)
class Shrunk(SlidingBLT):
    """Forgets the tail of its columns."""

    @property
    def l2_sensitivity_squared(self):
        return 1.0


@dataclass(frozen=True)
class Longer(SlidingBLT):
    """Releases sums of one step more than it says."""

    @property
    def workload(self):
        return replace(super().workload, window=self.window + 1)


@pytest.mark.parametrize(
    ("kind", "failing"),
    [(Uncounted, "budget"), (Shrunk, "budget"), (Longer, "factorization")],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_the_audit_sees_what_breaks_it(kind, failing):
    assert failing in audit(dp.calibrate(kind(6, 3), HALF, dp.Change()))


@kinds
@pytest.mark.parametrize("magnitude", [1, 7, 10**6, 2**31])
def test_what_rounding_adds_is_small_and_counted_up_to_the_ceiling(kind, magnitude):
    for horizon in (1, 1000, *(2**k + k - 20 for k in range(20, 30)), 2**30):
        mechanism = kind(horizon, 100)
        exact = magnitude * math.sqrt(mechanism.l2_sensitivity_squared)
        fine = mechanism.resolution(magnitude)
        _, l2_squared = mechanism.norms(magnitude * fine)
        added = float(l2_squared) ** 0.5 - exact * fine
        most = 1e-4 if horizon <= 2**20 else 4e-4
        assert mechanism.rounding * horizon**0.5 <= added * (1 + 1e-6) <= most * exact * fine


@kinds
def test_what_gives_one_noised_vector_gives_one_release(kind):
    """To the last bit: noise hides all that a release is made of."""
    mechanism = kind(30, 7)
    made = mechanism._recurrence
    one, other = inputs(30, seed=1, largest=2**30), inputs(30, seed=2, largest=2**30)
    z = inputs(30, seed=3, largest=2**35)
    hidden = z + np.array(encoded(made, one.tolist())) - np.array(encoded(made, other.tolist()))
    for give in (lambda xs, z: stepped(mechanism, xs, z)[1], mechanism.release):
        assert np.array_equal(give(one, Script(z)), give(other, Script(hidden)))
        assert not np.array_equal(give(one, Script(z)), give(other, Script(z)))


@pytest.mark.parametrize("window", [2, 3, 10, 700])
@pytest.mark.parametrize("horizon", [1, 2, 9, 60])
def test_products_of_a_combs_columns_are_bounded_whatever_their_sign(window, horizon):
    """Also where changes of several steps have several signs: by all of them, where that is few."""
    mechanism = CombBLT(horizon, window)
    R = mechanism.encoder(horizon)
    products, bounds = R.T @ R, mechanism.lag_bounds(horizon + 3)
    for d in range(horizon):
        largest = max(float(abs(np.diag(products, e)).max()) for e in range(d, horizon))
        assert largest <= bounds[d] * (1 + 1e-12)
    assert products.min() < -0.05 or horizon <= window
    assert bounds[horizon:] == (0.0,) * 3
    assert list(bounds) == sorted(bounds, reverse=True)
    k, most = min(4, horizon), min(horizon, 12)
    for gap in (1, 2, window):
        claimed = column_cost(mechanism, k, gap)
        places = np.array(
            [
                at
                for at in itertools.combinations(range(horizon - most, horizon), k)
                if all(b - a >= gap for a, b in itertools.pairwise(at))
            ],
            dtype=int,
        ).reshape(-1, k)
        for signs in itertools.product((1, -1), repeat=k):
            norms = ((R[:, places] @ np.array(signs)) ** 2).sum(axis=0)
            assert norms.max(initial=0) <= float(claimed)


def test_products_of_a_combs_columns_far_apart_are_bounded_too():
    """They are for any horizon, and no more than a thousandth above for a long one."""
    mechanism = CombBLT(4000, 9)
    column = np.abs(mechanism.encoder(4000)[:, 0])
    exact = np.correlate(column, column, "full")[3999:]
    bounds = np.array(mechanism.lag_bounds(4000))
    assert (np.maximum.accumulate(exact[::-1])[::-1] <= bounds).all()
    assert (bounds[:200] <= np.maximum.accumulate(exact[::-1])[::-1][:200] * 1.001 + 1e-8).all()
    far = CombBLT(2**30, 2**12).spaced_bounds(2**20, 100)
    assert 0 < far[1] < 1e-8
    assert list(far) == sorted(far, reverse=True)


def test_a_comb_refuses_changes_of_activity_and_replacement_costs_four():
    change = ActiveChange(0, 1, events=4, keys=1, per_key=4, intervals=2, in_one=2)
    for horizon in (40, 4000):
        with pytest.raises(AlternatingError, match=r"CombBLT .* may rise"):
            dp.calibrate(CombBLT(horizon, 5), HALF, change)
    counter = dp.calibrate(CombBLT(40, 5), HALF, dp.Change(-1, 1))
    R = CombBLT(40, 5).encoder(40)
    moved = max(float(((R[:, i] - R[:, j]) ** 2).sum()) for i in range(40) for j in range(i))
    column = CombBLT(40, 5).l2_sensitivity_squared
    assert 2.1 * column < moved <= 4 * column
    assert counter.l2_sensitivity**2 >= 4 * column


# Errors


@kinds
@windows
@pytest.mark.parametrize("horizon", [1, 2, 9, 34, 150])
def test_row_norms_are_those_of_the_decoder(kind, window, horizon):
    mechanism = kind(horizon, window)
    L = mechanism.decoder(horizon)
    norms = (L**2).sum(axis=1)
    assert np.allclose(mechanism.row_norms2(horizon), norms, rtol=1e-12, atol=0)
    assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-12)
    assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)
    assert mechanism.row_norms2(0).shape == (0,)
    for lag in (1, 2, window, window + 1, 3 * window):
        s = np.arange(1, horizon - lag + 1)
        products = [L[t - 1] @ L[t + lag - 1] for t in s]
        assert np.allclose(mechanism.products(s, lag), products, rtol=1e-10, atol=1e-12)


@kinds
@pytest.mark.parametrize("window", [1, 30, 1023, 1024, 1025, 2500])
def test_one_variance_is_that_of_many_to_the_last_bit_and_they_rise(kind, window):
    mechanism = kind(2**30, window)
    many = mechanism.row_norms2(8000)
    assert many.tolist() == [mechanism.row_norm2(t) for t in range(1, 8001)]
    assert (np.diff(many) >= -1e-14 * many[1:]).all()
    j = mechanism._variances.coefficients(8000)
    assert np.allclose(many, np.cumsum(j**2), rtol=1e-12, atol=0)
    assert many.max() <= mechanism.max_row_norm2() * (1 + 1e-14)
    assert mechanism.row_norm2(2**30) == mechanism.max_row_norm2()
    assert mechanism.mean_row_norm2() == pytest.approx(mechanism.max_row_norm2(), rel=1e-4)


@pytest.mark.parametrize(
    ("window", "most", "least"), [(10, 4.2, 3.70), (100, 9.5, 8.16), (1000, 17.0, 14.36)]
)
def test_limits_of_the_variance(window, most, least):
    """At rho = 1/2, in squared events; and less than of a difference of two counts."""
    counter = dp.calibrate(SlidingBLT(2**30, window), HALF)
    angle = (np.arange(10**6) + 0.5) / 10**6 * np.pi
    lebesgue = np.abs(np.sin(window * angle / 2) / np.sin(angle / 2)).mean() ** 2
    assert lebesgue == pytest.approx(least, abs=0.005)
    assert lebesgue < counter.max_variance() <= most
    for log in (16, 20):
        base = dp.calibrate(NormalizedBLT(2**log), HALF)
        worst = max(difference_variance(base, t << log - 3, window) for t in range(1, 9))
        assert counter.max_variance() < worst / 1.5


@pytest.mark.parametrize("window", [2, 3, 5, 10, 24, 100, 365, 1000, 4096])
def test_a_comb_is_near_the_floor(window):
    """Of all endless Toeplitz factorizations, at rho = 1/2: within 0.6 %."""
    angle = (np.arange(10**6) + 0.5) / 10**6 * np.pi
    lebesgue = np.abs(np.sin(window * angle / 2) / np.sin(angle / 2)).mean() ** 2
    comb, plain = (dp.calibrate(kind(2**30, window), HALF) for kind in (CombBLT, SlidingBLT))
    assert lebesgue < comb.max_variance() <= 1.006 * lebesgue
    assert comb.max_variance() < plain.max_variance() / 1.06
    r = tables.comb(window, tables.FADED * window).encoder
    assert np.abs(r[-window:]).sum() < 1e-8 * np.abs(r).sum()


def test_every_window_is_near_the_fits_around_it():
    """Its variance is exact whatever the fit was for, and rises with the window."""
    rough = [dp.calibrate(SlidingBLT(2**30, W), HALF).max_variance() for W in range(1, 200)]
    assert all(a < b for a, b in itertools.pairwise(rough))
    fits = {int(W): fit["limit"] for W, fit in tables._fits()["windows"].items()}
    for W, stated in fits.items():
        seen = dp.calibrate(SlidingBLT(2**30, W), HALF).max_variance()
        assert stated * (1 - 1e-9) <= seen <= stated * (1 + 9e-4), W
    for one, other in itertools.pairwise(fits):
        between = round(math.sqrt(one * other))
        share = math.log(between / one) / math.log(other / one)
        seen = dp.calibrate(SlidingBLT(2**30, between), HALF).max_variance()
        assert seen <= ((1 - share) * fits[one] + share * fits[other]) * 1.008, between


@pytest.mark.parametrize("window", [1, 4, 11, 1024])
def test_parameters_are_what_the_script_fits(window):
    """And what it minimises is the variance that is stated."""
    found = tables._fits()["windows"][str(window)]
    d = len(found["poles"])
    shipped = window_limit(np.array(found["zeros"]), np.array(found["poles"]), window)
    assert shipped == pytest.approx(found["limit"], rel=1e-12)
    value, _ = fit(window_limit, window, ladders(window, d))
    assert value == pytest.approx(found["limit"], rel=1e-4)
    assert list(map(int, tables._fits()["windows"])) == windows_fitted()


@pytest.mark.long
@kinds
@pytest.mark.slow
def test_releases_have_the_stated_variance(kind):
    """2000 coordinates; mean squares are off by 3.2 % (one sigma), so seven of them."""
    for factor, holds in ((1, True), (Fraction(3, 2), False), (Fraction(2, 3), False)):
        counter = dp.calibrate(kind(20, 6), HALF, dimension=2000)
        law = type(counter.law)(counter.law.sigma2 * factor)
        released = counter.release(np.zeros((20, 2000)), SeededNoise(law, 5, 2000))
        seen = (released**2).mean(axis=1)
        stated = np.array([counter.variance(t) for t in range(1, 21)])
        close = np.abs(seen / stated - 1) < 7 * 0.0316
        assert close.all() == holds


# States


@kinds
@dimensions
@windows
def test_streams_resumed_from_bytes_after_every_step_give_the_same_numbers(kind, window, dimension):
    counter = dp.calibrate(kind(40, window), HALF, dp.Change(-5, 5), dimension)
    codec = StateCodec(counter)
    xs = inputs(40, dimension, largest=5)
    whole, resumed = (random_script(40, dimension, 4, spread=2**20) for _ in range(2))
    state = kept = counter.init()
    for x in xs.tolist() if dimension is None else xs:
        kept = StateCodec(counter).decode(codec.encode(kept))
        before = codec.encode(kept)
        state, value = counter.step(state, x, whole)
        kept, again = counter.step(kept, x, resumed)
        assert np.array_equal(value, again)
        assert counter.stddev_at(kept) == math.sqrt(counter.variance(kept[0]))
        assert before != codec.encode(kept) == codec.encode(state)
    other = dp.calibrate(kind(40, window + 1), HALF, dp.Change(-5, 5), dimension)
    with pytest.raises(StateError):
        StateCodec(other).decode(codec.encode(kept))


@kinds
@pytest.mark.parametrize("most", [1, 2**20])
@pytest.mark.parametrize("window", [1, 10, 200])
def test_states_hold_whatever_comes(kind, window, most):
    """Inputs of the largest size and noise far beyond 64 standard deviations: nothing overflows."""
    change = TickChange(-1, 1, most=most)
    counter = dp.calibrate(kind(2**30, window), dp.ZCDP(1e-3), change)
    made = counter.mechanism._recurrence
    size = counter.mechanism.limits[0]
    for sign, loud in itertools.product((1, -1), (0, 1 << 62)):
        for noisy in (loud, -loud):
            packed, values = made.run(bytes(made.size), 1, [sign * size] * 900, [noisy] * 900)
            assert len(packed) == made.size
            assert all(map(math.isfinite, values))
    with pytest.raises(OverflowError, match="larger than this mechanism was made for"):
        made.run(bytes(made.size), 1, [size + 1], [0])


@kinds
def test_states_are_as_large_as_stated(kind):
    for horizon, window in ((100, 10), (5, 10), (2**30, 100)):
        mechanism = kind(horizon, window)
        made = mechanism._recurrence
        d = mechanism._poles.buffers
        lines = len(made._lines)
        assert lines == (1 if kind is SlidingBLT else 3)
        numbers = len(made._places) + lines * made.window
        assert mechanism.state_size == 1 + numbers == 2 * d + 1 + lines * min(window, horizon)
        state = mechanism.init()
        assert mechanism.state_types(len(state)) == ("q", f"{made.size}s")
        assert len(state[1]) == made.size


@kinds
def test_states_are_not_changed_and_can_be_stepped_from_twice(kind):
    mechanism, noise = kind(9, 3), random_script(9)
    for dimension in (None, 2):
        state = mechanism.init(dimension)
        noise = random_script(9, dimension)
        x = 5 if dimension is None else np.array([5, 6])
        first, value = mechanism.step(state, x, noise)
        assert np.asarray(state[1]).tobytes() == np.asarray(mechanism.init(dimension)[1]).tobytes()
        again, same = mechanism.step(state, x, noise)
        assert np.array_equal(value, same)
        assert np.asarray(first[1]).tobytes() == np.asarray(again[1]).tobytes()


# What is refused, and the rest of the contract


@kinds
def test_nothing_is_released_past_the_horizon(kind):
    mechanism, noise = kind(4, 3), random_script(9)
    state, _ = stepped(mechanism, inputs(4), noise)
    drawn = list(noise.drawn)
    with pytest.raises(dp.errors.HorizonError, match="beyond the horizon of 4 steps"):
        mechanism.step(state, 1, noise)
    with pytest.raises(dp.errors.HorizonError):
        mechanism.release(inputs(5), noise)
    assert noise.drawn == drawn
    for ask in (mechanism.encoder, mechanism.decoder, mechanism.row_norms2):
        with pytest.raises(dp.errors.HorizonError):
            ask(5)


@kinds
def test_streams_beyond_the_ceiling_are_refused(kind):
    assert kind(2**30, 5).max_row_norm2() > 1
    beyond = kind(2**30 + 1, 5)
    assert repr(beyond) == f"{kind.__name__}(horizon=1073741825, window=5)"
    with pytest.raises(UnsupportedHorizonError, match=r"up to 2\^30 steps, got .* 1073741825"):
        dp.calibrate(beyond, HALF)


@kinds
def test_windows_out_of_range_are_refused(kind):
    window = kind.widest + 1
    with pytest.raises((ValueError, TypeError), match=f"window.*{window!r}"):
        kind(100, window)


@kinds
def test_pure_budgets_are_refused(kind):
    with pytest.raises(ValueError, match=says(TAKES_GAUSSIAN, mechanism=kind.__name__)):
        dp.calibrate(kind(100, 5), dp.PureDP(1.0))


@kinds
def test_it_is_a_frozen_value_that_says_what_it_releases(kind):
    counter = dp.calibrate(kind(100, 5), HALF)
    assert pickle.loads(pickle.dumps(counter)) == counter
    assert counter.describe()["released"] == "sums over the last 5 steps"
    assert kind(100, np.int64(5)) == kind(100, 5) != kind(100, 6)
    assert counter.fingerprint != dp.calibrate(kind(100, 6), HALF).fingerprint
    assert kind(9, 1).workload.matrix(2).tolist() == [[1, 0], [0, 1]]
    assert str(kind(9, 1).workload) == "single steps"


@kinds
def test_a_budget_is_spent_whatever_the_horizon(kind):
    """To the 1e-4 of rounding: a ceiling of 2^30 steps costs what a thousand cost."""
    for horizon in (1000, 2**30):
        (cost,) = dp.calibrate(kind(horizon, 50), HALF).costs()
        assert 0.4999 < cost.rho <= 0.5
    short, long = (dp.calibrate(kind(T, 50), HALF).max_variance() for T in (1000, 2**30))
    assert short == pytest.approx(long, rel=9e-4)


@kinds
def test_every_recurrence_is_of_whole_numbers(kind):
    made = kind(2**30, 100)._recurrence
    assert isinstance(made, FadingRecurrence)
    _, values = made.run(bytes(made.size), 1, [3], [1 << 50])
    assert values == [float((1 << 50) + 3)]  # r_0 = l_0 = 1
