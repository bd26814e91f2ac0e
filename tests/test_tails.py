"""Bounds on noise that hold with tiny probabilities: against enumeration, and closed forms."""

from __future__ import annotations

import doctest
import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters import tails
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.errors import chernoff, chernoffs
from beam_dpcount.counters.tails import normal_quantile, quantiles, sum_quantiles
from beam_dpcount.errors import HorizonError
from beam_dpcount.noise.laws import DiscreteLaplace, Law
from tests.audit.exact import log_pmf
from tests.rounding import ROUNDED
from tests.scripted import Script, SeededNoise
from tests.tails import counter_of, discrete, laplace, rounded, takes, weighted

EVENT = TickChange(0, 1)
APPROX = dp.ApproxDP(1.0, 5e-7)
PS = (0.49, 0.3, 0.1, 1e-2, 1e-3, 1e-5, 1e-8, 1e-11)
SMALL = (0.49, 0.1, 1e-6, 1e-12, 1e-30)


LAWS: tuple[Law, ...] = tuple(
    law(Fraction(scale)) for law in (laplace, discrete, rounded) for scale in ("0.3", "0.7", "1.2")
)


def shown(law: Law) -> str:
    return f"{type(law).__name__}-{law.scale:.1f}"


# Against enumeration


def rounding_at(counter, horizon: int) -> np.ndarray:
    """The most that the encoder's rounding adds to each release, over all streams of 0 and 1."""
    zeros = Script(np.zeros(counter.mechanism.draws(horizon), dtype=np.int64))
    streams = [np.array(xs) for xs in itertools.product((0, 1), repeat=horizon)]
    return np.max(
        [counter.release_units(xs, zeros) - np.cumsum(xs) for xs in streams], axis=0
    ).astype(float)


@pytest.mark.slow
@pytest.mark.exhaustive("kind", "law")
@pytest.mark.parametrize(
    ("kind", "law"),
    [(kind, law) for kind in mechanisms.ALL for law in LAWS if takes(kind, law)],
    ids=lambda thing: getattr(thing, "__name__", None) or shown(thing),
)
def test_noise_exceeds_its_quantiles_with_at_most_p(kind, law):
    """All values of L z, and the rounding of all streams. Sums of whole draws are tight."""
    for horizon in (1, 3):
        counter = counter_of(kind, horizon, law)
        decoder = counter.mechanism.decoder(horizon) / counter.resolution
        moved = rounding_at(counter, horizon)
        bounds = {p: quantiles(counter, p) for p in PS}
        for t in range(horizon):
            values, beyond = weighted(law, decoder[t])
            for p, x in bounds.items():
                assert x.shape == (horizon,)
                place = np.searchsorted(values, x[t] - moved[t] - 1e-12)
                assert beyond[place] <= p * (1 + 1e-9), (horizon, t, p)
                if counter.mechanism.unit_weights:
                    assert beyond[np.searchsorted(values, x[t] - 1)] > p, (horizon, t, p)


def test_enumeration_tells_bounds_that_forget_what_is_rounded(monkeypatch):
    """The mutant without margins overspends."""
    monkeypatch.setattr(tails, "norms1", lambda counter, norms2: 0 * norms2)
    worst = 0.0
    for kind, law in itertools.product(ROUNDED, (rounded("0.3"), rounded("0.7"))):
        counter = counter_of(kind, 3, law)
        decoder, moved = counter.mechanism.decoder(3) / 4, rounding_at(counter, 3)
        for p in PS:
            x = quantiles(counter, p)
            for t in range(3):
                values, beyond = weighted(law, decoder[t])
                worst = max(worst, beyond[np.searchsorted(values, x[t] - moved[t] - 1e-12)] / p)
    assert worst > 10


@pytest.mark.long
@pytest.mark.parametrize("kind", mechanisms.ALL, ids=lambda kind: kind.__name__)
def test_every_mechanism_has_quantiles_for_every_p(kind):
    """Also for tiny and for large scales, and shorter prefixes; the smaller p, the farther."""
    for law in (*LAWS, laplace("0.001"), laplace(10**6), discrete("0.01"), rounded(10**6)):
        if not takes(kind, law):
            continue
        for horizon in (1, 2, 50):
            counter = counter_of(kind, horizon, law)
            found = np.array([quantiles(counter, p) for p in (*SMALL, 1e-250, 1e-300)])
            assert np.isfinite(found).all()
            assert (found > 0).all()
            assert not kind.unit_weights or (found == np.rint(found)).all()
            assert (np.diff(found, axis=0) >= -1e-9).all(), law
            n = (horizon + 1) // 2
            assert np.array_equal(quantiles(counter, 1e-6, n), quantiles(counter, 1e-6)[:n])


