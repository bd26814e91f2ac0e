"""Counting without a horizon: variance, states, budgets, and an exact audit across three epochs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.budget.conversions import gaussian_sigma
from beam_dpcount.counters.counter import (
    TAKES_GAUSSIAN,
    TAKES_LAPLACE,
    Counter,
    UnsupportedBudgetError,
)
from beam_dpcount.counters.unbounded import UnboundedCounter
from beam_dpcount.mechanisms import (
    BinaryTree,
    Binned,
    Honaker,
    KAry,
    NormalizedBLT,
    SmoothBinary,
    SquareRoot,
    TwoLevel,
    Unbounded,
)
from beam_dpcount.mechanisms.base import MAX_HORIZON
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from beam_dpcount.states.codecs import StateCodec
from beam_dpcount.states.envelope import StateError
from tests.audit.epochs import (
    audit,
    converted,
    factors,
    keeps_budget,
    largest_loss,
    losses,
    noised,
    reaches,
    rounded_right,
    rounds,
)
from tests.audit.exact import close, law_moments, log_pmf
from tests.messages import says
from tests.numerics import same
from tests.rounding import ROUNDED, FedBackRoot, UncountedRounding, Unrounded, coarse
from tests.scripted import Script, SeededNoise, random_script

PURE, ZCDP, APPROX = dp.PureDP(1.0), dp.ZCDP(0.5), dp.ApproxDP(1.0, 1e-6)
# So much delta that totals take rounded Gaussian noise beside a base of Laplace noise.
MIXED = dp.ApproxDP(0.2, 0.1)


def ternary(horizon):
    return KAry(horizon, 3, subtraction=False)


CASES = [
    *[(kind, PURE) for kind in mechanisms.ALL if "laplace" in kind(1).laws],
    *[(kind, ZCDP) for kind in mechanisms.ALL if "gaussian" in kind(1).laws],
    *[(kind, APPROX) for kind in mechanisms.ALL],
    (ternary, PURE),
    (ternary, ZCDP),
    (KAry, MIXED),
]

cases = pytest.mark.parametrize(
    ("base", "budget"), CASES, ids=lambda p: getattr(p, "__name__", None) or type(p).__name__
)
shares = pytest.mark.parametrize("share", [0.5, 0.3])
dimensions = pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])


moments = functools.cache(law_moments)


def random_inputs(n, dimension, seed=3):
    return np.random.default_rng(seed).integers(
        -9, 10, (n,) if dimension is None else (n, dimension)
    )


def take_steps(counter, xs, noise):
    state, states, values = counter.init(), [], []
    for x in xs.tolist() if counter.dimension is None else xs:
        state, value = counter.step(state, x, noise)
        states.append(state)
        values.append(value)
    return states, np.array(values)


# Steps, releases, states


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.exhaustive("base", "budget", "share")
@cases
@shares
def test_the_factors_give_prefix_sums(base, budget, share):
    counter = dp.calibrate(Unbounded(base, share), budget)
    for n in (*range(1, 17), 30, 31, 32, 40):
        L, R, laws = factors(counter, n)
        assert len(laws) == len(R)
        assert close(L @ R, np.tri(n))


@pytest.mark.slow
@pytest.mark.exhaustive("base", "budget", "dimension")
@cases
@dimensions
def test_steps_and_releases_are_decoded_sums_and_draw_in_order(base, budget, dimension):
    counter = dp.calibrate(Unbounded(base), budget, dp.Change(-9, 9), dimension)
    L, R, laws = factors(counter, 70)
    xs, z = random_inputs(70, dimension), random_script(len(R), dimension, seed=4).z
    stepped = Script(z)
    _, values = take_steps(counter, xs, stepped)
    assert stepped.drawn == list(range(1, len(R) + 1))
    sums = np.cumsum(xs, axis=0) + L @ z
    if rounds(counter):
        _, silent = take_steps(counter, xs, Script(z * 0))
        q, reach = noised(counter, (L, R, laws), xs, silent), reaches(counter, 70, 18)
        assert rounded_right(q, R @ xs, reach)
        assert same(values, L @ (np.rint(q) + z))
        off = np.abs(values - sums).reshape(70, -1)
        assert (off <= (np.abs(L) @ reach)[:, None] * (1 + 1e-9) + 1e-9).all()
        assert off.max() < 0.01
    else:
        assert same(values, sums)
    for n in (*range(18), 31, 32, 63, 70):
        whole = Script(z)
        assert np.array_equal(counter.release(xs[:n], whole), values[:n])
        assert whole.drawn == list(range(1, len(factors(counter, n)[1]) + 1 if n else 1))


@pytest.mark.slow
@cases
def test_each_coordinate_of_a_vector_is_counted_for_itself(base, budget):
    scalar = dp.calibrate(Unbounded(base), budget, dp.Change(-18, 18))
    vector = dp.calibrate(Unbounded(base), budget, dp.Change(-9, 9), 3, unit=0.5)
    xs, z = random_inputs(33, 3), random_script(200, 3, seed=5).z
    released = vector.release(xs, Script(z))
    for i in range(3):
        expected = scalar.release(2 * xs[:, i].clip(-4, 4), Script(z[:, i]))
        halves = vector.release(xs.clip(-4, 4), Script(z))[:, i]
        assert np.array_equal(halves, expected / 2)
    assert released.shape == (33, 3)


@pytest.mark.long
@pytest.mark.exhaustive("base", "budget", "dimension")
@cases
@dimensions
def test_a_stream_resumed_from_bytes_after_every_step_gives_the_same_numbers(
    base, budget, dimension
):
    counter = dp.calibrate(Unbounded(base, 0.3), budget, dp.Change(-9, 9), dimension)
    codec, xs = StateCodec(counter), random_inputs(40, dimension)
    z = random_script(200, dimension, seed=6, spread=10**6).z
    expected, data = counter.release(xs, Script(z)), codec.encode(counter.init())
    for t in range(40):
        state = codec.decode(data)
        assert all(type(n) is int for n in state[: counter.counters])
        assert state[0] == t
        state, value = counter.step(state, xs[t].tolist(), Script(z))
        assert np.array_equal(value, expected[t]), t
        data = StateCodec(counter).encode(state)


@pytest.mark.long
@pytest.mark.exhaustive("base", "budget", "dimension")
@cases
@dimensions
def test_steps_change_nothing_and_share_no_memory(base, budget, dimension):
    counter = dp.calibrate(Unbounded(base), budget, dp.Change(-9, 9), dimension)
    xs, z = random_inputs(20, dimension), random_script(200, dimension, seed=7).z
    expected, state = counter.release(xs, Script(z)), counter.init()
    for t in range(20):
        before = StateCodec(counter).encode(state)
        counter.step(state, -xs[t], Script(z + 5))  # a retry that nobody sees
        x = xs[t].copy() if dimension else int(xs[t])
        after, value = counter.step(state, x, Script(z))
        assert np.array_equal(value, expected[t])
        assert StateCodec(counter).encode(state) == before
        if dimension:
            x += 1000
            value += 1000
        state = after


def test_state_bytes_of_other_parameters_are_refused():
    state = dp.calibrate(Unbounded(BinaryTree), PURE).init()
    data = StateCodec(dp.calibrate(Unbounded(BinaryTree), PURE)).encode(state)
    for other in (
        dp.calibrate(Unbounded(BinaryTree, 0.3), PURE),
        dp.calibrate(Unbounded(Honaker), PURE),
        dp.calibrate(Unbounded(BinaryTree), dp.PureDP(2.0)),
        dp.calibrate(Unbounded(BinaryTree), PURE, dp.Change(0, 2)),
        dp.calibrate(BinaryTree(2**10), dp.PureDP(0.5)),
        dp.calibrate(Honaker(2**10), dp.PureDP(0.5)),
    ):
        with pytest.raises(StateError, match=r"other parameters|corrupt"):
            StateCodec(other).decode(data)


@pytest.mark.long
@pytest.mark.slow
@cases
def test_the_fingerprint_has_those_of_the_bases_of_all_epochs(base, budget):
    """What a base's states depend on may be more than its arguments, such as fitted poles."""
    counter = dp.calibrate(Unbounded(base), budget)
    for i in range(MAX_HORIZON.bit_length()):
        assert counter.mechanism.of_epoch(i).fingerprint in counter.fingerprint


