"""Intervals against brute force, the bound of all errors against simulation, and `choose`."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from scipy.signal import fftconvolve

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters.choose import FOR_SEVERAL, resolve
from beam_dpcount.counters.counter import UnsupportedBudgetError
from beam_dpcount.counters.errors import half_width, normal_half_width
from beam_dpcount.counters.largest import largest_error
from beam_dpcount.counters.users import UserChange
from beam_dpcount.mechanisms import BinaryTree, BridgedKAry, KAry, NormalizedBLT, SmoothBinary
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace
from tests.audit.exact import log_pmf
from tests.scripted import SeededNoise

LEVELS = (0.5, 0.9, 0.95, 0.99, 0.9999)
TREE = dp.calibrate(BinaryTree(1000), dp.ZCDP(0.5))


def laplace(scale):
    return DiscreteLaplace(Fraction(scale))


def gaussian(sigma):
    return DiscreteGaussian(Fraction(sigma) ** 2)


def inside(law, terms):
    """P(|sum of `terms` draws| <= m) for m = 0, 1, ..., by convolving the law with itself."""
    reach = int(40 * law.scale if isinstance(law, DiscreteLaplace) else 12 * law.scale) + 20
    one = np.exp(log_pmf(law, np.arange(-reach, reach + 1)))
    total, limit = np.ones(1), reach + int(12 * math.sqrt(terms) * law.scale)  # 1e-15 is beyond
    convolve = np.convolve if reach < 3000 else fftconvolve
    for _ in range(terms):
        total = convolve(total, one)
        if len(total) // 2 > limit:
            total = total[len(total) // 2 - limit : len(total) // 2 + limit + 1]
    middle = len(total) // 2
    return np.cumsum(total[middle:] + np.append(0, total[middle + 1 :]))


@pytest.mark.parametrize("law", [*map(laplace, (0.3, 1, 7.5, 64)), *map(gaussian, (0.4, 1, 9, 64))])
def test_half_widths_are_the_exact_quantiles(law):
    counter = replace(TREE, law=law)
    for t in (1, 3, 127):
        distribution = inside(law, t.bit_count())
        for level in LEVELS:
            width = half_width(counter, t, level)
            assert width == np.flatnonzero(distribution >= level)[0], (t, level)
            assert half_width(replace(counter, unit=0.25), t, level) == width / 4


@pytest.mark.parametrize(
    "law", [*map(laplace, (65, 100, 777, 2000)), *map(gaussian, (65, 100, 777, 2000))]
)
def test_half_widths_cover_at_scales_that_are_rescaled(law):
    """At least `level`, and at most one part in 64 of the scale too wide."""
    counter = replace(TREE, law=law)
    for t in (1, 3):
        distribution = inside(law, t.bit_count())
        for level in LEVELS[:-1]:
            width = half_width(counter, t, level)
            exact = np.flatnonzero(distribution >= level)[0]
            assert exact <= width <= exact + law.scale / 32 + 1, (t, level)


@pytest.mark.slow
@pytest.mark.exhaustive("kind", "law", "level")
@pytest.mark.parametrize("kind", mechanisms.ALL, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_half_widths_hold_in_releases(kind, law, level):
    """Coverage in 20 000 draws at each of 40 steps, at noise of some 10 lattice units.

    It must reach the level: 5 standard errors, a rate of false alarms below 10^-4 over all steps.
    Where weights are whole, or the law is Gaussian, it may pass it by no more than the lattice
    explains, and an interval for two thirds of the noise must not reach it; bounds for other
    weights must at least not be idle.
    """
    if law not in kind(40).laws:
        with pytest.raises(UnsupportedBudgetError):
            dp.calibrate(kind(40), dp.PureDP(1) if law == "laplace" else dp.ZCDP(1))
        return
    change = dp.Change(coordinates=1)
    norms = change.norms(kind(40), 1, 20_000)
    budget = dp.PureDP(norms[0] / 10) if law == "laplace" else dp.ZCDP(norms[1] / 200)
    counter = dp.calibrate(kind(40), budget, change, dimension=20_000)
    assert counter.law.scale == pytest.approx(10)
    released = counter.release(np.ones((40, 20_000)), SeededNoise(counter.law, 3, 20_000))
    errors = np.abs(released - np.arange(1, 41)[:, None])
    less = replace(counter, law=laplace(20 / 3) if law == "laplace" else gaussian(20 / 3))
    tolerance = 5 * math.sqrt(level * (1 - level) / 20_000)
    for t in range(1, 41):
        width = half_width(counter, t, level)
        assert (errors[t - 1] <= width).mean() >= level - tolerance, t
        if counter.mechanism.unit_weights or law == "gaussian":
            assert (errors[t - 1] <= width - 1).mean() <= level + tolerance, t
            assert (errors[t - 1] <= half_width(less, t, level)).mean() < level - tolerance, t
        else:
            assert width <= 6 * math.sqrt(counter.variance(t)), t


@pytest.mark.parametrize("law", [laplace(0.1), laplace(0.2), gaussian(0.25), gaussian(0.3)])
def test_half_widths_of_many_narrow_draws_cover(law):
    """2000 draws that are nearly all 0 do not have a normal sum."""
    counter = replace(dp.calibrate(mechanisms.Simple2(2000), dp.ZCDP(0.5)), law=law)
    distribution = inside(law, 2000)
    for level in LEVELS:
        width = half_width(counter, 2000, level)
        exact = np.flatnonzero(distribution >= level - 1e-12)[0]
        assert exact <= width <= 2 * exact + 2, level


def test_half_widths_of_the_smooth_mechanism_use_its_own_terms():
    counter = dp.calibrate(SmoothBinary(1000), dp.ZCDP(0.5))
    for t in (1, 5, 6, 1000):
        terms = int(np.square(counter.mechanism.decoder(t)[-1]).sum())
        expected = np.flatnonzero(inside(counter.law, terms) >= 0.95)[0]
        assert half_width(counter, t) == expected


def test_noise_that_is_never_seen_has_no_width():
    counter = replace(TREE, law=gaussian(Fraction(1, 100)))
    assert half_width(counter, 1) == 0
    assert largest_error(counter) == 0


def test_normal_half_widths():
    assert normal_half_width(2.0) == pytest.approx(2 * 1.959964, rel=1e-6)
    assert normal_half_width(1.0, 0.99) == pytest.approx(2.575829, rel=1e-6)


# The bound of all errors


BOUNDED = [
    pytest.param(BinaryTree(200), dp.PureDP(0.5), id="laplace"),
    pytest.param(BinaryTree(200), dp.PureDP(8), id="narrow laplace"),
    pytest.param(BinaryTree(200), dp.ZCDP(0.05), id="gaussian"),
    pytest.param(SmoothBinary(200), dp.ZCDP(0.05), id="smooth"),
    pytest.param(SmoothBinary(200), dp.ZCDP(8), id="narrow gaussian"),
]


@pytest.mark.parametrize(("mechanism", "budget"), BOUNDED)
@pytest.mark.parametrize("streams", [1, 4])
def test_the_largest_error_of_all_releases_keeps_its_bound(mechanism, budget, streams):
    """In at least 95 % of 400 runs (fixed seed). The bound is a union bound, so it holds in more;
    it is not idle either: it is below twice the largest error that 5 % of the runs exceed."""
    change = dp.Change(coordinates=1)
    counter = dp.calibrate(mechanism, budget, change, dimension=400 * streams)
    released = counter.release(
        np.zeros((200, 400 * streams)), SeededNoise(counter.law, 8, 400 * streams)
    )
    largest = np.abs(released).max(axis=0).reshape(400, streams).max(axis=1)
    bound = largest_error(counter, streams)
    assert (largest <= bound).mean() >= 0.95
    assert bound <= 2 * np.quantile(largest, 0.95) + 1


def test_the_bound_grows_with_streams_and_level_and_scales_with_the_unit():
    for budget in (dp.PureDP(1), dp.ZCDP(0.5)):
        counter = dp.calibrate(BinaryTree(1000), budget)
        bound = largest_error(counter)
        assert largest_error(counter, streams=100) > bound
        assert largest_error(counter, level=0.999) > bound
        assert largest_error(counter, level=0.5) < bound
        assert largest_error(replace(counter, unit=0.5)) == pytest.approx(bound / 2)
        widest = [half_width(counter, 511, level) for level in (0.95, 1 - 0.05 / 1000)]
        assert widest[0] < bound < widest[1]  # most releases have less noise


def test_the_bounds_are_at_most_chernoffs_for_the_widest():
    bound = largest_error(TREE, streams=3, level=0.9)
    assert bound < 0.95 * math.sqrt(2 * 10 * 9 * math.log(2 * 3000 / 0.1))
    counter = dp.calibrate(BinaryTree(1000), dp.PureDP(1))
    x = np.arange(-700, 701)
    p = np.exp(log_pmf(counter.law, x))
    best = min(
        (9 * math.log(p @ np.exp(lam * x)) + math.log(2 * 3000 / 0.1)) / lam
        for lam in np.linspace(0.01, 0.09, 2000)
    )
    assert largest_error(counter, streams=3, level=0.9) < 0.9 * best


@pytest.mark.parametrize(
    ("mechanism", "budget"),
    [
        (BinaryTree(24), dp.PureDP(1)),
        (BinaryTree(24), dp.ZCDP(0.5)),
        (KAry(13), dp.PureDP(1)),
        (BridgedKAry(24), dp.PureDP(1)),
        (BridgedKAry(24), dp.PureDP(4)),
    ],
    ids=str,
)
@pytest.mark.parametrize("streams", [1, 7])
def test_the_largest_error_is_the_least_that_tails_allow(mechanism, budget, streams):
    """Against all rows' laws, each convolved from its draws on the lattice of its weights."""
    counter = dp.calibrate(mechanism, budget)
    L = np.abs(mechanism.decoder(mechanism.horizon))
    bits = max(Fraction(w).denominator for w in L.ravel().tolist())
    reach = int(20 * math.sqrt(counter.law.variance) + 20)
    z = np.arange(-reach, reach + 1)
    draw = np.exp(log_pmf(counter.law, z))
    size = 1 << 15
    tails = np.zeros(size)
    for row in L:
        law = np.zeros(size)
        law[0] = 1
        for weight in row[row > 0].tolist():
            one = np.zeros(size)
            np.add.at(one, (z * int(weight * bits)) % size, draw)
            law = np.fft.irfft(np.fft.rfft(law) * np.fft.rfft(one), size)
        x = np.minimum(np.arange(size), size - np.arange(size))
        by_size = np.bincount(x, law, size)
        tails += np.cumsum(by_size[::-1])[::-1]
    exact = np.count_nonzero(tails > 0.05 / streams) / bits  # the first x they allow
    found = largest_error(counter, streams)
    if mechanism.unit_weights:  # errors are whole numbers below it
        exact -= 1
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-3) + 1 / bits


