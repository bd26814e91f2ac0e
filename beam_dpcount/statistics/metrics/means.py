"""Mean and Variance of the numbers in a field, from sums around a public centre.

Numbers between the bounds are at most half the range away from their centre, so that a centred sum
takes half the noise, or less, of a plain one. Where values come near the ends of the range, the
error of the count weighs as much as that of the sum; so both get the same part of the metric's
budget. Then at no mean is the error larger than that of a sum over a count from two equal shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.statistics.metrics.base import (
    Additions,
    Errors,
    FloatArray,
    Measured,
    OnLattice,
    column,
    ratio,
    within,
)

_SQUARES = 18  # binary digits that squares are counted to
_MEANS = 33  # means that are tried within their interval


@dataclass(frozen=True)
class Centred(OnLattice):
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
        self, sums: FloatArray, errors: Errors, level: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The mean on the lattice, from the centre, with Fieller's interval."""
        n, total = sums[:, 0], sums[:, 1]
        stddevs = errors.stddevs
        found = ratio(total, n, stddevs[:, 1], stddevs[:, 0], errors.multiples(level))
        low, high = self.lattice.bounds
        return within(*found, (low - self.centre, high - self.centre))


@dataclass(frozen=True)
class Mean(Centred):
    """The mean of the numbers in a field, with Fieller's interval. Its column: `mean_<field>`.

    Events without a number in the field are left out of it: it has a count of its own.

    Args:
      field: its name.
      low, high: numbers are clipped to them. The mean lies between them, and so do the value and
        the interval given.
      unit: numbers are rounded to multiples of it, after they were clipped. Default: the power of
        ten that divides the bounds into 10^4 to 10^5 parts.
    """

    _prefix: ClassVar[str] = "mean"
    example: ClassVar[str] = "latency, 0, 5"

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

    def of_code(self, code: Any) -> Additions:
        return (0, 1), (1, code - self.centre)

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        found = self.mean(sums, errors, level)
        value, low, high = (column((each + self.centre) * self.step) for each in found)
        return Measured(value, np.full_like(value, np.nan), low, high)


@dataclass(frozen=True)
class Variance(Centred):
    """The variance of the numbers in a field (of all of them, ddof=0). Its column:
    `variance_<field>`.

    It has a count, a sum and a sum of squares of its own, around the centre, and its interval is
    that of the mean squares around each mean within the mean's interval, which takes a fifth of
    what may fail.

    Args:
      field: its name.
      low, high: numbers are clipped to them.
      unit: numbers are rounded to multiples of it, after they were clipped; default as for Mean.
        Squares of more than 2^18 steps of the lattice are rounded to 2^-18 of the largest.
    """

    _prefix: ClassVar[str] = "variance"
    example: ClassVar[str] = "latency, 0, 5"

    @property
    def extent(self) -> float | None:
        return ((self.high - self.low) / 2) ** 2

    @cached_property
    def square(self) -> int:
        """Squares are counted in multiples of this many steps of the lattice, squared."""
        return 1 << max(0, (self.reach**2).bit_length() - _SQUARES)

    @cached_property
    def middle(self) -> int:
        """What is taken from each square, in such multiples: half of the largest."""
        return int(self._squared(self.reach)) // 2

    def _squared(self, x: Any) -> Any:
        return (x * x + self.square // 2) // self.square

    @property
    def width(self) -> int:
        return 3

    @property
    def limits(self) -> tuple[int, ...]:
        # What is furthest from the centre has the largest square: all three go together.
        return (1, self.reach, self._squared(self.reach) - self.middle)

    @property
    def spans(self) -> tuple[int, ...]:
        low, high = self.lattice.bounds
        return (0, high - low, self._squared(self.reach))

    def of_code(self, code: Any) -> Additions:
        x = code - self.centre
        return (0, 1), (1, x), (2, self._squared(x) - self.middle)

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        failing = 1 - level
        mean, first, last = self.mean(sums, errors, 1 - failing / 5)
        multiple = errors.multiples(1 - failing * 4 / 5)
        places = np.linspace(0, 1, _MEANS)[:, None]
        means = np.vstack([mean, first + places * (last - first)])
        found = self._around(means, sums, errors.stddevs, multiple)
        value, low, high = found[0][0], found[1].min(axis=0), found[2].max(axis=0)
        lowest, highest = self.lattice.bounds
        found = within(value, low, high, (0, (highest - lowest) ** 2 / 4))
        value, low, high = (column(each * self.step**2) for each in found)
        return Measured(value, np.full_like(value, np.nan), low, high)

    def _around(
        self, means: FloatArray, sums: FloatArray, stddevs: FloatArray, multiple: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The mean square around each of these, shape (m, n), with its interval."""
        above = self.square * sums[:, 2] - 2 * means * sums[:, 1]
        of_above = np.hypot(self.square * stddevs[:, 2], 2 * means * stddevs[:, 1])
        found = ratio(above, sums[:, 0], of_above, stddevs[:, 0], multiple)
        shift = self.square * self.middle + np.square(means)
        value, low, high = (each + shift for each in found)
        return value, low, high
