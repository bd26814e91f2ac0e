"""Shards of keys that nobody listed, of metrics: which sum shows a key, caps, and their noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.noise.entropy import SystemEntropy
from beam_dpcount.states.all_shards import ShardPlan
from beam_dpcount.transforms.ticks import TickNumbers
from tests.aggregates import EXACT, m
from tests.sentences import counted
from tests.shards import bounded, streamed

TICK, TICKS = 10, 4
SECRET = "0123456789abcdefghijklmnopqrstuvwxyz"
# Key, tick from 1, and the events' number.
Events = Sequence[tuple[str, int, float]]


def aggregate(metrics: Sequence[Any], **options: Any) -> Any:
    given: dict[str, Any] = {"keys": dp.SelectKeys(delta=1e-9, shards=1), "budget": EXACT}
    given |= {"tick": TICK, "start": 0, "horizon": TICKS, **options}
    return counted(what=metrics, **given)


def plan_of(count: Any, **options: Any) -> Any:
    """What counts the shards of a transform, as it makes it."""
    inner = getattr(count, "engine", count)
    given = {"fold": True, "entropy": SystemEntropy(), "shards": 1, "cap": 1, **options}
    given["cap"] = inner._change.largest(inner._unit)
    return inner._shard_plan_of(inner.selection, inner._clock, **given)


def sums_of(plan: Any, events: Events) -> dict[tuple[str, int], int]:
    """What these events add, as bundles pass it on."""
    sums: dict[tuple[str, int], int] = {}
    for key, tick, v in events:
        for place, amount in plan.joint.additions({"v": v}):
            entry = key, (tick - 1) * plan.joint.width + place + 1
            sums[entry] = sums.get(entry, 0) + amount
    return sums


def released(plan: Any, events: Events, path: str) -> dict[tuple[str, int], Mapping[str, Any]]:
    """What the DoFns say of these events, by key and tick."""
    sums = sums_of(plan, events)
    run = streamed if path == "streaming" else bounded
    return {(r.key, r.step): r.values for r in run(plan, sums)}


each_path = pytest.mark.parametrize("path", ["bounded", "streaming"])
each_way = pytest.mark.parametrize("path", ["bounded", "replayed", "streaming"])


@each_path
def test_no_sum_but_the_number_of_events_shows_a_key(path: str) -> None:
    """A key with one event is hidden whatever its number, wherever Count stands."""
    few = [m.Sum("v", 0, 100), m.Count(), m.Mean("v", 0, 100)]
    for metrics in (few, few[::-1], [few[1], few[0]]):
        plan = plan_of(aggregate(metrics))
        for v in (0, 1, 99, 100):
            assert not released(plan, [("alone", 2, v)], path)
            shown = released(plan, [("two", 2, v), ("two", 3, v), ("alone", 1, 100)], path)
            assert [*shown] == [("two", 3), ("two", 4)]
            assert shown["two", 3]["sum_v"] == pytest.approx(2 * v, abs=1e-3)


@each_way
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_a_tick_are_clipped(path: str, sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To so many times what one event may add to each: ten events count as three."""
    monkeypatch.setenv("SECRET_OF_TESTS", SECRET)
    metrics = [m.Sum("v", -10, 10, unit=1), m.Count(), m.Sum("v", -2, 2, unit=1, name="small")]
    replayed = dp.ReplayableEntropy("SECRET_OF_TESTS", run_id="one")
    entropy = replayed if path == "replayed" else SystemEntropy()
    plan = plan_of(aggregate(metrics, max_per_tick=3), entropy=entropy)
    events = [("much", 2, sign * 10.0)] * 10 + [("much", 3, sign * 10.0)] + [("few", 1, 1.0)] * 2
    found = released(plan, events, path)
    for step, times in ((2, 3), (3, 4), (4, 4)):
        expected = {"sum_v": 10 * sign * times, "count": times, "small": 2 * sign * times}
        assert found["much", step] == pytest.approx(expected, abs=1e-3)
    assert found["few", 1] == pytest.approx({"sum_v": 2, "count": 2, "small": 2}, abs=1e-3)


# Replayable noise: other noise for whatever decides otherwise


def noise_of(plan: Any, path: str = "streaming") -> list[int]:
    draws = plan.draws(path)
    noise = draws.of_keys(["a"], GlobalWindow(), draws.begin("0", GlobalWindow()))
    return np.asarray(noise.draw(1, 8)).ravel().tolist()


COUNTS: dict[str, Callable[[float], Any]] = {
    "numbers": lambda rho: TickNumbers(
        dp.ZCDP(rho), TICK, 0, horizon=TICKS, keys=dp.SelectKeys(delta=1e-6)
    ),
    "metrics": lambda rho: aggregate([m.Count(), m.Sum("v", 0, 10)], budget=dp.ZCDP(rho)),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_noise_of_shards_depends_on_all_that_decides_what_counts(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs that count differently under one noise would show the exact difference."""
    monkeypatch.setenv("SECRET_OF_TESTS", SECRET)
    given = {"entropy": dp.ReplayableEntropy("SECRET_OF_TESTS", run_id="one"), "counted": "it"}
    plan: ShardPlan = plan_of(COUNTS[kind](1e-4), **given)
    selection = plan.selection
    tree = replace(plan.counter, mechanism=dp.mechanisms.BinaryTree(TICKS))
    others = {
        "mechanism": replace(plan, selection=replace(selection, counter=tree)),
        "budget": plan_of(COUNTS[kind](1.0001e-4), **given),
        "max_per_tick": replace(plan, cap=plan.cap + 1),
        "late": replace(plan, fold=False),
        "shards": replace(plan, shards=2),
        "what else counts": replace(plan, counted="other"),
        "delta": replace(plan, selection=replace(selection, delta=2e-9)),
        "every": replace(plan, selection=replace(selection, every=2)),
        "at_least": replace(plan, selection=replace(selection, at_least=2)),
        "clock": replace(plan, clock=replace(plan.clock, start=10_000_000)),
    }
    noises = [noise_of(plan), noise_of(plan, "bounded"), *map(noise_of, others.values())]
    assert noises[0] == noise_of(replace(plan))
    assert len({*map(tuple, noises)}) == len(noises), [*others]