@pytest.mark.parametrize("horizon", [1, 40, 3000, 1 << 17])
def test_the_largest_error_with_a_normal_law(horizon):
    """By the sum of both tails of all releases, each of its own stddev."""
    counter = dp.calibrate(NormalizedBLT(horizon), dp.ZCDP(0.1))
    stddevs = counter.stddevs(horizon)
    found = largest_error(counter)
    some = np.unique(stddevs, return_counts=True)
    of = NormalDist()
    total = sum(
        2 * n * of.cdf(-found / s) for s, n in zip(*(x.tolist() for x in some), strict=True)
    )
    assert 0.04 < total <= 0.05 if horizon < 1 << 16 else 0.01 < total <= 0.05


# The choice


@pytest.mark.exhaustive("budget", "horizon", "objective")
@pytest.mark.parametrize("objective", ["max", "mean"])
@pytest.mark.parametrize("horizon", [1, 10, 1000, 2**16 - 1])
@pytest.mark.parametrize("budget", [dp.PureDP(1), dp.ZCDP(0.5), dp.ApproxDP(1, 1e-6)], ids=str)
def test_choices_are_ordered_by_the_objective(objective, horizon, budget):
    choice = dp.choose(horizon, budget, objective)
    errors = [row.max_stddev if objective == "max" else row.mean_stddev for row in choice.rows]
    assert errors == sorted(errors)
    assert choice.mechanism == choice.rows[0].mechanism
    assert choice.objective == objective
    for row in choice.rows:
        of_a_draw = row.counter.law.variance * row.counter.grid**2
        norms = row.mechanism.row_norms2(horizon) * of_a_draw
        assert row.max_stddev == pytest.approx(math.sqrt(norms.max()), rel=1e-9)
        assert row.mean_stddev == pytest.approx(math.sqrt(norms.mean()), rel=1e-9)
        assert row.state_size == row.mechanism.state_size
        assert row.counter == dp.calibrate(row.mechanism, budget)


