"""Local learning: the message alone is audited; the loss, its minimiser, and their error."""

from __future__ import annotations

import itertools
import math
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders.typecoders import registry
from apache_beam.testing.util import assert_that
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows, TimestampedValue

import beam_dpcount as dp
from beam_dpcount.budget.shares import ClaimedError
from beam_dpcount.local import learner as local
from beam_dpcount.local.learner import (
    ClientChange,
    ConvexLearner,
    LocalLearner,
    LocalRisk,
    MedianLearner,
    column_differences,
)
from beam_dpcount.local.transforms import LocalConvexRisk, LocalMedian, LossOf
from beam_dpcount.mechanisms import ALL, BLT, BinaryTree, KAry, Simple2, SmoothBinary, SquareRoot
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.transforms.inputs import MERGING_WINDOWS, SEVERAL_WINDOWS
from tests.audit import exact as audits
from tests.messages import says
from tests.runners import RUNNERS
from tests.scripted import Script

EXACT = dp.ZCDP(1e12)  # its noise is 0
APPROX = dp.ApproxDP(1.0, 1e-6)


def hinge(x: Any, points: np.ndarray) -> np.ndarray:
    """The slopes of a smooth loss: quadratic near x, then linear."""
    return np.clip(4 * (points - x), -1, 1)


class Broken:
    def __float__(self) -> float:
        raise RuntimeError("s3cr3t")


# What a client counts


def test_profiles_of_medians() -> None:
    learner = MedianLearner(EXACT, 4)
    assert learner.centres.tolist() == [0.125, 0.375, 0.625, 0.875]
    assert learner.grid.tolist() == [0, 0.25, 0.5, 0.75, 1]
    half = [0, 0, 1, 1]
    for value, profile in [
        (0, [1, 1, 1, 1]),
        (0.125, [1, 1, 1, 1]),
        (0.126, [0, 1, 1, 1]),
        (0.5, half),
        (0.9, [0, 0, 0, 0]),
        (-7, [1, 1, 1, 1]),
        (-math.inf, [1, 1, 1, 1]),
        (10**400, [0, 0, 0, 0]),
        (-(10**400), [1, 1, 1, 1]),
        (Decimal("0.2"), [0, 1, 1, 1]),
        (Fraction(1, 5), [0, 1, 1, 1]),
        (True, [0, 0, 0, 0]),
        (np.float32(0.2), [0, 1, 1, 1]),
        (math.nan, half),
        (Decimal("sNaN"), half),
        (None, half),
        ("0.1", half),
        (b"", half),
        (1j, half),
        ([0.1], half),
        (Broken(), half),
    ]:
        assert learner.profiles([value]).tolist() == [profile], value
        assert learner.message(value).tolist() == [*profile, *(1 - np.array(profile))[::-1]]
    mixed = [0.2, "x", [1, 2], None]
    assert learner.profiles(mixed).tolist() == [[0, 1, 1, 1], half, half, half]
    numbers = np.random.default_rng(1).random(50)
    assert np.array_equal(learner.profiles(numbers), learner.profiles(numbers.tolist()))
    assert learner.profiles([]).shape == (0, 4)
    assert learner.messages([]).shape == (0, 8)


def raising(value: Any, points: Any) -> Any:
    raise AttributeError("s3cr3t")


@pytest.mark.parametrize(
    ("gradient", "profile"),
    [
        (lambda x, m: m * 0, [0.5] * 4),
        (lambda x, m: 0, [0.5] * 4),
        (lambda x, m: 2 * m - 1, [0.125, 0.375, 0.625, 0.875]),
        (lambda x, m: [9, -9, 9, 9], [1, 1, 1, 1]),  # made to increase, and clipped
        (lambda x, m: [-9, -9, math.inf, 9], [0, 0, 1, 1]),
        (lambda x, m: [-1, -0.5, -0.75, 0], [0, 0.25, 0.25, 0.5]),
        (raising, [0, 0, 1, 1]),
        (lambda x, m: [0, 0, math.nan, 0], [0, 0, 1, 1]),
        (lambda x, m: [0, 0], [0, 0, 1, 1]),
        (lambda x, m: "a", [0, 0, 1, 1]),
        (lambda x, m: None, [0, 0, 1, 1]),
        (lambda x, m: np.array([1j, 0, 0, 0]), [0, 0, 1, 1]),
        (lambda x, m: [np.ma.masked, 0, 0, 0], [0, 0, 1, 1]),
        (lambda x, m: m.sort() or m.fill(3), [0, 0, 1, 1]),
    ],
)
def test_profiles_of_losses(gradient: Any, profile: list[float]) -> None:
    learner = ConvexLearner(EXACT, 4, gradient=gradient)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert (learner.profiles([0.3])[0] * learner.unit).tolist() == profile
    assert not warned  # one would show that there is such a client
    assert learner.centres[0] == 0.125  # whatever a gradient does to its points
    assert learner.profiles([]).shape == (0, 4)


