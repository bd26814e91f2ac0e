"""DistinctUsers: how many people there were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from beam_dpcount.statistics.metrics.base import Additions, OfOnes


@dataclass(frozen=True)
class DistinctUsers(OfOnes):
    """How many people there were, each once a key. Its column: `distinct_users`.

    It needs `users=Users(by, events)`: those whose events the bound lets through.
    """

    once: ClassVar[bool] = True

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name or "distinct_users",)

    def additions(self, event: Mapping[str, object]) -> Additions:
        return ()  # only the bound knows whether it is a person's first