def test_choices_hold_exactly_the_mechanisms_that_take_the_budget():
    for budget, law in ((dp.PureDP(1), "laplace"), (dp.ZCDP(0.5), "gaussian")):
        names = {row.mechanism.name for row in dp.choose(100, budget).rows}
        kinds = [kind for kind in mechanisms.ALL if law in kind(100).laws]
        assert names == {kind.__name__ for kind in kinds if not kind.several_steps}
        several = UserChange(0, 1, events=5, per_key=5, gap=9)
        names = {row.mechanism.name for row in dp.choose(100, budget, change=several).rows}
        assert names == {kind.__name__ for kind in kinds}
    taken = dp.choose(100, dp.ApproxDP(1, 1e-6)).rows
    assert len(taken) == sum(not kind.several_steps for kind in mechanisms.ALL)


def test_choices_pass_on_what_the_streams_are():
    change = dp.Change(-1, 2, coordinates=2)
    for row in dp.choose(100, dp.ZCDP(0.5), change=change, dimension=3, unit=0.5).rows:
        assert row.counter == dp.calibrate(row.mechanism, dp.ZCDP(0.5), change, 3, 0.5)


def test_choices_print_as_a_table_best_first():
    choice = dp.choose(1000, dp.ZCDP(0.5))
    head, *lines, _, footer = str(choice).splitlines()
    laplace = ("SmoothLaplace", "KAry", "BridgedKAry")
    missing = ", ".join(f"{name} (budget)" for name in laplace)
    assert footer == f"not listed: {missing}, FadedBLT ({FOR_SEVERAL})"
    assert head.split()[:7] == ["mechanism", "noise", "max", "stddev", "mean", "stddev", "state"]
    assert [line.split()[0] for line in lines] == [row.mechanism.name for row in choice.rows]
    for line, row in zip(lines, choice.rows, strict=True):
        _, noise, largest, mean, state, draws = line.split()
        assert noise == type(row.counter.law).__name__
        assert float(largest) == pytest.approx(row.max_stddev, rel=1e-3)
        assert float(mean) == pytest.approx(row.mean_stddev, rel=1e-3)
        assert int(state) == row.state_size
        assert float(draws) == pytest.approx(row.mechanism.draws(1000) / 1000, rel=1e-2)
    assert len({len(line) for line in (head, *lines)}) == 1


