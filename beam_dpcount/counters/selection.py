"""Keys that nobody listed: when the releases of one begin, and that nothing tells of it before.

Each key with an event has a counter over the whole public clock. From its first event on it is
tested at every tick, and shown from the first one at which its own private count reaches that
tick's threshold. There is no second counter, and no second epsilon; docs/proofs/selection.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from beam_dpcount.budget.budgets import ApproxDP, Budget
from beam_dpcount.budget.conversions import check_delta, float_down
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.tails import exceedances, thresholds
from beam_dpcount.mechanisms.base import FloatArray, IntArray, State
from beam_dpcount.noise.entropy import Noise, SystemNoise
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.notebooks import described

MOST_SHARDS = 1 << 16
_ROUNDING = 2e-9
_TRIED = 1000  # made-up keys of a simulation
_LATEST, _LONGEST = 2000, 4000  # the tick at which they begin, and for how many they are followed


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
      >>> minutes = dp.Clock("1m", start=0, ticks=1000)
      >>> count = dp.TickCount(dp.ApproxDP(1.0, 1e-6), minutes, keys=dp.SelectKeys())
      >>> count.selection.delta, round(max(count.selection.thresholds))
      (5e-07, 80)
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
                    "e.g. SelectKeys(delta=1e-7), which is then beside it (beside a share: of its "
                    "Ledger(budget, keys_delta=...)), or an ApproxDP budget"
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


class Outlook(NamedTuple):
    """What to expect of a made-up key that grows by as much at every tick.

    Fields:
      rate: by how much, in the values' units.
      begins: the tick of its first event.
      delay: the median number of ticks from then until it is shown; None: more than were tried.
      shown_at: its median count by then.
      bias: by how much its first release is too high on average, having been chosen for being high.
      bias_later: the same of the release ten ticks later; None: the clock ends before, for many.
    """

    rate: float
    begins: int
    delay: int | None
    shown_at: float | None
    bias: float | None
    bias_later: float | None


@dataclass(frozen=True)
class Selection:
    """When keys are shown by the releases of their counters.

    Args:
      counter: each key's, at a clock.
      delta: see SelectKeys; `selection` knows the default.
      at_least, every: as for SelectKeys.

    Guarantee: whatever keys the data have, where a key has all its releases from the tick on at
      which it is shown, and none before, the releases of all keys together satisfy the counter's
      budget for its change, but for `delta`, which adds to that of the budget. Sensitivity: the
      counter's. The threshold of tick t is the most that can be in a key of what neighbours differ
      by, and what noise reaches at any tick with a test with a probability of at most
      delta / (counters that change), from its own law: `tails.thresholds`.

    Source: docs/proofs/selection.md.
    """

    counter: Counter
    delta: float
    at_least: int = 1
    every: int = 1

    outlook_of: ClassVar[str] = "grows by so much at each tick"

    def __post_init__(self) -> None:
        change = self._change
        self._check_workload()
        if self.at_least > 1:
            if change.low < 0:
                raise ParameterError(
                    "at_least",
                    f"needs values that are not negative, got bounds ({change.low:g}, "
                    f"{change.high:g}): without that, one event may move many ticks",
                    "leave {at_least} out, or give {bounds} from 0",
                )
            if not self.skipped:
                problem = f"is {self.at_least}, and leaves nothing out of sums in multiples of"
                remedy = "give a larger {at_least}, or a smaller {unit}"
                raise ParameterError("at_least", f"{problem} {self.counter.unit:g}", remedy)
            if getattr(change, "gap", 0):
                problem = "does not go with a gap: it moves what a person's events add closer"
                raise ParameterError("at_least", problem, "leave one of them out")
        if self.every > self.counter.horizon:
            problem = f"is {self.every}, but there are {self.counter.horizon} ticks: no key is seen"
            raise ParameterError("every", problem, "give a smaller {every}")

    def _check_workload(self) -> None:
        """Refuse releases in which one event may be more than its own size."""
        mechanism = self.counter.mechanism
        if not mechanism.workload.is_prefix_sums:
            raise ValueError(
                f"{mechanism.name} releases {mechanism.workload}, of which one event may be more "
                "than its own size, and keys are selected by prefix sums: leave out momentum and "
                "decay, or mechanism"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # no caches

    @property
    def _change(self) -> TickChange:
        change = self.counter.change
        if not isinstance(change, TickChange):
            raise TypeError(f"keys are selected at the ticks of a clock, got {change!r}")
        return change

    @property
    def unit(self) -> float:
        """What 1 is worth in the sums by which keys are shown."""
        return self.counter.unit

    @property
    def skipped(self) -> int:
        """How much of a key's sum is left out before it is there, on the lattice."""
        return round((self.at_least - 1) / self.unit)

    @cached_property
    def lattice_thresholds(self) -> FloatArray:
        """`thresholds` of what is counted, in multiples of the unit."""
        counter, steps = self.counter, self.counter.horizon
        touched = self._change.touched(counter.mechanism)
        each = touched.each * self._change.shows(counter.unit)
        # Floats are rounded by less, and so is what a ledger grants.
        total = self.delta / (touched.sides * touched.counters) * (1 - _ROUNDING)
        tested = np.arange(1, steps + 1) % self.every == 0
        made = each + thresholds(counter, total, tested)
        made.flags.writeable = False
        return made

    def shown(self, events: int, by_tick: IntArray | None = None) -> float:
        """A bound on the probability that a key is shown that holds so many events, no others.

        Args:
          events: how many there are in all.
          by_tick: how many there may be by the end of each tick; default: all of them.
        """
        shows, tested = self._change.shows(self.counter.unit), np.isfinite(self.lattice_thresholds)
        held = np.full(len(tested), events) if by_tick is None else np.minimum(events, by_tick)
        found = exceedances(self.counter, self.lattice_thresholds - held * shows)
        return min(1.0, float(found[tested].sum()))

    @property
    def thresholds(self) -> FloatArray:
        """A key is shown by the first release that is at least this; shape (ticks,).

        In the values' units; infinite at ticks without a test.
        """
        return np.asarray((self.lattice_thresholds + self.skipped) * self.unit)

    @property
    def fingerprint(self) -> str:
        """All that hidden keys depend on."""
        return repr((self.delta, self.at_least, self.every))

    def outlook(self, rates: Sequence[float] = (1, 10, 100), keys: int = _TRIED) -> list[Outlook]:
        """When keys that grow at these rates would be shown: by simulation, without any data.

        Args:
          rates: by how much a key grows at each tick, in the values' units.
          keys: how many keys are simulated; results vary by a few percent.
        """
        mechanism, horizon = self.counter.mechanism, self.counter.horizon
        begins = 1 + min(horizon // 3, _LATEST)
        noise = SystemNoise(self.counter.law, keys)
        state = mechanism.after(begins - 1, noise, keys)
        return [self._simulated(rate, begins, state, noise, keys) for rate in rates]

    @cached_property
    def _outlook(self) -> list[Outlook]:
        """What `print` shows: simulated once, so that all that shows it says the same."""
        return self.outlook()

    def _simulated(
        self, rate: float, begins: int, state: State, noise: Noise, keys: int
    ) -> Outlook:
        counter, unit = self.counter, self.unit
        most = self._change.largest(unit)
        grows, total = min(max(1, round(rate / unit)), most), 0
        first = np.zeros(keys, dtype=np.int64)  # the tick that shows each, 0: none yet
        errors = np.zeros((2, keys))
        for step in range(begins, min(counter.horizon, begins + _LONGEST) + 1):
            before, total = max(total - self.skipped, 0), self._held(total, grows)
            x = self._fed(before, max(total - self.skipped, 0))
            state, y = counter.step_units(state, np.full(keys, x, dtype=np.int64), noise)
            error = y + self.skipped - total
            if total > self.skipped:
                new = (first == 0) & (y >= self.lattice_thresholds[step - 1])
                first[new], errors[0, new] = step, error[new]
            later = (first > 0) & (step == first + 10)
            errors[1, later] = error[later]
            if first.all() and step >= int(first.max()) + 10:
                break
        shown, followed = first > 0, (first > 0) & (first + 10 <= step)
        if np.count_nonzero(followed) < 0.95 * np.count_nonzero(shown):
            followed[:] = False  # those are shown early, and so have the highest noise of all
        if 2 * np.count_nonzero(shown) < keys:
            return Outlook(rate, begins, None, None, None, None)
        median = int(np.median(np.where(shown, first, counter.horizon + 1)))
        mean = [
            float(e[of].mean() * unit) if of.any() else None
            for e, of in zip(errors, (shown, followed), strict=True)
        ]
        count = (median - begins + 1) * grows * unit
        return Outlook(rate, begins, median - begins, count, mean[0], mean[1])

    def _held(self, total: int, grows: int) -> int:
        """What a simulated key holds after a tick, on the lattice."""
        return total + grows

    def _fed(self, before: int, after: int) -> int:
        """What its counter is given at a tick."""
        return after - before

    def __str__(self) -> str:
        tested = np.where(np.isfinite(self.lattice_thresholds), self.thresholds, 0.0)
        highest = int(np.argmax(tested))
        first = int(np.argmax(tested > 0))
        lines = [
            f"a key is shown at the first tick at which its private count reaches "
            f"{tested[first]:.4g} (tick {first + 1}) to {tested[highest]:.4g} (tick {highest + 1})"
        ]
        rows = self._outlook
        lines.append(
            f"a key that begins at tick {rows[0].begins} and {self.outlook_of} is shown (by "
            "simulation, without data)"
        )
        for row in rows:
            if row.delay is None:
                lines.append(f"  {row.rate:>5g} a tick: not within the ticks that were tried")
                continue
            later = "" if row.bias_later is None else f", {row.bias_later:+.2g} ten ticks later"
            ticks = f"{row.delay} tick{'s' * (row.delay != 1)}"
            lines.append(
                f"  {row.rate:>5g} a tick: after {ticks} (median), at a count of "
                f"{row.shown_at:.4g}; its first release is off by {row.bias:+.2g} on average{later}"
            )
        return "\n".join(lines)

    def describe(self) -> Mapping[str, str]:
        """The public parameters."""
        tested = self.thresholds[np.isfinite(self.lattice_thresholds)]
        return {
            "keys_delta": f"{self.delta:g}",
            "keys_shown_from": f"private counts of {tested.min():.6g} to {tested.max():.6g}",
            **({} if self.at_least == 1 else {"keys_at_least": str(self.at_least)}),
            **({} if self.every == 1 else {"keys_tested_every": f"{self.every} ticks"}),
        }

    def _repr_html_(self) -> str:
        return described("Selection", self.describe())


@dataclass(frozen=True)
class JointSelection(Selection):
    """A Selection by one of the sums of a vector, the number of events, with noise of its own."""

    @property
    def unit(self) -> float:
        return 1 / self._change.shows(self.counter.unit)


def selection_of(
    keys: SelectKeys,
    budget: Budget,
    counter: Counter,
    delta: float,
    kind: type[Selection] = Selection,
) -> Selection:
    """The selection of a counter calibrated to what `keys.part_of(budget)` left."""
    pure = isinstance(counter.law, DiscreteLaplace)
    if pure and keys.delta is None and isinstance(budget, ApproxDP):
        delta = budget.delta  # of which such noise needs nothing
    return kind(counter, delta, keys.at_least, keys.every)
