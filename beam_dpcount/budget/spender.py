"""Who spends a share: whom that protects, and what an account charges for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from beam_dpcount.budget.account import SEVERAL, Account, AccountPeriods, check_unit
from beam_dpcount.budget.budgets import ZCDP, Budget, PureDP
from beam_dpcount.budget.charges import Charge, Charges
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

    @property
    def is_endless(self) -> bool:
        """Whether the clock has no end."""

    def __len__(self) -> int: ...

    def such_as(self, others: AccountPeriods) -> Unit:
        """Those of an account, as far as the clock goes."""

    def most_met(self, others: Any) -> int:
        """How many of them one of the others meets, at most."""

    def starts_in(self, others: Any) -> bool:
        """Whether each of the others lies within one of these."""


class PeriodCost(Protocol):
    """What several periods of one person cost; rho, and epsilon at any delta."""

    @property
    def rho(self) -> Fraction: ...

    def epsilon_at(self, delta: float) -> float: ...


class PeriodLosses(Protocol):
    """What several periods of one person cost where one is protected by a budget."""

    @property
    def periods(self) -> Unit: ...

    def epsilon_left(self, delta: Fraction, reach: Reach) -> float | None:
        """Their epsilon at what keys of one period leave of this delta; None: they take all."""

    def cost(self, many: int, changes: int = 1, squared: int = 1) -> PeriodCost:
        """What they cost, so many changes of each: so often its epsilon, or `squared` its rho."""

    def factor(self, many: int) -> Fraction:
        """How many times the rho of one period they cost, rounded up."""

    def keys_delta(self, many: int) -> Fraction:
        """With which probability keys are shown that the person alone has in these periods."""


class Reach(NamedTuple):
    """How far a change reaches, in what a budget protects.

    Fields:
      periods: how many of the protected periods it meets; 1 where it is none.
      changes: how many changes of these it is: 2 if others of the person may count in their place.
      squared: how many times their rho those cost: 1, 2 or 4.
    """

    periods: int = 1
    changes: int = 1
    squared: int = 1


@dataclass(frozen=True)
class Protection:
    """Whom a transform protects with its budget: one event, one person, or a person's period.

    Fields:
      person: whose events, in words; empty: one event is protected.
      event_cost: how many times its rho, and how often its epsilon, squared, one event may cost.
      losses: of several periods, where one person's events of any one period are protected; None:
        all events of a person are.
      asserted: whether the bound is the user's word.
      time: the columns of the time by which events lie in periods; empty: they have no name.
      aged: the part of its rho that one event has cost so many steps after it; None: all of it.
    """

    person: str = ""
    event_cost: int = 1
    losses: PeriodLosses | None = field(default=None, compare=False, repr=False)
    asserted: bool = False
    time: tuple[str, ...] = field(default=(), compare=False, repr=False)
    aged: Callable[[int], Fraction] | None = field(default=None, compare=False, repr=False)

    @property
    def unit(self) -> Unit | None:
        """The periods of which one is protected; None: it is something else."""
        return None if self.losses is None else self.losses.periods

    def refusal(self, unit: Unit | AccountPeriods, time: tuple[str, ...] = ()) -> str:
        """Why nothing follows for a period of the unit, by this time; empty if something does."""
        if not self.person:
            return "protects single events"
        if self.asserted and not self._lies_within(unit):
            return "rests on your word about other periods, or the whole stream"
        if self.losses is not None and time and self.time and time != self.time:
            return f"has periods by the time in {' '.join(self.time)!r}, not {' '.join(time)!r}"
        return ""

    def reach(self, of: Unit | AccountPeriods | str, many: int = 1) -> Reach:
        """How far a change reaches: of "event", one of them; of a unit, so many of one person.

        Where the share's own periods lie within those of the unit, whole ones of these are left
        out. Else others of the person's events may count in place of those that are left out, and
        each period that is met is two changes; so is a bound over the whole stream.
        """
        if isinstance(of, str):
            return Reach(1, self._changes, self.event_cost)
        met = self._met(of, many)
        within = self._lies_within(of)
        return Reach(met) if within else Reach(met, self._changes, self.event_cost)

    def rho_of(self, reach: Reach) -> Fraction:
        """How many times the rho of the budget such a change costs, rounded up."""
        factor = Fraction(1) if self.losses is None else self.losses.factor(reach.periods)
        return reach.squared * factor

    def budget_of(
        self, budget: PureDP | ZCDP, of: Unit | AccountPeriods | str, many: int = 1
    ) -> PureDP | ZCDP:
        """What such a change costs, as for `reach`."""
        reach = self.reach(of, many)
        if isinstance(budget, PureDP):  # whatever their products
            return PureDP(float_up(reach.changes * reach.periods * Fraction(budget.epsilon)))
        return ZCDP(float_up(self.rho_of(reach) * Fraction(budget.rho)))

    def aged_budget(self, budget: PureDP | ZCDP, age: int) -> PureDP | ZCDP:
        """What one event has cost so many steps after it."""
        if self.aged is None or isinstance(budget, PureDP):
            return budget
        return ZCDP(float_up(self.aged(age) * Fraction(budget.rho)))

    def delta_of(
        self, keys_delta: Fraction, of: Unit | AccountPeriods | str, many: int = 1
    ) -> Fraction:
        """What such a change takes of the delta for keys.

        Behind a bound one event less may lose its person some keys and gain them others. The noise
        alone crosses the thresholds of those gained with no more probability than with events that
        a person may have: twice as much in all, however many events change.
        """
        return self.keys_of(keys_delta, self.reach(of, many))

    def keys_of(self, keys_delta: Fraction, reach: Reach) -> Fraction:
        """The same of a change that reaches so far."""
        if self.losses is not None and keys_delta:
            keys_delta = max(keys_delta, self.losses.keys_delta(reach.periods))
        return reach.changes * keys_delta

    def _lies_within(self, unit: Unit | AccountPeriods) -> bool:
        if self.unit is None or isinstance(unit, AccountPeriods):
            return False
        return unit.starts_in(self.unit)

    @property
    def _changes(self) -> int:
        """How many changes of what is protected one event less is."""
        return 1 if self.event_cost == 1 else 2

    def _met(self, unit: Unit | AccountPeriods, many: int) -> int:
        """How many of its own periods meet so many of the unit."""
        if self.unit is None or isinstance(unit, AccountPeriods):
            return 1
        return min(many * self.unit.most_met(unit), len(self.unit))

    # In an account of one person's periods

    def check(self, account: Account) -> None:
        """Raise AccountError for a run that says nothing of what an account is for."""
        own = account.periods
        if account.user is None:
            return
        if own is not None:
            unit = self._unit_of(own)
            refusal = self.refusal(unit, own.time)
            remedy = f"give {{user=}}{account.user} with {{per_user}}, or take another account"
            if self.person:
                remedy = f"give {{timestamp=}}{' '.join(own.time)}, or take another account"
            if self.asserted:
                remedy = "let the count bound people's events, or take another account"
            check_unit(account, refusal, remedy)
        elif self.unit is not None:
            check_unit(
                account,
                f"is for one person's rows of {self.unit.any}",
                "take an account for one row, or one made with {per}, or leave {per} out",
            )

    def reach_in(self, account: Account, several: str = "") -> Reach | None:
        """How far periods of one person reach that an account is for; None: they have no end.

        `several` is one of SEVERAL, or empty: one period.
        """
        if account.periods is None:
            return Reach(1, self._changes, self.event_cost) if account.user is None else Reach()
        if self.losses is None:
            return self.reach(account.periods)
        unit, most = self._unit_of(account.periods), SEVERAL[several] if several else 1
        if most is None and unit.is_endless:
            return None
        return self.reach(unit, min(most or len(unit), len(unit)))

    def price(self, budget: Budget, keys_delta: float, account: Account, reach: Reach) -> Charge:
        """What periods of one person are charged that reach so far; see docs/proofs/periods.md.

        The others are as in `charges`.
        """
        losses, charge = self.losses, account.charge(budget, keys_delta)
        if losses is None:
            return charge
        if account.total.rho and isinstance(budget, ZCDP):
            return Charge(rho=charge.rho * self.rho_of(reach))
        if account.total.rho:  # that of the noise
            return Charge(rho=losses.cost(*reach).rho)
        if reach == Reach():
            return charge
        one = losses.keys_delta(1)
        epsilon = losses.epsilon_left(charge.delta, reach)
        if epsilon is None:  # keys take all of delta
            return Charge(charge.epsilon, Fraction(1))
        more = self.keys_of(one, reach) - one
        return Charge(Fraction(epsilon), min(charge.delta + more, Fraction(1)))

    def charges_of(
        self, budget: Budget, keys_delta: float, account: Account, reach: Reach
    ) -> Charges:
        """`price`, and for a replacement twice."""
        return charged(self.price(budget, keys_delta, account, reach))

    def several(
        self, budget: Budget, keys_delta: float, account: Account
    ) -> dict[str, Charges | None]:
        """What several periods of one person cost, where that is not what one costs.

        All of them cost None where the clock has no end.
        """
        if account.periods is None or self.losses is None:
            return {}
        reaches = {name: self.reach_in(account, name) for name in SEVERAL}
        return {
            name: reach and self.charges_of(budget, keys_delta, account, reach)
            for name, reach in reaches.items()
        }

    def is_of(self, account: Account) -> bool:
        """Whether what an account is for is at most one change of what is protected."""
        return account.user is not None and self.reach_in(account) == Reach()

    def why(self, account: Account) -> str:
        """Why a run costs more than its budget in an account of periods, or nothing."""
        reach = self.reach_in(account)
        if account.periods is None or reach is None or reach == Reach():
            return ""
        twice = f"two changes: {account.two_changes}"
        if self.losses is None:
            return f" (of {twice})"
        met = f"one meets up to {reach.periods} of the run's {self.losses.periods.plural}"
        return f" ({met}{f', each {twice}' * (reach.changes > 1)})"

    def _unit_of(self, own: AccountPeriods) -> Any:
        """The periods of an account, as far as the clock goes."""
        return own if self.losses is None else self.losses.periods.such_as(own)


def charged(charge: Charge, more: Fraction = Fraction(0)) -> Charges:
    """A charge and more delta; that rows stay and say anything else is two changes."""
    presence = Charge(charge.epsilon, min(charge.delta + more, Fraction(1)), charge.rho)
    return Charges(presence, presence.of_two())


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
        protects = self.protects
        protects.check(account)
        reach = protects.reach_in(account)
        if account.periods is not None and protects.losses is not None and reach is not None:
            return protects.charges_of(budget, keys_delta, account, reach), protects.why(account)
        charge = account.charge(budget, keys_delta)
        if reach == Reach():
            return charged(charge), ""
        # A row that goes from one person to another is two changes of each of them.
        two = charge.of_two()
        return Charges(two, two.of_two()), f" (of two changes: {account.two_changes})"
