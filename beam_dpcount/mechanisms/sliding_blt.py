"""Sums over the last W steps, for a stream that goes on: a BLT whose encoder forgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from beam_dpcount.checks import check_whole
from beam_dpcount.mechanisms import fading_tables as tables
from beam_dpcount.mechanisms.fading import FadingBLT
from beam_dpcount.mechanisms.fading_tables import FadingPoles
from beam_dpcount.mechanisms.workload import LastSteps, Workload


@dataclass(frozen=True)
class SlidingBLT(FadingBLT):
    """Sums over the last W steps, whose variance rises to a limit, however long the stream is.

    R is a sum of d exponentials, all of which fade, fitted for W, and L = (1 - z^W) A / R. A state
    holds the last W noised numbers (some 7 bytes each), which every step writes anew.

    Args:
      horizon: number of steps T, up to 2^30: a ceiling, which costs no more noise than fewer steps.
      window: W, from 1 to 2^20 steps. Public.

    Guarantee: Delta_2^2 = sum of r_j^2 over j < T (the first column), by a sum of positive terms;
      to it comes what rounding adds in each of T rows (at most 1e-4, and 4e-4 beyond 2^20 steps).
      Gaussian noise: takes zero-concentrated and approximate budgets. Variance of release t: that
      of one draw times sum of l_j^2 over j < t, exact; it rises, so that the last is the largest.

    Source: docs/proofs/sliding.md; the recurrences are those of [DMPST24].
    """

    window: int

    widest: ClassVar[int] = 1 << tables.LARGEST_LOG

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "window", check_window(self.window))

    @property
    def workload(self) -> Workload:
        return LastSteps(window=self.window)

    @property
    def _fitted(self) -> FadingPoles:
        return tables.window_poles(self.window)

    @property
    def _variances(self) -> tables.Variances:
        return tables.window_variances(self.window)

    @property
    def _kept_steps(self) -> int:
        return min(self.window, self.horizon)


def check_window(window: object, unit: str = "steps") -> int:
    """`window` as an int, or an error that says what to pass, in ticks or in steps."""
    return check_whole("window", window, SlidingBLT.widest, unit)
