"""What audits by trials prove is true, and enough to see a mechanism that is broken."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from scipy.stats import binom

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.counters.selection import Selection
from beam_dpcount.noise.entropy import Entropy, SystemNoise
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.transforms import alarms, last, postprocess
from tests.audit import attacks, bounds, counters, pipelines, selected, table
from tests.audit.exact import largest_loss
from tests.public import PUBLIC

# Bounds


@pytest.mark.parametrize("missed", [0.3, 0.01])
def test_bounds_of_shares_miss_no_more_than_they_say(missed: float) -> None:
    """Exactly, over all numbers of hits."""
    hits, n = np.arange(61), 60
    for p in (0.0, 0.01, 0.2, 0.5, 0.83, 1.0):
        chances = binom.pmf(hits, n, p)
        assert chances[bounds.at_least(hits, n, missed) > p].sum() <= missed
        assert chances[bounds.at_most(hits, n, missed) < p].sum() <= missed
    lows = bounds.at_least(hits, n, missed)
    assert (lows[0], bounds.at_most(hits, n, missed)[-1]) == (0, 1)
    tight = [binom.sf(k - 1, n, low) for k, low in zip(hits[1:], lows[1:], strict=True)]
    assert tight == pytest.approx([missed] * n)


def test_measures_are_those_of_two_coins() -> None:
    p, q = np.array([0.5, 0.1, 0.2]), np.array([0.25, 0.1, 0.4])
    assert bounds.epsilon()(p, q) == pytest.approx([math.log(2), 0, 0])
    assert bounds.epsilon(0.1)(p, q) == pytest.approx([math.log(1.6), 0, 0])
    one = [math.log(p**a * q ** (1 - a) + (1 - p) ** a * (1 - q) ** (1 - a)) / (a - 1) / a
           for a in bounds._ORDERS for p, q in [(0.5, 0.25)]]  # fmt: skip
    assert bounds.rho(p, q) == pytest.approx([max(one), 0, 0], abs=1e-12)
    assert bounds.mu(np.array(0.9), np.array(0.1)) == pytest.approx(2.563, abs=1e-3)


def split(ours: np.ndarray, theirs: np.ndarray) -> tuple:
    n = len(ours) // 4
    return (ours[:n], theirs[:n]), (ours[n:], theirs[n:])


def test_laws_that_are_known_are_found() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 100_000))
    assert 0.95 < bounds.proved(bounds.mu, *split(x[0] + 1, x[1])) < 1
    assert 0.95 < bounds.proved(bounds.mu, *split(x[0], x[1] + 1)) < 1
    assert bounds.proved(bounds.mu, *split(*x)) < 0.02
    coins = rng.random((2, 100_000)) < np.array([[1], [math.e]]) / (1 + math.e)
    for ours, theirs in (coins, coins[::-1]):
        assert 0.95 < bounds.proved(bounds.epsilon(), *split(ours * 1.0, theirs * 1.0)) < 1
    leak = rng.random((2, 100_000)) < np.array([[0.0], [0.01]])
    assert bounds.proved(bounds.epsilon(), *split(*leak * 1.0)) > 4
    assert bounds.proved(bounds.epsilon(0.01), *split(*leak * 1.0)) == 0


# Counters


@pytest.mark.slow
@pytest.mark.exhaustive("name", "budget")
@pytest.mark.parametrize("budget", [dp.PureDP(1.0), dp.ZCDP(0.5), dp.ApproxDP(4.0, 1e-5)], ids=str)
@pytest.mark.parametrize("name", ["BinaryTree", "NormalizedBLT", "KAry", "Unbounded(BinaryTree)"])
def test_counters_keep_their_budgets(name: str, budget: Budget) -> None:
    found = counters.audited(name, budget, 80_000)
    laplace = name == "KAry"
    assert (found is None) == (laplace and isinstance(budget, dp.ZCDP)) or isinstance(
        budget, dp.PureDP
    )
    if found is not None:
        assert found.faults() == []


def half(counter: dp.Counter) -> dp.Counter:
    """A mutant: half the noise."""
    law: Any = counter.law
    if isinstance(law, DiscreteLaplace):
        return replace(counter, law=DiscreteLaplace(law.parameter / 2))
    return replace(counter, law=type(law)(law.sigma2 / 4))


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("BinaryTree", dp.PureDP(1.0)),
        ("KAry", dp.PureDP(1.0)),
        ("SmoothBinary", dp.ZCDP(0.5)),
        ("NormalizedBLT", dp.ApproxDP(1.0, 1e-2)),
    ],
)
def test_half_the_noise_is_caught(name: str, budget: Budget) -> None:
    found = counters.audited(name, budget, 40_000, half)
    assert found is not None
    assert found.known > found.budget
    assert found.learned > found.budget  # by one who knows nothing, too
    assert [fault for fault in found.faults() if "a classifier proves" in fault]


def test_a_release_that_is_exact_once_is_caught() -> None:
    """Of those by `step` alone: the third is a sum without noise."""

    class Bare:
        def __init__(self, counter: dp.Counter) -> None:
            self.law, self.dimension = counter.law, counter.dimension
            self.release, self.init, self._counter = counter.release, counter.init, counter

        def step(self, state, x, noise):
            state, value = self._counter.step(state, x, noise)
            return state, state[1] * 1.0 if state[0] == 3 else value

    found = counters.audited("BinaryTree", dp.PureDP(1.0), 20_000, Bare)
    assert found is not None
    assert found.learned > 2  # though not by the statistic of the mechanism that it should be


def test_what_proves_too_little_is_said() -> None:
    found = counters.audited("BinaryTree", dp.ZCDP(0.5), 300)
    assert found is not None
    assert "only mu" in found.faults()[0]


# Transforms


def test_every_transform_that_counts_is_audited() -> None:
    exported = PUBLIC.values()
    counting = {
        kind.__name__
        for kind in exported
        if isinstance(kind, type)
        and issubclass(kind, beam.PTransform)
        and kind.__module__ not in (postprocess.__name__, last.__name__, alarms.__name__)
    }
    audited = {*pipelines.CASES, *pipelines.LOCAL}
    assert counting == {name.partition(",")[0] for name in audited}


class Half(Entropy):
    """A mutant: half the noise."""

    def source(self, law, dimension):
        noise = SystemNoise(replace(law, sigma2=law.sigma2 / 4), dimension)
        return lambda key, window: noise


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.parametrize("name", ["PrefixCount", "TickCount"])
def test_transforms_keep_their_budgets_and_half_the_noise_is_caught(name: str) -> None:
    found = pipelines.audited(name, 4000)
    assert found.known is not None
    assert found.mu is not None
    assert found.pair == pytest.approx(2, abs=0.1)
    assert found.known < 2 > found.learned
    assert 1.4 < found.mu < 2.2
    broken = pipelines.audited(name, 4000, Half())
    assert [fault for fault in broken.faults() if "known statistic proves" in fault]


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.parametrize("name", ["an event", "a person with 2 events in a key"])
def test_lone_keys_are_shown_as_rarely_as_they_should(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert selected.audited(name, 3000).least < selected.DELTA
    right = Selection.lattice_thresholds.func  # type: ignore[attr-defined]

    def lower(selection: Selection) -> Any:
        """A mutant: as if what a person changes in a key were 1 less."""
        return right(selection) - 1 / selection.unit

    monkeypatch.setattr(Selection, "lattice_thresholds", property(lower))
    (fault,) = selected.audited(name, 3000).faults()
    assert "which proves delta > " in fault


def test_shares_that_prove_too_little_of_delta_are_said() -> None:
    assert "only proves" in selected.Found("an event", 1000, 30, 0.01).faults()[0]
    assert not selected.Found("an event, tested at all ticks", 1000, 30, 0.01).faults()


# Floating point


@pytest.mark.parametrize("attack", ["digits after the point", "the lattice of doubles from 1 to 2"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_noise_of_floats_is_broken(noise: str, attack: str) -> None:
    """Of epsilon = 1 by the textbook: a few thousand releases prove many times that."""

    def sample(i: int) -> np.ndarray:
        return attacks.plain_float(noise, 1.0, float(i), 40_000, i)

    assert attacks.proved(attacks.ATTACKS[attack], sample) > 4


STREAMS = {
    "0 and 1": ([0.0, 0, 0, 0], [1.0, 0, 0, 0]),
    "last bits": ([0.1 + 0.2, 0.5, 0, 1], [math.nextafter(0.5, 1), 0.5, 0, 1]),
    "tiny": ([5e-324, 0.3, 0.3, 0.3], [-0.0, 0.3, 0.3, 0.3]),
    "huge": ([1e300, 0, 1, 0.3], [-1e300, 0, 1, 0.3]),
}


@pytest.mark.exhaustive("name", "streams", "attack")
@pytest.mark.parametrize("attack", attacks.ATTACKS)
@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("name", ["BinaryTree", "KAry", "Honaker", "NormalizedBLT", "SquareRoot"])
def test_noise_of_whole_numbers_is_not(name: str, streams: str, attack: str) -> None:
    kind = getattr(mechanisms, name)(4)
    gaussian = name in ("NormalizedBLT", "SquareRoot")
    budget: Budget = dp.ZCDP(0.5) if gaussian else dp.PureDP(1.0)
    for unit in (1.0, 0.1):
        counter = dp.calibrate(kind, budget, unit=unit)
        sample = attacks.of_counter(counter, STREAMS[streams], 10_000)
        # Of Gaussian noise: its epsilon at a delta of 1e-9.
        assert attacks.proved(attacks.ATTACKS[attack], sample) <= counter.epsilon_at(1e-9)


def test_digits_after_the_point() -> None:
    values = np.array([0.0, 1.0, 6.0, 0.5, 0.75, -0.75, 2.0**-60, 3 * 2.0**-60, 1 + 2.0**-52])
    assert attacks.digits(values).tolist() == [0, 0, 0, 1, 2, 2, 60, 60, 52]


# The page


PAGE = table.PAGE.read_text("utf-8")


def test_the_page_has_every_row_and_none_of_them_has_a_fault() -> None:
    rows = table.shown(PAGE, "counters")
    known = [
        (name, str(budget))
        for name in counters.KINDS
        for budget in counters.BUDGETS
        if counters.calibrated(name, budget) is not None
    ]
    assert [(name, budget) for name, budget, *_ in rows] == known
    most = {str(budget): bounds.of_budget(budget)[1] for budget in counters.BUDGETS}
    for _, budget, noise, _, exact, by_statistic, mu, by_classifier in rows:
        proved = [float(cell.split(" > ")[1]) for cell in (by_statistic, by_classifier)]
        assert max(proved) <= most[budget]
        assert exact == "elsewhere" or float(exact.split()[0]) <= 1
        if "Gaussian" in noise:
            assert ratio(mu) >= counters.TIGHT["mu"]
        elif "zCDP" not in budget:
            assert proved[0] >= counters.TIGHT["epsilon"] * most[budget]
    transforms = table.shown(PAGE, "transforms")
    assert [name for name, *_ in transforms] == [*pipelines.CASES, *pipelines.LOCAL]
    for _, budget, _, _, by_statistic, mu, by_classifier in transforms:
        for cell in (by_statistic, by_classifier):
            assert float(cell.split(" > ")[1]) <= float(budget.split()[-1])
        assert ratio(mu) >= counters.TIGHT["mu"]
    lone = table.shown(PAGE, "selected")
    assert [name for name, *_ in lone] == [*selected.CASES]
    for name, delta, trials, shown, least in lone:
        numbers = int(trials.replace(",", "")), int(shown.replace(",", ""))
        found = selected.Found(name, *numbers, float(least.split(" > ")[1]))
        assert (float(delta), found.faults()) == (selected.DELTA, [])


def ratio(cell: str) -> float:
    one, other = map(float, cell.split(" of "))
    return (one + 0.0005) / (other - 0.005 if len(str(other)) < 5 else other - 0.0005)


def test_rows_take_the_place_of_those_of_their_names() -> None:
    lines = PAGE.split("<!-- counters -->\n")[1].split("\n<!-- /counters -->")[0].splitlines()
    of_one = [line for line in lines if line.startswith("| BLT |")]
    assert len(of_one) == 5
    same = table.written(PAGE, "counters", "\n".join([*lines[:2], *of_one]))
    assert same == PAGE
    other = table.written(PAGE, "counters", "\n".join([*lines[:2], of_one[0]]))
    assert other == PAGE.replace("\n".join(of_one), of_one[0])


@pytest.mark.parametrize("name", ["Simple1", "KAry", "SquareRoot"])
def test_the_pages_exact_losses_are_what_is_computed(name: str) -> None:
    for shown, budget, _, _, spent, *_ in table.shown(PAGE, "counters"):
        for known in counters.BUDGETS:
            if (shown, budget) == (name, str(known)):
                loss = largest_loss(counters.calibrated(name, known))
                assert spent.split()[0] == table._share(loss)
