"""What a run is charged in an account: exact amounts that add up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget
from beam_dpcount.budget.conversions import float_up, rounded_up

MOST_DIGITS = 300  # characters of an amount
_LARGEST = 600.0  # an epsilon beyond it makes any delta 1 or more


@dataclass(frozen=True)
class Charge:
    """Epsilon and delta, or rho; the others are 0. Exact."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    def __add__(self, other: Charge) -> Charge:
        return Charge(self.epsilon + other.epsilon, self.delta + other.delta, self.rho + other.rho)

    def __sub__(self, other: Charge) -> Charge:
        parts = zip(self.parts, other.parts, strict=True)
        return Charge(*(max(mine - theirs, Fraction(0)) for mine, theirs in parts))

    @property
    def parts(self) -> tuple[Fraction, Fraction, Fraction]:
        return self.epsilon, self.delta, self.rho

    def __bool__(self) -> bool:
        return any(self.parts)

    def exceeds(self, other: Charge) -> bool:
        return any(mine > theirs for mine, theirs in zip(self.parts, other.parts, strict=True))

    def of_two(self) -> Charge:
        """What two changes cost if each of them costs this.

        If one is (epsilon, delta)-DP, two are (2 epsilon, (1 + e^epsilon) delta)-DP. If one costs
        rho, two cost 4 rho: the sum of two vectors of norm d has at most norm 2 d.
        """
        more = 1 + Fraction(math.exp(min(float_up(self.epsilon), _LARGEST)) * (1 + 1e-12))
        delta = Fraction(float_up(self.delta * more)) if self.delta else Fraction(0)
        return Charge(2 * self.epsilon, delta, 4 * self.rho)

    def __str__(self) -> str:
        if self.rho:
            return f"rho = {rounded_up(float_up(self.rho))}"
        delta = f", delta = {rounded_up(float_up(self.delta))}" if self.delta else ""
        return f"epsilon = {rounded_up(float_up(self.epsilon))}{delta}" if self else "nothing"

    def packed(self) -> dict[str, str]:
        named = zip(("epsilon", "delta", "rho"), self.parts, strict=True)
        return {name: str(amount) for name, amount in named if amount}

    @staticmethod
    def unpacked(data: Mapping[str, str]) -> Charge:
        return Charge(**{name: _amount(text) for name, text in data.items()})


class Charges(NamedTuple):
    """What a run is charged for a row (or person), depending on what the account claims about it.

    Fields:
      presence: for adding or removing what the run protects: at a clock the row, per element what
        the row says.
      replacement: for other content of the same cells, while the row stays. Not less.
    """

    presence: Charge
    replacement: Charge

    def claimed(self, of_replacement: bool) -> Charge:
        """What the run is charged for the claim that is left."""
        return self.replacement if of_replacement else self.presence


def _amount(text: object) -> Fraction:
    if not isinstance(text, str) or len(text) > MOST_DIGITS:
        raise ValueError("not an amount")
    amount = Fraction(text)
    if amount < 0:
        raise ValueError("not an amount")
    return amount


def written(number: float) -> Fraction:
    """The decimal number that was written: 0.1 is a tenth, and ten of them are 1."""
    return Fraction(repr(float(number)))


def charge_of(budget: Budget) -> Charge:
    """A budget as it was written."""
    if isinstance(budget, ZCDP):
        return Charge(rho=written(budget.rho))
    delta = written(budget.delta) if isinstance(budget, ApproxDP) else Fraction(0)
    return Charge(written(budget.epsilon), delta)
