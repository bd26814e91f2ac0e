"""What all releases of a counter are charged in an account.

The neighbours of an account are two inputs: one lacks what a row says (at a clock: the row), or
what all rows of a person say. Every count protects at least that. For a graph or a bound on people
it may be two changes, see `times`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from beam_dpcount.budget.account import Account
from beam_dpcount.budget.budgets import ZCDP, Budget
from beam_dpcount.budget.charges import Charge, Charges, written
from beam_dpcount.budget.conversions import float_up
from beam_dpcount.budget.costs import PureCost
from beam_dpcount.budget.spender import Protection, Unknown
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.period_costs import PeriodCosts, TogetherCosts
from beam_dpcount.counters.users import UserChange
from beam_dpcount.noise.entropy import Entropy


@dataclass(frozen=True)
class CounterSpender:
    """A counter that a transform applies, and so spends a share on.

    Fields:
      counter: what releases.
      entropy: where its noise comes from, named for this place of the pipeline.
      at_clock: whether it protects that a row exists.
      user: the column that says whom it protects; None if it has no name, or a row is protected.
      counts: all public arguments that say what it counts, as text.
      losses: what several periods of one person cost, if one of them is protected.
      time: the columns of the time by which events lie in periods; empty: they have no name.
    """

    counter: Any
    entropy: Entropy
    at_clock: bool
    user: str | None
    counts: str = ""
    losses: PeriodCosts | None = None
    time: tuple[str, ...] = ()

    @property
    def protects(self) -> Protection:
        change = self.counter.change
        losses = None if self.losses is None else TogetherCosts((self.losses,))
        cost = change.event_cost(self.counter.mechanism)
        asserted = getattr(change, "asserted", False)
        aged = getattr(self.counter, "aged_part", None)
        return Protection(change.person, cost, losses, asserted, self.time, aged)

    @property
    def fingerprint(self) -> str:
        return f"{self.counter.fingerprint}; {self.counts}"

    def charges(self, budget: Budget, keys_delta: float, account: Account) -> tuple[Charges, str]:
        return charges_of(self.counter, budget, keys_delta, account, self.protects)


@dataclass(frozen=True)
class JoinedSpender:
    """Several counters that spend one share together, a part of its budget each.

    Fields:
      parts: the counters. They protect alike.
    """

    parts: Sequence[CounterSpender]

    @property
    def _dearest(self) -> CounterSpender:
        """The one of which an event may cost most, beside its budget."""
        return max(self.parts, key=lambda part: part.protects.event_cost)

    @property
    def protects(self) -> Protection:
        losses = tuple(part.losses for part in self.parts if part.losses is not None)
        dearest = replace(self._dearest.protects, aged=self._aged_part)
        return replace(dearest, losses=TogetherCosts(losses)) if losses else dearest

    def _aged_part(self, age: int) -> Fraction:
        """At most so much of their rho together as of that of the one with the largest part."""
        aged = [part.protects.aged for part in self.parts]
        return max(Fraction(1) if part is None else part(age) for part in aged)

    @property
    def at_clock(self) -> bool:
        return self.parts[0].at_clock

    @property
    def user(self) -> str | None:
        return self.parts[0].user

    @property
    def entropy(self) -> Entropy:
        return self.parts[0].entropy

    @property
    def fingerprint(self) -> str:
        return repr([part.fingerprint for part in self.parts])

    def charges(self, budget: Budget, keys_delta: float, account: Account) -> tuple[Charges, str]:
        # Of the whole budget, as the parts compose to it: no counter knows all of them.
        return Unknown(self.protects).charges(budget, keys_delta, account)


def times(counter: Counter, for_person: bool) -> int:
    """How many times the rho of its releases a row (or person) costs: 1, 2 or 4.

    2 or 4 where a row is two changes: behind a bound on people others of its person's may count in
    its place; and in a graph others may insert the same edge. Else what is protected holds a row.
    """
    if for_person:
        return 1
    change = counter.change
    return max(change.event_cost(counter.mechanism), change.for_element**2)


def charges_of(
    counter: Counter,
    budget: Budget,
    keys_delta: float,
    account: Account,
    protects: Protection | None = None,
) -> tuple[Charges, str]:
    """What all releases cost, in the unit of an account, and why it is more than the budget, if it
    is. An AccountError if they cannot be charged in that unit.

    Args:
      counter: what releases them.
      budget: what they are charged as: the counter's, or one of which it has a part.
      keys_delta: what keys that nobody listed take, beside the budget.
      account: in which they are charged.
      protects: whom; default: what the counter knows, which is nothing of several periods.
    """
    if protects is None:
        cost = counter.change.event_cost(counter.mechanism)
        protects = Protection(counter.change.person, cost)
    protects.check(account)
    for_person, reach = protects.is_of(account), protects.reach_in(account)
    if account.periods is not None and protects.losses and reach and not for_person:
        return protects.charges_of(budget, keys_delta, account, reach), protects.why(account)
    factor = times(counter, for_person)
    charge = account.charge(budget, keys_delta)
    why = ""
    if account.total.rho:
        charge = Charge(rho=_rho(budget, counter, factor, 1 if factor == 1 else 4))
        why = f" (up to 4 times its rho: {account.two_changes})" * (factor != 1)
    elif factor != 1:
        charge, why = charge.of_two(), f" (two times its budget: {account.two_changes})"
    return Charges(charge, _replaced(charge, budget, counter, for_person)), why


def _replaced(charge: Charge, budget: Budget, counter: Counter, for_person: bool) -> Charge:
    """What the run costs if a row (or person) says anything else, and the row stays.

    If the run protects a replacement, that is its charge. Otherwise it is a removal and an
    addition, and each of them costs the charge; in rho it is what the norm of a replacement gives,
    if that is known. A row that goes from one person to another changes two people.
    """
    change = counter.change
    of_people = isinstance(change, UserChange) and not for_person
    if change.relation == "replace_one" and not of_people:
        return charge
    if not charge.rho or of_people or not isinstance(change, TickChange):
        return charge.of_two()
    mechanism, unit, dimension = counter.mechanism, counter.unit, counter.dimension
    (_, one), (_, other) = (
        each.norms(mechanism, unit, dimension)
        for each in (change, replace(change, relation="replace_one"))
    )
    factor = min(max(Fraction(float_up(other / one)), Fraction(1)), Fraction(4))
    return Charge(rho=_rho(budget, counter, factor, 4))


def _rho(budget: Budget, counter: Counter, factor: Fraction | int, of_pure: int) -> Fraction:
    """The rho of all releases of a run, times `factor`.

    With Laplace noise two changes cost 2 epsilon, whatever their inner product: four times its rho.
    So `of_pure` is the factor of such noise.
    """
    if isinstance(budget, ZCDP):
        return written(budget.rho) * factor
    rho = Fraction(0)
    for part in counter.costs():
        rho += part.rho * (of_pure if isinstance(part, PureCost) else factor)
    return Fraction(float_up(rho))