@pytest.mark.parametrize("objective", ["max", "mean"])
@pytest.mark.parametrize("budget", [dp.PureDP(1), dp.ApproxDP(1, 1e-6), dp.ZCDP(0.5)])
def test_a_choice_says_why_in_words(budget, objective):
    """Of the best and the next one: by how much, its state and cost, and what it cannot do."""
    choice = dp.choose(500, budget, objective)
    best, following = choice.explain().splitlines()
    first, second = choice.rows[:2]
    ratio = (getattr(second, f"{objective}_stddev") / getattr(first, f"{objective}_stddev")) ** 2
    assert following.startswith(f"next, {ratio - 1:.1%} more variance: {second.mechanism.name}: ")
    assert ("takes no Gaussian noise" in following) == (
        "gaussian" not in second.mechanism.laws and not isinstance(budget, dp.PureDP)
    )
    for line, row in ((best, first), (following, second)):
        assert f"{row.mechanism.name}: largest variance {row.max_stddev**2:.4g}, mean" in line
        assert f"; {row.state_size:,} numbers a key and coordinate; " in line
        assert re.search(r"; [0-9.e+]+ us a step", line)
        assert ("takes no pure budget" in line) == ("laplace" not in row.mechanism.laws)
        assert ("draws noise early" in line) == row.mechanism.draws_early
        assert ("takes at most" in line) == (row.mechanism.longest < 2**48)


