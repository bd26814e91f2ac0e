"""How far one letter reaches among episodes: pure counting, proved in docs/proofs/sequences.md.

A letter `old` becomes `new`; one of them may be empty. What an episode w_1 .. w_m counts then
changes only at the steps of positions m = j_0 > j_1 > ... of w, at most one step each, by 1. A
position's mark is -1 if its letter is old, 1 if new, and 0 for other letters, or where the past
makes no difference; for w_1 it always does. (1) The change at a position is its mark; or if that is
0, the mark of the position before it in this order, negated; and without a limit on spans it is 0
where both marks are equal. (2) If j < m has a step, w_(j+1) is not after w_j in the order in which
the letters come next in the stream, one order for all episodes. The bounds here are the most over
all choices that (1) and (2) allow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, product
from math import comb
from typing import NamedTuple

import numpy as np

from beam_dpcount.statistics.base import IntArray

OTHER = 0  # any letter that is neither old nor new
OLD, NEW = -1, 1  # marks
LONGEST = 8  # longer episodes are bounded by how many of their letters are old or new, alone
ORDERED = 5  # up to this length all episodes are bounded together, for each order of the letters


class Reach(NamedTuple):
    """Bounds on what changes, summed over episodes: P steps gain 1, and N lose 1."""

    l1: int = 0  # on P + N
    l1_squares: int = 0  # on (P + N)^2
    squares: int = 0  # on P^2 + N^2
    touched: int = 0  # on the number of episodes

    def plus(self, other: Reach, times: int = 1) -> Reach:
        return Reach(*(a + times * b for a, b in zip(self, other, strict=True)))


# Where choices may have led: the last mark, the letters since a position without a step, N and P.
_States = frozenset[tuple[int, tuple[int, ...], int, int]]
_START: _States = frozenset({(0, (), 0, 0)})


@lru_cache(maxsize=2**16)
def reach(
    word: tuple[int, ...], marks: tuple[int, ...], limited: bool, ordered: bool = False
) -> Reach:
    """What one episode changes.

    Args:
      word: its letters, from 1; OTHER is any other.
      marks: OLD, NEW or 0, for each letter.
      limited: whether there is a limit on spans.
      ordered: whether the letters come next in the order of their numbers, or in any order.
    """
    if not any(marks):
        return Reach()
    if len(word) > LONGEST:
        return _reach_of_counts(len(word), sum(map(abs, marks)), limited)
    states = _START
    for letter, mark in zip(word[:0:-1], marks[:0:-1], strict=True):
        states = _advance(states, letter, mark, limited, ordered)
    return _most(_advance(states, word[0], marks[0], limited, ordered, first=True))


def reach_of_all(letters: int, longest: int, replaces: bool, limited: bool) -> Reach:
    """What all episodes of 1 to `longest` letters change, `letters` in the domain."""
    pairs = [False, True] if replaces and letters > 1 else [False]
    return _fieldwise_max(
        _reach_in_order(letters, min(longest, ORDERED), pair, limited).plus(
            _reach_of_longer(letters, longest, pair, limited)
        )
        for pair in pairs
    )


def reach_of_dictionary(words: Sequence[tuple[int, ...]], replaces: bool, limited: bool) -> Reach:
    """What the episodes of a dictionary change, for the worst letter or pair of letters."""
    alone: defaultdict[int, Reach] = defaultdict(Reach)
    together: defaultdict[tuple[int, int], Reach] = defaultdict(Reach)
    for word in words:
        names: dict[int, int] = {}
        named = tuple(names.setdefault(letter, len(names) + 1) for letter in word)

        def marked(
            *which: int, word: Sequence[int] = word, named: tuple[int, ...] = named
        ) -> Reach:
            signs = dict(zip(which, (OLD, NEW), strict=False))
            return reach(named, tuple(signs.get(letter, 0) for letter in word), limited)

        single = {a: marked(a) for a in sorted(names)}
        for a, one in single.items():
            alone[a] = alone[a].plus(one)
        for a, b in combinations(single, 2):  # what the two do together but not one by one
            more = marked(a, b).plus(single[a], -1).plus(single[b], -1)
            together[a, b] = together[a, b].plus(more)
    return Reach(
        *(
            _largest(
                {a: one[field] for a, one in alone.items()},
                {ab: more[field] for ab, more in together.items()} if replaces else None,
            )
            for field in range(len(Reach._fields))
        )
    )


def _advance(
    states: _States, letter: int, mark: int, limited: bool, ordered: bool, first: bool = False
) -> _States:
    """From a position to the one before it, which has a step or not, and its mark or 0."""
    fronts: defaultdict[tuple[int, tuple[int, ...]], set[tuple[int, int]]] = defaultdict(set)
    for before, run, minus, plus in states:
        if run:  # no step; the last letter always has one
            fronts[before, (letter,)].add((minus, plus))
        joined = _join(run, letter, ordered)
        if joined is None:
            continue
        for chosen in {mark} if first else {0, mark}:
            change = 0 if chosen == before and not limited else chosen or -before
            fronts[chosen, joined].add((minus + (change < 0), plus + (change > 0)))
    return frozenset((*key, *pair) for key, front in fronts.items() for pair in _undominated(front))


def _join(run: tuple[int, ...], letter: int, ordered: bool) -> tuple[int, ...] | None:
    """The letters since a position without a step, if they may be followed by this one."""
    if ordered:
        return None if run and run[-1] > letter else (letter,)
    if run[-1:] == (letter,):
        return run
    if letter == OTHER:
        return (*(x for x in run if x != OTHER), OTHER)
    return None if letter in run else (*run, letter)


def _undominated(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of which no other has as much of both: only they can lead to the most."""
    kept: list[tuple[int, int]] = []
    for pair in sorted(pairs, reverse=True):
        if not kept or pair[1] > kept[-1][1]:
            kept.append(pair)
    return kept