def test_what_the_encoder_rounds_is_in_steps_of_the_lattice(monkeypatch):
    counter = dp.calibrate(mechanisms.NormalizedBLT(1000), APPROX, TickChange(0, 3), unit=0.5)
    largest = 6 * 2**20 * counter.resolution
    per_row = 1 + 2 * largest * counter.mechanism.encoding_error
    assert tails.encoding(counter) == pytest.approx(per_row)
    tree = counter_of(mechanisms.BinaryTree, 8, laplace(2))
    assert tails.encoding(tree) == 0
    exact = quantiles(tree, 1e-9)
    monkeypatch.setattr(tails, "encoding", lambda counter: 2.0)
    assert np.array_equal(quantiles(tree, 1e-9), exact + 2 * tree.mechanism.row_norms2(8))


def test_weights_of_laplace_noise_are_at_most_1():
    for kind in mechanisms.ALL:
        if "laplace" in kind(4).laws:
            for horizon in (1, 2, 3, 31, 64, 100):
                weights = np.abs(kind(horizon).decoder(horizon))
                assert weights.max() <= 1
                assert not kind.unit_weights or set(weights.ravel().tolist()) <= {0, 1}


# Sums of whole draws


def sums(law: Law, terms: int, p: float):
    """P(sum of j draws >= m) at place m + middle, and the middle, by convolution of wide arrays."""
    reach = 2
    while log_pmf(law, np.array([reach]))[0] > math.log(p) - 30:
        reach += max(1, reach // 4)
    one = np.exp(log_pmf(law, np.arange(-reach, reach + 1)))
    total = np.ones(1)
    for _ in range(terms):
        total = np.convolve(total, one)
        yield np.cumsum(total[::-1])[::-1], len(total) // 2


@pytest.mark.parametrize(
    "law",
    [
        *map(laplace, ("0.2", 1, "7.5")),
        *map(discrete, ("0.4", 1, 9)),
        *map(rounded, ("0.1", 1, 5)),
    ],
    ids=shown,
)
def test_sums_of_whole_draws_are_exact(law):
    for p in (*SMALL, 1e-100):
        found = sum_quantiles(law, 7, p)
        for m, (above, middle) in zip(found.astype(int), sums(law, 7, p), strict=True):
            assert above[middle + m] <= p < above[middle + m - 1] * (1 + 1e-9), (p, m)


def log_above(scale: float, m: float, terms: int) -> float:
    """log P(sum of one or two discrete Laplace draws >= m), m >= 1, in closed form."""
    q = math.exp(-1 / scale)
    if terms == 1:
        return -m / scale - math.log1p(q)
    # P(x) = ((1-q)/(1+q))^2 q^x (x + (1+q^2)/(1-q^2)), summed over x >= m.
    factor = math.tanh(0.5 / scale) ** 2 / -math.expm1(-1 / scale)
    more = (1 + q * q) / -math.expm1(-2 / scale) + q / -math.expm1(-1 / scale)
    return -m / scale + math.log(factor * (m + more))


@pytest.mark.parametrize("p", [0.49, 0.1, 1e-6, 1e-30, 1e-200])
@pytest.mark.parametrize("scale", [0.05, 1, 30, 512, 513, 10**4, 2**33])
def test_laplace_sums_against_closed_forms(scale, p):
    """To the integer up to scale 512; beyond it above, and by less than 0.3 % for small p."""
    for terms, m in enumerate(sum_quantiles(laplace(scale), 2, p), 1):
        assert log_above(scale, m, terms) <= math.log(p)
        if m > 1 and scale <= 512:
            assert log_above(scale, m - 1, terms) > math.log(p)
        elif scale > 512 and p <= 1e-6:
            assert log_above(scale, m * (1 - 0.003), terms) > math.log(p)


def test_geometrics_split_as_the_coarsening_says():
    """P(G - G' >= k m + k - 1) <= P(Q - Q' >= m), which is close to P(G - G' >= k m)."""
    for scale, k in itertools.product((0.3, 2, 50), (2, 3, 17)):
        for m in range(1, 40):
            split = log_above(scale / k, m, 1)
            assert log_above(scale, k * m + k - 1, 1) <= split
            assert log_above(scale, k * m - k, 1) > split  # the other side, so no room is wasted


def test_coarse_draws_count_all_of_their_remainders():
    """A draw is below k X' + k - 1, so j of them are below k times their sum and j (k - 1)."""
    fine = sum_quantiles(laplace(500), 5, 1e-9)
    assert np.array_equal(sum_quantiles(laplace(1500), 5, 1e-9), 3 * fine + 2 * np.arange(1, 6))


@pytest.mark.parametrize("law", [laplace(9), discrete(9), rounded(9)], ids=shown)
def test_short_arrays_only_raise_quantiles(law, monkeypatch):
    """What leaves them is counted, at either end."""
    exact, reach, raised = {p: sum_quantiles(law, 9, p) for p in SMALL}, tails._reach, 0
    for share in np.linspace(0.3, 0.95, 27):
        monkeypatch.setattr(tails, "_reach", lambda *args, s=share: math.ceil(s * reach(*args)))
        for p, known in exact.items():
            found = sum_quantiles(law, 9, p)
            assert (found >= known).all()
            raised += (np.isfinite(found) & (found > known)).sum()
    assert raised > 2


@pytest.mark.parametrize("law", [laplace(9), discrete(9), rounded(9)], ids=shown)
def test_short_arrays_lose_nothing(law, monkeypatch):
    """At the lower end either, whose mass never comes near a quantile."""
    monkeypatch.setattr(tails, "_reach", lambda *args: 12)
    ways = tails._laplace_sums if isinstance(law, DiscreteLaplace) else tails._convolved
    for j, found in enumerate(ways(law, 9, 0.1), 1):
        assert len(found.inside) == 25
        assert found.inside.sum() + found.beyond >= 1 - 1e-12, j


def test_wide_gaussians_are_left_to_other_bounds():
    assert np.isinf(sum_quantiles(discrete(129), 3, 1e-6)).all()
    counter = counter_of(mechanisms.BinaryTree, 100, discrete(129))
    normal = 129 * np.sqrt(counter.mechanism.row_norms2(100)) * normal_quantile(1e-9)
    found = quantiles(counter, 1e-9)
    assert (found > normal).all()
    assert (found < normal * 1.01).all()


# Gaussian noise


def test_normal_quantiles_to_forty_digits():
    with mpmath.workdps(40):
        for p in (0.4999, 0.49, 0.1, 1e-3, 1e-9, 1e-16, 1e-30, 1e-100, 1e-300):
            z = mpmath.mpf(normal_quantile(p))
            assert mpmath.erfc(z / mpmath.sqrt(2)) / 2 <= p
            assert mpmath.erfc((z - mpmath.mpf("1e-11")) / mpmath.sqrt(2)) / 2 > p


@pytest.mark.parametrize("sigma", ["0.05", "0.3", "0.7", "1", "1.2", "1.5", "2.5", "7", "40"])
def test_discrete_gaussians_are_below_a_normal_and_one(sigma):
    """P(X >= m) <= P(Y >= m - 1) for m >= 1, and what the other m need, in 40 digits.

    The mutant Y + 1/2, which does for rounded ones, fails at the latter.
    """
    with mpmath.workdps(40):
        s = mpmath.mpf(sigma)
        top = int(8 * s) + 6
        last = top + int(14 * s) + 14
        f = [mpmath.exp(-mpmath.mpf(x * x) / (2 * s * s)) for x in range(last)]
        whole = 2 * mpmath.fsum(f) - 1

        def normal(n):
            return mpmath.erfc(n / s / mpmath.sqrt(2)) / 2

        beyond, mutant_fails = mpmath.fsum(f[top:]) / whole, False
        for n in range(top - 1, 0, -1):
            beyond += f[n] / whole
            assert normal(n) <= beyond <= normal(n - 1), n
            mutant_fails |= beyond < normal(n - mpmath.mpf("0.5"))
        assert mutant_fails


@pytest.mark.parametrize(("horizon", "figure"), [(100, 59.7), (1000, 82.9), (10_000, 108.35)])
def test_thresholds_of_one_event(horizon, figure):
    """1 + the largest x, p = delta / horizon; the lattice and the law cost next to nothing."""
    p = 5e-7 / horizon
    counter = dp.calibrate(mechanisms.NormalizedBLT(horizon), APPROX, change=EVENT)
    x = quantiles(counter, p)
    assert 1 + x.max() == pytest.approx(figure, abs=0.06)
    normal = normal_quantile(p) * counter.stddevs(horizon)
    assert (x > normal * (1 + 1e-6)).all()
    assert (x < normal * (1 + 1e-4)).all()
    tree = dp.calibrate(mechanisms.SmoothBinary(horizon), APPROX, change=EVENT)
    assert quantiles(tree, p) == pytest.approx(normal_quantile(p) * tree.stddevs(horizon), rel=0.07)


# Any noise


@pytest.mark.parametrize("law", [laplace("0.01"), laplace(2), laplace(2**20)], ids=shown)
def test_chernoffs_are_the_best_of_all_lines(law):
    """Which the old way finds, one l at a time, in 40 digits; and `chernoff` is the same."""
    norms2, half = np.array([0.3, 1, 1.7, 10, 200, 1e4]), 1 / (2 * mpmath.mpf(law.scale))
    with mpmath.workdps(40):
        shares = [mpmath.mpf(i) / 1000 for i in range(1, 1000, 7)]
        logs = [-mpmath.log(1 - (mpmath.sinh(s * half) / mpmath.sinh(half)) ** 2) for s in shares]
    for nats in (0.7, 9, 690):
        for norm2, bound in zip(norms2, chernoffs(law, norms2, nats), strict=True):
            lines = zip(logs, shares, strict=True)
            best = float(min((norm2 * log + nats) / (2 * s * half) for log, s in lines))
            assert best * (1 - 0.02) < bound <= best * (1 + 1e-9)
            assert bound == chernoff(law, norm2, nats)


# Whole releases


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "budget"),
    [
        (mechanisms.NormalizedBLT(20), dp.ZCDP(0.1)),
        (mechanisms.SmoothBinary(20), dp.ZCDP(0.1)),
        (mechanisms.BinaryTree(20), dp.PureDP(0.01)),
        (mechanisms.KAry(20), dp.PureDP(0.5)),
        (mechanisms.Honaker(20), dp.PureDP(0.5)),
    ],
    ids=lambda thing: getattr(thing, "name", ""),
)
def test_releases_exceed_their_quantiles_about_as_often(mechanism, budget):
    """Of many streams of one counter, with a unit of its own; those of Honaker's are wider."""
    streams, p = 40_000, 0.02
    counter = dp.calibrate(mechanism, budget, dp.Change(0, 2), dimension=streams, unit=0.25)
    counter = replace(counter, law=dp.calibrate(mechanism, budget, dp.Change(0, 2), unit=0.25).law)
    xs = np.full((20, streams), 0.75)
    noise = counter.release(xs, SeededNoise(counter.law, 3, streams)) - np.cumsum(xs, axis=0)
    often = (noise >= quantiles(counter, p)[:, None] * counter.unit).mean(axis=1)
    sigma = math.sqrt(p / streams)
    assert (often <= p + 5 * sigma).all()
    least = 0.003 if isinstance(mechanism, mechanisms.Honaker) else 0.7
    assert (often >= p * least).all()


