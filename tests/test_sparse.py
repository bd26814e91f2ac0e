"""Counting by segments: the rule by hand, the bound in simulation, and an exact privacy audit."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.counter import TAKES_GAUSSIAN, TAKES_LAPLACE
from beam_dpcount.counters.sparse import SparseCounter, sparse_for
from beam_dpcount.mechanisms import (
    BinaryTree,
    Honaker,
    KAry,
    Simple2,
    SmoothBinary,
    Sparse,
    SquareRoot,
)
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from beam_dpcount.states.codecs import OTHER_COUNTER, StateCodec
from beam_dpcount.states.envelope import StateError
from tests.audit.counters import OneSegment
from tests.audit.exact import log_pmf
from tests.audit.segments import distributions, largest_loss, worst_loss
from tests.messages import says
from tests.rounding import ROUNDED
from tests.scripted import Script, SeededBytes

PURE = dp.PureDP(1.0)
COUNTERS = [
    (BinaryTree, PURE),
    (KAry, PURE),
    (Honaker, PURE),
    (SmoothBinary, dp.ZCDP(0.5)),
    (BinaryTree, dp.ApproxDP(1.0, 1e-6)),
    *itertools.product(ROUNDED, [dp.ZCDP(0.5), dp.ApproxDP(1.0, 1e-6)]),
]
counters = pytest.mark.parametrize(
    ("kind", "budget"), COUNTERS, ids=lambda p: getattr(p, "__name__", None) or type(p).__name__
)


class Tape:
    """Noise that answers the i-th draw with the i-th number; notes coordinates and laws."""

    def __init__(self, z, log, law=None):
        self.z, self.log, self.law = z, log, law

    def one(self, coordinate):
        self.log.append((coordinate, self.law))
        return int(self.z[len(self.log) - 1])

    def for_law(self, law):
        return Tape(self.z, self.log, law)


def take_steps(counter, xs, noise):
    state, values = counter.init(), []
    for x in xs:
        state, value = counter.step(state, x, noise)
        values.append(value)
    return values


SILENCE = np.zeros(10_000, dtype=np.int64)


# The rule


def test_segments_by_hand():
    """K = 3, S = 2, no noise: out moves when three ones have come, twice, and then stays."""
    counter = dp.calibrate(Sparse(3, 2), PURE)
    xs = [1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    outs = [0, 0, 0, 3, 3, 3, 3, 6, 6, 6, 6, 6, 6]
    assert take_steps(counter, xs, Script(SILENCE)) == outs
    assert counter.release(xs, Script(SILENCE)).tolist() == outs


def test_segments_of_one():
    counter = dp.calibrate(Sparse(1, 3), PURE)
    assert take_steps(counter, [0, 1, 0, 1, 1, 1], Script(SILENCE)) == [0, 1, 1, 2, 3, 3]


def test_a_segment_may_end_early_late_or_empty():
    """Draws in order: threshold, comparison of each step; at an end the counter's, a threshold."""
    counter = dp.calibrate(Sparse(3, 3, Simple2), PURE)
    z = [
        *(-1, 0, 0),  # threshold 2: ends with the second one
        *(10, 2),  # the counter's first noise; threshold 5
        *(0, 0, 0, 0, -1, 0),  # of five ones the comparison sees 4, and at the next step 5
        *(100, -3),  # the second noise; threshold 0
        *(0, 1000, 0),  # ends at once with nothing; a last threshold, to which nothing is held
    ]
    xs = [1, 1, 1, 1, 1, 1, 1, 0, 0, 1]
    log = []
    assert take_steps(counter, xs, Tape(z, log)) == [0, 12, 12, 12, 12, 12, 12, 117, 1117, 1117]
    assert len(log) == len(z)


