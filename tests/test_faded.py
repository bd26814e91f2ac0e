"""Prefix sums for persons whose events lie apart: exact tables, pairs of columns, and the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.budget.conversions import zcdp_epsilon
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.choose import resolve
from beam_dpcount.counters.users import UserChange, column_cost
from beam_dpcount.mechanisms import BLT, BinaryTree, Endless, FadedBLT, NormalizedBLT
from beam_dpcount.mechanisms.base import UnsupportedHorizonError
from benchmarks.bars import all_bars

HALF = dp.ZCDP(0.5)
MADE = [(None, 1.0), (2, 1.0), (8, 1.0), (23, 0.7), (362, 1 - 1 / 362), (1 << 20, 1.0)]
made = pytest.mark.parametrize(("memory", "decay"), MADE)


def person(events: int, gap: int) -> UserChange:
    return UserChange(0, 1, events=events, keys=1, per_key=events, gap=gap)


@pytest.mark.long
@pytest.mark.parametrize("bar", all_bars(), ids=str)
def test_bars(bar: Any) -> None:
    """`python -m benchmarks.bars` prints them."""
    assert bar.value() <= bar.most


@made
@pytest.mark.parametrize("horizon", [1, 2, 9, 150, 1100])
def test_tables_are_those_of_dense_matrices(memory: int, decay: float, horizon: int) -> None:
    mechanism = FadedBLT(horizon, memory, decay)
    R, L = mechanism.encoder(horizon), mechanism.decoder(horizon)
    assert np.allclose(L @ R, np.tri(horizon), atol=1e-10)
    variances = (L * L).sum(axis=1)
    assert np.allclose(mechanism.row_norms2(horizon), variances, rtol=1e-10)
    assert mechanism.max_row_norm2() == pytest.approx(variances.max(), rel=1e-10)
    assert mechanism.mean_row_norm2() == pytest.approx(variances.mean(), rel=1e-10)
    assert [mechanism.row_norm2(t) for t in (1, horizon)] == [
        *mechanism.row_norms2(horizon)[[0, -1]]
    ]
    assert (R >= 0).all()
    assert np.square(R).sum(axis=0).max() <= 1
    assert (
        R.sum(axis=0).max() * (1 - 1e-12) <= mechanism.l1_sensitivity <= R.sum(axis=0).max() * 1.01
    )
    for lag in (1, 7):
        s = np.arange(1, horizon - lag + 1)
        exact = (L[s - 1] * L[s + lag - 1]).sum(axis=1)
        assert np.allclose(mechanism.products(s, lag), exact, rtol=1e-9, atol=1e-9)


@made
@pytest.mark.parametrize("horizon", [9, 150, 1100])
def test_products_of_all_pairs_of_columns_are_bounded(
    memory: int, decay: float, horizon: int
) -> None:
    mechanism = FadedBLT(horizon, memory, decay)
    R = mechanism.encoder(horizon)
    products = R.T @ R
    largest = [np.diagonal(products, d).max() for d in range(horizon)]
    bounds = mechanism.lag_bounds(horizon)
    assert (np.diff(bounds) <= 0).all()
    for d, bound in enumerate(bounds):
        assert max(largest[d:]) * (1 - 1e-12) <= bound <= 1.01 * max(largest[d:]) + 1e-7


@pytest.mark.parametrize(("horizon", "events", "gap"), [(365, 52, 7), (365, 12, 30), (60, 5, 1)])
def test_both_parameters_are_near_the_best(horizon: int, events: int, gap: int) -> None:
    change = person(events, gap)
    chosen: Any = dp.choose(horizon, HALF, change=change).rows[0]

    def variance(mechanism: FadedBLT) -> float:
        squared = float(column_cost(mechanism, events, gap))
        return squared * mechanism.max_row_norm2()

    halves = [round(2 ** (k / 2)) for k in range(2, 24)]
    plain = [variance(FadedBLT(horizon, memory)) for memory in halves]
    decayed = [variance(FadedBLT(horizon, memory, 1 - 1 / memory)) for memory in halves]
    best = min(plain + decayed)
    assert chosen.mechanism.name == "FadedBLT"
    assert best * (1 - 1e-9) <= variance(chosen.mechanism) <= best * (1 + 1e-9)
    assert chosen.max_stddev**2 == pytest.approx(best, rel=1e-3)


def test_the_fit_depends_on_what_is_protected_and_on_nothing_else() -> None:
    change = person(12, 30)
    found = {dp.choose(365, budget, change=change).mechanism for budget in (HALF, dp.ZCDP(0.01))}
    assert found == {FadedBLT(365, 11)}
    for named in ("FadedBLT", FadedBLT):
        assert resolve(named, 365, dp.ApproxDP(1.0, 1e-6), change) in found
    assert resolve(FadedBLT(365), 365, HALF, change) == FadedBLT(365)  # as it is
    assert resolve("FadedBLT", 365, HALF) == FadedBLT(365)
    for one in (None, person(1, 30), person(5, 0)):
        assert "FadedBLT" not in [
            row.mechanism.name for row in dp.choose(365, HALF, change=one).rows
        ]
        assert not isinstance(resolve(None, 365, HALF, one), FadedBLT)


def test_through_the_clock_persons_a_week_apart_have_less_noise() -> None:
    """The figures of the guide."""
    days: dict[str, Any] = {"tick": "1d", "start": 0, "ticks": 365}
    found = []
    for events, gap in ((52, "7d"), (12, "30d")):
        users = dp.Users("user", events, gap=gap, per_key=events)
        count = dp.TickCount(dp.ApproxDP(1.0, 1e-6), dp.Clock(**days), keys=["a"], users=users)
        assert isinstance(count.counter.mechanism, FadedBLT)
        found.append(count.counter.max_variance() ** 0.5)
    assert found[0] < 245
    assert found[1] < 68.1


@pytest.mark.parametrize(
    "mechanism", [Endless(300), NormalizedBLT(300), BLT(300), FadedBLT(300, 8)], ids=str
)
def test_until_an_event_has_an_age_it_has_lost_less(mechanism: Any) -> None:
    """Rows s .. s + age of column s, of the dense encoder, for all s of the first half."""
    R = mechanism.encoder(300)
    for age in (0, 1, 5, 30, 100, 149, 299, 5000):
        squared = max(float(np.square(R[s : s + age + 1, s]).sum()) for s in range(300 // 2))
        bound = mechanism.aged_norm2(age)
        assert squared * (1 - 1e-12) <= bound <= squared * 1.02
        counter: Any = dp.calibrate(mechanism, HALF)
        rho = squared / mechanism.l2_sensitivity_squared / 2
        least = zcdp_epsilon(rho, 1e-6)
        assert least <= counter.epsilon_at(1e-6, age=age) <= least * 1.03
    assert counter.epsilon_at(1e-6, age=5000) == counter.epsilon_at(1e-6)


def test_an_age_is_for_one_event_that_changes_one_step() -> None:
    for change in (person(5, 7), TickChange(relation="replace_one")):
        counter: Any = dp.calibrate(NormalizedBLT(300), HALF, change)
        with pytest.raises(ValueError, match="age is for one event that changes one step"):
            counter.epsilon_at(1e-6, age=3)
    counter = dp.calibrate(NormalizedBLT(300), HALF)
    for age in (-1, 2.5):
        with pytest.raises((ValueError, TypeError), match="age must"):
            counter.epsilon_at(1e-6, age=age)
    tree: Any = dp.calibrate(BinaryTree(300), dp.PureDP(1.0))
    assert tree.epsilon_at(1e-6, age=3) == tree.epsilon_at(1e-6)


def test_what_it_refuses() -> None:
    for memory in (1, 2**20 + 1):
        with pytest.raises(ValueError, match=r"memory .*leave memory out|memory must"):
            FadedBLT(9, memory)
    for decay in (0.4, 1.01):
        with pytest.raises(ValueError, match="decay must be from 1/2 to 1"):
            FadedBLT(9, decay=decay)
    with pytest.raises(TypeError, match="decay must be a number"):
        FadedBLT(9, decay="all")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedHorizonError, match=r"up to 2\^30"):
        FadedBLT(2**30 + 1).max_row_norm2()


def test_it_keeps_few_numbers() -> None:
    for horizon, events, gap in ((365, 52, 7), (8760, 52, 168), (365, 12, 30), (1000, 5, 60)):
        counter: Any = dp.choose(horizon, HALF, change=person(events, gap)).rows[0].counter
        before: Any = dp.calibrate(NormalizedBLT(horizon), HALF)
        assert counter.state_size <= min(12, before.state_size)


def test_a_sentence_says_what_an_event_has_lost_by_an_age() -> None:
    clock = dp.Clock("1m", start=0, ticks=300)
    count = dp.TickCount(HALF, clock, keys=["a"], mechanism="NormalizedBLT")
    for age in (0, 5, 5000):
        assert count.epsilon_at(1e-6, age=age) == count.counter.epsilon_at(1e-6, age=age)
    assert count.epsilon_at(1e-6, age=5) < count.epsilon_at(1e-6)
    both = dp.TickCount(HALF, [clock, clock.last(7)], keys=["a"])
    parts = [part.engine.counter for part in both._parts]
    rho = sum(counter.aged_cost(3).rho for counter in parts)
    assert both.epsilon_at(1e-6, age=3) == pytest.approx(zcdp_epsilon(rho, 1e-6), rel=1e-9)
    with pytest.raises(ValueError, match="give one of the two"):
        count.epsilon_at(1e-6, age=3, periods=1)
    of_people = dp.TickCount(HALF, clock, keys=["a"], users=dp.Users("who", 3))
    with pytest.raises(ValueError, match="age is for one event that changes one step"):
        of_people.epsilon_at(1e-6, age=3)
