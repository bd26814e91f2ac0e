"""Counts of the last ticks, on both paths, with or without an end, of events and people."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import test_stream
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.counters.sliding import difference_variance
from beam_dpcount.mechanisms import CombBLT, SlidingBLT
from beam_dpcount.transforms.ticks import FOLDS_LATE
from tests.messages import says
from tests.people import KEYS, crowd, people
from tests.runners import SECOND, Row, each_path, each_runner_and_path, feed, run, run_stream
from tests.scripted import KeyedScript, ScriptedEntropy
from tests.sentences import counted

BUDGET = dp.ZCDP(0.1)
EXACT = dp.ZCDP(1e12)  # its noise is 0
TICK = 10 * SECOND
ROOT = Path(__file__).resolve().parent.parent


pytestmark = pytest.mark.usefixtures("no_state_cache")


def sliding(window: int = 3, what: Any = dp.Sum(low=0, high=2, unit=1), **options: Any) -> Any:
    """Ten-second ticks over two minutes, with noise the tests know."""
    given: dict[str, Any] = {"budget": BUDGET, "tick": 10, "start": 0, "horizon": 12}
    given |= {"keys": ["a", "b", "c"], "entropy": ScriptedEntropy(), **options}
    return counted(what=what, last=window, **given)


def exact(window: int = 3, **options: Any) -> Any:
    return sliding(window, **{"budget": EXACT, "entropy": None, **options})


def some_rows(n: int = 150, seed: int = 1) -> list[Row]:
    chance = random.Random(seed)
    rows: list[Row] = [
        (chance.choice("aab"), chance.choice([0, 1, 3, None]), chance.randrange(120 * SECOND))
        for _ in range(n)
    ]
    return [*rows, ("a", 1, -1), ("a", 1, 120 * SECOND), ("z", 1, 5)]


def sums(rows: list[Row], key: str, cap: float = math.inf) -> np.ndarray:
    """Of one key's ticks: numbers up to 2, and nothing else."""
    ticks = np.zeros(12)
    for other, x, micros in rows:
        if other == key and 0 <= micros < 120 * SECOND and x is not None:
            ticks[micros // TICK] += min(x, 2)
    return np.minimum(ticks, cap)


def last(ticks: np.ndarray, window: int) -> np.ndarray:
    return np.array([ticks[max(0, i - window) : i].sum() for i in range(1, len(ticks) + 1)])


# What is released


@pytest.mark.parametrize("window", [1, 3, 12])
@each_path
def test_releases_are_sums_over_the_last_ticks(window: int, path: str) -> None:
    rows, count = some_rows(), exact(window, path=path)
    releases = run(lambda p: p | feed(rows) | count).releases
    assert [(r.key, r.step, r.timestamp) for r in releases] == [
        (key, step, step * TICK) for key in "abc" for step in range(1, 13)
    ]
    expected = np.concatenate([last(sums(rows, key), window) for key in "abc"])
    assert expected.max() > 9
    assert np.allclose([r.value for r in releases], expected, rtol=0, atol=1e-3)


@each_runner_and_path
def test_releases_are_the_mechanisms_own(runner: str, path: str) -> None:
    """Step by step, to the last bit, with the standard deviation of each; on every runner."""
    rows, count = some_rows(), sliding(path=path)
    counter, expected = count.counter, []
    assert counter.mechanism == CombBLT(12, 3)
    for key in "abc":
        noise, state = KeyedScript(key, GlobalWindow(), None, 50), counter.init()
        for step, x in enumerate(sums(rows, key), start=1):
            state, value = counter.step_lattice(state, int(x), noise)
            stddev = math.sqrt(counter.variance(step))
            expected.append(dp.Release(key, step, step * TICK, value, stddev, "sum_last_3"))
    assert run(lambda p: p | feed(rows) | count, runner).releases == expected


def test_the_same_releases_of_a_stream() -> None:
    rows = sorted(some_rows(20), key=lambda row: row[2])
    parts: list[Any] = []
    for seconds in range(-10, 140, 10):
        parts += [seconds, *(r for r in rows if seconds <= r[2] / SECOND < seconds + 10)]
    found = run_stream(sliding(), *parts, 150).releases
    assert found == run(lambda p: p | feed(rows) | sliding()).releases
    assert len(found) == 36


@each_path
def test_replays_are_equal_and_others_have_other_noise(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)

    def values(rows: list[Row], run_id: str) -> list[float]:
        entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id=run_id)
        count = sliding(entropy=entropy, path=path)
        return [r.value for r in run(lambda p: p | feed(rows) | count).releases]

    rows: list[Row] = [("a", 1, 5 * SECOND), ("b", 1, 65 * SECOND)]
    first = values(rows, "x")
    assert first == values(rows, "x")
    assert not set(first) & set(values(rows, "y"))
    more = values([*rows, ("a", 1, 65 * SECOND)], "x")
    same = [a == b for a, b in zip(first, more, strict=True)]
    assert same == [i < 6 or i >= 12 for i in range(36)]


@pytest.mark.parametrize(("window", "most"), [(10, 3.75), (100, 8.3), (1000, 14.6)])
def test_the_variance_has_a_limit(window: int, most: float) -> None:
    """In squared events at rho = 1/2, for as long as 2^30 ticks."""
    counter = counted(dp.ZCDP(0.5), tick=1, start=0, last=window, keys=["a"]).counter
    assert counter.horizon == 2**30
    assert counter.variance(2**30) == counter.max_variance() <= most
    assert counter.variance(10 * window) > counter.max_variance() * 0.999
    assert counter.mechanism.lag_bounds(1)[0] == counter.mechanism.l2_sensitivity_squared


