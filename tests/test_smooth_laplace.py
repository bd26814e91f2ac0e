"""SmoothLaplace beyond the contract suite: its shapes, their sensitivity, and its errors."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.counter import UnsupportedBudgetError
from beam_dpcount.mechanisms import KAry, SmoothBinary, SmoothLaplace
from tests.audit.exact import audit


def test_shapes_are_the_true_minimum_of_the_largest_variance() -> None:
    """min k^2 (h-k) subject to C(h, k) >= T+1, ties to the larger k, by trying every pair."""
    pairs = sorted(
        (k * k * (h - k), -k, h, comb(h, k))
        for h in range(2, 402)
        for k in range(1, h)
        if k * k * (h - k) <= 400
    )
    for horizon in range(1, 3001):
        _, minus_k, h, _ = next(pair for pair in pairs if pair[3] >= horizon + 1)
        assert SmoothLaplace(horizon).shape == (h, -minus_k), horizon


@pytest.mark.parametrize(
    ("horizon", "shape"), [(1, (2, 1)), (64, (12, 2)), (1000, (20, 3)), (10**6, (33, 6))]
)
def test_shapes(horizon: int, shape: tuple[int, int]) -> None:
    assert SmoothLaplace(horizon).shape == shape


def test_the_sensitivity_is_how_many_nodes_an_item_lies_in() -> None:
    """Counted from the definition: item s is in the node of bit i of release t if v_s has its
    prefix, (v_{t+1} >> i) - 1."""
    for horizon in (*range(1, 60), 100, 257):
        h, k = SmoothLaplace(horizon).shape
        leaves = sorted(
            sum(1 << b for b in ones) for ones in itertools.combinations(range(h), h - k)
        )[: horizon + 1]
        nodes = {(i, (v >> i) - 1) for v in leaves[1:] for i in range(h) if v >> i & 1}
        most = max(sum((i, v >> i) in nodes for i in range(h)) for v in leaves[:-1])
        assert SmoothLaplace(horizon).l1_sensitivity == k == most, horizon


def errors(mechanism: SmoothLaplace | KAry) -> tuple[float, float]:
    """Mean and largest variance times epsilon^2, if Laplace noise were continuous."""
    scale = 2 * mechanism.l1_sensitivity**2
    return scale * mechanism.mean_row_norm2(), scale * mechanism.max_row_norm2()


@pytest.mark.parametrize(
    ("horizon", "mean", "largest"), [(64, 53.75, 80), (1000, 223.34, 306), (10**6, 1655.0, 1944)]
)
def test_errors(horizon: int, mean: float, largest: float) -> None:
    mechanism = SmoothLaplace(horizon)
    assert errors(mechanism) == (pytest.approx(mean, abs=0.01), largest)
    for new, old in zip(errors(mechanism), errors(KAry(horizon, subtraction=False)), strict=True):
        assert new < 0.95 * old
    # The shape for Gaussian noise would have the larger maximum.
    gaussian = SmoothBinary(horizon)
    assert largest < 2 * gaussian.l1_sensitivity**2 * gaussian.max_row_norm2()


def test_releases_are_the_trees_of_its_shape() -> None:
    """The variance of every release is the number of its terms, and L R = A."""
    for horizon in (1, 2, 9, 40, 257, 1000):
        mechanism = SmoothLaplace(horizon)
        L, R = mechanism.decoder(horizon), mechanism.encoder(horizon)
        assert np.array_equal(L @ R, np.tri(horizon))
        terms = L.sum(axis=1)
        assert mechanism.row_norms2(horizon).tolist() == terms.tolist()
        assert mechanism.max_row_norm2() == terms.max()
        assert mechanism.mean_row_norm2() == pytest.approx(terms.mean(), rel=1e-13)


@pytest.mark.slow
@pytest.mark.exhaustive("relation")
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
def test_streams_keep_the_budget(relation: str) -> None:
    for horizon in range(1, 9):
        for budget in (dp.PureDP(0.3), dp.PureDP(3), dp.ApproxDP(1.0, 1e-6)):
            counter = dp.calibrate(SmoothLaplace(horizon), budget, dp.Change(relation=relation))
            assert audit(counter) == [], (horizon, budget)


class Short(SmoothLaplace):
    """Counts one zero too few."""

    @property
    def l1_sensitivity(self) -> int:
        return self.shape[1] - 1


def test_one_zero_too_few_is_caught() -> None:
    assert Short(30).shape[1] == 2
    counter = dp.calibrate(Short(30), dp.PureDP(1))
    # Too long for all streams: the columns themselves say that the noise is too little.
    l1 = np.abs(counter.mechanism.encoder(30)).sum(axis=0).max()
    assert l1 / counter.law.scale > 1.5


def test_it_draws_late_and_takes_laplace_noise_alone() -> None:
    mechanism = SmoothLaplace(1000)
    assert not mechanism.draws_early
    assert mechanism.replay_safe() is mechanism
    with pytest.raises(UnsupportedBudgetError, match=r"^SmoothLaplace takes Laplace noise"):
        dp.calibrate(mechanism, dp.ZCDP(0.5))
    count = dp.PrefixCount(dp.PureDP(1), 1000, path="streaming")
    assert count.counter.mechanism == mechanism


def test_there_is_no_balanced_variant() -> None:
    assert repr(SmoothLaplace(9)) == "SmoothLaplace(horizon=9)"
    with pytest.raises(TypeError, match="balanced"):
        SmoothLaplace(9, balanced=True)  # type: ignore[call-arg]


def test_smooth_binary_is_what_it_was() -> None:
    """Its states, and replayed noise, depend on these."""
    assert SmoothBinary(1000).fingerprint == "SmoothBinary(horizon=1000, balanced=False)"
    assert [SmoothBinary(T).shape for T in (64, 1000, 10**6)] == [(8, 4), (14, 10), (23, 13)]


# The choice


@pytest.mark.parametrize("objective", ["max", "mean"])
@pytest.mark.parametrize("horizon", [100, 1000, 10**6])
def test_choose_takes_the_best_for_pure_budgets(objective: str, horizon: int) -> None:
    once = dp.choose(horizon, dp.PureDP(1), objective)
    again = dp.choose(horizon, dp.PureDP(1), objective, replays=True)
    assert once.mechanism == dp.mechanisms.BridgedKAry(horizon)
    assert again.mechanism == SmoothLaplace(horizon)
    assert [row.mechanism.name for row in again.rows].count("SmoothLaplace") == 1
    assert ("BridgedKAry", "draws early") in again.not_listed
    assert not any(row.mechanism.draws_early for row in again.rows)
