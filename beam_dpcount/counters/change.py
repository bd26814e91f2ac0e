"""What one protected event can change in a counted stream, and so in Rx.

Values are in the user's units unless they are said to be on the lattice.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

from beam_dpcount.checks import ParameterError, check_real
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.mechanisms.rounded import round_up

RELATIONS = ("replace_one", "add_remove")
TOO_FINE = "{unit!r} divides the bounds {bounds} into more than 2^31 parts"
TOO_COARSE = "{unit!r} rounds every value within {bounds} to 0"
Norms = tuple[Fraction, Fraction]  # an L1 norm, and the square of an L2 norm


@dataclass(frozen=True)
class Change:
    """The difference that neighbouring streams may have: any one step, within the bounds.

    Args:
      low, high: values are clipped to [low, high]; finite, low < high.
      relation: "replace_one": the content of one element is anything else. "add_remove": one
        element is there, or its step is empty (counts 0). Both are the same for low = 0.
      coordinates: for vector streams, in how many coordinates of the step neighbours differ;
        None is all of them. It is the caller's word: nothing enforces it.

    Guarantee: an element that is rejected counts 0, so 0 belongs to the values that replace_one
      ranges over, whether or not the bounds contain it.

    Raises:
      ValueError, TypeError: an argument is outside its range; the message says which.
    """

    low: float = 0.0
    high: float = 1.0
    relation: str = "replace_one"
    coordinates: int | None = None

    relations: ClassVar[tuple[str, ...]] = RELATIONS
    takes_coordinates: ClassVar[bool] = True  # False: other fields say what an event touches
    laws: ClassVar[frozenset[str]] = frozenset({"laplace", "gaussian"})  # of noise that it takes
    meanings: ClassVar[Mapping[str, str]] = {
        "replace_one": "the content of any one element",
        "add_remove": "whether any one element counts or not",
    }

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            given, remedy = getattr(self, name), "give e.g. bounds=(0, 1)"
            bound = check_real(name, given, remedy)
            if not math.isfinite(bound):
                raise ValueError(f"{name} must be finite, got {given!r}: {remedy}")
            # A plain float: values are divided by the unit in the same precision as bounds.
            object.__setattr__(self, name, bound)
        if not self.low < self.high:
            problem = f"bounds must satisfy low < high, got ({self.low!r}, {self.high!r})"
            raise ValueError(f"{problem}: values are clipped to them, e.g. bounds=(0, 1)")
        if self.relation not in self.relations:
            known = ", ".join(self.relations)
            raise ValueError(f"neighbouring relation must be one of {known}, got {self.relation!r}")
        if self.coordinates is not None:
            _check_count("coordinates", self.coordinates)
            if not self.takes_coordinates:
                raise ValueError("other fields say what an event touches: leave coordinates out")

    def lattice_bounds(self, unit: float) -> tuple[int, int]:
        """The bounds in multiples of `unit`, rounded as values are rounded."""
        return round(self.low / unit), round(self.high / unit)

    def magnitude(self, unit: float) -> int:
        """The most that one coordinate of one step can change, on the lattice."""
        low, high = self.lattice_bounds(unit)
        if self.relation == "add_remove":
            return max(abs(low), abs(high))
        return max(high, 0) - min(low, 0)

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> Norms:
        """Delta_1 and the square of Delta_2 of what is noised under this change.

        In each of `coordinates` coordinates one step changes by at most `magnitude`, and Rx by
        that multiple of a column of R. In steps of the noise's lattice: unit / resolution.
        """
        touched = min(dimension or 1, self.coordinates or dimension or 1)
        l1, l2_squared = self.column_norms(mechanism, unit)
        return touched * l1, touched * l2_squared

    def largest(self, unit: float) -> int:
        """A bound on the absolute values that are counted, on the lattice."""
        return self.magnitude(unit)

    def column_norms(self, mechanism: Mechanism, unit: float) -> Norms:
        """`norms` of a change in one coordinate of one step."""
        m, most = self.magnitude(unit), self.largest(unit)
        fine = mechanism.resolution(m, most)
        return mechanism.norms(m * fine, most * fine)

    @property
    def for_element(self) -> int:
        """How many such changes lead from one element's contents to none.

        2 where a change is of all insertions of an edge or vertex: they are taken out, and then the
        others' put back.
        """
        return 1 if self.relation in RELATIONS else 2

    @property
    def spacing(self) -> int:
        """By how many steps changes of one counter are apart, at least, if there are several; or 0.

        0 where only one step changes, and where several changes may be of one step.
        """
        return 0

    @property
    def person(self) -> str:
        """Whose events are protected, in words; empty where it is one event."""
        return ""

    def event_cost(self, mechanism: Mechanism) -> int:
        """How many times the cost of this change, in rho, one event's may be; 1 if it is that."""
        return 1

    def __str__(self) -> str:
        return f"{self.relation} ({self.meanings[self.relation]}, {self._extent()})"

    def _extent(self) -> str:
        some = "" if self.coordinates is None else f", in at most {self.coordinates} coordinates"
        return f"values in [{self.low:g}, {self.high:g}]{some}"