def test_an_event_is_charged_once() -> None:
    """However many sums it is in; its account says so."""
    ledger = dp.Ledger(BUDGET, "site")
    count = sliding(9, budget=ledger.share(0.5, "recent"))
    run(lambda p: p | feed([]) | "Recent" >> count)
    assert "recent" in str(ledger)
    change = count.counter.change
    assert change.event_cost(count.counter.mechanism) == 1
    (cost,) = count.counter.costs()
    assert float(cost.rho) <= 0.05


# The end, and what happens without one


def test_unbounded_input_goes_on_to_the_ceiling() -> None:
    pipeline, count = beam.Pipeline(), exact(horizon=None)
    _ = pipeline | test_stream.TestStream() | count
    assert count.counter.horizon == 2**30
    assert count.display_data()["ticks"] == "without an end"
    days = counted(BUDGET, tick="1d", start="2024-01-01T00:00:00Z", last=7, keys=["a"])
    assert days.counter.horizon == 2_913_174  # to the year 9999


def test_weak_budgets_take_fewer_ticks() -> None:
    with pytest.raises(ValueError, match="shorten the horizon"):
        sliding(budget=dp.ZCDP(1e-5), horizon=2**30)
    assert sliding(budget=dp.ZCDP(1e-5), horizon=2**20).counter.horizon == 2**20


def test_ticks_are_clipped_no_lower_on_long_clocks() -> None:
    large = dp.Sum(low=0, high=2**20, unit=1)
    assert sliding(what=dp.Count(), horizon=2**30).display_data()["max_per_tick"] == str(2**30)
    assert sliding(what=large, horizon=2**30).display_data()["max_per_tick"] == str(2**12)
    rows: list[Row] = [("a", 1, 5)] * 9
    clipped = exact(what=dp.Count(), max_per_tick=4, keys=["a"])
    assert round(run(lambda p: p | feed(rows) | clipped).releases[0].value) == 4


# People


USERS = people(4, per_key=4, gap=30)


@each_path
def test_a_person_counts_at_most_once_in_each_sum(path: str) -> None:
    rows = crowd()
    how: dict[str, Any] = {"what": dp.Count(), "late": "drop", "keys": KEYS}
    count = exact(users=USERS, path=path, **how)
    busy = [row for row in rows if row[1].get("who") == "busy"]
    for some, most in ((busy, 1), (rows, 22)):
        releases = run(lambda p, some=some: p | feed(some) | count).releases
        sums = np.array([r.value for r in releases]).reshape(3, 12).sum(axis=0)
        assert 0.9 < sums.max() < most + 0.1
    plain = run(lambda p: p | feed(busy) | exact(**how)).releases
    assert max(r.value for r in plain) > 3
    assert count.display_data()["counted"].startswith("capped contributions: of a person at most")
    assert exact().display_data()["counted"] == "events"


def test_noise_of_people_is_for_events_that_are_a_gap_apart() -> None:
    def l2(**bound: Any) -> float:
        users = people(8, per_key=8, **bound)
        return sliding(3, dp.Count(), users=users, late="drop", keys=["a"]).counter.l2_sensitivity

    assert l2(gap=60) < l2(gap=30) < l2() < 8.1 * sliding(3, dp.Count()).counter.l2_sensitivity
    # Four events of a person fit 12 ticks, 3 apart.
    R = SlidingBLT(12, 3).encoder(12)
    worst = math.sqrt((R[:, ::3].sum(axis=1) ** 2).sum())
    assert worst <= l2(gap=30) <= 1.1 * worst


def test_late_events_may_not_come_closer() -> None:
    count = sliding(what=dp.Count(), users=USERS, path="streaming", late="fold")
    with pytest.raises(ValueError, match=says(FOLDS_LATE)):
        _ = beam.Pipeline() | feed([]) | count


# What others make of it


def test_other_transforms_know_that_it_counts_no_prefixes() -> None:
    count = sliding()
    with pytest.raises(ValueError, match="releases sums over the last 3 steps"):
        dp.post.SlidingSum(2, count.counter)


@each_path
def test_top_keys_of_a_tick_follow(path: str) -> None:
    count = exact(1, path=path)
    rows: list[Row] = [("b", 1, 5), ("c", 1, 15 * SECOND)]
    top = run(lambda p: p | feed(rows) | count | dp.post.TopKPerTick(1, count.keys)).releases
    assert [r.items for r in top[:2]] == [["b"], ["c"]]
    assert all(a.step < b.step for a, b in pairwise(top))


# Beside SlidingSum


def largest(window: int, ticks: int) -> list[float]:
    """Standard deviations: of the last ticks, and SlidingSum on bounded and on unbounded input."""
    budget, given = (
        dp.ApproxDP(1.0, 1e-6),
        {"tick": 60, "start": 0, "horizon": ticks, "keys": ["a"]},
    )
    found = [counted(budget, last=window, **given).counter.max_variance()]
    for path in ("bounded", "streaming"):
        count = counted(budget, path=path, **given)
        each = (difference_variance(count.counter, t, window) for t in range(1, ticks + 1))
        found.append(max(each))
    return [math.sqrt(variance) for variance in found]


@pytest.mark.long
def test_the_table_beside_sliding_sums_is_so() -> None:
    """That of docs/choosing.md; its rule is what the docstrings say."""
    page = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    rows = page.split("<!-- sliding -->\n")[1].split("\n<!-- /sliding -->")[0].splitlines()[2:]
    assert len(rows) >= 8
    for row in rows:
        window, ticks, *said = (cell.strip() for cell in row.strip("|").split("|"))
        found = largest(int(window), int(ticks))
        assert said == [f"{stddev:.3g}" for stddev in found]
        assert found[0] <= min(found) * (1 + 1e-9) or window == ticks
