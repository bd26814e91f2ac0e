"""Every check of the mechanisms' contract, over every member of `mechanisms.ALL`.

There is no skip list: a new mechanism is covered by being listed. Members are made by
`kind(horizon)`; matrices are compared with the definition (of prefix sums, or of sums with
momentum and decay), with each other, and with what `step` and `release` are seen to do. Integer
mechanisms must agree exactly, those with real weights to 1e-9, and those that round R x to within
what rounding can do; `step` and `release` agree bit for bit in any case.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.errors import HorizonError
from beam_dpcount.mechanisms.base import MAX_HORIZON
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace
from beam_dpcount.states.codecs import StateCodec
from tests.audit.exact import law_moments
from tests.numerics import same
from tests.scripted import Script, SeededNoise, random_script


@dataclasses.dataclass(frozen=True)
class Momentum(mechanisms.SquareRoot):
    """Another workload than prefix sums."""

    momentum: float = 0.5
    decay: float = 0.9


KINDS = (*mechanisms.ALL, Momentum)
SMALL = range(1, 65)
LARGE = (100, 257, 1000)
LOUD = 1 << 20  # beside it, what decoders of whole numbers round down is little
LAWS = {"gaussian": dp.ZCDP(0.5), "laplace": dp.PureDP(1.0)}
ALLOWED = {kind: kind(40).laws for kind in KINDS}  # type: ignore[operator]

every = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
dimensions = pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])
calibrated = pytest.mark.parametrize(
    ("kind", "budget"),
    [
        pytest.param(kind, LAWS[law], id=f"{kind.__name__}-{law}")  # type: ignore[attr-defined]
        for kind in KINDS
        for law in sorted(ALLOWED[kind])
    ],
)
examples = settings(max_examples=30, deadline=None, derandomize=True, database=None)


def expected(mechanism, xs):
    """The sums that are released privately, exactly for integers."""
    if mechanism.workload.is_prefix_sums:
        return np.cumsum(xs, axis=0)
    return mechanism.workload.matrix(len(xs)) @ xs


def near(mechanism, released, exact, magnitude) -> bool:
    """Whether releases are these numbers, but for what the encoder's rounding may change."""
    if not isinstance(mechanism, RoundedMechanism):
        return same(released, exact)
    # Half of what rounding adds to a difference of two streams, in each row, through L.
    reach = (mechanism.rounding / 2 + mechanism.encoding_error * magnitude) * np.abs(
        mechanism.decoder(len(released))
    ).sum(axis=1)
    error = np.abs(np.asarray(released) - exact)
    return bool((error.reshape(len(reach), -1) <= reach[:, None] * (1 + 1e-9) + 1e-6).all())


def shape(n: int, dimension: int | None) -> tuple[int, ...]:
    return (n,) if dimension is None else (n, dimension)


def random_inputs(n: int, dimension: int | None, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-100, 101, shape(n, dimension))


def take_steps(mechanism, xs, noise, dimension=None):
    """States and values after each step."""
    state, states, values = mechanism.init(dimension), [], []
    for x in xs.tolist() if dimension is None else xs:
        state, value = mechanism.step(state, x, noise)
        states.append(state)
        values.append(value)
    return states, np.array(values).reshape(np.shape(xs))


def equal_states(a, b) -> bool:
    return len(a) == len(b) and all(
        type(v) is type(w) and np.asarray(v).dtype == np.asarray(w).dtype and np.array_equal(v, w)
        for v, w in zip(a, b, strict=True)
    )


# The factorization


