"""k-ary trees beyond the defaults: every kind of radices, the rule itself, the choice of radices.

The generic suite (test_contract.py) covers KAry(horizon). Here are given arities, uniform and
mixed, with and without subtraction; the rule followed block by block; and the sums over digits
behind the closed forms, against brute force.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.counters.counter import TAKES_LAPLACE, UnsupportedBudgetError
from beam_dpcount.mechanisms import BridgedKAry, KAry
from beam_dpcount.mechanisms.digits import digits, largest_cost, total_cost
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from beam_dpcount.states.codecs import StateCodec
from tests.audit.exact import audit
from tests.messages import says
from tests.scripted import Script, random_script

WITH = [3, 5, 7, (3, 5, 9), (9, 3, 5), [7, 3, 7], (5, 3, 3, 3), (129,), (3, 3, 3, 3, 3, 3)]
WITHOUT = [2, 3, 4, 5, 7, (2, 5, 3, 4), (7, 2, 5), [4, 3, 2, 7], (65,), (2, 2, 2, 2, 2, 2, 2, 2)]
PARAMETERS = [(arity, True) for arity in WITH] + [(arity, False) for arity in WITHOUT]

parameters = pytest.mark.parametrize(
    ("arity", "subtraction"),
    PARAMETERS,
    ids=lambda p: {True: "with", False: "without"}[p] if isinstance(p, bool) else str(p),
)
both = pytest.mark.parametrize("subtraction", [True, False], ids=["with", "without"])
examples = settings(max_examples=150, deadline=None, derandomize=True, database=None)


# The contract, for given radices


@pytest.mark.slow
@parameters
def test_the_factorization_and_what_follows_from_it(arity, subtraction):
    """L R = A; sensitivities and variances are those of the matrices; a prefix is a corner."""
    whole = KAry(64, arity, subtraction)
    whole_L, whole_R = whole.decoder(64), whole.encoder(64)
    for horizon in range(1, 65):
        mechanism = KAry(horizon, arity, subtraction)
        L, R = mechanism.decoder(horizon), mechanism.encoder(horizon)
        assert R.shape == (mechanism.draws(horizon), horizon)
        assert np.array_equal(L @ R, np.tri(horizon)), horizon
        assert set(np.unique(R)) <= {0, 1}
        assert set(np.unique(L)) <= ({-1, 0, 1} if subtraction else {0, 1})
        assert R.sum(axis=0).max() == mechanism.l1_sensitivity, horizon
        assert mechanism.l2_sensitivity_squared == mechanism.l1_sensitivity
        # For other horizons a uniform arity differs by empty levels on top only.
        assert np.array_equal(L, whole_L[:horizon, : len(R)]), horizon
        assert np.array_equal(R, whole_R[: len(R), :horizon]), horizon

        norms = np.abs(L).sum(axis=1)
        assert np.array_equal(mechanism.row_norms2(horizon), norms)
        assert [mechanism.row_norm2(t) for t in range(1, horizon + 1)] == norms.tolist()
        assert mechanism.max_row_norm2() == norms.max()
        assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.exhaustive("arity", "dimension", "subtraction")
@parameters
@pytest.mark.parametrize("dimension", [None, 2], ids=["scalar", "vector"])
def test_steps_give_the_releases_and_draw_each_coordinate_once_in_order(
    arity, subtraction, dimension
):
    tail = () if dimension is None else (dimension,)
    for horizon in range(1, 65) if dimension is None else (1, 2, 5, 13, 40, 64):
        mechanism = KAry(horizon, arity, subtraction)
        rows = mechanism.draws(horizon)
        xs = np.random.default_rng(horizon).integers(-100, 101, (horizon, *tail))
        stepped, whole = (random_script(rows, dimension, seed=horizon) for _ in range(2))
        released = mechanism.release(xs, whole)
        assert whole.drawn == list(range(1, rows + 1))
        assert np.array_equal(
            released - np.cumsum(xs, axis=0), mechanism.decoder(horizon) @ whole.z
        )
        state, sizes = mechanism.init(dimension), [4]
        assert len(state) == 4
        for t in range(1, horizon + 1):
            x = int(xs[t - 1]) if dimension is None else xs[t - 1]
            state, value = mechanism.step(state, x, stepped)
            assert np.array_equal(value, released[t - 1]), (horizon, t)
            assert stepped.drawn == list(range(1, mechanism.draws(t) + 1)), (horizon, t)
            assert state[:2] == (t, mechanism.draws(t))
            assert mechanism.state_row_norm2(state) == mechanism.row_norm2(t)
            sizes.append(len(state))
        assert max(sizes) == mechanism.state_size, horizon


@pytest.mark.slow
@parameters
def test_shorter_releases_draw_what_their_steps_draw(arity, subtraction):
    mechanism = KAry(64, arity, subtraction)
    xs = np.arange(64)
    z = random_script(mechanism.draws(64)).z
    whole = mechanism.release(xs, Script(z))
    for n in range(65):
        script = Script(z)
        assert np.array_equal(mechanism.release(xs[:n], script), whole[:n])
        assert script.drawn == list(range(1, mechanism.draws(n) + 1))


@parameters
def test_a_stream_resumed_from_bytes_after_every_step_gives_the_same_numbers(arity, subtraction):
    counter = dp.calibrate(KAry(64, arity, subtraction), dp.PureDP(1), dp.Change(-9, 9))
    codec, z = StateCodec(counter), random_script(counter.mechanism.draws(64), seed=2).z
    xs = np.random.default_rng(3).integers(-9, 10, 64)
    expected, resumed, data = counter.release(xs, Script(z)), Script(z), None
    for t in range(64):
        state = counter.init() if data is None else codec.decode(data)
        state, value = counter.step(state, int(xs[t]), resumed)
        assert value == expected[t]
        data = codec.encode(state)


# The rule


def block_by_block(horizon, radices, balanced):
    """For t = 1 .. horizon, the signed blocks of release t, straight from the published rule.

    Digits d_i of t, top first, P = 0: at level i, a = P / w_i; d_i > 0 adds the blocks
    a .. a+d_i-1, d_i < 0 takes away a-1 .. a-|d_i|; then P += d_i w_i. Block b of level i holds the
    items b w_i + 1 .. (b+1) w_i.
    """
    weights = [math.prod(radices[:i]) for i in range(len(radices))]
    for t in range(1, horizon + 1):
        found, rest = [], t
        for k, w in zip(radices, weights, strict=True):
            # The one digit in range that leaves a multiple of the next weight.
            span = range(-(k // 2), k // 2 + 1) if balanced else range(k)
            (digit,) = (d for d in span if (rest - d * w) % (w * k) == 0)
            found.append(digit)
            rest -= digit * w
        assert rest == 0
        place, blocks = 0, {}
        for i in reversed(range(len(radices))):
            a, remainder = divmod(place, weights[i])
            assert remainder == 0
            d = found[i]
            blocks |= {(i, b): 1 for b in range(a, a + d)}
            blocks |= {(i, b): -1 for b in range(a + d, a)}
            place += d * weights[i]
        assert place == t
        covered = sum(sign * weights[i] for (i, _), sign in blocks.items())
        assert covered == t
        yield blocks


def noise_of(block):
    """Noise that is a function of the block alone."""
    level, b = block
    return (7919 * level + 104729 * b + 13) % 2003 - 1001


def follow_the_rule(mechanism):
    """Check every release against the rule, under noise keyed by block; and the draws' order.

    A block is drawn at its first use; the new blocks of one step low level first, left to right.
    """
    horizon = mechanism.horizon
    releases = list(block_by_block(horizon, mechanism.radices, mechanism.subtraction))
    drawn = {}
    for blocks in releases:
        for block in sorted(set(blocks) - set(drawn)):
            drawn[block] = noise_of(block)
    script = Script(list(drawn.values()) or np.zeros(0))
    xs = np.arange(horizon) % 11 - 4
    exact = np.cumsum(xs)
    expected = [
        exact[t] + sum(sign * drawn[block] for block, sign in blocks.items())
        for t, blocks in enumerate(releases)
    ]
    assert mechanism.release(xs, Script(script.z)).tolist() == expected
    state = mechanism.init()
    for t in range(horizon):
        state, value = mechanism.step(state, int(xs[t]), script)
        assert value == expected[t], (mechanism, t + 1)
    assert len(script.drawn) == len(drawn) == mechanism.draws(horizon)
    return releases


@pytest.mark.slow
@both
def test_the_default_follows_the_rule_at_every_horizon(subtraction):
    for horizon in range(1, 201):
        follow_the_rule(KAry(horizon, subtraction=subtraction))


@parameters
def test_given_radices_follow_the_rule(arity, subtraction):
    for horizon in (1, 2, 5, 13, 40, 64):
        follow_the_rule(KAry(horizon, arity, subtraction))
    if isinstance(arity, int):
        follow_the_rule(KAry(200, arity, subtraction))


def test_the_worked_example_of_balanced_digits():
    """Arity 3: 2 = 3 - 1, 5 = 9 - 3 - 1. Block (level, number), minus where it is taken away."""
    releases = follow_the_rule(KAry(5, 3))
    assert releases == [
        {(0, 0): 1},
        {(1, 0): 1, (0, 2): -1},
        {(1, 0): 1},
        {(1, 0): 1, (0, 3): 1},
        {(2, 0): 1, (1, 2): -1, (0, 5): -1},
    ]


def test_noise_is_drawn_early_with_subtraction_and_only_then():
    for arity, subtraction in [(None, True), (None, False), *PARAMETERS]:
        mechanism = KAry(40, arity, subtraction)
        R = mechanism.encoder(40)
        early = [t for t in range(1, 40) if R[: mechanism.draws(t), t:].any()]
        assert mechanism.draws_early == subtraction
        # Blocks of a single item are complete when they are first used.
        assert bool(early) == (subtraction and mechanism.l1_sensitivity > 1), mechanism
    # Taken away at t = 2: block 0 of level 1 (items 1 .. 3) is used before item 3 has come.
    R = KAry(3, 3).encoder(3)
    assert R[:3].tolist() == [[1, 0, 0], [0, 0, 1], [1, 1, 1]]
    assert KAry(3, 3).draws(2) == 3


# The choice of radices


def cost(mechanism):
    """The mean variance under Laplace noise, in units of 1/epsilon^2: 2 Delta_1^2 a draw."""
    return 2 * mechanism.l1_sensitivity**2 * mechanism.mean_row_norm2()


@pytest.mark.parametrize(
    ("horizon", "arity", "levels", "error"), [(10**3, 13, 3, 170.35), (10**6, 19, 5, 1142.53)]
)
def test_published_best_arities(horizon, arity, levels, error):
    by_arity = {k: cost(KAry(horizon, k)) for k in range(3, 200, 2)}
    best = min(by_arity, key=by_arity.__getitem__)
    assert best == arity
    assert KAry(horizon, arity).l1_sensitivity == levels
    assert by_arity[best] == pytest.approx(error, abs=0.005)
    assert cost(KAry(horizon)) <= by_arity[best]


@pytest.mark.exhaustive
@both
def test_the_default_is_never_worse_than_one_arity_for_all_levels(subtraction):
    """For T <= 300 every arity up to a single level; beyond, all that a few levels could want."""
    rng = np.random.default_rng(0)
    horizons = [*range(1, 301), *np.unique(np.exp(rng.uniform(6, np.log(1e7), 50)).astype(int))]
    for horizon in map(int, horizons):
        top = (2 if subtraction else 1) * horizon + 2
        arities = range(3, min(top, 99) + 1, 2) if subtraction else range(2, min(top, 75) + 1)
        default = cost(KAry(horizon, subtraction=subtraction))
        best = min(cost(KAry(horizon, k, subtraction)) for k in arities)
        assert default <= best * (1 + 1e-12), horizon


@both
def test_the_default_is_the_best_of_all_mixtures_at_short_horizons(subtraction):
    first, by = (3, 2) if subtraction else (2, 1)

    def fitting(horizon, radices=()):
        reach = (math.prod(radices) - 1) // by
        if reach >= horizon:
            yield radices
        elif len(radices) < 4:
            for k in range(first, by * horizon + 2, by):
                yield from fitting(horizon, (*radices, k))

    for horizon in (1, 2, 3, 4, 5, 7, 8, 12, 13, 14, 20):
        best = min(cost(KAry(horizon, radices, subtraction)) for radices in fitting(horizon))
        assert cost(KAry(horizon, subtraction=subtraction)) == pytest.approx(best, rel=1e-12)


def test_mixed_radices_are_better_than_any_single_one_at_a_million():
    assert KAry(10**6).radices == (17, 19, 19, 19, 19)
    assert cost(KAry(10**6)) == pytest.approx(1138.0, abs=0.05)


def even_digits(t, k):
    """Those of [APT24, Definition C.1], -k/2 + 1 .. k/2, lowest first; k is even."""
    found = []
    while t.any():
        digit = t % k
        digit = np.where(digit > k // 2, digit - k, digit)
        found.append(digit)
        t = (t - digit) // k
    return np.array(found)


def test_even_arities_with_subtraction_gain_nothing_that_bridges_do_not():
    """[APT24, Appendix C]: not offered. The mean variance, in the units of `cost`."""
    steps = np.arange(1, 201)
    best = np.full(len(steps), np.inf)
    for k in (*range(2, 42, 2), 2 * len(steps)):
        found = even_digits(steps, k)
        costs, levels = np.abs(found).sum(axis=0), (found != 0).cumsum(axis=0).argmax(axis=0) + 1
        assert (found.T @ k ** np.arange(len(found)) == steps).all()
        height = np.maximum.accumulate(levels)
        best = np.minimum(best, 2 * height**2 * np.cumsum(costs) / steps)
    ratio = np.array([best[t - 1] / cost(KAry(t)) for t in steps.tolist()])
    assert (round(ratio.min(), 3), round(ratio.max(), 3)) == (0.957, 1.038)
    bridged = np.array([cost(BridgedKAry(t)) for t in steps.tolist()])
    assert (best >= bridged * (1 - 1e-12)).all()
    assert best[99] == pytest.approx(1.277 * bridged[99], rel=1e-3)
    # [APT24, Claim 1]: a digit costs k / 4 on average, for (k - 1/k) / 4 of an odd k.
    for k in (4, 20):
        within = np.abs(even_digits(np.arange(1, k**3 // 2 + 1), k)[:2]).mean(axis=1)
        assert within == pytest.approx([k / 4] * 2, rel=0.02)


@both
def test_the_default_fits_the_longest_horizon(subtraction):
    mechanism = KAry(2**48, subtraction=subtraction)
    largest = sum(k // 2 if subtraction else k - 1 for k in mechanism.radices)
    assert 0 < mechanism.mean_row_norm2() < mechanism.max_row_norm2() <= largest
    assert mechanism.state_size == 4 + mechanism.max_row_norm2() < 200
    by = 2 if subtraction else 1
    assert (math.prod(mechanism.radices) - 1) // by >= 2**48
    assert mechanism.l1_sensitivity == len(mechanism.radices)


# Sums over digits


def radix_lists(balanced):
    odd_or_any = st.sampled_from([3, 5, 7, 9, 11]) if balanced else st.integers(2, 9)
    return st.lists(odd_or_any, min_size=1, max_size=5)


@lru_cache(maxsize=512)
def costs(radices, balanced, top):
    """sum |d_i| of t = 1 .. top, by building the numbers from all their digits."""
    found, weight = {0: 0}, 1
    for k in radices:
        span = range(-(k // 2), k // 2 + 1) if balanced else range(k)
        found = {
            t + d * weight: c + abs(d)
            for t, c in found.items()
            for d in span
            if t + d * weight <= top + weight * k
        }
        weight *= k
    return [found[t] for t in range(1, top + 1)]


@pytest.mark.slow
@examples
@given(data=st.data(), balanced=st.booleans())
def test_sums_and_maxima_of_digit_costs_are_those_of_brute_force(data, balanced):
    radices = tuple(data.draw(radix_lists(balanced)))
    reach = (math.prod(radices) - 1) // (2 if balanced else 1)
    top = data.draw(st.integers(1, min(reach, 2000)) | st.just(min(reach, 2000)))
    expected = costs(radices, balanced, top)
    assert total_cost(top, radices, balanced) == sum(expected)
    assert largest_cost(top, radices, balanced) == max(expected)


@pytest.mark.slow
@examples
@given(data=st.data(), balanced=st.booleans())
def test_digits_are_in_range_and_give_the_number_back(data, balanced):
    radices = data.draw(radix_lists(balanced))
    t = data.draw(st.integers(0, (math.prod(radices) - 1) // (2 if balanced else 1)))
    found = digits(t, radices, balanced)
    assert sum(d * math.prod(radices[:i]) for i, d in enumerate(found)) == t
    for d, k in zip(found, radices, strict=True):
        assert -(k // 2) <= d <= k // 2 if balanced else 0 <= d < k


@pytest.mark.parametrize("balanced", [True, False])
def test_every_number_of_some_radices_is_summed_right(balanced):
    for radices in [(3, 5, 7), (7, 3, 3), (3, 3, 3, 3), (31,)]:
        top = (math.prod(radices) - 1) // (2 if balanced else 1)
        expected = costs(radices, balanced, top)
        for t in range(1, top + 1):
            assert total_cost(t, radices, balanced) == sum(expected[:t])
            assert largest_cost(t, radices, balanced) == max(expected[:t])


# Refusals, budgets


@pytest.mark.parametrize("arity", [2, 4, 1, 0, -3, (3, 4, 5), (3, 1), (5, -5)])
def test_arities_out_of_range_are_refused_with_subtraction(arity):
    with pytest.raises(ValueError, match="odd and at least 3 with subtraction") as caught:
        KAry(5, arity)
    assert repr(arity) in str(caught.value)


@pytest.mark.parametrize("arity", [1, 0, -2, (2, 1, 4), (0,)])
def test_arities_out_of_range_are_refused_without(arity):
    with pytest.raises(ValueError, match="arity must be at least 2") as caught:
        KAry(5, arity, subtraction=False)
    assert repr(arity) in str(caught.value)


@pytest.mark.parametrize(
    ("horizon", "arity", "subtraction", "reach"),
    [
        (5, (3, 3), True, 4),
        (53, (3, 5, 7), True, 52),
        (5, (5,), False, 4),
        (30, (2, 3, 5), False, 29),
        (1, (), True, 0),
    ],
)
def test_radices_too_few_for_the_horizon_are_refused(horizon, arity, subtraction, reach):
    with pytest.raises(ValueError, match="add a level or leave arity out") as caught:
        KAry(horizon, arity, subtraction)
    assert str(arity) in str(caught.value)
    assert f"reach {reach} steps" in str(caught.value)
    assert f"horizon {horizon}" in str(caught.value)
    if reach:
        assert KAry(reach, arity, subtraction).row_norm2(reach) > 0


def test_radices_are_kept_as_given_and_hashable():
    assert KAry(9, [3, 5, 3]) == KAry(9, (3, 5, 3))
    assert hash(KAry(9, [3, 5, 3])) == hash(KAry(9, (3, 5, 3)))
    assert KAry(9, [3, 5, 3]).radices == (3, 5, 3)
    assert eval(repr(KAry(9, (3, 5, 3)))) == KAry(9, (3, 5, 3)) != KAry(9, (3, 3, 5))
    assert KAry(9) != KAry(9, subtraction=False)


def test_gaussian_noise_is_refused_with_subtraction():
    for arity in (None, 3, (3, 5, 3)):
        mechanism = KAry(9, arity)
        assert mechanism.laws == {"laplace"}
        refusal = says(TAKES_LAPLACE, mechanism="KAry", budget=dp.ZCDP(0.5))
        with pytest.raises(UnsupportedBudgetError, match=refusal):
            dp.calibrate(mechanism, dp.ZCDP(0.5))
        levels = mechanism.l1_sensitivity
        for budget in (dp.PureDP(2.0), dp.ApproxDP(2.0, 1e-6), dp.ApproxDP(2.0, 0.5)):
            assert dp.calibrate(mechanism, budget).law == DiscreteLaplace(Fraction(levels, 2))


def test_gaussian_noise_is_taken_without_subtraction():
    mechanism = KAry(26, 3, subtraction=False)
    assert mechanism.l1_sensitivity == 3
    assert dp.calibrate(mechanism, dp.ZCDP(0.5)).law == DiscreteGaussian(Fraction(3))
    assert dp.calibrate(mechanism, dp.PureDP(1)).law == DiscreteLaplace(Fraction(3))
    assert type(dp.calibrate(mechanism, dp.ApproxDP(1, 0.1)).law) is RoundedGaussian
    assert type(dp.calibrate(mechanism, dp.ApproxDP(1, 1e-12)).law) is DiscreteLaplace


# The exact audit

AUDITED_WITH = [None, 3, 5, (3, 3, 3), (5, 3), (3, 5), (13,)]
AUDITED_WITHOUT = [None, 2, 3, (2, 4), (4, 2), (3, 3), (7,)]


@pytest.mark.slow
@pytest.mark.exhaustive("arity", "epsilon", "subtraction")
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize(
    ("arity", "subtraction"),
    [(arity, True) for arity in AUDITED_WITH] + [(arity, False) for arity in AUDITED_WITHOUT],
    ids=str,
)
def test_bit_streams_keep_the_budget(arity, subtraction, epsilon):
    for horizon in range(1, 7):
        assert audit(dp.calibrate(KAry(horizon, arity, subtraction), dp.PureDP(epsilon))) == []


def test_other_budgets_are_kept_too():
    for arity, subtraction in [((5, 3), True), (3, False), ((2, 4), False)]:
        for budget in (dp.ApproxDP(1.0, 1e-6), dp.ApproxDP(0.5, 1e-2), dp.ZCDP(0.5)):
            if not subtraction or not isinstance(budget, dp.ZCDP):
                assert audit(dp.calibrate(KAry(6, arity, subtraction), budget)) == []


class Uncounted(KAry):
    """Forgets that an item lies in a block of the top level too."""

    @property
    def l1_sensitivity(self):
        return super().l1_sensitivity - 1


class Backwards(KAry):
    """Adds where it should take away."""

    def step(self, state, x, noise):
        state, value = super().step(state, x, noise)
        found = digits(state[0], self.radices, self.subtraction)
        if found[0] < 0:
            value = value + 2 * sum(state[3 : 3 - found[0]])
        return state, value


class Forgetful(KAry):
    """Draws the first block anew when it is used again."""

    def step(self, state, x, noise):
        if state[0] == 3 and self.radices[0] == 3:
            state = (*state[:3], noise.one(1), *state[4:])
        return super().step(state, x, noise)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [(Uncounted, "budget"), (Backwards, "factorization"), (Forgetful, "order")],
)
def test_mutants_are_caught(mutant, check):
    assert check in audit(dp.calibrate(mutant(6, 3), dp.PureDP(1)))
