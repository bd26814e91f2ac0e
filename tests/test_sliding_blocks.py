"""Sums over the last steps from whole draws: what they release, and how many draws that takes."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.choose import resolve, resolve_last
from beam_dpcount.mechanisms import Differences, SlidingBlocks, SlidingBLT
from beam_dpcount.noise.laws import DiscreteLaplace
from tests.scripted import Script, random_script

SHAPES = [(1, None), (2, 2), (5, 2), (7, 3), (24, None), (24, 5), (6, 9), (30, 4)]
shapes = pytest.mark.parametrize(("window", "block"), SHAPES)


def fewest(mechanism: SlidingBlocks, t: int) -> int:
    """Draws between the ends of a window, of items and blocks complete by step t: Dijkstra."""
    w = mechanism._block
    start = max(0, t - mechanism.window)
    best, todo = {start: 0}, [(0, start)]
    while todo:
        cost, at = heapq.heappop(todo)
        if at == t:
            return cost
        for size in (1, w):
            for following in (at - size, at + size):
                if (
                    at % size == 0
                    and 0 <= following <= t
                    and cost + 1 < best.get(following, 1 << 30)
                ):
                    best[following] = cost + 1
                    heapq.heappush(todo, (cost + 1, following))
    raise AssertionError


@shapes
@pytest.mark.parametrize("horizon", [1, 3, 40, 75])
def test_matrices_steps_and_releases_are_one(window: int, block: Any, horizon: int) -> None:
    mechanism = SlidingBlocks(horizon, window, block)
    R, L = mechanism.encoder(horizon), mechanism.decoder(horizon)
    assert np.array_equal(L @ R, mechanism.workload.matrix(horizon))
    assert set(np.unique(np.abs(L))) <= {0, 1}
    assert R.sum(axis=0).max() == mechanism.l1_sensitivity == mechanism.l2_sensitivity_squared
    products = R.T @ R
    bounds = mechanism.lag_bounds(horizon)
    for d, bound in enumerate(bounds):
        assert bound >= max(np.diagonal(products, k).max() for k in range(d, horizon))
    assert mechanism.spaced_bounds(3, 9) == mechanism.lag_bounds(25)[::3]
    norms = (L * L).sum(axis=1)
    assert np.array_equal(mechanism.row_norms2(horizon), norms)
    assert [mechanism.row_norm2(t) for t in range(1, horizon + 1)] == norms.tolist()
    assert mechanism.max_row_norm2() == norms.max()
    assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-12)
    assert norms.tolist() == [fewest(mechanism, t) for t in range(1, horizon + 1)]
    for dimension in (None, 3):
        shape = (horizon,) if dimension is None else (horizon, dimension)
        xs = np.random.default_rng(3).integers(-9, 10, shape)
        noise = random_script(mechanism.draws(horizon), dimension, spread=1000)
        whole = mechanism.release(xs, Script(noise.z))
        state, values = mechanism.init(dimension), []
        for x in xs.tolist() if dimension is None else xs:
            state, value = mechanism.step(state, x, noise)
            values.append(value)
            assert len(state) == mechanism.state_size
        assert np.array_equal(np.array(values), whole)
        assert np.array_equal(whole, L @ (R @ xs + noise.z))


def test_draws_are_made_when_what_they_noise_is_complete() -> None:
    """So that work may be replayed: no coordinate has an item of a later step."""
    mechanism = SlidingBlocks(40, 7, 3)
    R = mechanism.encoder(40)
    for n in range(1, 41):
        assert not R[: mechanism.draws(n), n:].any()
    assert not mechanism.draws_early
    assert mechanism.replay_safe() is mechanism


@pytest.mark.parametrize("replays", [False, True])
def test_pure_budgets_take_them_for_longer_windows(replays: bool) -> None:
    """On both paths, in units of epsilon^-2: up to 60 steps sums of single ones have less."""
    budget = dp.PureDP(0.01)
    for window, most in ((24, 48), (100, 152), (1000, 512)):
        mechanism = resolve_last(4000, window, budget, replays)
        counter = dp.calibrate(mechanism, budget)
        assert isinstance(counter.law, DiscreteLaplace)
        assert counter.max_variance() * 1e-4 <= most
        assert isinstance(mechanism, (SlidingBlocks, Differences))
        assert isinstance(mechanism, SlidingBlocks) or window == 24 or not replays
    assert isinstance(resolve_last(4000, 24, dp.ZCDP(0.5), replays), SlidingBLT)


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="window must"):
        SlidingBlocks(9, 0)
    with pytest.raises(ValueError, match="block must"):
        SlidingBlocks(9, 5, 0)
    with pytest.raises(TypeError, match=r"give an instance, e\.g\. SlidingBlocks"):
        resolve("SlidingBlocks", 9, dp.PureDP(1.0))
    with pytest.raises(dp.errors.HorizonError):
        SlidingBlocks(3, 2).release(np.zeros(4, dtype=np.int64), random_script(9))