def prefixes(horizon: int) -> range | tuple[int, ...]:
    """Lengths of streams shorter than the horizon: all of them, up to 16 and about powers of 2."""
    if horizon <= 16 or horizon in (31, 32, 33, 63, 64):
        return range(1, horizon)
    return (1, horizon // 3, horizon // 2, horizon - 1)


@pytest.mark.slow
@every
@pytest.mark.parametrize(
    "horizons",
    [
        (*range(1, 17), 31, 32, 33, 64, 257),
        pytest.param((*SMALL, *LARGE), marks=pytest.mark.exhaustive),
    ],
    ids=["some", "all"],
)
def test_decoder_times_encoder_gives_prefix_sums(kind, horizons):
    """At the horizon and before it; and matrices of a prefix are corners of the whole: what was
    drawn by step n, and how it was used, does not depend on what comes later."""
    for horizon in horizons:
        mechanism = kind(horizon)
        whole_L, whole_R = mechanism.decoder(horizon), mechanism.encoder(horizon)
        assert whole_R.shape == (mechanism.draws(horizon), horizon)
        assert whole_L.shape == whole_R.shape[::-1]
        assert same(whole_L @ whole_R, mechanism.workload.matrix(horizon)), horizon
        assert mechanism.workload.is_prefix_sums == (kind in mechanisms.ALL)
        for n in prefixes(horizon):
            L, R = mechanism.decoder(n), mechanism.encoder(n)
            assert R.shape == (mechanism.draws(n), n), (horizon, n)
            assert L.shape == R.shape[::-1], (horizon, n)
            assert same(L @ R, mechanism.workload.matrix(n)), (horizon, n)
            assert same(L, whole_L[:n, : len(R)]), (horizon, n)
            assert not whole_L[:n, len(R) :].any(), (horizon, n)
            assert same(R, whole_R[: len(R), :n]), (horizon, n)


@every
def test_unit_weights_are_claimed_exactly_by_those_that_have_them(kind):
    def weights(horizon):
        return set(np.unique(kind(horizon).decoder(horizon)))

    assert all(weights(n) <= {-1, 0, 1} for n in (1, 2, 7, 40) if kind(n).unit_weights)
    assert kind(40).unit_weights or not weights(40) <= {-1, 0, 1}


@pytest.mark.slow
@every
def test_no_coordinate_is_drawn_before_its_row_is_complete(kind):
    """Rows drawn by step t hold nothing of later inputs: x_s, s > t, cannot change them.

    A mechanism may do otherwise only if it says so, which keeps it from replays; and only under
    Laplace noise alone.
    """
    says_so = []
    for horizon in (*SMALL, *LARGE):
        mechanism = kind(horizon)
        R = mechanism.encoder(horizon)
        early = [t for t in range(1, horizon) if R[: mechanism.draws(t), t:].any()]
        assert not early or (mechanism.draws_early and mechanism.laws == {"laplace"}), horizon
        says_so.append((mechanism.draws_early, bool(early)))
    # Who says so does so, at some horizon.
    assert any(says for says, _ in says_so) == any(early for _, early in says_so)


@pytest.mark.slow
@every
def test_sensitivity_is_the_largest_column_norm_of_the_encoder(kind):
    for horizon in (*SMALL, *LARGE):
        mechanism = kind(horizon)
        R = mechanism.encoder(horizon)
        l1, l2_squared = np.abs(R).sum(axis=0).max(), np.square(R).sum(axis=0).max()
        # A norm of real numbers is rounded up; what rounding R x adds is in `norms`.
        slack = 1e-8 if isinstance(mechanism, RoundedMechanism) else 0
        assert l1 <= mechanism.l1_sensitivity <= l1 * (1 + slack), horizon
        assert l2_squared <= mechanism.l2_sensitivity_squared <= l2_squared * (1 + slack), horizon


@every
@pytest.mark.parametrize("magnitude", [1, 7, 10**6, 2**31])
def test_what_rounding_adds_to_the_sensitivity_is_small_and_counted(kind, magnitude):
    for horizon in (1, 2, 40, 1000):
        mechanism = kind(horizon)
        fine = mechanism.resolution(magnitude)
        l1, l2_squared = mechanism.norms(magnitude * fine)
        exact_l1 = magnitude * fine * Fraction(mechanism.l1_sensitivity)
        exact_l2 = float(magnitude * fine) * mechanism.l2_sensitivity_squared**0.5
        if not isinstance(mechanism, RoundedMechanism):
            assert fine == 1
            assert l1 == exact_l1
            assert l2_squared == magnitude**2 * mechanism.l2_sensitivity_squared
            continue
        assert fine & fine - 1 == 0
        rows = mechanism.rounding + 2 * magnitude * fine * mechanism.encoding_error
        assert rows >= 1
        assert l1 >= exact_l1 + Fraction(rows * horizon)
        assert exact_l2 + rows * horizon**0.5 <= float(l2_squared) ** 0.5 <= exact_l2 * (1 + 1e-4)


# Steps and releases


@pytest.mark.slow
@pytest.mark.exhaustive("dimension", "kind")
@every
@dimensions
def test_steps_and_release_agree_and_draw_each_coordinate_once_in_order(kind, dimension):
    for horizon in SMALL:
        mechanism = kind(horizon)
        drawn_by = [mechanism.draws(t) for t in range(1, horizon + 1)]
        for n in {1, horizon // 2, horizon - 1, horizon} - {0}:
            xs = random_inputs(n, dimension, seed=horizon)
            stepped = random_script(drawn_by[n - 1], dimension, seed=n)
            state, values = mechanism.init(dimension), []
            for t, x in enumerate(xs.tolist() if dimension is None else xs, start=1):
                state, value = mechanism.step(state, x, stepped)
                values.append(value)
                assert stepped.drawn == list(range(1, drawn_by[t - 1] + 1)), (horizon, t)
            whole = random_script(drawn_by[n - 1], dimension, seed=n)
            released = mechanism.release(xs, whole)
            assert whole.drawn == stepped.drawn
            assert np.array_equal(released, values), (horizon, n)


@every
@pytest.mark.parametrize("taken", [0, 1, 9])
def test_steps_in_a_row_are_those_one_by_one(kind, taken):
    """From any state on, with the same draws; and past the horizon they end alike."""
    mechanism, n = kind(50), 30
    xs, z = random_inputs(60, None, seed=4), random_script(100).z
    script, others = Script(z), Script(z)
    state = start = mechanism.init()
    for x in xs[:taken].tolist():
        state, _ = mechanism.step(state, x, script)
        start, _ = mechanism.step(start, x, others)
    expected = []
    for x in xs[taken : taken + n].tolist():
        state, value = mechanism.step(state, x, script)
        expected.append(value)
    found, values = mechanism.steps(start, xs[taken : taken + n], others)
    assert equal_states(found, state)
    assert values.tolist() == expected
    assert others.drawn == script.drawn
    assert len(mechanism.steps(found, xs[:0], others)[1]) == 0
    with pytest.raises(dp.errors.HorizonError):
        mechanism.steps(start, xs[: 51 - taken], others)


@pytest.mark.slow
@pytest.mark.exhaustive("dimension", "kind")
@every
@dimensions
@examples
@given(data=st.data())
def test_steps_and_release_agree_on_any_integers(kind, dimension, data):
    numbers = st.integers(-(2**40), 2**40)
    row = numbers if dimension is None else st.tuples(*[numbers] * dimension)
    xs = np.array(data.draw(st.lists(row, min_size=1, max_size=40)), dtype=np.int64)
    mechanism = kind(len(xs) + data.draw(st.integers(0, 300)))
    drawn = mechanism.draws(len(xs))
    seed = data.draw(st.integers(0, 2**32))
    stepped = random_script(drawn, dimension, seed, spread=2**40)
    whole = random_script(drawn, dimension, seed, spread=2**40)
    _, values = take_steps(mechanism, xs, stepped, dimension)
    released = mechanism.release(xs, whole)
    assert np.array_equal(released, values)
    assert whole.drawn == stepped.drawn == list(range(1, drawn + 1))


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "dimension", "kind")
@calibrated
@dimensions
@examples
@given(data=st.data())
def test_counter_steps_and_counter_releases_agree_on_any_numbers(kind, budget, dimension, data):
    numbers = st.floats(allow_nan=False, width=64) | st.integers() | st.floats(-4, 6)
    row = numbers if dimension is None else st.tuples(*[numbers] * dimension)
    xs = data.draw(st.lists(row, min_size=1, max_size=20))
    horizon = len(xs) + data.draw(st.integers(0, 50))
    counter = dp.calibrate(kind(horizon), budget, dp.Change(-3.0, 5.0), dimension, unit=0.125)
    seed = data.draw(st.integers(0, 2**32))
    drawn = counter.mechanism.draws(len(xs))
    stepped, whole = (random_script(drawn, dimension, seed) for _ in range(2))
    state, values = counter.init(), []
    for x in xs:
        state, value = counter.step(state, x, stepped)
        assert type(value) is float if dimension is None else value.shape == (dimension,)
        values.append(value)
    released = counter.release(xs, whole)
    assert released.dtype == np.float64
    assert np.array_equal(released, values)
    assert whole.drawn == stepped.drawn
    # And both are the sums of what `quantise` made of the inputs, plus decoded noise.
    fine = counter.resolution
    exact = expected(counter.mechanism, fine * np.array([counter.quantise(x) for x in xs]))
    noise = counter.mechanism.decoder(len(xs)) @ whole.z
    assert near(counter.mechanism, released / counter.grid, exact + noise, 64 * fine)


@pytest.mark.slow
@every
def test_each_noise_reaches_the_releases_with_the_decoders_weights(kind):
    """One vector stream in whose coordinate i only the i-th noise is large: its releases are L."""
    for horizon in (*SMALL, 100):
        mechanism = kind(horizon)
        for n in {horizon // 2, horizon} - {0}:
            L = mechanism.decoder(n)
            drawn = L.shape[1]
            nothing = np.zeros((n, drawn), dtype=np.int64)
            loud = Script(LOUD * np.eye(drawn, dtype=np.int64))
            assert same(mechanism.release(nothing, loud) / LOUD, L), (horizon, n)
            _, values = take_steps(mechanism, nothing, loud, drawn)
            assert same(values / LOUD, L), (horizon, n)


@pytest.mark.slow
@every
def test_each_noise_reaches_scalar_releases_with_the_decoders_weights(kind):
    for horizon in range(1, 13):
        mechanism = kind(horizon)
        L = mechanism.decoder(horizon)
        nothing = np.zeros(horizon, dtype=np.int64)
        for i, noise in enumerate(LOUD * np.eye(L.shape[1], dtype=np.int64)):
            assert same(mechanism.release(nothing, Script(noise)) / LOUD, L[:, i])
            assert same(take_steps(mechanism, nothing, Script(noise))[1] / LOUD, L[:, i])


@pytest.mark.slow
@pytest.mark.exhaustive("dimension", "kind")
@every
@dimensions
def test_releases_are_prefix_sums_plus_decoded_noise(kind, dimension):
    for horizon in (*SMALL, *LARGE):
        mechanism = kind(horizon)
        L = mechanism.decoder(horizon)
        xs, noise = random_inputs(horizon, dimension, 5), random_script(L.shape[1], dimension, 6)
        released = mechanism.release(xs, noise)
        assert near(mechanism, released, expected(mechanism, xs) + L @ noise.z, 100), horizon


@every
@dimensions
def test_an_empty_stream_releases_nothing(kind, dimension):
    noise = random_script(0, dimension)
    released = kind(7).release(np.zeros(shape(0, dimension), dtype=np.int64), noise)
    assert released.shape == shape(0, dimension)
    assert noise.drawn == []


@every
def test_matrices_of_no_steps_are_empty(kind):
    for horizon in (1, 7, 100):
        mechanism = kind(horizon)
        assert mechanism.decoder(0).shape == (0, 0)
        assert mechanism.encoder(0).shape == (0, 0)
        assert mechanism.row_norms2(0).shape == (0,)


# Errors known exactly


@pytest.mark.slow
@every
def test_row_norms_are_those_of_the_decoder(kind):
    for horizon in (*SMALL, *LARGE):
        mechanism = kind(horizon)
        norms = np.square(mechanism.decoder(horizon)).sum(axis=1)
        assert same(mechanism.row_norms2(horizon), norms), horizon
        assert same([mechanism.row_norm2(t) for t in range(1, horizon + 1)], norms), horizon
        assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-12), horizon
        assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12), horizon
        for n in (1, horizon // 3, horizon - 1):
            assert same(mechanism.row_norms2(n), norms[:n]), (horizon, n)


@pytest.mark.slow
@every
def test_row_norms_agree_with_each_other_at_long_horizons(kind):
    for horizon in (4095, 4096, 9999):
        mechanism = kind(horizon)
        norms = mechanism.row_norms2(horizon)
        assert norms.dtype == np.float64
        assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-12)
        assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)
        for t in (1, 2, 1023, 1024, 2047, 2048, 3000, horizon - 1, horizon):
            assert mechanism.row_norm2(t) == pytest.approx(norms[t - 1], rel=1e-12), (horizon, t)
            assert mechanism.row_norms2(t)[-1] == pytest.approx(norms[t - 1], rel=1e-12)


