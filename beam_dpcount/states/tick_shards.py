"""What a shard of keys holds at a clock, and how it comes from one tick to the next.

Whatever sets timers and yields releases: a shard's cell is bytes, and so is what arrives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.noise.entropy import Draws
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.states.codecs import PASSED, tick_codec
from beam_dpcount.states.pending import add_pending, moved, take_pending, tick_of
from beam_dpcount.states.windows import window_from
from beam_dpcount.states.wire import PAIR


class TickOfShard(NamedTuple):
    """What comes of a shard at a tick.

    Fields:
      data: its cell from then on.
      number: of the tick, over all counts.
      micros: when it ends.
      origin: when the count of its window starts, in microseconds.
      values: (key, value) pairs.
      stddev: of the values.
    """

    data: bytes
    number: int
    micros: int
    origin: int
    values: Iterable[tuple[str, Any]]
    stddev: float


class TickShard(ABC):
    """A shard of keys: its cell holds the states of one window's count, and what is pending.

    The counts of windows follow one another, and the cell goes from each to the next: where there
    are windows, it begins with how many ticks there were in those before.
    """

    codec: Any

    def __init__(self, plan: Any, draws: Draws) -> None:
        self._plan, self._draws = plan, draws

    def begin(self) -> bytes:
        """The cell before its first tick."""
        clock = self._plan.clock
        origin = clock.origins()[0]
        states = self._begun(window_from(clock, origin))
        return self._packed(states, self._front(clock.passed_at(origin)), self._no_pending)

    def released(self, data: bytes) -> int:
        """How many ticks of all counts are released."""
        step, _ = self.codec.open(data)
        return self._passed(data) + int(step)

    def next(self, data: bytes, arrived: Iterable[bytes], later: Any) -> TickOfShard | None:
        """What comes of the shard at its next tick; None if there is none.

        Args:
          data: its cell.
          arrived: what did since the tick before, each part of one tick.
          later: the bag of what is pending beside the cell.
        """
        clock = self._plan.clock
        step, states, pending = self._read(data)
        passed = self._passed(data)
        steps = clock.steps_of(clock.origin_after(passed))
        is_over = step >= steps
        if is_over:  # the count of the next window
            step, passed = 0, passed + steps
            if clock.place_of(passed + 1) is None:
                return None
        origin, step = clock.origin_after(passed), step + 1
        window, tick = window_from(clock, origin), passed + step
        if is_over:
            states = self._begun(window)
        due, early = self._by_tick(arrived, passed, tick)
        x, pending = self._take(pending, tick, due, early, later)
        states, values, stddev = self._step(states, window, step, x)
        packed = self._packed(states, self._front(passed), pending)
        return TickOfShard(packed, tick, clock.end(origin, step), origin, values, stddev)

    def _by_tick(
        self, arrived: Iterable[bytes], passed: int, tick: int
    ) -> tuple[list[bytes], dict[int, list[bytes]]]:
        """Of what arrived: what is due now, and what is early, by its tick."""
        due, early = list[bytes](), dict[int, list[bytes]]()
        for data in arrived:
            at = self._tick_of(data)
            if at > tick:
                early.setdefault(at, []).append(data)
            elif at == tick:
                due.append(data)
            elif self._plan.fold and at > passed:
                # No tick counts what belongs to another window.
                due.append(self._moved(data, tick))
        return due, early

    def _front(self, passed: int) -> bytes:
        return b"" if self._plan.clock.window is None else PASSED.pack(passed)

    def _passed(self, data: bytes) -> int:
        """How many ticks there were in the windows before."""
        if self._plan.clock.window is None:
            return 0
        passed: int = PASSED.unpack_from(self.codec.memory_of(data))[0]
        return passed

    # What states are, and what is pending, is the kind's own.

    _no_pending: Any

    @abstractmethod
    def _begun(self, window: Any) -> Any:
        """The states where the count of a window starts."""

    @abstractmethod
    def _read(self, data: bytes) -> tuple[int, Any, Any]:
        """The step of a cell, its states, and what is pending in it."""

    @abstractmethod
    def _packed(self, states: Any, front: bytes, pending: Any) -> bytes:
        """The cell that holds them."""

    @abstractmethod
    def _tick_of(self, data: bytes) -> int:
        """The tick of a part that arrived."""

    @abstractmethod
    def _moved(self, data: bytes, tick: int) -> bytes:
        """The part as one of a later tick."""

    @abstractmethod
    def _take(
        self, pending: Any, tick: int, due: list[bytes], early: dict[int, list[bytes]], later: Any
    ) -> tuple[Any, Any]:
        """What a tick counts, and what is pending from then on."""

    @abstractmethod
    def _step(
        self, states: Any, window: Any, step: int, x: Any
    ) -> tuple[Any, Iterable[tuple[str, Any]], float]:
        """The states after a tick of a window, (key, value) pairs, and their stddev."""


class KeyShard(TickShard):
    """A shard of listed keys: their counters as one, and the digest of each key."""

    _no_pending = b""
    _together = False  # whether all keys have one counter

    def __init__(self, plan: TickPlan, shard: int, draws: Draws) -> None:
        super().__init__(plan, draws)
        self.keys = keys = plan.keys_of(shard)
        self.counter = plan.side_by_side(len(keys))
        self.size, self._limits = len(keys) * plan.width, np.tile(plan.limits, len(keys))
        whole = plan.counter, plan.clock, plan.keys, draws.digest_size
        self.codec = tick_codec(*whole, shard, plan.shards, self._together)

    def begun(self, window: Any) -> tuple[Any, bytes]:
        """The counters' state and the keys' digests where the count of a window starts."""
        return self.counter.init(), b"".join(self._draws.begin(key, window) for key in self.keys)

    def step(
        self, states: tuple[Any, bytes], window: Any, step: int, x: IntArray
    ) -> tuple[tuple[Any, bytes], Iterable[tuple[str, Any]], float]:
        """State and digests after a tick, (key, value) pairs, and their stddev.

        Args:
          states: before it.
          step: the tick's number in its window.
          x: what it counts of all keys, shape (size,), clipped.
        """
        x = x.reshape(len(self.keys), -1)
        digests, noise = self._plan.tick(self._draws, self.keys, window, states[1], step, x)
        state, y = self.counter.step_lattice(states[0], x.ravel(), noise)
        values = y.tolist() if self._plan.counter.dimension is None else y.reshape(x.shape)
        pairs = zip(self.keys, values, strict=True)
        return (state, digests), pairs, self.counter.stddev_at(state)

    def clipped(self, sums: IntArray) -> IntArray:
        """Sums of one tick as they count, shape (size,)."""
        return np.clip(sums, -self._limits, self._limits)

    _begun, _step = begun, step

    def _read(self, data: bytes) -> tuple[int, Any, bytes]:
        state = self.codec.decode(data)
        front = len(self._front(0))
        return state[0], (state, self.codec.digest_of(data)), self.codec.memory_of(data)[front:]

    def _packed(self, states: Any, front: bytes, pending: bytes) -> bytes:
        packed: bytes = self.codec.encode(*states, front + pending)
        return packed

    def _tick_of(self, data: bytes) -> int:
        return tick_of(PAIR.unpack_from(data)[0], self.size)

    def _moved(self, data: bytes, tick: int) -> bytes:
        return moved(data, tick, self.size)

    def _take(
        self, pending: bytes, tick: int, due: list[bytes], early: dict[int, list[bytes]], later: Any
    ) -> tuple[IntArray, bytes]:
        x, pending = take_pending(pending, tick, b"".join(due), self.size, self._limits, later)
        for at, parts in sorted(early.items()):
            pending = add_pending(pending, at, b"".join(parts), self.size, later)
        return x, pending
