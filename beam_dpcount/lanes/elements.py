"""Columns of elements, each of which takes a step of its key: a release after every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpcount.counters.people import Bound
from beam_dpcount.lanes.people import counted_rows
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.states.whole_keys import WholeKey
from beam_dpcount.states.windows import EVERYWHERE


class Elements(NamedTuple):
    """Elements in the order of their public ids.

    Fields:
      keys: of each.
      people: theirs; null or an empty text is nobody. None: people are not protected.
      micros: their times; equal ones where they have none.
      xs: what they count, on the lattice.
    """

    keys: pa.Array
    people: pa.Array | None
    micros: IntArray
    xs: IntArray


class Releases(NamedTuple):
    """Releases of keys, by key and step, in columns of one length.

    Fields:
      keys: texts.
      steps: from 1.
      micros: their times.
      values: what is released.
    """

    keys: pa.Array
    steps: IntArray
    micros: IntArray
    values: FloatArray

    def rows(self, some: slice) -> Releases:
        """Some of them."""
        columns: Sequence[Any] = [column[some] for column in self]
        return Releases(*columns)


_TOGETHER = 1 << 16  # releases of several keys that are made at once


class ElementsLane:
    """Counts elements of one number each, and then releases key after key.

    Args:
      whole: what releases a key.
      horizon: the most releases of one.
      bound: of people's elements: others count 0, and take their step. None: they are not bounded.
      identity: the public id of the element with this number, in the order in which they came.

    Attributes:
      stddevs: of all steps that have releases, once these are asked for.
    """

    stddevs: FloatArray

    def __init__(
        self,
        whole: WholeKey,
        horizon: int | None,
        bound: Bound | None,
        identity: Callable[[int], object],
    ) -> None:
        self._whole, self._horizon = whole, horizon
        self._bound, self._identity = bound, identity
        self._keys, self._people = dict[str, int](), dict[str, int]()
        self._columns: list[list[npt.NDArray[Any]]] = [[] for _ in Elements._fields]

    def add(self, elements: Elements) -> None:
        """Takes elements; their ids come after those of all before."""
        keys, people, micros, xs = elements
        named = np.zeros(0 if self._bound is None else len(xs), dtype=np.int64)
        if self._bound is not None and people is not None:
            named = _codes(pc.fill_null(people, ""), self._people)
        coded = _codes(keys, self._keys).astype(np.int32)
        added: Sequence[npt.NDArray[Any]] = coded, named, micros, xs
        for column, more in zip(self._columns, added, strict=True):
            column.append(more)

    def releases(self, most: int) -> Iterator[Releases]:
        """All releases, in columns of `most` rows but for the last, which may be empty.

        They are made when they are asked for.
        """
        waiting, room, cut = list[Releases](), most, False
        for block in self._blocks():
            while len(block.keys):
                waiting.append(block.rows(slice(room)))
                block = block.rows(slice(room, None))
                room -= len(waiting[-1].keys)
                if not room:
                    yield _together(waiting)
                    waiting, room, cut = [], most, True
        if waiting or not cut:
            yield _together(waiting)

    def _blocks(self) -> Iterator[Releases]:
        """The same of one key, or of several that are quick to release together."""
        micros, xs, numbers, sizes = self._sorted()
        names, ends, longest = sorted(self._keys), np.cumsum(sizes), int(sizes.max(initial=0))
        self.stddevs = np.fromiter(self._whole.stddevs(longest), np.float64, longest)
        starts, first = ends - sizes, 0
        while first < len(names):
            last = first + 1
            if self._whole.takes_several:
                last = max(last, int(np.searchsorted(ends, starts[first] + _TOGETHER, "right")))
            rows, some = slice(starts[first], ends[last - 1]), slice(first, last)
            if last > first + 1:
                values = self._whole.several(names[some], EVERYWHERE, xs[rows], sizes[some])
            else:
                values = self._values(names[first], micros[rows], xs[rows], numbers[rows])
            texts, each = pa.array(names[some], pa.string()), np.repeat
            for begin in range(rows.start, rows.stop, _TOGETHER):  # a long key in parts
                part = slice(begin, min(begin + _TOGETHER, rows.stop))
                many = sizes[some] if last > first + 1 else part.stop - begin
                keys = texts.take(pa.array(each(np.arange(last - first), many)))
                steps = np.arange(begin, part.stop) - each(starts[some], many)
                here = values[begin - rows.start : part.stop - rows.start]
                yield Releases(keys, steps + 1, micros[part], here)
            first = last

    def _sorted(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Of the elements with a release, by key, time and id: their times, what they count, and
        their numbers; and how many there are of each key.
        """
        columns = []
        while self._columns:  # the parts of one are gone before the next is joined
            columns.append(_joined(self._columns.pop(0)))
        keys, people, micros, xs = columns
        if self._bound is not None:
            xs[~self._counts(self._bound, keys, people, micros)] = 0
        del columns, people
        codes = [self._keys[name] for name in sorted(self._keys)]
        # Numbers of 16 bits sort in a tenth of the time.
        ranks = np.empty(len(codes), dtype=np.min_scalar_type(len(codes)))
        ranks[codes] = np.arange(len(codes))
        keys = ranks[keys]
        order = np.argsort(keys, kind="stable")
        sizes = np.bincount(keys, minlength=len(codes))
        falls = np.diff(micros[order]) < 0
        falls[np.cumsum(sizes)[:-1] - 1] = False
        if falls.any():
            order = np.lexsort((micros, keys))  # ties stay in the order of ids
        if self._horizon is not None and (sizes > self._horizon).any():
            steps = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            order, sizes = order[steps < self._horizon], np.minimum(sizes, self._horizon)
        return micros[order], xs[order], order, sizes

    def _values(self, key: str, micros: IntArray, xs: IntArray, numbers: IntArray) -> FloatArray:
        """The releases of a key."""
        packed = np.stack([micros, xs], axis=1)
        values = self._whole.values(key, EVERYWHERE, packed, self._identities(numbers))
        if isinstance(values, np.ndarray):
            return values
        return np.fromiter(values, np.float64, len(xs))

    def _identities(self, numbers: IntArray) -> Iterator[object]:
        yield from map(self._identity, numbers.tolist())

    def past_horizon(self) -> int:
        """How many elements have no release; before `releases`."""
        if self._horizon is None:
            return 0
        many = np.zeros(len(self._keys), dtype=np.int64)
        for keys in self._columns[0]:
            many += np.bincount(keys, minlength=len(many))
        return int(np.maximum(many - self._horizon, 0).sum())

    def _counts(
        self, bound: Bound, keys: IntArray, people: IntArray, micros: IntArray
    ) -> npt.NDArray[np.bool_]:
        """Which elements count; who they are of, and when, is public, and ties go by the id."""
        named = np.flatnonzero(people != self._people.get("", -1))

        def ties(some: IntArray) -> list[npt.NDArray[Any]]:
            return [some]

        taken = counted_rows(bound, people[named], micros[named], keys[named], ties)
        counts = np.zeros(len(keys), dtype=np.bool_)
        counts[named[taken]] = True
        return counts


def _together(parts: Sequence[Releases]) -> Releases:
    keys, *columns = zip(*parts, strict=True) if parts else [()] * len(Releases._fields)
    together: Any = pa.concat_arrays(keys) if keys else pa.array([], pa.string())
    return Releases(together, *map(_joined, columns))


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _codes(texts: pa.Array, known: dict[str, int]) -> IntArray:
    encoded = texts.dictionary_encode()
    found = [known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()]
    codes: IntArray = np.array(found, dtype=np.int64)[encoded.indices.to_numpy()]
    return codes