# What a client can change


def steps_of(learner: LocalLearner, profiles: np.ndarray) -> np.ndarray:
    """What both counters count, shape (n, T, 2), from the definition."""
    whole = round(1 / learner.unit)
    back = whole - profiles[:, ::-1]
    return np.diff(np.stack([profiles, back], axis=2), axis=1, prepend=0)


def monotone(cells: int, whole: int) -> np.ndarray:
    """All profiles."""
    found = itertools.combinations_with_replacement(range(whole + 1), cells)
    return np.array(list(found))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("cells", [2, 3, 4, 5])
def test_norms_are_what_all_pairs_of_clients_reach(cells: int, kind: Any) -> None:
    """Of any monotone losses, not only of medians; brute force, in quarters."""
    mechanism, unit = kind(cells), 0.25
    fine = mechanism.resolution(4, 4)
    l1, l2_squared = ClientChange().norms(mechanism, unit, None)
    u = np.diff(monotone(cells, 4), axis=1, prepend=0)
    R = mechanism.encoder(cells)
    encoded = u @ R.T * fine
    if isinstance(mechanism, RoundedMechanism):
        encoded = np.rint(encoded)
    differences = encoded[:, None] - encoded
    reached_l1 = np.abs(differences).sum(axis=2).max()
    reached = (differences**2).sum(axis=2).max()
    assert reached_l1 <= l1
    if isinstance(mechanism, RoundedMechanism):
        assert 0.999 * l2_squared <= reached <= l2_squared
    else:
        assert reached == l2_squared
        assert reached_l1 == l1 or not set(R.ravel().tolist()) <= {0, 1}
    assert l2_squared <= 2 * mechanism.norms(4 * fine, 4 * fine)[1]


def test_what_one_column_leaves_out() -> None:
    """The exact squared norms, over that of one column: [FHU22, section 5.6] takes 1."""
    for mechanism, ratio in (
        (KAry(64), 2.0),
        (BinaryTree(64), 11 / 7),
        (SmoothBinary(64), 2.0),
        (SquareRoot(64), 1.5303),
        (BLT(64), 1.5176),
    ):
        exact = column_differences(mechanism)[1] / Fraction(mechanism.l2_sensitivity_squared)
        assert math.isclose(exact, ratio, rel_tol=1e-4)


def test_client_changes() -> None:
    with pytest.raises(ValueError, match="neighbouring relation"):
        ClientChange(relation="add_remove")
    with pytest.raises(ValueError, match=r"counts in \(0, 1\)"):
        ClientChange(high=2)
    with pytest.raises(ValueError, match="leave coordinates out"):
        ClientChange(coordinates=1)
    with pytest.raises(ValueError, match="leave dimension out"):
        ClientChange().norms(BinaryTree(4), 1, 2)
    assert str(ClientChange()) == "replace_one (all data of any one client)"


# The message alone is audited