@pytest.mark.parametrize("kind", [*ROUNDED, mechanisms.Honaker], ids=lambda kind: kind.__name__)
def test_arithmetic_is_far_below_what_is_allowed_for_it(kind, monkeypatch):
    """Releases are linear in the noise, but for their own rounding."""
    counter = dp.calibrate(kind(1000), APPROX, change=EVENT)
    zeros, n = np.zeros(1000, dtype=np.int64), counter.mechanism.draws(1000)
    z = [SeededNoise(counter.law, seed).draw(1, n) for seed in (1, 2)]
    a, b, both = (counter.release(zeros, Script(noise)) for noise in (*z, z[0] + z[1]))
    # Decoders of whole numbers round down, to millionths of millionths of a count.
    assert (np.abs(a + b - both) < 1e-9 * counter.stddevs(1000)).all()
    of_draws = np.sqrt(float(counter.law.sigma2) * counter.mechanism.row_norms2(1000))
    allowed = (normal_quantile(1e-9) + 0.9e-6) * of_draws * counter.grid
    monkeypatch.setattr(tails, "norms1", lambda counter, norms2: 0 * norms2)
    assert (quantiles(counter, 1e-9) > allowed).all()


@pytest.mark.parametrize(
    ("kind", "horizon", "times"),
    [
        (mechanisms.BinaryTree, 100, 4944),
        (mechanisms.KAry, 100, 1422),
        (mechanisms.TwoLevel, 20, 1641),
    ],
)
def test_the_normal_quantile_overspends_for_laplace_trees(kind, horizon, times):
    """The mutant that takes so many stddevs, by thousands of times."""
    delta = 5e-7
    counter = dp.calibrate(kind(horizon), APPROX, change=EVENT)
    assert isinstance(counter.law, DiscreteLaplace)
    terms = np.rint(counter.mechanism.row_norms2(horizon)).astype(int)
    above = dict(enumerate(sums(counter.law, terms.max(), delta / horizon), 1))

    def spent(bounds):
        return sum(
            above[k][0][above[k][1] + math.ceil(x)] for k, x in zip(terms, bounds, strict=True)
        )

    mutant = normal_quantile(delta / horizon) * counter.stddevs(horizon)
    assert spent(mutant) / delta == pytest.approx(times, rel=1e-3)
    assert 0.5 * delta < spent(quantiles(counter, delta / horizon)) <= delta


