"""CutWeights: the weights of all pairs of vertices, from which the value of every cut follows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.sensitivity import Change, refuse_coordinates
from beam_dpcount.statistics.base import Additions, Codes, IntArray, Statistic

NOT_AN_UPDATE = "the value is no update of a pair: neither (u, v) nor (u, v, weight)"
UNKNOWN = "the value names a vertex that is not among the vertices"
LOOP = "the value updates the pair of a vertex with itself"
NOT_A_NUMBER = "the weight is not a number"
OUT_OF_RANGE = "the weight is outside [-1, 1]"

Vertices = int | tuple[str, ...]


@dataclass(frozen=True)
class CutChange(Change):
    """The difference between streams of updates of pairs' weights, each in [-1, 1].

    Args:
      low, high: -1 and 1.
      relation: "add_remove" (default): one update is there, or its step is empty. "replace_one":
        one update is any other, of the same pair or of another one.

    Guarantee: add_remove changes one coordinate of one step by at most 1: one column of R.
      replace_one changes two coordinates of one step by at most 1 each (2 c^2), or one by at most
      2 (4 c^2): Delta_2 = 2 c and Delta_1 = 2 s, c and s the largest L2 and L1 norms of R's
      columns. That weights stay non-negative plays no part.
    """

    low: float = -1.0
    high: float = 1.0
    relation: str = "add_remove"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_coordinates(self)
        if (self.low, self.high) != (-1, 1):
            raise ValueError(f"weights lie in (-1, 1), got ({self.low:g}, {self.high:g})")

    def magnitude(self, unit: float) -> int:
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
    `weight`, from -1 to 1. What is anything else is refused and adds nothing: an unknown vertex,
    u = v, and a weight outside [-1, 1], which is not clipped, as a clipped update would leave a
    wrong weight for ever. What cuts are worth is in `beam_dpcount.cut_values`.

    Args:
      vertices: public: a sequence of distinct str, or n for the vertices 0 .. n-1; from 2.
      unit: weights are rounded to multiples of it; it divides 1. To be given to `calibrate`.

    Coordinates: the pairs in the order of the vertices, first with second, first with third, ...;
      labels "u-v". Each counts in units.

    Guarantee: see `CutChange`. That the weights never sum to less than 0 is the user's word about
      the data. The meaning of a cut rests on it; privacy does not.

    Source: [FHU22, section 5.1 and Corollary 1], whose neighbours differ in the weight of one
      update: add_remove.

    Raises:
      ValueError, TypeError: vertices are no such sequence or number, two pairs would have one
        label, or the unit does not divide 1.
    """

    vertices: Vertices
    unit: float = 0.01

    width: ClassVar[int] = 3  # both places of the pair, from 0, and the weight in units
    memory: ClassVar[None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "vertices", check_vertices(self.vertices))
        object.__setattr__(self, "unit", _check_unit(self.unit))
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(
                "two pairs of vertices have the same label, as vertices hold '-', which separates "
                "them: rename them, e.g. with _ in place of it"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The vertices as text, in their order."""
        return vertex_names(self.vertices)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{u}-{v}" for u, v in itertools.combinations(self.names, 2))

    @cached_property
    def _places(self) -> Mapping[Any, int]:
        known: Sequence[Any] = (
            range(self.vertices) if isinstance(self.vertices, int) else self.vertices
        )
        return {vertex: place for place, vertex in enumerate(known)}

    @property
    def empty(self) -> Codes:
        return (0, 0, 0)

    def read(self, payload: Any) -> tuple[Codes, str | None]:
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
        number: Any = weight
        if number != number:
            return self.empty, NOT_A_NUMBER
        if not -1 <= number <= 1:
            return self.empty, OUT_OF_RANGE
        return (min(u, v), max(u, v), round(float(number) / self.unit)), None

    def _place(self, vertex: Any) -> int | None:
        if isinstance(self.vertices, int):
            if isinstance(vertex, bool) or not isinstance(vertex, Integral):
                return None
            return self._places.get(int(vertex))
        return self._places.get(str.__str__(vertex)) if isinstance(vertex, str) else None

    def init(self) -> None:
        return None

    def step(self, memory: None, codes: Codes) -> tuple[None, Additions]:
        u, v, weight = codes
        return None, [(pair_place(len(self.names), u, v), weight)] if weight else []

    def pack(self, memory: None) -> bytes:
        return b""

    def unpack(self, data: bytes) -> None:
        if data:
            raise ValueError("cuts remember nothing, but there are bytes of it")

    def change(self, relation: str) -> CutChange:
        return CutChange(relation=relation)

    @property
    def summary(self) -> str:
        return f"weights of the {len(self.labels)} pairs of {len(self.names)} vertices"

    def all(self, memory: None, codes: IntArray) -> tuple[None, IntArray]:
        added = np.zeros((len(codes), len(self.labels)), dtype=np.int64)
        (steps,) = np.nonzero(codes[:, 2])
        u, v, weight = codes[steps].T
        added[steps, pair_place(len(self.names), u, v)] = weight
        return None, added


def check_vertices(vertices: Any) -> Vertices:
    """A number of vertices, or distinct plain strings as a tuple.

    Raises:
      TypeError, ValueError: it is something else; the message says what to pass.
    """
    example = 'give the public vertices, e.g. vertices=["ann", "bob", "cem"], or how many there are'
    if isinstance(vertices, int | np.integer) and not isinstance(vertices, bool):
        if vertices < 2:
            raise ValueError(f"a graph has at least 2 vertices, got {vertices!r}: {example}")
        return int(vertices)
    # The order must be the same in every worker and run: sets have none.
    if isinstance(vertices, str | bytes | Mapping) or not isinstance(
        vertices, Sequence | np.ndarray
    ):
        raise TypeError(
            f"vertices must be a sequence of str, or a whole number, got {vertices!r}: {example}"
        )
    for vertex in vertices:
        if not isinstance(vertex, str):
            raise TypeError(f"vertices must be a sequence of str, but holds {vertex!r}: {example}")
    names = tuple(str.__str__(vertex) for vertex in vertices)
    if len(names) < 2:
        raise ValueError(f"a graph has at least 2 vertices, got {names!r}: {example}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"vertices name {twice!r} twice: give each vertex once")
    return names


def vertex_names(vertices: Vertices) -> tuple[str, ...]:
    """The vertices as text, in their order."""
    return tuple(map(str, range(vertices))) if isinstance(vertices, int) else vertices


def pair_place(n: int, u: Any, v: Any) -> Any:
    """The coordinate of the pair of vertices u < v of n, all from 0; of arrays, of each."""
    return u * (2 * n - u - 1) // 2 + v - u - 1


def _check_unit(unit: Any) -> float:
    remedy = "give the step to which weights are rounded, e.g. unit=0.01, or 1 for whole edges"
    if isinstance(unit, bool) or not isinstance(unit, Real):
        raise TypeError(f"unit must be a number, got {unit!r}: {remedy}")
    value = float(unit)
    if not (math.isfinite(value) and 2.0**-31 <= value <= 1):
        raise ValueError(f"unit must be from 2^-31 to 1, got {unit!r}: {remedy}")
    if abs(1 / value - round(1 / value)) > 1e-6:
        raise ValueError(
            f"unit must divide 1, so that a whole edge counts 1, got {unit!r}: {remedy}"
        )
    return value
