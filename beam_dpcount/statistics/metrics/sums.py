"""Sum: the sum of the numbers in a field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from beam_dpcount.statistics.metrics.base import Additions, Errors, FloatArray, Measured, OfField
from beam_dpcount.statistics.metrics.base import of_sum as measured


@dataclass(frozen=True)
class Sum(OfField):
    """The sum of the numbers in a field. Its column: `<field>_sum`.

    Args:
      field, low, high, unit: see `OfField`; here the default unit divides the larger of |low| and
        |high| into 10^4 to 10^5 parts. An event without a number in the field adds 0.
    """

    _suffix: ClassVar[str] = "sum"

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

    def additions(self, event: Mapping[str, Any]) -> Additions:
        x = self.code(event)
        return ((0, x),) if x else ()

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        return measured(sums, errors, level, self.step)
