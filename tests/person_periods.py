"""Sums of events of people who are bounded period by period, and what noise must hide of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import beam_dpcount as dp
from beam_dpcount.dofns.users import BoundShards, SendToShards
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import PAIR
from beam_dpcount.transforms.ticks import TickNumbers
from tests.person_audit import CLOCK, RHO, TICK, Event, Noised, added, collection, number, placed

SECOND = 1_000_000
PERIOD = 2  # ticks


def count_of(users: dp.Users, budget: Any = RHO, mechanism: Any = "BinaryTree", **more: Any) -> Any:
    given = {**CLOCK, "horizon": 4, "keys": ("a", "b"), "value": number, **more}
    return TickNumbers(budget, mechanism=mechanism, users=users, **given)


def sums_of(count: Any, events: Sequence[Event], periods: Any = ...) -> tuple[tuple[int, ...], ...]:
    """What a count at a clock adds up of a list of events, by key and tick."""
    parcels = count.parcels(collection(None))
    shards = SendToShards(count.users, parcels, Placement(3))
    shards.setup()
    shards.start_bundle()
    for key, payload, tick in events:
        element, micros = (key, payload), tick * TICK * SECOND
        assert not shards.process(element, placed(element, micros, None))
    known = count._periods if periods is ... else periods
    bounding, made = BoundShards(count.users.bound(), parcels, periods=known), []
    for shard in shards.finish_bundle():
        made += bounding.process((shard.value[0], [shard.value[1]]))
    sums = np.zeros((len(count.keys), count.counter.horizon), dtype=np.int64)
    for windowed in made:
        key, packed = windowed.value
        step, x = PAIR.unpack(packed)
        sums[count.keys.index(key), step - 1] += x
    return tuple(map(tuple, sums.tolist()))


def differences(count: Any, pairs: Any) -> list[np.ndarray]:
    """What noise must hide, beside other people's events."""
    noised, found = Noised(count.counter), []
    for one, other in {pair for pair in pairs if pair[0] != pair[1]}:
        nothing = added(one, -np.array(one))
        for base in (nothing, added(one, other)):
            found.append(noised(added(one, base)) - noised(added(other, base)))
    return found
