"""The clock of a tick count: its arithmetic, its sums, and the bytes that a key keeps.

Times are integers: microseconds since the epoch, UTC. Nothing here knows of Beam.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np

from beam_dpcount.checks import ParameterError
from beam_dpcount.dofns.states import StateError
from beam_dpcount.mechanisms.base import IntArray, check_horizon

VERSION = 2
LATE = ("fold", "drop")

_SECOND = 1_000_000
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
# The years 1 to 9999, as datetime has them: what lies beyond is most often milliseconds.
_FIRST, _LAST = -62_135_596_800 * _SECOND, 253_402_300_800 * _SECOND
_LARGEST = 2**62  # sums that fit 64 bits with room to spare
_MOST, _MANY = 2**20, 2**16


# The clock


def micros_of(moment: Any, name: str) -> int:
    """A public point in time as microseconds since the epoch, exactly.

    Args:
      moment: seconds since the epoch (a number); an aware datetime; ISO 8601 text with an offset;
        or anything with whole `micros`, as Beam's Timestamp.
      name: of the parameter, for messages.

    Raises:
      ValueError, TypeError: it is none of these, has no time zone, has a fraction of a microsecond,
        or lies outside the years 1 to 9999; the message says what to pass.
    """
    remedy = f'give {name} as seconds since 1970, or as text such as "2024-01-31T00:00:00Z"'
    if isinstance(moment, str):
        made = _parsed(moment, name, remedy)
    elif isinstance(moment, dt.datetime):
        made = moment
    else:
        micros = _whole(moment, name, remedy)
        if not _FIRST <= micros < _LAST:
            raise ValueError(
                f"{name} lies outside the years 1 to 9999, got {moment!r}: {remedy} (not "
                "milliseconds)"
            )
        return micros
    if made.utcoffset() is None:
        raise ValueError(
            f"{name} has no time zone, got {moment!r}: add an offset such as Z or +02:00, or "
            "tzinfo=datetime.timezone.utc"
        )
    return (made - _EPOCH) // _MICROSECOND


def duration_of(tick: Any) -> int:
    """The length of a tick in microseconds, exactly.

    Args:
      tick: seconds (a number), a timedelta, or anything with whole `micros`, as Beam's Duration.

    Raises:
      ValueError, TypeError: it is none of these, not positive, or has a fraction of a microsecond.
    """
    remedy = "give tick in seconds, e.g. tick=60, or as a timedelta"
    if isinstance(tick, dt.timedelta):
        micros = tick // _MICROSECOND
    else:
        micros = _whole(tick, "tick", remedy)
    if micros <= 0:
        raise ValueError(f"tick must be positive, got {tick!r}: {remedy}")
    return micros


def _parsed(text: str, name: str, remedy: str) -> dt.datetime:
    given = text
    if text[-1:] in ("Z", "z"):  # Python 3.10 knows no Z
        text = text[:-1] + "+00:00"
    try:
        if re.search(r"[.,]\d{7}", text):  # later Pythons would cut it off
            raise ValueError
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{name} is no ISO 8601 time in whole microseconds, got {given!r}: {remedy}"
        ) from None


def _whole(value: Any, name: str, remedy: str) -> int:
    micros = getattr(value, "micros", None)
    if isinstance(micros, int):
        return micros
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a time, got {value!r}: {remedy}")
    try:
        # A number's shortest text, not its binary value, is what was written: 0.1 is exact.
        exact = Fraction(str(value)) * _SECOND
    except ValueError:
        raise ValueError(f"{name} must be finite, got {value!r}: {remedy}") from None
    if exact.denominator != 1:
        raise ValueError(f"{name} must be whole microseconds, got {value!r}: {remedy}")
    return exact.numerator


@dataclass(frozen=True)
class Clock:
    """A public grid of ticks: release i, from 1, counts events with origin <= ts < end(origin, i).

    Times in microseconds. Made by `clock_of`.

    Args:
      tick: its length.
      start, stop: events outside [start, stop) do not count.
      steps: the number of ticks of one count.
      window: the length of the windows in each of which a count of its own starts; None: there is
        one count, from `start`.
      offset: where windows start, modulo their length.
    """

    tick: int
    start: int
    stop: int
    steps: int
    window: int | None = None
    offset: int = 0

    def in_windows(self, size: int, offset: int) -> Clock:
        """The same clock, started anew in each window [offset + k size, offset + (k + 1) size).

        Raises:
          ValueError: the borders of windows are no ticks, or no whole milliseconds.
        """
        if size % self.tick or (offset - self.start) % self.tick:
            raise ValueError(
                f"windows of {seconds(size)} from {seconds(offset)} do not end on the clock's "
                f"ticks of {seconds(self.tick)} from {instant(self.start)}: give windows whose "
                "size is a multiple of tick, and a start that is a border of a window"
            )
        if size % 1000 or offset % 1000:
            raise ValueError(
                f"windows of {seconds(size)} from {seconds(offset)} are cut to milliseconds when "
                "Beam encodes them: give a size and an offset of whole milliseconds"
            )
        return replace(self, steps=size // self.tick, window=size, offset=offset % size)

    def origins(self) -> range:
        """The times at which counts start: of every window with a part in [start, stop)."""
        if self.window is None:
            return range(self.start, self.start + 1)
        first = self.start - (self.start - self.offset) % self.window
        return range(first, self.stop, self.window)

    def step_at(self, micros: int, origin: int) -> int:
        """The tick of the count from `origin` in which an event falls; 0 if it does not count."""
        if not max(self.start, origin) <= micros < self.stop:
            return 0
        # Beam cuts times to milliseconds, towards 0: before 1970 that may leave the window.
        return min((micros - origin) // self.tick + 1, self.steps)

    def end(self, origin: int, step: int) -> int:
        """When tick `step` of the count from `origin` ends: the release's timestamp."""
        return origin + step * self.tick

    def alarm(self, origin: int, step: int) -> int:
        """When to release tick `step`: at its end, in whole milliseconds, within the window.

        Beam's timers know no finer times. Early by some microseconds, a timer could leave out
        events; so it is late by as much. Timers beyond the last millisecond of a window are refused
        by some runners.
        """
        micros = -(-self.end(origin, step) // 1000) * 1000
        if self.window is not None:
            micros = min(micros, origin + self.window - 1000)
        return micros

    @property
    def fingerprint(self) -> str:
        """All that pending sums depend on."""
        origin = self.start if self.window is None else None
        return repr((self.tick, origin, self.window, self.steps))

    def describe(self) -> Mapping[str, str]:
        """The public parameters, for display data and annotations."""
        return {
            "tick": seconds(self.tick),
            "start": instant(self.start),
            "stop": instant(self.stop),
            "ticks": str(self.steps),
            "window": "global" if self.window is None else f"fixed, of {seconds(self.window)}",
        }


def clock_of(tick: Any, start: Any, stop: Any = None, horizon: Any = None) -> Clock:
    """The clock of public parameters as users give them.

    Args:
      tick: see `duration_of`.
      start, stop: see `micros_of`; stop may be None if horizon is given.
      horizon: the number of ticks; default: those that reach `stop`.

    Raises:
      ValueError, TypeError: an argument is outside its range, or neither stop nor horizon is given.
    """
    length, first = duration_of(tick), micros_of(start, "start")
    if stop is None and horizon is None:
        raise ValueError(
            "give stop, the time at which the count ends, or horizon, the number of ticks"
        )
    last = None if stop is None else micros_of(stop, "stop")
    if last is not None and last <= first:
        raise ValueError(f"stop must be after start, got start={start!r} and stop={stop!r}")
    needed = 0 if last is None else -(-(last - first) // length)
    steps = check_horizon(needed if horizon is None else horizon)
    if steps < needed:
        raise ParameterError(
            "horizon",
            f"is {steps}, but there are {needed} ticks from start to stop",
            f"give a horizon of at least {needed}, or leave it out",
        )
    end = first + steps * length
    if end > _LAST:
        raise ValueError(
            f"{steps} ticks of {seconds(length)} from {instant(first)} end after the year 9999: "
            "give a smaller horizon"
        )
    return Clock(length, first, end if last is None else last, steps)


def seconds(micros: int) -> str:
    """Microseconds as text, in seconds."""
    whole, part = divmod(abs(micros), _SECOND)
    text = f"{whole}.{part:06}".rstrip("0").rstrip(".")
    return f"{'-' if micros < 0 else ''}{text} s"


def instant(micros: int) -> str:
    """Microseconds since the epoch as ISO 8601 text."""
    if micros == _LAST:
        return "10000-01-01T00:00:00Z"
    return (_EPOCH + micros * _MICROSECOND).isoformat().replace("+00:00", "Z")


def check_keys(keys: Any) -> tuple[str, ...]:
    """The public keys as a tuple, in the order given (sets: sorted).

    Raises:
      ValueError, TypeError: keys are no collection of distinct texts; the message says what to do.
    """
    remedy = 'give all public keys, e.g. keys=["INFO", "ERROR"]'
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence | AbstractSet):
        raise TypeError(f"keys must be a list of texts, got {keys!r}: {remedy}")
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"keys must be texts, got {key!r} of {type(key).__name__}: {remedy}")
    if not keys:
        raise ValueError(f"keys must not be empty: {remedy}")
    # Plain texts: a subclass may compare, or print, as another than what it encodes to.
    texts = [str.__str__(key) for key in keys]
    made = tuple(sorted(texts) if isinstance(keys, AbstractSet) else texts)
    seen: set[str] = set()
    for key in made:
        if key in seen:
            raise ValueError(f"keys must be distinct, but {key!r} is there twice: give it once")
        seen.add(key)
    return made