@pytest.mark.slow
@pytest.mark.exhaustive("dimension", "kind")
@every
@dimensions
def test_states_know_the_variance_of_the_release_that_led_to_them(kind, dimension):
    for horizon in SMALL:
        mechanism = kind(horizon)
        noise = random_script(mechanism.draws(horizon), dimension)
        states, _ = take_steps(mechanism, random_inputs(horizon, dimension, 7), noise, dimension)
        norms = [mechanism.state_row_norm2(state) for state in states]
        assert same(norms, mechanism.row_norms2(horizon)), horizon


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "dimension", "kind", "unit")
@calibrated
@dimensions
@pytest.mark.parametrize("unit", [1, 0.1])
def test_counters_give_the_variance_of_the_law_times_the_row_norms(kind, budget, dimension, unit):
    for horizon in (1, 2, 31, 40, 100):
        counter = dp.calibrate(kind(horizon), budget, dimension=dimension, unit=unit)
        of_a_draw = law_moments(counter.law)[0] * counter.grid**2
        variances = of_a_draw * np.square(counter.mechanism.decoder(horizon)).sum(axis=1)
        by_step = [counter.variance(t) for t in range(1, horizon + 1)]
        assert by_step == pytest.approx(variances, rel=1e-9)
        assert counter.max_variance() == pytest.approx(variances.max(), rel=1e-9)
        assert counter.mean_variance() == pytest.approx(variances.mean(), rel=1e-9)
        for n in (horizon // 2, horizon):
            assert counter.stddevs(n) == pytest.approx(np.sqrt(variances[:n]), rel=1e-9)
        noise = random_script(counter.mechanism.draws(horizon), dimension)
        state = counter.init()
        for t in range(horizon):
            state, _ = counter.step(state, counter.quantise_nothing(), noise)
            assert counter.stddev_at(state) == pytest.approx(np.sqrt(variances[t]), rel=1e-9)


# The noise that is really drawn. A release's mean square over 4000 independent coordinates has a
# standard error known from the law's fourth moment; 6.5 of them, two-sided, is below 1e-9 for a
# normal variable, and below 1e-8 allowing for the skewness of small laws: a false alarm in all of
# (members x laws x budgets x 40 releases) would have a rate below 1e-4, were the seed not fixed.

REPLICATES, STEPS, TOLERATED = 4000, 40, 6.5
budgets_of_all_sizes = pytest.mark.parametrize(
    ("kind", "budget"),
    [
        pytest.param(kind, budget, id=f"{kind.__name__}-{law}-{rho}")  # type: ignore[attr-defined]
        for kind in KINDS
        for rho in (0.05, 0.5, 5.0, 20.0)
        for law, budget in (("gaussian", dp.ZCDP(rho)), ("laplace", dp.PureDP((2 * rho) ** 0.5)))
        if law in ALLOWED[kind]
    ],
)


def replicated(kind, budget):
    """A counter whose coordinates are independent streams, and the standard errors."""
    change = dp.Change(coordinates=1)
    counter = dp.calibrate(kind(STEPS), budget, change, dimension=REPLICATES)
    weights = counter.mechanism.decoder(STEPS)
    variance, fourth = law_moments(counter.law)
    norms2, norms4 = np.square(weights).sum(axis=1), (weights**4).sum(axis=1)
    of_squares = norms4 * (fourth - 3 * variance**2) + 2 * (norms2 * variance) ** 2
    return counter, np.sqrt(of_squares / REPLICATES) * counter.grid**2


def mean_squares(counter, law, seed):
    xs = np.ones((STEPS, REPLICATES))
    released = counter.release(xs, SeededNoise(law, seed, REPLICATES))
    exact = expected(counter.mechanism, xs)
    return np.square(released - exact).mean(axis=1)


@pytest.mark.slow
@budgets_of_all_sizes
def test_releases_have_the_stated_variance(kind, budget):
    counter, standard_errors = replicated(kind, budget)
    stated = np.array([counter.variance(t) for t in range(1, STEPS + 1)])
    seen = mean_squares(counter, counter.law, seed=11)
    assert (np.abs(seen - stated) <= TOLERATED * standard_errors).all()


@pytest.mark.slow
@budgets_of_all_sizes
def test_releases_are_unbiased(kind, budget):
    """The mean over 4000 coordinates, within as many of its standard errors."""
    counter, _ = replicated(kind, budget)
    released = counter.release(
        np.ones((STEPS, REPLICATES)), SeededNoise(counter.law, 12, REPLICATES)
    )
    errors = released.mean(axis=1) - expected(counter.mechanism, np.ones(STEPS))
    assert (np.abs(errors) <= TOLERATED * counter.stddevs(STEPS) / REPLICATES**0.5).all()
    # It would see a shift by half a unit in every draw, where draws are not much wider than that.
    shifted = errors + 0.5 * np.abs(counter.mechanism.decoder(STEPS)).max(axis=1)
    if counter.law.scale < 2:
        assert (np.abs(shifted) > TOLERATED * counter.stddevs(STEPS) / REPLICATES**0.5).any()


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "factor", "kind")
@budgets_of_all_sizes
@pytest.mark.parametrize("factor", [Fraction(3, 2), Fraction(2, 3)], ids=["1.5x", "1/1.5"])
def test_noise_of_a_wrong_scale_does_not_have_the_stated_variance(kind, budget, factor):
    counter, standard_errors = replicated(kind, budget)
    if isinstance(counter.law, DiscreteGaussian):
        wrong = DiscreteGaussian(counter.law.sigma2 * factor**2)
    else:
        wrong = DiscreteLaplace(counter.law.parameter * factor)
    stated = np.array([counter.variance(t) for t in range(1, STEPS + 1)])
    shift = np.abs(wrong.variance / counter.law.variance - 1) * stated
    # 4000 coordinates cannot tell apart two laws of which neither ever differs from 0.
    assert (shift > 1.5 * TOLERATED * standard_errors).any() or counter.law.variance < 1e-3
    if (shift > 1.5 * TOLERATED * standard_errors).any():
        seen = mean_squares(counter, wrong, seed=11)
        assert (np.abs(seen - stated) > TOLERATED * standard_errors).any()


