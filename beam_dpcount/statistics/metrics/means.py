"""Mean: the mean of the numbers in a field, from their count and the sum around a public centre.

Numbers between the bounds are at most half the range away from their centre, so that a centred sum
takes half the noise, or less, of a plain one. Where values come near the ends of the range, the
error of the count weighs as much as that of the sum; so both get the same part of the metric's
budget. Then at no mean is the error larger than that of a sum over a count from two equal shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.statistics.metrics.base import (
    Additions,
    Errors,
    FloatArray,
    Measured,
    OfField,
    column,
    ratio,
    within,
)


@dataclass(frozen=True)
class Centred(OfField):
    """A metric of numbers around a centre on their lattice."""

    @cached_property
    def centre(self) -> int:
        """The middle of the bounds, on the lattice."""
        low, high = self.lattice.bounds
        return (low + high) // 2

    @cached_property
    def reach(self) -> int:
        """The most that a number is away from the centre."""
        low, high = self.lattice.bounds
        return max(high - self.centre, self.centre - low)

    def mean(
        self, sums: FloatArray, errors: Errors, multiple: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The mean on the lattice, around the centre, with Fieller's interval."""
        n, total = sums[:, 0], sums[:, 1]
        found = ratio(total, n, errors.stddevs[:, 1], errors.stddevs[:, 0], multiple)
        low, high = self.lattice.bounds
        return within(*found, (low - self.centre, high - self.centre))


@dataclass(frozen=True)
class Mean(Centred):
    """The mean of the numbers in a field, with Fieller's interval. Its column: `<field>_mean`.

    Events without a number in the field are left out of it: it has a count of its own.

    Args:
      field, low, high, unit: see `OfField`. The mean lies between the bounds, and so do the value
        and the interval given.
    """

    _suffix: ClassVar[str] = "mean"

    @property
    def width(self) -> int:
        return 2

    @property
    def limits(self) -> tuple[int, ...]:
        return (1, self.reach)

    @property
    def spans(self) -> tuple[int, ...]:
        low, high = self.lattice.bounds
        return (0, high - low)

    def additions(self, event: Mapping[str, Any]) -> Additions:
        x = self.code(event)
        return () if x is None else ((0, 1), (1, x - self.centre))

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        found = self.mean(sums, errors, errors.multiples(level))
        value, low, high = (column((each + self.centre) * self.step) for each in found)
        return Measured(value, np.full_like(value, np.nan), low, high)
