"""What several periods of one person cost together, where one of them is protected by the budget.

With g = `lag_bounds`, periods of at least P ticks, and S the largest sum of squares of what one
period adds to each counter, n periods of one person have a squared norm of at most n times that of
one, plus 2 S times the sum over 0 < d < n of (n - d) g((d - 1) P + 1): events of periods that are d
apart are (d - 1) P + 1 ticks apart, or more. The proof is in docs/proofs/periods.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from beam_dpcount.budget.account_text import NO_GUARANTEE
from beam_dpcount.budget.conversions import float_down, float_up
from beam_dpcount.budget.costs import ConcentratedCost, Cost, GaussianCost, PureCost
from beam_dpcount.budget.spender import Reach
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.change import Norms, Spread
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.periods import Periods
from beam_dpcount.counters.selection import Selection
from beam_dpcount.counters.users import UserChange

SHOWN = (1, 7, 30)  # periods whose cost is printed
_SMALL = 64  # events that are tried one by one for what shows a key
_RATIO = 1.05
_ROUNDING = Fraction(1, 10**9)  # as that of a ledger


@dataclass(frozen=True)
class PeriodCosts:
    """What several periods of one person cost in the releases of a counter.

    Args:
      counter: each key's.
      change: the counter's.
      periods: of the change, one of which the counter's budget protects.
      counts: the clock, with the windows in which the count starts anew; None: it never does.
      moves: whether events may count at ticks later than theirs: late events that are folded, or
        `at_least`. Then nothing keeps periods apart, and n of them have n^2 times the cost.
      selection: when keys that nobody listed are shown; None if they are listed.
    """

    counter: Counter
    change: UserChange
    periods: Periods
    counts: Grid | None = None
    moves: bool = False
    selection: Selection | None = None

    def norms(self, many: int) -> Norms:
        """Delta_1 and the square of Delta_2 of so many periods of one person, as `Change.norms`."""
        counter, change, within = self.counter, self.change, many
        if self.counts is not None and not self._straddles:
            _, within = self.periods.restarts(self.counts)
        full, rest = divmod(many, within)
        reach = _times(self._reach(min(within, many)), full)
        if rest:
            reach = _sum(reach, self._reach(rest))
        return change.norms_of(reach, counter.mechanism, counter.unit)

    @property
    def _straddles(self) -> bool:
        """Whether a period may meet several windows, and a window several periods."""
        return self.counts is not None and min(self.periods.restarts(self.counts)) > 1

    def _reach(self, many: int) -> Spread:
        """How far so many periods reach in one window."""
        moves = self.moves or self._straddles
        apart = 0 if moves else self.periods.shortest
        return self.change.reach_of_periods(self.counter.mechanism, self.counter.unit, many, apart)

    def cost(self, many: int) -> Cost:
        """What they cost, beside `keys_delta`."""
        if many == 1:
            return self.counter.costs()[0]
        return self.counter.cost_of(self.norms(many))

    def factor(self, many: int) -> Fraction:
        """How many times the rho of one period they cost, rounded up."""
        one, all_of_them = self.norms(1)[1], self.norms(many)[1]
        return Fraction(float_up(all_of_them / one)) if many > 1 else Fraction(1)

    def keys_delta(self, many: int) -> Fraction:
        """With which probability keys are shown that the person alone has in these periods; or 1.

        At most the sum over counters of q(k), with q(k) the probability, at most, that one is shown
        which holds k of the person's events and nothing else: so at most all events times the
        largest q(k) / k.
        """
        selection = self.selection
        if selection is None:
            return Fraction(0)
        if many == 1:
            return Fraction(selection.delta)
        change = self.change
        mechanism = self.counter.mechanism
        _, each, sides = change.touched(mechanism)
        most, every = change.alone(mechanism, many), many * change.total(mechanism)
        if most <= each:  # as in one period, which thresholds are for
            return min(many * Fraction(selection.delta), Fraction(1))
        # So many periods have begun after so many ticks, wherever a count starts.
        ticks = np.arange(self.counter.horizon)
        held = each * (1 - (-ticks // self.periods.shortest))
        least, largest = 1.0 / (sides * every), selection.shown(most, held) / most
        for low, high in _tried(most):
            if largest >= least:
                return Fraction(1)
            largest = max(largest, selection.shown(high, held) / low)
        return min(max(Fraction(every * largest) * sides, Fraction(selection.delta)), Fraction(1))


def _tried(most: int) -> Iterator[tuple[int, int]]:
    """Ranges, from and to, that cover 1 to `most`."""
    low = 1
    while low <= most:
        high = low if low < _SMALL else min(int(low * _RATIO), most)
        yield low, high
        low = high + 1


def _times(reach: Spread, many: int) -> Spread:
    return Spread(many * reach.l1, many * reach.l2_squared, many * reach.touched)


def _sum(one: Spread, other: Spread) -> Spread:
    l2_squared = one.l2_squared + other.l2_squared
    return Spread(one.l1 + other.l1, l2_squared, one.touched + other.touched)


def times(cost: Cost, changes: int, squared: int) -> Cost:
    """What so many changes cost: so often epsilon, or `squared` times rho."""
    if isinstance(cost, PureCost):  # whatever their products
        return PureCost(changes * cost.epsilon, changes**2 * cost.rho)
    if isinstance(cost, GaussianCost):
        return GaussianCost(squared * cost.ratio_squared)
    return ConcentratedCost(squared * cost.rho)


def together(costs: Sequence[Cost]) -> Cost:
    """What releases cost together, as one."""
    if len(costs) == 1:
        return costs[0]
    if all(isinstance(cost, PureCost) for cost in costs):
        pure = [cost for cost in costs if isinstance(cost, PureCost)]
        return PureCost(
            sum((cost.epsilon for cost in pure), Fraction(0)),
            sum((cost.rho for cost in pure), Fraction(0)),
        )
    if all(isinstance(cost, GaussianCost) for cost in costs):
        gaussian = [cost for cost in costs if isinstance(cost, GaussianCost)]
        return GaussianCost(sum((cost.ratio_squared for cost in gaussian), Fraction(0)))
    return ConcentratedCost(sum((cost.rho for cost in costs), Fraction(0)))


@dataclass(frozen=True)
class TogetherCosts:
    """What several periods of one person cost in counters that share a budget.

    Args:
      parts: of each counter, with the same periods.
    """

    parts: tuple[PeriodCosts, ...]

    @property
    def periods(self) -> Periods:
        """The periods of the unit."""
        return self.parts[0].periods

    def factor(self, many: int) -> Fraction:
        """How many times the rho of one period they cost, rounded up."""
        return max(part.factor(many) for part in self.parts)

    def keys_delta(self, many: int) -> Fraction:
        """With which probability keys are shown that the person alone has in these periods."""
        return min(sum((part.keys_delta(many) for part in self.parts), Fraction(0)), Fraction(1))

    def cost(self, many: int, changes: int = 1, squared: int = 1) -> Cost:
        """What they cost, so many changes of each: so often its epsilon, or `squared` its rho."""
        return times(together([part.cost(many) for part in self.parts]), changes, squared)

    def epsilon_left(self, delta: Fraction, reach: Reach) -> float | None:
        """Their epsilon at what keys of one period leave of this delta; None: they take all."""
        return epsilon_left(self.cost(*reach), delta, self.keys_delta(1))

    def epsilon(self, delta: float, many: int = 1) -> float | None:
        """The epsilon of so many periods of one person at this delta, of which keys take theirs.

        None: they take all of it.
        """
        return _epsilon(self, delta, check_whole("periods", many))

    def lines(self, delta: float, ends: bool) -> str:
        """What 1, 7, 30 and, on a clock that ends, all periods of one person cost, in words."""
        periods = self.periods
        shown = [many for many in SHOWN if many < len(periods)]
        shown += [len(periods)] if ends or len(periods) in SHOWN else []
        said = []
        for many in shown:
            every = ends and many == len(periods)
            name = f"{'all ' * (every and many > 1)}{many:,} {_named(periods, many)}"
            found = self.epsilon(delta, many)
            said.append(f"{name}: {NO_GUARANTEE if found is None else f'epsilon {found:.3g}'}")
        return f"of one person {'; '.join(said)} (at delta = {delta:g})"


@lru_cache(maxsize=64)
def _epsilon(costs: TogetherCosts, delta: float, many: int) -> float | None:
    return epsilon_left(costs.cost(many), Fraction(delta), costs.keys_delta(many))


def epsilon_left(cost: Cost, delta: Fraction, taken: Fraction) -> float | None:
    """The epsilon at what is left of delta once keys have taken so much; None if there is none."""
    remains = delta - taken
    if isinstance(cost, PureCost) and -taken * _ROUNDING <= remains <= 0:
        return float_up(cost.epsilon)  # Laplace noise needs no delta itself
    return cost.epsilon_at(float_down(remains)) if remains > 0 else None


def _named(periods: Periods, many: int) -> str:
    return (periods.word if many == 1 else periods.plural).partition(" in ")[0]


def refusal() -> ParameterError:
    """Why there is no cost of several periods."""
    return ParameterError(
        "periods",
        "is of people who are protected period by period, and here is none",
        'give e.g. users=Users(by, events, per="1d"), or leave {periods} out',
    )