def audit_message(learner: LocalLearner, values: list[Any]) -> list[str]:
    """The names of the checks that fail, none of them by sampling.

    structure: a message is W (q + z), W of the decoder for either counter and 0 between them, z of
      independent draws, each coordinate once; q the integers that the encoder gives of the client.
    budget: the exact loss of q + z, both counters together, for every pair of clients.
    """
    counter, cells = learner.counter, learner.cells
    R, L = (f(cells) for f in (counter.mechanism.encoder, counter.mechanism.decoder))
    draws = len(R)
    block = np.zeros((2 * cells, draws, 2))
    block[:cells, :, 0] = block[cells:, :, 1] = L

    def sent(value: Any, z: np.ndarray) -> np.ndarray:
        script = Script(z)
        message = learner.message(value, script) / counter.grid
        if sorted(script.drawn) != list(range(1, draws + 1)):
            failed.add("structure")
        return message

    failed: set[str] = set()
    silence = np.zeros((draws, 2), dtype=np.int64)
    rng, encoded = np.random.default_rng(1), []
    for value in values:
        bare = sent(value, silence)
        u = steps_of(learner, learner.profiles([value]))[0]
        exact = np.einsum("dt,tk->dk", R, u) * counter.resolution
        if isinstance(counter.mechanism, RoundedMechanism):
            halves = bare.reshape(2, cells).T
            q = np.linalg.solve(L, halves)
            if not np.allclose(q, np.rint(q), atol=1e-3, rtol=0):
                failed.add("structure")
            if np.abs(q - exact).max() > 0.5 + 1e-3:
                failed.add("structure")
            q = np.rint(q)
        else:
            q = exact
        z = rng.integers(-1000, 1001, (draws, 2))
        for noise in (silence, z):
            expected = np.tensordot(block, q + noise, axes=([1, 2], [0, 1]))
            if not np.allclose(sent(value, noise), expected, rtol=1e-9, atol=1e-3):
                failed.add("structure")
        encoded.append(q.ravel())
    changes = [np.rint(a - b).astype(int) for a, b in itertools.combinations(encoded, 2)]
    whole = replace(counter, budget=learner.budget)
    if not audits.keeps_budget(whole, changes):
        failed.add("budget")
    return sorted(failed)


def medians(cells: int) -> list[Any]:
    """One client in each place that the grid tells apart, and one without a number."""
    return [*(np.arange(cells + 1) / cells).tolist(), None]


def slope_values(cells: int) -> list[Any]:
    return [[1] * cells, [-1] * cells, None, *(np.eye(cells) @ np.tri(cells)).tolist(), 0.4, "x"]


def own(value: Any, points: np.ndarray) -> Any:
    """A client that holds its slopes."""
    return value


BUDGETS = [dp.PureDP(1.0), dp.ZCDP(0.3), dp.ApproxDP(1.0, 1e-3)]
AUDITED = [
    (kind, budget)
    for kind in (BinaryTree, KAry, Simple2, SmoothBinary, SquareRoot, BLT, None)
    for budget in BUDGETS
    if not (isinstance(budget, dp.PureDP) and kind in (SmoothBinary, SquareRoot, BLT))
    if not (isinstance(budget, dp.ZCDP) and kind is KAry)
]


@pytest.mark.parametrize(("kind", "budget"), AUDITED)
@pytest.mark.parametrize("cells", [2, 3, 4])
def test_a_message_keeps_its_budget(cells: int, kind: Any, budget: Any) -> None:
    assert audit_message(MedianLearner(budget, cells, kind), medians(cells)) == []


class Coarse(ConvexLearner):
    """Small numbers, for the exact loss of Laplace noise under approximate budgets."""

    unit = 0.25


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("kind", [BinaryTree, None])
def test_a_message_about_a_loss_keeps_its_budget(kind: Any, budget: Any) -> None:
    assert audit_message(Coarse(budget, 3, kind, gradient=own), slope_values(3)) == []
    if not isinstance(budget, dp.ApproxDP):
        learner = ConvexLearner(budget, 3, kind, gradient=own)
        assert audit_message(learner, slope_values(3)) == []


class FullBudgets(MedianLearner):
    """The mutant that gives the whole budget to each counter."""

    @cached_property
    def counter(self) -> dp.Counter:
        return dp.calibrate(self.mechanism, self.budget, ClientChange())


class OneColumn(MedianLearner):
    """The mutant with exact noise for one changed bit, the sensitivity of [FHU22, 5.6]."""

    @cached_property
    def counter(self) -> dp.Counter:
        return dp.calibrate(self.mechanism, self.budget.split(2)[0])


class SharedNoise(MedianLearner):
    """The mutant that uses one noise in both directions."""

    def _messages(self, profiles: Any, noise: Any) -> Any:
        class Twice:
            def draw(self, first: int, n: int) -> Any:
                z = noise.draw(first, n)
                return np.concatenate([z[:, : len(profiles)]] * 2, axis=1)

        return super()._messages(profiles, Twice())