# States


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "dimension", "kind")
@calibrated
@dimensions
def test_a_stream_resumed_from_bytes_after_every_step_gives_the_same_numbers(
    kind, budget, dimension
):
    for horizon in (1, 2, 7, 31, 32, 100):
        counter = dp.calibrate(kind(horizon), budget, dp.Change(-5, 5), dimension)
        codec = StateCodec(counter)
        drawn = counter.mechanism.draws(horizon)
        xs = random_inputs(horizon, dimension, seed=3) // 20
        whole, resumed = (random_script(drawn, dimension, 4) for _ in range(2))
        state = kept = counter.init()
        for x in xs.tolist() if dimension is None else xs:
            data = codec.encode(kept)
            assert type(data) is bytes
            kept = StateCodec(counter).decode(data)
            assert equal_states(kept, state)
            state, value = counter.step(state, x, whole)
            kept, again = counter.step(kept, x, resumed)
            assert np.array_equal(value, again)
        assert equal_states(codec.decode(codec.encode(kept)), state)


@every
@dimensions
def test_a_step_changes_nothing_that_it_was_given(kind, dimension):
    for horizon in (1, 2, 7, 31, 32):
        mechanism = kind(horizon)
        drawn = mechanism.draws(horizon)
        xs, noise = random_inputs(horizon, dimension, 8), random_script(drawn, dimension, 9)
        given_xs, given_z = xs.copy(), noise.z.copy()
        state, states, copies = mechanism.init(dimension), [], []
        for x in xs.tolist() if dimension is None else xs:
            states.append(state)
            copies.append(copy.deepcopy(state))
            state, _ = mechanism.step(state, x, noise)
            assert type(state) is tuple
        assert all(equal_states(a, b) for a, b in zip(states, copies, strict=True))
        assert np.array_equal(xs, given_xs)
        assert np.array_equal(noise.z, given_z)
        mechanism.release(xs, noise)
        assert np.array_equal(xs, given_xs)
        assert np.array_equal(noise.z, given_z)