def test_numbers_other_than_ones_and_other_units():
    counter = dp.calibrate(Sparse(10, 2), PURE, dp.Change(0, 5), unit=0.5)
    xs = [4, 5, 0.9, 3, 99, 5, 1]  # 0.9 is rounded to 1, 99 clipped to 5
    assert take_steps(counter, xs, Script(SILENCE)) == [0, 0, 10, 10, 10, 23, 23]


def by_the_rule(counter, xs, z):
    """Releases and the laws of the draws: theta = K + z; c += x; c + z >= theta ends a segment."""
    z, laws = iter(z), []

    def draw(law):
        laws.append(law)
        return next(z)

    mechanism, inner = counter.mechanism, counter.inner
    segment = round(mechanism.segment / counter.unit)
    L = inner.mechanism.decoder(mechanism.segments)
    gathered, counts, noises, out, done, releases = 0, [], [], 0, 0, []
    threshold = segment + draw(counter.law)
    for x in xs:
        gathered += counter.quantise(x)
        if done < mechanism.segments and gathered + draw(counter.comparison) >= threshold:
            done, gathered, counts = done + 1, 0, [*counts, gathered]
            fresh = inner.mechanism.draws(done) - inner.mechanism.draws(done - 1)
            noises += [draw(inner.law) for _ in range(fresh)]
            if isinstance(inner.mechanism, RoundedMechanism):
                out = L[done - 1, :done] @ (noised(inner, counts) + noises) / inner.resolution
            else:
                out = sum(counts) + L[done - 1, : len(noises)] @ noises
            threshold = segment + draw(counter.law)
        releases.append(out * counter.unit)
    return releases, laws


def noised(counter, xs):
    """The integers that noise is added to, of a counter that rounds: checked to be R x, rounded."""
    n, mechanism = len(xs), counter.mechanism
    silent = counter.release_units(np.array(xs), Script(SILENCE)) * counter.resolution
    seen = np.linalg.solve(mechanism.decoder(n), silent)
    q, exact = np.rint(seen), mechanism.encoder(n) @ xs * counter.resolution
    assert np.abs(seen - q).max() < 1e-3
    assert np.abs(q - exact).max() <= mechanism.rounding / 2 + 1e-3
    return q


def reference_holds(counter, values=(0, 1), seeds=range(40), n=30):
    """Whether steps and releases are those of the rule, and the laws of their draws, in order."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        xs = rng.choice(values, n).tolist()
        z = rng.integers(-4, 5, 10 * n)
        expected, laws = by_the_rule(counter, xs, z.tolist())
        for run in (take_steps, lambda counter, xs, noise: counter.release(xs, noise)):
            log = []
            seen = run(counter, xs, Tape(z, log))
            if [law for _, law in log] != laws:
                return False
            rounded = isinstance(counter.inner.mechanism, RoundedMechanism)
            tolerated = 1e-9 if rounded else 1e-12
            if not np.allclose(seen, expected, rtol=tolerated, atol=tolerated):
                return False
    return True


@pytest.mark.slow
@counters
@pytest.mark.parametrize("segment", [1, 3, 7])
def test_steps_and_releases_follow_the_rule(kind, budget, segment):
    for segments in (1, 2, 5):
        assert reference_holds(dp.calibrate(Sparse(segment, segments, kind, 0.4), budget))
    halves = dp.calibrate(Sparse(segment, 3, kind), budget, dp.Change(0, 2), unit=0.5)
    assert reference_holds(halves, (0, 0.5, 2))


@counters
def test_each_coordinate_is_drawn_once_and_in_order(kind, budget):
    """The threshold, comparisons, the counter's draws at the end of a segment, a threshold, ..."""
    counter = dp.calibrate(Sparse(2, 5, kind), budget)
    log, z = [], np.random.default_rng(3).integers(-2, 3, 500)
    take_steps(counter, [1] * 40, Tape(z, log))
    assert [coordinate for coordinate, _ in log] == list(range(1, len(log) + 1))