def default_most(magnitude: int, steps: int) -> int:
    """How many times the largest value a tick may sum up to, if the user does not say.

    2^20; less where all ticks' sums together would not fit 64 bits, and beyond 2^16 ticks, so that
    the default mechanism's arithmetic adds no more than some percent to the noise.
    """
    return max(1, min(_MOST, _MOST * _MANY // steps, _LARGEST // (steps * magnitude)))


# Sums of ticks, in memory and in a shuffle


PAIR = struct.Struct("<qq")  # a tick and a sum on the lattice
_TICK = struct.Struct("<q")


def pack_sums(sums: Mapping[int, int]) -> bytes:
    """Ticks and their sums, 16 bytes each."""
    return b"".join(PAIR.pack(step, _limited(x)) for step, x in sums.items())


def add_up(packed: Iterable[bytes], steps: int, cap: int) -> IntArray:
    """The sum of each tick 1 .. steps, clipped to +-cap, shape (steps,).

    Args:
      packed: of any number of pairs each, in any order; ticks may repeat.
      steps: the number of ticks.
      cap: the largest sum.
    """
    pairs = np.frombuffer(b"".join(packed), dtype="<i8").reshape(-1, 2)
    ticks, xs = pairs[:, 0] - 1, pairs[:, 1]
    sums = np.zeros(steps, dtype=np.int64)
    if len(xs) * int(np.abs(xs).max(initial=0)) <= _LARGEST:
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
        at = 16 * bisect_left(
            range(at // 16), step, key=lambda i: _TICK.unpack_from(pairs, 16 * i)[0]
        )
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
    # Some 2^31 events in one tick. One event moves a limited sum no further than a free one.
    return min(max(x, -_LARGEST), _LARGEST)


class CellCodec:
    """Packs all that a key keeps between ticks: ticks released, pending sums, the counter's state.

    Version 2, little-endian: u8 version, a zero byte, u16 fingerprint of the clock, u32 number of
    pairs n, u64 fingerprint of the clock and the list of keys, i64 ticks released, n pairs of 16
    bytes (tick, sum), u32 CRC-32 of all before it; then the bytes of `StateCodec`, which have a
    checksum of their own, and are not read where only a sum changes. Version 1 knew no keys.

    Args:
      clock: the ticks.
      keys: all public keys, in their order. A key that is added to a stream has no clock that
        would ever start, and one that is left out would go on: each cell knows the whole list.
    """

    _HEAD = struct.Struct("<BBHIQq")
    _CHECK = struct.Struct("<I")

    def __init__(self, clock: Clock, keys: Sequence[str]) -> None:
        # The short one only tells the two kinds of error apart.
        self._clock = _fingerprint(clock.fingerprint, 2)
        self._fingerprint = _fingerprint(ascii((clock.fingerprint, tuple(keys))), 8)
        self._steps = clock.steps

    def encode(self, released: int, pairs: bytes, state: bytes) -> bytes:
        """All of a key as bytes."""
        n = len(pairs) // 16
        head = self._HEAD.pack(VERSION, 0, self._clock, n, self._fingerprint, released)
        check = self._CHECK.pack(zlib.crc32(pairs, zlib.crc32(head)))
        return b"".join((head, pairs, check, state))

    def decode(self, data: bytes) -> tuple[int, bytes, bytes]:
        """Ticks released, pending pairs, and the counter's state as bytes.

        Raises:
          StateError: the bytes are cut short, altered, of another version, of another clock, or
            of another list of keys.
        """
        size = self._HEAD.size
        if len(data) >= size + self._CHECK.size:
            version, digest, clock, n, fingerprint, released = self._HEAD.unpack_from(data)
            end = size + 16 * n
            if len(data) >= end + self._CHECK.size:
                (check,) = self._CHECK.unpack_from(data, end)
                if zlib.crc32(memoryview(data)[:end]) == check:
                    if version != VERSION or digest:
                        raise _other_version(version)
                    if fingerprint == self._fingerprint and 0 <= released <= self._steps:
                        return released, data[size:end], data[end + self._CHECK.size :]
                    raise self._other_parameters(clock, fingerprint)
        raise StateError(
            f"the state is corrupt ({len(data)} bytes that fail their check): restore it from a "
            "checkpoint; counting on would break the guarantee"
        )

    def _other_parameters(self, clock: int, fingerprint: int) -> StateError:
        if clock == self._clock and fingerprint != self._fingerprint:
            return StateError(
                "the list of keys (TickHistogram: the domain), or its order, is not the one that "
                "the state was written under: resume with that list; another one needs a new "
                "stream, under a new label, and spends its budget anew"
            )
        return StateError(
            "the state belongs to another clock (tick, start, horizon or windows): "
            "resume with the one it was started with; a new clock needs a new stream, "
            "and spends its budget anew"
        )


def _fingerprint(parameters: str, size: int) -> int:
    digest = hashlib.blake2b(parameters.encode(), digest_size=size).digest()
    return int.from_bytes(digest, "little")


def _other_version(version: int) -> StateError:
    remedy = "upgrade beam_dpcount"
    if version < VERSION:
        remedy = "resume with the beam_dpcount that wrote it"
    return StateError(
        f"the state was written in format {version}, this code reads format {VERSION}: {remedy}, "
        "or start a new stream, which spends its budget anew"
    )