@pytest.mark.exhaustive  # releases of 10^6 steps, up to a second each
@pytest.mark.parametrize("kind", [mechanisms.NormalizedBLT, mechanisms.Honaker, mechanisms.KAry])
def test_long_horizons_are_quick(kind):
    counter = dp.calibrate(kind(10**6), APPROX, change=TickChange(0, 1, most=1000))
    x = quantiles(counter, 1e-15)
    assert x.shape == (10**6,)
    assert (x >= normal_quantile(1e-15) * counter.stddevs(10**6)).all()


# Arguments


def test_arguments_out_of_range_are_refused():
    counter = counter_of(mechanisms.BinaryTree, 8, laplace(1))
    for p in (0, -0.1, 0.5, 1, 1e-301, math.nan):
        with pytest.raises(ValueError, match="p must be from 1e-300 to 1/2"):
            quantiles(counter, p)
    with pytest.raises(HorizonError, match="9 steps do not fit"):
        quantiles(counter, 0.1, 9)
    assert quantiles(counter, 0.1, 0).shape == (0,)

    @dataclass(frozen=True)
    class Other(DiscreteLaplace):
        pass

    class Unknown(Law):
        variance, scale = 1.0, 1.0
        pmf = sample = None

    assert quantiles(replace(counter, law=Other(Fraction(1))), 0.1).shape == (8,)
    with pytest.raises(TypeError, match="the tail of"):
        quantiles(replace(counter, law=Unknown()), 0.1)


