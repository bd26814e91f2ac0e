"""Every byte format that a key keeps or a shuffle carries: exact on the round trip, or refused.

A key keeps one envelope, whatever it holds. Format 3, little-endian:

  u8   format
  u8   length d of the history digest; 0 but for replayable noise
  u16  three short fingerprints, only for error messages: of the counter (or fold), of what is
       counted (a statistic, or a clock), and of a clock's list of keys
  u32  how many bytes of numbers follow
  u32  fingerprint of all parameters together
  i64  the step: elements counted, or ticks released
  d bytes of digest; the numbers, of 8 bytes each (int64, or float64 where the mechanism says so),
  or as the mechanism packs them;
  the memory: of a statistic, the pending sums of a clock, or the array of a fold
  u32  CRC-32 of all before it

There is one checksum, over all of it. Two, one inside the other, would pass the state of one moment
together with the memory of another: the CRC-32 of bytes that end in their own is always the same.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from apache_beam.coders import Coder
from apache_beam.runners.worker.statecache import CacheAware

from beam_dpcount.counters.columns import Columns
from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.dofns.clock import LARGEST, Clock
from beam_dpcount.mechanisms.base import IntArray, State
from beam_dpcount.statistics.base import Statistic

FORMAT = 3

_HEAD = "<BBHHHIIq"
_HEADER = struct.Struct(_HEAD)
_HEAD_SIZE = _HEADER.size
_SIZE = struct.Struct("<8xI")
_CHECK = struct.Struct("<I")
_NAME = struct.Struct("<8sI")
_SHARD = struct.Struct("<4I")
_LATER = struct.Struct("<qQ")
_DTYPES = {"q": "<i8", "d": "<f8"}

Part = tuple[str, str]  # of the parameters, and what to say where another one wrote the state

_OTHER_COUNTER = (
    "the state belongs to a counter with other parameters (mechanism, horizon, budget, bounds, "
    "unit or domain): resume with those it was started with; a new calibration needs a new "
    "stream, and spends its budget anew"
)
_OTHER_STATISTIC = (
    "the state belongs to a statistic with other parameters (domain, alphabet, words, vertices "
    "or bounds): resume with those it was started with"
)
_OTHER_CLOCK = (
    "the state belongs to another clock (tick, start, horizon or windows): resume with the one it "
    "was started with; a new clock needs a new stream, and spends its budget anew"
)
_OTHER_KEYS = (
    "the list of keys (TickHistogram: the domain), or its order, is not the one that the state was "
    "written under: resume with that list; another one needs a new stream, under a new label, and "
    "spends its budget anew"
)
_OTHER_SELECTION = (
    "the state belongs to keys that were selected otherwise (delta, at_least, every, shards or "
    "person's bound): resume with what it was started with; another rule needs a new stream, and "
    "spends its budget anew"
)
_OTHER_FOLD = (
    "the state belongs to post-processing with other parameters: resume with the window and domain "
    "it was started with"
)
_OTHER_BOUND = (
    "the state of a person belongs to another bound (events, keys, per_key or gap): resume with "
    "the one it was started with; another one needs a new stream, and spends its budget anew"
)
_OTHER_ENTROPY = (
    "the state was written under another entropy, replayable or not: resume with the one it was "
    "started with, or start a new stream"
)


class StateError(ValueError):
    """State bytes that cannot be read. The message never shows what they hold."""


class Envelope:
    """Seals what one stream keeps, and opens it under the same parameters, given in parts.

    `digest_size` is that of the digest of a history.
    """

    def __init__(self, parts: Sequence[Part], digest_size: int = 0) -> None:
        self.digest_size, self._said = digest_size, [said for _, said in parts]
        shorts = [_fingerprint(text, 2) for text, _ in parts]
        self._shorts = (*shorts, *(0,) * (3 - len(shorts)))
        self._start = (digest_size, *self._shorts)
        self._fingerprint = _fingerprint(ascii([text for text, _ in parts]), 4)
        self._first = _HEAD_SIZE + digest_size  # where the numbers are

    def head(self, size: int, step: int) -> tuple[int, ...]:
        """What `_HEAD` packs, for so many bytes of numbers at this step."""
        return (FORMAT, *self._start, size, self._fingerprint, step)

    def seal(self, front: bytes, memory: bytes) -> bytes:
        body = front + memory
        return body + _CHECK.pack(zlib.crc32(body))

    def open(self, data: bytes) -> tuple[int, int]:
        """The step, and where the memory starts.

        Raises:
          StateError: the bytes are cut short, altered, of another format or of other parameters.
        """
        end = len(data) - _CHECK.size
        # In line, as a function costs as much as the check, and a step has two.
        if end >= self._first and zlib.crc32(data[:end]) == _CHECK.unpack_from(data, end)[0]:
            form, digest, _, _, _, size, fingerprint, step = _HEADER.unpack_from(data)
            memory = self._first + size
            if (
                fingerprint == self._fingerprint
                and digest == self.digest_size
                and form == FORMAT
                and memory <= end
            ):
                return step, memory
        raise self._error(data)

    # The following take bytes that were opened.

    def digest_of(self, data: bytes) -> bytes:
        return data[_HEAD_SIZE : self._first]

    def memory_of(self, data: bytes) -> bytes:
        return data[self._first + _SIZE.unpack_from(data)[0] : -_CHECK.size]

    def with_memory(self, data: bytes, memory: bytes) -> bytes:
        """The same bytes with another memory."""
        return self.seal(data[: self._first + _SIZE.unpack_from(data)[0]], memory)

    def _error(self, data: bytes) -> StateError:
        # Every format begins with its number and ends in a checksum, though the first ones, never
        # released, did not check all of it: those are known by their number alone.
        size = len(data)
        if size > _CHECK.size and data[0] != FORMAT and _is_checked(data):
            remedy = "upgrade beam_dpcount"
            if data[0] < FORMAT:
                remedy = "resume with the beam_dpcount that wrote it"
            return StateError(
                f"the state was written in format {data[0]}, this code reads format {FORMAT}: "
                f"{remedy}, or start a new stream, which spends its budget anew"
            )
        if size < _HEAD_SIZE + _CHECK.size or not _is_checked(data):
            return _corrupt()
        _, digest, *shorts, _, fingerprint, _ = struct.unpack_from(_HEAD, data)
        if fingerprint == self._fingerprint:
            return _corrupt() if digest == self.digest_size else StateError(_OTHER_ENTROPY)
        found = zip(self._said, shorts, self._shorts, strict=False)
        differing = [said for said, theirs, ours in found if theirs != ours]
        return StateError(differing[0] if differing else self._said[0])


class StateCodec(Envelope):
    """Packs the states of one counter, with what else is kept beside them.

    The first number of a state, the step, is in the head. For vector streams the `counters` plain
    ints come first, then each coordinate array in turn. `parts` are what else a state depends on.
    Where a mechanism packs its numbers, they are the last entry of its states, all of one length.
    """

    def __init__(
        self, counter: LatticeCounter, digest_size: int = 0, parts: Sequence[Part] = ()
    ) -> None:
        super().__init__([(counter.fingerprint, _OTHER_COUNTER), *parts], digest_size)
        self._counters, self._types = counter.counters, counter.state_types
        self._dimension = counter.dimension
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
        return body + _CHECK.pack(zlib.crc32(body))

    def decode(self, data: bytes) -> State:
        """The state that was encoded, with read-only arrays; or a StateError, as for `open`."""
        step, memory = self.open(data)
        if not (self._is_bare and len(data) != memory + _CHECK.size):  # else: nothing beside it
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
        raise _corrupt()

    def _layout(self, n: int) -> struct.Struct:
        """Of what comes before any arrays or packed bytes, where there are n numbers in all."""
        made = self._layouts.get(n)
        if made is None:
            kinds = self._types(n + 1 + (self._packed is not None))[1 : n + 1]
            plain = "".join(kinds) if self._dimension is None else "q" * n
            made = self._layouts[n] = struct.Struct(f"{_HEAD}{self.digest_size}s{plain}")
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


class Kept(CacheAware):
    """What a cell holds of a key, as it is: its coder makes bytes of it when a bundle ends.

    It is changed in place by the bundle that made it, and by no other: one that fails is taken
    again from what was there before, and runners keep that.
    """

    __slots__ = ("_pack", "bundle", "digest", "memory", "state")

    def __init__(
        self,
        pack: Callable[[State, bytes, Any], bytes],
        bundle: object,
        state: State,
        digest: bytes,
        memory: Any,
    ) -> None:
        self._pack, self.bundle = pack, bundle
        self.state, self.digest, self.memory = state, digest, memory

    def packed(self) -> bytes:
        """The bytes of it."""
        return self._pack(self.state, self.digest, self.memory)

    def get_referents_for_cache(self) -> list[Any]:
        """What a runner that measures its cache is to measure: not the codec."""
        return [self.state, self.digest, self.memory]

    def __reduce__(self) -> Any:
        raise TypeError("this holds exact sums, and is never pickled: its coder makes bytes of it")


class KeptCoder(Coder):
    """Encodes `Kept`; decodes to bytes, which the DoFn opens, as it knows the codec.

    A runner encodes once a key and bundle. Without it, each element would pay for it.
    """

    def encode(self, value: Any) -> bytes:
        return value if type(value) is bytes else value.packed()

    def decode(self, encoded: bytes) -> bytes:
        return encoded

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return Any


def statistic_codec(
    counter: LatticeCounter, statistic: Statistic, digest_size: int = 0
) -> StateCodec:
    """For a counter of a statistic, whose memory is as the statistic packs it."""
    return StateCodec(counter, digest_size, [(ascii(statistic), _OTHER_STATISTIC)])


def tick_codec(
    counter: LatticeCounter, clock: Clock, keys: Sequence[str], digest_size: int = 0
) -> StateCodec:
    """For a counter at a clock; the memory is the pending sums, see `add_to`.

    Each cell knows the whole list of public keys, in their order: the clock of a key that is added
    to a running stream would never start, and one that is left out would go on.
    """
    parts = [(clock.fingerprint, _OTHER_CLOCK), (ascii(tuple(keys)), _OTHER_KEYS)]
    return StateCodec(counter, digest_size, parts)


class ShardCodec(Envelope):
    """Packs the columns of a shard's keys, and what waits for its tick; see `columns.Columns`.

    The numbers are the plain ints of the mechanism's state but for the step, or none where there
    are no keys. The memory: how many keys, arrays, waiting keys and pending ticks there are; the
    keys and their lengths; the arrays; a byte a key, whether it is shown; what waits; what is
    pending. It holds exact sums, of hidden keys too: its very size is private.
    """

    def __init__(
        self,
        counter: LatticeCounter,
        said: str,
        clock: Clock,
        digest_size: int,
        shown: Any = np.bool_,
    ) -> None:
        self._width, self._shown = counter.dimension or 1, shown
        parts = [
            (counter.fingerprint, _OTHER_COUNTER),
            (clock.fingerprint, _OTHER_CLOCK),
            (said, _OTHER_SELECTION),
        ]
        super().__init__(parts, digest_size)
        self._counters, self._types = counter.counters, counter.state_types

    def encode(self, columns: Columns, digest: bytes, pending: Mapping[int, bytes]) -> bytes:
        step, names, state, shown, waiting = columns
        plain, arrays = state[1 : self._counters], state[self._counters :]
        kinds = self._types(len(state))[self._counters :] if state else ""
        parts = [
            _SHARD.pack(len(names), len(arrays), len(waiting), len(pending)),
            *_texts(names),
            *(
                np.asarray(a, _DTYPES.get(kind)).tobytes()
                for kind, a in zip(kinds, arrays, strict=True)
            ),
            shown.tobytes(),
            *_texts(list(waiting)),
            struct.pack(f"<{len(waiting)}q", *waiting.values()),
            *(_LATER.pack(at, len(data)) + data for at, data in pending.items()),
        ]
        head = struct.pack(_HEAD, *self.head(8 * len(plain), step))
        return self.seal(head + digest + struct.pack(f"<{len(plain)}q", *plain), b"".join(parts))

    def decode(self, data: bytes) -> tuple[Columns, dict[int, bytes]]:
        """What was encoded; or a StateError, as for `open`."""
        step, at = self.open(data)
        try:
            columns, pending, end = self._read(data, step, at)
        except (struct.error, ValueError, OverflowError):  # which may show what it holds
            raise _corrupt() from None
        if end != len(data) - _CHECK.size:
            raise _corrupt()
        return columns, pending

    def _read(self, data: bytes, step: int, at: int) -> tuple[Columns, dict[int, bytes], int]:
        """All that a memory holds, and where that ends."""
        plain = struct.unpack_from(f"<{(at - self._first) // 8}q", data, self._first)
        n, arrays, held, later = _SHARD.unpack_from(data, at)
        names, at = _texts_of(data, at + _SHARD.size, n)
        if arrays > len(data):
            raise ValueError("there cannot be so many")
        kinds = self._types(self._counters + arrays)[self._counters :] if n else ""
        columns = []
        for kind in kinds:
            dtype = _DTYPES.get(kind, f"V{kind[:-1]}")
            columns.append(np.frombuffer(data, dtype, n * self._width, at))
            at += columns[-1].nbytes
        shown = np.frombuffer(data, self._shown, n, at)
        keys, at = _texts_of(data, at + n, held)
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


def _texts(texts: Sequence[str]) -> tuple[bytes, bytes]:
    """Texts as bytes: the length of each, then all of them."""
    encoded = [text.encode() for text in texts]
    return struct.pack(f"<{len(texts)}I", *map(len, encoded)), b"".join(encoded)


def _texts_of(data: bytes, at: int, n: int) -> tuple[list[str], int]:
    """So many texts, and where they end."""
    ends = accumulate(struct.unpack_from(f"<{n}I", data, at), initial=at + 4 * n)
    places = [*ends]
    return [data[a:b].decode() for a, b in pairwise(places)], places[-1]


class FoldCodec(Envelope):
    """Packs the states of one fold: a whole number, as the step, and an array, as the memory.

    They hold released values only.
    """

    def __init__(self, parameters: tuple[Any, ...]) -> None:
        super().__init__([(repr(parameters), _OTHER_FOLD)])

    def encode(self, state: tuple[int, npt.NDArray[np.float64]]) -> bytes:
        front = struct.pack(_HEAD, *self.head(0, state[0]))
        return self.seal(front, state[1].astype("<f8").tobytes())

    def decode(self, data: bytes) -> tuple[int, npt.NDArray[np.float64]]:
        """The state that was encoded, with an array of its own; or a StateError, as for `open`."""
        number, memory = self.open(data)
        values = data[memory : -_CHECK.size]
        if memory != self._first or len(values) % 8:
            raise _corrupt()
        return number, np.frombuffer(values, dtype="<f8").astype(np.float64)


@dataclass(slots=True)
class Seen:
    """What counts of one person so far.

    Fields:
      events: how many events.
      names: how many of them in each key, by its name: in state, by a digest of it.
      times: those of the events, ascending; kept only for a gap.
      salt: 8 bytes that key the digests, drawn for each person.
    """

    events: int = 0
    names: dict[Hashable, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    salt: bytes = b""

    def digests(self, names: Iterable[bytes]) -> list[bytes]:
        """The digests of names, 8 bytes each."""
        return [hashlib.blake2b(name, digest_size=8, key=self.salt).digest() for name in names]


class PersonCodec(Envelope):
    """Packs what counts of one person: 36 bytes, 12 for each key, and 8 for each event's time.

    The step is the number of events, the one number the salt; the memory is a digest and a u32 for
    each key, then the times.

    Args:
      bound: the rule that it was taken by, as text.
      keeps_times: whether there is a gap, so that times are kept.
    """

    def __init__(self, bound: str, keeps_times: bool) -> None:
        super().__init__([(bound, _OTHER_BOUND)])
        self._keeps_times = keeps_times

    def encode(self, seen: Seen) -> bytes:
        """What counts of a person, as bytes."""
        front = struct.pack(_HEAD, *self.head(8, seen.events)) + seen.salt
        names = b"".join(map(_NAME.pack, seen.names.keys(), seen.names.values()))
        return self.seal(front, names + struct.pack(f"<{len(seen.times)}q", *seen.times))

    def events_of(self, data: bytes) -> int:
        """How many events count, without reading the rest; or a StateError, as for `open`."""
        return self.open(data)[0]

    def decode(self, data: bytes) -> Seen:
        """What was encoded.

        Raises:
          StateError: as for `open`.
        """
        events, memory = self.open(data)
        last = len(data) - _CHECK.size
        end = last - 8 * events * self._keeps_times
        names_fit = memory <= end <= last and not (end - memory) % _NAME.size
        if memory != self._first + 8 or not names_fit:
            raise _corrupt()
        times = list(struct.unpack_from(f"<{(last - end) // 8}q", data, end))
        names: dict[Hashable, int] = dict(_NAME.iter_unpack(data[memory:end]))
        if len(names) * _NAME.size != end - memory:  # one of them is there twice
            raise _corrupt()
        return Seen(events, names, times, data[self._first : memory])


def _fingerprint(parameters: str, size: int) -> int:
    digest = hashlib.blake2b(parameters.encode(), digest_size=size).digest()
    return int.from_bytes(digest, "little")


def _is_checked(data: bytes) -> bool:
    return zlib.crc32(data[: -_CHECK.size]) == int.from_bytes(data[-_CHECK.size :], "little")


def _corrupt() -> StateError:
    # Without the number of bytes, which depends on the data.
    return StateError(
        "the state is corrupt (its bytes fail their check): restore it from a checkpoint; counting "
        "on would break the guarantee (formats before 2 had other checks)"
    )


def packer(width: int) -> Callable[[int, Sequence[int]], bytes]:
    """Packs the time and codes of an element, in shuffles and histories; not picklable."""
    pack = struct.Struct(f"<{1 + width}q").pack
    return lambda micros, codes: pack(micros, *codes)


# Sums of ticks, in a shuffle and pending in a cell: pairs of a tick and a sum on the lattice

PAIR = struct.Struct("<qq")
_TICK = struct.Struct("<q")


def pack_sums(sums: Mapping[int, int]) -> bytes:
    return b"".join(PAIR.pack(step, _limited(x)) for step, x in sums.items())


def add_up(packed: Iterable[bytes], steps: int, cap: int) -> IntArray:
    """The sum of each tick 1 .. steps, clipped to +-cap, of pairs in any order; shape (steps,)."""
    pairs = np.frombuffer(b"".join(packed), dtype="<i8").reshape(-1, 2)
    ticks, xs = pairs[:, 0] - 1, pairs[:, 1]
    sums = np.zeros(steps, dtype=np.int64)
    if len(xs) * int(np.abs(xs).max(initial=0)) <= LARGEST:
        np.add.at(sums, ticks, xs)
        return np.clip(sums, -cap, cap)
    exact = [0] * steps
    for tick, x in zip(ticks.tolist(), xs.tolist(), strict=True):
        exact[tick] += x
    return np.array([min(max(x, -cap), cap) for x in exact], dtype=np.int64)


def add_to(pairs: bytes, step: int, x: int) -> bytes:
    """Pending pairs, sorted by tick, with x added to the sum of one of them."""
    at = len(pairs)
    if at and _TICK.unpack_from(pairs, at - 16)[0] >= step:
        ticks = range(at // 16)
        at = 16 * bisect_left(ticks, step, key=lambda i: _TICK.unpack_from(pairs, 16 * i)[0])
        found, before = PAIR.unpack_from(pairs, at)
        if found == step:
            changed = PAIR.pack(step, _limited(before + x))
            return b"".join((pairs[:at], changed, pairs[at + 16 :]))
    return b"".join((pairs[:at], PAIR.pack(step, x), pairs[at:]))


def take_due(pairs: bytes, step: int, cap: int) -> tuple[int, bytes]:
    """The sum of all pending ticks up to `step`, clipped to +-cap, and the pairs that remain."""
    at = total = 0
    while at < len(pairs):
        tick, x = PAIR.unpack_from(pairs, at)
        if tick > step:
            break
        total, at = total + x, at + 16
    return min(max(total, -cap), cap), pairs[at:] if at else pairs


def _limited(x: int) -> int:
    # Takes some 2^31 events in one tick. One event moves a limited sum no further than a free one.
    return min(max(x, -LARGEST), LARGEST)


# Sums of ticks of many keys, in a shuffle and pending: arrays of one length behind their own


_BATCH = struct.Struct("<Iq")


def pack_batch(entries: Mapping[tuple[str, int], int], origin: int = 0) -> bytes:
    """Sums by (key, tick), to be joined with others, of the count that starts at `origin`."""
    # Lists, as zip(*entries) takes six times as long; and few sums are ever so large.
    n, sums = len(entries), list(entries.values())
    lengths, names = _texts([key for key, _ in entries])
    if max(sums) > LARGEST or min(sums) < -LARGEST:
        sums = [*map(_limited, sums)]
    xs = struct.pack(f"<{n}q", *sums)
    ticks = struct.pack(f"<{n}q", *[step for _, step in entries])
    return b"".join((_BATCH.pack(n, origin), lengths, ticks, xs, names))


def origin_of_batch(batch: bytes) -> int:
    """When the count of a batch starts."""
    origin: int = _BATCH.unpack_from(batch)[1]
    return origin


def tick_of_batch(batch: bytes) -> int:
    """The tick of the first of its sums."""
    tick: int = _TICK.unpack_from(batch, _BATCH.size + 4 * _BATCH.unpack_from(batch)[0])[0]
    return tick


def batches_of(joined: bytes) -> Iterator[tuple[list[str], IntArray, IntArray]]:
    """The keys, ticks and sums of joined batches."""
    at = 0
    while at < len(joined):
        n, _ = _BATCH.unpack_from(joined, at)
        lengths = at + _BATCH.size
        steps = lengths + 4 * n
        xs = steps + 8 * n
        ends = [*accumulate(np.frombuffer(joined, "<u4", n, lengths).tolist(), initial=xs + 8 * n)]
        keys = [joined[a:b].decode() for a, b in pairwise(ends)]
        at = ends[-1]
        yield keys, np.frombuffer(joined, "<i8", n, steps), np.frombuffer(joined, "<i8", n, xs)


# An event on its way to its person: its time, in bytes that sort as times do, and a parcel


_BIAS = 1 << 63
_TIME = struct.Struct(">Q")
_TICKS = struct.Struct(">qq")
_ITEM = struct.Struct(">iq")
_TEXT = struct.Struct(">Iq")
_LENGTH = struct.Struct(">I")


def timed(micros: int, parcel: bytes) -> bytes:
    """A parcel behind its time."""
    return _TIME.pack(micros + _BIAS) + parcel


def time_of(entry: bytes) -> int:
    """The time before a parcel, in microseconds."""
    biased: int = _TIME.unpack_from(entry)[0]
    return biased - _BIAS


def time_bytes(entry: bytes) -> bytes:
    """The same, as bytes that sort."""
    return entry[: _TIME.size]


def parcel_of(entry: bytes) -> bytes:
    """The parcel behind a time."""
    return entry[_TIME.size :]


def pack_items(step: int, epoch: int, items: Iterable[tuple[int, int]]) -> bytes:
    """What an event counts at a clock: its tick, its epoch, and (place of a key, number) pairs."""
    return _TICKS.pack(step, epoch) + b"".join([_ITEM.pack(*item) for item in items])


def more_items(parcel: bytes, items: Iterable[tuple[int, int]]) -> bytes:
    """Packed items, and others behind them."""
    return parcel + b"".join([_ITEM.pack(*item) for item in items])


def step_of(parcel: bytes) -> int:
    """The tick of packed items."""
    step: int = _TICKS.unpack_from(parcel)[0]
    return step


def epoch_of(parcel: bytes) -> bytes:
    """The epoch of packed items, as bytes."""
    return parcel[8 : _TICKS.size]


def items_of(parcel: bytes) -> list[tuple[int, int]]:
    """The pairs of packed items."""
    return list(_ITEM.iter_unpack(parcel[_TICKS.size :]))


def pack_texts(step: int, epoch: int, items: Iterable[tuple[str, int]]) -> bytes:
    """The same of keys that nobody listed: (key, number) pairs, in their order."""
    parts = [_TICKS.pack(step, epoch)]
    for key, x in items:
        name = key.encode()
        parts += _TEXT.pack(len(name), x), name
    return b"".join(parts)


def texts_of(parcel: bytes) -> list[tuple[bytes, int]]:
    """The pairs of packed texts."""
    made, at = [], _TICKS.size
    while at < len(parcel):
        size, x = _TEXT.unpack_from(parcel, at)
        at += _TEXT.size + size
        made.append((parcel[at - size : at], x))
    return made


def pack_keyed(key: str, data: bytes) -> bytes:
    """An encoded element behind its key."""
    name = key.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(name)) + name + data


def key_of(parcel: bytes) -> bytes:
    """The key before an encoded element."""
    return parcel[_LENGTH.size : _LENGTH.size + _LENGTH.unpack_from(parcel)[0]]


def after_key(parcel: bytes) -> bytes:
    """The encoded element behind its key."""
    return parcel[_LENGTH.size + _LENGTH.unpack_from(parcel)[0] :]


# Many people's events together, on their way to a grouping: how long a person and an entry are,
# and both, one after the other


_RECORD = struct.Struct(">II")


def record_of(person: bytes, entry: bytes) -> bytes:
    """A person's event, to be joined with others."""
    return _RECORD.pack(len(person), len(entry)) + person + entry


def records_of(joined: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The (person, entry) pairs of joined records."""
    at, size, end = 0, _RECORD.size, len(joined)
    while at < end:
        person, entry = _RECORD.unpack_from(joined, at)
        middle = at + size + person
        yield joined[at + size : middle], joined[middle : middle + entry]
        at = middle + entry
