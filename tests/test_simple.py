"""The two-level mechanism with every kind of block, and closed forms of the baselines."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.mechanisms import Simple1, Simple2, TwoLevel
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace
from tests.audit.exact import audit
from tests.scripted import Script, random_script, resumed

HORIZONS = (*range(1, 41), 64, 100)


def blocks(horizon):
    """1, 2, about the root, some that do not divide, the whole, and all but one."""
    root = round(math.sqrt(horizon))
    chosen = {1, 2, 3, 7, root, root + 1, horizon // 2, horizon - 1, horizon}
    return sorted(b for b in chosen if 1 <= b <= horizon)


def pairs(horizons=HORIZONS):
    return [(horizon, block) for horizon in horizons for block in blocks(horizon)]


# The contract, for given blocks


def test_the_factorization_and_what_follows_from_it():
    for horizon, block in pairs():
        mechanism = TwoLevel(horizon, block)
        L, R = mechanism.decoder(horizon), mechanism.encoder(horizon)
        assert L.shape == R.shape == (horizon, horizon)
        assert np.array_equal(L @ R, np.tri(horizon)), mechanism
        assert R.sum(axis=0).max() == mechanism.l1_sensitivity == (1 if block == 1 else 2)
        assert mechanism.l2_sensitivity_squared == mechanism.l1_sensitivity
        # Drawn when complete: coordinate t holds nothing after item t.
        assert not np.triu(R, 1).any()
        norms = L.sum(axis=1)
        assert norms.tolist() == [t // block + t % block for t in range(1, horizon + 1)]
        assert np.array_equal(mechanism.row_norms2(horizon), norms)
        assert [mechanism.row_norm2(t) for t in range(1, horizon + 1)] == norms.tolist()
        assert mechanism.max_row_norm2() == norms.max(), mechanism
        assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12), mechanism


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])
def test_steps_give_the_releases_and_the_published_sums(dimension):
    """Release t: the exact sum, the noises of the full blocks, those of the items since."""
    tail = () if dimension is None else (dimension,)
    for horizon, block in pairs():
        mechanism = TwoLevel(horizon, block)
        xs = np.random.default_rng(horizon).integers(-100, 101, (horizon, *tail))
        stepped, whole = (random_script(horizon, dimension, seed=block) for _ in range(2))
        released = mechanism.release(xs, whole)
        assert whole.drawn == list(range(1, horizon + 1))
        state = mechanism.init(dimension)
        for t in range(1, horizon + 1):
            x = int(xs[t - 1]) if dimension is None else xs[t - 1]
            state, value = mechanism.step(state, x, stepped)
            full = t // block * block
            of_blocks = whole.z[block - 1 : full : block].sum(axis=0)
            since = whole.z[full:t].sum(axis=0)
            assert np.array_equal(value, xs[:t].sum(axis=0) + of_blocks + since), (mechanism, t)
            assert np.array_equal(released[t - 1], value)
            assert stepped.drawn == list(range(1, t + 1))
            assert len(state) == mechanism.state_size == 4
            assert mechanism.state_row_norm2(state) == mechanism.row_norm2(t)


def test_shorter_releases_are_the_beginnings_of_longer_ones():
    for block in (1, 2, 7, 10, 50, 99, 100):
        mechanism, z = TwoLevel(100, block), random_script(100).z
        xs = np.arange(100)
        whole = mechanism.release(xs, Script(z))
        for n in range(101):
            assert np.array_equal(mechanism.release(xs[:n], Script(z)), whole[:n])


def test_a_stream_resumed_from_bytes_after_every_step_gives_the_same_numbers():
    for block in (1, 2, 7, 30, 50):
        counter = dp.calibrate(TwoLevel(50, block), dp.ZCDP(0.5), dp.Change(-9, 9))
        z, xs = random_script(50, seed=2).z, np.random.default_rng(3).integers(-9, 10, 50)
        assert np.array_equal(resumed(counter, xs, Script(z))[1], counter.release(xs, Script(z)))


def test_the_worked_example_of_blocks_of_three():
    """Blocks (1 2 3) and (4 5 6) have the noises 3 and 6."""
    nothing = np.zeros((7, 7), dtype=np.int64)
    seen = TwoLevel(7, 3).release(nothing, Script(np.eye(7)))
    terms = [tuple(np.flatnonzero(row) + 1) for row in seen]
    assert terms == [(1,), (1, 2), (3,), (3, 4), (3, 4, 5), (3, 6), (3, 6, 7)]


# Blocks


def test_blocks_of_one_are_the_second_baseline():
    one, baseline = TwoLevel(50, 1), Simple2(50)
    xs, z = np.arange(50), random_script(50).z
    assert np.array_equal(one.release(xs, Script(z)), baseline.release(xs, Script(z)))
    assert dp.calibrate(one, dp.PureDP(1)).law == dp.calibrate(baseline, dp.PureDP(1)).law


def test_the_default_block_is_the_rounded_root():
    for horizon in (*range(1, 200), 10**6, 10**6 + 1, 2**48):
        block = TwoLevel(horizon).size
        assert TwoLevel(horizon) == TwoLevel(horizon, block)
        # round(sqrt(T)) is the m with m (m-1) < T <= m (m+1).
        assert block * (block - 1) < horizon <= block * (block + 1)


def test_blocks_up_to_the_horizon_are_taken():
    assert TwoLevel(10, 10).l1_sensitivity == 2
    assert TwoLevel(1, 1).l1_sensitivity == 1
    assert TwoLevel(10, 3) != TwoLevel(10, 4)
    assert TwoLevel(10, 3) == TwoLevel(10) == eval(repr(TwoLevel(10)))


@pytest.mark.parametrize("budget", [dp.PureDP(1.0), dp.ZCDP(0.5), dp.ApproxDP(0.5, 1e-2)], ids=str)
def test_bit_streams_keep_the_budget_whatever_the_block(budget):
    for horizon in (1, 2, 3, 6):
        for block in range(1, horizon + 1):
            assert audit(dp.calibrate(TwoLevel(horizon, block), budget)) == [], (horizon, block)


class OneOfTwo(TwoLevel):
    """Forgets that an item lies in a block as well."""

    @property
    def l1_sensitivity(self):
        return 1


class LeftOver(TwoLevel):
    """Keeps the items' noises of the last block."""

    def step(self, state, x, noise):
        items = state[3]
        state, value = super().step(state, x, noise)
        if state[0] % self.size == 0:
            return (*state[:3], items), value + items
        return state, value


