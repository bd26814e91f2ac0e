"""Sums in which older items weigh less, in constant state: a BLT whose poles all decay."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from beam_dpcount.checks import ParameterError
from beam_dpcount.mechanisms import fading_tables as tables
from beam_dpcount.mechanisms.fading import FadingBLT
from beam_dpcount.mechanisms.fading_tables import FadingPoles
from beam_dpcount.mechanisms.workload import Workload


@dataclass(frozen=True)
class DecayedBLT(FadingBLT):
    """Sums with a decay, W_t = decay W_(t-1) + x_t, in at most 15 numbers for up to 2^30 steps.

    R is a sum of d exponentials, fitted for the decay, and L = 1 / ((1 - decay z) R). The variance
    rises to a limit within 0.2 % of that of `SquareRoot(horizon, decay=decay)`, the least that a
    Toeplitz factorization can have, which keeps all steps.

    Args:
      horizon: number of steps T, up to 2^30: a ceiling, which costs no more noise than fewer do.
      decay: what an item weighs a step later, from 2^-10 to 1 - 2^-20. Public. A sum is over some
        1 / (1 - decay) steps.

    Guarantee: Delta_2^2 = sum of r_j^2 over j < T (the first column), by a sum of positive terms;
      to it comes what rounding adds in each of T rows (at most 1e-4, and 4e-4 beyond 2^20 steps).
      Gaussian noise: takes zero-concentrated and approximate budgets. Variance of release t: that
      of one draw times sum of l_j^2 over j < t, exact; it rises, so that the last is the largest.

    Source: docs/proofs/sliding.md, "Decayed sums"; the recurrences are those of [DMPST24].
    """

    decay: float

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.decay
        if isinstance(given, bool) or not isinstance(given, Real):
            raise TypeError(f"decay must be a number, got {given!r}: give e.g. decay=0.99")
        if not 2.0**-10 <= self.decay <= 1 - 2.0**-tables.LARGEST_LOG:
            problem = f"must be from 2^-10 to 1 - 2^-20, got {self.decay!r}"
            raise ParameterError("decay", problem, "give e.g. {decay=}0.99; 1 is a plain count")
        object.__setattr__(self, "decay", float(self.decay))

    @property
    def workload(self) -> Workload:
        return Workload(decay=self.decay)

    @property
    def _fitted(self) -> FadingPoles:
        return tables.decay_poles(self.decay)

    @property
    def _variances(self) -> tables.Variances:
        return tables.decay_variances(self.decay)
