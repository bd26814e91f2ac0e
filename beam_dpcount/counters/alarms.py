"""Alarms: how far above a level noise alone rarely lifts a release, and when a rise gets there.

A band for each tick does not do: over a month of minutes one of 95 % is left a thousand times by
noise alone. Proof: docs/proofs/tails.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from beam_dpcount.counters.clock import Clock, Each, Last, Restart
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid, UnevenGrid
from beam_dpcount.counters.largest import (
    Tail,
    floor_of,
    is_whole,
    least_level,
    tail_of,
    weighted_level,
    weighted_sum,
)
from beam_dpcount.counters.moments import SECOND
from beam_dpcount.counters.tails import ERROR, BoolArray, encoding, norms1
from beam_dpcount.mechanisms.base import FloatArray, IntArray

_ROWS = 1 << 16  # releases that are told apart; of more each is taken as the noisiest
_FINE = 1e-3  # by how much squared norms are rounded up, so that few differ
_LIKELY = 0.1  # probabilities above it need not be exact to be bounds
_RARE = 1e-6  # nor need those below it, where they are shown
_ULPS = 4  # units in the last place that sums of levels and margins may be rounded by
_DAY = 86_400 * SECOND


class Delay(NamedTuple):
    """How long a rise goes unseen, known before any data.

    Fields:
      ticks: at which tick of the rise the expected number lies above the threshold, from 1; of a
        view that restarts, counted from the restart. None: it never does.
      seen: a lower bound on the probability that the release lies above the threshold at the first
        tick at which the rise is whole, at the noisiest tick; 0 where no bound is known.
    """

    ticks: int | None
    seen: float

    def __repr__(self) -> str:
        crosses = "not expected" if self.ticks is None else f"expected at tick {self.ticks:,}"
        return f"Delay({crosses}, probability at the whole rise >= {percent(self.seen)})"


def percent(p: float) -> str:
    """A lower bound on a probability below 1, rounded down."""
    return f"{min(math.floor(1000 * p), 999) / 10:g} %"


@dataclass(frozen=True)
class Watch:
    """The noise of the releases that an alarm watches.

    Args:
      counter: of each key.
      grid: the ticks, and where counts start anew.
      ticks: false alarms are those of so many ticks in a row, wherever they begin.
      keys: how many keys are watched, each with noise of its own.

    Guarantee: `margin` is public: it follows from these alone.
    """

    counter: Counter
    grid: Grid
    ticks: int
    keys: int

    @property
    def releases(self) -> int:
        """How many releases could raise a false alarm."""
        return self.ticks * self.keys

    def margin(self, false_alarms: float) -> float:
        """The least x, nearly, with E(releases above x by noise alone) <= false_alarms.

        The expected number is a sum of exact tails over all keys and ticks, as `largest_error` sums
        them, of the ticks in a row that have the most noise. In the values' units.

        Args:
          false_alarms: above 0.
        """
        counter = self.counter
        p = min(false_alarms / 4 / self.releases, _LIKELY)
        tail = tail_of(counter, self._norms2, p)
        steps = least_level(
            counter, self._norms2, lambda x: self._sum(tail, x), false_alarms, self.releases
        )
        weighted = weighted_level(counter, 2 * false_alarms / self._all_rows)
        if weighted is not None and not is_whole(counter):
            steps = min(steps, weighted)
        return steps * counter.grid

    def false_alarms(self, margin: float) -> float:
        """A bound on the expected number of releases that noise alone lifts above the margin."""
        steps = margin / self.counter.grid + is_whole(self.counter)
        tail = tail_of(self.counter, self._norms2, _RARE / self.releases)
        weighted = self._all_rows * weighted_sum(self.counter, steps) / 2
        return min(self._sum(tail, steps), weighted)

    def seen(self, margin: float, rise: float) -> float:
        """A lower bound on P(rise + noise > margin), at the tick at which it is least."""
        counter, norms2 = self.counter, self._norms2
        steps = (rise - margin) / counter.grid
        if steps <= 0:
            return float(floor_of(counter, norms2, _RARE)(-steps).min())
        # Missed if noise is at most -steps. It is symmetric, but for what rounding adds.
        missed = float(tail_of(counter, norms2, _RARE)(steps).max())
        if steps > float(norms1(counter, norms2).max()) * encoding(counter):
            missed = min(missed, 0.5)
        return 1 - min(missed, 1.0)

    # The ticks in a row that have the most noise

    @cached_property
    def _rows(self) -> tuple[FloatArray, IntArray | None]:
        """Distinct squared norms of rows, rounded up, and which of them each tick of a count has.

        None: each tick may have the largest.
        """
        mechanism, uneven = self.counter.mechanism, isinstance(self.grid, UnevenGrid)
        if mechanism.horizon > _ROWS or (uneven and self._counts > 1):
            return np.array([mechanism.max_row_norm2()]), None
        norms2 = mechanism.row_norms2(mechanism.horizon)
        if not mechanism.unit_weights:
            norms2 = np.exp(np.ceil(np.log(norms2 * (1 + ERROR)) / _FINE) * _FINE)
        each, places = np.unique(norms2, return_inverse=True)
        return each, places.ravel().astype(np.int64)

    @property
    def _all_rows(self) -> int:
        """How many counts, of any key, have these ticks at most, all of their rows counted."""
        return self.keys * -(-self.ticks // self.counter.horizon)

    @property
    def _norms2(self) -> FloatArray:
        return self._rows[0]

    @property
    def _counts(self) -> int:
        return len(self.grid.origins())

    def _sum(self, tail: Tail, x: float) -> float:
        """A bound on the sum over keys and ticks of P(noise >= x)."""
        each, places = np.minimum(tail(x), 1.0), self._rows[1]
        if places is None:
            return self.releases * float(each.max()) * (1 + ERROR)
        of_count, many = each[places], self.ticks
        whole, rest = divmod(many, len(of_count))
        if self._counts > 1:  # any part of a count, and of the one that follows
            rows = np.append(of_count, of_count[:rest])
        else:
            rows = of_count
        until = np.append(0.0, np.cumsum(rows))
        part = float((until[rest:] - until[: len(until) - rest]).max())
        return self.keys * (whole * float(of_count.sum()) + part) * (1 + ERROR)


@lru_cache(maxsize=256)
def margin_of(watch: Watch, false_alarms: float) -> float:
    """`Watch.margin`, remembered."""
    return watch.margin(false_alarms)


def ticks_in_days(view: Clock | Each | Last | Restart, days: float) -> int:
    """How many ticks of a view's clock are in so many days; at most all of them."""
    clock = view.clock
    if clock.days:
        ticks = math.ceil(days / clock.days)
    else:
        ticks = math.ceil(days * _DAY / view.grid.tick)
    return min(max(ticks, 1), view.grid.ticks)


