"""Benchmarks of keys that nobody listed: that they measure what they say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import beam_dpcount as dp
from benchmarks import dp_sqlp, keys

SMALL = dp_sqlp.Data(people=3000, ticks=20, keys=400)


def counted(data: dp_sqlp.Data) -> tuple[Counter[int], int]:
    """Of each key how many people have events in it, and how many events that leaves out."""
    events = [pair for part in data.events() for pair in zip(part.people, part.keys, strict=True)]
    return Counter(int(key) for _, key in {*events}), len(events) - len({*events})


def test_people_have_their_laws() -> None:
    data = dp_sqlp.Data(people=200_000, ticks=100)
    parts = [*data.events()]
    assert len(parts) == 2
    assert [len(np.unique(part.people)) for part in parts] == [100_000] * 2
    n = np.arange(1, 100_001)
    weights = (n + 26.0) ** -6.738
    mean = float(np.minimum(n, 32) @ weights / weights.sum())
    events = sum(len(part.keys) for part in parts)
    assert events == pytest.approx(200_000 * mean, rel=0.01)
    assert max(np.bincount(part.people).max() for part in parts) == 32
    first, wide = (sum(np.count_nonzero(part.keys < n) for part in parts) for n in (1, 100_000))
    ranks = (np.arange(1, 1_000_001) + 1000.0) ** -1.4
    assert first == pytest.approx(events * ranks[0] / ranks.sum(), rel=0.2)
    assert wide == pytest.approx(events * ranks[:100_000].sum() / ranks.sum(), rel=0.01)
    ticks = np.bincount(np.concatenate([part.ticks for part in parts]))
    assert len(ticks) == 101
    assert ticks[0] == 0
    assert ticks[1:].min() > 0.9 * ticks[1:].max()


def test_the_first_of_a_person_in_a_key_is_kept() -> None:
    arrays = [[0, 0, 0, 1, 1], [7, 7, 2, 7, 7], [9, 4, 5, 3, 3]]
    kept = dp_sqlp.first_of_each(dp_sqlp.Events(*map(np.array, arrays)), 10)
    assert [array.tolist() for array in kept] == [[0, 0, 1], [2, 7, 7], [5, 4, 3]]


@pytest.mark.parametrize("way", [dp_sqlp.bulk, dp_sqlp.through_pipeline])
def test_under_an_enormous_budget_only_a_persons_later_events_are_missing(
    way: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From arrays or from a pipeline. Thresholds are always above 1: keys of one event are out."""
    monkeypatch.setattr(dp_sqlp, "BUDGET", dp.ApproxDP(1e9, 1e-9))
    (shown, _, l1, _), _ = way(SMALL)  # type: ignore[operator]
    there, missing = counted(SMALL)
    lone = sum(people == 1 for people in there.values())
    assert min(lone, missing) > 30
    assert shown == len(there) - lone
    assert l1 == pytest.approx(missing + lone, abs=2)


def test_figures_count_hidden_keys_as_nothing() -> None:
    found = dp_sqlp.figures(np.array([3, 10, 0]), np.array([np.nan, 6.0, np.nan]))
    assert found == (1, 4.0, 7.0, 5.0)


@pytest.mark.exhaustive
def test_a_tenth_of_the_benchmark_does_better_than_the_replica() -> None:
    """A tenth of people and keys, so that keys have as many events as at full size.

    A person's later events in a key are ten times as many there, so that the largest error is not
    compared: it is that of the most frequent key.
    """
    (shown, _, l1, _), _ = dp_sqlp.bulk(dp_sqlp.Data(dp_sqlp.PEOPLE // 10, 100, dp_sqlp.KEYS // 10))
    theirs = dp_sqlp.REPLICA[100]
    assert shown > 1.7 * theirs.shown / 10
    assert l1 < 0.65 * theirs.l1 / 10


def test_keys_have_a_power_law() -> None:
    events = keys.events_of(100_000)
    for n in (1, 2, 10, 100):
        assert np.mean(events >= n) == pytest.approx(n**-1.3, abs=0.004)
    assert events.max() <= 5000


@pytest.mark.parametrize("way", [*keys.PIPELINES, "noise"])
def test_every_way_runs(way: str) -> None:
    cost = keys.run(way, 60, 5, 2)
    assert cost.seconds > 0
    assert cost.memory > 10


def test_slopes_are_powers() -> None:
    assert keys.slopes([(10, 5), (100, 5), (100, 50)], [1, 10, 1000]) == "1.00, 2.00"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_selecting_costs_little_beside_a_timer_a_key() -> None:
    """CPU time of whole pipelines, each in a process of its own."""
    listed, shards = keys.measure("timers", 200, 30, 1), keys.measure("shards", 4000, 30, 1)
    assert shards.seconds / 4000 < listed.seconds / 200 / 5