class Touched(NamedTuple):
    """Counters in which neighbours at a clock differ, for what may show a key."""

    counters: int  # the most that count what is there on one side only
    each: int  # the most events that are in one of them
    sides: int = 1  # 2: as many others may have what is there on the other side only


@dataclass(frozen=True)
class TickChange(Change):
    """The difference between streams of events that are counted at the ticks of a public clock.

    Args:
      low, high: an event's number is clipped to [low, high].
      relation: "add_remove" (default): one event is there, or not. "replace_one": its number, its
        time and its key are anything else. It then leaves one key and tick and enters others,
        which costs up to twice as much.
      max_items: in how many keys an event counts, at most.
      most: sums of a key's events in one tick are clipped to this many times the largest value.

    Guarantee: clipping a sum does not make it change by more. Norms are of all keys' streams
      together, each with its own noise of one law.
    """

    relation: str = "add_remove"
    max_items: int = 1
    most: int = 1 << 20

    takes_coordinates = False
    meanings: ClassVar[Mapping[str, str]] = {
        "replace_one": "what, when and under which key any one event counts",
        "add_remove": "whether any one event happened",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("max_items", self.max_items)
        _check_count("most", self.most)

    def largest(self, unit: float) -> int:
        return self.most * self.magnitude(unit)

    def magnitude(self, unit: float) -> int:
        low, high = self.lattice_bounds(unit)
        return max(abs(low), abs(high))

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> Norms:
        if dimension is not None:
            raise ValueError("at ticks each key counts single numbers: leave dimension out")
        l1, l2_squared = (self.max_items * norm for norm in self.column_norms(mechanism, unit))
        if self.relation == "add_remove":
            return l1, l2_squared
        # v R_s - w R_u, |v|, |w| <= m: at most 2 m^2 c^2 squared in two keys, or in one where
        # columns have no negative products and v, w one sign; with two signs (|v| + |w|)^2 c^2.
        (low, high), m = self.lattice_bounds(unit), self.magnitude(unit)
        apart = Fraction(max(high, 0) - min(low, 0), m) ** 2
        return 2 * l1, l2_squared * (max(Fraction(2), apart) if mechanism.is_nonnegative else 4)

    def shows(self, unit: float) -> int:
        """The most that one event changes what shows a key, on the lattice."""
        return self.magnitude(unit)

    def touched(self, mechanism: Mechanism) -> Touched:
        """How many counters what is protected is in, and how much of it in one."""
        return Touched(self.max_items, 1, 1 + (self.relation == "replace_one"))

    def _extent(self) -> str:
        some = "" if self.max_items == 1 else f", in at most {self.max_items} keys"
        return f"{super()._extent()}{some}"


@dataclass(frozen=True)
class SegmentChange(Change):
    """A Change between streams whose items are sums, clipped to +-`most` on the lattice."""

    most: int = 1

    def largest(self, unit: float) -> int:
        return self.most


@dataclass(frozen=True)
class ItemsChange(Change):
    """The difference between streams of which each step counts few items of a public domain.

    Args:
      low, high: 0 and 1; or -1 and 1 where items may also be removed.
      relation: "replace_one" (default): the items of one step are any others. "add_remove": they
        are there, or the step is empty.
      max_items: b, the most distinct items in a step.

    Guarantee: replace_one changes up to 2b coordinates by 1, Delta_2 = sqrt(2b) c, or with removals
      b by 2, 2 sqrt(b) c; Delta_1 is 2b times an encoder's. add_remove: b coordinates by 1.
    """

    max_items: int = 1

    takes_coordinates = False
    meanings: ClassVar[Mapping[str, str]] = {
        "replace_one": "the items of any one step",
        "add_remove": "whether any one step counts items or is empty",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("max_items", self.max_items)
        if (self.low, self.high) not in ((0, 1), (-1, 1)):
            bounds = f"({self.low:g}, {self.high:g})"
            raise ValueError(f"items count (0, 1), or (-1, 1) with removals, got {bounds}")

    def magnitude(self, unit: float) -> int:
        if unit != 1:
            raise ValueError(f"items are counted in whole numbers, unit must be 1, got {unit!r}")
        return 1

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> Norms:
        l1, l2_squared = self.column_norms(mechanism, unit)
        b = min(self.max_items, dimension or 1)
        if self.relation == "add_remove":
            return b * l1, b * l2_squared
        if self.low < 0:
            return 2 * b * l1, 4 * b * l2_squared
        touched = min(2 * b, dimension or 1)
        return touched * l1, touched * l2_squared

    def _extent(self) -> str:
        return f"at most {self.max_items}"


# The columns of R that a change of several steps hits are not orthogonal, so its norm is not a
# multiple of one column's. For the difference d of one scalar stream, with c the largest L2 norm of
# a column, ||R d||_2 <= c ||d||_1 always. Where no two columns have a negative product,
# ||R d||_2^2 <= c^2 (P^2 + N^2), P and N the positive and the negative mass of d.


class Spread(NamedTuple):
    """Bounds on what one event changes in x, all coordinates and steps together."""

    l1: int  # on the sum of the absolute changes of x
    l2_squared: Fraction  # on ||R d||_2^2, for this mechanism, before any rounding
    touched: int  # on the number of coordinates that change at all


@dataclass(frozen=True)
class SpreadChange(Change):
    """What one event does to a statistic; one element adds `low` to `high` to each coordinate.

    Guarantee: the norms are those of all coordinates' streams together, each with its own noise of
      one law. Where R is rounded, each coordinate that changes is rounded apart.
    """

    takes_coordinates = False

    @abstractmethod
    def spread(self, mechanism: Mechanism) -> Spread:
        """How far the change reaches through this mechanism's encoder."""

    def magnitude(self, unit: float) -> int:
        """1: the least change there may be, which the lattice is fine enough for."""
        if unit != 1:
            raise ValueError(f"statistics are whole numbers, unit must be 1, got {unit!r}")
        return 1

    def largest(self, unit: float) -> int:
        low, high = self.lattice_bounds(unit)
        return max(abs(low), abs(high))

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> Norms:
        most = self.largest(unit)
        fine = mechanism.resolution(self.magnitude(unit), most)
        return spread_norms(mechanism, self.spread(mechanism), fine, most)


def spread_norms(mechanism: Mechanism, reach: Spread, fine: int, most: int) -> Norms:
    """`Change.norms` of a change that reaches so far.

    Args:
      mechanism: whose encoder it goes through.
      reach: how far.
      fine: into how many parts a unit is divided.
      most: a bound on the absolute values that are counted.
    """
    l1 = fine * reach.l1 * Fraction(mechanism.l1_sensitivity)
    column = Fraction(mechanism.l2_sensitivity_squared)
    l2_squared = fine**2 * min(reach.l2_squared, reach.l1**2 * column)
    slack_l1, slack_l2 = mechanism.slack(most * fine)
    if slack_l2 == 0:
        return l1, l2_squared
    l2 = math.sqrt(l2_squared) + math.sqrt(reach.touched) * slack_l2
    whole = Fraction(round_up(float(l1) + reach.touched * slack_l1))
    return whole, Fraction(round_up(l2)) ** 2


def _check_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"{name} must be a whole number from 1, got {count!r}")


def check_bounds(bounds: object) -> tuple[float, float]:
    """`bounds` as a pair, or a TypeError that says what to pass."""
    if isinstance(bounds, tuple | list) and len(bounds) == 2:
        return bounds[0], bounds[1]
    raise TypeError(f"bounds must be a pair (low, high), got {bounds!r}: give e.g. bounds=(0, 1)")


def check_unit(unit: object, change: Change) -> float:
    """The lattice's unit as a float, or an error that says what to pass."""
    remedy = "give the step to which values are rounded, e.g. "
    value = check_real("unit", unit, remedy + "unit=0.01")
    if not (math.isfinite(value) and value > 0):
        problem = f"must be positive and finite, got {unit!r}"
        raise ParameterError("unit", problem, remedy + "{unit=}0.01")
    bounds = f"[{change.low:g}, {change.high:g}]"
    if max(abs(change.low), abs(change.high)) / value > 2.0**31:
        problem = TOO_FINE.format(unit=unit, bounds=bounds)
        raise ParameterError("unit", problem, "choose a larger unit")
    if change.magnitude(value) == 0:
        problem = TOO_COARSE.format(unit=unit, bounds=bounds)
        raise ParameterError("unit", problem, "choose a smaller unit")
    return value
