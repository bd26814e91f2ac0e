"""The file of a count that goes on: what one run leaves to the next.

Little-endian:

  8 bytes of MAGIC, and u32: how many bytes of JSON follow
  the JSON: the fields of a StateFile that are not bytes
  u64: how many bytes follow; the state of the count, as `CountState.packed`
  32 bytes: BLAKE2b of all before, the digest that the account has
  u64 and 32 bytes: how large the output was before this run, and a digest of it
  u64: how many bytes follow; what this run released, as long as the output may not have it
  32 bytes: BLAKE2b of all before

It holds exact sums, digests of people with their keys, and the secret of the noise: it is as
private as the data.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from beam_dpcount.states.count_state import CountState
from beam_dpcount.states.envelope import StateError, corrupt

MAGIC = b"dpstate1"
_HEAD = struct.Struct("<8sI")
_LENGTH = struct.Struct("<Q")
_TAIL = struct.Struct("<Q32sQ")
_DIGEST = 32


@dataclass(frozen=True, repr=False)
class StateFile:
    """What one run leaves to the next.

    Args:
      id: public; names the state in its account.
      secret: of the noise, 32 bytes.
      options: those that decide what is counted, by name, as text.
      output: the output's path, from the folder of the state.
      account: the account's path, likewise.
      count: what the count keeps.
      runs: how many runs released something.
      ticks: up to which all are released.
      lately: how many ticks each of the last runs released, without the first run where there
        are others.
      files: path, and what tells whether it was changed, of files all of whose rows are of ticks
        that are released.
      size: how large the output was before this run; where `rows` is empty, is now.
      mark: a digest of the output as it was then, 32 bytes.
      rows: what this run released, as long as the output may not have it.
    """

    id: str
    secret: bytes
    options: Mapping[str, str]
    output: str
    account: str
    count: CountState = field(default_factory=CountState)
    runs: int = 0
    ticks: int = 0
    lately: tuple[int, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    size: int = 0
    mark: bytes = bytes(32)
    rows: bytes = b""

    @cached_property
    def _core(self) -> bytes:
        about = {name: getattr(self, name) for name in _PLAIN} | {"secret": self.secret.hex()}
        head, count = json.dumps(about).encode(), self.count.packed()
        core = [_HEAD.pack(MAGIC, len(head)), head, _LENGTH.pack(len(count)), count]
        return _signed(b"".join(core))

    @property
    def digest(self) -> str:
        """What the account knows it by: whether the output has its releases changes nothing."""
        return self._core[-_DIGEST:].hex()

    def packed(self) -> bytes:
        """All of it as bytes."""
        tail = _TAIL.pack(self.size, self.mark, len(self.rows))
        return _signed(b"".join([self._core, tail, self.rows]))

    @classmethod
    def unpacked(cls, data: bytes) -> StateFile:
        """What was packed.

        Raises:
          StateError: the bytes are cut short, altered, or of another format.
        """
        if not data.startswith(MAGIC):
            raise StateError(
                "this is no state, or one of another version: give the file that a run with "
                "--state left"
            )
        if _signed(data[:-_DIGEST]) != data:
            raise corrupt()
        try:
            return cls._read(data)
        except (struct.error, ValueError, TypeError, KeyError, AttributeError):
            raise corrupt() from None  # without what it holds

    @classmethod
    def _read(cls, data: bytes) -> StateFile:
        _, length = _HEAD.unpack_from(data)
        at = _HEAD.size + length
        about: dict[str, Any] = json.loads(data[_HEAD.size : at])
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        count, at = CountState.unpacked(data[at : at + length]), at + length + _DIGEST
        size, mark, length = _TAIL.unpack_from(data, at)
        rows = data[at + _TAIL.size : -_DIGEST]
        if len(rows) != length:
            raise ValueError("there is more, or less, than is said")
        about |= {"secret": bytes.fromhex(about["secret"]), "lately": tuple(about["lately"])}
        about["files"] = tuple((str(path), str(stamp)) for path, stamp in about["files"])
        return cls(count=count, size=size, mark=mark, rows=rows, **about)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, which keeps a secret)"


_BYTES = ("secret", "count", "size", "mark", "rows")
_PLAIN = [one.name for one in fields(StateFile) if one.name not in _BYTES]


def _signed(data: bytes) -> bytes:
    return data + hashlib.blake2b(data, digest_size=_DIGEST).digest()