@counters
def test_a_stream_resumed_from_bytes_after_every_step_gives_the_same_numbers(kind, budget):
    counter = dp.calibrate(Sparse(3, 6, kind), budget, dp.Change(0, 2))
    codec, rng = StateCodec(counter), np.random.default_rng(1)
    for seed in range(10):
        xs, z = rng.integers(0, 3, 50), np.random.default_rng(seed).integers(-3, 4, 500)
        expected = counter.release(xs, Tape(z, []))
        log, data = [], codec.encode(counter.init())
        for t in range(50):
            state = codec.decode(data)
            assert state[0] == t
            assert all(type(n) is int for n in state[: counter.counters])
            assert len(state) <= counter.state_size
            assert state[2] <= 6
            state, value = counter.step(state, int(xs[t]), Tape(z, log))
            assert type(value) is float
            assert value == expected[t]
            data = StateCodec(counter).encode(state)
        assert state[2] == 6  # all segments were used
        before = len(log)
        for _ in range(5):  # and nothing is drawn or moves any more
            state, value = counter.step(state, 2, Tape(z, log))
            assert value == expected[-1]
        assert len(log) == before


def test_state_bytes_of_other_parameters_are_refused():
    counter = dp.calibrate(Sparse(3, 6), PURE)
    data = StateCodec(counter).encode(counter.init())
    for other in (
        dp.calibrate(Sparse(4, 6), PURE),
        dp.calibrate(Sparse(3, 7), PURE),
        dp.calibrate(Sparse(3, 6, share=0.4), PURE),
        dp.calibrate(Sparse(3, 6, Simple2), PURE),
        dp.calibrate(Sparse(3, 6), dp.PureDP(2)),
        dp.calibrate(Sparse(3, 6), PURE, unit=0.5),
    ):
        with pytest.raises(StateError, match=says(OTHER_COUNTER)):
            StateCodec(other).decode(data)


def test_no_variance_is_claimed():
    counter = dp.calibrate(Sparse(3, 6), PURE)
    assert counter.horizon is None
    assert np.isnan(counter.stddevs(5)).all()
    assert counter.stddevs(5).shape == (5,)
    assert math.isnan(counter.stddev_at(counter.init()))
    with pytest.raises(ValueError, match="see error_bound"):
        counter.variance(3)


# Budgets and refusals

BUDGETS = [dp.PureDP(0.3), PURE, dp.ZCDP(0.05), dp.ZCDP(0.5), dp.ApproxDP(1.0, 1e-6)]


SCALES = (1, 1)  # of a threshold and of a comparison, times m / e1


