"""BLTs with weighted rows: figures that they were made for, their tables against dense matrices and
sums step by step, and counting without a horizon. The contract, recurrences, lags and audits of all
mechanisms run over ProfiledBLT, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.choose import PURE_NEEDS_HORIZON, resolve
from beam_dpcount.counters.clock import NO_END
from beam_dpcount.mechanisms import (
    BinaryTree,
    BridgedKAry,
    DecayedBLT,
    Differences,
    Endless,
    NormalizedBLT,
    ProfiledBLT,
    SlidingBLT,
    SmoothLaplace,
    Sparse,
    Unbounded,
)
from beam_dpcount.mechanisms.profiled_tables import ProfiledTables, Rows, borders, fitted
from beam_dpcount.plans.counting import DRAWS_EARLY
from beam_dpcount.transforms.elements import NEEDS_HORIZON
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks import fit_profile
from benchmarks.papers.optimal import optimal_factorization
from tests.messages import says
from tests.runners import Row, feed, run
from tests.scripted import KeyedScript, ScriptedEntropy

BUDGET = dp.ZCDP(0.5)
CHOOSING = (Path(__file__).parents[1] / "docs" / "choosing.md").read_text(encoding="utf-8")
kinds = pytest.mark.parametrize("kind", [ProfiledBLT, Endless])


# Figures


@pytest.mark.parametrize(("horizon", "most"), [(1 << 10, 8.90), (1 << 16, 18.4), (1 << 20, 26.8)])
def test_largest_variances_are_what_it_was_made_for(horizon: int, most: float) -> None:
    """At rho = 1/2, for values in [0, 1]."""
    counter: Any = dp.calibrate(ProfiledBLT(horizon), BUDGET)
    before: Any = dp.calibrate(NormalizedBLT(horizon), BUDGET)
    assert counter.max_variance() <= most
    assert counter.max_variance() < 0.96 * before.max_variance()


@pytest.mark.exhaustive
@pytest.mark.parametrize("horizon", [256, 1024])
def test_no_matrix_is_much_better(horizon: int) -> None:
    counter: Any = dp.calibrate(ProfiledBLT(horizon), BUDGET)
    best = optimal_factorization(horizon)
    assert best.lower_bound <= counter.max_variance() <= 1.015 * best.lower_bound


def test_the_other_objective_has_the_least_mean() -> None:
    largest, mean = (ProfiledBLT(1 << 16, 6, objective) for objective in ("max", "mean"))
    assert mean.mean_row_norm2() <= 18.25
    assert mean.mean_row_norm2() < largest.mean_row_norm2() < largest.max_row_norm2()
    assert mean.max_row_norm2() > largest.max_row_norm2()
    for objective in ("max", "mean"):
        chosen: Any = dp.choose(1000, BUDGET, objective).mechanism
        assert chosen == ProfiledBLT(1000, objective=objective)
    with pytest.raises(ValueError, match='objective must be "max" or "mean", got \'least\''):
        ProfiledBLT(9, objective="least")


def test_endless_variances_are_what_it_was_made_for() -> None:
    counter: Any = dp.calibrate(Endless(), BUDGET)
    for log, most in ((10, 14.0), (16, 27.8), (20, 39.6)):
        assert counter.variance(1 << log) <= most
    for log in range(4, 21):
        known: Any = dp.calibrate(NormalizedBLT(1 << log), BUDGET)
        assert counter.variance(1 << log) <= 1.51 * known.max_variance(), log


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", fit_profile.OBJECTIVES)
def test_shipped_profiles_are_what_the_fit_finds(objective: str) -> None:
    """From a bare shape, and with few evaluations, it comes within 1 %, and is no better."""
    for horizon in (64, 1024):
        shipped = fit_profile.loss(fitted(objective, horizon), horizon, objective)
        found = fit_profile.fit(fit_profile.BARE, horizon, objective, 400)
        bare = fit_profile.loss(fit_profile.BARE, horizon, objective)
        assert -1e-3 < fit_profile.loss(found, horizon, objective) - shipped < 0.01 < bare - shipped


def test_the_command_that_fits_prints_what_it_found(tmp_path: Path, capsys: Any) -> None:
    made = tmp_path / "made.json"
    given = ["--horizons", "4:5", "--evaluations", "3", "--output", str(made)]
    assert fit_profile.main(given) == 0
    assert capsys.readouterr().out.count("largest ") == 4  # of both objectives
    assert json.loads(made.read_text())["mean"].keys() == {"4", "5"}


# Tables


@kinds
@pytest.mark.parametrize("horizon", [1, 2, 5, 63, 64, 200, 777])
def test_tables_are_those_of_dense_matrices(kind: type[ProfiledBLT], horizon: int) -> None:
    mechanism = kind(horizon)
    R, L = mechanism.encoder(horizon), mechanism.decoder(horizon)
    assert np.allclose(L @ R, np.tri(horizon), atol=1e-11)
    variances = (L * L).sum(axis=1)
    assert np.allclose(mechanism.row_norms2(horizon), variances, rtol=1e-11)
    assert mechanism.max_row_norm2() == pytest.approx(variances.max(), rel=1e-11)
    assert mechanism.mean_row_norm2() == pytest.approx(variances.mean(), rel=1e-11)
    assert (R >= 0).all()
    sums = R.sum(axis=0)
    assert sums.max() * (1 - 1e-12) <= mechanism.l1_sensitivity <= sums.max() * 1.01
    products = R.T @ R
    n = min(horizon, 100)
    for d, bound in enumerate(mechanism.lag_bounds(n)):
        largest = max(np.diagonal(products, k).max() for k in range(d, horizon))
        assert largest <= bound * (1 + 1e-12)
        assert bound <= 1.02 * largest + 1e-7
    for lag in (1, 7):
        s = np.arange(1, horizon - lag + 1)
        exact = (L[s - 1] * L[s + lag - 1]).sum(axis=1)
        assert np.allclose(mechanism.products(s, lag), exact, rtol=1e-10, atol=1e-10)


@kinds
def test_the_largest_variance_of_a_long_horizon_is_bounded(kind: type[ProfiledBLT]) -> None:
    """Beyond 2^22 steps it is an upper bound, and no more than a percent above."""
    mechanism = kind(1 << 24)
    steps = np.unique(np.geomspace(1, 1 << 24, 20_000).astype(np.int64))
    both = np.concatenate([steps, (1 << 24) + 1 - steps])
    largest = mechanism._tables.row_norms2(both).max()
    assert largest <= mechanism.max_row_norm2() <= 1.01 * largest


@kinds
@pytest.mark.parametrize("horizon", [1, 40, 3000, 1 << 20])
def test_one_variance_is_that_of_many(kind: type[ProfiledBLT], horizon: int) -> None:
    """To the last bit, as keys that are counted step by step show those counted at once."""
    mechanism = kind(horizon)
    steps = np.unique(np.geomspace(1, horizon, 60).astype(np.int64))
    many = mechanism._tables.row_norms2(steps).tolist()
    assert [mechanism._tables._variances.of_one(t) for t in steps.tolist()] == many


def test_rows_and_columns_change_at_public_steps_only() -> None:
    for horizon in (1, 7, 100, 5000):
        rows = Rows(fitted("max", horizon), horizon)
        assert rows.starts[0] == 1
        assert (np.diff(rows.starts) > 0).all()
        assert 0 < rows.p.min() <= rows.p.max() == 1
        tables = ProfiledBLT(horizon)._tables
        assert isinstance(tables, ProfiledTables)
        assert set(rows.starts.tolist()) <= set(tables.firsts.tolist())
    assert borders(9, 2).tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    # Where t is 1, 2, 3, 4, 6, 8, 12, .., or as many steps are left.
    assert borders(40, 2).tolist() == [
        *(1, 2, 3, 4, 6, 8, 10, 12, 16, 18, 24, 26, 30, 32, 34, 36, 38, 39, 40),
    ]


# Counting without a horizon


def test_a_count_without_a_horizon_releases_on_both_paths() -> None:
    rows: list[Row] = [(key, i % 2, i) for i in range(60) for key in "ab"]
    found = {}
    for path in ("bounded", "streaming"):
        count = dp.PrefixCount(BUDGET, path=path, entropy=ScriptedEntropy())
        assert count.counter.mechanism == Endless()  # type: ignore[attr-defined]
        found[path] = run(lambda p, c=count: p | feed(rows, tuple[str, int]) | c).releases
    assert found["bounded"] == found["streaming"]
    assert len(found["bounded"]) == 120


def test_past_its_ceiling_nothing_is_released() -> None:
    count = dp.PrefixCount(BUDGET, mechanism=Endless(5), entropy=ScriptedEntropy())
    rows: list[Row] = [("a", 1, i) for i in range(9)]
    found = run(lambda p: p | feed(rows, tuple[str, int]) | count).releases
    assert [release.step for release in found] == [1, 2, 3, 4, 5]


def test_what_needs_a_horizon_says_so() -> None:
    with pytest.raises(ValueError, match=says(PURE_NEEDS_HORIZON)):
        dp.PrefixCount(dp.PureDP(1.0))
    with pytest.raises(
        TypeError, match=r"without one .* mechanisms.Endless\(\) under delta or rho"
    ):
        dp.choose(None, BUDGET)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="users= needs a horizon"):
        dp.PrefixCount(BUDGET, value=int, users=dp.Users(by=str, events=2, per_key=1))
    with pytest.raises(ValueError, match=says(NEEDS_HORIZON)):
        dp.SubstringCount(BUDGET, None, ["a"], 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=says(NO_END)):
        TickNumbers(BUDGET, 60, 0, keys=["a"])


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_what_the_message_says_has_less_noise_does(path: str) -> None:
    """On the path that it names; figures of docs/choosing.md."""
    largest, rows = {}, [("a", 1, i) for i in range(3)]
    for base in (BridgedKAry, SmoothLaplace, BinaryTree):
        count = dp.PrefixCount(dp.PureDP(1.0), mechanism=Unbounded(base), path=path)
        assert count.counter.horizon is None
        largest[base] = float(count.counter.stddevs(100_000).max())  # type: ignore[attr-defined]
        if path == "streaming" and base is BridgedKAry:
            with pytest.raises(ValueError, match=says(DRAWS_EARLY)):
                run(lambda p, c=count: p | feed(rows, tuple[str, int]) | c)
        else:
            found = run(lambda p, c=count: p | feed(rows, tuple[str, int]) | c).releases
            assert len(found) == 3
    said = [f"{stddev:.3g}" for stddev in largest.values()]
    assert said == ["50", "65.7", "187"]
    page = " ".join(CHOOSING.split())
    assert "are 50.0, 65.7 with SmoothLaplace, and 187 with BinaryTree" in page


@pytest.mark.parametrize("mechanism", ["Endless", Endless])
def test_endless_may_be_named(mechanism: Any) -> None:
    counter: Any = dp.PrefixCount(BUDGET, mechanism=mechanism).counter
    assert counter.mechanism == Endless()
    counter = dp.PrefixCount(BUDGET, 70, mechanism=mechanism).counter
    assert counter.mechanism == Endless(70)


@pytest.mark.parametrize("kind", [DecayedBLT, Differences, SlidingBLT, Sparse, Unbounded])
@pytest.mark.parametrize("horizon", [None, 50])
def test_what_takes_more_than_a_horizon_is_asked_for_as_an_instance(
    kind: Any, horizon: int | None
) -> None:
    for mechanism in (kind, kind.__name__):
        match = rf"give an instance, e.g. {kind.__name__}\(.+\) of"
        with pytest.raises(TypeError, match=match):
            dp.PrefixCount(BUDGET, horizon, mechanism=mechanism)


def test_the_table_of_what_no_horizon_costs_is_so() -> None:
    """That of docs/choosing.md, beside the default; PrefixCount's docstring has figures of it."""
    steps = (1, 10, 100, 1000, 10**4, 10**6)
    lines = ["| budget | t = 1 | 10 | 100 | 1,000 | 10,000 | 1,000,000 |", "|" + "---|" * 7]
    for budget in (dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.01)):
        ratios = [beside_default(budget, t) for t in steps]
        lines.append(f"| {budget} | " + " | ".join(f"{ratio:.3g}" for ratio in ratios) + " |")
    table = CHOOSING.split("<!-- endless -->\n")[1].split("\n<!-- /endless -->")[0]
    assert table.splitlines() == lines