@pytest.mark.slow
@pytest.mark.exhaustive("base", "budget")
@cases
def test_states_are_as_large_as_stated(base, budget):
    counter = dp.calibrate(Unbounded(base), budget)
    states, _ = take_steps(counter, np.zeros(511, dtype=np.int64), Silence())

    def numbers_of(state, t):  # those that are packed together one by one
        if not isinstance(state[-1], bytes):
            return len(state)
        base = counter.of_epoch(Unbounded.place(t + 1)[0]).mechanism
        assert len(state[-1]) == base._recurrence.size
        return len(state) - 1 + len(base._recurrence.widths)

    most = numbers_of(counter.init(), 0)
    assert most <= counter.state_size(1)
    for t, state in enumerate(states, start=1):
        most = max(most, numbers_of(state, t))
        assert most <= counter.state_size(t), t
        bases = [5 + counter.of_epoch(i).state_size for i in range((t + 1).bit_length())]
        if t & (t + 1):
            assert counter.state_size(t) == max(bases)
        else:  # an epoch is over: the state is the first of the next
            assert max(bases[:-1]) <= counter.state_size(t) <= max(bases)
    # A base's largest state is dropped at once if it is that of its last step.
    assert most >= counter.state_size(510) - (2 if base is SquareRoot else 1)


