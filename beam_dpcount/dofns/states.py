"""Counter states as versioned bytes: bit-exact on the round trip, refused where they do not fit."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.mechanisms.base import State
from beam_dpcount.statistics.base import Statistic

VERSION = 1

# version, length of the history digest (0 but for replayable noise), fingerprint of the counter's
# parameters, and how many numbers follow; then the digest, the numbers, and a checksum.
_HEAD = "<BBQI"
_HEAD_SIZE = struct.calcsize(_HEAD)
_CHECK = struct.Struct("<I")
_MEMORY_HEAD = struct.Struct("<IQ")
_DTYPES = {"q": "<i8", "d": "<f8"}


class StateError(ValueError):
    """State bytes that cannot be read. The message never shows what they hold."""


class StateCodec:
    """Packs the states of one counter.

    Version 1, little-endian: u8 version, u8 digest length d, u64 fingerprint, u32 count n,
    d bytes of digest, n numbers of 8 bytes (int64, or float64 where the mechanism says so), u32
    CRC-32 of all before it. For vector streams the `counters` plain ints come first, then each
    coordinate array in turn.
    """

    def __init__(
        self, counter: LatticeCounter, digest_size: int = 0, parameters: str | None = None
    ) -> None:
        self._counters, self._types = counter.counters, counter.state_types
        self._digest, self._head = digest_size, _HEAD_SIZE + digest_size
        self._dimension = counter.dimension
        whole = counter.fingerprint if parameters is None else parameters
        self._fingerprint = _fingerprint(whole)
        self._layouts: dict[int, struct.Struct] = {}

    def encode(self, state: State, digest: bytes = b"") -> bytes:
        """The state, and the digest of its history where noise is replayable, as bytes."""
        n, arrays = len(state), b""
        if self._dimension is not None:
            kinds, c = self._types(n), self._counters
            tail = zip(kinds[c:], state[c:], strict=True)
            arrays = b"".join(np.asarray(x, dtype=_DTYPES[kind]).tobytes() for kind, x in tail)
            state, n = state[:c], c + (n - c) * self._dimension
        size = self._digest
        body = self._layout(n).pack(VERSION, size, self._fingerprint, n, digest, *state) + arrays
        return body + _CHECK.pack(zlib.crc32(body))

    def decode(self, data: bytes) -> State:
        """The state that was encoded; its arrays cannot be written to. See `digest_of`.

        Raises:
          StateError: the bytes are cut short, altered, of another version, or of a counter with
            other parameters.
        """
        size = len(data)
        n = (size - self._head - _CHECK.size) >> 3
        if n >= self._counters and size == self._head + _CHECK.size + 8 * n:
            layout = self._layout(n)
            if self._dimension is None and layout.size != size - _CHECK.size:
                raise self._error(data)  # no state of this counter has n numbers
            version, digest, fingerprint, count, _, *state = layout.unpack_from(data)
            if (
                version == VERSION
                and digest == self._digest
                and count == n
                and fingerprint == self._fingerprint
                and zlib.crc32(data[:-4]) == _CHECK.unpack_from(data, size - _CHECK.size)[0]
            ):
                if self._dimension is None:
                    return tuple(state)
                arrays, odd = divmod(n - self._counters, self._dimension)
                if not odd:
                    kinds = self._types(self._counters + arrays)[self._counters :]
                    if len(kinds) == arrays:
                        return (*state, *self._arrays(kinds, data, layout.size))
        raise self._error(data)

    def digest_of(self, data: bytes) -> bytes:
        """The digest in bytes that were decoded."""
        return data[_HEAD_SIZE : self._head]

    def _layout(self, n: int) -> struct.Struct:
        """Of what comes before any arrays, where there are n numbers in all."""
        made = self._layouts.get(n)
        if made is None:
            types = self._types(n) if self._dimension is None else "q" * self._counters
            made = self._layouts[n] = struct.Struct(f"{_HEAD}{self._digest}s{types}")
        return made

    def _arrays(self, kinds: str, data: bytes, offset: int) -> Iterator[Any]:
        d = self._dimension or 0
        for place, kind in enumerate(kinds):
            yield np.frombuffer(data, _DTYPES[kind], d, offset + 8 * d * place)

    def _error(self, data: bytes) -> StateError:
        if len(data) > _HEAD_SIZE + _CHECK.size:
            intact = zlib.crc32(data[:-4]) == _CHECK.unpack(data[-4:])[0]
            version, digest, fingerprint, _ = struct.unpack_from(_HEAD, data)
            if intact and version != VERSION:
                return StateError(
                    f"the state was written in format {version}, this code reads format {VERSION}: "
                    "upgrade beam_dpcount, or start a new stream"
                )
            if intact and digest != self._digest:
                return StateError(
                    "the state was written under another entropy, replayable or not: resume with "
                    "the one it was started with, or start a new stream"
                )
            if intact and fingerprint != self._fingerprint:
                return StateError(
                    "the state belongs to a counter with other parameters (mechanism, horizon, "
                    "budget, bounds, unit or domain): resume with those it was started with; a new "
                    "calibration needs a new stream, and spends its budget anew"
                )
        return _corrupt(data)


class MemoryCodec:
    """Packs the states of one counter with what a statistic remembers of the stream.

    Version 1, little-endian: u32 length of the state, u64 fingerprint of the statistic, the state
    as `StateCodec` packs it, the memory as the statistic packs it, u32 CRC-32 of all before it.
    """

    def __init__(self, counter: LatticeCounter, statistic: Statistic, digest_size: int = 0) -> None:
        self._states, self._statistic = StateCodec(counter, digest_size), statistic
        self._fingerprint = _fingerprint(ascii(statistic))

    def encode(self, state: State, memory: Any, digest: bytes = b"") -> bytes:
        """All of it as bytes."""
        packed = self._states.encode(state, digest)
        head = _MEMORY_HEAD.pack(len(packed), self._fingerprint)
        body = b"".join((head, packed, self._statistic.pack(memory)))
        return body + _CHECK.pack(zlib.crc32(body))

    def decode(self, data: bytes) -> tuple[State, Any]:
        """State and memory again. See `digest_of`.

        Raises:
          StateError: as for StateCodec, or they are of a statistic with other parameters.
        """
        end, start = len(data) - _CHECK.size, _MEMORY_HEAD.size
        if end < start or zlib.crc32(data[:end]) != _CHECK.unpack_from(data, end)[0]:
            raise _corrupt(data)
        size, fingerprint = _MEMORY_HEAD.unpack_from(data)
        state = self._states.decode(data[start : start + size])
        if fingerprint != self._fingerprint:
            raise StateError(
                "the state belongs to a statistic with other parameters (alphabet, words, vertices "
                "or bounds): resume with those it was started with"
            )
        return state, self._statistic.unpack(data[start + size : end])

    def digest_of(self, data: bytes) -> bytes:
        """The digest in bytes that were decoded."""
        return self._states.digest_of(data[_MEMORY_HEAD.size :])


def _fingerprint(parameters: str) -> int:
    digest = hashlib.blake2b(parameters.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _corrupt(data: bytes) -> StateError:
    return StateError(
        f"the state is corrupt ({len(data)} bytes that fail their check): restore it from a "
        "checkpoint; counting on would break the guarantee"
    )
