"""Sums that wait for their tick: the nearest in a shard's cell, those further off in its bag.

A sum is a pair of a place and a number, as for `states.pack_sums`; the place is
(tick - 1) * width + coordinate + 1. Those of a tick to come go to the bag, which is only added to;
it is read when its first tick may be due, and written anew with what comes later. Of that the next
ticks stay in the cell, as many as the root of those that wait: neither the cell nor the bag is
rewritten often at great length. What comes to the cell is added up once there is as much of it
again, however far off the last of its ticks is: else each bundle would leave its own pairs there
until then.

What the cell remembers: up to which tick all that is pending is in it, and not in the bag; how many
pairs the bag held when it was last written anew, and how many came since; how many were left in the
cell when they were last added up; and pairs, in any order. How much there is of either is private.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import isqrt
from typing import Any

import numpy as np

from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.states.wire import PAIR, add_up, pack_sums

NEAR = 64  # sums of a backlog that a cell holds, at least
MORE = 1 << 12  # pairs that come to a bag before they are joined with those of the same ticks
CHUNK = 1 << 16  # bytes of an entry
ADDED = 4 * NEAR  # pairs that come to a cell before they are joined with those of the same sums

HEAD = struct.Struct("<4q")


def tick_of(place: int, width: int) -> int:
    """The tick of a place."""
    return (place - 1) // width + 1


def placed(additions: dict[int, int], step: int, width: int) -> bytes:
    """Sums by coordinate as pairs of a tick."""
    first = (step - 1) * width + 1
    return pack_sums({first + coordinate: x for coordinate, x in additions.items()})


def moved(data: bytes, step: int, width: int) -> bytes:
    """Pairs of one tick as those of another."""
    pairs = np.frombuffer(data, dtype="<i8").reshape(-1, 2).copy()
    pairs[:, 0] += (step - tick_of(int(pairs[0, 0]), width)) * width
    return pairs.tobytes()


def add_pending(memory: bytes, step: int, data: bytes, width: int, bag: Any) -> bytes:
    """What a cell remembers, with pairs of a tick added."""
    until, merged, more, left = _head_of(memory)
    pairs = memory[HEAD.size :]
    if step <= until:
        pairs += data
        if len(pairs) > PAIR.size * (2 * left + ADDED):
            pairs = joined_pairs([pairs])
            left = len(pairs) // PAIR.size
        return HEAD.pack(until, merged, more, left) + pairs
    bag.add(data)
    more += len(data) // PAIR.size
    if more > merged + MORE:
        merged, more = rewritten(bag, joined_pairs(bag.read())), 0
    return HEAD.pack(until, merged, more, left) + pairs


def take_pending(
    memory: bytes, step: int, due: bytes, width: int, caps: IntArray, bag: Any
) -> tuple[IntArray, bytes]:
    """The sums of all ticks up to `step`, each clipped to +-caps, and what remains remembered.

    `due`: pairs of this tick that were not remembered before.
    """
    until, merged, more, left = _head_of(memory)
    pairs, near = memory[HEAD.size :] + due, max(1, NEAR // width)
    if not (merged or more):
        until = max(until, step + near)
    elif step > until:
        pairs = joined_pairs([pairs, *bag.read()])
        places = np.frombuffer(pairs, dtype="<i8")[::2]
        ticks = 1 + np.count_nonzero(np.diff((places - 1) // width))
        until = step + max(near, isqrt(ticks))
        left = int(np.searchsorted(places, until * width, "right"))
        pairs, later = pairs[: PAIR.size * left], pairs[PAIR.size * left :]
        merged, more = rewritten(bag, later), 0
    x, pairs = _taken(pairs, step, width, caps)
    left = min(left, len(pairs) // PAIR.size)
    return x, HEAD.pack(until, merged, more, left) + pairs


def _head_of(memory: bytes) -> tuple[int, ...]:
    return HEAD.unpack_from(memory) if memory else (0, 0, 0, 0)


def _taken(pairs: bytes, step: int, width: int, caps: IntArray) -> tuple[IntArray, bytes]:
    found = np.frombuffer(pairs, dtype="<i8").reshape(-1, 2)
    is_due = found[:, 0] <= step * width
    due = found[is_due]
    due[:, 0] = (due[:, 0] - 1) % width + 1
    return clipped([due.tobytes()], 1, caps)[0], found[~is_due].tobytes()


def clipped(packed: Iterable[bytes], steps: int, caps: IntArray) -> IntArray:
    """The sums of ticks 1 .. steps, each clipped to +-caps, of pairs in any order.

    Shape (steps, width), for caps of shape (width,).
    """
    width = len(caps)
    sums = add_up(packed, steps * width, LARGEST).reshape(steps, width)
    return np.clip(sums, -caps, caps)


def rewritten(bag: Any, pairs: bytes) -> int:
    """How many pairs a bag holds now; it holds no others."""
    bag.clear()
    for at in range(0, len(pairs), CHUNK):
        bag.add(pairs[at : at + CHUNK])
    return len(pairs) // PAIR.size


def joined_pairs(parts: Iterable[bytes]) -> bytes:
    """One sum of each tick, sorted by tick, of pairs in any order."""
    joined = b"".join(parts)
    pairs = np.frombuffer(joined, dtype="<i8").reshape(-1, 2)
    if (pairs[1:, 0] > pairs[:-1, 0]).all():  # as they were when last rewritten
        return joined
    if len(pairs) * int(np.abs(pairs[:, 1]).max()) > LARGEST:  # beyond 64 bits
        exact: dict[int, int] = {}
        for step, x in sorted(pairs.tolist()):
            exact[step] = exact.get(step, 0) + x
        return pack_sums(exact)
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    starts = np.flatnonzero(np.diff(pairs[:, 0], prepend=0))  # no tick is 0
    sums = np.add.reduceat(pairs[:, 1], starts)
    return np.stack((pairs[starts, 0], sums), axis=1).tobytes()
