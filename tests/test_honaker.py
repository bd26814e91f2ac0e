"""Honaker's estimates: published errors, the rule followed in exact arithmetic, and that nothing
but noised lattice values ever reaches a release."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.mechanisms import BinaryTree, Honaker
from beam_dpcount.states.codecs import OTHER_COUNTER, StateCodec
from beam_dpcount.states.envelope import StateError
from tests.messages import says
from tests.scripted import Script, random_script

examples = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def bits(values):
    """The bytes of floats: equal only if every bit is."""
    return np.asarray(values, dtype="<f8").tobytes()


def take_steps(mechanism, xs, noise, dimension=None):
    state, values = mechanism.init(dimension), []
    for x in xs.tolist() if dimension is None else xs:
        state, value = mechanism.step(state, x, noise)
        values.append(value)
    return np.array(values)


# Errors


@pytest.mark.parametrize(("horizon", "largest"), [(2**10, 63.83), (1023, 58.03)])
def test_published_errors(horizon, largest):
    counter = dp.calibrate(Honaker(horizon), dp.ZCDP(0.5))
    assert counter.max_variance() == pytest.approx(largest, abs=0.005)
    by_step = np.square(counter.stddevs(horizon))
    assert by_step.max() == pytest.approx(largest, abs=0.005)
    assert np.argmax(by_step) == 1022  # all bits of 1023


def test_variances_follow_from_the_estimates_by_induction():
    """v^2 + (1-v)^2 2 V(j-1), from V(0) = 1, is least at v = V(j) = 1/(2 (1 - 2^-(j+1)))."""
    of_height = [Fraction(1)]
    for _ in range(19):
        children = 2 * of_height[-1]
        weight = children / (1 + children)  # of its own sum: the inverse of the variances
        of_height.append(weight**2 + (1 - weight) ** 2 * children)
    for j, variance in enumerate(of_height):
        assert variance == 1 / (2 * (1 - Fraction(1, 2 ** (j + 1))))
        assert Honaker(2**19).row_norm2(2**j) == pytest.approx(float(variance), rel=1e-14)
    for t in (3, 5, 6, 1000, 2**19 - 1):
        expected = sum(v for j, v in enumerate(of_height) if t >> j & 1)
        assert Honaker(2**19).row_norm2(t) == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [2**20 - 1, 2**20, 2**20 + 12345])
def test_closed_forms_over_a_million_steps(horizon):
    mechanism = Honaker(horizon)
    norms = mechanism.row_norms2(horizon)
    assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-12)
    assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)


def test_no_pass_over_the_horizon():
    mechanism = Honaker(2**40 - 1)
    assert mechanism.l1_sensitivity == mechanism.l2_sensitivity_squared == 40
    # 40 one-bits, of which half are set in the mean; a node's variance comes to 1/2.
    assert 20 < mechanism.max_row_norm2() < 20 + 0.5 + 1 / 6 + 1 / 14 + 1 / 30 + 1 / 31
    assert mechanism.mean_row_norm2() == pytest.approx(mechanism.max_row_norm2() / 2, rel=1e-9)
    assert mechanism.state_size == 81
    assert Honaker(2**40).l1_sensitivity == 41
    assert Honaker(5).l1_sensitivity == 3  # and not log2(5), as code in circulation has it


def test_about_half_of_the_binary_tree_at_the_same_sensitivity():
    for horizon in (2**10 - 1, 2**20 - 1):
        tree, mechanism = BinaryTree(horizon), Honaker(horizon)
        assert mechanism.l1_sensitivity == tree.l1_sensitivity
        assert 0.5 < mechanism.max_row_norm2() / tree.max_row_norm2() < 0.6


# The rule


def stack_of(xs, z):
    """Releases in exact arithmetic, from the rule as written; z in the order of the draws."""
    z = iter(z)
    stack, releases = [], []
    for x in xs:
        stack.append((0, Fraction(x), Fraction(x + next(z))))
        while len(stack) > 1 and stack[-1][0] == stack[-2][0]:
            (height, s_right, e_right), (_, s_left, e_left) = stack.pop(), stack.pop()
            total = s_left + s_right
            v = 1 / (2 * (1 - Fraction(1, 2 ** (height + 2))))
            estimate = v * (total + next(z)) + (1 - v) * (e_left + e_right)
            stack.append((height + 1, total, estimate))
        releases.append(sum(estimate for _, _, estimate in stack))
    assert next(z, None) is None
    return releases


@pytest.mark.slow
@pytest.mark.parametrize("spread", [10, 2**40])
def test_steps_and_releases_follow_the_rule(spread):
    """To some 50 bits of the largest number in sight."""
    for horizon in (*range(1, 70), 127, 128, 129, 300):
        mechanism = Honaker(horizon)
        rng = np.random.default_rng(horizon)
        xs = rng.integers(-spread, spread + 1, horizon)
        noise = random_script(mechanism.draws(horizon), seed=horizon, spread=spread)
        exact = [float(value) for value in stack_of(xs.tolist(), noise.z.tolist())]
        largest = np.abs(np.cumsum(np.abs(xs))).max() + spread
        stepped = take_steps(mechanism, xs, noise)
        assert stepped == pytest.approx(exact, rel=0, abs=largest * 2**-48)
        assert bits(stepped) == bits(mechanism.release(xs, Script(noise.z)))


def test_the_first_releases_by_hand():
    """v_1 = 2/3: node (1, 2) is 2/3 of its own sum and 1/3 of its children's."""
    z = [3, 6, 12, -9]
    seen = take_steps(Honaker(3), np.array([1, 1, 1]), Script(z))
    assert seen == pytest.approx([1 + 3, 2 + 2 / 3 * 12 + (3 + 6) / 3, 3 + 11 - 9])


