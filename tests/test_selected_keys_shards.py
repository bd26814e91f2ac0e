"""Shards of keys that nobody listed, without runners: both paths, an oracle, and their state."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.clock import clock_of
from beam_dpcount.counters.columns import Columns, advance
from beam_dpcount.counters.selection import Selection
from beam_dpcount.dofns.releases import Release
from beam_dpcount.noise.entropy import Draws
from beam_dpcount.states import all_shards, selected_shards
from beam_dpcount.states.all_shards import shard_of
from beam_dpcount.states.codecs import (
    OTHER_CLOCK,
    OTHER_COUNTER,
    OTHER_SELECTION,
    ShardCodec,
    StateCodec,
    tick_codec,
)
from beam_dpcount.states.envelope import OTHER_ENTROPY, StateError
from beam_dpcount.states.wire import pack_batch
from tests.messages import says
from tests.scripted import ScriptedEntropy
from tests.shards import Shard, Sums, bounded, plan_of, streamed

TICKS, SPREAD = 40, 3
NAMES = ("a", "b", "c", "dora", "\u00e9", "z z", "")
HIDDEN = "hidden-xyzzy"
KARY = dp.mechanisms.KAry(TICKS, subtraction=False)
EVERY = [KARY if kind is dp.mechanisms.KAry else kind(TICKS) for kind in dp.mechanisms.ALL]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "at_least": {"at_least": 4},
    "every": {"every": 7},
    "both": {"at_least": 3, "every": 4},
    "two signs": {"low": -2},
    "small sums": {"most": 1},
}
ENTROPY = ScriptedEntropy(SPREAD)


def selection_of(mechanism: Any, **options: Any) -> Selection:
    change = TickChange(options.pop("low", 0), 2, most=options.pop("most", 64))
    budget = dp.ZCDP(50.0) if "gaussian" in mechanism.laws else dp.PureDP(10.0)
    counter = dp.calibrate(mechanism, budget, change, unit=0.5)
    return Selection(counter, 0.02, **options)


def some_sums(seed: int, two_signs: bool = False) -> dict[tuple[str, int], int]:
    """Sums of some ticks, on the lattice, of keys of all sizes; some are 0."""
    chance, sums = random.Random(seed), dict[tuple[str, int], int]()
    for size, name in enumerate(NAMES):
        for _ in range(1 + 2 * size):
            place = name, chance.randrange(1 + 5 * (size % 3), TICKS + 1)
            sums[place] = sums.get(place, 0) + chance.choice([-4, 1, 3, 4] if two_signs else [1, 4])
    return sums


def by_hand(selection: Selection, sums: Sums) -> list[Release]:
    """From the words: each key's counter runs by itself, from tick 1 on."""
    counter, made = selection.counter, []
    cap, left_out = counter.change.largest(counter.unit), selection.skipped
    stddevs = counter.stddevs(TICKS).tolist()
    source = ENTROPY.source(counter.law, None)
    for name in sorted({key for key, _ in sums}):
        xs = [min(max(sums.get((name, t), 0), -cap), cap) for t in range(1, TICKS + 1)]
        there = np.arange(1, TICKS + 1) >= min(t for key, t in sums if key == name)
        if left_out:
            xs = np.diff(np.maximum(np.cumsum(xs) - left_out, 0), prepend=0).tolist()
            there = np.cumsum(xs) > 0
        values = counter.release_units(np.array(xs), source(name, GlobalWindow()))
        above = there & (values >= selection.lattice_thresholds)
        for t in range(int(np.argmax(above)) if above.any() else TICKS, TICKS):
            value = float((values[t] + left_out) * counter.unit)
            made.append(Release(name, t + 1, (t + 1) * 10_000_000, value, stddevs[t]))
    return made


