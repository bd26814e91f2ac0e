"""DistinctUsers: how many people there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from beam_dpcount.statistics.metrics.base import (
    Additions,
    Errors,
    FloatArray,
    Measured,
    Metric,
    of_sum,
)


@dataclass(frozen=True)
class DistinctUsers(Metric):
    """How many people there were, each once a key. Its column: `distinct_users`.

    It needs `users=Users(by, events)`: those whose events the bound lets through.
    """

    once: ClassVar[bool] = True

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
        return (self.name or "distinct_users",)

    def additions(self, event: Mapping[str, Any]) -> Additions:
        return ()  # only the bound knows whether it is a person's first

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        return of_sum(sums, errors, level)
