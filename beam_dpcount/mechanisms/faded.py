"""Prefix sums where one person has several events far apart: a normalized BLT that forgets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from beam_dpcount.checks import ParameterError, check_real, check_whole
from beam_dpcount.mechanisms import fading_tables
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.mechanisms.blt import ExponentialSums
from beam_dpcount.mechanisms.blt_tables import Poles, horizon_log

_LONGEST = 1 << fading_tables.LARGEST_LOG  # the longest memory


@dataclass(frozen=True)
class FadedBLT(ExponentialSums):
    """Prefix sums for persons whose events lie apart: what it encodes of an item fades.

    R_f = Toep(r) D^-1 and L_f = A D Toep(r)^-1, where r is a sum of few exponentials that begins
    like the coefficients of a square root, and fades after some `memory` steps. Columns far apart
    then share little, so that k events of a person cost far less than k^2 times one; a single event
    costs more than in `NormalizedBLT`. `choose` fits both parameters to what a person may change.

    Args:
      horizon: number of steps T, up to 2^30.
      memory: from 2 to 2^20 steps. Public. None (default): T, within these limits.
      decay: r_j is multiplied by decay^j; from 1/2 to 1 (default). Public.

    Guarantee: no column of R_f is longer than 1, so Delta_2 = 1, and what rounding adds (at most
      1e-4, see RoundedMechanism). D_t is constant while the number of steps left agrees in its
      first ten binary digits, and rounded up. `lag_bounds` hold for all pairs of columns. Gaussian
      noise: takes zero-concentrated and approximate budgets. Variance of release t: exact, see
      `row_norm2`; for horizons above 2^22 `max_row_norm2` is an upper bound.

    Source: docs/proofs/real_encoders.md, "Columns that fade"; the recurrences are those of
      [DMPST24].
    """

    memory: int | None = None
    decay: float = 1.0

    several_steps: ClassVar[bool] = True
    _normalized: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        memory = min(max(2, self.horizon), _LONGEST) if self.memory is None else self.memory
        if check_whole("memory", memory, _LONGEST) < 2:
            problem = f"must be from 2 to {_LONGEST} steps, got {memory!r}"
            raise ParameterError("memory", problem, "leave {memory} out")
        object.__setattr__(self, "memory", int(memory))
        decay = check_real("decay", self.decay, "leave it out")
        if not 0.5 <= decay <= 1:
            problem = f"must be from 1/2 to 1, got {decay!r}"
            raise ParameterError("decay", problem, "leave {decay} out")
        object.__setattr__(self, "decay", decay)

    @property
    def _poles(self) -> Poles:
        horizon_log(self.horizon)
        return _poles(_halves(self.memory or 2), self.decay)

    def for_charge(self, charge: Callable[[Mechanism], float], gap: int) -> Mechanism:
        """The one that costs least, of those without a decay and with one of 1 - 1 / memory.

        The cost falls and then rises with the memory. It is searched among powers of sqrt(2), from
        some gaps on.
        """
        costs: dict[FadedBLT, float] = {}

        def cost(made: FadedBLT) -> float:
            if made not in costs:
                costs[made] = charge(made)
            return costs[made]

        best, start = self, _halves(2 * gap)
        for decays in (False, True):
            here, step = self._of(start, decays), 4
            while step:
                halves = _halves(here.memory or 2)
                near = [self._of(halves + way, decays) for way in (0, -step, step)]
                after = min(near, key=cost)
                here, step = after, step if after != here else step // 2
            best, start = min(best, here, key=cost), _halves(here.memory or 2) + 2
        return best

    def _of(self, halves: int, decays: bool) -> FadedBLT:
        memory = round(2 ** (min(max(halves, 2), 2 * fading_tables.LARGEST_LOG) / 2))
        return replace(self, memory=memory, decay=1 - 1 / memory if decays else 1.0)


def _halves(memory: int) -> int:
    """Twice the logarithm, rounded: by how many halves of an octave fits are told apart."""
    return round(2 * math.log2(memory))


@lru_cache(maxsize=256)
def _poles(halves: int, decay: float) -> Poles:
    """Those of DecayedBLT, with a pole at 1 in L in place of the one at the decay."""
    p = fading_tables.faded_poles(halves, decay)
    return Poles(p.e, p.w, p.a, p.c, fading_tables.WEIGHT_BITS)
