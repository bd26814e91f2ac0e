"""Sums that wait for their tick: the nearest in a key's cell, those further off in a bag.

The cell is rewritten for each event, and so holds few of them: with all in it a backlog would cost
as much as the square of its ticks. The bag is only added to; it is read and written anew when its
first tick is due, once in so many ticks, or when most of it are further sums of the same ticks.

What the cell remembers: pairs of a tick and a sum, as `add_to` sorts them; and before them, while
the bag holds any, 0, which is no tick, the first tick in the bag, how many pairs were in it when it
was last written anew, and how many came since. How much there is of either is private.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import isqrt
from typing import Any

import numpy as np

from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.states.wire import PAIR, add_to, pack_sums, take_due

NEAR = 64  # sums that a cell holds at least, before one goes to the bag; twice as many at most
MORE = 1 << 12  # pairs that come to a bag before they are joined with those of the same ticks
CHUNK = 1 << 16  # bytes of an entry

_BAG = struct.Struct("<4q")
_NO_TICK = bytes(8)


def add_pending(memory: bytes, step: int, x: int, bag: Any) -> bytes:
    """What a cell remembers, with x added to the sum of one tick."""
    first = merged = more = 0
    if memory[:8] == _NO_TICK:
        _, first, merged, more = _BAG.unpack_from(memory)
        memory = memory[_BAG.size :]
    pairs = add_to(memory, step, x)
    width = PAIR.size * _width(merged)
    if len(pairs) > 2 * width:
        later, pairs = pairs[width:], pairs[:width]
        bag.add(later)
        nearest = PAIR.unpack_from(later)[0]
        first, more = min(first or nearest, nearest), more + len(later) // PAIR.size
        if more > merged + MORE:
            merged, more = rewritten(bag, joined_pairs(bag.read())), 0
    return _BAG.pack(0, first, merged, more) + pairs if first else pairs


def take_pending(memory: bytes, step: int, cap: int, bag: Any) -> tuple[int, bytes]:
    """The sum of all ticks up to `step`, clipped to +-cap, and what remains to be remembered.

    At most NEAR ticks may be due at once.
    """
    if memory[:8] != _NO_TICK:
        return take_due(memory, step, cap)
    first = _BAG.unpack_from(memory)[1]
    head, pairs = memory[: _BAG.size], memory[_BAG.size :]
    if first <= step:
        pairs = joined_pairs([pairs, *bag.read()])
        # The root of them: neither cells, for long, nor bags, often, are written at great length.
        width = PAIR.size * _width(len(pairs) // PAIR.size)
        pairs, later = pairs[:width], pairs[width:]
        merged = rewritten(bag, later)
        head = _BAG.pack(0, PAIR.unpack_from(later)[0], merged, 0) if later else b""
    x, pairs = take_due(pairs, step, cap)
    return x, head + pairs


def _width(pairs: int) -> int:
    """How many sums of a backlog a cell holds."""
    return max(NEAR, isqrt(pairs))


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
