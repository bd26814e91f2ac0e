"""What a shard of people keeps: a cell, and pieces in a bag whose order does not matter.

The cell is an envelope. Its step is the mark: how many periods are closed; without periods it stays
0. Its numbers: the generation of the pieces, how many there are, and how many the last merge left.
Its memory: the secret that keys all digests of the shard, drawn once, and never again: under
another one everybody would be new, and count again.

With periods a person is another one in each, with another digest. Rows are forgotten by the mark
alone, all those of a closed period at once.

A piece has a row for each key under which an event counts, in columns. Little-endian:

  u32  rows n, generation, and number of the piece within its generation
  16 n bytes of digests of people; and if more than one event of a person may count,
  16 n bytes of digests of keys, n bytes that are 1 in the first row of an event,
  and with a gap 8 n bytes of times
  with periods, u32 each: the periods that rows are of
  u32  CRC-32 of all before it, begun from the secret's

A bag has exactly the pieces that its cell counts. One that is missing, is there twice, was cut
short, or is of another shard or an earlier generation is an error: a person of whom less is known
would count again.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.counters.periods import Periods
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.states.envelope import CHECK, HEAD, Envelope, corrupt

DIGEST = 16  # bytes: of n people two are taken for one with a probability of n^2 2^-129
SECRET = 32
MERGED = 64  # pieces that come to a bag before all are made few
PIECE = 1 << 15  # rows of a piece that a merge writes

# As a type of NumPy: it compares all bytes, as the shorter of two texts is filled up with zeros.
DIGESTS = f"S{DIGEST}"

_HEAD = struct.Struct("<3I")
_NUMBERS = struct.Struct("<3q")

OTHER_BOUND = (
    "the state of people belongs to another bound (events, keys, per_key, gap, changes, per or "
    "lateness), or to other ticks in which an event makes its person active: "
    "resume with the one it was started with; another one needs a new stream, and spends its "
    "budget anew"
)
OTHER_SHARDS = (
    "the state of people is spread over another number of shards: resume with the Users(events, "
    "people) it was started with; in another number everybody would be new, and count again"
)
OTHER_PLACEMENT = (
    "the people of this state were placed under another secret, or without one: resume with the "
    "entropy it was started with; under another one everybody would be new, and count again"
)


class Mark(NamedTuple):
    """What the cell of a shard says.

    Fields:
      secret: keys all digests of the shard.
      generation, pieces, merged: of its pieces; how many, and how many the last merge left.
      closed: how many periods are closed.
    """

    secret: bytes
    generation: int = 0
    pieces: int = 0
    merged: int = 0
    closed: int = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(which keeps a secret)"

    def person(self, name: bytes, period: int = 0) -> bytes:
        """The digest of a person, in a period."""
        salt = period.to_bytes(8, "little")
        return hashlib.blake2b(name, digest_size=DIGEST, key=self.secret, salt=salt).digest()

    def names(self, person: bytes, names: Iterable[bytes]) -> list[bytes]:
        """The digests of keys of a person, of whom this is the digest: equal ones of two people
        have others."""
        key = self.secret + person
        return [hashlib.blake2b(name, digest_size=DIGEST, key=key).digest() for name in names]


class Rows:
    """Rows to be kept, a column each."""

    def __init__(self) -> None:
        self.people: list[bytes] = []
        self.names: list[bytes] = []
        self.starts: list[int] = []
        self.times: list[int] = []

    def add(self, person: bytes, names: Sequence[bytes], micros: int) -> None:
        """An event that counts under these keys."""
        n = len(names)
        self.people += [person] * n
        self.names += names
        self.starts += [1] + [0] * (n - 1)
        self.times += [micros] * n


class PeopleCodec(Envelope):
    """Packs the cell and the pieces of a shard of people.

    Args:
      bound: the rule that they are bounded by.
      shards: over how many all people are spread.
      placement: the fingerprint of what places them.
      periods: in each of which the rule holds by itself; None: over the whole stream.
      more: what else the rule is, as text.
    """

    def __init__(
        self,
        bound: Bound,
        shards: int,
        placement: str,
        periods: Periods | None = None,
        more: str = "",
    ) -> None:
        rule = repr(bound) if periods is None else f"{bound!r} in {periods.fingerprint}"
        rule += more
        parts = [
            (rule, OTHER_BOUND),
            (str(shards), OTHER_SHARDS),
            (placement, OTHER_PLACEMENT),
        ]
        super().__init__(parts)
        self.keeps_names = bound.events > 1  # else nothing is asked of one who is there
        kinds = [DIGESTS]
        if self.keeps_names:
            kinds += [DIGESTS, "u1", "<i8"] if bound.gap else [DIGESTS, "u1"]
        self._of_people = len(kinds)  # columns that the rule needs
        self._gap, self._periods = bound.gap, periods
        if periods is not None:
            kinds.append("<u4")
        self.kinds = kinds  # of the columns
        self._widths = [np.dtype(kind).itemsize for kind in kinds]

    def begin(self, source: Callable[[int], bytes] = os.urandom) -> Mark:
        """The mark of a shard in which there is nobody yet. The secret is in no release."""
        return Mark(source(SECRET))

    def cell(self, mark: Mark) -> bytes:
        """A mark as bytes."""
        front = struct.pack(HEAD, *self.head(_NUMBERS.size, mark.closed))
        numbers = _NUMBERS.pack(mark.generation, mark.pieces, mark.merged)
        return self.seal(front + numbers, mark.secret)

    def mark(self, cell: bytes) -> Mark:
        """What was packed; or a StateError, as for `open`."""
        closed, memory = self.open(cell)
        if memory != self._first + _NUMBERS.size or len(cell) != memory + SECRET + CHECK.size:
            raise corrupt()
        generation, pieces, merged = _NUMBERS.unpack_from(cell, self._first)
        return Mark(cell[memory : memory + SECRET], generation, pieces, merged, closed)

    def held(self, mark: Mark, pieces: Iterable[bytes]) -> list[bytes]:
        """The columns of all pieces of a bag, in any order.

        Raises:
          StateError: they are not those that the mark counts.
        """
        begun, width = zlib.crc32(mark.secret), sum(self._widths)
        numbers: set[int] = set()
        columns: list[list[bytes]] = [[] for _ in self._widths]
        for piece in pieces:
            end = len(piece) - CHECK.size
            if end < _HEAD.size:
                raise corrupt()
            (check,) = CHECK.unpack_from(piece, end)
            n, generation, number = _HEAD.unpack_from(piece)
            is_whole = zlib.crc32(memoryview(piece)[:end], begun) == check
            if not is_whole or generation != mark.generation or end != _HEAD.size + width * n:
                raise corrupt()
            numbers.add(number)
            at = _HEAD.size
            for column, each in zip(columns, self._widths, strict=True):
                column.append(piece[at : at + each * n])
                at += each * n
        there = len(columns[0])
        if there != mark.pieces or numbers != set(range(there)):
            raise corrupt()
        return [b"".join(column) for column in columns]

    def seen(self, held: Sequence[bytes], wanted: Iterable[bytes]) -> dict[bytes, Seen]:
        """What counts of these people so far, by their digests."""
        found = {person: Seen() for person in wanted}
        if not found:
            return found
        people, *others = held[: self._of_people]
        for at, person in self.rows_of(people, found):
            one = found[person]
            if not others:
                one.events = 1
                continue
            name = others[0][DIGEST * at : DIGEST * (at + 1)]
            one.names[name] = one.names.get(name, 0) + 1
            if others[1][at]:
                one.events += 1
                one.times += struct.unpack_from("<q", others[2], 8 * at) if others[2:] else ()
        for one in found.values():
            one.times.sort()
        return found

    def rows_of(self, people: bytes, wanted: Collection[bytes]) -> Iterator[tuple[int, bytes]]:
        """The places of the rows of these people, and whose each is."""
        if not wanted or not people:
            return
        # By the first half of a digest, and then by all of it.
        first = np.frombuffer(people, "<u8")[::2]
        asked = np.sort(np.frombuffer(b"".join(wanted), "<u8")[::2])
        places = np.minimum(np.searchsorted(asked, first), len(asked) - 1)
        for at in np.flatnonzero(asked[places] == first).tolist():
            person = people[DIGEST * at : DIGEST * (at + 1)]
            if person in wanted:
                yield at, person

    def columns(self, rows: Rows) -> list[bytes]:
        """Rows as columns of bytes."""
        columns = [b"".join(rows.people)]
        if self.keeps_names:
            columns += [b"".join(rows.names), bytes(rows.starts)]
            if self._gap:
                columns.append(struct.pack(f"<{len(rows.times)}q", *rows.times))
        if self._periods is not None:
            periods = [self._periods.of(micros) for micros in rows.times]
            columns.append(struct.pack(f"<{len(periods)}I", *periods))
        return columns

    def piece(self, mark: Mark, columns: Sequence[bytes]) -> tuple[Mark, bytes]:
        """The mark with one piece more, and the piece."""
        head = _HEAD.pack(len(columns[0]) // DIGEST, mark.generation, mark.pieces)
        body = b"".join((head, *columns))
        check = CHECK.pack(zlib.crc32(body, zlib.crc32(mark.secret)))
        return mark._replace(pieces=mark.pieces + 1), body + check

    def merged(self, mark: Mark, columns: Sequence[bytes]) -> tuple[Mark, list[bytes]]:
        """The mark of the next generation, and its few pieces, which hold these columns."""
        mark = mark._replace(generation=mark.generation + 1, pieces=0)
        pieces = []
        for part in self._parts(columns):
            mark, piece = self.piece(mark, part)
            pieces.append(piece)
        return mark._replace(merged=mark.pieces), pieces

    def closed(
        self, mark: Mark, columns: Sequence[bytes], many: int | None = None
    ) -> tuple[Mark, list[bytes]]:
        """The mark once so many periods are closed, and the pieces of the periods after them.

        By default one more than before.
        """
        mark = mark._replace(closed=mark.closed + 1 if many is None else max(mark.closed, many))
        stays = np.frombuffer(columns[-1], "<u4") >= mark.closed
        each = zip(columns, self._widths, strict=True)
        rows = [np.frombuffer(column, f"V{width}")[stays].tobytes() for column, width in each]
        return self.merged(mark, rows)

    def _parts(self, columns: Sequence[bytes]) -> Iterator[list[bytes]]:
        for at in range(0, len(columns[0]) // DIGEST, PIECE):
            widths = zip(columns, self._widths, strict=True)
            yield [column[each * at : each * (at + PIECE)] for column, each in widths]


class Active(NamedTuple):
    """When people were active: rows of a person and a key, each pair once.

    Fields:
      people: digests, 16 bytes each.
      places: of the keys.
      lasts: the last tick in which the person is active, by what came so far.
      counts: how many events count where the rule holds; or how many intervals began.
    """

    people: bytes
    places: IntArray
    lasts: IntArray
    counts: IntArray


class ActivityCodec(PeopleCodec):
    """Packs what a shard knows of when its people were active: `Active`, in place of events.

    Its mark counts the ticks that are closed.
    """

    def __init__(
        self, bound: Bound, shards: int, placement: str, periods: Periods | None, more: str
    ) -> None:
        super().__init__(bound, shards, placement, periods, more)
        self._widths = [DIGEST, 8, 8, 8]

    def active(self, mark: Mark, pieces: Iterable[bytes]) -> Active:
        """All rows of a bag; or a StateError, as for `held`."""
        people, *numbers = self.held(mark, pieces)
        return Active(people, *(np.frombuffer(column, "<i8").copy() for column in numbers))

    def rewritten(
        self, mark: Mark, rows: Active, stays: npt.NDArray[np.bool_]
    ) -> tuple[Mark, list[bytes]]:
        """The mark once the next tick is closed, and the pieces of the rows that stay."""
        people, *numbers = rows
        digests = np.frombuffer(people, f"V{DIGEST}")
        columns = [column[stays].tobytes() for column in (digests, *numbers)]
        return self.merged(mark._replace(closed=mark.closed + 1), columns)
