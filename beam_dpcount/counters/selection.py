"""Keys that nobody listed: when the releases of one begin, and that nothing tells of it before.

Each key with an event has a counter over the whole public clock. From its first event on it is
tested at every tick, and shown from the first one at which its own private count reaches that
tick's threshold. There is no second counter, and no second epsilon; docs/proofs/selection.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from beam_dpcount.budget.budgets import ApproxDP, Budget
from beam_dpcount.budget.conversions import check_delta, float_down
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.tails import quantiles
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.noise.laws import DiscreteLaplace

MOST_SHARDS = 1 << 16


@dataclass(frozen=True)
class SelectKeys:
    """In place of a list of keys: all keys of the data whose private count is high enough.

    A key appears at the first tick at which its own private count reaches a threshold, and then
    has a release at every tick. Keys that never get there stay hidden, all but with probability
    `delta`; so do the first events of those that do. How high that is: `print(count.selection)`.

    Args:
      delta: the probability that all that one event (with `users`, all events of a person) shows of
        keys may take, in all ticks together: a part of the budget's own delta, by default half of
        it; all of it where noise is Laplace, which needs none itself. Beside a PureDP or ZCDP
        budget, or a share of a ledger: to be given.
      at_least: keys whose count, in all, stays below it are not even tested: they cost nothing, and
        never appear. Releases of others take what was left out of the count into account. Whole; it
        needs values that are not negative, and no `gap`.
      every: keys are tested at each so many ticks only: lower thresholds, and later appearances.
      shards: keys are spread over so many groups, by a public function of the key. More of them
        spread work over more workers; a state holds all keys of a shard. Public.

    Raises:
      ValueError, TypeError: an argument is outside its range; the message says what to pass.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.TickCount(dp.ApproxDP(1.0, 1e-6), 60, 0, horizon=1000, keys=dp.SelectKeys())
      >>> count.selection.delta, round(max(count.selection.thresholds))
      (5e-07, 83)
    """

    delta: float | None = None
    at_least: int = 1
    every: int = 1
    shards: int = 64

    def __post_init__(self) -> None:
        if self.delta is not None:
            object.__setattr__(self, "delta", check_delta(self.delta))
        for name in ("at_least", "every", "shards"):
            object.__setattr__(self, name, check_whole(name, getattr(self, name)))
        if self.shards > MOST_SHARDS:
            raise ParameterError("shards", f"must be at most {MOST_SHARDS}, got {self.shards}")

    def part_of(self, budget: Budget) -> tuple[Budget, float]:
        """What is left of a budget for the counts, and the delta that is for keys.

        Raises:
          ValueError: there is no delta to take, or not enough.
        """
        if not isinstance(budget, ApproxDP):
            if self.delta is None:
                raise ValueError(
                    f"{budget!r} has no delta, which keys that nobody listed need a part of: give "
                    "e.g. SelectKeys(delta=1e-7), which is then beside it, or an ApproxDP budget"
                )
            return budget, self.delta
        whole = Fraction(budget.delta)
        delta = whole / 2 if self.delta is None else Fraction(self.delta)
        if delta >= whole:
            raise ValueError(
                f"SelectKeys(delta={self.delta:g}) takes all of {budget!r}: give less than its "
                "delta, or leave it out for half"
            )
        return ApproxDP(budget.epsilon, float_down(whole - delta)), float_down(delta)


@dataclass(frozen=True)
class Selection:
    """When keys are shown by the releases of their counters.

    Args:
      counter: each key's, at a clock.
      delta: see SelectKeys; `selection` knows the default.
      at_least, every: as for SelectKeys.

    Guarantee: whatever the keys of the data, with all releases of a key from the tick on at which it
      is shown, and none before, the releases of all keys together satisfy the counter's budget for
      its change, but for `delta`, which adds to that of the budget. Sensitivity: the counter's.
      Threshold of tick t: above the most that what is there on one side only can count in a key, by
      what the noise of release t exceeds with a probability of at most delta / (ticks with a test *
      counters that change), from the noise's own law: `tails.quantiles`.

    Source: docs/proofs/selection.md.
    """

    counter: Counter
    delta: float
    at_least: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        change = self._change
        if self.at_least > 1:
            if change.low < 0:
                raise ParameterError(
                    "at_least",
                    f"needs values that are not negative, got bounds ({change.low:g}, "
                    f"{change.high:g}): without that, one event may move many ticks",
                    "leave {at_least} out, or give {bounds} from 0",
                )
            if getattr(change, "gap", 0):
                problem = "does not go with a gap: it moves what a person's events add closer"
                raise ParameterError("at_least", problem, "leave one of them out")
        if self.every > self.counter.horizon:
            problem = f"is {self.every}, but there are {self.counter.horizon} ticks: no key is seen"
            raise ParameterError("every", problem, "give a smaller {every}")

    @property
    def _change(self) -> TickChange:
        change = self.counter.change
        if not isinstance(change, TickChange):
            raise TypeError(f"keys are selected at the ticks of a clock, got {change!r}")
        return change

    @property
    def skipped(self) -> int:
        """How much of a key's sum is left out before it is there, on the lattice."""
        return round((self.at_least - 1) / self.counter.unit)

    @cached_property
    def lattice_thresholds(self) -> FloatArray:
        """`thresholds` of what is counted, in multiples of the unit."""
        counter, steps = self.counter, self.counter.horizon
        touched, tests = self._change.touched(counter.mechanism), steps // self.every
        each = touched.each * self._change.magnitude(counter.unit)
        # Floats are rounded by far less than 1e-12 here.
        chance = self.delta / (touched.sides * touched.counters * tests) * (1 - 1e-12)
        tested = np.arange(1, steps + 1) % self.every == 0
        made = np.where(tested, each + quantiles(counter, chance), np.inf)
        made.flags.writeable = False
        return made

    @property
    def thresholds(self) -> FloatArray:
        """A key is shown by the first release that is at least this; shape (ticks,).

        In the values' units; infinite at ticks without a test.
        """
        return np.asarray((self.lattice_thresholds + self.skipped) * self.counter.unit)

    @property
    def fingerprint(self) -> str:
        """All that hidden keys depend on."""
        return repr((self.delta, self.at_least, self.every))

    def describe(self) -> Mapping[str, str]:
        """The public parameters."""
        tested = self.thresholds[np.isfinite(self.lattice_thresholds)]
        return {
            "keys_delta": f"{self.delta:g}",
            "keys_shown_from": f"private counts of {tested.min():.6g} to {tested.max():.6g}",
            **({} if self.at_least == 1 else {"keys_at_least": str(self.at_least)}),
            **({} if self.every == 1 else {"keys_tested_every": f"{self.every} ticks"}),
        }


def selection_of(keys: SelectKeys, budget: Budget, counter: Counter, delta: float) -> Selection:
    """The selection of a counter calibrated to what `keys.part_of(budget)` left."""
    if keys.delta is None and isinstance(budget, ApproxDP):
        if isinstance(counter.law, DiscreteLaplace):  # pure: it leaves all of delta
            delta = budget.delta
    return Selection(counter, delta, keys.at_least, keys.every)