def test_states_stay_as_small_as_those_of_the_base():
    assert (
        dp.calibrate(Unbounded(BinaryTree), PURE).state_size(2**40)
        == 5 + BinaryTree(2**40).state_size
    )
    assert dp.calibrate(Unbounded(TwoLevel), PURE).state_size(2**40) == 9


@pytest.mark.long
def test_counters_survive_pickling():
    for base, budget in CASES:
        counter = dp.calibrate(Unbounded(base, 0.3), budget)
        again = pickle.loads(pickle.dumps(counter))
        assert again == counter
        assert hash(again) == hash(counter)
        assert again.fingerprint == counter.fingerprint
        xs, z = np.ones(20), random_script(100).z
        assert np.array_equal(again.release(xs, Script(z)), counter.release(xs, Script(z)))


# It never ends


class Silence:
    """No noise, any number of coordinates."""

    def draw(self, first, n):
        return np.zeros(n, dtype=np.int64)

    def one(self, coordinate):
        return 0

    def for_law(self, law):
        return self


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "budget"), [(BinaryTree, PURE), (SmoothBinary, ZCDP), (NormalizedBLT, ZCDP)]
)
def test_a_million_steps_and_five(base, budget):
    counter, n = dp.calibrate(Unbounded(base), budget), 2**20 + 5
    assert counter.horizon == (2**31 - 1 if rounds(counter) else None)
    released = counter.release(np.ones(n, dtype=np.int64), Silence())
    if rounds(counter):
        assert np.abs(released - np.arange(1, n + 1)).max() < 0.01
    else:
        assert np.array_equal(released, np.arange(1, n + 1))
    stddevs = counter.stddevs(n)
    assert stddevs.shape == (n,)
    for t in (1, 2, 3, 1000, 2**19, 2**20 - 1, 2**20, n):
        assert stddevs[t - 1] == pytest.approx(math.sqrt(counter.variance(t)), rel=1e-12)


@pytest.mark.parametrize(("base", "last"), [(Binned, 14), (SquareRoot, 20), (NormalizedBLT, 30)])
def test_bases_of_limited_length_end_after_their_longest_epoch(base, last, monkeypatch):
    monkeypatch.setattr(base, "longest", 8)  # epochs 0 .. 3: a short one, to take all steps
    counter = dp.calibrate(Unbounded(base), ZCDP)
    assert counter.horizon == 15
    state = counter.init()
    for _ in range(15):
        state, _ = counter.step(state, 1, Silence())
    assert StateCodec(counter).decode(StateCodec(counter).encode(state)) == state
    for past_the_end in (
        lambda: counter.step(state, 1, Silence()),
        lambda: counter.release(np.ones(16), Silence()),
    ):
        with pytest.raises(dp.errors.HorizonError, match="15"):
            past_the_end()
    monkeypatch.undo()
    assert dp.calibrate(Unbounded(base), ZCDP).horizon == (2 << last) - 1


def test_bases_of_other_sums_are_refused():
    with pytest.raises(ValueError, match="base must release prefix sums"):
        Unbounded(lambda n: SquareRoot(n, momentum=0.5, decay=0.9))


@pytest.mark.parametrize(("base", "budget"), [(BinaryTree, PURE), (SmoothBinary, ZCDP)])
def test_steps_go_on_beyond_2_to_the_40(base, budget):
    """From a state at the end of an epoch, as 2^40 - 1 steps would leave it."""
    counter, t = dp.calibrate(Unbounded(base), budget), 2**40
    fresh, heads = counter.of_epoch(40).init(), counter.of_epoch(40).counters
    state = (t - 1, 7 * t, 7 * t, *fresh[:heads], 10**12, 0, *fresh[heads:])
    for x in (1, 0, 1):
        state, value = counter.step(state, x, Silence())
    assert state[0] == t + 2
    assert value == 10**12 + 2
    assert counter.stddev_at(state) == math.sqrt(counter.variance(t + 2))


def test_variance_at_2_to_the_40():
    """40 totals, and the first step of a base with that horizon: one draw of scale 41 / e1."""
    counter = dp.calibrate(Unbounded(BinaryTree), PURE)
    total, base = DiscreteLaplace(Fraction(2)), DiscreteLaplace(Fraction(82))
    assert counter.variance(2**40) == pytest.approx(40 * total.variance + base.variance)
    smooth = dp.calibrate(Unbounded(SmoothBinary), ZCDP)
    k = SmoothBinary(2**40).l2_sensitivity_squared
    assert smooth.variance(2**40) == pytest.approx(40 * 2 + 2 * k, rel=1e-6)
    assert dp.calibrate(Unbounded(KAry), APPROX).variance(2**40) > 0


@pytest.mark.parametrize("t", [0, -1])
def test_there_is_no_step_before_the_first(t):
    with pytest.raises(ValueError, match=f"t must be at least 1, got {t}"):
        dp.calibrate(Unbounded(BinaryTree), PURE).variance(t)


