"""CutWeights: the weights of all pairs of vertices, from which the value of every cut follows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.checks import ParameterError, check_real
from beam_dpcount.counters.change import Change
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.statistics.base import Additions, Codes, IntArray, Statistic
from beam_dpcount.statistics.vertices import (
    Vertices,
    check_vertices,
    place_of,
    vertex_names,
    vertex_places,
)

NOT_AN_UPDATE = "the value is not an update of a pair: neither (u, v) nor (u, v, weight)"
UNKNOWN = "the value names a vertex that is not among the vertices"
LOOP = "the value updates the pair of a vertex with itself"
NOT_A_NUMBER = "the weight is not a number"
OUT_OF_RANGE = "the weight is outside [-1, 1]"

MOST_VERTICES = 1000


@dataclass(frozen=True)
class CutChange(Change):
    """The difference between streams of updates of pairs' weights, each in [-1, 1].

    Args:
      relation: "add_remove" (default): one update is there, or its step is empty. "replace_one":
        one update is any other, of the same pair or of another one.
      unit: of the weights; to be given to `calibrate` too.

    Guarantee: add_remove changes one coordinate of one step by at most 1: one column of R.
      replace_one changes two coordinates of one step by at most 1 each (2 c^2), or one by at most
      2 (4 c^2): Delta_2 = 2 c and Delta_1 = 2 s, c and s the largest L2 and L1 norms of R's
      columns. That weights stay non-negative plays no part.
    """

    low: float = -1.0
    high: float = 1.0
    relation: str = "add_remove"
    unit: float = 1

    takes_coordinates = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.low, self.high) != (-1, 1):
            raise ValueError(f"weights lie in (-1, 1), got ({self.low:g}, {self.high:g})")

    def magnitude(self, unit: float) -> int:
        if unit != self.unit:
            raise ValueError(f"unit must be that of the weights, {self.unit!r}, got {unit!r}")
        return self.lattice_bounds(unit)[1]

    def norms(
        self, mechanism: Mechanism, unit: float, dimension: int | None
    ) -> tuple[Fraction, Fraction]:
        l1, l2_squared = self.column_norms(mechanism, unit)
        if self.relation == "add_remove":
            return l1, l2_squared
        # Of one pair, where R is rounded, 2 m ||R_s|| + one slack: less than twice m ||R_s|| + it.
        return 2 * l1, 4 * l2_squared

    def __str__(self) -> str:
        what = {
            "replace_one": "the pair and the weight of any one update",
            "add_remove": "whether any one update is there or its step is empty",
        }[self.relation]
        return f"{self.relation} ({what}, weights in [-1, 1])"


@dataclass(frozen=True)
class CutWeights(Statistic):
    """The weights of all unordered pairs of vertices: a private synthetic graph at every step.

    An element is (u, v), which adds 1 to the weight of the pair, or (u, v, weight), which adds
    `weight`, from -1 to 1. Anything else is refused and adds nothing: an unknown vertex, u = v, or
    a weight outside [-1, 1]. Such a weight is not clipped: that would leave a wrong sum for ever.
    `beam_dpcount.statistics.cut_values` computes cuts.

    Args:
      vertices: public: a sequence of distinct str, or n for the vertices 0 .. n-1; from 2.
      unit: weights are rounded to multiples of it; it divides 1. To be given to `calibrate`.

    Coordinates: the pairs in the order of the vertices, first with second, first with third, ...;
      labels "u-v". Each counts in units.

    Guarantee: see `CutChange`. That the weights never sum to less than 0 is the user's word about
      the data. The meaning of a cut rests on it; privacy does not.

    Source: [FHU22, section 5.1 and Corollary 1], whose relation is add_remove.

    Raises:
      ValueError, TypeError: an argument is out of range, or two pairs would have one label.
    """

    vertices: Vertices
    unit: float = 0.01

    of_pairs: ClassVar[bool] = True
    width: ClassVar[int] = 3  # both places of the pair, from 0, and the weight in units

    def __post_init__(self) -> None:
        object.__setattr__(self, "vertices", check_vertices(self.vertices))
        object.__setattr__(self, "unit", _check_unit(self.unit))
        n = self.vertices if isinstance(self.vertices, int) else len(self.vertices)
        if n > MOST_VERTICES:
            remedy = f"give at most {MOST_VERTICES:,} vertices, e.g. of groups"
            raise ValueError(f"{n:,} vertices have {n * (n - 1) // 2:,} pairs: {remedy}")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(
                "two pairs have the same label, as vertices hold '-', which separates them: rename "
                "them, e.g. with _ in its place"
            )

    @property
    def lattice_unit(self) -> float:
        return self.unit

    @cached_property
    def names(self) -> tuple[str, ...]:
        return vertex_names(self.vertices)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{u}-{v}" for u, v in itertools.combinations(self.names, 2))

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return vertex_places(self.vertices)

    @property
    def empty(self) -> Codes:
        return (0, 0, 0)

    def read(self, payload: object) -> tuple[Codes, str | None]:
        if isinstance(payload, str | bytes) or not isinstance(payload, Sequence | np.ndarray):
            return self.empty, NOT_AN_UPDATE
        parts = list(payload)
        if len(parts) not in (2, 3):
            return self.empty, NOT_AN_UPDATE
        u, v = self._place(parts[0]), self._place(parts[1])
        if u is None or v is None:
            return self.empty, UNKNOWN
        if u == v:
            return self.empty, LOOP
        weight = 1 if len(parts) == 2 else parts[2]
        if isinstance(weight, bool | np.bool_) or not isinstance(weight, Real | Decimal):
            return self.empty, NOT_A_NUMBER
        try:
            # First a plain number: another type may say anything of its own size.
            number = float(weight)
        except OverflowError:
            return self.empty, OUT_OF_RANGE
        if not -1 <= number <= 1:
            return self.empty, OUT_OF_RANGE if number == number else NOT_A_NUMBER
        return (min(u, v), max(u, v), round(number / self.unit)), None

    def _place(self, vertex: object) -> int | None:
        return place_of(vertex, self.vertices, self._places)

    def step(self, memory: None, codes: Codes) -> tuple[None, Additions]:
        u, v, weight = codes
        return None, [(pair_place(len(self.names), u, v), weight)] if weight else []

    def change(self, relation: str) -> CutChange:
        return CutChange(relation=relation, unit=self.unit)

    @property
    def summary(self) -> str:
        return f"weights of the {len(self.labels)} pairs of {len(self.names)} vertices"

    def all(self, memory: None, codes: IntArray) -> tuple[None, IntArray]:
        added = np.zeros((len(codes), len(self.labels)), dtype=np.int64)
        (steps,) = np.nonzero(codes[:, 2])
        u, v, weight = codes[steps].T
        added[steps, pair_place(len(self.names), u, v)] = weight
        return None, added


def pair_place(n: int, u: Any, v: Any) -> Any:
    """The coordinate of the pair of vertices u < v of n, all from 0; of arrays, of each."""
    return u * (2 * n - u - 1) // 2 + v - u - 1


def _check_unit(unit: object) -> float:
    remedy = "give the step to which weights are rounded, e.g. unit=0.01, or 1 for whole edges"
    value = check_real("unit", unit, remedy)
    if not 2.0**-31 <= value <= 1:
        raise ParameterError("unit", f"must be from 2^-31 to 1, got {unit!r}", remedy)
    if abs(1 / value - round(1 / value)) > 1e-6:
        problem = f"must divide 1, so that a whole edge counts 1, got {unit!r}"
        raise ParameterError("unit", problem, remedy)
    return value
