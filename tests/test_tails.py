"""Upper tails of releases' noise, against exact enumeration."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters import tails
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.tails import quantiles
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian
from tests.scripted import SeededBytes

LAWS: list[Law] = [
    DiscreteLaplace(Fraction(1)),
    DiscreteLaplace(Fraction(1, 3)),
    DiscreteGaussian(Fraction(1, 4)),
    DiscreteGaussian(Fraction(9, 4)),
    RoundedGaussian(Fraction(2)),
]
CHANGE = TickChange(0, 1)


class Coarse(Counter):
    """A counter on the lattice of its values, so that noise can be enumerated."""

    resolution = 1


def noises(counter: Counter, steps: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    """The noise of releases, shape (n, steps), of draws within +-half, and their chances."""
    decoder = counter.mechanism.decoder(steps)
    z = np.arange(-half, half + 1)
    grid = np.stack(np.meshgrid(*[z] * decoder.shape[1], indexing="ij"), -1)
    draws = grid.reshape(-1, decoder.shape[1])
    return draws @ decoder.T, np.prod(counter.law.pmf(draws), axis=1)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("kind", dp.mechanisms.ALL)
def test_they_hold_and_whole_sums_are_exact(kind: Any, law: Law) -> None:
    mechanism = kind(3)
    if ("laplace" if isinstance(law, DiscreteLaplace) else "gaussian") not in mechanism.laws:
        pytest.skip(f"{mechanism.name} does not take it")
    counter = Coarse(mechanism, dp.ZCDP(1.0), law, CHANGE, None, 1)
    values, chances = noises(counter, 3, 9 if mechanism.draws(3) > 3 else 14)
    missing = max(1 - chances.sum(), 0)
    for p in (0.4, 0.1, 1e-2, 1e-3, 1e-5):
        found = quantiles(counter, p)
        for t in range(3):
            above = chances[values[:, t] >= found[t] - 1e-9].sum()
            assert above <= p * (1 + 1e-9), (t, p)
            if mechanism.unit_weights and missing < p * 1e-3:
                assert chances[values[:, t] >= found[t] - 1.5].sum() + missing > p


@pytest.mark.parametrize(("horizon", "theta"), [(100, 59.7), (1000, 82.9), (10_000, 108.5)])
def test_thresholds_of_the_default_mechanism(horizon: int, theta: float) -> None:
    budget = dp.ApproxDP(1.0, 5e-7)
    counter = dp.calibrate(dp.mechanisms.NormalizedBLT(horizon), budget, CHANGE)
    found = 1 + quantiles(counter, 5e-7 / horizon)
    assert found.max() == pytest.approx(theta, rel=1e-3)
    normal = 1 - NormalDist().inv_cdf(5e-7 / horizon) * counter.stddevs(horizon)
    assert np.all(found >= normal)
    assert np.all(found <= normal * 1.0005)


@pytest.mark.parametrize("kind", ["BinaryTree", "SmoothBinary", "Simple1", "NormalizedBLT"])
@pytest.mark.parametrize("total", [0.3, 1e-2, 1e-7])
def test_levels_take_no_more_than_their_total(kind: Any, total: float) -> None:
    """And most of it, where sums are whole: by the exact law."""
    counter = dp.calibrate(getattr(dp.mechanisms, kind)(60), dp.ApproxDP(2.0, 1e-5), CHANGE)
    tested = np.arange(60) % 3 == 2
    levels = tails.thresholds(counter, total, tested)
    assert np.isinf(levels[~tested]).all()
    assert np.all(levels[tested] <= quantiles(counter, total / 20)[tested])
    if not counter.mechanism.unit_weights:
        return
    terms = np.rint(counter.mechanism.row_norms2(60)).astype(int)
    spent = sum(_tail(counter.law, terms[t], round(levels[t])) for t in np.flatnonzero(tested))
    assert total / 3 < spent <= total * (1 + 1e-6)


def test_a_normal_quantile_would_overspend() -> None:
    """By how much, of the sum over all ticks that keys may take."""
    counter = dp.calibrate(dp.mechanisms.BinaryTree(100), dp.PureDP(1.0), CHANGE)
    p = 5e-7 / 100
    normal = -NormalDist().inv_cdf(p) * counter.stddevs(100)
    ones = np.rint(counter.mechanism.row_norms2(100)).astype(int)
    spent = sum(_tail(counter.law, n, math.ceil(x)) for n, x in zip(ones, normal, strict=True))
    ours = sum(
        _tail(counter.law, n, round(x)) for n, x in zip(ones, quantiles(counter, p), strict=True)
    )
    assert ours <= 5e-7 < 1e-4 < spent


def _tail(law: Law, terms: int, m: int) -> float:
    """P(a sum of draws >= m), by plain convolution."""
    one = law.pmf(np.arange(-400, 401))
    sums = one
    for _ in range(terms - 1):
        sums = np.convolve(sums, one)
    return float(sums[len(sums) // 2 + m :].sum())


def test_a_coarser_lattice_lies_above() -> None:
    """Of a large scale: no less than the exact tail, and no more than a percent of x."""
    law = DiscreteLaplace(Fraction(300))
    z = np.arange(-12_000, 12_001)
    one = law.pmf(z)
    for terms, sums in ((1, one), (2, np.convolve(one, one))):
        above = np.cumsum(sums[::-1])[::-1]
        for p in (1e-3, 1e-9):
            exact = int(np.argmax(above <= p)) - len(sums) // 2
            found = tails._sums(law, -math.log(p))[terms - 1].quantile(p)
            assert exact <= found <= exact * 1.01


@pytest.mark.parametrize("sigma2", [1, 1.3, 2, 4, 9, 50, 1e4])
def test_a_discrete_gaussian_is_at_most_a_normal_one_and_a_step(sigma2: float) -> None:
    law = DiscreteGaussian(Fraction(sigma2))
    sigma = math.sqrt(sigma2)
    m = np.arange(-int(9 * sigma) - 3, int(9 * sigma) + 4)
    far = np.arange(m[-1] + 1, m[-1] + int(40 * sigma) + 10)
    above = np.cumsum(law.pmf(m)[::-1])[::-1] + law.pmf(far).sum()
    normal = np.array([math.erfc((x - 1) / sigma / math.sqrt(2)) / 2 for x in m])
    assert np.all(above <= normal * (1 + 1e-12))


def test_a_release_of_many_coordinates_obeys_its_tail() -> None:
    """By drawing: rounding of the encoder and margins included."""
    counter = dp.calibrate(dp.mechanisms.NormalizedBLT(50), dp.ApproxDP(1.0, 1e-2), CHANGE)
    draws = counter.law.sample(50 * 40_000, SeededBytes(7)).reshape(50, -1)
    noise = counter.mechanism.decoder(50) @ draws * counter.grid
    found = quantiles(counter, 1e-2)
    shares = (noise >= found[:, None]).mean(axis=1)
    assert np.all(np.abs(shares - 1e-2) < 6 * math.sqrt(1e-2 / 40_000))


@pytest.mark.parametrize("p", [1e-30, 1e-100])
def test_tiny_probabilities(p: float) -> None:
    for budget in (dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6)):
        for kind in (dp.mechanisms.BinaryTree, dp.mechanisms.Honaker, dp.mechanisms.Simple2):
            counter = dp.calibrate(kind(20), budget, CHANGE)
            found = quantiles(counter, p)
            assert np.all(np.isfinite(found))
            assert np.all(found > quantiles(counter, 1e-3))
