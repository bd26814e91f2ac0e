"""Which rows of each person count, of all rows at once: the rule of `Bound.take`, in columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.mechanisms.base import IntArray

Ties = Callable[[IntArray], Sequence[npt.NDArray[Any]]]


class Group(NamedTuple):
    """Rows of some people.

    Fields:
      whose: texts, each once; None where nobody asks for them.
      codes: whose each row is, as its place among them; with periods that are bounded apart,
        number of periods * place + period.
      micros: their times.
      names: their keys, as codes from 0: number of keys * count of the clock + place of the key.
    """

    whose: pa.Array | None
    codes: IntArray
    micros: IntArray
    names: IntArray


def counted_rows(
    bound: Bound, people: IntArray, micros: IntArray, names: IntArray, ties: Ties
) -> IntArray:
    """The numbers of the rows that count, as `Bound.take` lets them through by time.

    Rows of one time are taken as their parcels sort.

    Args:
      bound: the rule.
      people: whose the rows are, as codes from 0.
      micros: their times.
      names: their keys, as codes from 0.
      ties: by what some rows of one time are sorted, as `np.lexsort` has its keys.
    """
    order = _by_person_and_time(people, micros, ties)
    people, names = people[order], names[order]
    if bound.gap:
        return order[_greedy(bound, people, micros[order], names)]
    # Without a gap, what is beyond the bound of a key never counts, whatever else does.
    if min(bound.per_key, bound.keys) < bound.events:
        left = _within_keys(bound, people, names)
        order, people = order[left], people[left]
    return order[_ranks(people) < bound.events]


def _by_person_and_time(people: IntArray, micros: IntArray, ties: Ties) -> IntArray:
    """The rows by person, then time, then contents."""
    if not len(people):
        return np.zeros(0, dtype=np.int64)
    first = int(micros.min())
    span = int(micros.max()) - first + 1
    if (int(people.max()) + 1) * span >= 1 << 63:
        return np.lexsort((*ties(np.arange(len(people))), micros, people))
    both = people * span + (micros - first)  # one column sorts in a quarter of the time
    order = np.argsort(both)
    both = both[order]
    same = both[1:] == both[:-1]
    if not same.any():
        return order
    tied = np.zeros(len(order), dtype=np.bool_)
    tied[1:] |= same
    tied[:-1] |= same
    some = order[tied]
    order[tied] = some[np.lexsort((*ties(some), both[tied]))]
    return order


def firsts_of(people: IntArray, names: IntArray) -> npt.NDArray[np.bool_]:
    """Which rows are the first of their person under a name."""
    _, places = np.unique(_pairs(people, names), return_index=True)
    firsts = np.zeros(len(people), dtype=np.bool_)
    firsts[places] = True
    return firsts


def _pairs(people: IntArray, names: IntArray) -> IntArray:
    """A code of each person and name, that sorts as both do."""
    if (int(people.max(initial=0)) + 1) * (int(names.max(initial=0)) + 1) >= 1 << 63:
        people, names = (np.unique(codes, return_inverse=True)[1] for codes in (people, names))
    return np.asarray(people * (int(names.max(initial=0)) + 1) + names, dtype=np.int64)


def _within_keys(bound: Bound, people: IntArray, names: IntArray) -> IntArray:
    """Of rows sorted by person and time, those within the bounds on keys, in that order."""
    pairs = _pairs(people, names)
    order = np.argsort(pairs, kind="stable")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = _ranks(pairs[order])
    left = ranks < bound.per_key
    if bound.keys < bound.events:
        firsts = np.flatnonzero(ranks == 0)
        taken = pairs[firsts[_ranks(people[firsts]) < bound.keys]]
        left &= np.isin(pairs, taken)
    return np.flatnonzero(left)


def _ranks(sorted_codes: IntArray) -> IntArray:
    """The place of each among those equal to it, from 0; equal ones stand together."""
    starts = np.flatnonzero(np.diff(sorted_codes, prepend=-1))
    lengths = np.diff(starts, append=len(sorted_codes))
    ranks: IntArray = np.arange(len(sorted_codes)) - np.repeat(starts, lengths)
    return ranks


def _greedy(bound: Bound, people: IntArray, micros: IntArray, names: IntArray) -> IntArray:
    """The same where events must lie apart: whether one does depends on all that count before."""
    left, person, seen = list[int](), -1, Seen()
    rows = zip(people.tolist(), micros.tolist(), names.tolist(), strict=True)
    for place, (who, at, name) in enumerate(rows):
        if who != person:
            person, seen = who, Seen()
        if bound.take(seen, (name,), at):
            left.append(place)
    return np.array(left, dtype=np.int64)