def test_epochs_double():
    places = [Unbounded.place(t) for t in range(1, 9)]
    assert places == [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (2, 4), (3, 1)]
    assert Unbounded(KAry).of_epoch(5) == KAry(32)
    assert Unbounded(BinaryTree).name == "Unbounded(BinaryTree)"


# Variance


@pytest.mark.exhaustive("base", "budget", "share", "unit")
@cases
@pytest.mark.parametrize(("share", "unit"), [(0.5, 1), (0.3, 0.25)])
def test_the_variance_is_that_of_the_factors_and_laws(base, budget, share, unit):
    counter = dp.calibrate(Unbounded(base, share), budget, unit=unit)
    L, _, laws = factors(counter, 40)
    of_rows = np.array([moments(law)[0] for law in laws])
    expected = np.square(L) @ of_rows * unit**2
    assert [counter.variance(t) for t in range(1, 41)] == pytest.approx(expected, rel=1e-9)
    assert counter.stddevs(40) == pytest.approx(np.sqrt(expected), rel=1e-9)
    for n in (0, 1, 7, 8):
        assert counter.stddevs(n) == pytest.approx(np.sqrt(expected[:n]), rel=1e-9)
    states, _ = take_steps(counter, np.zeros(40, dtype=np.int64), Silence())
    assert [counter.stddev_at(s) for s in states] == pytest.approx(np.sqrt(expected), rel=1e-9)


@shares
@pytest.mark.parametrize("rho", [0.01, 0.5])
@pytest.mark.parametrize("kind", [SmoothBinary, *ROUNDED])
def test_the_stated_formula_under_zcdp(kind, share, rho):
    """Var(t) = i/(2 rho_2) + Var_base,i(t - 2^i + 1; rho_1), to what a lattice adds."""
    counter = dp.calibrate(Unbounded(kind, share), dp.ZCDP(rho))
    rho_1, rho_2 = share * rho, (1 - share) * rho
    bases = [dp.calibrate(kind(2**i), dp.ZCDP(rho_1)) for i in range(8)]
    for t in range(1, 200):
        i = t.bit_length() - 1
        expected = i / (2 * rho_2) + bases[i].variance(t - 2**i + 1)
        assert counter.variance(t) == pytest.approx(expected, rel=1e-4)


@shares
def test_the_stated_formula_under_pure_dp(share):
    counter = dp.calibrate(Unbounded(BinaryTree, share), dp.PureDP(0.02))
    for t in range(1, 200):
        i = t.bit_length() - 1
        base = dp.calibrate(BinaryTree(2**i), dp.PureDP(0.02 * share))
        expected = i * 2 / (0.02 * (1 - share)) ** 2 + base.variance(t - 2**i + 1)
        assert counter.variance(t) == pytest.approx(expected, rel=1e-3)


# The noise that is really drawn: as in test_contract.py, a mean square over 4000 independent
# coordinates, and 6.5 standard errors: below 1e-8 a release, below 1e-5 in all, were the seed not
# fixed.

REPLICATES, TOLERATED = 4000, 6.5


def scaled(law, factor):
    """The same kind of law, its scale multiplied."""
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(law.parameter * factor)
    return dataclasses.replace(law, sigma2=law.sigma2 * factor**2)


class Streams(SeededNoise):
    """Seeded noise for several laws, all of whose scales are wrong by a factor."""

    def __init__(self, law, seed, dimension, factor=Fraction(1)):
        super().__init__(law, seed, dimension)
        self._factor = factor

    def for_law(self, law):
        made = Streams(scaled(law, self._factor), 0, self._dimension, self._factor)
        made._bytes = self._bytes
        return made


EMPIRICAL = pytest.mark.parametrize(
    ("base", "budget"),
    [
        (BinaryTree, PURE),
        (SmoothBinary, ZCDP),
        (KAry, APPROX),
        (KAry, MIXED),
        (NormalizedBLT, ZCDP),
        (Binned, APPROX),
    ],
    ids=lambda p: getattr(p, "__name__", None) or str(p),
)
LENGTHS = pytest.mark.parametrize("n", [15, 31])


def mean_squares(base, budget, share, n, factor=Fraction(1)):
    """Seen and stated variances of releases 1 .. n, and the standard errors of the former."""
    change = dp.Change(coordinates=1)
    counter = dp.calibrate(Unbounded(base, share), budget, change, REPLICATES)
    noise = Streams(counter.law, 17, REPLICATES, factor)
    released = counter.release(np.ones((n, REPLICATES)), noise)
    seen = np.square(released - np.arange(1, n + 1)[:, None]).mean(axis=1)

    L, _, laws = factors(dp.calibrate(Unbounded(base, share), budget), n)
    variance, fourth = np.array([moments(law) for law in laws]).T
    of_squares = L**4 @ (fourth - 3 * variance**2) + 2 * (L**2 @ variance) ** 2
    stated = np.array([counter.variance(t) for t in range(1, n + 1)])
    return seen, stated, np.sqrt(of_squares / REPLICATES)


