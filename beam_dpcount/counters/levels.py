"""What one event, or all events of one person, change in all levels of a tree of keys together.

A level's sums are multiplied by its weight, a whole number, so that all nodes have noise of one
law. An event counts in one node of each level. So the squares of what it changes add up over the
levels, each at its worst: an upper bound where no allocation of events is the worst of them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import isqrt
from typing import Any, ClassVar

from beam_dpcount.counters.change import Norms, Spread, TickChange, spread_norms
from beam_dpcount.counters.hierarchy import Hierarchy
from beam_dpcount.counters.users import UserChange
from beam_dpcount.mechanisms.base import Mechanism


class _Levels:
    """What both changes share."""

    weights: tuple[int, ...]
    most: int

    # Under Laplace noise the L1 norms of levels add up, and what parents gain the leaves pay twice.
    laws: ClassVar[frozenset[str]] = frozenset({"gaussian"})

    def magnitude(self, unit: float) -> int:
        """What an event adds to the sum of a level, as a mean over the levels."""
        squared = sum(weight * weight for weight in self.weights)
        return max(1, self.of_one(unit) * isqrt(squared // len(self.weights)))

    def largest(self, unit: float) -> int:
        return self.most * self.of_one(unit) * max(self.weights)

    def of_one(self, unit: float) -> int:
        """The most that one event counts, on the lattice."""
        change: Any = self
        low, high = change.lattice_bounds(unit)
        return max(abs(int(low)), abs(int(high)))


@dataclass(frozen=True)
class LevelsChange(_Levels, TickChange):
    """A TickChange of one event in one node of each level.

    Args:
      weights: of the levels, from the root on.

    Guarantee: with w the weights and m the most that an event counts, Delta_2^2 is c^2 m^2 times
      the sum of w^2, and Delta_1 is m times the sum of w, times an encoder's. replace_one: at each
      level it is as for TickChange.
    """

    weights: tuple[int, ...] = (1,)

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> Norms:
        (low, high), m, times, sides = self.lattice_bounds(unit), self.of_one(unit), Fraction(1), 1
        if self.relation == "replace_one":
            apart = Fraction(max(high, 0) - min(low, 0), m) ** 2
            times = max(Fraction(2), apart) if mechanism.is_nonnegative else Fraction(4)
            sides = 2
        squared = sum(weight * weight for weight in self.weights)
        column = Fraction(mechanism.l2_sensitivity_squared)
        touched = sides * sum(weight > 0 for weight in self.weights)
        reach = Spread(sides * m * sum(self.weights), times * m * m * squared * column, touched)
        most = self.largest(unit)
        fine = mechanism.resolution(self.magnitude(unit), most)
        return spread_norms(mechanism, reach, fine, most)

    def _extent(self) -> str:
        return f"{super()._extent()}, at {len(self.weights)} levels"


@dataclass(frozen=True)
class LevelsUserChange(_Levels, UserChange):
    """A UserChange of all events of one person that count, each in one node of each level.

    Args:
      weights: as for LevelsChange.
      bounds: of each level, in how many nodes a person's events are, and how many in one.

    Guarantee: Delta_2^2 is the sum over levels of w^2 times what `UserChange` has for the level's
      own bounds: k events in one root cost k^2, and in k leaves k.
    """

    takes_vectors = True

    weights: tuple[int, ...] = (1,)
    bounds: tuple[tuple[int, int], ...] = ((1, 1),)

    def reach(
        self,
        mechanism: Mechanism,
        unit: float,
        cost: Callable[[int], Fraction] | None = None,
    ) -> Spread:
        l1, squared, touched = 0, Fraction(0), 0
        for level, weight in zip(levels_of(self, self.bounds), self.weights, strict=True):
            one = level.reach(mechanism, unit, cost)
            l1 += weight * one.l1
            squared += weight * weight * one.l2_squared
            touched += one.touched * (weight > 0)
        return Spread(l1, squared, touched)

    def _extent(self) -> str:
        return f"{super()._extent()}, at {len(self.weights)} levels"


def bounds_of(tree: Hierarchy, change: UserChange, windows: int = 1) -> tuple[tuple[int, int], ...]:
    """In how many nodes of each level a person's events are, and how many in one, at most.

    Args:
      tree: of the nodes.
      change: of a person at the leaves.
      windows: how many there are of each node, where a count starts anew.
    """
    total = min(change.events, change.keys * change.per_key)
    found = []
    for size, beneath in zip(tree.sizes, tree.beneath, strict=True):
        leaves = min(int(beneath.max()), change.keys)
        found.append((min(change.keys, size * windows), min(total, leaves * change.per_key)))
    return tuple(found)


def norms_of_levels(
    change: UserChange, bounds: tuple[tuple[int, int], ...], mechanism: Mechanism, unit: float
) -> list[float]:
    """Squared L2 norms of what a person changes at each level, unweighted."""
    reaches = (one.reach(mechanism, unit) for one in levels_of(change, bounds))
    return [float(reach.l2_squared) for reach in reaches]


def levels_of(change: UserChange, bounds: tuple[tuple[int, int], ...]) -> list[UserChange]:
    """What a person changes at each level, unweighted."""
    names = {one.name for one in fields(UserChange)}
    given: dict[str, Any] = {name: getattr(change, name) for name in names}
    given["events"] = min(change.events, change.keys * change.per_key)
    plain = UserChange(**given)
    return [replace(plain, keys=keys, per_key=each) for keys, each in bounds]