def test_draws_are_one_and_the_trailing_zeros_of_each_step():
    mechanism, noise, state = Honaker(64), random_script(Honaker(64).draws(64)), (0,)
    for t in range(1, 65):
        before = len(noise.drawn)
        state, _ = mechanism.step(state, 1, noise)
        assert len(noise.drawn) - before == 1 + ((t & -t).bit_length() - 1)


# Nothing but y = s + z


def same_lattice_values(mechanism, n, rng, spread, tail=()):
    """Two streams and two noises with the same R x + z, and nothing else in common."""
    R = mechanism.encoder(n).astype(np.int64)
    xs, others = rng.integers(-spread, spread + 1, (2, n, *tail))
    z = rng.integers(-spread, spread + 1, (len(R), *tail))
    others_z = z + R @ (xs - others)
    assert (R @ xs + z == R @ others + others_z).all()
    return (xs, z), (others, others_z)


@pytest.mark.parametrize("spread", [3, 1000, 2**40])
def test_releases_are_functions_of_the_noised_sums_alone(spread):
    """Two streams whose noised sums agree give the same releases in every bit.

    Were noise added to a number that had been weighted before, roundings would differ.
    """
    rng = np.random.default_rng(spread)
    for horizon in (1, 2, 3, 7, 8, 31, 64, 100, 257):
        mechanism = Honaker(horizon)
        (xs, z), (others, others_z) = same_lattice_values(mechanism, horizon, rng, spread)
        assert bits(take_steps(mechanism, xs, Script(z))) == bits(
            take_steps(mechanism, others, Script(others_z))
        )
        assert bits(mechanism.release(xs, Script(z))) == bits(
            mechanism.release(others, Script(others_z))
        )


@pytest.mark.slow
@examples
@given(data=st.data())
def test_releases_of_any_streams_are_functions_of_the_noised_sums(data):
    numbers = st.integers(-(2**45), 2**45)
    horizon = data.draw(st.integers(1, 40))
    mechanism = Honaker(horizon)
    seed = data.draw(st.integers(0, 2**32))
    (xs, z), _ = same_lattice_values(mechanism, horizon, np.random.default_rng(seed), 2**45)
    others = np.array(data.draw(st.lists(numbers, min_size=horizon, max_size=horizon)))
    R = mechanism.encoder(horizon).astype(np.int64)
    one = take_steps(mechanism, xs, Script(z))
    other = take_steps(mechanism, others, Script(z + R @ (xs - others)))
    assert bits(one) == bits(other)