@every
def test_states_share_no_memory_with_inputs_or_releases(kind):
    mechanism = kind(31)
    drawn = mechanism.draws(31)
    xs = random_inputs(31, 3, seed=10)
    expected = mechanism.release(xs, random_script(drawn, 3))
    state, noise = mechanism.init(3), random_script(drawn, 3)
    for t in range(31):
        x = xs[t].copy()
        state, value = mechanism.step(state, x, noise)
        assert same(value, expected[t])
        x += 1000
        if value.flags.writeable:
            value += 1000


@every
def test_one_state_can_be_stepped_from_twice(kind):
    """A retried bundle steps again from the old state: with other inputs and other noise."""
    mechanism = kind(31)
    drawn = mechanism.draws(31)
    xs, others = random_inputs(31, None, 12), random_inputs(31, None, 13)
    expected = mechanism.release(xs, random_script(drawn))
    state, noise = mechanism.init(), random_script(drawn)
    for t in range(31):
        mechanism.step(state, int(others[t]), random_script(drawn, seed=99))
        state, value = mechanism.step(state, int(xs[t]), noise)
        assert same(value, expected[t])


def numbers_of(mechanism, state) -> int:
    """How many there are, those that are packed together one by one."""
    packed = isinstance(state[-1], bytes)
    return len(state) - packed + (len(mechanism._recurrence.widths) if packed else 0)


