"""Who spends a share: whom that protects, and what an account charges for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from beam_dpcount.budget.account import Account
from beam_dpcount.budget.budgets import ZCDP, Budget, PureDP
from beam_dpcount.budget.charges import TWO_CHANGES, Charges
from beam_dpcount.budget.conversions import float_up
from beam_dpcount.noise.entropy import Entropy


class Unit(Protocol):
    """Public periods, of which one person's events of any one are protected."""

    @property
    def any(self) -> str:
        """Which of them, in words."""

    @property
    def plural(self) -> str: ...

    @property
    def span(self) -> int:
        """The length of the clock."""

    def most_met(self, others: Any) -> int:
        """How many of them one of the others meets, at most."""

    def starts_in(self, others: Any) -> bool:
        """Whether each of the others lies within one of these."""


class PeriodLosses(Protocol):
    """What several periods of one person cost where one is protected by a budget."""

    @property
    def periods(self) -> Unit: ...

    def factor(self, many: int) -> Fraction:
        """How many times the rho of one period they cost, rounded up."""

    def keys_delta(self, many: int) -> Fraction:
        """With which probability keys are shown that the person alone has in these periods."""


@dataclass(frozen=True)
class Protection:
    """Whom a transform protects with its budget: one event, one person, or a person's period.

    Fields:
      person: whose events, in words; empty: one event is protected.
      event_cost: how many times its rho, and how often its epsilon, squared, one event may cost.
      losses: of several periods, where one person's events of any one period are protected; None:
        all events of a person are.
      asserted: whether the bound is the user's word.
    """

    person: str = ""
    event_cost: int = 1
    losses: PeriodLosses | None = field(default=None, compare=False, repr=False)
    asserted: bool = False

    @property
    def unit(self) -> Unit | None:
        """The periods of which one is protected; None: it is something else."""
        return None if self.losses is None else self.losses.periods

    def refusal(self, unit: Unit) -> str:
        """Why nothing follows for a period of the unit; empty if something does."""
        if not self.person:
            return "protects single events"
        if self.asserted and not self._lies_within(unit):
            return "rests on your word about other periods, or the whole stream"
        return ""

    def budget_of(self, budget: PureDP | ZCDP, unit: Unit, many: int) -> PureDP | ZCDP:
        """What so many periods of one person cost.

        Where the share's own periods lie within them, whole ones of these are left out. Else others
        of the person's events may count in place of those that are left out, and each period that
        is met is two changes; so is a bound over the whole stream.
        """
        met = self._met(unit, many)
        factor, times = Fraction(1), Fraction(met)
        if self.losses is not None:
            factor = self.losses.factor(met)
        if not self._lies_within(unit):
            factor, times = self.event_cost * factor, self._changes * times
        if isinstance(budget, PureDP):
            return PureDP(float_up(times * Fraction(budget.epsilon)))
        return ZCDP(float_up(factor * Fraction(budget.rho)))

    def delta_of(self, keys_delta: Fraction, unit: Unit, many: int) -> Fraction:
        """What so many periods of one person take of the delta for keys."""
        found = keys_delta
        if self.losses is not None and keys_delta:
            found = max(found, self.losses.keys_delta(self._met(unit, many)))
        return found if self._lies_within(unit) else self._changes * found

    def _lies_within(self, unit: Unit) -> bool:
        return self.unit is not None and unit.starts_in(self.unit)

    @property
    def _changes(self) -> int:
        """How many changes of what is protected one event less is."""
        return 1 if self.event_cost == 1 else 2

    def _met(self, unit: Unit, many: int) -> int:
        """How many of its own periods meet so many of the unit."""
        return 1 if self.unit is None else many * self.unit.most_met(unit)

    def budget_of_event(self, budget: PureDP | ZCDP) -> PureDP | ZCDP:
        """What one event costs."""
        if self.event_cost == 1:
            return budget
        if isinstance(budget, PureDP):  # two sets of events, whatever their products
            return PureDP(2 * budget.epsilon)
        return ZCDP(self.event_cost * budget.rho)

    def delta_of_event(self, keys_delta: Fraction) -> Fraction:
        """What one event takes of the delta for keys.

        Behind a bound one event less may lose its person some keys and gain them others. The noise
        alone crosses the thresholds of those gained with no more probability than with events that
        a person may have: twice as much in all, however many events change.
        """
        return self._changes * keys_delta


class Spender(Protocol):
    """What spends a share, as a ledger and an account must know it."""

    @property
    def protects(self) -> Protection: ...

    @property
    def at_clock(self) -> bool:
        """Whether it protects that a row exists."""

    @property
    def user(self) -> str | None:
        """The column that says whom it protects; None if it has no name, or a row is protected."""

    @property
    def entropy(self) -> Entropy | None: ...

    @property
    def fingerprint(self) -> str:
        """All parameters that its state depends on."""

    def charges(self, budget: Budget, keys_delta: float, account: Account) -> tuple[Charges, str]:
        """What its releases cost, and why it is more than the budget; see `charges_of`."""


@dataclass(frozen=True)
class Unknown:
    """Whatever spends a share by `Share.claim`: all that is known is whom it protects.

    That a row stays and says anything else is taken to be two changes.
    """

    protects: Protection = Protection()
    at_clock: bool = False
    user: str | None = None
    entropy: Entropy | None = None

    @property
    def fingerprint(self) -> str:
        return repr(self.protects)

    def charges(self, budget: Budget, keys_delta: float, account: Account) -> tuple[Charges, str]:
        charge = account.charge(budget, keys_delta)
        if self.protects.event_cost == 1:
            return Charges(charge, charge.of_two()), ""
        # A row that goes from one person to another is two changes of each of them.
        two = charge.of_two()
        return Charges(two, two.of_two()), f" (of two changes: {TWO_CHANGES})"
