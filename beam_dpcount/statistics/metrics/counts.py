"""Count: how many events there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from beam_dpcount.statistics.metrics.base import Additions, OfOnes


@dataclass(frozen=True)
class Count(OfOnes):
    """How many events there were, whatever fields they have. Its column: `count`."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name or "count",)

    def additions(self, event: Mapping[str, object]) -> Additions:
        return ((0, 1),)