def spent_on_segments(counter, m=1):
    """e1, from the laws that are used."""
    assert type(counter.law) is type(counter.comparison) is DiscreteLaplace
    assert counter.comparison.parameter * SCALES[0] == counter.law.parameter * SCALES[1]
    return SCALES[0] * m / counter.law.parameter


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("share", [0.5, 0.3, 0.9])
@pytest.mark.parametrize(("bounds", "unit", "m"), [((0, 1), 1, 1), ((0, 3), 0.5, 6)])
def test_the_two_parts_compose_to_the_budget(budget, share, bounds, unit, m):
    change = dp.Change(*bounds)
    counter = dp.calibrate(Sparse(5, 8, BinaryTree, share), budget, change, unit=unit)
    e1, rest = spent_on_segments(counter, m), counter.inner.budget
    sums = counter.inner.change  # as wide as a segment, and changed as much as an item
    assert (sums.low, sums.high, sums.relation) == (change.low, change.high, change.relation)
    assert sums.largest(unit) >= 16 * 5 / unit + 64 * counter.law.scale
    assert counter.inner == dp.calibrate(BinaryTree(8), rest, sums, unit=unit)
    plain = dp.calibrate(BinaryTree(8), rest, change, unit=unit)
    assert (counter.inner.law, counter.inner.grid) == (plain.law, plain.grid)
    if isinstance(budget, dp.ZCDP):
        # epsilon-DP is epsilon^2/2-zCDP.
        spent = e1**2 / 2
        assert float(spent) == pytest.approx(share * budget.rho, rel=1e-9)
        assert spent + Fraction(rest.rho) <= Fraction(budget.rho)
        assert float(spent + Fraction(rest.rho)) == pytest.approx(budget.rho, rel=1e-9)
        assert isinstance(counter.inner.law, DiscreteGaussian)
    else:
        assert float(e1) == pytest.approx(share * budget.epsilon, rel=1e-12)
        assert e1 + Fraction(rest.epsilon) <= Fraction(budget.epsilon)
        assert float(e1 + Fraction(rest.epsilon)) == pytest.approx(budget.epsilon, rel=1e-9)
        if isinstance(budget, dp.ApproxDP):
            assert rest.delta == budget.delta
        else:
            assert rest == dp.PureDP(rest.epsilon)


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("budget", BUDGETS[2:], ids=str)
def test_counters_that_round_take_the_rest_for_the_lattice_that_they_are_on(kind, budget):
    change = dp.Change(0, 3)
    counter = dp.calibrate(Sparse(5, 8, kind), budget, change, unit=0.5)
    inner, approx = counter.inner, isinstance(budget, dp.ApproxDP)
    assert inner == dp.calibrate(kind(8), inner.budget, inner.change, unit=0.5)
    assert inner.change.magnitude(0.5) == change.magnitude(0.5)
    assert type(inner.law) is (RoundedGaussian if approx else DiscreteGaussian)
    # Thresholds and comparisons are on the plain lattice.
    plain = dp.calibrate(Sparse(5, 8), budget, change, unit=0.5)
    assert (counter.law, counter.comparison) == (plain.law, plain.comparison)
    assert inner.budget == plain.inner.budget
    # What is noised, of whole segments, changes with one event by no more than noise is for.
    most = change.norms(inner.mechanism, 0.5, None)[1]
    rng, worst = np.random.default_rng(2), 0
    for _ in range(100):
        xs = rng.integers(0, inner.change.largest(0.5) - 5, 8)
        other = xs + 6 * (np.arange(8) == rng.integers(8))
        worst = max(worst, np.square(noised(inner, other) - noised(inner, xs)).sum())
    assert 0.999 * float(most) < worst <= most


def test_counters_that_cannot_take_the_rest_are_refused():
    with pytest.raises(ValueError, match=says(TAKES_GAUSSIAN, mechanism="SmoothBinary")):
        dp.calibrate(Sparse(3, 6, SmoothBinary), PURE)
    with pytest.raises(ValueError, match=says(TAKES_LAPLACE, mechanism="KAry")):
        dp.calibrate(Sparse(3, 6, KAry), dp.ZCDP(0.5))


@pytest.mark.parametrize("dimension", [1, 3])
def test_vectors_are_refused(dimension):
    with pytest.raises(ValueError, match="leave dimension out"):
        dp.calibrate(Sparse(3, 6), PURE, dimension=dimension)


def test_mechanisms_are_values():
    assert Sparse(3, 6) == Sparse(3, 6, BinaryTree, 0.5) != Sparse(3, 6, Honaker)
    assert hash(Sparse(3, 6)) == hash(Sparse(3, 6))
    assert Sparse(3, 6).name == "Sparse(BinaryTree)"


# The bound


class Pooled:
    """Seeded noise for several laws, drawn in blocks; one source of bytes for all of them."""

    def __init__(self, seed, factor=Fraction(1)):
        self._bytes, self._factor = SeededBytes(seed), factor
        self._made = {}

    def for_law(self, law):
        made = self._made.get(law)
        if made is None:
            used = law
            if self._factor != 1:
                used = DiscreteLaplace(law.parameter * self._factor)
            made = self._made[law] = Pool(used, self._bytes)
        return made


class Pool:
    def __init__(self, law, source):
        self._law, self._source, self._left = law, source, []

    def one(self, coordinate):
        if not self._left:
            self._left = self._law.sample(2048, self._source).tolist()
        return self._left.pop()

    def for_law(self, law):
        assert law == self._law
        return self