def test_what_the_docstrings_say_of_no_horizon() -> None:
    for t in (1, 2, 3, 7, 30, 100, 10**3, 10**6, 10**8):
        assert 1.4 < beside_default(dp.ZCDP(0.01), t) < 1.65
    for t in (300, 399, 400, 500, 10**5):
        assert 1.4 < beside_default(dp.ApproxDP(1.0, 1e-6), t) < 1.6
    counter: Any = dp.calibrate(Endless(), BUDGET)
    for t in (*range(1, 40), 100, 999):
        known: Any = dp.calibrate(NormalizedBLT(t), BUDGET)
        assert counter.variance(t) <= (1.65, 1.51)[t >= 16] * known.max_variance()


def beside_default(budget: Any, t: int) -> float:
    """Of the variance of release t without a horizon, times the largest with a horizon of t."""
    known: Any = dp.calibrate(resolve(None, t, budget), budget)
    return float(dp.calibrate(Endless(), budget).variance(t) / known.max_variance())


def test_the_default_of_short_streams() -> None:
    """docs/choosing.md: at epsilon 1, delta 1e-6."""
    found = {t: resolve(None, t, dp.ApproxDP(1.0, 1e-6)).name for t in (1, 2, 15, 16, 252, 253)}
    assert list(found.values()) == [
        *["Simple1"],
        *["Simple2"] * 2,
        *["BridgedKAry"] * 2,
        "ProfiledBLT",
    ]
    assert resolve(None, 399, dp.ApproxDP(1.0, 1e-6)).name == "BridgedKAry"
    for t in (400, 420, 600, 1000):
        assert resolve(None, t, dp.ApproxDP(1.0, 1e-6)).name == "ProfiledBLT"


def test_its_noise_may_be_small_at_weak_budgets_and_strong() -> None:
    """The lattice of 2^30 steps is within the reach of the laws."""
    for budget in (dp.ApproxDP(0.05, 1e-9), dp.ApproxDP(1, 1e-6), dp.ZCDP(20.0)):
        counter: Any = dp.calibrate(Endless(), budget)
        rounding = float(counter.mechanism.norms(counter.resolution)[1]) ** 0.5
        assert rounding <= counter.resolution * (1 + 4e-3)
        state, value = counter.step(counter.init(), 1, KeyedScript("k", None, None, 0))
        assert state[0] == 1
        assert value == pytest.approx(1, abs=1e-3 * counter.variance(1) ** 0.5)
