"""What one edge, or one vertex, changes in the statistics of a growing graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

from beam_dpcount.counters.active import OUTWARD, falls
from beam_dpcount.counters.change import Spread, SpreadChange
from beam_dpcount.mechanisms.base import Mechanism


@dataclass(frozen=True)
class GraphChange(SpreadChange):
    """The difference between streams of insertions into a graph.

    Args:
      relation: "edge" (default): all insertions of one unordered pair are there, or their steps
        are empty. "node": all insertions at one vertex.
      masses: for each coordinate that changes, bounds on the sums of its steps' gains and losses.
      squares: on the sum of the squares of all steps' changes; None: that of the masses'.
      alternating: how many c^2 all is at most where products of columns fall; None: not known.

    Guarantee: with P and N the masses, Q the sum of their squares and S `squares`, Delta_1 is
      (P + N) columns, and Delta_2^2 at most c^2 S + g(1) (Q - S), g(1) = `lag_bounds`, where no two
      columns of R have a negative product, else c^2 times the sum of (P + N)^2; and at most c^2
      `alternating` where products of a column with later ones never rise either. Each statistic's
      masses are proved in docs/proofs/graphs.md. Insertions are ordered and timed as they come,
      which is public, as are the vertices.

    Source: [FHU22], section 5.3, whose Corollary 3 takes the L2 norm of the change for that of its
      image under R, and fails.
    """

    relation: str = "edge"
    masses: tuple[tuple[int, int], ...] = ((1, 0),)
    squares: int | None = None
    alternating: int | None = field(default=None, repr=False)

    relations: ClassVar[tuple[str, ...]] = ("edge", "node")

    def magnitude(self, unit: float) -> int:
        """That of a typical coordinate. Any would do: what rounding adds is counted anyway."""
        squares = sum(gained**2 + lost**2 for gained, lost in self.masses)
        return super().magnitude(unit) * max(1, math.isqrt(squares // len(self.masses)))

    def spread(self, mechanism: Mechanism) -> Spread:
        column = Fraction(mechanism.l2_sensitivity_squared)
        l1, touched = sum(map(sum, self.masses)), len(self.masses)
        if not mechanism.is_nonnegative:
            return Spread(l1, column * sum(sum(pair) ** 2 for pair in self.masses), touched)
        whole = sum(gained**2 + lost**2 for gained, lost in self.masses)
        steps = whole if self.squares is None else min(self.squares, whole)
        lags = mechanism.lag_bounds(min(2, mechanism.horizon))
        apart = min(column, Fraction(lags[1])) if len(lags) > 1 else Fraction(0)
        squared = column * steps + apart * (whole - steps)
        if self.alternating is not None and falls(mechanism):
            squared = min(squared, column * self.alternating * OUTWARD)
        return Spread(l1, squared, touched)

    def __str__(self) -> str:
        what = {
            "edge": "whether any one pair of vertices is ever inserted",
            "node": "whether any one vertex's pairs are ever inserted",
        }[self.relation]
        return f"{self.relation} ({what})"