STEPS, RUNS = 2000, 200


def streams(ones, rng):
    """So many ones among 2000 steps: anywhere, all at first, all at last, evenly."""
    while True:
        anywhere = np.zeros(STEPS, dtype=np.int64)
        anywhere[rng.choice(STEPS, ones, replace=False)] = 1
        yield anywhere
        yield np.sort(anywhere)[::-1]
        yield np.sort(anywhere)
        yield np.diff(np.arange(STEPS + 1) * ones // STEPS)


def largest_errors(counter, ones, runs=RUNS, factor=Fraction(1)):
    noise, rng = Pooled(ones, factor), np.random.default_rng(ones)
    found = []
    for xs in itertools.islice(streams(ones, rng), runs):
        assert xs.sum() == ones
        released = counter.release(xs, noise)
        found.append(np.abs(released - np.cumsum(xs)).max())
    return np.array(found)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("ones", [60, 400, pytest.param(1500, marks=pytest.mark.exhaustive)])
def test_the_error_bound_holds(ones):
    """In 95 % of runs, as stated (in fact in all of them: union bounds give more than they say),
    and it is not idle: some runs come near it, and under noise eight times as wide it fails."""
    counter = dp.calibrate(sparse_for(ones, STEPS, dp.PureDP(8.0)), dp.PureDP(8.0))
    errors, bound = largest_errors(counter, ones), counter.error_bound(STEPS)
    assert (errors <= bound).mean() >= 0.95
    assert errors.max() > bound / 4
    wider = largest_errors(counter, ones, 20, Fraction(8))
    assert (wider <= bound).mean() < 0.95


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROUNDED)
def test_the_error_bound_holds_with_counters_that_round(kind):
    counter = dp.calibrate(Sparse(40, 40, kind), dp.ApproxDP(4.0, 1e-6))
    errors = largest_errors(counter, 600, 20)
    assert (errors <= counter.error_bound(STEPS)).all()
    assert errors.max() > counter.error_bound(STEPS) / 4


def test_the_error_bound_is_the_sum_of_its_parts():
    """P(|X| > a) <= 2 exp(-a / scale): the segment, thresholds, comparisons, the counter."""
    counter = dp.calibrate(Sparse(40, 5), PURE, unit=0.5)
    miss = 0.05 / 4
    thresholds = counter.law.scale * math.log(2 * 6 / miss)
    comparisons = counter.comparison.scale * math.log(2 * 1000 / miss)
    segments = dp.largest_error(counter.inner, level=0.975)
    expected = 40 + 0.5 * (thresholds + comparisons) + segments
    assert counter.error_bound(1000) == pytest.approx(expected, rel=1e-12)
    assert counter.error_bound(1000, 0.5) < counter.error_bound(1000, 0.99)
    assert counter.error_bound(1000) < counter.error_bound(2000)
    for law in (counter.law, counter.comparison):
        for a in (0.0, 3.0, 20.5, 100.0):
            beyond = np.arange(math.floor(a) + 1, 3000)
            assert 2 * np.exp(log_pmf(law, beyond)).sum() <= 2 * math.exp(-a / law.scale)


