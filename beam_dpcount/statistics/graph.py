"""What is remembered of a growing graph, and the rule that bounds its degrees.

A graph is two sets of directed codes u * n + v over the vertices 0 .. n-1: edges, each under both
of its directions, and halves, pairs that only their first vertex remembers. A set is a long sorted
array and a few newer codes, so that it is read from bytes without a copy, and grows at the cost of
copying the few. Nothing is changed in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

RECENT = 512  # newer codes are merged once there are so many: they are searched one by one
NONE: IntArray = np.empty(0, dtype=np.int64)
NONE.flags.writeable = False


class CodeSet(NamedTuple):
    """A set of whole numbers."""

    old: IntArray = NONE  # sorted
    new: IntArray = NONE  # those that came since, fewer than RECENT

    def has(self, code: int) -> bool:
        place = int(self.old.searchsorted(code))
        if place < len(self.old) and self.old[place] == code:
            return True
        return bool((self.new == code).any())

    def add(self, *codes: int) -> CodeSet:
        """The set with these, which are not in it."""
        new = np.concatenate((self.new, np.array(codes, dtype=np.int64)))
        if len(new) < RECENT:
            return CodeSet(self.old, new)
        return CodeSet(np.sort(np.concatenate((self.old, new))), NONE)

    def within(self, first: int, stop: int) -> int:
        """How many lie from `first` to before `stop`."""
        new = self.new
        few = int(np.count_nonzero((new >= first) & (new < stop))) if len(new) else 0
        return int(self.old.searchsorted(stop) - self.old.searchsorted(first)) + few

    def between(self, first: int, stop: int) -> IntArray:
        """Those from `first` to before `stop`, in no order."""
        old = self.old[self.old.searchsorted(first) : self.old.searchsorted(stop)]
        new = self.new[(self.new >= first) & (self.new < stop)]
        return np.concatenate((old, new)) if len(new) else old

    def common(self, codes: IntArray) -> int:
        """How many of these, all different, are in the set."""
        if not len(codes):
            return 0
        found = 0
        if len(self.old):
            places = self.old.searchsorted(codes)
            places[places == len(self.old)] = 0
            found = int(np.count_nonzero(self.old[places] == codes))
        if len(self.new):
            near = self.new[(self.new >= codes.min()) & (self.new <= codes.max())]
            found += int(np.count_nonzero(codes[:, None] == near))
        return found


class Graph(NamedTuple):
    """A graph that grew by insertions."""

    n: int  # vertices
    edges: CodeSet = CodeSet()  # both ways
    halves: CodeSet = CodeSet()  # of each pair that one end alone remembers, from that end

    def degree(self, u: int) -> int:
        return self.edges.within(u * self.n, (u + 1) * self.n)

    def common(self, u: int, v: int) -> int:
        """How many neighbours u and v have in common."""
        if self.degree(u) > self.degree(v):
            u, v = v, u
        mine = self.edges.between(u * self.n, (u + 1) * self.n)
        return self.edges.common(mine + (v - u) * self.n)

    def _remembers(self, u: int) -> int:
        return self.degree(u) + self.halves.within(u * self.n, (u + 1) * self.n)

    def offer(self, u: int, v: int, limit: int | None) -> Graph:
        """The graph after the pair {u, v}: this very one, or with other edges if it is new.

        With a limit D each vertex remembers the first D distinct pairs that are offered to it,
        accepted or not, and a pair is an edge if both its ends remember it. If instead a pair were
        refused because an end has D edges, one pair could decide about any number of later ones.
        """
        way, back = u * self.n + v, v * self.n + u
        if self.edges.has(way):
            return self
        if limit is None:
            return self._replace(edges=self.edges.add(way, back))
        if self.halves.has(way) or self.halves.has(back):
            return self
        first, second = self._remembers(u) < limit, self._remembers(v) < limit
        if first and second:
            return self._replace(edges=self.edges.add(way, back))
        if first or second:
            return self._replace(halves=self.halves.add(way if first else back))
        return self


def pack(*arrays: IntArray) -> bytes:
    """Arrays of whole numbers as bytes: their lengths, then the arrays."""
    lengths = np.array([len(array) for array in arrays], dtype="<i8")
    parts = (lengths, *(np.ascontiguousarray(array, dtype="<i8") for array in arrays))
    return b"".join(part.data for part in parts)


def unpack(data: bytes, count: int) -> list[IntArray]:
    """`count` arrays that were packed, read-only and without a copy, or a ValueError."""
    numbers = np.frombuffer(data, dtype="<i8")
    ends = np.cumsum(numbers[:count]) + count
    if len(ends) < count or (numbers[:count] < 0).any() or int(ends[-1]) != len(numbers):
        raise ValueError("these bytes do not hold a graph: they are corrupt, or something else's")
    starts = [count, *ends[:-1].tolist()]
    return [numbers[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]
