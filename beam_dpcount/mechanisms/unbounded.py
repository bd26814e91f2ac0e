"""Counting without a horizon, in epochs of doubling length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beam_dpcount.mechanisms.base import MAX_HORIZON, Mechanism, check_share


@dataclass(frozen=True)
class Unbounded:
    """Counting for ever: epoch i holds the items 2^i .. 2^(i+1) - 1.

    Within an epoch the base mechanism runs at its share of the budget; when the epoch ends, its
    total is released once at the rest. Release t in epoch i is the sum of i noisy totals and of
    the base's current release. It calibrates, like any mechanism, to an `UnboundedCounter`.

    Args:
      base: makes a mechanism from a horizon, e.g. the class SmoothBinary.
      share: of the budget for the base, between 0 and 1, both excluded.

    Guarantee: an item lies in one epoch, so it is charged once by that epoch's base and once by
      its total: the budget is spent once, for ever. Variance of release t:
      i * (variance of one total) + (base of horizon 2^i at its step t - 2^i + 1).

    Source: the doubling construction of [CSS11, Section 4], with separate totals.
    """

    base: Callable[[int], Mechanism]
    share: float = 0.5

    def __post_init__(self) -> None:
        rule = "base must make a mechanism from a horizon, e.g. SmoothBinary"
        try:
            first: Any = self.base(1)
        except TypeError as error:  # it cannot be called, or not with a horizon alone
            raise TypeError(f"{rule}, got {self.base!r}: {error}") from error
        if not isinstance(first, Mechanism):
            raise TypeError(f"{rule}, got {self.base!r}")
        if not first.workload.is_prefix_sums:
            raise ValueError(f"base must release prefix sums, which {self.base!r} does not")
        check_share(self.share)
        for i in range(MAX_HORIZON.bit_length()):
            made = self.of_epoch(i)
            if type(made) is not type(first) or made.horizon < 1 << i:
                rule = "base must make mechanisms of one kind, each of the horizon it is given"
                raise ValueError(f"{rule}: for {1 << i} steps it made {made!r}")

    @property
    def epochs(self) -> int:
        """How many epochs the base is long enough for: 49, of 2^49 - 1 steps, if it takes any."""
        return min(self.base(1).longest, MAX_HORIZON).bit_length()

    def of_epoch(self, i: int) -> Mechanism:
        """The base mechanism of epoch i, i from 0."""
        return self.base(1 << i)

    @staticmethod
    def place(t: int) -> tuple[int, int]:
        """The epoch of step t (from 0) and its step within it (from 1)."""
        i = t.bit_length() - 1
        return i, t - (1 << i) + 1

    @property
    def draws_early(self) -> bool:
        """Whether the base of any epoch draws early."""
        return any(self.of_epoch(i).draws_early for i in range(MAX_HORIZON.bit_length()))

    @property
    def name(self) -> str:
        return f"Unbounded({self.of_epoch(10).name})"
