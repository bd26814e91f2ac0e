"""Vectors of sums at a clock: what waits for its tick, and many keys at once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import beam_dpcount as dp
from beam_dpcount.counters import columns as plain
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.clock import clock_of
from beam_dpcount.counters.columns import Columns, Sums
from beam_dpcount.counters.joint import JointChange, Part
from beam_dpcount.counters.selection import JointSelection, Selection
from beam_dpcount.counters.vector_columns import LONG, advance, all_ticks, no_keys
from beam_dpcount.noise.entropy import SideBySide
from beam_dpcount.states.codecs import OTHER_SELECTION, ShardCodec
from beam_dpcount.states.envelope import StateError
from tests.messages import says
from tests.scripted import KeyedScript

examples = settings(max_examples=40, deadline=None, derandomize=True, database=None)
WIDTH = 3
# Keys that nobody listed

TICKS = 30
MECHANISMS = ("BinaryTree", "SmoothBinary", "Honaker", "NormalizedBLT", "BLT")
Vectors = dict[int, dict[str, np.ndarray]]


def selection_of(mechanism: str, every: int = 1) -> JointSelection:
    """Keys are shown by the second of three sums, of which an event adds 4."""
    parts = (Part(3, 9, 9, 1, 3), Part(4, 16, 16, 1, 4), Part(2, 4, 4, 1, 2, signed=True))
    change = JointChange(parts=parts, tested=4, most=8)
    kind = getattr(dp.mechanisms, mechanism)
    counter = dp.calibrate(kind(TICKS), dp.ApproxDP(60.0, 1e-2), change, WIDTH)
    return JointSelection(counter, 1e-2, 1, every)


def noise_of(sums: Any) -> SideBySide:
    """A script a sum, by the name of its key and its place."""
    return SideBySide([KeyedScript(name, None, None, 3) for name in sums])


def labelled(keys: Any) -> SideBySide:
    return noise_of([f"{place} {key}" for key in keys for place in range(WIDTH)])


def drawn(seed: int) -> Vectors:
    rng, ticks = np.random.default_rng(seed), defaultdict[int, dict[str, np.ndarray]](dict)
    for key in range(12):
        for tick in rng.integers(1 + rng.integers(TICKS), TICKS + 1, rng.integers(1, 3 + key)):
            x = np.array([3, 4, rng.integers(-2, 3)]) * rng.integers(1, 4)
            ticks[int(tick)][f"key-{key:02}"] = x
    return ticks


def one_by_one(selection: JointSelection, ticks: Vectors) -> dict[str, list[Any]]:
    found, columns = defaultdict[str, list[Any]](list), no_keys()
    clock = clock_of(10, 0, None, TICKS)
    codec = ShardCodec(selection.counter, "said", clock, 0, np.uint8)
    for step in range(1, TICKS + 1):
        columns, shown = advance(selection, columns, ticks.get(step, {}), labelled, 1)
        kept, waiting = codec.decode(codec.encode(columns, b"", {step + 1: b"later"}))
        assert waiting == {step + 1: b"later"}
        columns = kept
        for key, (values, since) in shown:
            found[key].append((step, since, values.tolist()))
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.exhaustive("mechanism", "every")
def test_keys_at_once_are_keys_tick_by_tick(mechanism: str, every: int) -> None:
    selection, ticks = selection_of(mechanism, every), drawn(1)
    expected = one_by_one(selection, ticks)
    names = sorted({key for tick in ticks.values() for key in tick})
    assert 2 < len(expected) < len(names)  # some are shown, some are not
    cells = [
        (names.index(key), (tick - 1) * WIDTH + place + 1, int(x))
        for tick, vectors in ticks.items()
        for key, vector in vectors.items()
        for place, x in enumerate(vector)
        if x
    ]
    sums = Sums(*np.array(sorted(cells)).T)
    found = {
        names[place]: [(since + i, 1 + i, row) for i, row in enumerate(values.tolist())]
        for place, since, values in all_ticks(selection, sums, len(names), labelled(names), 1)
    }
    assert found == expected


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_key_is_shown_as_if_its_number_of_events_were_all_there_is(mechanism: str) -> None:
    """By the counter of that sum alone, with its noise, its law and the same thresholds."""
    selection, ticks = selection_of(mechanism), drawn(2)
    counter = selection.counter
    alone = dp.Counter(
        *(counter.mechanism, counter.budget, counter.law),
        *(TickChange(0, 4, most=8), None, 1),
    )
    if alone.resolution != counter.resolution:  # the noise's lattice is another one
        pytest.skip("the encoder of numbers needs another lattice")
    known = Selection(alone, selection.delta)
    assert known.lattice_thresholds.tolist() == selection.lattice_thresholds.tolist()
    columns, expected = Columns(), defaultdict[str, list[Any]](list)
    for step in range(1, TICKS + 1):
        counts = {key: int(x[1]) for key, x in ticks.get(step, {}).items()}
        columns, shown = plain.advance(
            known, columns, counts, lambda keys: noise_of([f"1 {key}" for key in keys])
        )
        for key, value in shown:
            expected[key].append((step, value))
    found = one_by_one(selection, ticks)
    assert {k: [(step, values[1]) for step, _, values in v] for k, v in found.items()} == expected


def test_other_keys_do_not_change_a_key() -> None:
    selection, ticks = selection_of("SmoothBinary"), drawn(3)
    fewer: Vectors = {
        tick: {key: x for key, x in vectors.items() if key != "key-11"}
        for tick, vectors in ticks.items()
    }
    found = one_by_one(selection, ticks)
    assert found.pop("key-11")
    assert found == one_by_one(selection, fewer)


def test_since_when_a_key_is_shown_is_counted_up_to_a_limit() -> None:
    selection = selection_of("SmoothBinary")
    columns = Columns(
        *(TICKS - 2, ["a"], selection.counter.mechanism.after(TICKS - 2, labelled("a"), WIDTH)),
        np.array([LONG - 1], dtype=np.uint8),
    )
    for _ in range(2):
        columns, ((_, (_, since)),) = advance(selection, columns, {}, labelled, 1)
        assert since == LONG


def test_states_of_numbers_and_of_vectors_are_not_taken_for_each_other() -> None:
    selection, clock = selection_of("SmoothBinary"), clock_of(10, 0, None, TICKS)
    codec = ShardCodec(selection.counter, "said", clock, 0, np.uint8)
    other = ShardCodec(selection.counter, "another", clock, 0, np.uint8)
    with pytest.raises(StateError, match=says(OTHER_SELECTION)):
        other.decode(codec.encode(no_keys(), b"", {}))


def test_what_selection_says_is_in_events() -> None:
    selection = selection_of("SmoothBinary")
    assert selection.thresholds == pytest.approx(selection.lattice_thresholds / 4)
    assert selection.lattice_thresholds.min() >= 4
    (row,) = selection.outlook((3,), keys=50)
    assert row.shown_at is not None
    assert row.shown_at >= 3
    assert row.shown_at % 3 == 0