@pytest.mark.slow
@pytest.mark.parametrize(("ones", "level"), [(60, 0.95), (1000, 0.5)])
def test_the_chosen_segments_suffice(ones, level):
    budget, steps = dp.PureDP(2.0), 10**5
    chosen = sparse_for(ones, steps, budget, level, share=0.6)
    counter = dp.calibrate(chosen, budget)
    assert chosen.share == 0.6
    slack = counter.slack(steps, level)
    assert slack <= chosen.segment / 2
    assert chosen.segments * (chosen.segment - slack) >= ones
    best = counter.error_bound(steps, level)
    for factor in (0.5, 0.7, 0.9, 0.94, 1.06, 1.1, 1.3, 2.0, 3.0):
        segment = round(chosen.segment * factor)
        other = dp.calibrate(Sparse(segment, -(-2 * ones // segment), share=0.6), budget)
        if other.slack(steps, level) <= segment / 2:
            assert best <= other.error_bound(steps, level) * 1.01, factor


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ones", "steps", "sparse", "tree"), [(1000, 10**9, 270, 1711), (20_000, 10**13, 497, 3632)]
)
def test_few_ones_in_long_streams_are_counted_better_than_by_a_tree(ones, steps, sparse, tree):
    """At epsilon = 1, the bounds on all errors at once."""
    counter = dp.calibrate(sparse_for(ones, steps, PURE), PURE)
    whole = dp.calibrate(BinaryTree(steps), PURE)
    assert counter.error_bound(steps) == pytest.approx(sparse, abs=1)
    assert dp.largest_error(whole) == pytest.approx(tree, abs=1)
    assert counter.mechanism.segment > 100  # late by so much; still far below the tree's bound


def test_a_budget_too_small_for_the_ones_gets_safe_segments_or_a_refusal():
    """Segments of half their size in noise at most, as documented, though few ones remain."""
    try:
        chosen = sparse_for(10, 1000, dp.PureDP(1e-6))
    except ValueError:
        return
    counter = dp.calibrate(chosen, dp.PureDP(1e-6))
    assert counter.slack(1000) <= chosen.segment / 2


# The exact audit


def audit(counter, values=(0, 1), n=4):
    """Which checks fail. laws: the scales are those of the rule. reference: steps, releases and
    draws are too. budget: the exact loss of the whole output is within the budget."""
    failed = []
    m, part = counter.change.magnitude(counter.unit), counter.mechanism.share
    e1, epsilon = part * counter.budget.epsilon, counter.budget.epsilon
    scales = (counter.law.scale * e1 / m, counter.comparison.scale * e1 / m)
    if scales != pytest.approx(SCALES, rel=1e-12):
        failed.append("laws")
    if not reference_holds(counter, values):
        failed.append("reference")
    if worst_loss(counter, values, n)[0] > epsilon + 1e-9:
        failed.append("budget")
    return failed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("segment", "segments", "kind", "share", "epsilon"),
    [
        (1, 1, BinaryTree, 0.5, 1.0),
        (2, 1, BinaryTree, 0.5, 2.0),
        (3, 1, BinaryTree, 0.9, 1.0),
        (1, 2, Simple2, 0.5, 2.0),
        (2, 2, BinaryTree, 0.4, 2.0),
        (1, 2, BinaryTree, 0.7, 4.0),
        (1, 3, Simple2, 0.5, 4.0),
    ],
)
def test_bit_streams_keep_the_budget(segment, segments, kind, share, epsilon):
    counter = dp.calibrate(Sparse(segment, segments, kind, share), dp.PureDP(epsilon))
    assert audit(counter) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "unit", "values"),
    [
        (dp.Change(0, 2), 1, (0, 1, 2)),
        (dp.Change(), 0.5, (0, 0.5, 1)),
        (dp.Change(-1, 1), 1, (-1, 0, 1)),
        (dp.Change(relation="add_remove"), 1, (0, 1)),
    ],
)
def test_other_streams_keep_the_budget(change, unit, values):
    counter = dp.calibrate(Sparse(1, 2, Simple2), dp.PureDP(6.0), change, unit=unit)
    assert audit(counter, values, 3) == []


