"""What earlier runs know of people, in columns: the rows of a stream's shards of people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.people import Bound
from beam_dpcount.lanes.cells import BoolArray
from beam_dpcount.lanes.people import Group, Ties, counted_rows, firsts_of
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.states.count_state import PeopleShard
from beam_dpcount.states.people import DIGEST, DIGESTS, PeopleCodec
from beam_dpcount.states.placement import Placement


class Remembered:
    """Which events of people count beside those that counted in earlier runs.

    Args:
      count: what is counted, with its users, periods and noise, whose secret places people.
      shards: what earlier runs kept; none: there was no run.
      name_of: a key as bytes, given its code.

    Raises:
      StateError: the shards are not those of this count.
    """

    def __init__(
        self, count: Any, shards: Sequence[PeopleShard], name_of: Callable[[int], bytes]
    ) -> None:
        placement = Placement(count.users.shards, count.noise)
        self._periods, self._name_of = count.periods, name_of
        self._codec = codec = PeopleCodec(
            count.bound, placement.shards, placement.fingerprint, count.periods
        )
        self._shard_of = placement.finder()
        if not shards:
            shards = [PeopleShard(codec.cell(codec.begin())) for _ in range(placement.shards)]
        self._marks = [codec.mark(shard.cell) for shard in shards]
        held = [
            codec.held(mark, shard.pieces) for mark, shard in zip(self._marks, shards, strict=True)
        ]
        self._columns: list[list[npt.NDArray[Any]]] = [
            [np.concatenate([np.frombuffer(each[place], kind) for each in held])]
            for place, kind in enumerate(codec.kinds)
        ]
        rows = [len(each[0]) // DIGEST for each in held]
        self._of_shard = [np.repeat(np.arange(len(held)), rows)]

    def counted(
        self, bound: Bound, group: Group, ties: Ties, asks_first: bool
    ) -> tuple[IntArray, BoolArray | None]:
        """The rows that count, and, if that is asked, which are the first of their person's key.

        Those that counted before go through the rule again, before all others: what one of them
        takes of a bound it took then. So each counts again, and no more than so many do in all.
        """
        owners, back = np.unique(group.codes, return_inverse=True)
        shards, periods, digests = self._digests(group, owners)
        mine = np.frombuffer(b"".join(digests), DIGESTS)
        held, whose = self._rows_of(mine)
        full = self._counts_of(whose, held, len(owners)) >= bound.events
        rest = np.flatnonzero(~full[back])
        held, whose = held[~full[whose]], whose[~full[whose]]
        codes, names = back[rest], group.names[rest]
        known = self._names(digests, shards, whose, held, codes, names)
        micros, n = group.micros[rest], len(held)
        # Just before: rows are sorted by a code of person and time, which 64 bits must hold.
        earlier = np.full(n, micros.min() - 1 if len(micros) else 0)
        if bound.gap:
            earlier = self._columns[3][0][held]

        def with_held(some: IntArray) -> Sequence[npt.NDArray[Any]]:
            return ties(rest[np.maximum(some - n, 0)]) if len(rest) else [some]

        both = np.concatenate([whose, codes]), np.concatenate([known, names])
        every = counted_rows(bound, both[0], np.concatenate([earlier, micros]), both[1], with_held)
        new = every >= n
        firsts = firsts_of(both[0][every], both[1][every])[new] if asks_first else None
        counted = rest[every[new] - n]
        self._note(group, counted, back[counted], (shards, periods, digests), bool(bound.gap))
        return counted, firsts

    def _digests(self, group: Group, owners: IntArray) -> tuple[IntArray, IntArray, list[bytes]]:
        """Of each person, or of each in each period: shard, period and digest."""
        if group.whose is None:
            raise TypeError("the texts of people are asked for")
        texts, marks, shard_of = group.whose.to_pylist(), self._marks, self._shard_of
        many = 1 if self._periods is None else len(self._periods)
        places, periods = np.divmod(owners, many)
        shards = [shard_of(texts[place]) for place in places.tolist()]
        people = zip(places.tolist(), periods.tolist(), shards, strict=True)
        digests = [
            marks[shard].person(texts[place].encode(), period) for place, period, shard in people
        ]
        return np.array(shards, dtype=np.int64), periods, digests

    def _rows_of(self, mine: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
        """The rows of earlier runs that are of these people, and whose they are."""
        everybody = self._columns[0][0]
        if not len(everybody) or not len(mine):
            none = np.zeros(0, dtype=np.int64)
            return none, none
        order = np.argsort(mine)
        places = np.minimum(np.searchsorted(mine, everybody, sorter=order), len(mine) - 1)
        owners = order[places]
        held = np.flatnonzero(mine[owners] == everybody)
        return held, owners[held]

    def _counts_of(self, whose: IntArray, held: IntArray, people: int) -> IntArray:
        """How many events of each person counted in earlier runs."""
        if not self._codec.keeps_names:
            return np.bincount(whose, minlength=people)
        starts = self._columns[2][0][held]
        return np.bincount(whose, weights=starts, minlength=people).astype(np.int64)

    def _names(
        self,
        digests: Sequence[bytes],
        shards: IntArray,
        whose: IntArray,
        held: IntArray,
        codes: IntArray,
        names: IntArray,
    ) -> IntArray:
        """The keys of earlier rows, as codes: those of these rows where they are the same."""
        if not self._codec.keeps_names or not len(held):
            return np.zeros(len(held), dtype=np.int64)
        again = np.isin(codes, whose)
        pairs = {*zip(codes[again].tolist(), names[again].tolist(), strict=True)}
        known: dict[tuple[int, bytes], int] = {}
        for owner, name in pairs:
            mark, digest = self._marks[int(shards[owner])], digests[owner]
            known[owner, mark.names(digest, [self._name_of(name)])[0]] = name
        other = int(names.max(initial=0)) + 1
        found = []
        cells = self._columns[1][0][held].tolist()
        for owner, cell in zip(whose.tolist(), cells, strict=True):
            # Arrays of bytes leave zeros at the end out.
            place = owner, cell.ljust(DIGEST, b"\0")
            found.append(known.setdefault(place, other + len(known)))
        return np.array(found, dtype=np.int64)

    def _note(
        self,
        group: Group,
        rows: IntArray,
        owners: IntArray,
        of_owners: tuple[IntArray, IntArray, list[bytes]],
        timed: bool,
    ) -> None:
        """Remembers events that count, whose these are, and when they were if that is asked."""
        shards, periods, digests = of_owners
        added: list[npt.NDArray[Any]] = [
            np.frombuffer(b"".join([digests[owner] for owner in owners.tolist()]), DIGESTS)
        ]
        if self._codec.keeps_names:
            places = zip(owners.tolist(), group.names[rows].tolist(), strict=True)
            known: dict[tuple[int, int], bytes] = {}
            cells = []
            for place in places:
                if place not in known:
                    mark, digest = self._marks[int(shards[place[0]])], digests[place[0]]
                    known[place] = mark.names(digest, [self._name_of(place[1])])[0]
                cells.append(known[place])
            added.append(np.frombuffer(b"".join(cells), DIGESTS))
            added.append(np.ones(len(rows), dtype=np.uint8))
            if timed:
                added.append(group.micros[rows])
        if self._periods is not None:
            added.append(periods[owners].astype("<u4"))
        for column, more in zip(self._columns, added, strict=True):
            column.append(more)
        self._of_shard.append(shards[owners])

    def shards(self, until: int) -> tuple[PeopleShard, ...]:
        """What the next run needs. Periods of which all ticks ended by then are forgotten."""
        codec, periods = self._codec, self._periods
        columns = [np.concatenate(column) for column in self._columns]
        of_shard = np.concatenate(self._of_shard)
        order = np.argsort(of_shard, kind="stable")
        ends = np.searchsorted(of_shard[order], np.arange(len(self._marks) + 1))
        shards = []
        for number, mark in enumerate(self._marks):
            rows = order[ends[number] : ends[number + 1]]
            own = [column[rows].tobytes() for column in columns]
            if periods is None:
                mark, pieces = codec.merged(mark, own)
            else:
                mark, pieces = codec.closed(mark, own, max(periods.of(until), 0))
            shards.append(PeopleShard(codec.cell(mark), tuple(pieces)))
        return tuple(shards)
