"""What one protected event can change in a counted stream, and so in Rx.

Pure functions; values are in the user's units unless they are said to be on the lattice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import Any

from beam_dpcount.mechanisms.base import Mechanism

RELATIONS = ("replace_one", "add_remove")


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

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bound = getattr(self, name)
            if isinstance(bound, bool) or not isinstance(bound, Real):
                raise TypeError(f"{name} must be a number, got {bound!r}: give e.g. bounds=(0, 1)")
            try:
                # A plain float: values are divided by the unit in the same precision as bounds.
                object.__setattr__(self, name, float(bound))
            except OverflowError:
                object.__setattr__(self, name, math.inf)
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be finite, got {bound!r}: give e.g. bounds=(0, 1)")
        if not self.low < self.high:
            raise ValueError(
                f"bounds must satisfy low < high, got ({self.low!r}, {self.high!r}): "
                "give the range that values are clipped to, e.g. bounds=(0, 1)"
            )
        if self.relation not in RELATIONS:
            raise ValueError(
                f"the neighbouring relation must be one of {', '.join(RELATIONS)}, "
                f"got {self.relation!r}"
            )
        count = self.coordinates
        if count is not None and (
            isinstance(count, bool) or not isinstance(count, int) or count < 1
        ):
            raise ValueError(f"coordinates must be a whole number from 1, got {count!r}")

    def lattice_bounds(self, unit: float) -> tuple[int, int]:
        """The bounds in multiples of `unit`, rounded as values are rounded."""
        return round(self.low / unit), round(self.high / unit)

    def magnitude(self, unit: float) -> int:
        """The most that one coordinate of one step can change, on the lattice."""
        low, high = self.lattice_bounds(unit)
        if self.relation == "add_remove":
            return max(abs(low), abs(high))
        return max(high, 0) - min(low, 0)

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> tuple[int, int]:
        """Delta_1 and the square of Delta_2 of the encoder under this change, on the lattice.

        One step changes, by at most `magnitude` in each of `coordinates` coordinates, so Rx
        changes by that multiple of one column of R in each of them.
        """
        touched = dimension or 1
        if self.coordinates is not None:
            touched = min(touched, self.coordinates)
        m = self.magnitude(unit)
        return (
            touched * m * mechanism.l1_sensitivity,
            touched * m * m * mechanism.l2_sensitivity_squared,
        )

    def __str__(self) -> str:
        what = {
            "replace_one": "the content of any one element",
            "add_remove": "whether any one element counts or not",
        }[self.relation]
        some = "" if self.coordinates is None else f", in at most {self.coordinates} coordinates"
        return f"{self.relation} ({what}, values in [{self.low:g}, {self.high:g}]{some})"


def check_bounds(bounds: object) -> tuple[float, float]:
    """`bounds` as a pair, or a TypeError that says what to pass."""
    if isinstance(bounds, tuple | list) and len(bounds) == 2:
        return bounds[0], bounds[1]
    raise TypeError(f"bounds must be a pair (low, high), got {bounds!r}: give e.g. bounds=(0, 1)")


def check_unit(unit: Any, change: Change) -> float:
    """The lattice's unit as a float, or an error that says what to pass."""
    remedy = "give the step to which values are rounded, e.g. unit=0.01"
    if isinstance(unit, bool) or not isinstance(unit, Real | Fraction):
        raise TypeError(f"unit must be a number, got {unit!r}: {remedy}")
    value = float(unit)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"unit must be positive and finite, got {unit!r}: {remedy}")
    if max(abs(change.low), abs(change.high)) / value > 2.0**31:
        raise ValueError(
            f"unit {unit!r} divides the bounds [{change.low:g}, {change.high:g}] into more than "
            "2^31 parts: choose a larger unit"
        )
    if change.magnitude(value) == 0:
        raise ValueError(
            f"unit {unit!r} rounds every value within [{change.low:g}, {change.high:g}] to 0: "
            "choose a smaller unit"
        )
    return value