@pytest.mark.slow
@every
def test_states_are_as_large_as_stated(kind):
    reached = []
    for horizon in SMALL:
        mechanism = kind(horizon)
        noise = random_script(mechanism.draws(horizon))
        states, _ = take_steps(mechanism, random_inputs(horizon, None, 14), noise)
        sizes = [numbers_of(mechanism, state) for state in (mechanism.init(), *states)]
        assert max(sizes) <= mechanism.state_size, horizon
        reached.append(max(sizes) == mechanism.state_size)
    assert any(reached)


@every
@dimensions
def test_states_are_flat_and_count_the_steps(kind, dimension):
    mechanism = kind(20)
    noise = random_script(mechanism.draws(20), dimension)
    states, _ = take_steps(mechanism, random_inputs(20, dimension, 15), noise, dimension)
    for t, state in enumerate((mechanism.init(dimension), *states)):
        assert type(state) is tuple
        assert state[0] == t
        assert all(type(n) is int for n in state[: mechanism.counters])
        assert all(np.shape(v) == shape(1, dimension)[1:] for v in state[mechanism.counters :])


# Horizons


@every
@dimensions
def test_nothing_is_released_or_drawn_past_the_horizon(kind, dimension):
    for horizon in (1, 2, 7, 8):
        mechanism = kind(horizon)
        drawn = mechanism.draws(horizon)
        noise = random_script(drawn + 50, dimension)
        xs = random_inputs(horizon + 1, dimension, 16)
        states, _ = take_steps(mechanism, xs[:horizon], noise, dimension)
        assert len(noise.drawn) == drawn
        one = int(xs[-1]) if dimension is None else xs[-1]
        for past_the_end in (
            lambda m=mechanism, s=states[-1], x=one, z=noise: m.step(s, x, z),
            lambda m=mechanism, xs=xs, z=noise: m.release(xs, z),
        ):
            with pytest.raises(HorizonError, match="declare a larger horizon") as caught:
                past_the_end()
            assert str(horizon) in str(caught.value)
            assert str(horizon + 1) in str(caught.value)
            assert len(noise.drawn) == drawn


