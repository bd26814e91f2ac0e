"""Who spends a share: whom that protects, and what an account charges for it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from beam_dpcount.budget.account import Account
from beam_dpcount.budget.budgets import ZCDP, Budget, PureDP
from beam_dpcount.budget.charges import TWO_CHANGES, Charges
from beam_dpcount.noise.entropy import Entropy


@dataclass(frozen=True)
class Protection:
    """Whom a transform protects with its budget: one event, or one person.

    Fields:
      person: whose events, in words; empty: one event is protected.
      event_cost: how many times its rho, and how often its epsilon, squared, one event may cost.
    """

    person: str = ""
    event_cost: int = 1

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
        return keys_delta if self.event_cost == 1 else 2 * keys_delta


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
