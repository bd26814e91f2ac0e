"""What one event, or one person, changes in several sums that are counted together.

Each key has one vector of sums, all through one encoder, with a noise each of one law. Weights are
whole numbers that sums are multiplied by, so that noise stays on the lattice. Then the squares of
what an event changes in each add up: docs/proofs/aggregates.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from beam_dpcount.counters.change import Norms, Spread, TickChange, spread_norms
from beam_dpcount.counters.users import UserChange
from beam_dpcount.mechanisms.base import Mechanism


class Part(NamedTuple):
    """What one event adds to the sums of one metric, on the lattice of the noise, at most.

    Fields:
      l1, l2_squared: the norms of what it adds.
      span_squared: the square of the L2 norm of the difference of what two events add.
      touched: how many sums.
      largest: the most that it adds to one of them.
      signed: whether it may add to a sum, or take from it.
      once: whether it is only a person's first event in a key that adds.
    """

    l1: int
    l2_squared: int
    span_squared: int
    touched: int
    largest: int
    signed: bool = False
    once: bool = False


class _Joint:
    """What both changes share."""

    parts: tuple[Part, ...]
    most: int
    tested: int

    def magnitude(self, unit: float) -> int:
        """What an event adds to one sum, as a mean over those that it touches: what the lattice of
        an encoder must be fine for."""
        squared = sum(part.l2_squared for part in self.parts)
        return max(1, isqrt(squared // sum(part.touched for part in self.parts)))

    def largest(self, unit: float) -> int:
        return self.most * max(part.largest for part in self.parts)

    def shows(self, unit: float) -> int:
        return self.tested

    def _extent(self) -> str:
        return f"{len(self.parts)} metrics together"


@dataclass(frozen=True)
class JointChange(_Joint, TickChange):
    """A TickChange of one event in several metrics of its key.

    Args:
      relation, most: as for TickChange.
      parts: what an event adds to each metric; none of them `once`.
      tested: what it adds to the sum by which keys are shown; 0: there is none.
      said: all that decides what is counted, as text.

    Guarantee: with A^2 the sum of all l2_squared, Delta_2^2 = A^2 c^2. replace_one: the event
      leaves one key and tick and enters another, at most max(2 A^2, the sum of all span_squared)
      c^2 where no two columns of R have a negative product, else 4 A^2 c^2; twice Delta_1. Where R
      is rounded, each sum that is touched is rounded apart.
    """

    parts: tuple[Part, ...] = ()
    tested: int = 0
    said: str = ""

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> Norms:
        l1 = sum(part.l1 for part in self.parts)
        squared = sum(part.l2_squared for part in self.parts)
        touched = sum(part.touched for part in self.parts)
        if self.relation == "replace_one":
            spans = sum(part.span_squared for part in self.parts)
            squared = max(2 * squared, spans) if mechanism.is_nonnegative else 4 * squared
            l1, touched = 2 * l1, 2 * touched
        column = Fraction(mechanism.l2_sensitivity_squared)
        most = self.largest(unit)
        fine = mechanism.resolution(self.magnitude(unit), most)
        return spread_norms(mechanism, Spread(l1, squared * column, touched), fine, most)


@dataclass(frozen=True)
class JointUserChange(_Joint, UserChange):
    """A UserChange of all events of one person in several metrics of their keys.

    Args:
      parts, tested, said: as for JointChange; what is `once` counts a person once a key.

    Guarantee: k events in one key cost C(k) = A^2 D(k) + B^2 c^2, with A^2 the sum of l2_squared
      of the parts of each event, B^2 of those that are `once`, and D as `column_cost` has it.
      Delta_2^2 is the largest sum of C(k_i) over all allocations; twice (else four times, where
      sums go both ways) for replace_one.
    """

    takes_vectors = True

    parts: tuple[Part, ...] = ()
    tested: int = 0
    said: str = ""

    def reach(
        self,
        mechanism: Mechanism,
        unit: float,
        cost: Callable[[int], Fraction] | None = None,
    ) -> Spread:
        total, (counters, each, sides) = self.total(mechanism), self.touched(mechanism)
        every = [part for part in self.parts if not part.once]
        once = [part for part in self.parts if part.once]
        squared = sum(part.l2_squared for part in every)
        first = sum(part.l2_squared for part in once)
        column = cost or self._cost(mechanism)
        times = self._sides_cost(mechanism)
        l1 = total * sum(part.l1 for part in every) + counters * sum(part.l1 for part in once)
        touched = total * sum(part.touched for part in every)
        touched += counters * sum(part.touched for part in once)
        largest = worst_allocation(
            total, counters, each, lambda k: squared * column(k) + first * column(1)
        )
        return Spread(sides * l1, times * largest, sides * touched)

    def _of_two(self, mechanism: Mechanism) -> int:
        signed = any(part.signed for part in self.parts)
        return 2 if mechanism.is_nonnegative and not signed else 4


def worst_allocation(
    total: int, counters: int, each: int, cost: Callable[[int], Fraction]
) -> Fraction:
    """The largest sum of the costs of counters, over all allocations of events to them.

    Args:
      total: how many events there are, at most.
      counters: how many counters, at most.
      each: the most events in one.
      cost: of k events in one counter, k from 1: convex. Of none it is 0, and to that it may jump.

    So many counters with an event or more are best filled one after the other, with one event in
    each of the others. Then it is a matter of how many there are.
    """
    counters = min(counters, total)
    full, one, best = cost(each), cost(1), Fraction(0)
    for m in range(1, counters + 1):
        more = min(total, m * each) - m  # beyond the first event of each
        if each == 1 or not more:
            best = max(best, m * one)
            continue
        n, rest = divmod(more, each - 1)
        found = n * full + (m - n) * one
        if rest:
            found += cost(1 + rest) - one
        best = max(best, found)
    return best