@every
def test_nothing_is_known_past_the_horizon(kind):
    mechanism = kind(10)
    for function in (mechanism.encoder, mechanism.decoder, mechanism.row_norms2):
        with pytest.raises(HorizonError, match="horizon of 10"):
            function(11)


@calibrated
def test_counters_stop_at_the_horizon(kind, budget):
    counter = dp.calibrate(kind(3), budget)
    noise = random_script(counter.mechanism.draws(3))
    state = counter.init()
    for x in (1, 0, 1):
        state, _ = counter.step(state, x, noise)
    with pytest.raises(dp.errors.HorizonError, match="step 4 is beyond the horizon of 3"):
        counter.step(state, 1, noise)
    with pytest.raises(dp.errors.HorizonError, match="4 steps do not fit the horizon of 3"):
        counter.release([1, 0, 1, 1])
    with pytest.raises(dp.errors.HorizonError, match="horizon of 3"):
        counter.stddevs(4)
    for t in (0, -1, 4):
        with pytest.raises(ValueError, match=f"from 1 to the horizon 3, got {t}"):
            counter.variance(t)


@every
@pytest.mark.parametrize("horizon", [0, -1, True, False, 2**48 + 1, 2**49])
def test_horizons_out_of_range_are_refused(kind, horizon):
    with pytest.raises(ValueError, match=r"from 1 to 2\^48") as caught:
        kind(horizon)
    assert repr(horizon) in str(caught.value)
    assert "e.g. horizon=100_000" in str(caught.value)