@pytest.mark.parametrize("mechanism", EVERY, ids=str)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.exhaustive("mechanism", "options")
def test_both_paths_are_the_definition(
    mechanism: Any, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit; however many keys are computed together."""
    selection = selection_of(mechanism, **OPTIONS[options])
    plan, shown = plan_of(selection, entropy=ENTROPY), 0
    for seed in range(3):
        sums = some_sums(seed, options == "two signs")
        expected = by_hand(selection, sums)
        shown += len({release.key for release in expected})
        assert len(expected) < len(NAMES) * TICKS
        assert sorted(streamed(plan, sums)) == expected
        monkeypatch.setattr(all_shards, "SIDE_BY_SIDE", [1, 3, 1 << 13][seed])
        assert bounded(plan, sums) == expected
    assert 0 < shown < 3 * len(NAMES)


def test_releases_of_a_tick_come_by_key_whatever_came_first() -> None:
    """Of a stream, too: by their columns, they would tell whose first event was earlier."""
    plan = plan_of(selection_of(EVERY[0]), entropy=ENTROPY)
    sums = {("b", 1): 64, ("d", 1): 64, ("c", 2): 64, ("a", 3): 64}
    made = streamed(
        plan, {(name, at + more): x for (name, at), x in sums.items() for more in (0, 9)}
    )
    places = [(release.step, release.key) for release in made]
    assert len({key for _, key in places}) == 4
    assert places == sorted(places)


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("mechanism", EVERY[::3], ids=str)
def test_late_and_early_events(mechanism: Any, fold: bool) -> None:
    """Late ones count at the next tick or never, whoever is known; early ones wait."""
    selection, chance = selection_of(mechanism), random.Random(5)
    plan, sums = plan_of(selection, fold, ENTROPY), some_sums(4)
    arrivals: list[dict[tuple[str, int], int]] = [{} for _ in range(TICKS)]
    counted = defaultdict[tuple[str, int], int](int)
    for (name, tick), x in sums.items():
        now = min(max(tick + chance.choice([-9, -1, 0, 0, 0, 1, 8]), 1), TICKS)
        arrivals[now - 1][name, tick] = x
        if now <= tick or fold:
            counted[name, max(now, tick)] += x
    assert counted != sums
    assert sorted(Shard(plan).run(*arrivals)) == by_hand(selection, counted)
    # One key's events less, late ones among them, and all others are the same.
    for gone in NAMES:
        others = [{p: x for p, x in at.items() if p[0] != gone} for at in arrivals]
        left = {place: x for place, x in counted.items() if place[0] != gone}
        assert sorted(Shard(plan).run(*others)) == by_hand(selection, left)


def test_events_after_the_last_tick_and_second_seeds_change_nothing() -> None:
    shard = Shard(plan_of(selection_of(EVERY[0]), entropy=ENTROPY))
    shard.arrive({("a", 1): 4})
    assert shard.timer.at is None  # only a seed starts the clock
    made = shard.run({("a", 1): 400})
    assert shard.timer.at is None
    assert {release.key for release in made} == {"a"}
    kept = shard.cell.data
    shard.arrive({("a", TICKS): 4, ("b", 1): 400})
    shard.seed()
    assert shard.timer.at is None
    assert shard.fire() == []
    assert shard.cell.data == kept


@pytest.mark.parametrize("mechanism", EVERY[::3], ids=str)
def test_a_shard_resumed_from_its_bytes_goes_on_as_if_never_stopped(mechanism: Any) -> None:
    """And what failed before it was kept is done again."""
    plan = plan_of(selection_of(mechanism, at_least=2), entropy=ENTROPY)
    sums, shard, found = some_sums(6), Shard(plan), []
    shard.seed()
    for step in range(1, TICKS + 1):
        shard.arrive({place: x for place, x in sums.items() if place[1] == step})
        cell, bag = shard.cell.data, shard.bag.read()
        lost = shard.fire()
        shard = Shard(pickle.loads(pickle.dumps(plan)))
        shard.cell.data, shard.bag.entries = cell, bag
        assert shard.fire() == lost
        found += lost
    assert sorted(found) == by_hand(plan.selection, sums)


def test_a_shard_is_a_public_function_of_the_key() -> None:
    """The same in every version: a stream is resumed with it."""
    assert [shard_of(name, 64) for name in ("", "a", "often", "\u00e9")] == [0, 3, 47, 62]
    found = [shard_of(f"key {i}", 8) for i in range(8000)]
    assert all(900 < found.count(shard) < 1100 for shard in range(8))


# Its state


def shard_state(steps: int = 5, **options: Any) -> tuple[ShardCodec, bytes]:
    """The state of a shard after some ticks, and what reads it."""
    plan = plan_of(selection_of(options.pop("mechanism", EVERY[0]), **options), entropy=ENTROPY)
    shard = Shard(plan)
    shard.seed()
    shard.arrive({(HIDDEN, 1): 4, ("a", 2): 123_456, ("b", 7): 1, ("waits", 3): 1})
    for _ in range(steps):
        shard.fire()
    codec: ShardCodec = shard.dofn._of(0).codec
    assert shard.cell.data is not None
    return codec, shard.cell.data


def refused(codec: Any, data: bytes, message: str | None = None) -> None:
    with pytest.raises(StateError, match=message and says(message)) as caught:
        codec.decode(data)
    assert HIDDEN not in str(caught.value)
    assert "123" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    codec, data = shard_state(at_least=2)
    columns, pending = codec.decode(data)
    assert (columns.names, columns.waiting, list(pending)) == ([HIDDEN, "a"], {"waits": 1}, [7])
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        refused(codec, bytes(flipped))
    for size in range(len(data)):
        refused(codec, data[:size])
    for more in (b"\0", b"\0" * 8, data):
        refused(codec, data + more)


def test_states_of_two_moments_put_together_are_refused() -> None:
    codec, one = shard_state(5)
    _, other = shard_state(6)
    assert len(one) == len(other)
    differs = [i for i in range(len(one)) if one[i] != other[i]]
    for at in range(differs[0] + 1, differs[-1] + 1):
        refused(codec, one[:at] + other[at:])
        refused(codec, other[:at] + one[at:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 2}, OTHER_SELECTION),
        ({"at_least": 2}, OTHER_SELECTION),
        ({"most": 65}, OTHER_COUNTER),
        ({"mechanism": EVERY[1]}, OTHER_COUNTER),
    ],
    ids=str,
)
def test_states_of_other_parameters_are_refused(options: dict[str, Any], words: str) -> None:
    (codec, data), (other, theirs) = shard_state(), shard_state(**options)
    refused(codec, theirs, words)
    refused(other, data, words)


def test_states_of_other_kinds_are_refused() -> None:
    """Of a clock's listed keys, of another clock, of another fold, and with a history."""
    codec, data = shard_state()
    plan = plan_of(selection_of(EVERY[0]))
    counter = plan.selection.counter
    kinds = (
        (StateCodec(counter), counter),
        (
            tick_codec(counter, plan.clock, ["a"]),
            replace(counter, dimension=1),
        ),
    )
    for kind, counting in kinds:
        refused(kind, data)
        refused(codec, kind.encode(counting.init()))
    faster, dropping = clock_of(5, 0, horizon=TICKS), plan_of(plan.selection, fold=False)
    refused(ShardCodec(counter, plan.said, faster, 0), data, OTHER_CLOCK)
    refused(ShardCodec(counter, dropping.said, plan.clock, 0), data, OTHER_SELECTION)
    refused(ShardCodec(counter, plan.said, plan.clock, 16), data, OTHER_ENTROPY)


@pytest.mark.parametrize("mechanism", EVERY, ids=str)
def test_states_come_back_exactly_and_are_never_changed(mechanism: Any) -> None:
    """Neither the columns before a tick, nor its sums, nor the noise."""
    plan = plan_of(selection_of(mechanism, at_least=2), entropy=ENTROPY)
    selection, counter = plan.selection, plan.selection.counter
    codec = ShardCodec(counter, plan.said, plan.clock, 0)
    draws: Draws = ENTROPY.draws(counter.law, None, "")
    columns, sums, handed = Columns(), some_sums(7), list[Any]()

    def noise(keys: Any) -> Any:
        handed.append(_Fixed(draws.of_keys(keys, GlobalWindow(), b"")))
        return handed[-1]

    for step in range(1, TICKS + 1):
        added = {name: x for (name, t), x in sorted(sums.items()) if t == step}
        data, before = codec.encode(columns, b"", {}), dict(added)
        read, _ = codec.decode(data)
        for array in (*columns.state, columns.shown, *read.state, read.shown):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        after, shown = advance(selection, columns, added, noise)
        assert codec.encode(columns, b"", {}) == data
        assert added == before
        again, shown_again = advance(selection, read, added, noise)
        assert shown == shown_again
        assert codec.encode(after, b"", {}) == codec.encode(again, b"", {})
        columns = after
    assert len(columns.names) + len(columns.waiting) == len(NAMES)


class _Fixed:
    """Noise in arrays that cannot be written to."""

    def __init__(self, noise: Any) -> None:
        self._noise = noise

    def draw(self, first: int, n: int) -> np.ndarray:
        z: np.ndarray = self._noise.draw(first, n)
        z.flags.writeable = False
        return z

    def one(self, coordinate: int) -> Any:
        z = self._noise.one(coordinate)
        z.flags.writeable = False
        return z

    def for_law(self, law: Any) -> _Fixed:
        return _Fixed(self._noise.for_law(law))


def test_batches_say_nothing_of_what_they_hold_when_they_do_not_fit() -> None:
    """Sums beyond 64 bits are limited, not refused: the message would show them."""
    packed = pack_batch({(HIDDEN, 3): 10**30, ("a", 3): -(10**30)})
    plan = plan_of(selection_of(EVERY[0], low=-2))
    cap = plan.cap
    assert selected_shards.add_batches(packed + packed, cap) == {HIDDEN: cap, "a": -cap}
