"""Many keys at once are the same keys tick by tick, to the last bit."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters import columns as module
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.columns import Columns, Sums, advance, all_ticks, counted
from beam_dpcount.counters.selection import Selection
from beam_dpcount.noise.entropy import SideBySide
from beam_dpcount.states.all_shards import joined_sums
from beam_dpcount.states.wire import batches_of, pack_batch
from tests.scripted import KeyedScript

TICKS = 40
MECHANISMS = ("BinaryTree", "SmoothBinary", "KAry", "Honaker", "BLT", "NormalizedBLT", "Simple2")
Ticks = dict[int, dict[str, int]]


def noise_of(keys: Any) -> SideBySide:
    """A script a key."""
    return SideBySide([KeyedScript(key, None, None, 3) for key in keys])


def selection_of(mechanism: str, at_least: int, every: int) -> Selection:
    """With noise of scripts, thresholds are in its midst."""
    kind = getattr(dp.mechanisms, mechanism)
    counter = dp.calibrate(kind(TICKS), dp.ApproxDP(60.0, 1e-2), TickChange(0, 3))
    return Selection(counter, 1e-2, at_least, every)


def drawn(rng: np.random.Generator) -> Ticks:
    """Of some keys few events, of others many; some begin late, and some ticks have none."""
    ticks: Ticks = defaultdict(dict)
    for key in range(30):
        for tick in rng.integers(1 + rng.integers(TICKS), TICKS + 1, rng.integers(1, 3 + key)):
            if tick % 7:
                ticks[int(tick)][f"key-{key}"] = int(rng.integers(1, 4))
    return ticks


def one_by_one(selection: Selection, ticks: Ticks) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    columns = Columns()
    for step in range(1, TICKS + 1):
        columns, shown = advance(selection, columns, ticks.get(step, {}), noise_of)
        for key, value in shown:
            found[key].append((step, value))
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("at_least", "every"), [(1, 1), (6, 1), (1, 3), (4, 5)])
def test_keys_side_by_side_are_keys_tick_by_tick(mechanism: str, at_least: int, every: int) -> None:
    """Whatever is beside a key, in both, and in whatever chunks."""
    selection = selection_of(mechanism, at_least, every)
    ticks = drawn(np.random.default_rng([MECHANISMS.index(mechanism), at_least, every]))
    packed = [pack_batch({(key, step): x for key, x in ticks[step].items()}) for step in ticks]
    names, sums = joined_sums(packed, 100, selection.skipped)
    sums = counted(sums, selection.skipped)
    found: dict[str, list[tuple[int, float]]] = {}
    there = np.unique(sums.places)
    for some in np.array_split(there, 3):
        part = np.isin(sums.places, some)
        places = np.searchsorted(some, sums.places[part])
        keys = [names[i] for i in some]
        columns = Sums(places, sums.steps[part], sums.xs[part])
        for place, since, values in all_ticks(selection, columns, len(keys), noise_of(keys)):
            found[keys[place]] = [*enumerate(values.tolist(), since)]
    assert found == one_by_one(selection, ticks)
    assert 3 < len(found) < 30


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_keys_that_all_begin_late_are_made_in_little_memory(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ticks before are made at once so far as that fits, and then one by one."""
    selection = selection_of(mechanism, 1, 1)
    ticks: Ticks = {30: {"a": 3, "b": 1}, 35: {"a": 40}}
    expected = one_by_one(selection, ticks)
    assert expected
    sums = Sums(np.array([0, 0, 1]), np.array([30, 35, 30]), np.array([3, 40, 1]))
    for most in (1 << 22, 20, 1):
        monkeypatch.setattr(module, "_AT_ONCE", most)
        found = {
            "ab"[place]: [*enumerate(values.tolist(), since)]
            for place, since, values in all_ticks(selection, sums, 2, noise_of("ab"))
        }
        assert found == expected


@pytest.mark.parametrize("skipped", [0, 1, 5, 1000])
def test_keys_of_few_events_are_left_out_before_they_are_sorted(skipped: int) -> None:
    ticks = drawn(np.random.default_rng(1))
    packed = [pack_batch({(key, step): x for key, x in ticks[step].items()}) for step in ticks]
    names, sums = joined_sums(packed, 2)
    few, fewer = joined_sums(packed, 2, skipped)
    assert names == sorted(names)
    assert few == sorted(few)
    assert (few == names) == (skipped == 0)
    assert few or skipped == 1000

    def named(names: list[str], sums: Sums) -> list[tuple[str, int, int]]:
        places, steps, xs = (array.tolist() for array in counted(sums, skipped))
        return [(names[i], step, x) for i, step, x in zip(places, steps, xs, strict=True)]

    assert named(few, fewer) == named(names, sums)


def test_batches_come_apart_as_they_were_and_hold_no_sum_beyond_64_bits() -> None:
    entries = {("a", 1): 2**70, ("é", 3): -(2**80), ("b", 2): 5}
    for keys, steps, xs in batches_of(2 * pack_batch(entries, origin=7)):
        assert (keys, steps.tolist()) == (["a", "é", "b"], [1, 3, 2])
        assert xs.tolist() == [2**62, -(2**62), 5]
