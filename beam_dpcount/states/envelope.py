"""Every byte format that a key keeps or a shuffle carries: exact on the round trip, or refused.

A key keeps one envelope, whatever it holds. Format 4, little-endian:

  u8   format
  u8   length d of the history digest; 0 but for replayable noise
  u16  three short fingerprints, only for error messages: of the counter (or fold), of what is
       counted (a statistic, or a clock), and of a clock's list of keys
  u32  how many bytes of numbers follow
  u32  fingerprint of all parameters together
  i64  the step: elements counted, or ticks released
  d bytes of digest, or as many for each of a shard's keys
  the numbers, of 8 bytes each (int64, or float64 where the mechanism says so), or as the mechanism
  packs them
  the memory: of a statistic, the pending sums of a clock, or the array of a fold
  u32  CRC-32 of all before it

There is one checksum, over all of it. Two, one inside the other, would pass the state of one moment
together with the memory of another: the CRC-32 of bytes that end in their own is always the same.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence

from beam_dpcount.errors import Error

FORMAT = 4

HEAD = "<BBHHHIIq"
HEADER = struct.Struct(HEAD)
HEAD_SIZE = HEADER.size
_SIZE = struct.Struct("<8xI")
CHECK = struct.Struct("<I")

Part = tuple[str, str]  # of the parameters, and what to say where another one wrote the state
OTHER_ENTROPY = (
    "the state was written under another entropy, replayable or not: resume with the one it was "
    "started with, or start a new stream"
)
OTHER_FORMAT = (
    "the state was written in format {theirs}, this code reads format {ours}: {remedy}, or start a "
    "new stream, which spends its budget anew"
)
UPGRADE, GO_BACK = "upgrade beam_dpcount", "resume with the beam_dpcount that wrote it"
CORRUPT = (
    "the state is corrupt (its bytes fail their check): restore it from a checkpoint; counting "
    "on would break the guarantee (formats before 2 had other checks)"
)


class StateError(Error, ValueError):
    """State bytes that cannot be read. The message never shows what they hold."""


class Envelope:
    """Seals what one stream keeps, and opens it under the same parameters, given in parts.

    `digest_size` is that of the digest of a history, of which there are `histories`.
    """

    def __init__(self, parts: Sequence[Part], digest_size: int = 0, histories: int = 1) -> None:
        self.digest_size, self._said = digest_size, [said for _, said in parts]
        shorts = [_fingerprint(text, 2) for text, _ in parts]
        self._shorts = (*shorts, *(0,) * (3 - len(shorts)))
        self._start = (digest_size, *self._shorts)
        self._fingerprint = _fingerprint(ascii([text for text, _ in parts]), 4)
        self._digests = digest_size * histories
        self._first = HEAD_SIZE + self._digests  # where the numbers are

    def head(self, size: int, step: int) -> tuple[int, ...]:
        """What `HEAD` packs, for so many bytes of numbers at this step."""
        return (FORMAT, *self._start, size, self._fingerprint, step)

    def seal(self, front: bytes, memory: bytes) -> bytes:
        body = front + memory
        return body + CHECK.pack(zlib.crc32(body))

    def open(self, data: bytes) -> tuple[int, int]:
        """The step, and where the memory starts.

        Raises:
          StateError: the bytes are cut short, altered, of another format or of other parameters.
        """
        end = len(data) - CHECK.size
        # In line, as a function costs as much as the check, and a step has two.
        if end >= self._first and zlib.crc32(data[:end]) == CHECK.unpack_from(data, end)[0]:
            form, digest, _, _, _, size, fingerprint, step = HEADER.unpack_from(data)
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
        """The digest, or those of all histories, one after the other."""
        return data[HEAD_SIZE : self._first]

    def memory_of(self, data: bytes) -> bytes:
        return data[self._first + _SIZE.unpack_from(data)[0] : -CHECK.size]

    def _error(self, data: bytes) -> StateError:
        # Every format begins with its number and ends in a checksum, though the first ones, never
        # released, did not check all of it: those are known by their number alone.
        size = len(data)
        if size > CHECK.size and data[0] != FORMAT and _is_checked(data):
            remedy = GO_BACK if data[0] < FORMAT else UPGRADE
            return StateError(OTHER_FORMAT.format(theirs=data[0], ours=FORMAT, remedy=remedy))
        if size < HEAD_SIZE + CHECK.size or not _is_checked(data):
            return corrupt()
        _, digest, *shorts, _, fingerprint, _ = struct.unpack_from(HEAD, data)
        if fingerprint == self._fingerprint:
            return corrupt() if digest == self.digest_size else StateError(OTHER_ENTROPY)
        found = zip(self._said, shorts, self._shorts, strict=False)
        differing = [said for said, theirs, ours in found if theirs != ours]
        return StateError(differing[0] if differing else self._said[0])


def _fingerprint(parameters: str, size: int) -> int:
    digest = hashlib.blake2b(parameters.encode(), digest_size=size).digest()
    return int.from_bytes(digest, "little")


def _is_checked(data: bytes) -> bool:
    return zlib.crc32(data[: -CHECK.size]) == int.from_bytes(data[-CHECK.size :], "little")


def corrupt() -> StateError:
    # Without the number of bytes, which depends on the data.
    return StateError(CORRUPT)
