"""Sums over the last W steps, for a stream that goes on: a BLT whose encoder forgets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from beam_dpcount.checks import check_whole
from beam_dpcount.mechanisms import fading_tables as tables
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.mechanisms.fading import FadingBLT
from beam_dpcount.mechanisms.fading_tables import FadingPoles
from beam_dpcount.mechanisms.rounded import lag_bounds
from beam_dpcount.mechanisms.workload import LastSteps, Workload, toeplitz


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
        object.__setattr__(self, "window", check_window(self.window, most=self.widest))

    @property
    def workload(self) -> Workload:
        return LastSteps(window=self.window)

    @property
    def _fitted(self) -> FadingPoles:
        return tables.window_poles(self.window)

    @property
    def _variances(self) -> tables.Variances | tables.Comb:
        return tables.window_variances(self.window)

    @property
    def _kept_steps(self) -> int:
        return min(self.window, self.horizon)


@dataclass(frozen=True)
class CombBLT(SlidingBLT):
    """Sums over the last W steps at all but the least variance, for three times the state.

    R is that of a square root that fades with W, times a comb (1 - beta z^W) / (1 - alpha z^W): of
    one event it takes back some each W steps later. A state holds the last W sums of both ends
    too (some 8 bytes each). The largest variance is within 0.6 % of the least of all endless
    Toeplitz factorizations; SlidingBLT's is 12 to 18 % above.

    Args:
      horizon: number of steps T, up to 2^30: a ceiling, which costs no more noise than fewer steps.
      window: W, from 1 to 2^12 steps. Public.

    Guarantee: Delta_2^2 = sum of r_j^2 over j < T (the first column), rounded up; to it comes what
      rounding adds in each of T rows, as for SlidingBLT. R has negative entries: `lag_bounds` are
      of absolute values, replacement costs 4 times as much, and changes of activity are refused.
      Gaussian noise: takes zero-concentrated and approximate budgets. Variance of release t: that
      of one draw times sum of l_j^2 over j < t, up to rounding; it rises.

    Source: docs/proofs/sliding.md, "A comb".
    """

    widest: ClassVar[int] = 1 << 12
    is_nonnegative: ClassVar[bool] = False

    @property
    def fingerprint(self) -> str:
        return f"{super().fingerprint} and a comb of {tables.COMB}"

    @property
    def _comb(self) -> bool:
        return True

    @property
    def _fitted(self) -> FadingPoles:
        return tables.comb_poles(self.window)

    @property
    def _variances(self) -> tables.Comb:
        return tables.comb(self.window, min(self.horizon, tables.FADED * self.window))

    @property
    def _floors(self) -> float:
        alpha, beta, point = tables.COMB
        return (super()._floors + 2) * (1 + (beta - alpha) / ((1 << point) - alpha))

    @property
    def l1_sensitivity(self) -> float:
        return float(np.abs(self._variances.encoder).sum()) * (1 + 4e-12)

    @cached_property
    def l2_sensitivity_squared(self) -> float:
        return float(np.square(self._variances.encoder).sum()) * (1 + 4e-12)

    def spaced_bounds(self, gap: int, n: int) -> tuple[float, ...]:
        """Of the absolute values of products, of columns of any horizon."""
        known, apart = self._variances.lags, gap * np.arange(1, min(n, -(-self.horizon // gap)))
        products = known[np.minimum(apart, len(known) - 1)]
        return lag_bounds(self.l2_sensitivity_squared, products.tolist(), n)

    @property
    def state_size(self) -> int:
        return super().state_size + 2 * self._kept_steps

    def encoder(self, n: int) -> FloatArray:
        r = self._variances.encoder[: self.check_steps(n)]
        return toeplitz(np.append(r, np.zeros(n - len(r))))


def check_window(
    window: object, unit: str = "steps", name: str = "window", most: int = SlidingBLT.widest
) -> int:
    """`window` as an int, or an error that says what to pass, in ticks or in steps."""
    return check_whole(name, window, most, unit)