def test_counters_give_the_same_bits_too():
    counter = dp.calibrate(Honaker(100), dp.PureDP(1), dp.Change(-50, 50), 2, unit=0.1)
    pair = same_lattice_values(counter.mechanism, 100, np.random.default_rng(5), 500, (2,))
    (xs, z), (others, others_z) = pair
    # Inputs in units of 0.1 come back to the lattice values that they are made of.
    assert (counter.quantise_all(xs * 0.1) == xs).all()
    one, other = (
        counter.release(xs * 0.1, Script(z)),
        counter.release(others * 0.1, Script(others_z)),
    )
    assert bits(one) == bits(other)
    states = [counter.init()] * 2
    for t in range(100):
        for i, (stream, noise) in enumerate(pair):
            states[i], value = counter.step(states[i], stream[t] * 0.1, Script(noise))
            assert bits(value) == bits(one[t])
        assert states[0][2::2] is not states[1][2::2]
        assert bits(states[0][2::2]) == bits(states[1][2::2])  # estimates; exact sums differ


class NoisedLate(Honaker):
    """The same in exact arithmetic, but noise is weighted by itself and added to a float."""

    def step(self, state, x, noise):
        t = self.next_step(state)
        coordinate = 2 * (t - 1) - (t - 1).bit_count() + 1
        height = (t & -t).bit_length() - 1
        stack, merged = state[1 : len(state) - 2 * height], state[len(state) - 2 * height :]
        total, estimate = x, float(x) + noise.one(coordinate)
        for j in range(1, height + 1):
            left_sum, left = merged[len(merged) - 2 * j], merged[len(merged) - 2 * j + 1]
            v = 1 / (2 * (1 - 0.5 ** (j + 1)))
            total = left_sum + total
            estimate = v * total + (1 - v) * (left + estimate) + v * noise.one(coordinate + j)
        state = (t, *stack, total, estimate)
        return state, sum(state[2::2])


def test_noise_in_floating_point_would_be_seen():
    mechanism, rng = NoisedLate(64), np.random.default_rng(1)
    (xs, z), (others, others_z) = same_lattice_values(mechanism, 64, rng, 1000)
    one = take_steps(mechanism, xs, Script(z))
    assert one == pytest.approx(take_steps(Honaker(64), xs, Script(z)), rel=1e-12)
    other = take_steps(mechanism, others, Script(others_z))
    assert one == pytest.approx(other, abs=1e-9)
    assert bits(one) != bits(other)


# States


@pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])
@pytest.mark.parametrize("unit", [1, 0.1])
def test_states_round_trip_bit_for_bit(dimension, unit):
    """Estimates are floats with many digits: all bits must come back, and give the same bits."""
    counter = dp.calibrate(Honaker(130), dp.ZCDP(0.5), dp.Change(-100, 100), dimension, unit)
    codec, rows = StateCodec(counter), counter.mechanism.draws(130)
    tail = () if dimension is None else (dimension,)
    xs = np.random.default_rng(8).uniform(-100, 100, (130, *tail))
    z = random_script(rows, dimension, seed=9, spread=10**6).z
    state = kept = counter.init()
    with_fractions = 0
    for t in range(130):
        kept = codec.decode(codec.encode(kept))
        assert len(kept) == len(state)
        for one, other in zip(kept, state, strict=True):
            assert np.asarray(one).dtype == np.asarray(other).dtype
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        with_fractions += any(np.any(e % 1 != 0) for e in state[2::2])
        state, value = counter.step(state, xs[t], Script(z))
        kept, again = counter.step(kept, xs[t], Script(z))
        assert bits(value) == bits(again)
        assert counter.state_types(len(kept)) == "q" + "qd" * ((len(kept) - 1) // 2)
    assert with_fractions > 100


def test_floats_are_kept_as_their_eight_bytes():
    counter = dp.calibrate(Honaker(4), dp.ZCDP(0.5))
    codec = StateCodec(counter)
    for estimate in (-0.0, 1 / 3, 2.0**60 + 2.0**8, 5e-324, -1e300):
        data = codec.encode((1, 7, estimate))
        assert struct.pack("<d", estimate) in data
        assert bits(codec.decode(data)[2]) == bits(estimate)
        assert type(codec.decode(data)[1]) is int


def test_bytes_that_hold_an_impossible_number_of_values_are_refused():
    """A stack has pairs, so a state is odd; bytes of a mechanism with others must say so."""
    counter = dp.calibrate(Honaker(4), dp.ZCDP(0.5))
    data = StateCodec(counter).encode(counter.init())
    tree = dp.calibrate(BinaryTree(4), dp.ZCDP(0.5))
    with pytest.raises(StateError, match=says(OTHER_COUNTER)):
        StateCodec(counter).decode(StateCodec(tree).encode(tree.init()))
    with pytest.raises(StateError, match="corrupt"):
        StateCodec(counter).decode(data + bytes(8))
