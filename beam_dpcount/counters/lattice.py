"""The public lattice: inputs are clipped to bounds and rounded to a unit before anything else."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_dpcount.errors import NotANumberError


def plain(x: object) -> Any:
    """NumPy's floats as Python's, which are compared without a warning on the worker.

    NumPy compares in the precision of its own, and warns of bounds that lie beyond it.
    """
    return float(x) if isinstance(x, np.floating) else x


@dataclass(frozen=True)
class Lattice:
    """Whole multiples of `unit`, within the bounds `low` and `high`."""

    low: float
    high: float
    unit: float

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The bounds in multiples of the unit, rounded as values are rounded."""
        return round(self.low / self.unit), round(self.high / self.unit)

    def one(self, x: object) -> int:
        """A number, in multiples of the unit; NotANumberError if it is none."""
        low, high = self.bounds
        x = plain(x)
        if type(x) is int and self.unit == 1:
            return low if x < low else high if x > high else x
        if isinstance(x, Real | np.bool_ | Decimal):
            try:
                clipped = min(max(x, self.low), self.high)
                if x == x:
                    return min(max(round(float(clipped) / self.unit), low), high)
            except (TypeError, ValueError, ArithmeticError):
                pass
        raise NotANumberError("the value is not a number")

    def all(self, xs: npt.ArrayLike, dimension: int | None) -> npt.NDArray[np.int64]:
        """A whole stream, shape (n,) or (n, dimension); a ValueError for any other."""
        rule = f"inputs must have shape {'(n,)' if dimension is None else f'(n, {dimension})'}"
        try:
            array = np.asarray(xs)
        except ValueError:
            raise ValueError(f"{rule}, got a ragged sequence") from None
        if array.shape[1:] != (() if dimension is None else (dimension,)) or not array.ndim:
            raise ValueError(f"{rule}, got {array.shape}")
        if array.dtype.kind in "Ou":  # integers beyond 64 bits, decimals, or no numbers at all
            flat = [self.one(x) for x in array.ravel().tolist()]
            return np.array(flat, dtype=np.int64).reshape(array.shape)
        if array.dtype.kind not in "bif":
            raise NotANumberError("some inputs are not numbers")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise NotANumberError("some inputs are not numbers (NaN)")
        if array.dtype.kind in "bi" and self.unit == 1:
            return np.asarray(np.clip(array, *self.bounds), dtype=np.int64)
        with np.errstate(over="ignore"):  # what is beyond float64 is clipped like all that is large
            array = array.astype(np.float64)
        clipped = np.clip(array, self.low, self.high)
        return np.asarray(np.clip(np.rint(clipped / self.unit), *self.bounds), dtype=np.int64)
