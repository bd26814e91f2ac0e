"""What all events of one person can change, where a bound says how many of them count.

A person's events may fall into one counter or into many. Counters of different keys, items and
windows have independent noise, so their squared changes add up; and j events in one counter cost
more than j in several. So the worst allocation fills one counter after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from beam_dpcount.counters.change import Change, Norms, Spread, TickChange, Touched, spread_norms
from beam_dpcount.counters.periods import Periods
from beam_dpcount.mechanisms.base import Mechanism


def worst(total: int, each: int, cost: Callable[[int], Fraction]) -> Fraction:
    """The largest sum of the costs of counters, over all allocations of events to them.

    Args:
      total: how many events there are to allocate; there are counters enough for all.
      each: the most in one counter.
      cost: of so many events in one counter: convex, and 0 for none.
    """
    full, rest = divmod(total, each)
    return full * cost(each) + cost(rest)


def column_cost(mechanism: Mechanism, k: int, gap: int) -> Fraction:
    """D(k): how far k events of size 1 move R x in one counter, at most: its squared L2 norm.

    k^2 g(0) where they may share a tick; where they are `gap` ticks apart or more,
    k g(0) + 2 sum over 0 < i < k of (k - i) g(i gap), with g = `mechanism.lag_bounds`.
    """
    if not gap or k < 2:
        return k * k * Fraction(mechanism.l2_sensitivity_squared)
    g = _lags(mechanism, gap, k)
    return k * g[0] + 2 * sum(((k - i) * g[i] for i in range(1, k)), Fraction(0))


@lru_cache(maxsize=64)
def _lags(mechanism: Mechanism, gap: int, k: int) -> tuple[Fraction, ...]:
    """g(0), g(gap), ..., g((k - 1) gap)."""
    return tuple(map(Fraction, mechanism.spaced_bounds(gap, k)))


@dataclass(frozen=True)
class UserChange(TickChange):
    """The difference between streams, counted at the ticks of a public clock, in one person.

    Args:
      low, high, most: as for TickChange.
      relation: "add_remove" (default): all events of one person are there, or none. "replace_one":
        they are any others, which costs twice as much; four times, where values have two signs or
        R has negative entries.
      max_items: in how many counters one event counts, at most.
      events: k, the most events of a person that count.
      keys: in how many keys (or items), at most.
      per_key: how many of them in one key, over all windows.
      gap: the fewest ticks between two of them; 0: they may fall into one tick.
      windows: how many windows there are, each of as many ticks as the mechanism's horizon.
      restarts: how many there are where each window of a key is another key, to `keys` and
        `per_key`, in place of `windows`.
      asserted: whether the bound is the user's word, which nothing enforces.
      periods: in each of which the bound holds by itself: then it is one person's events of any one
        of them that neighbours differ in. None: all events of a person.

    Guarantee: with D as `column_cost` has it, j the most events in one counter and n full counters,
      Delta_2^2 = m^2 [n D(j) + D(rest)], and Delta_1 = m k b times an encoder's. Where R is
      rounded, each counter that changes is rounded apart.
    """

    events: int = 1
    keys: int = 1
    per_key: int = 1
    gap: int = 0
    windows: int = 1
    asserted: bool = False
    restarts: int = field(default=1, repr=False)  # the norms tell, where it matters
    periods: Periods | None = field(default=None, repr=False)  # those of all the stream: the same

    takes_vectors: ClassVar[bool] = False  # whether keys may have several numbers
    meanings: ClassVar[Mapping[str, str]] = {
        "replace_one": "what, when and under which keys all events of {whom} count",
        "add_remove": "whether {whose} events{when} are there",
    }

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> Norms:
        if dimension is not None and not self.takes_vectors:
            raise ValueError("at ticks each key counts single numbers: leave dimension out")
        return self.norms_of(self.reach(mechanism, unit), mechanism, unit)

    def norms_of(self, reach: Spread, mechanism: Mechanism, unit: float) -> Norms:
        """`norms` of a change that reaches so far."""
        most = self.largest(unit)
        fine = mechanism.resolution(self.magnitude(unit), most)
        return spread_norms(mechanism, reach, fine, most)

    def reach(
        self,
        mechanism: Mechanism,
        unit: float,
        cost: Callable[[int], Fraction] | None = None,
    ) -> Spread:
        """How far all events of a person reach through an encoder.

        Args:
          mechanism: whose encoder it is.
          unit: the lattice's.
          cost: of so many events of size 1 in one counter; default: `column_cost`.
        """
        total, (touched, each, sides) = self.total(mechanism), self.touched(mechanism)
        m, times = self.magnitude(unit), self._sides_cost(mechanism)
        squared = worst(total, each, cost or self._cost(mechanism))
        return Spread(sides * m * total, times * m * m * squared, sides * touched)

    def reach_of_periods(self, mechanism: Mechanism, unit: float, many: int, apart: int) -> Spread:
        """How far all events of a person in so many periods reach.

        Args:
          mechanism, unit: as for `reach`.
          many: how many periods.
          apart: the ticks of the shortest; 0: events of different periods may meet in one tick.
        """
        one = self.reach(mechanism, unit)
        l1, touched = many * one.l1, many * one.touched
        if not apart:
            return Spread(l1, many**2 * one.l2_squared, touched)
        squares = self.reach(mechanism, unit, lambda k: Fraction(k * k)).l2_squared
        cross = cross_products(mechanism, many, apart) * squares
        return Spread(l1, many * one.l2_squared + cross, touched)

    def _cost(self, mechanism: Mechanism) -> Callable[[int], Fraction]:
        return lambda k: column_cost(mechanism, k, self.gap)

    def _sides_cost(self, mechanism: Mechanism) -> int:
        return self._of_two(mechanism) if self.relation == "replace_one" else 1

    def total(self, mechanism: Mechanism) -> int:
        """How often all events of a person count, in all counters together."""
        events = self.events
        if self.gap:  # no more fit into all windows
            ticks = mechanism.horizon * self.windows * self.restarts
            events = min(events, 1 + (ticks - 1) // self.gap)
        return min(events * self.max_items, self.keys * self.per_key)

    def alone(self, mechanism: Mechanism, many: int) -> int:
        """How many events a counter may hold that only so many periods of one person are in."""
        return many * self.touched(mechanism).each

    def touched(self, mechanism: Mechanism) -> Touched:
        each = min(self.events, self.per_key)
        if self.gap:  # in one window
            each = min(each, 1 + (mechanism.horizon - 1) // self.gap)
        counters = min(self.total(mechanism), self.keys * self.windows)
        return Touched(counters, each, 1 + (self.relation == "replace_one"))

    def _of_two(self, mechanism: Mechanism) -> int:
        """What two sets of events cost, in D: their squares add up if no products are negative."""
        return 2 if mechanism.is_nonnegative and (self.low >= 0 or self.high <= 0) else 4

    @property
    def spacing(self) -> int:
        return self.gap if min(self.events, self.per_key) > 1 else 0

    def event_cost(self, mechanism: Mechanism) -> int:
        # One event less may let others of the same person count: another set of a person's events.
        plain = self.asserted or self.relation == "replace_one"
        return 1 if plain else self._of_two(mechanism)

    @property
    def person(self) -> str:
        asserted = ", by your word" if self.asserted else ""
        if self.periods is not None:
            return f"{self._whose}, of which at most {self.events} count{asserted}"
        return f"one person with at most {self.events} events{asserted}"

    @property
    def _whose(self) -> str:
        return "one person's events" + ("" if self.periods is None else f" of {self.periods.any}")

    def __str__(self) -> str:
        words = {"whom": "any one person", "whose": "any one person's", "when": ""}
        if self.periods is not None:
            words = {"whom": f"any one person in {self.periods.any}", "whose": "any one person's"}
            words["when"] = f" of {self.periods.any}"
        meaning = self.meanings[self.relation].format(**words)
        return f"{self.relation} ({meaning}, {self._extent()})"

    def _extent(self) -> str:
        asserted = ", by your word" if self.asserted else ""
        apart = f", {self.gap} ticks apart" if self.gap else ""
        keys = "one key" if self.keys == 1 else f"{self.keys} keys"
        each = "" if self.periods is None else f" and {self.periods.word}"
        many = f"at most {self.events} events a person{each}{asserted}, in {keys}"
        many += f", {self.per_key} a key"
        return f"{many}{apart}; {super()._extent()}"


def cross_products(mechanism: Mechanism, many: int, apart: int) -> Fraction:
    """2 times the sum over 0 < d < n of (n - d) g((d - 1) P + 1), for n periods of P ticks."""
    many = min(many, 1 + -(-mechanism.horizon // apart))  # as many as the horizon has
    g = _lags_of_periods(mechanism, many, apart)
    return 2 * sum(((many - d) * g[d - 1] for d in range(1, many)), Fraction(0))


@lru_cache(maxsize=32)
def _lags_of_periods(mechanism: Mechanism, many: int, apart: int) -> tuple[Fraction, ...]:
    """g(1), g(P + 1), g(2 P + 1) and so on; 0 beyond the horizon, where there are no two ticks."""
    horizon = mechanism.horizon
    last = min(1 + (many - 2) * apart, horizon - 1)
    if many < 2 or last < 1:
        return (Fraction(0),) * max(many - 1, 0)
    known = mechanism.lag_bounds(last + 1)
    places = (1 + d * apart for d in range(many - 1))
    return tuple(Fraction(known[p]) if p < horizon else Fraction(0) for p in places)


@dataclass(frozen=True)
class GroupChange(Change):
    """The difference in the contents of all elements of one person, of whom so many count.

    Which elements count depends on what is public alone, so that only their contents differ.

    Args:
      low, high, relation: those of `one`.
      one: what one element changes. Made by `group_of`.
      events, per_key, asserted: as for UserChange.
      own_step: whether each element changes its own step only, as plain values and items do.

    Guarantee: changes of one counter add up at most to the sum of their norms, so that j elements
      cost j^2 times the squared norm of one; or if each has a step of its own, D(j) / g(0) times
      that, D as `column_cost` has it for steps 1 apart. Keys have independent noise. An element of
      a graph is two changes of an edge (or vertex), as others may insert the same: `for_element`.
    """

    one: Change = Change()
    events: int = 1
    per_key: int = 1
    asserted: bool = False
    own_step: bool = False

    takes_coordinates = False

    def __post_init__(self) -> None:
        """`one` was checked, and knows its own relations."""

    def magnitude(self, unit: float) -> int:
        return self.one.magnitude(unit)

    def largest(self, unit: float) -> int:
        return self.one.largest(unit)

    def norms(self, mechanism: Mechanism, unit: float, dimension: int | None) -> Norms:
        l1, l2_squared = self.one.norms(mechanism, unit, dimension)
        each, n = min(self.events, self.per_key), self.one.for_element
        if not self.own_step:
            squared = worst(self.events, each, lambda k: (k * n) ** 2 * l2_squared)
            return self.events * n * l1, squared
        column = Fraction(mechanism.l2_sensitivity_squared)
        each = min(each, mechanism.horizon)
        squared = worst(self.events, each, lambda k: column_cost(mechanism, k, 1) / column)
        return self.events * l1, squared * l2_squared

    @property
    def spacing(self) -> int:
        return int(self.own_step and min(self.events, self.per_key) > 1)

    @property
    def person(self) -> str:
        asserted = ", by your word" if self.asserted else ""
        what = "the contents of" if self.relation == "replace_one" else "whether all of"
        return f"{what} one person's elements, of which at most {self.events} count{asserted}"

    def __str__(self) -> str:
        return f"{self.person}, {self.per_key} a key; of each: {self.one}"


def group_of(
    one: Change, events: int, per_key: int, asserted: bool, own_step: bool = False
) -> GroupChange:
    """The change of so many elements of a person, each of which changes `one`."""
    bound = events, per_key, asserted, own_step
    return GroupChange(one.low, one.high, one.relation, None, one, *bound)
