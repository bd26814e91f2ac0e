"""What one person changes in the number of people who are active in the last ticks.

A person counts 1 more from the tick on at which they become active, and 1 less once they have been
silent for long enough. So what is counted are changes of activity, which alternate: their squared
norm grows with their number, and not with its square. The proof is in docs/proofs/active.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from beam_dpcount.counters.change import Spread, Touched
from beam_dpcount.counters.selection import Selection
from beam_dpcount.counters.users import UserChange
from beam_dpcount.errors import Error
from beam_dpcount.mechanisms.base import FloatArray, Mechanism
from beam_dpcount.mechanisms.single_steps import SingleSteps

MOST_CHECKED = 2048  # steps of a dense encoder whose columns are compared
_ERROR = 1e-12  # of a product of columns, relative to the largest: rounding
OUTWARD = Fraction(1 + 1e-9)


class AlternatingError(Error, ValueError):
    """A mechanism whose columns are not known to suit changes that alternate."""


@dataclass(frozen=True)
class ActiveChange(UserChange):
    """A UserChange of one person's activity in the last ticks.

    Args:
      intervals: how many runs of active ticks differ, in all counters together, at most.
      in_one: how many of them in one counter.
      ticks: how many ticks they have together.
      longest: the most ticks of one of them; 0: any number.

    Guarantee: w = 2 `intervals` changes of activity, +1 and -1 in turn within each counter. If no
      two columns of R have a negative product, and those of a column with later ones never rise,
      Delta_2^2 <= w c^2; where a counter has one interval, the largest |R_i - R_j|^2, or |R_i|^2,
      of two columns as far apart as one is long. Delta_1 = w times an encoder's. Each tick alone
      (SingleSteps) counts who is active, and not what changes: Delta_2^2 = Delta_1 = `ticks`.
      Replacement is two such sets: 4 times Delta_2^2, twice Delta_1. Several periods of one person
      are as many times the intervals: removed one after the other, what they change is disjoint.
    """

    intervals: int = 1
    in_one: int = 1
    ticks: int = 1
    longest: int = 0

    def reach(
        self,
        mechanism: Mechanism,
        unit: float,
        cost: Callable[[int], Fraction] | None = None,
    ) -> Spread:
        return self.reach_of_periods(mechanism, unit, 1, 1)

    def reach_of_periods(self, mechanism: Mechanism, unit: float, many: int, apart: int) -> Spread:
        replaced = self.relation == "replace_one"
        touched = many * min(self.intervals, self.keys) * (1 + replaced)
        if isinstance(mechanism, SingleSteps):
            l1, squared = many * self.ticks, Fraction(many * self.ticks)
        else:
            l1, squared = 2 * many * self.intervals, self._alternating(mechanism, many)
        return Spread((1 + replaced) * l1, (4 if replaced else 1) * squared, touched)

    def _alternating(self, mechanism: Mechanism, many: int) -> Fraction:
        if not falls(mechanism):
            raise AlternatingError(
                f"{mechanism.name} of {mechanism.horizon} steps is not known to suit changes of "
                "activity, as products of its columns may rise: leave mechanism out"
            )
        each = 2 * Fraction(mechanism.l2_sensitivity_squared)
        if many == self.in_one == 1 and self.longest:
            each = min(each, one_interval(mechanism, self.longest))
        return many * self.intervals * each * OUTWARD

    def touched(self, mechanism: Mechanism) -> Touched:
        counters = min(self.intervals, self.keys)
        return Touched(counters, 1, 1 + (self.relation == "replace_one"))

    def alone(self, mechanism: Mechanism, many: int) -> int:
        return 1  # somebody is active once, however many periods make them so

    def event_cost(self, mechanism: Mechanism) -> int:
        return 1 if self.relation == "replace_one" else 4  # two sets of one person

    @property
    def person(self) -> str:
        if self.periods is not None:
            return self._whose
        return "one person"

    def _extent(self) -> str:
        many = f"{self.intervals} interval{'s' * (self.intervals != 1)}"
        keys = "one key" if self.keys == 1 else f"{self.keys} keys"
        return f"which change the activity of a person in at most {many}, in {keys}"


@dataclass(frozen=True)
class ActiveSelection(Selection):
    """A Selection by how many people are active, which falls, too.

    Guarantee: as for Selection. Where nobody but one person is active by what neighbours differ in,
      a key has a count of at most 1 at every tick, so that its threshold is 1 and what noise
      reaches. A key is tested at all ticks from the first one on at which somebody was active, and
      is never forgotten. docs/proofs/active.md.
    """

    outlook_of: ClassVar[str] = "has so many active people from then on"

    def _check_workload(self) -> None:
        if not isinstance(self.counter.mechanism, SingleSteps):
            super()._check_workload()

    def _held(self, total: int, grows: int) -> int:
        return grows

    def _fed(self, before: int, after: int) -> int:
        fresh = isinstance(self.counter.mechanism, SingleSteps)
        return after if fresh else super()._fed(before, after)


@lru_cache(maxsize=64)
def falls(mechanism: Mechanism) -> bool:
    """Whether no products of columns are negative, and those of one with later ones never rise.

    Proved where rows of R are whole intervals, or R is Toeplitz with falling entries; else all
    products are compared, up to 2,048 steps.
    """
    if mechanism.falling_products:
        return True
    if mechanism.horizon > MOST_CHECKED:
        return False
    products = _products(mechanism)
    least = -_ERROR * float(products.max())
    later = np.triu(np.ones_like(products, dtype=bool), 1)[:, :-1]
    rises = np.diff(products, axis=1)
    return bool(products.min() >= least and (rises[later] <= -least).all())


def one_interval(mechanism: Mechanism, longest: int) -> Fraction:
    """The largest squared norm of one interval of so many ticks, or fewer, in a counter.

    Beyond 2,048 steps twice that of a column.
    """
    column = Fraction(mechanism.l2_sensitivity_squared)
    if mechanism.horizon > MOST_CHECKED or longest >= mechanism.horizon:
        return 2 * column
    return max(column, Fraction(_largest_pair(mechanism, longest)))


@lru_cache(maxsize=64)
def _largest_pair(mechanism: Mechanism, longest: int) -> float:
    products = _products(mechanism)
    norms = np.diagonal(products)
    lags = range(1, min(longest, len(norms) - 1) + 1)
    return max(
        float((norms[:-lag] + norms[lag:] - 2 * np.diagonal(products, lag)).max()) for lag in lags
    )


@lru_cache(maxsize=2)
def _products(mechanism: Mechanism) -> FloatArray:
    """R^T R."""
    encoder = np.asarray(mechanism.encoder(mechanism.horizon), dtype=np.float64)
    return np.asarray(encoder.T @ encoder)
