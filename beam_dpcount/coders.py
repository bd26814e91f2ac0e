"""Counter states as versioned bytes: bit-exact on the round trip, refused where they do not fit."""

from __future__ import annotations

import hashlib
import struct
import zlib

import numpy as np

from beam_dpcount.counter import LatticeCounter
from beam_dpcount.mechanisms.base import State

VERSION = 1

# version, length of the history digest (reserved for replayable noise; 0 today), fingerprint of
# the counter's parameters, and how many numbers follow; then the numbers, then a checksum.
_HEAD = "<BBQI"
_HEAD_SIZE = struct.calcsize(_HEAD)
_CHECK = struct.Struct("<I")


class StateError(ValueError):
    """State bytes that cannot be read. The message never shows what they hold."""


class StateCodec:
    """Packs the states of one counter.

    Version 1, little-endian: u8 version, u8 digest length d, u64 fingerprint, u32 count n,
    d bytes of digest, n numbers of 8 bytes (int64, or float64 where the mechanism says so), u32
    CRC-32 of all before it. For vector streams the `counters` plain ints come first, then each
    coordinate array in turn.
    """

    def __init__(self, counter: LatticeCounter) -> None:
        self._counters, self._types = counter.counters, counter.state_types
        self._dimension = counter.dimension
        digest = hashlib.blake2b(counter.fingerprint.encode(), digest_size=8).digest()
        self._fingerprint = int.from_bytes(digest, "little")
        self._layouts: dict[int, struct.Struct] = {}

    def encode(self, state: State) -> bytes:
        """The state as bytes."""
        if self._dimension is not None:
            rest = (x for array in state[self._counters :] for x in array.tolist())
            state = (*state[: self._counters], *rest)
        n = len(state)
        body = self._layout(n).pack(VERSION, 0, self._fingerprint, n, *state)
        return body + _CHECK.pack(zlib.crc32(body))

    def decode(self, data: bytes) -> State:
        """The state that was encoded.

        Raises:
          StateError: the bytes are cut short, altered, of another version, or of a counter with
            other parameters.
        """
        size = len(data)
        n = (size - _HEAD_SIZE - _CHECK.size) >> 3
        if n >= self._counters and size == _HEAD_SIZE + _CHECK.size + 8 * n:
            layout = self._layout(n)
            if layout.size != size - _CHECK.size:  # no state of this counter has n numbers
                raise self._error(data)
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

    def _layout(self, n: int) -> struct.Struct:
        """Of n numbers in all."""
        made = self._layouts.get(n)
        if made is None:
            d, c = self._dimension or 1, self._counters
            types = self._types(c + (n - c) // d)
            spread = types[:c] + "".join(kind * d for kind in types[c:])
            made = self._layouts[n] = struct.Struct(_HEAD + spread)
        return made

    def _vectors(self, numbers: list[int | float]) -> State:
        head, rest, d = numbers[: self._counters], numbers[self._counters :], self._dimension or 1
        return (*head, *(np.array(rest[i : i + d]) for i in range(0, len(rest), d)))

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