@pytest.mark.parametrize("budget", BUDGETS)
def test_mutants_are_caught(budget: Any) -> None:
    only_laplace = () if isinstance(budget, dp.ZCDP) else (KAry,)
    for kind in (Simple2, BinaryTree, *only_laplace):
        assert audit_message(SharedNoise(budget, 4, kind), medians(4)) == ["structure"]
        assert audit_message(FullBudgets(budget, 4, kind), medians(4)) == ["budget"]
    assert audit_message(OneColumn(budget, 4, Simple2), medians(4)) == ["budget"]


def test_the_published_sensitivity_is_caught() -> None:
    """SquareRoot, both counters at half the budget for one changed bit: 1.38 rho for 16 cells.

    (Under (epsilon, delta) the published constant C is so large that it hides this.)
    """
    budget = dp.ZCDP(0.3)
    assert audit_message(MedianLearner(budget, 16, SquareRoot), medians(16)) == []
    assert audit_message(OneColumn(budget, 16, SquareRoot), medians(16)) == ["budget"]


@pytest.mark.parametrize("cells", [4, 8])
def test_the_pure_loss_is_not_far_below_the_budget(cells: int) -> None:
    """Corners reach the halves of both counters at once, so nothing is given away."""
    learner = MedianLearner(dp.PureDP(1.0), cells, Simple2)
    u = steps_of(learner, learner.profiles(medians(cells)))
    q = np.einsum("dt,ntk->ndk", learner.mechanism.encoder(cells), u)
    losses = [
        audits.pure_loss(learner.counter.law, np.rint(a - b).ravel().astype(int))
        for a, b in itertools.combinations(q, 2)
    ]
    assert 0.7 < max(losses) <= 1 + 1e-9


def test_noise_is_new_for_every_client_and_counter() -> None:
    learner = MedianLearner(dp.ZCDP(0.5), 8, SquareRoot)
    sent = learner.messages([0.5] * 1000)
    halves = np.concatenate([sent[:, :8], sent[:, 8:]])
    assert len(np.unique(halves, axis=0)) == 2000
    correlations = np.corrcoef(sent[:, 0], sent[:, 8])[0, 1]
    assert abs(correlations) < 5 / math.sqrt(1000)
    assert not np.array_equal(learner.message(0.5), learner.message(0.5))


@pytest.mark.slow
@pytest.mark.parametrize("budget", [dp.PureDP(1.0), APPROX, dp.ZCDP(0.5)])
@pytest.mark.parametrize("factor", [1, Fraction(9, 10), Fraction(2, 3), Fraction(3, 2)])
def test_the_scale_of_the_noise(factor: Any, budget: Any) -> None:
    """Accepts the right scale, and rejects those nearby.

    The noise of 6000 clients' losses at 0 is independent; the mean of its squares has a relative
    standard deviation of sqrt((kurtosis - 1) / n) = 0.02, and 5 of them are allowed.
    """
    learner = MedianLearner(budget, 8)
    n, law = 6000, learner.counter.law
    parameter = law.parameter * factor if hasattr(law, "parameter") else law.sigma2 * factor**2  # type: ignore[attr-defined]
    wrong = type(law)(parameter)  # type: ignore[call-arg]
    sent = learner._messages(learner.profiles([0.25] * n), SystemNoise(wrong, 2 * n))
    losses = np.array([learner.risk(message, 1).loss[0] for message in sent])
    ratio = np.mean((losses - 0.25) ** 2) / learner.stddevs(1)[0] ** 2
    assert (abs(ratio - 1) < 0.1) == (factor == 1)


# The loss


@pytest.mark.parametrize("kind", [BinaryTree, KAry, SquareRoot, None])
def test_without_noise_the_loss_is_that_of_the_clients(kind: Any) -> None:
    xs = np.random.default_rng(2).beta(2, 5, 501)
    learner = MedianLearner(EXACT if kind is not KAry else dp.PureDP(1e9), 20, kind)
    assert learner.weights + learner.weights[::-1] == pytest.approx(np.ones(20))
    risk = learner.risk(learner.messages(xs).sum(axis=0), 501)
    exact = np.abs(learner.grid[:, None] - xs).mean(axis=1)
    assert np.abs(np.array(risk.loss) - exact).max() <= learner.discretisation == 0.025
    snapped = np.rint(xs * 20) / 20
    assert risk.loss == pytest.approx(
        np.abs(learner.grid[:, None] - snapped).mean(axis=1), abs=1e-4
    )
    assert abs(risk.minimiser - np.median(xs)) <= 1 / 20
    assert (risk.clients, risk.grid) == (501, learner.grid.tolist())