@every
@pytest.mark.parametrize("horizon", [1.5, 4.0, "x", None, [3], np.float64(4)])
def test_horizons_that_are_no_whole_numbers_are_refused(kind, horizon):
    with pytest.raises(TypeError, match="whole number") as caught:
        kind(horizon)
    assert repr(horizon) in str(caught.value)
    assert "e.g. horizon=100_000" in str(caught.value)


@every
def test_horizons_may_be_any_integer_in_range(kind):
    assert type(kind(np.int64(5)).horizon) is int
    assert kind(np.int64(5)) == kind(5)
    assert kind(MAX_HORIZON).horizon == 2**48


# Values


@every
def test_mechanisms_are_frozen_values(kind):
    mechanism = kind(12)
    assert mechanism == kind(12)
    assert hash(mechanism) == hash(kind(12))
    assert mechanism != kind(13)
    assert all(mechanism != other(12) for other in KINDS if other is not kind)
    assert mechanism.name == kind.__name__
    assert eval(repr(mechanism), {**vars(mechanisms), Momentum.__name__: Momentum}) == mechanism
    assert str(mechanism) == repr(mechanism)
    assert "horizon=12" in repr(mechanism)
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.horizon = 13


@calibrated
@dimensions
def test_mechanisms_and_counters_survive_pickling(kind, budget, dimension):
    mechanism = kind(12)
    counter = dp.calibrate(mechanism, budget, dimension=dimension)
    xs = random_inputs(12, dimension, 17)
    drawn = mechanism.draws(12)
    before = counter.release(xs, random_script(drawn, dimension))
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    again = pickle.loads(pickle.dumps(counter))
    assert again == counter
    assert hash(again) == hash(counter)
    assert np.array_equal(again.release(xs, random_script(drawn, dimension)), before)
    assert StateCodec(again).encode(again.init()) == StateCodec(counter).encode(counter.init())


def test_the_list_of_all_mechanisms_is_one_of_distinct_public_classes():
    assert type(mechanisms.ALL) is tuple
    names = [kind.__name__ for kind in mechanisms.ALL]
    assert len(set(names)) == len(names)
    for kind in mechanisms.ALL:
        assert getattr(mechanisms, kind.__name__) is kind
        assert kind.__name__ in mechanisms.__all__
        assert ALLOWED[kind]
        assert ALLOWED[kind] <= set(LAWS)


@every
def test_the_laws_that_a_mechanism_allows_decide_the_budgets_that_it_takes(kind):
    for law, budget in LAWS.items():
        if law in ALLOWED[kind]:
            assert dp.calibrate(kind(9), budget).law.variance > 0
        else:
            with pytest.raises(ValueError, match=f"^{kind.__name__} takes"):
                dp.calibrate(kind(9), budget)
    taken = dp.calibrate(kind(9), dp.ApproxDP(1, 1e-6))
    assert (
        type(taken.law).__name__.lower().removeprefix("discrete").removeprefix("rounded")
        in (ALLOWED[kind])
    )