def _most(states: _States) -> Reach:
    pairs = [(minus, plus) for _, _, minus, plus in states]
    l1 = max(minus + plus for minus, plus in pairs)
    return Reach(l1, l1**2, max(minus**2 + plus**2 for minus, plus in pairs), 1)


def _reach_of_counts(length: int, reaching: int, limited: bool) -> Reach:
    """A bound from how many letters are old or new, each of which changes two steps at most."""
    l1 = min(length, 2 * reaching)
    more = min(reaching, l1) if limited else (l1 + 1) // 2
    return Reach(l1, l1**2, more**2 + (l1 - more) ** 2, 1)


def _reach_in_order(letters: int, longest: int, pair: bool, limited: bool) -> Reach:
    """All episodes of up to `longest` letters, for the worst places of old and new in the order."""
    others = letters - 2 if pair else letters - 1
    spots = np.arange(others + 1 if longest > 1 else 1)
    lower, upper = np.meshgrid(spots, spots) if pair else (spots, spots)
    # How many other letters come before the lower of old and new, between them, and after both.
    below, between = lower[lower <= upper], (upper - lower)[lower <= upper]
    above = others - below - between
    total = np.zeros((len(Reach._fields), len(below)), dtype=np.int64)
    for length in range(1, longest + 1):
        for places, many in _patterns(length, pair, limited).items():
            if len(places) == 3:
                ways = _choices(below, places[0]) * _choices(between, places[1])
                ways = ways * _choices(above, places[2])
            else:
                ways = _choices(below, places[0]) * _choices(between + above, places[1])
                if pair:
                    ways += _choices(below + between, places[0]) * _choices(above, places[1])
            total += np.outer(many, ways)
    return Reach(*total.max(axis=1).tolist())


@lru_cache(maxsize=64)
def _patterns(length: int, pair: bool, limited: bool) -> dict[tuple[int, ...], Reach]:
    """What all words of a length change, by how many of their other letters come where.

    That is, before and after the one that is old or new; of both, before, between and after.
    """
    found: defaultdict[tuple[int, ...], Reach] = defaultdict(Reach)
    for distinct in range(1, length + 1):
        for word in product(range(1, distinct + 1), repeat=length):
            if len(set(word)) < distinct:
                continue
            for a in range(1, distinct + 1):
                one = reach(word, tuple(OLD * (x == a) for x in word), limited, ordered=True)
                found[a - 1, distinct - a] = found[a - 1, distinct - a].plus(one)
                for b in range(a + 1, distinct + 1) if pair else ():
                    marks = tuple(OLD * (x == a) + NEW * (x == b) for x in word)
                    places = (a - 1, b - a - 1, distinct - b)
                    found[places] = found[places].plus(reach(word, marks, limited, ordered=True))
    return dict(found)


def _choices(n: IntArray, k: int) -> IntArray:
    """Binomial coefficients of n over k."""
    ways = np.ones_like(n)
    for i in range(k):
        ways = ways * (n - i) // (i + 1)
    return ways


def _reach_of_longer(letters: int, longest: int, pair: bool, limited: bool) -> Reach:
    """All episodes of more than ORDERED letters, each by itself."""
    marks = {OLD: 1, NEW: 1, 0: letters - 2} if pair else {OLD: 1, 0: letters - 1}
    names = {OLD: 1, NEW: 2, 0: OTHER}
    total, layer = Reach(), Counter({_START: 1})
    for length in range(1, longest + 1):
        if length > LONGEST:
            for n in range(1, length + 1):
                times = comb(length, n) * (len(marks) - 1) ** n * marks[0] ** (length - n)
                total = total.plus(_reach_of_counts(length, n, limited), times)
            continue
        following: Counter[_States] = Counter()
        for states, times in layer.items():
            for mark, number in marks.items():
                if length > ORDERED:
                    ended = _advance(states, names[mark], mark, limited, False, first=True)
                    total = total.plus(_most(ended), times * number)
                following[_advance(states, names[mark], mark, limited, False)] += times * number
        layer = following
        if length > ORDERED:  # words that hold neither were counted, with changes of 0
            total = total._replace(touched=total.touched - marks[0] ** length)
    return total


def _fieldwise_max(reaches: Iterable[Reach]) -> Reach:
    return Reach(*map(max, zip(*reaches, strict=True)))


def _largest(alone: Mapping[int, int], together: Mapping[tuple[int, int], int] | None) -> int:
    """The most that one letter, or where `together` is given two, sum up to."""
    most = max(alone.values())
    if together is None:
        return most
    for (a, b), more in together.items():
        most = max(most, alone[a] + alone[b] + more)
    order = sorted(alone, key=alone.__getitem__, reverse=True)
    for place, a in enumerate(order):
        for b in order[place + 1 :]:
            if alone[a] + alone[b] <= most:
                break
            if (min(a, b), max(a, b)) not in together:
                most = alone[a] + alone[b]
                break
    return most