def test_without_noise_the_loss_is_that_of_any_convex_losses() -> None:
    rng = np.random.default_rng(3)
    clients = [(rng.random(), rng.uniform(-0.5, 0.5)) for _ in range(200)]

    def gradient(client: Any, points: np.ndarray) -> np.ndarray:
        return np.clip(3 * (points - client[0]) + client[1], -1, 1)

    learner = ConvexLearner(EXACT, 32, gradient=gradient)
    risk = learner.risk(learner.messages(clients).sum(axis=0), 200)
    fine = (np.arange(32 * 100) + 0.5) / 3200
    slopes = np.mean([gradient(client, fine) for client in clients], axis=0)
    exact = np.concatenate([[0], np.cumsum(slopes)]) / 3200
    exact += 0.5 - (exact[0] + exact[-1]) / 2
    assert (risk.loss[0] + risk.loss[-1]) / 2 == pytest.approx(0.5)
    everywhere = np.interp(np.arange(3201) / 3200, risk.grid, risk.loss)
    assert np.abs(everywhere - exact).max() <= learner.discretisation
    assert abs(risk.minimiser - np.argmin(exact) / 3200) <= 1 / 32
    flat = MedianLearner(EXACT, 32)
    same = ConvexLearner(EXACT, 32, gradient=lambda x, points: np.sign(points - x))
    xs = rng.random(100)
    assert np.array_equal(flat.profiles(xs), same.profiles(xs) * same.unit)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [dp.PureDP(2.0), dp.ZCDP(0.5)])
@pytest.mark.parametrize("make", [MedianLearner, ConvexLearner])
def test_standard_deviations_and_bounds(make: Any, budget: Any) -> None:
    """400 servers of 40 clients each; a bound at 1/3 fails more than 170 times with prob. 3e-5."""
    more = {"gradient": hinge} if make is ConvexLearner else {}
    learner = make(budget, 10, **more)
    xs = np.random.default_rng(4).random(40)
    sent = learner.messages(np.tile(xs, 400)).reshape(400, 40, 20).sum(axis=1)
    losses = np.array([learner.risk(total, 40).loss for total in sent])
    quiet = make(EXACT, 10, **more)
    exact = np.array(quiet.risk(quiet.messages(xs).sum(axis=0), 40).loss)
    assert np.abs(losses.mean(axis=0) - exact).max() < 5 * learner.stddevs(40).max() / 20
    assert losses.std(axis=0) == pytest.approx(learner.stddevs(40), rel=0.2)
    assert learner.risk(sent[0], 40).stddev == learner.stddevs(40).tolist()
    worst = np.abs(losses - exact).max(axis=1)
    bound = learner.error_bound(40) - learner.discretisation
    assert (worst > bound).sum() < 170
    assert (worst > bound / 4).mean() > 1 / 3  # it is no more than that too large
    assert learner.error_bound(40, 0.01) > learner.error_bound(40) > learner.error_bound(80)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("cells", "budget"), [(64, APPROX), (128, dp.PureDP(1.0))])
def test_a_hundred_thousand_clients(cells: int, budget: Any) -> None:
    """Errors within the bounds of probability 0.999, against the sample and the population."""
    n = 100_000
    xs = np.random.default_rng(5).beta(2, 2, n)
    learner = MedianLearner(budget, cells)
    total = sum(learner.messages(part).sum(axis=0) for part in np.split(xs, 20))
    risk = learner.risk(total, n)
    exact = np.abs(learner.grid[:, None] - np.sort(xs)[::100]).mean(axis=1)  # within 1e-3
    bound = learner.error_bound(n, 1e-3)
    assert np.abs(np.array(risk.loss) - exact).max() <= bound + 1e-3
    w = learner.grid
    population = np.array([_beta22_loss(float(v)) for v in w])
    theirs = learner.population_bound(n, 1e-3)
    assert np.abs(np.array(risk.loss) - population).max() <= theirs
    assert _beta22_loss(risk.minimiser) <= _beta22_loss(0.5) + 2 * theirs
    assert bound < theirs < 0.25


