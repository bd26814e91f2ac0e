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
from beam_dpcount.lanes.windows import EVERYWHERE
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.states.whole_keys import WholeKey


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
      values, stddevs: what is released.
    """

    keys: pa.Array
    steps: IntArray
    micros: IntArray
    values: FloatArray
    stddevs: FloatArray


# Of the releases of a key: it, how many are before these, their times and values.
_Part = tuple[str, int, IntArray, FloatArray]


class ElementsLane:
    """Counts elements of one number each, and then releases key after key.

    Args:
      whole: what releases a key.
      horizon: the most releases of one.
      bound: of people's elements: others count 0, and take their step. None: they are not bounded.
      identity: the public id of the element with this number, in the order in which they came.
    """

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
        added = _codes(keys, self._keys).astype(np.int32), named, micros, xs
        for column, more in zip(self._columns, added, strict=True):
            column.append(more)

    def releases(self, most: int) -> Iterator[Releases]:
        """All releases, in columns of `most` rows but for the last, which may be empty.

        They are made when they are asked for.
        """
        parts, room, cut = list[_Part](), most, False
        for key, micros, values in self._by_key():
            first = 0
            while first < len(values):
                some = slice(first, first + room)
                parts.append((key, first, micros[some], values[some]))
                room -= len(parts[-1][-1])
                first = some.stop
                if not room:
                    yield self._together(parts)
                    parts, room, cut = [], most, True
        if parts or not cut:
            yield self._together(parts)

    def _by_key(self) -> Iterator[tuple[str, IntArray, FloatArray]]:
        """Each key, in order, with the times and values of its releases."""
        columns = []
        while self._columns:  # the parts of one are gone before the next is joined
            columns.append(_joined(self._columns.pop(0)))
        keys, people, micros, xs = columns
        if self._bound is not None:
            xs[~self._counts(self._bound, keys, people, micros)] = 0
        del people
        # Numbers of 16 bits sort in a tenth of the time.
        order = np.argsort(keys.astype(np.min_scalar_type(len(self._keys))), kind="stable")
        many = np.bincount(keys, minlength=len(self._keys))
        del keys
        ends, longest = np.cumsum(many), int(many.max(initial=0))
        if self._horizon is not None:
            longest = min(longest, self._horizon)
        self._stddevs = np.fromiter(self._whole.stddevs(longest), np.float64, longest)
        for key in sorted(self._keys):
            code = self._keys[key]
            rows = order[ends[code] - many[code] : ends[code]]
            at = micros[rows]
            if (at[1:] < at[:-1]).any():  # ties stay in the order of ids
                rows = rows[np.argsort(at, kind="stable")]
            rows = rows[: self._horizon]
            packed = np.stack([micros[rows], xs[rows]], axis=1)
            values = self._whole.values(key, EVERYWHERE, packed, self._identities(rows))
            if not isinstance(values, np.ndarray):
                values = np.fromiter(values, np.float64, len(rows))
            yield key, packed[:, 0], values

    def _identities(self, rows: IntArray) -> Iterator[object]:
        yield from map(self._identity, rows.tolist())

    def _together(self, parts: Sequence[_Part]) -> Releases:
        keys, firsts, micros, values = zip(*parts, strict=True) if parts else ((), (), (), ())
        lengths = [*map(len, values)]
        steps = _joined([np.arange(n) + first for first, n in zip(firsts, lengths, strict=True)])
        names = pa.array(np.repeat(np.arange(len(keys)), lengths))
        columns = _joined(micros), _joined(values), self._stddevs[steps]
        return Releases(pa.array(keys, pa.string()).take(names), steps + 1, *columns)

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


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


def _codes(texts: pa.Array, known: dict[str, int]) -> IntArray:
    encoded = texts.dictionary_encode()
    found = [known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()]
    codes: IntArray = np.array(found, dtype=np.int64)[encoded.indices.to_numpy()]
    return codes