def rescaled(counter, threshold, comparison):
    """With noise of these scales, times m / e1."""
    e1 = Fraction(counter.mechanism.share * counter.budget.epsilon)
    m = counter.change.magnitude(counter.unit)
    return dataclasses.replace(
        counter,
        law=DiscreteLaplace(Fraction(threshold) * m / e1),
        comparison=DiscreteLaplace(Fraction(comparison) * m / e1),
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("segment", [1, 3])
def test_the_ends_of_segments_cost_no_more_than_the_larger_of_two_losses(segment):
    """One event moves all later counts of its segment the same way. If they grow, no comparison
    but the last costs anything, and that 1/b; if they shrink, a threshold lower by 1 makes up for
    it, at 1/a. So scales a = b = 1/e1 do; the usual ones, 2/e1 and 4/e1, spend half of e1."""
    counter = dp.calibrate(Sparse(segment, 1, BinaryTree, 0.4), dp.PureDP(4.0))
    e1, e2 = 1.6, 2.4
    for a, b in [SCALES, (1, 2), (1, 1.001), (Fraction(1, 4), 4), (2, Fraction(1, 2))]:
        whole, of_ends = worst_loss(rescaled(counter, a, b))
        assert of_ends <= e1 * max(1 / a, 1 / b) + 1e-9, (a, b)
        assert whole <= of_ends + e2 + 1e-9
        if a >= 1 and b >= 1:
            assert whole <= e1 + e2 + 1e-9, (a, b)
    # And the audit would see a tenth too little.
    assert worst_loss(rescaled(counter, 1, 0.9))[0] > 1.02 * (e1 + e2)


def observed(counter, n=2, reach=400):
    """Probabilities of all releases of each bit stream, by the formula of one segment."""
    silent = np.zeros((1, n))
    later = np.array([v for v in range(-reach, reach + 1) if v])[:, None]
    ended = [later * (np.arange(n) >= step) for step in range(n)]
    outputs = np.concatenate([silent, *ended])
    law = OneSegment(counter, n)
    return {
        xs: law._likelihood(outputs, np.cumsum(xs)) for xs in itertools.product((0, 1), repeat=n)
    }


def spent(budget, p, q):
    """The share of the budget, by its definition, of what tells p from q."""
    if isinstance(budget, dp.ZCDP):
        p, q = p[p * q > 0], q[p * q > 0]  # but for what has no probability as a float
        return max(
            math.log((p * (p / q) ** (a - 1)).sum()) / (a - 1) / (a * budget.rho)
            for a in (1.1, 2.0, 4.7)
        )
    if isinstance(budget, dp.PureDP):
        return np.abs(np.log(p) - np.log(q)).max() / budget.epsilon
    return np.maximum(p - math.exp(budget.epsilon) * q, 0).sum() / budget.delta


@pytest.mark.parametrize("budget", [dp.PureDP(2.0), dp.ZCDP(2.0), dp.ApproxDP(2.0, 1e-3)], ids=str)
def test_what_is_spent_is_what_the_definitions_say_of_all_releases(budget):
    kind = SmoothBinary if isinstance(budget, dp.ApproxDP) else BinaryTree
    counter = dp.calibrate(Sparse(1, 1, kind, share=0.25), budget)
    assert isinstance(counter.inner.law, DiscreteLaplace) is isinstance(budget, dp.PureDP)
    known = observed(counter)
    pairs = [(a, b) for a in known for b in known if sum(map(abs, np.subtract(a, b))) == 1]
    seen = max(spent(budget, known[a], known[b]) for a, b in pairs)
    # An end at a sum of 0 may look as if nothing had ended; of Renyi's orders, few were tried.
    assert 0.9 * largest_loss(counter, 2) < seen <= largest_loss(counter, 2) * (1 + 1e-9)
    loud = dataclasses.replace(counter.inner, law=type(counter.inner.law)(Fraction(1, 9)))
    assert largest_loss(dataclasses.replace(counter, inner=loud), 2) > 1


@pytest.mark.slow
def test_the_exact_probabilities_are_those_of_simulated_streams():
    """20 000 runs of three steps; 5 standard errors for each of 8 patterns: below 10^-5."""
    counter = dp.calibrate(Sparse(2, 3, Simple2), dp.PureDP(4.0))
    exact = {e: p for e, (p, _) in distributions(counter, (0, 1), 3)[1, 1, 0].items()}
    noise, seen, runs = Pooled(5), defaultdict(int), 20_000
    for _ in range(runs):
        state, ends = counter.init(), ()
        for t, x in enumerate((1, 1, 0), start=1):
            before = state[2]
            state, _ = counter.step(state, x, noise)
            ends += (t,) * (state[2] - before)
        seen[ends] += 1
    assert seen.keys() <= exact.keys()
    assert len(exact) == 8
    for ends, p in exact.items():
        assert abs(seen[ends] / runs - p) <= 5 * math.sqrt(p * (1 - p) / runs), ends


# What the audit must catch


class SameThreshold(SparseCounter):
    """Keeps a segment's threshold for the next."""

    def step_lattice(self, state, x, noise):
        after, value = super().step_lattice(state, x, noise)
        if after[2] != state[2] and state[0]:
            c = self.counters
            after = (*after[:c], state[c], *after[c + 1 :])
        return after, value


class NotEmptied(SparseCounter):
    """Takes a segment's ones over into the next."""

    def step_lattice(self, state, x, noise):
        after, value = super().step_lattice(state, x, noise)
        if after[2] != state[2]:
            c = self.counters
            after = (*after[: c + 1], state[c + 1] + x, *after[c + 2 :])
        return after, value


class Unnoised(SparseCounter):
    """Gives out the exact count of a segment's end."""

    def step_lattice(self, state, x, noise):
        c = self.counters
        after, value = super().step_lattice(state, x, noise)
        if after[2] != state[2]:
            exact = state[c + 2] + state[c + 1] + x
            after, value = (*after[: c + 2], float(exact), *after[c + 3 :]), float(exact)
        return after, value


def mutated(kind, counter):
    return kind(**{f.name: getattr(counter, f.name) for f in dataclasses.fields(counter)})


MUTANTS = {
    # Where one event moves all counts the same way, this alone exceeds no budget.
    "comparisons at 1/e1": (lambda c: rescaled(c, 2, 1), {"laws"}),
    "comparisons at 1/(2 e1)": (lambda c: rescaled(c, 2, Fraction(1, 2)), {"laws", "budget"}),
    "thresholds at 1/(20 e1)": (lambda c: rescaled(c, Fraction(1, 20), 1), {"laws", "budget"}),
    "threshold kept": (lambda c: mutated(SameThreshold, c), {"reference"}),
    "ones kept": (lambda c: mutated(NotEmptied, c), {"reference", "budget"}),
    "exact counts": (lambda c: mutated(Unnoised, c), {"reference"}),
    "counter with the whole budget": (
        lambda c: dataclasses.replace(
            c, inner=dp.calibrate(BinaryTree(2), c.budget, c.inner.change)
        ),
        {"budget"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    mutate, checks = MUTANTS[name]
    counter = dp.calibrate(Sparse(1, 2, BinaryTree, 0.4), dp.PureDP(8.0))
    assert set(audit(mutate(counter), n=3)) == checks


def test_sums_beyond_all_noise_are_clipped_before_they_are_encoded():
    """What the encoder's error bound, and so the sensitivity, relies on."""
    counter = dp.calibrate(Sparse(10, 2, BinaryTree), PURE, dp.Change(0, 5))
    most = counter.inner.change.largest(1)
    assert most == 16 * 15 + 64 * math.ceil(counter.law.scale)
    xs = [5] * (most // 5 + 3)
    late = [-(10**9)] * (len(xs) - 1)  # comparisons that all fail, but the last
    z = [0, *late, 10**9, 0, 0, 0]
    assert take_steps(counter, xs, Script(z))[-1] == most < sum(xs)


def test_counters_of_other_sums_are_refused():
    @dataclasses.dataclass(frozen=True)
    class Fading(SquareRoot):
        decay: float = 0.9

    with pytest.raises(ValueError, match="counter must release prefix sums"):
        Sparse(5, 8, Fading)
