"""What a key keeps, as bytes: of counters, shards of keys and folds."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.columns import Columns
from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.mechanisms.base import State
from beam_dpcount.states.envelope import CHECK, FORMAT, HEAD, Envelope, Part, corrupt
from beam_dpcount.states.wire import lengths_and_texts, unpack_texts
from beam_dpcount.statistics.base import Statistic

PASSED = struct.Struct("<q")  # ticks of the windows before, where a clock has windows
_SHARD = struct.Struct("<4I")
_LATER = struct.Struct("<qQ")
_DTYPES = {"q": "<i8", "d": "<f8"}

OTHER_COUNTER = (
    "the state belongs to a counter with other parameters (mechanism, horizon, budget, bounds, "
    "unit or domain): resume with those it was started with; a new calibration needs a new "
    "stream, and spends its budget anew"
)
OTHER_STATISTIC = (
    "the state belongs to a statistic with other parameters (domain, words, vertices or "
    "bounds): resume with those it was started with"
)
OTHER_CLOCK = (
    "the state belongs to another clock (tick, start, horizon or windows): resume with the one it "
    "was started with; a new clock needs a new stream, and spends its budget anew"
)
OTHER_KEYS = (
    "the list of keys, or its order, is not the one that the state was written under: resume with "
    "that list; another one needs a new stream, under a new label, and spends its budget anew"
)
OTHER_SELECTION = (
    "the state belongs to keys that were selected otherwise (delta, at_least, every, shards or "
    "person's bound): resume with what it was started with; another rule needs a new stream, and "
    "spends its budget anew"
)
OTHER_FOLD = (
    "the state belongs to post-processing with other parameters: resume with the window and domain "
    "it was started with"
)


class StateCodec(Envelope):
    """Packs the states of one counter, with what else is kept beside them.

    The first number of a state, the step, is in the head. For vector streams the `counters` plain
    ints come first, then each coordinate array in turn. `parts` are what else a state depends on.
    Where a mechanism packs its numbers, they are the last entry of its states, all of one length.

    With `keys`, states are of so many counters side by side, as `TickPlan.side_by_side` makes them,
    each of which has a digest.
    """

    def __init__(
        self,
        counter: LatticeCounter,
        digest_size: int = 0,
        parts: Sequence[Part] = (),
        keys: int | None = None,
    ) -> None:
        fingerprints = [(counter.fingerprint, OTHER_COUNTER), *parts]
        super().__init__(fingerprints, digest_size, 1 if keys is None else keys)
        self._counters, self._types = counter.counters, counter.state_types
        self._dimension = counter.dimension if keys is None else keys * (counter.dimension or 1)
        self._layouts: dict[int, struct.Struct] = {}
        self._is_bare = not parts
        entries = len(counter.init())
        self._packed = entries - 1 if counter.state_types(entries)[-1][-1] == "s" else None

    def encode(self, state: State, digest: bytes = b"", memory: bytes = b"") -> bytes:
        arrays = b""
        if self._dimension is not None:
            kinds, c = self._types(len(state)), self._counters
            tail = zip(kinds[c:], state[c:], strict=True)
            arrays = b"".join(np.asarray(x, _DTYPES.get(kind)).tobytes() for kind, x in tail)
            state = state[:c]
        elif self._packed is not None:
            arrays, state = state[-1], state[:-1]
        step, *numbers = state
        n = len(numbers)
        layout, size = self._layouts.get(n) or self._layout(n), 8 * n + len(arrays)
        start = layout.pack(FORMAT, *self._start, size, self._fingerprint, step, digest, *numbers)
        body = start + arrays + memory
        return body + CHECK.pack(zlib.crc32(body))

    def decode(self, data: bytes) -> State:
        """The state that was encoded, with read-only arrays; or a StateError, as for `open`."""
        step, memory = self.open(data)
        if not (self._is_bare and len(data) != memory + CHECK.size):  # else: nothing beside it
            n, odd = divmod(memory - self._first, 8)
            if self._dimension is not None:
                n, odd = self._counters - 1, 0
            elif self._packed is not None:
                n, odd = self._packed - 1, 0
            layout = self._layouts.get(n) or self._layout(n)
            arrays: list[Any] | None = []
            if self._dimension is not None:
                arrays = self._arrays(data, layout.size, memory)
            elif self._packed is not None:
                arrays = [data[layout.size : memory]]
            # Else no state of this counter has so many numbers.
            if not odd and layout.size <= memory and arrays is not None:
                return (step, *layout.unpack_from(data)[9:], *arrays)
        raise corrupt()

    def _layout(self, n: int) -> struct.Struct:
        """Of what comes before any arrays or packed bytes, where there are n numbers in all."""
        made = self._layouts.get(n)
        if made is None:
            kinds = self._types(n + 1 + (self._packed is not None))[1 : n + 1]
            plain = "".join(kinds) if self._dimension is None else "q" * n
            made = self._layouts[n] = struct.Struct(f"{HEAD}{self._digests}s{plain}")
        return made

    def _arrays(self, data: bytes, at: int, end: int) -> list[Any] | None:
        """The arrays of a vector stream; None if these bytes are of none."""
        d = self._dimension or 0
        if self._packed is None:
            count, odd = divmod(end - at, 8 * d)
            kinds = self._types(self._counters + count)[self._counters :]
            dtypes = [_DTYPES[kind] for kind in kinds]
            if odd or len(kinds) != count:
                return None
        else:
            plain = self._packed - self._counters
            width, odd = divmod(end - at - 8 * d * plain, d)
            if odd or width <= 0:
                return None
            dtypes = ["<i8"] * plain + [f"V{width}"]
        made = []
        for dtype in dtypes:
            made.append(np.frombuffer(data, dtype, d, at))
            at += made[-1].nbytes
        return made


def statistic_codec(
    counter: LatticeCounter, statistic: Statistic, digest_size: int = 0
) -> StateCodec:
    """For a counter of a statistic, whose memory is as the statistic packs it."""
    return StateCodec(counter, digest_size, [(ascii(statistic), OTHER_STATISTIC)])


def tick_codec(
    counter: LatticeCounter,
    clock: Grid,
    keys: Sequence[str],
    digest_size: int = 0,
    shard: int = 0,
    shards: int = 1,
    together: bool = False,
) -> StateCodec:
    """For the counters of a shard's keys at a clock; the memory is the pending sums.

    With `together`, all keys have one counter, and one digest.

    Each cell knows the whole list of public keys, in their order, and over how many shards they are
    spread: the clock of a key that is added to a running stream would never start, and one that is
    left out would go on.
    """
    parts = [(clock.fingerprint, OTHER_CLOCK), (ascii((shard, shards, *keys)), OTHER_KEYS)]
    return StateCodec(counter, digest_size, parts, 1 if together else len(keys[shard::shards]))


class ShardCodec(Envelope):
    """Packs the columns of a shard's keys, and what waits for its tick; see `columns.Columns`.

    The numbers are the plain ints of the mechanism's state but for the step, or none where there
    are no keys. The memory: of a clock with windows, how many ticks there were in those before; how
    many keys, arrays, waiting keys and pending ticks there are; the keys and their lengths; the
    arrays; a byte a key, whether it is shown; what waits; what is pending. It holds exact sums, of
    hidden keys too: its very size is private.
    """

    def __init__(
        self,
        counter: LatticeCounter,
        said: str,
        clock: Grid,
        digest_size: int,
        shown: Any = np.bool_,
    ) -> None:
        self._width, self._shown = counter.dimension or 1, shown
        parts = [
            (counter.fingerprint, OTHER_COUNTER),
            (clock.fingerprint, OTHER_CLOCK),
            (said, OTHER_SELECTION),
        ]
        super().__init__(parts, digest_size)
        self._counters, self._types = counter.counters, counter.state_types
        self._front = 0 if clock.window is None else PASSED.size

    def encode(
        self, columns: Columns, digest: bytes, pending: Mapping[int, bytes], front: bytes = b""
    ) -> bytes:
        step, names, state, shown, waiting = columns
        plain, arrays = state[1 : self._counters], state[self._counters :]
        kinds = self._types(len(state))[self._counters :] if state else ""
        parts = [
            front,
            _SHARD.pack(len(names), len(arrays), len(waiting), len(pending)),
            *lengths_and_texts(names),
            *(
                np.asarray(a, _DTYPES.get(kind)).tobytes()
                for kind, a in zip(kinds, arrays, strict=True)
            ),
            shown.tobytes(),
            *lengths_and_texts(list(waiting)),
            struct.pack(f"<{len(waiting)}q", *waiting.values()),
            *(_LATER.pack(at, len(data)) + data for at, data in pending.items()),
        ]
        head = struct.pack(HEAD, *self.head(8 * len(plain), step))
        return self.seal(head + digest + struct.pack(f"<{len(plain)}q", *plain), b"".join(parts))

    def decode(self, data: bytes) -> tuple[Columns, dict[int, bytes]]:
        """What was encoded; or a StateError, as for `open`."""
        step, at = self.open(data)
        try:
            columns, pending, end = self._read(data, step, at)
        except (struct.error, ValueError, OverflowError):  # which may show what it holds
            raise corrupt() from None
        if end != len(data) - CHECK.size:
            raise corrupt()
        return columns, pending

    def _read(self, data: bytes, step: int, at: int) -> tuple[Columns, dict[int, bytes], int]:
        """All that a memory holds, and where that ends."""
        plain = struct.unpack_from(f"<{(at - self._first) // 8}q", data, self._first)
        at += self._front
        n, arrays, held, later = _SHARD.unpack_from(data, at)
        names, at = unpack_texts(data, at + _SHARD.size, n)
        if arrays > len(data):
            raise ValueError("there cannot be so many")
        kinds = self._types(self._counters + arrays)[self._counters :] if n else ""
        columns = []
        for kind in kinds:
            dtype = _DTYPES.get(kind, f"V{kind[:-1]}")
            columns.append(np.frombuffer(data, dtype, n * self._width, at))
            at += columns[-1].nbytes
        shown = np.frombuffer(data, self._shown, n, at)
        keys, at = unpack_texts(data, at + n, held)
        waiting = dict(zip(keys, struct.unpack_from(f"<{held}q", data, at), strict=True))
        at, pending = at + 8 * held, dict[int, bytes]()
        for _ in range(later):
            tick, size = _LATER.unpack_from(data, at)
            at += _LATER.size + size
            pending[tick] = data[at - size : at]
        if (len(columns), len(waiting), len(pending)) != (arrays, held, later):
            raise ValueError("there are other numbers of them than are said")
        state = (step, *plain, *columns) if n else ()
        return Columns(step, names, state, shown, waiting), pending, at


class FoldCodec(Envelope):
    """Packs the states of one fold: a whole number, as the step, and an array, as the memory.

    They hold released values only.
    """

    def __init__(self, parameters: tuple[object, ...]) -> None:
        super().__init__([(repr(parameters), OTHER_FOLD)])

    def encode(self, state: tuple[int, npt.NDArray[np.float64]]) -> bytes:
        front = struct.pack(HEAD, *self.head(0, state[0]))
        return self.seal(front, state[1].astype("<f8").tobytes())

    def decode(self, data: bytes) -> tuple[int, npt.NDArray[np.float64]]:
        """The state that was encoded, with an array of its own; or a StateError, as for `open`."""
        number, memory = self.open(data)
        values = data[memory : -CHECK.size]
        if memory != self._first or len(values) % 8:
            raise corrupt()
        return number, np.frombuffer(values, dtype="<f8").astype(np.float64)
