"""Columns of elements, each of which takes a step of its key: a release after every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


class Whole(NamedTuple):
    """The releases of one key, of its first steps up to the horizon, and their times."""

    key: str
    micros: IntArray
    values: FloatArray
    stddevs: FloatArray


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
        self._columns: list[list[IntArray]] = []

    def add(self, elements: Elements) -> None:
        """Takes elements; their ids come after those of all before."""
        keys, people, micros, xs = elements
        named = np.zeros(len(xs), dtype=np.int64)
        if self._bound is not None and people is not None:
            named = _codes(pc.fill_null(people, ""), self._people)
        self._columns.append([_codes(keys, self._keys), named, micros, xs])

    def releases(self) -> Iterator[Whole]:
        """All releases, by key."""
        if not self._columns:
            return
        keys, people, micros, xs = map(np.concatenate, zip(*self._columns, strict=True))
        self._columns = []
        if self._bound is not None:
            xs[~self._counts(self._bound, keys, people, micros)] = 0
        order = np.lexsort((micros, keys))  # ties stay in the order of ids
        ends = np.searchsorted(keys[order], np.arange(len(self._keys) + 1))
        for key in sorted(self._keys):
            code = self._keys[key]
            rows = order[ends[code] : ends[code + 1]][: self._horizon]
            packed = np.stack([micros[rows], xs[rows]], axis=1)
            identities = map(self._identity, rows.tolist())
            values = self._whole.values(key, EVERYWHERE, packed, identities)
            found = np.fromiter(values, np.float64, len(rows))
            stddevs = np.fromiter(self._whole.stddevs(len(rows)), np.float64, len(rows))
            yield Whole(key, packed[:, 0], found, stddevs)

    def past_horizon(self) -> int:
        """How many elements have no release; before `releases`."""
        if self._horizon is None or not self._columns:
            return 0
        many = np.bincount(np.concatenate([columns[0] for columns in self._columns]))
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


def _codes(texts: pa.Array, known: dict[str, int]) -> IntArray:
    encoded = texts.dictionary_encode()
    found = [known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()]
    codes: IntArray = np.array(found, dtype=np.int64)[encoded.indices.to_numpy()]
    return codes