def test_examples():
    assert doctest.testmod(tails).failed == 0


@pytest.mark.parametrize("kind", ["BinaryTree", "SmoothBinary", "Simple1", "NormalizedBLT"])
@pytest.mark.parametrize("total", [0.3, 1e-2, 1e-7])
def test_levels_take_no_more_than_their_total(kind, total):
    """And most of it, where sums are whole: by the exact law, convolved here."""
    mechanism = getattr(mechanisms, kind)(60)
    counter = dp.calibrate(mechanism, dp.ApproxDP(2.0, 1e-5), TickChange(0, 1))
    tested = np.arange(60) % 3 == 2
    levels = tails.thresholds(counter, total, tested)
    assert np.isinf(levels[~tested]).all()
    assert np.all(levels[tested] <= quantiles(counter, total / 20)[tested])
    if mechanism.unit_weights:
        one = counter.law.pmf(np.arange(-400, 401))
        sums = [np.ones(1)]
        for _ in range(10):
            sums.append(np.convolve(sums[-1], one))
        terms = np.rint(mechanism.row_norms2(60)).astype(int)
        spent = 0.0
        for t in np.flatnonzero(tested):
            law = sums[terms[t]]
            spent += law[len(law) // 2 + round(levels[t]) :].sum()
        assert total / 3 < spent <= total * (1 + 1e-6)
