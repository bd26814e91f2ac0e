"""Counts of people who are active, what they add up of events, and what noise must hide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.dofns.users import SendToShards
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import PAIR
from tests.person_audit import (
    RHO,
    SECOND,
    TICK,
    Event,
    Noised,
    added,
    collection,
    placed,
    universe,
)

TICKS = 6
PERIOD = 3
ONE_KEY = universe(["a"], range(TICKS), [1])
TWO_KEYS = universe(["a", "b"], range(0, TICKS, 2), [1])
MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    "fresh": SingleSteps,
    "tree": mechanisms.BinaryTree,
    "rounded": mechanisms.NormalizedBLT,
}


def count_of(
    users: dp.Users, window: int, budget: Any = RHO, keys: Any = ("a", "b"), **more: Any
) -> Any:
    clock = dp.Clock(TICK, start=0, ticks=TICKS)
    count = dp.TickCount(budget, clock.last(window), dp.People(), keys=keys, users=users, **more)
    return count._parts[0].engine


def with_mechanism(engine: Any, mechanism: Any) -> Any:
    """The engine with the counter of another mechanism."""
    counter = dp.calibrate(mechanism, engine._budget, engine.counter.change)
    object.__setattr__(engine, "counter", counter)
    return engine


def sums_of(engine: Any, events: Sequence[Event]) -> tuple[tuple[int, ...], ...]:
    """What it adds up of events, by key and tick."""
    parcels = engine.parcels(collection(None))
    shards = SendToShards(engine.users, parcels, Placement(3))
    shards.setup()
    shards.start_bundle()
    for key, payload, tick in events:
        element, micros = (key, payload), int(tick * TICK * SECOND)
        assert not shards.process(element, placed(element, micros, None))
    bounding = engine._bound_shards(engine.users.bound(), parcels, periods=engine._periods)
    sums = np.zeros((len(engine.keys), TICKS), dtype=np.int64)
    for shard in shards.finish_bundle():
        for windowed in bounding.process((shard.value[0], [shard.value[1]])):
            key, packed = windowed.value
            step, x = PAIR.unpack(packed)
            sums[engine.keys.index(key), step - 1] += x
    return tuple(map(tuple, sums.tolist()))


def differences(engine: Any, pairs: Iterable[tuple[Any, Any]]) -> list[np.ndarray]:
    noised, found = Noised(engine.counter), []
    for one, other in {pair for pair in pairs if pair[0] != pair[1]}:
        nothing = added(one, -np.array(one))
        for base in (nothing, added(one, other)):
            found.append(noised(added(one, base)) - noised(added(other, base)))
    return found