def test_laplace_noise_is_a_limit_only_where_gaussian_noise_is_allowed():
    for budget, said in ((dp.PureDP(1), False), (dp.ApproxDP(1, 1e-6), True)):
        best = dp.choose(100, budget).explain().splitlines()[0]
        assert best.startswith("BridgedKAry: ")
        assert ("takes no Gaussian noise" in best) == said


def test_equal_variances_are_called_so():
    choice = dp.choose(500, dp.ZCDP(0.5))
    twice = replace(choice, rows=(choice.rows[0], choice.rows[0]))
    assert "\nnext, the same variance: ProfiledBLT: " in twice.explain()


def test_one_that_is_alone_in_the_table_is_explained_alone():
    choice = dp.choose(500, dp.ZCDP(0.5))
    alone = replace(choice, rows=choice.rows[:1])
    assert alone.explain().startswith("ProfiledBLT: largest variance ")
    assert "\n" not in alone.explain()


def test_choices_keep_to_a_size_of_state():
    budget = dp.ZCDP(0.5)
    every = dp.choose(1000, budget).rows
    for size in sorted({row.state_size for row in every}):
        choice = dp.choose(1000, budget, max_state=size)
        assert choice.rows == tuple(row for row in every if row.state_size <= size)
        assert choice.mechanism == choice.rows[0].mechanism
    least = min(row.state_size for row in every)
    with pytest.raises(ValueError, match=f"max_state is {least - 1}.*has {least} numbers"):
        dp.choose(1000, budget, max_state=least - 1)


def test_a_mechanism_out_of_range_does_not_stop_the_choice():
    """BinaryTree's Laplace noise would be too wide here; a Gaussian mechanism is not."""
    choice = dp.choose(2**20, dp.ApproxDP(1, 1e-6), dimension=1000, unit=2.0**-20)
    assert "SmoothBinary" in {row.mechanism.name for row in choice.rows}


# Naming a mechanism


def test_mechanisms_may_be_named_in_every_way():
    budget = dp.ZCDP(0.5)
    assert resolve(None, 1000, budget) == dp.choose(1000, budget).mechanism
    for kind in mechanisms.ALL:
        for named in (kind, kind.__name__, kind(1000)):
            assert resolve(named, 1000, budget) == kind(1000)
    variant = SmoothBinary(1000, balanced=True)
    assert resolve(variant, 1000, budget) is variant


def test_unknown_names_are_answered_with_the_known_ones():
    for name in ("binarytree", "Smooth", ""):
        with pytest.raises(ValueError, match="unknown mechanism") as caught:
            resolve(name, 10, dp.ZCDP(1))
        assert repr(name) in str(caught.value)
        assert all(kind.__name__ in str(caught.value) for kind in mechanisms.ALL)


@pytest.mark.parametrize("mechanism", [3, 1.5, ("BinaryTree",), int, object()])
def test_what_is_no_mechanism_is_answered_with_the_known_ones(mechanism):
    with pytest.raises(TypeError, match="an instance, the class, or its name") as caught:
        resolve(mechanism, 10, dp.ZCDP(1))
    assert all(kind.__name__ in str(caught.value) for kind in mechanisms.ALL)


@pytest.mark.parametrize("made_for", [9, 11])
def test_a_horizon_that_is_not_the_mechanisms_is_refused(made_for):
    with pytest.raises(ValueError, match=f"horizon is 10.*made for {made_for}"):
        resolve(BinaryTree(made_for), 10, dp.ZCDP(1))


@pytest.mark.parametrize("horizon", [0, 1.5, True, None])
def test_horizons_are_checked_however_the_mechanism_is_named(horizon):
    for named in (None, BinaryTree, "BinaryTree", BinaryTree(10)):
        with pytest.raises((ValueError, TypeError), match="horizon"):
            resolve(named, horizon, dp.PureDP(1))
    if horizon is not None:
        with pytest.raises((ValueError, TypeError), match="horizon"):
            resolve(None, horizon, dp.ZCDP(1))
        with pytest.raises((ValueError, TypeError), match="horizon"):
            resolve(mechanisms.Endless(), horizon, dp.ZCDP(1))
    else:
        assert resolve(None, None, dp.ZCDP(1)) == mechanisms.Endless()