@pytest.mark.exhaustive("base", "budget", "n", "share")
@EMPIRICAL
@shares
@LENGTHS
def test_releases_have_the_stated_variance(base, budget, share, n):
    seen, stated, errors = mean_squares(base, budget, share, n)
    assert (np.abs(seen - stated) <= TOLERATED * errors).all()
    assert (errors < stated / 15).all()


@EMPIRICAL
@pytest.mark.parametrize("factor", [Fraction(3, 2), Fraction(2, 3)], ids=["1.5x", "1/1.5"])
def test_noise_of_a_wrong_scale_does_not_have_the_stated_variance(base, budget, factor):
    """At every step, in every epoch."""
    seen, stated, errors = mean_squares(base, budget, 0.5, 15, factor)
    assert (np.abs(seen - stated) > TOLERATED * errors).all()


def test_totals_of_one_noise_do_not_have_the_stated_variance():
    """Were each total's noise the same draw, i of them would add up to i^2 variances."""

    class Repeating(Streams):
        def for_law(self, law):
            return SeededNoise(law, 5, self._dimension)

    change = dp.Change(coordinates=1)
    counter = dp.calibrate(Unbounded(BinaryTree, 0.9), PURE, change, REPLICATES)
    released = counter.release(np.ones((15, REPLICATES)), Repeating(counter.law, 1, REPLICATES))
    seen = np.square(released - np.arange(1, 16)[:, None]).mean(axis=1)
    assert seen[-1] > 1.5 * counter.variance(15)


# Budgets


@pytest.mark.exhaustive("base", "budget", "share")
@cases
@pytest.mark.parametrize("share", [0.5, 0.3, 1e-3, 1 - 1e-9])
def test_the_two_budgets_compose_to_the_whole(base, budget, share):
    counter = dp.calibrate(Unbounded(base, share), budget)
    parts = (counter.base_budget, counter.total_budget)
    assert counter.budget == budget
    if type(parts[0]) is dp.ZCDP:
        whole = budget.to_zcdp().rho
        shown = [part.rho for part in parts]
    else:
        whole = budget.epsilon
        shown = [part.epsilon for part in parts]
    assert type(parts[0]) is type(parts[1])
    assert sum(map(Fraction, shown)) <= Fraction(whole)
    assert shown == pytest.approx([share * whole, (1 - share) * whole], rel=1e-9)
    if type(parts[0]) is dp.ApproxDP:
        assert sum(Fraction(part.delta) for part in parts) <= Fraction(budget.delta)
    for i in range(4):
        assert counter.of_epoch(i).budget == counter.base_budget
        assert counter.of_epoch(i).mechanism == base(2**i)


def test_approximate_budgets_go_by_zcdp_where_the_base_can():
    for base in (BinaryTree, SmoothBinary, Honaker, ternary, *ROUNDED):
        counter = dp.calibrate(Unbounded(base), APPROX)
        assert type(counter.base_budget) is type(counter.total_budget) is dp.ZCDP
        assert type(counter.law) is type(counter.of_epoch(3).law) is DiscreteGaussian
    laplace_only = dp.calibrate(Unbounded(KAry), APPROX)
    assert laplace_only.base_budget == laplace_only.total_budget == dp.ApproxDP(0.5, 5e-7)
    assert type(laplace_only.of_epoch(3).law) is DiscreteLaplace


def test_totals_are_noised_for_all_that_a_step_may_change():
    def law(change, dimension=None, unit=1, budget=PURE):
        return dp.calibrate(Unbounded(BinaryTree), budget, change, dimension, unit).law

    assert law(dp.Change()) == DiscreteLaplace(Fraction(2))
    assert law(dp.Change(-1, 2)) == DiscreteLaplace(Fraction(6))
    assert law(dp.Change(), 3) == DiscreteLaplace(Fraction(6))
    assert law(dp.Change(coordinates=1), 3) == DiscreteLaplace(Fraction(2))
    assert law(dp.Change(), unit=0.25) == DiscreteLaplace(Fraction(8))
    assert law(dp.Change(), budget=ZCDP) == DiscreteGaussian(Fraction(2))
    assert law(dp.Change(-1, 2), 3, budget=ZCDP) == DiscreteGaussian(Fraction(2 * 3 * 9))


def test_totals_take_the_better_law_beside_a_base_that_takes_laplace_noise_only():
    few, many = (dp.calibrate(Unbounded(KAry), APPROX, dimension=d) for d in (1, 100))
    assert few.law == DiscreteLaplace(Fraction(2))
    sigma = Fraction(gaussian_sigma(0.5, 5e-7))
    assert many.law == RoundedGaussian(100 * sigma**2)
    assert many.law.variance < DiscreteLaplace(Fraction(200)).variance
    assert type(many.of_epoch(3).law) is DiscreteLaplace