@pytest.mark.parametrize(("mutant", "check"), [(OneOfTwo, "budget"), (LeftOver, "factorization")])
def test_mutants_are_caught(mutant, check):
    assert check in audit(dp.calibrate(mutant(6, 3), dp.PureDP(1)))


# Any length


class Constant:
    """Noise that is the same for every coordinate, and has any number of them."""

    def one(self, coordinate):
        return 5


@pytest.mark.parametrize("kind", [Simple1, Simple2, TwoLevel, lambda n: TwoLevel(n, 7)])
def test_states_hold_the_same_few_numbers_whatever_the_length(kind):
    """At step 10^9 as at step 1, and a step costs the same."""
    long, short = kind(10**9), kind(10)
    assert long.state_size == short.state_size == len(long.init())
    state = (10**9 - 1, *(10**8 for _ in long.init()[1:]))
    state, value = long.step(state, 1, Constant())
    assert len(state) == long.state_size
    assert state[:2] == (10**9, 10**8 + 1)
    assert value > 10**8
    with pytest.raises(dp.errors.HorizonError):
        long.step(state, 1, Constant())


def test_closed_forms_of_the_baselines_at_a_billion():
    horizon = 10**9
    one, two = Simple1(horizon), Simple2(horizon)
    assert one.max_row_norm2() == one.mean_row_norm2() == one.row_norm2(12345) == 1
    assert two.max_row_norm2() == horizon
    assert two.mean_row_norm2() == (horizon + 1) / 2
    assert two.row_norm2(12345) == 12345
    assert dp.calibrate(one, dp.ZCDP(0.5)).law == DiscreteGaussian(Fraction(horizon))
    assert dp.calibrate(two, dp.ZCDP(0.5)).law == DiscreteGaussian(Fraction(1))
    # The first's variance is the horizon at every step, up to a discrete law's deviation.
    assert dp.calibrate(one, dp.ZCDP(0.5)).variance(12345) == pytest.approx(horizon, rel=1e-12)
    assert dp.calibrate(Simple1(horizon), dp.PureDP(2)).law == DiscreteLaplace(Fraction(horizon, 2))
    assert dp.calibrate(Simple2(horizon), dp.PureDP(2)).law == DiscreteLaplace(Fraction(1, 2))


@pytest.mark.parametrize("block", [1, 2, 1000, 31622, 31623, 999_999, 10**9 // 2, 10**9 - 1, 10**9])
def test_closed_forms_of_two_levels_at_a_billion(block):
    """floor(t/B) + t mod B = t - (B-1) floor(t/B), whose sum counts the multiples of B."""
    horizon = 10**9
    mechanism = TwoLevel(horizon, block)
    full, rest = divmod(horizon, block)
    sum_of_floors = block * full * (full - 1) // 2 + full * (rest + 1)
    total = horizon * (horizon + 1) // 2 - (block - 1) * sum_of_floors
    assert mechanism.mean_row_norm2() == pytest.approx(total / horizon, rel=1e-14)
    near = [t for m in (full, full - 1) for t in (m * block - 1, m * block + block - 1, horizon)]
    largest = max(t // block + t % block for t in near if 1 <= t <= horizon)
    assert mechanism.max_row_norm2() == largest
    assert mechanism.row_norm2(horizon) == full + rest
    assert mechanism.state_size == 4


def test_two_levels_over_a_million_steps():
    for horizon, block in [(10**6, 1000), (10**6 - 1, 1000), (10**6, 999), (10**6, 7)]:
        mechanism = TwoLevel(horizon, block)
        t = np.arange(1, horizon + 1)
        norms = t // block + t % block
        assert mechanism.max_row_norm2() == norms.max()
        assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)


def test_the_default_block_is_within_a_step_of_the_best():
    """T/B + B is least at the root of T."""
    for horizon in (100, 900, 1000, 10_000):
        least = min(TwoLevel(horizon, b).max_row_norm2() for b in range(1, horizon + 1))
        assert TwoLevel(horizon).max_row_norm2() <= least + 1
