"""Sum: the sum of the numbers in a field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from beam_dpcount.statistics.metrics.base import (
    Additions,
    Errors,
    FloatArray,
    Measured,
    OnLattice,
    of_sum,
)


@dataclass(frozen=True)
class Sum(OnLattice):
    """The sum of the numbers in a field, or of events that are numbers. Its column: `sum_<field>`.

    An event without a number in the field adds 0.

    Args:
      field: its name. Default: the value of an event is itself the number, and the column `sum`.
      low, high: numbers are clipped to them. Required.
      unit: and then rounded to multiples of it. Default: the power of ten that divides the larger
        of |low| and |high| into 10^4 to 10^5 parts.
    """

    field: str | None = None  # type: ignore[assignment]
    low: float = None  # type: ignore[assignment]
    high: float = None  # type: ignore[assignment]

    _prefix: ClassVar[str] = "sum"
    example: ClassVar[str] = "amount, 0, 100"
    _needs_field: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.low is None or self.high is None:
            raise TypeError(
                f"Sum needs bounds, got low={self.low!r}, high={self.high!r}: give what numbers "
                'are clipped to, e.g. Sum("amount", 0, 100), or Sum(low=0, high=100) of the values'
            )
        super().__post_init__()

    @property
    def extent(self) -> float | None:
        return None  # a sum has no range

    @property
    def _extent(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def width(self) -> int:
        return 1

    @property
    def limits(self) -> tuple[int, ...]:
        low, high = self.lattice.bounds
        return (max(abs(low), abs(high)),)

    @property
    def spans(self) -> tuple[int, ...]:
        low, high = self.lattice.bounds
        return (max(high, 0) - min(low, 0),)

    def of_code(self, code: Any) -> Additions:
        return ((0, code),)

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        return of_sum(sums, errors, level, self.step)
