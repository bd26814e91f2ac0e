"""Sums with a decay in constant state: what they release, that noise hides one event, and how large
it is. What they share with sums over the last steps is tested there."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.mechanisms import DecayedBLT, SquareRoot
from beam_dpcount.mechanisms import fading_tables as tables
from beam_dpcount.mechanisms.base import UnsupportedHorizonError
from beam_dpcount.states.codecs import StateCodec
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.fit_fading import decay_limit, fit, ladders
from tests.audit.exact import audit
from tests.fading import encoded, exactly_encoded, inputs, rational, stepped, streams
from tests.rounding import coarse
from tests.runners import SECOND, Row, each_path, feed, run
from tests.scripted import Script, random_script

HALF = dp.ZCDP(0.5)
DECAYS = (2.0**-10, 0.3, 0.5, 0.9, 0.97, 0.999, 1 - 2.0**-20)
decays = pytest.mark.parametrize("decay", DECAYS)
dimensions = pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])


@decays
@pytest.mark.parametrize("horizon", [1, 2, 9, 150])
def test_decoder_times_encoder_gives_decayed_sums(decay, horizon):
    mechanism = DecayedBLT(horizon, decay)
    lag = np.subtract.outer(np.arange(horizon), np.arange(horizon))
    A = np.where(lag >= 0, decay ** np.maximum(lag, 0), 0.0)
    L, R = mechanism.decoder(horizon), mechanism.encoder(horizon)
    assert np.allclose(mechanism.workload.matrix(horizon), A, rtol=1e-12)
    assert np.allclose(L @ R, A, rtol=0, atol=1e-11)
    assert (R >= 0).all()
    norms = (L**2).sum(axis=1)
    assert np.allclose(mechanism.row_norms2(horizon), norms, rtol=1e-12, atol=0)
    assert mechanism.row_norms2(horizon).tolist() == [
        mechanism.row_norm2(t) for t in range(1, horizon + 1)
    ]
    assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)
    assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-12)
    for lag in (1, 5):
        s = np.arange(1, horizon - lag + 1)
        products = [L[t - 1] @ L[t + lag - 1] for t in s]
        assert np.allclose(mechanism.products(s, lag), products, rtol=1e-10, atol=1e-12)
    products, bounds = R.T @ R, mechanism.lag_bounds(horizon)
    for d in range(horizon):
        largest = max(float(np.diag(products, e).max()) for e in range(d, horizon))
        assert largest <= bounds[d] * (1 + 1e-12)
        assert bounds[d] <= largest * (1 + 1e-7) + 1e-13


@decays
@dimensions
def test_steps_are_the_release_and_the_sums(decay, dimension):
    mechanism = DecayedBLT(120, decay)
    fine = mechanism.resolution(1)
    xs = inputs(120, dimension) * fine
    expected = mechanism.workload.matrix(120) @ xs
    for spread in (0, 2**30):
        one, row, whole = (random_script(120, dimension, spread=spread) for _ in range(3))
        state, values = stepped(mechanism, xs, one, dimension)
        assert np.array_equal(mechanism.release(xs, whole), values)
        noise = mechanism.decoder(120) @ one.z
        assert np.allclose(values, expected + noise, rtol=1e-9, atol=50)
        if dimension is None:
            found, again = mechanism.steps(mechanism.init(), xs, row)
            assert found == state
            assert np.array_equal(again, values)
    nothing = np.zeros_like(xs)
    late = mechanism.after(120, one, dimension)
    empty, _ = stepped(mechanism, nothing, one, dimension)
    assert np.asarray(late[1]).tobytes() == np.asarray(empty[1]).tobytes()


@decays
@pytest.mark.parametrize(("horizon", "fraction"), [(40, None), (90, 4)])
def test_encoded_numbers_are_r_x_rounded(decay, horizon, fraction):
    mechanism = DecayedBLT(horizon, decay)
    full = mechanism._recurrence
    more = full.fraction if fraction is None else fraction
    made = replace(full, window=horizon, fraction=more, largest=1 << 40)
    c, rates = rational(made)
    floors = sum(a * min(horizon, 1 / (1 - b)) for a, b in zip(c, rates, strict=True))
    most = floors / (1 << made.fraction)
    if fraction is None:
        assert most <= Fraction(mechanism.rounding) - 1 <= Fraction(1, 2**9)
    for m in (1, 1 << 40):
        for name, xs in streams(horizon, m):
            for q, exact in zip(encoded(made, xs), exactly_encoded(made, xs), strict=True):
                assert -Fraction(1, 2) <= q - exact <= Fraction(1, 2) + most, (name, m)
    column = exactly_encoded(made, [1, *[0] * (horizon - 1)])
    norm2, claimed = sum(r * r for r in column), Fraction(mechanism.l2_sensitivity_squared)
    assert norm2 <= claimed <= norm2 * (1 + Fraction(1, 10**11))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DecayedBLT, coarse(DecayedBLT)], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("budget", [HALF, dp.ApproxDP(1.0, 1e-6)], ids=str)
def test_bit_streams_keep_the_budget(kind, budget):
    for horizon, decay in ((1, 0.9), (5, 0.3), (6, 0.9), (5, 0.999)):
        assert audit(dp.calibrate(kind(horizon, decay), budget, dp.Change())) == []


def test_what_gives_one_noised_vector_gives_one_release():
    mechanism = DecayedBLT(30, 0.9)
    made = replace(mechanism._recurrence, window=30)
    one, other = inputs(30, seed=1, largest=2**30), inputs(30, seed=2, largest=2**30)
    z = inputs(30, seed=3, largest=2**35)
    hidden = z + np.array(encoded(made, one.tolist())) - np.array(encoded(made, other.tolist()))
    released = mechanism.release(one, Script(z))
    assert np.array_equal(released, mechanism.release(other, Script(hidden)))
    assert not np.array_equal(released, mechanism.release(other, Script(z)))


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99, 0.999, 0.9995])
def test_the_variance_has_the_least_limit(decay):
    """Of all Toeplitz factorizations, the square root's, at rho = 1/2, within 0.2 %; in constant
    state. What 2^20 steps cost, 2^30 do, but for a lattice eight times as coarse."""
    counter = dp.calibrate(DecayedBLT(2**20, decay), HALF)
    steps = math.ceil(40 / (1 - decay))
    root = SquareRoot(min(steps, 2**17), decay=decay)
    least = root.l2_sensitivity_squared * root.max_row_norm2()
    assert least * (1 - 1e-6) <= counter.max_variance() <= least * 1.002
    assert counter.state_size <= 15
    long = dp.calibrate(DecayedBLT(2**30, decay), HALF)
    assert counter.max_variance() <= long.max_variance() <= counter.max_variance() * 1.0009


@pytest.mark.parametrize("k", [1, 7, 20, 40])
def test_parameters_are_what_the_script_fits(k):
    found = tables._fits()["decays"][str(k)]
    d = len(found["poles"])
    shipped = decay_limit(np.array(found["zeros"]), np.array(found["poles"]), k)
    assert shipped == pytest.approx(found["limit"], rel=1e-9)
    value, _ = fit(decay_limit, k, ladders(2 ** (k / 2), d))
    assert value == pytest.approx(found["limit"], rel=1e-3)
    decay = 1 - 2 ** (-k / 2)
    counter = dp.calibrate(DecayedBLT(2**30, decay), HALF)
    assert counter.max_variance() == pytest.approx(found["limit"], rel=9e-4)


@decays
@dimensions
def test_streams_resumed_from_bytes_give_the_same_numbers(decay, dimension):
    counter = dp.calibrate(DecayedBLT(2**30, decay), HALF, dp.Change(-5, 5), dimension)
    made, codec = counter.mechanism._recurrence, StateCodec(counter)
    d = counter.mechanism._poles.buffers
    assert counter.state_size == 2 * d + 1 == 1 + len(made._places)
    xs = inputs(40, dimension, largest=5)
    whole, resumed = (random_script(40, dimension, 4, spread=2**20) for _ in range(2))
    state = kept = counter.init()
    for x in xs.tolist() if dimension is None else xs:
        kept = StateCodec(counter).decode(codec.encode(kept))
        state, value = counter.step(state, x, whole)
        kept, again = counter.step(kept, x, resumed)
        assert np.array_equal(value, again)
        assert codec.encode(kept) == codec.encode(state)


@decays
def test_states_hold_whatever_comes(decay):
    counter = dp.calibrate(DecayedBLT(2**30, decay), HALF, dp.Change(-1, 1))
    made = counter.mechanism._recurrence
    for x in (made.largest, -made.largest):
        for loud in (0, 1 << 62, -(1 << 62)):
            packed, values = made.run(bytes(made.size), 1, [x] * 900, [loud] * 900)
            assert len(packed) == made.size
            assert all(map(math.isfinite, values))
    with pytest.raises(OverflowError):
        made.run(bytes(made.size), 1, [made.largest + 1], [0])


@each_path
def test_ticks_can_decay(path):
    rows: list[Row] = [("a", 1, 5 * SECOND), ("a", 1, 5 * SECOND), ("a", 1, 25 * SECOND)]
    mechanism = DecayedBLT(4, 0.5)
    clock = {"tick": 10, "start": 0, "horizon": 4, "keys": ["a"], "path": path}
    count = TickNumbers(dp.ZCDP(1e12), **clock, mechanism=mechanism)
    releases = run(lambda p: p | feed(rows) | count).releases
    assert [round(r.value, 3) for r in releases] == [2, 1, 1.5, 0.75]


@pytest.mark.parametrize("decay", [1, 2.0**-11, 1 - 2.0**-21])
def test_decays_out_of_range_are_refused(decay):
    with pytest.raises((ValueError, TypeError), match="decay must"):
        DecayedBLT(100, decay)


def test_it_is_a_frozen_value_that_says_what_it_releases():
    counter = dp.calibrate(DecayedBLT(100, 0.75), HALF)
    assert pickle.loads(pickle.dumps(counter)) == counter
    assert counter.describe()["released"] == "sums with momentum 0 and decay 0.75"
    assert repr(DecayedBLT(9, 0.75)) == "DecayedBLT(horizon=9, decay=0.75)"
    assert counter.fingerprint != dp.calibrate(DecayedBLT(100, 0.751), HALF).fingerprint
    with pytest.raises(UnsupportedHorizonError, match=r"DecayedBLT takes up to 2\^30 steps"):
        dp.calibrate(DecayedBLT(2**30 + 1, 0.5), HALF)
    with pytest.raises(dp.errors.HorizonError):
        DecayedBLT(4, 0.5).release(inputs(5), random_script(9))
