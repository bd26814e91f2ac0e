"""BLTs whose rows are weighted: the least error of all here, and counting without a horizon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from beam_dpcount.mechanisms import blt_tables as tables
from beam_dpcount.mechanisms import profiled_tables
from beam_dpcount.mechanisms.base import FloatArray, Mechanism
from beam_dpcount.mechanisms.blt import BLT
from beam_dpcount.mechanisms.blt_tables import Poles, Stretches
from beam_dpcount.mechanisms.profiled_tables import ProfiledTables, Shape, fitted, profiled

_POINT = 2.0**-24  # what a row loses before its weight is applied, see recurrence.py


@dataclass(frozen=True)
class ProfiledBLT(BLT):
    """A NormalizedBLT whose rows are weighted, by a public profile: 4 to 7 % less variance.

    R_p = diag(p) R D^-1 and L_p = A D R^-1 diag(1/p): row t is noised as p_t times what it is, and
    divided by p_t afterwards. p rises from the first step on, and falls towards the last: rows in
    the middle, of which most releases are made, have less noise. D_s is at least the norm of column
    s of diag(p) R. State, steps and arguments are those of `NormalizedBLT`.

    Where one event changes several steps it may be worse, as products of columns are larger.

    Args:
      objective: "max" (default) for the least largest variance, "mean" for the least mean.

    Guarantee: no column of R_p is longer than 1, so Delta_2 = 1, and what rounding adds (at most
      1e-4, see RoundedMechanism). p and D are constant over stretches of steps, and D rounded up
      over each. Gaussian noise: takes zero-concentrated and approximate budgets. Variance of
      release t: exact, see `row_norm2`; for horizons above 2^22 `max_row_norm2` is an upper bound.

    Source: docs/proofs/real_encoders.md, "Weighted rows"; the plain BLT is [DMPST24].
    """

    objective: str = "max"

    l2_sensitivity_squared = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective not in ("max", "mean"):
            raise ValueError(f'objective must be "max" or "mean", got {self.objective!r}')

    def for_objective(self, objective: str) -> Mechanism:
        return replace(self, objective=objective)

    @property
    def _shape(self) -> Shape:
        return fitted(self.objective, self.horizon)

    @property
    def _poles(self) -> Poles:
        return tables.poles(profiled_tables.KIND, self.horizon, self.buffers)

    @property
    def _tables(self) -> ProfiledTables:
        return profiled(self._shape, self.horizon, self.buffers)

    @property
    def _stretches(self) -> Stretches:
        return self._tables.stretches

    @property
    def l1_sensitivity(self) -> float:
        return self._tables.l1_sensitivity()

    def _lag_products(self, lags: Sequence[int]) -> Sequence[float]:
        """Bounds over stretches of columns: see ProfiledTables."""
        return self._tables.lag_products(lags) if lags else []

    @property
    def rounding(self) -> float:
        lost = math.ldexp(self._tables.floors, -self._stretches.fraction)
        return (1 + lost + _POINT) * (1 + 1e-12)

    def encoder(self, n: int) -> FloatArray:
        return np.asarray(super().encoder(n) * self._row_weights(n)[:, None])

    def decoder(self, n: int) -> FloatArray:
        return np.asarray(super().decoder(n) / self._row_weights(n))


@dataclass(frozen=True)
class Endless(ProfiledBLT):
    """Counting without a declared horizon, in constant state, up to 2^30 steps.

    A ProfiledBLT of 2^30 steps whose rows count for less the later they are, like (t + 2)^-0.36: so
    early releases have little noise, and the variance of release t is at most 1.51 times the
    largest of a NormalizedBLT with the horizon t from t = 16 on, and up to 1.65 times it before.
    Beyond 2^30 steps nothing is released.

    Args:
      horizon: the ceiling, 2^30 (default); it may be lower, and costs no more.

    Guarantee: as for `ProfiledBLT`, for all 2^30 steps together; but what rounding adds may be 4e-3
      of Delta_2, so that the lattice of so many steps is not too fine for the noise.

    Source: docs/proofs/real_encoders.md, "Weighted rows".
    """

    horizon: int = 1 << tables.LARGEST_LOG

    slack_allowed: ClassVar[float] = 4e-3
    _falling: ClassVar[Shape] = (-0.36, math.log(2), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    @property
    def _shape(self) -> Shape:
        return self._falling
