"""What travels in shuffles, as bytes: elements, sums of ticks, events of people."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.mechanisms.base import IntArray


def lengths_and_texts(texts: Sequence[str]) -> tuple[bytes, bytes]:
    """Texts as bytes: the length of each, then all of them."""
    encoded = [text.encode() for text in texts]
    return struct.pack(f"<{len(texts)}I", *map(len, encoded)), b"".join(encoded)


def unpack_texts(data: bytes, at: int, n: int) -> tuple[list[str], int]:
    """So many texts, and where they end."""
    ends = accumulate(struct.unpack_from(f"<{n}I", data, at), initial=at + 4 * n)
    places = [*ends]
    return [data[a:b].decode() for a, b in pairwise(places)], places[-1]


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


def _limited(x: int) -> int:
    # Takes some 2^31 events in one tick. One event moves a limited sum no further than a free one.
    return min(max(x, -LARGEST), LARGEST)


def add_all(sums: dict[int, int], additions: Iterable[tuple[int, int]], first: int = 0) -> None:
    """Adds what an event adds to a vector, whose first place this is."""
    for coordinate, x in additions:
        place = first + coordinate
        sums[place] = sums.get(place, 0) + x


# Sums of ticks of many keys, in a shuffle and pending: arrays of one length behind their own


_BATCH = struct.Struct("<Iq")


def pack_batch(entries: Mapping[tuple[str, int], int], origin: int = 0) -> bytes:
    """Sums by (key, tick), to be joined with others, of the count that starts at `origin`."""
    # Lists, as zip(*entries) takes six times as long; and few sums are ever so large.
    n, sums = len(entries), list(entries.values())
    lengths, names = lengths_and_texts([key for key, _ in entries])
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
