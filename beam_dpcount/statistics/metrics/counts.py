"""Count: how many events there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beam_dpcount.statistics.metrics.base import (
    Additions,
    Errors,
    FloatArray,
    Measured,
    Metric,
    of_sum,
)


@dataclass(frozen=True)
class Count(Metric):
    """How many events there were, whatever fields they have. Its column: `count`."""

    @property
    def width(self) -> int:
        return 1

    @property
    def limits(self) -> tuple[int, ...]:
        return (1,)

    @property
    def spans(self) -> tuple[int, ...]:
        return (0,)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name or "count",)

    def additions(self, event: Mapping[str, Any]) -> Additions:
        return ((0, 1),)

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        return of_sum(sums, errors, level)
