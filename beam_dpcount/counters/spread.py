"""Changes of one event that reach several steps and several coordinates of the counted streams.

The columns of R that such a change hits are not orthogonal, so its norm through R is no multiple of
one column's. For the difference d of one scalar stream, with c the largest L2 norm of a column:
||R d||_2 <= c ||d||_1 always, and ||R d||_2^2 <= c^2 (P^2 + N^2) where no two columns have a
negative product, P and N the positive and the negative mass of d.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from beam_dpcount.counters.change import Change, refuse_coordinates
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.mechanisms.rounded import round_up


class Spread(NamedTuple):
    """Bounds on what one event changes in x, all coordinates and steps together.

    Fields:
      l1: on the sum of the absolute changes of x.
      l2_squared: on ||R d||_2^2, for this mechanism, before any rounding.
      touched: on the number of coordinates that change at all.
    """

    l1: int
    l2_squared: Fraction
    touched: int


@dataclass(frozen=True)
class SpreadChange(Change):
    """What one event does to a statistic; each statistic has its own.

    Args:
      low, high: bounds on what one element adds to one coordinate.

    Guarantee: the norms are those of all coordinates' streams together, each with its own noise of
      one law. Where R is rounded, each coordinate that changes is rounded apart.
    """

    @abstractmethod
    def spread(self, mechanism: Mechanism) -> Spread:
        """How far the change reaches through this mechanism's encoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_coordinates(self)

    def magnitude(self, unit: float) -> int:
        """1: the least change there may be, which the lattice is fine enough for."""
        if unit != 1:
            raise ValueError(f"statistics are whole numbers, unit must be 1, got {unit!r}")
        return 1

    def largest(self, unit: float) -> int:
        low, high = self.lattice_bounds(unit)
        return max(abs(low), abs(high))

    def norms(
        self, mechanism: Mechanism, unit: float, dimension: int | None
    ) -> tuple[Fraction, Fraction]:
        reach, most = self.spread(mechanism), self.largest(unit)
        fine = mechanism.resolution(self.magnitude(unit), most)
        l1 = fine * reach.l1 * Fraction(mechanism.l1_sensitivity)
        column = Fraction(mechanism.l2_sensitivity_squared)
        l2_squared = fine**2 * min(reach.l2_squared, reach.l1**2 * column)
        slack_l1, slack_l2 = mechanism.slack(most * fine)
        if slack_l2 == 0:
            return l1, l2_squared
        l2 = math.sqrt(l2_squared) + math.sqrt(reach.touched) * slack_l2
        whole = Fraction(round_up(float(l1) + reach.touched * slack_l1))
        return whole, Fraction(round_up(l2)) ** 2


def of_masses(mechanism: Mechanism, positive: int, negative: int) -> Fraction:
    """A bound on ||R d||_2^2 for one stream, from the positive and the negative mass of d."""
    column = Fraction(mechanism.l2_sensitivity_squared)
    if mechanism.is_nonnegative:
        return column * (positive**2 + negative**2)
    return column * (positive + negative) ** 2
