"""Counter states as versioned bytes: bit-exact on the round trip, refused where they do not fit."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

import numpy as np

from beam_dpcount.counter import Counter
from beam_dpcount.mechanisms.base import State

VERSION = 1

# version, length of the history digest (reserved for replayable noise; 0 today), fingerprint of
# the counter's parameters, and how many numbers follow; then the numbers, then a checksum.
_HEAD = "<BBIH"
_HEAD_SIZE = struct.calcsize(_HEAD)
_CHECK = struct.Struct("<I")


class StateError(ValueError):
    """State bytes that cannot be read. The message never shows what they hold."""


class StateCodec:
    """Packs the states of one counter.

    Version 1, little-endian: u8 version, u8 digest length d, u32 fingerprint, u16 count n,
    d bytes of digest, n int64 numbers, u32 CRC-32 of all before it. For vector streams the
    coordinates' numbers follow each other, the `counters` plain ints first.
    """

    def __init__(self, counter: Counter) -> None:
        self._counters = counter.mechanism.counters
        self._dimension = counter.dimension
        parameters = (counter.mechanism, counter.law, counter.change, self._dimension, counter.unit)
        self._fingerprint = zlib.crc32(repr(parameters).encode())

    def encode(self, state: State) -> bytes:
        """The state as bytes."""
        if self._dimension is not None:
            head, rest = state[: self._counters], np.asarray(state[self._counters :])
            state = (*head, *rest.ravel().tolist())
        n = len(state)
        body = _layout(n).pack(VERSION, 0, self._fingerprint, n, *state)
        return body + _CHECK.pack(zlib.crc32(body))

    def decode(self, data: bytes) -> State:
        """The state that was encoded.

        Raises:
          StateError: the bytes are cut short, altered, of another version, or of a counter with
            other parameters.
        """
        size = len(data)
        n = (size - _HEAD_SIZE - _CHECK.size) >> 3
        if n >= 0:
            layout = _layout(n)
            if layout.size + _CHECK.size == size:
                version, digest, fingerprint, count, *state = layout.unpack_from(data)
                if (
                    version == VERSION
                    and not digest
                    and count == n
                    and fingerprint == self._fingerprint
                    and zlib.crc32(data[:-4]) == _CHECK.unpack_from(data, layout.size)[0]
                ):
                    return tuple(state) if self._dimension is None else self._vectors(state)
        raise self._error(data)

    def _vectors(self, numbers: list[int]) -> State:
        rest = np.array(numbers[self._counters :], dtype=np.int64)
        return (*numbers[: self._counters], *rest.reshape(-1, self._dimension or 1))

    def _error(self, data: bytes) -> StateError:
        if len(data) > _HEAD_SIZE + _CHECK.size:
            intact = zlib.crc32(data[:-4]) == _CHECK.unpack(data[-4:])[0]
            version, digest, fingerprint, _ = struct.unpack_from(_HEAD, data)
            if intact and (version != VERSION or digest):
                return StateError(
                    f"the state was written in format {version}, this code reads format {VERSION}: "
                    "upgrade beam_dpcount, or start a new stream"
                )
            if intact and fingerprint != self._fingerprint:
                return StateError(
                    "the state belongs to a counter with other parameters (mechanism, horizon, "
                    "budget, bounds or unit): resume with those it was started with; a new "
                    "calibration needs a new stream, and spends its budget anew"
                )
        return StateError(
            f"the state is corrupt ({len(data)} bytes that fail their check): restore it from a "
            "checkpoint; counting on would break the guarantee"
        )


@lru_cache(maxsize=4096)
def _layout(n: int) -> struct.Struct:
    return struct.Struct(f"{_HEAD}{n}q")