def _beta22_loss(w: float) -> float:
    """E|x - w| for the density 6 x (1 - x)."""
    points = (np.arange(4000) + 0.5) / 4000
    return float(np.mean(6 * points * (1 - points) * np.abs(points - w)))


def test_weights_beat_halves() -> None:
    """[FHU22] averages both directions with equal weights."""
    learner = MedianLearner(APPROX, 64, SquareRoot)
    best = learner.stddevs(1)
    halves = MedianLearner(APPROX, 64, SquareRoot)
    halves.__dict__["weights"] = np.full(64, 0.5)
    assert best.max() < halves.stddevs(1).max()


# Arguments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MedianLearner(dp.PureDP(1), 8, SquareRoot), "Gaussian noise"),
        (lambda: MedianLearner(APPROX, 8, dp.mechanisms.Unbounded(BinaryTree)), "mechanisms.ALL"),
        (lambda: MedianLearner(APPROX, 8).risk(np.zeros(16), 0), "no clients"),
        (lambda: MedianLearner(APPROX, 8).risk(np.zeros(8), 1), "messages have shape"),
        (lambda: MedianLearner(APPROX, 8).error_bound(0), "clients must be"),
        (lambda: MedianLearner(APPROX, 8).error_bound(9, 1), "beta must be"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_learners_pickle() -> None:
    learner = ConvexLearner(APPROX, 8, gradient=hinge)
    copy = pickle.loads(pickle.dumps(learner))
    assert (copy, copy.counter) == (learner, learner.counter)
    assert np.array_equal(copy.weights, learner.weights)
    assert "weights" not in MedianLearner(APPROX, 8).__getstate__()


# In a pipeline


def same_risk(expected: list[LocalRisk]) -> Callable[[Any], None]:
    def check(seen: Any) -> None:
        found = sorted(seen, key=lambda risk: risk.clients)
        assert len(found) == len(expected), found
        for one, other in zip(found, expected, strict=True):
            assert isinstance(one, LocalRisk)
            assert (one.clients, one.minimiser) == (other.clients, other.minimiser)
            assert list(one.loss) == pytest.approx(other.loss)
            assert list(one.stddev) == pytest.approx(other.stddev)
            assert list(one.grid) == pytest.approx(other.grid)

    return check


@pytest.mark.parametrize("runner", RUNNERS)
def test_pipelines(runner: str) -> None:
    xs = np.random.default_rng(6).random(300).tolist()
    median = LocalMedian(EXACT, 10)
    risk = LocalConvexRisk(EXACT, 10, gradient=hinge, value=lambda pair: pair["x"])
    expected = [
        transform.learner.risk(transform.learner.messages(xs).sum(axis=0), 300)
        for transform in (median, risk)
    ]
    with beam.Pipeline(RUNNERS[runner]()) as pipeline:
        clients = pipeline | beam.Create(xs)
        assert_that(clients | median, same_risk(expected[:1]), label="median")
        pairs = clients | beam.Map(lambda x: {"x": x})
        assert_that(pairs | risk, same_risk(expected[1:]), label="risk")


def test_windows_and_what_is_no_number() -> None:
    clients: list[Any] = [(0.1, 1), (0.2, 2), (None, 61), ("x", 62), ({}, 63), (0.5, 1000)]
    median = LocalMedian(EXACT, 10, value=lambda x: x if isinstance(x, str) else float(x))
    learner = median.learner

    def expected(values: list[Any]) -> LocalRisk:
        return learner.risk(learner.messages(values).sum(axis=0), len(values))

    windows = [expected([0.5]), expected([0.1, 0.2]), expected([0.5] * 3)]
    with beam.Pipeline("FnApiRunner") as pipeline:
        stamped = pipeline | beam.Create(clients) | beam.MapTuple(TimestampedValue)
        found = stamped | beam.WindowInto(FixedWindows(60)) | median
        assert_that(found, same_risk(windows))
    with beam.Pipeline("FnApiRunner") as pipeline:
        assert_that(pipeline | beam.Create([]) | LocalMedian(EXACT, 10), same_risk([]))


def test_refused_windows() -> None:
    several, merging = (SlidingWindows(10, 5), SEVERAL_WINDOWS), (Sessions(5), MERGING_WINDOWS)
    for windows, message in (several, merging):
        clients = beam.Pipeline() | beam.Create([0.5]) | beam.WindowInto(windows)
        with pytest.raises(ValueError, match=says(message)):
            _ = clients | LocalMedian(EXACT, 10)


def test_pairs_are_no_numbers() -> None:
    pairs = beam.Pipeline() | beam.Create([("a", 0.5)])
    with pytest.raises(TypeError, match="numbers, one a client, but they are"):
        _ = pairs | LocalMedian(EXACT, 10)
    _ = pairs | "Taken" >> LocalMedian(EXACT, 10, value=lambda pair: pair[1])


def test_early_firings_only_process_the_same_messages() -> None:
    clients = beam.Pipeline() | beam.Create([0.5])
    early: Any = beam.WindowInto(
        FixedWindows(60),
        trigger=Repeatedly(AfterCount(1)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
    )
    found = clients | early | LocalMedian(EXACT, 10)
    assert found.windowing.triggerfn == Repeatedly(AfterCount(1))


def test_messages_made_elsewhere() -> None:
    learner = MedianLearner(APPROX, 10)
    xs = np.random.default_rng(7).random(50)
    sent = learner.messages(xs)
    combine = LossOf(learner)
    with beam.Pipeline("FnApiRunner") as pipeline:
        messages = pipeline | beam.Create(sent.tolist())
        found = messages | beam.CombineGlobally(combine).without_defaults()
        assert_that(found, same_risk([learner.risk(sent.sum(axis=0), 50)]))
    with pytest.raises(ValueError, match="messages have shape"):
        combine.add_input(combine.create_accumulator(), [0.0] * 19)
    with pytest.raises(ValueError, match="no clients"):
        combine.extract_output(combine.create_accumulator())
    assert local.merge([(2, np.ones(2)), (1, np.ones(2))])[0] == 3


def test_annotations_and_shares() -> None:
    transform = LocalMedian(dp.PureDP(2.0), 16)
    described = transform.learner.describe()
    assert described["budget_of_each_client"] == "epsilon = 2 (pure)"
    assert described["message"] == "32 numbers, of two counters at half the budget each"
    assert dict(described) == transform.display_data()
    assert "beam_dpcount:budget_of_each_client" in transform.annotations()
    assert DisplayData.create_from(transform).items
    ledger = dp.Ledger(dp.ZCDP(0.5))
    shared = LocalMedian(ledger.share(0.5, "median"), 16)
    assert shared.learner.budget == dp.ZCDP(0.25)
    assert "median: 50 %" in shared.display_data()["ledger"]
    clients = beam.Pipeline() | beam.Create([0.5])
    _ = clients | "One" >> shared
    with pytest.raises(ClaimedError, match="One"):
        _ = clients | "Two" >> shared
    with pytest.raises(TypeError, match="whole ledger"):
        LocalMedian(ledger, 16)


def test_results_are_rows() -> None:
    coder = registry.get_coder(LocalRisk)
    risk = MedianLearner(EXACT, 4).risk(np.ones(8), 1)
    assert coder.decode(coder.encode(risk)) == risk
    assert type(coder).__name__ == "RowCoder"


class Unwilling(float):
    """A number that raises wherever it is looked at."""

    def __float__(self) -> float:
        raise OverflowError

    def __gt__(self, other: object) -> bool:
        raise RuntimeError("boom")


def leave(value: object, centres: object) -> object:
    raise SystemExit


def test_no_client_stops_the_batch() -> None:
    median = MedianLearner(dp.PureDP(1.0), 8, "BinaryTree")
    assert len(median.message(Unwilling(0.3))) == 16
    convex = ConvexLearner(dp.PureDP(1.0), 8, "BinaryTree", gradient=leave)
    assert len(convex.message(1)) == 16


def test_the_global_window_of_an_unbounded_input_is_refused() -> None:
    clients = beam.Pipeline() | beam.Create([0.5])
    clients.is_bounded = False
    with pytest.raises(ValueError, match="put clients into windows"):
        _ = clients | dp.local.LocalMedian(dp.PureDP(1.0), 8)