@pytest.mark.parametrize("base", ROUNDED)
def test_totals_are_on_the_plain_lattice_whatever_the_base(base):
    """And every epoch has the lattice that its own horizon needs."""
    counter = dp.calibrate(Unbounded(base), ZCDP, unit=0.25)
    assert counter.law == dp.calibrate(Unbounded(BinaryTree), ZCDP, unit=0.25).law
    for i in range(8):
        alone = dp.calibrate(base(2**i), dp.ZCDP(0.25), unit=0.25)
        assert counter.of_epoch(i) == alone
        assert counter.of_epoch(i).resolution == alone.resolution > 1
    assert counter.of_epoch(7).resolution > counter.of_epoch(0).resolution


def test_bases_that_cannot_take_the_budget_are_refused():
    with pytest.raises(
        UnsupportedBudgetError, match=says(TAKES_GAUSSIAN, mechanism="SmoothBinary")
    ):
        dp.calibrate(Unbounded(SmoothBinary), PURE)
    with pytest.raises(UnsupportedBudgetError, match=says(TAKES_LAPLACE, mechanism="KAry")):
        dp.calibrate(Unbounded(KAry), ZCDP)


@pytest.mark.parametrize("base", [lambda n: BinaryTree(4), lambda n: BinaryTree(max(1, n // 2))])
def test_bases_with_too_short_a_horizon_are_refused_before_the_stream_starts(base):
    """Not by a HorizonError in the middle of a stream that was to go on for ever."""
    with pytest.raises((ValueError, TypeError)):
        dp.calibrate(Unbounded(base), PURE)


def test_a_base_that_cannot_take_the_budget_later_is_refused_before_the_stream_starts():
    """Here dp.choose takes KAry from 2^6 on, which has no Gaussian noise."""
    try:
        counter = dp.calibrate(Unbounded(lambda n: dp.choose(n, APPROX).mechanism), APPROX)
    except (TypeError, ValueError):
        return
    assert len(counter.release(np.ones(70))) == 70


@pytest.mark.parametrize(
    ("later", "dimension"), [(Honaker, None), (Honaker, 2), (KAry, None), (KAry, 2)]
)
def test_bases_of_several_kinds_are_carried_in_the_state_or_refused(later, dimension):
    """A base may look at the horizon, as dp.choose does: then states change their make-up."""
    try:
        counter = dp.calibrate(
            Unbounded(lambda n: later(n) if n > 2 else BinaryTree(n)), PURE, None, dimension
        )
    except (TypeError, ValueError):
        return
    codec, data = StateCodec(counter), None
    xs, z = np.abs(random_inputs(12, dimension)) > 4, random_script(60, dimension, seed=8).z
    expected = counter.release(xs, Script(z))
    for t in range(12):
        state = counter.init() if data is None else codec.decode(data)
        state, value = counter.step(state, xs[t].tolist(), Script(z))
        assert np.array_equal(value, expected[t])
        data = codec.encode(state)


# The exact audit of seven steps: three epochs, each with its base and its total


COARSE = [coarse(kind) for kind in ROUNDED]
AUDITED = [
    *CASES,
    # On these lattices rounding matters, and losses are exact.
    *itertools.product(COARSE, [ZCDP, APPROX, dp.ZCDP(5.0), dp.ApproxDP(3.0, 1e-3)]),
    (BinaryTree, dp.PureDP(0.3)),
    (KAry, dp.PureDP(4.0)),
    (SmoothBinary, dp.ZCDP(5.0)),
    (BinaryTree, dp.ZCDP(0.05)),
    (KAry, dp.ApproxDP(0.5, 1e-2)),
    (SmoothBinary, dp.ApproxDP(3.0, 1e-3)),
]


@pytest.mark.slow
@pytest.mark.exhaustive("base", "budget", "share")
@pytest.mark.parametrize(
    ("base", "budget"), AUDITED, ids=lambda p: getattr(p, "__name__", None) or str(p)
)
@shares
def test_bit_streams_keep_the_budget_across_epochs(base, budget, share):
    assert audit(dp.calibrate(Unbounded(base, share), budget)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("base", "budget"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_the_budget_is_spent(base, budget):
    """By the item in most nodes of its epoch's base; under pure DP and zCDP exactly, but for the
    1e-4 that rounding takes, at most, of the noise's scale."""
    counter = dp.calibrate(Unbounded(base), budget)
    worst = largest_loss(counter)
    laplace = type(counter.of_epoch(2).law) is type(counter.law) is DiscreteLaplace
    if isinstance(budget, dp.ApproxDP) and not laplace:
        assert 0.1 < worst <= 1  # through zCDP not all of delta is used
    else:
        assert 1 - (2.1e-4 if rounds(counter) else 1e-8) <= worst <= 1 + 1e-8


@pytest.mark.parametrize("other", [DiscreteGaussian(Fraction(2)), RoundedGaussian(Fraction(2))])
def test_the_losses_of_a_change_are_those_of_the_joint_law(other):
    """Two laws, three coordinates, by summing (P - e^epsilon Q)+ over all outputs."""
    laplace, steps = DiscreteLaplace(Fraction(1)), np.array([1, 2, 1])
    laws = [laplace, laplace, other]
    y = np.arange(-45, 46)

    def joint(times):
        logs = [log_pmf(law, y - times * d) for law, d in zip(laws, steps, strict=True)]
        return np.exp(logs[0][:, None, None] + logs[1][:, None] + logs[2])

    for epsilon in (0.5, 1.5, 2.5):
        direct = np.maximum(joint(0) - math.exp(epsilon) * joint(1), 0).sum()
        ((delta, _),) = losses(dp.ApproxDP(epsilon, 0.5), steps[:, None], laws)
        assert delta == pytest.approx(direct, rel=1e-6, abs=1e-12)


def test_the_losses_of_several_gaussian_coordinates_are_those_of_the_joint_law():
    laws = [DiscreteGaussian(Fraction(2)), *[DiscreteGaussian(Fraction(7, 2))] * 2]
    change, y = np.array([1, 2, 4]), np.arange(-45, 46)

    def joint(times):
        logs = [log_pmf(law, y - times * d) for law, d in zip(laws, change, strict=True)]
        return np.exp(logs[0][:, None, None] + logs[1][:, None] + logs[2])

    for epsilon in (0.5, 1.5, 2.5):
        direct = np.maximum(joint(0) - math.exp(epsilon) * joint(1), 0).sum()
        ((delta, _),) = losses(dp.ApproxDP(epsilon, 0.5), change[:, None], laws)
        assert delta == pytest.approx(direct, rel=1e-9, abs=1e-12)
        # What Renyi divergences prove is more, but not much.
        both = [(laws[0], (1,)), (laws[1], (2, 4))]
        assert direct < converted(both, epsilon) < 3 * direct


# What the audit must catch


class Instead:
    """Noise whose draws of one law are made by `one(source, coordinate)`."""

    def __init__(self, noise, law, one):
        self._noise, self._law, self._one = noise, law, one

    def for_law(self, law):
        source = self._noise.for_law(law)
        if law != self._law:
            return source
        made = Instead(source, law, self._one)
        made.one = lambda coordinate: self._one(source, coordinate)
        return made


class OtherTotals(UnboundedCounter):
    def step_lattice(self, state, x, noise):
        return super().step_lattice(state, x, Instead(noise, self.law, self.one))


class Reused(OtherTotals):
    """Takes for every total the noise of the first, under its coordinate."""

    def one(self, source, coordinate):
        return source.one(2)


class Remembered(OtherTotals):
    """Draws a noise for every total, and uses that of the first."""

    def one(self, source, coordinate):
        source.one(coordinate)
        return int(source.z[1])


class Bare(OtherTotals):
    """Closes an epoch with its exact total; the noise is drawn, and not used."""

    def one(self, source, coordinate):
        return source.one(coordinate) * 0


class Undrawn(OtherTotals):
    """Closes an epoch with its exact total."""

    def one(self, source, coordinate):
        return 0


class FineTotals(OtherTotals):
    """Puts the totals' noise on a lattice as fine as the base's, for which it is too small."""

    def one(self, source, coordinate):
        return source.one(coordinate) / self.of_epoch(3).resolution


class WrongLaw(UnboundedCounter):
    """Draws the totals' noise with the law of the base, which is less."""

    def step_lattice(self, state, x, noise):
        law = self.of_epoch(0).law
        other = Instead(noise, self.law, lambda source, c: source.for_law(law).one(c))
        return super().step_lattice(state, x, other)


class Restarted(UnboundedCounter):
    """Counts the coordinates of each epoch from 1 again: the noises of the epochs before."""

    def step_lattice(self, state, x, noise):
        state, value = super().step_lattice(state, x, noise)
        if state[1] == state[2]:
            state = (state[0], 0, 0, *state[3:])
        return state, value


class TwoEpochs(UnboundedCounter):
    """Counts the last item of an epoch in the total of the next as well."""

    def step_lattice(self, state, x, noise):
        after, value = super().step_lattice(state, x, noise)
        if after[1] != state[1]:
            c = self.counters
            after = (*after[: c + 1], x, *after[c + 2 :])
        return after, value


class AllSoFar(UnboundedCounter):
    """Totals of all items so far, with one noise each: an item is in every later total."""

    def step_lattice(self, state, x, noise):
        after, value = super().step_lattice(state, x, noise)
        if after[1] != state[1]:
            c = self.counters
            after = (*after[:c], after[c] - state[c], state[c + 1] + x, *after[c + 2 :])
        return after, value


MUTANTS = [
    (Reused, "order"),
    (Remembered, "factorization"),
    (Bare, "factorization"),
    (Undrawn, "order"),
    (WrongLaw, "laws"),
    (WrongLaw, "budget"),
    (Restarted, "order"),
    (TwoEpochs, "affine"),
    (AllSoFar, "factorization"),
]
MUTATED = [
    (BinaryTree, PURE),
    (SmoothBinary, ZCDP),
    (KAry, APPROX),
    (SquareRoot, ZCDP),
    (NormalizedBLT, APPROX),
    (coarse(Binned), ZCDP),
]
mutated_cases = pytest.mark.parametrize(("base", "budget"), MUTATED)


def mutated(kind, counter):
    given = {f.name: getattr(counter, f.name) for f in dataclasses.fields(counter)}
    if isinstance(counter.mechanism, RoundedMechanism):  # its inputs may be others
        given["mechanism"] = dataclasses.replace(counter.mechanism)
    return kind(**given)


@pytest.mark.slow
@pytest.mark.exhaustive("base", "budget", "check", "mutant")
@pytest.mark.parametrize(
    ("base", "budget", "mutant", "check"),
    [
        (base, budget, mutant, check)
        for base, budget in MUTATED
        for mutant, check in MUTANTS
        # On a finer lattice a base's law is the wider one.
        if not (check == "budget" and issubclass(base, RoundedMechanism))
    ],
    ids=lambda p: getattr(p, "__name__", None) or str(p),
)
def test_mutants_are_caught(base, budget, mutant, check):
    if check == "budget" and isinstance(budget, dp.ApproxDP):
        budget = PURE
    # With most of the budget for the base, its first epochs have less noise than a total.
    counter = dp.calibrate(Unbounded(base, 0.8), budget)
    assert audit(counter) == []
    assert check in audit(mutated(mutant, counter))


class Unscaled(Counter):
    """Steps in whole units, where noise is for parts of them."""

    def step_units(self, state, x, noise):
        return self.mechanism.step(state, x, noise)


class Undivided(Counter):
    """Steps in parts of units, and gives them out as units."""

    def step_units(self, state, x, noise):
        return self.mechanism.step(state, x * self.resolution, noise)


class Finer(Counter):
    """Steps in parts half as large as those that the noise is for."""

    @property
    def resolution(self):
        return 2 * self.mechanism.resolution(self.change.magnitude(self.unit))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.exhaustive("base", "check", "mutant")
@pytest.mark.parametrize("base", [*ROUNDED, *COARSE], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (Unscaled, "factorization"),
        (Undivided, "factorization"),
        (Finer, "budget"),
        (FineTotals, "factorization"),
    ],
)
def test_mutants_of_lattices_are_caught(base, mutant, check):
    counter = dp.calibrate(Unbounded(base), ZCDP)
    if mutant is FineTotals:
        assert check in audit(mutated(mutant, counter))
        return

    class OtherBases(UnboundedCounter):
        def of_epoch(self, i):
            return mutated(mutant, super().of_epoch(i))

    assert check in audit(mutated(OtherBases, counter))


@pytest.mark.slow
@pytest.mark.exhaustive("base", "budget", "check")
@pytest.mark.parametrize("budget", [ZCDP, APPROX], ids=str)
@pytest.mark.parametrize(
    ("base", "check"),
    [(Unrounded, "affine"), (FedBackRoot, "affine"), (UncountedRounding, "budget")],
)
def test_bases_that_round_wrongly_are_caught(base, check, budget):
    assert check in audit(dp.calibrate(Unbounded(base), budget))


@pytest.mark.slow
@mutated_cases
def test_totals_with_twice_their_budget_are_caught(base, budget):
    counter = dp.calibrate(Unbounded(base), budget)
    if isinstance(counter.law, DiscreteGaussian):
        law = DiscreteGaussian(counter.law.sigma2 / 2)
    else:
        law = DiscreteLaplace(counter.law.parameter / 2)
    assert audit(dataclasses.replace(counter, law=law)) == ["budget"]


@pytest.mark.slow
@mutated_cases
def test_a_base_with_the_whole_budget_is_caught(base, budget):
    counter = dp.calibrate(Unbounded(base), budget)
    assert audit(dataclasses.replace(counter, base_budget=budget)) == ["budget"]


@pytest.mark.parametrize(("base", "budget"), [(BinaryTree, PURE), (SmoothBinary, ZCDP)])
def test_an_item_in_two_epochs_exceeds_the_budget(base, budget):
    """Item 3 in the total of the third epoch as well; or every item in every later total."""
    _, R, laws = factors(dp.calibrate(Unbounded(base), budget), 7)
    assert keeps_budget(budget, R, laws)
    one_more = R.copy()
    one_more[-1, 2] = 1
    assert not keeps_budget(budget, one_more, laws)
    all_so_far = R.copy()
    all_so_far[-1] = 1
    assert not keeps_budget(budget, all_so_far, laws)