def above(level: float, margin: float) -> float:
    """The threshold, rounded up unless both are whole numbers that add up exactly."""
    total = level + margin
    if level.is_integer() and margin.is_integer() and abs(total) < 2**52:
        return total
    return total + _ULPS * max(math.ulp(total), math.ulp(level), math.ulp(margin))


def ticks_unseen(
    view: Clock | Each | Last | Restart, level: float, margin: float, rise: float
) -> int | None:
    """At which tick of a rise the expected number lies above level + margin; None: never.

    A rise is of the number that is released. Of the last n ticks, and of a count that restarts,
    it comes in equal parts, tick by tick: the number is whole after n. A count so far, and each
    tick alone, rise at once.
    """
    if rise <= margin:
        return None
    before = max(level, 0.0)
    if isinstance(view, Last):
        return math.floor(int(view.ticks) * margin / rise) + 1
    if isinstance(view, Restart):
        return math.floor(int(view.ticks) * (before + margin) / (before + rise)) + 1
    return 1


def watched(raised: bool, value: float, level: float, threshold: float) -> tuple[bool, bool]:
    """Whether an alarm is raised after one more release, and whether it starts there.

    It starts above the threshold, and ends at or below the level: noise around the threshold would
    start it again and again.
    """
    if raised:
        return value > level, False
    starts = value > threshold
    return starts, starts


def zone_of(value: float | None, level: float, threshold: float) -> int:
    """Where a release lies: 0, at or below the level; 2, above the threshold; else 1."""
    if value is None:
        return 1
    return 2 if value > threshold else int(value > level)


def starts_of(zones: IntArray, keys: IntArray) -> BoolArray:
    """At which of many releases alarms start, as `watched` has it, shape (n,).

    Args:
      zones: those of `zone_of`, of each key in order of ticks.
      keys: a number for each key; the releases of a key are in a row.
    """
    first = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    # The last release before, of this key, that decided whether an alarm is on.
    decided = np.where((zones != 1) | first, np.arange(len(zones)), 0)
    before = np.append(0, np.maximum.accumulate(decided)[:-1])[: len(zones)]
    return np.asarray((zones == 2) & (first | (zones[before] != 2)), dtype=np.bool_)
