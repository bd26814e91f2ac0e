"""All that a count at a clock keeps between two runs, as bytes: what its shards keep in a stream.

Little-endian:

  8 bytes of MAGIC, and u32: how many bytes of JSON follow
  the JSON: of each part how long the cells of its shards of keys are, and of each of its shards of
  people how long the cell and the pieces are; and of views that are combined, by key, the state of
  their filter, which are public numbers
  all cells and pieces, in that order
  32 bytes: BLAKE2b of all before

It holds exact sums and digests of people, with their keys: it is as private as the data.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from beam_dpcount.states.envelope import StateError, corrupt

MAGIC = b"dpcount1"
_HEAD = struct.Struct("<8sI")
_DIGEST = 32


class PeopleShard(NamedTuple):
    """A shard of people: its cell, and its pieces in any order."""

    cell: bytes
    pieces: tuple[bytes, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(which keeps a secret)"


class PartState(NamedTuple):
    """What one part of a count keeps.

    Fields:
      shards: the cells of its shards of keys.
      people: its shards of people; none where no person is bounded.
    """

    shards: tuple[bytes, ...] = ()
    people: tuple[PeopleShard, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(which keeps exact sums)"


@dataclass(frozen=True, repr=False)
class CountState:
    """What a whole count keeps; without parts, of one that has not begun.

    Args:
      parts: of each part, in their order.
      views: by key, what combines its views, if they are combined.
    """

    parts: tuple[PartState, ...] = ()
    views: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def packed(self) -> bytes:
        """All of it as bytes."""
        lengths = [
            [
                [len(cell) for cell in part.shards],
                [[len(shard.cell), *map(len, shard.pieces)] for shard in part.people],
            ]
            for part in self.parts
        ]
        about = json.dumps({"parts": lengths, "views": self.views}).encode()
        blobs: list[bytes] = []
        for part in self.parts:
            blobs += part.shards
            for shard in part.people:
                blobs += [shard.cell, *shard.pieces]
        data = b"".join([_HEAD.pack(MAGIC, len(about)), about, *blobs])
        return data + hashlib.blake2b(data, digest_size=_DIGEST).digest()

    @classmethod
    def unpacked(cls, data: bytes) -> CountState:
        """What was packed.

        Raises:
          StateError: the bytes are cut short, altered, or of another format.
        """
        if not data.startswith(MAGIC):
            raise StateError(
                "this is no state of a count, or one of another version: give the state that a "
                "run left"
            )
        body = data[:-_DIGEST]
        if hashlib.blake2b(body, digest_size=_DIGEST).digest() != data[-_DIGEST:]:
            raise corrupt()
        try:
            return cls._read(body)
        except (struct.error, ValueError, TypeError, KeyError, AttributeError):
            raise corrupt() from None  # without what it holds

    @classmethod
    def _read(cls, data: bytes) -> CountState:
        _, size = _HEAD.unpack_from(data)
        about: dict[str, Any] = json.loads(data[_HEAD.size : _HEAD.size + size])
        rest = _Blobs(data, _HEAD.size + size)
        parts = tuple(
            PartState(
                tuple(rest.next(length) for length in shards),
                tuple(
                    PeopleShard(rest.next(cell), tuple(rest.next(piece) for piece in pieces))
                    for cell, *pieces in people
                ),
            )
            for shards, people in about["parts"]
        )
        if rest.at != len(data):
            raise ValueError("there is more than is said")
        views = {key: tuple(map(float, numbers)) for key, numbers in about["views"].items()}
        return cls(parts, views)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.parts)} parts, which keep exact sums)"


class _Blobs:
    """Bytes that lie one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def next(self, length: int) -> bytes:
        """The next so many."""
        first, self.at = self.at, self.at + length
        if length < 0 or self.at > len(self._data):
            raise ValueError("they are cut short")
        return self._data[first : self.at]
