"""The plan of a count at the ticks of a clock, and all releases of a key at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.noise.entropy import Draws, Entropy, Noise
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.states.wire import PAIR

# A bundle visits each shard that it has events of, which costs as much as some hundred counters in
# one; but all of a shard is written anew at each tick.
PER_SHARD = 1 << 10  # numbers that the keys of a shard have together, unless there are MANY shards
MANY, MOST = 64, 1 << 15  # and at most, however many there are


def shards_of(keys: int, width: int) -> int:
    """Over how many shards so many listed keys are spread, of so many numbers each."""
    numbers = keys * width
    return min(keys, max(min(-(-numbers // PER_SHARD), MANY), -(-numbers // MOST)))


@dataclass(frozen=True)
class TickPlan:
    """What counts which events of a clock, and how.

    Args:
      counter: the calibrated counter of each key, its horizon the clock's steps: the largest number
        of ticks of a count. Counts of fewer ticks end early.
      clock: the ticks.
      keys: all public keys, in their order.
      cap: a tick's sum is clipped to +-cap, on the lattice.
      fold: events of ticks already released count at the next one; else they do not count.
      entropy: where the noise comes from.
      counted: what else decides which events count, for replayable noise.
      alone: on the bounded path, see `groups_of`.
      ahead: on the streaming path, how many timers of a shard are set at a time.
      until: on the bounded path, ticks that have not ended by then are not released. The noise does
        not depend on it, so a later run repeats what an earlier one released.
      names: the columns of releases; None: what is counted says.
      numbered: releases have the number of the clock's start that they are of.
    """

    counter: LatticeCounter
    clock: Grid
    keys: Sequence[str]
    cap: int
    fold: bool
    entropy: Entropy
    counted: Any = None
    alone: bool = False
    ahead: int = 1
    until: int | None = None
    names: Sequence[str] | None = None
    numbered: bool = False

    @property
    def width(self) -> int:
        """How many numbers a key has."""
        return self.counter.dimension or 1

    @property
    def shards(self) -> int:
        """Over how many shards keys are spread on the streaming path, in turns."""
        return shards_of(len(self.keys), self.width)

    def keys_of(self, shard: int) -> Sequence[str]:
        """The keys of a shard, in their order."""
        return self.keys[shard :: self.shards]

    def side_by_side(self, keys: int) -> Any:
        """The counters of so many keys as one, of the numbers of each in turn."""
        return replace(self.counter, dimension=keys * self.width)

    def tick(
        self,
        draws: Draws,
        keys: Sequence[str],
        window: object,
        digests: bytes,
        step: int,
        x: IntArray,
    ) -> tuple[bytes, Noise]:
        """The digests of a shard's keys after a tick, and its noise.

        Args:
          digests: of the keys before it, one after the other.
          step, x: which tick of the window it is, and what it counts, shape (keys, width).
        """
        size, after = draws.digest_size, [b""] * len(keys)
        if size:
            for place, row in enumerate(x):
                digest = digests[place * size : (place + 1) * size]
                after[place] = draws.follow(digest, NO_ID, self.history_of(step, row))
        return b"".join(after), draws.of_each(keys, window, after)

    # What of it is of numbers; vectors have others.

    @property
    def limits(self) -> IntArray:
        """To what the numbers of a tick are clipped."""
        return np.array([self.cap])

    def history_of(self, step: int, x: IntArray) -> bytes:
        """What a tick adds to the history of a key."""
        return PAIR.pack(step, int(x[0]))

    def draws(self, path: str) -> Draws:
        """The noise of the counter, another on each path.

        An event may be late on one path only: with equal noise, equal releases would show there is
        none.
        """
        # Without the keys: adding one leaves the others' noise as it is.
        counter, counted = self.counter, (path, (self.fold, self.counted))
        parameters = ascii((self.clock, self.cap, counted, counter.fingerprint))
        return self.entropy.draws(counter.law, counter.dimension, parameters)


def name_of(plan: Any) -> str:
    """The column of what counts numbers."""
    return "count" if plan.names is None else str(plan.names[0])


def restart_of(plan: Any, step: int) -> int | None:
    """The number, from 1, of the clock's start that a tick is of; None if it is not shown."""
    return plan.clock.count_of(step)[0] + 1 if plan.numbered else None


def values_of(
    counter: LatticeCounter, draws: Draws, key: str, window: object, xs: IntArray
) -> list[float]:
    """The releases of a key's count in a window, given what each tick counts, shape (ticks,).

    Replayable noise follows from history: they are those that come of one tick after the other.
    """
    if not draws.digest_size:
        whole: list[float] = counter.release_lattice(xs, draws.noise(key, window, b"")).tolist()
        return whole
    digest, state, values = draws.begin(key, window), counter.init(), []
    for step, x in enumerate(xs.tolist(), start=1):
        digest = draws.follow(digest, NO_ID, PAIR.pack(step, x))
        state, value = counter.step_lattice(state, x, draws.noise(key, window, digest))
        values.append(value)
    return values
