"""Views of one count that are sums of one of them: what each tick counts.

"Each" takes the whole budget. The others add its releases up, so their noise is the sum of that
many draws. For few ticks this is better than shares of the budget: above all under a budget of
epsilon, where one number a tick has Laplace noise, and several at once need Gaussian noise. All of
it has been released, so this is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.errors import half_width, largest_half_width
from beam_dpcount.counters.grid import Grid
from beam_dpcount.mechanisms.differences import sums_of_steps
from beam_dpcount.mechanisms.single_steps import SingleSteps

MOST_SUMMED = 512  # ticks of `last`, each of which is a number of a key's state


@dataclass(frozen=True)
class SummedViews:
    """Sums of the releases of "each", of one number of a key.

    Args:
      each: the counter of the releases.
      windows: of each number, over which ticks it is a sum. 1 is "each" itself, which comes first;
        another number is the last ticks, None all so far, and a grid those since its last restart.
      ticks: how many the clock has; None: it has no end, and no number is of all ticks.

    Guarantee: none of its own; it computes with releases and public numbers only.

    Raises:
      ValueError: `can_sum` says no.

    Example:
      >>> import beam_dpcount as dp
      >>> each = dp.calibrate(SingleSteps(30), dp.PureDP(1.0))
      >>> views = SummedViews(each, (1, None, 7), 30)
      >>> [round(x, 2) for x in views.stddevs_at(30)]
      [1.36, 7.43, 3.59]
    """

    each: Counter
    windows: tuple[int | Grid | None, ...]
    ticks: int | None

    releases = 1  # of which numbers are computed

    def __post_init__(self) -> None:
        if not can_sum(self.each) or self.windows[:1] != (1,):
            raise ValueError("these views cannot be summed")

    @cached_property
    def counters(self) -> list[Counter]:
        """What would give each number alone, with the same noise: it is never stepped."""
        return [self._counter(window) for window in self.windows]

    def _counter(self, window: int | Grid | None) -> Counter:
        if window == 1:
            return self.each
        horizon = self.ticks or self.each.horizon
        if isinstance(window, int):
            horizon = max(horizon, window)
            return replace(self.each, mechanism=sums_of_steps(horizon, window))
        steps = horizon if window is None else window.steps
        return replace(self.each, mechanism=sums_of_steps(steps))

    def stddevs_at(self, t: int) -> list[float]:
        """The standard deviations of the numbers of a tick, from 1."""
        places = zip(self.counters, self._steps(t), strict=True)
        return [math.sqrt(counter.variance(step)) for counter, step in places]

    def half_widths_at(self, t: int, level: float) -> list[float]:
        """Half the widths of their intervals, from the exact law of the sums."""
        places = zip(self.counters, self._steps(t), strict=True)
        return [_half_width(counter, step, level) for counter, step in places]

    def largest(self, level: float) -> list[tuple[float, float]]:
        """Of each number the largest standard deviation, and half the interval."""
        return [
            (math.sqrt(counter.max_variance()), largest_half_width(counter, level))
            for counter in self.counters
        ]

    def _steps(self, t: int) -> list[int]:
        """The step that a tick is, for each number: one that restarts has its own."""
        return [w.count_of(t)[1] if isinstance(w, Grid) else t for w in self.windows]

    def restart(self, t: int) -> int | None:
        """The number of the restart that a tick is of, from 1; None if no number restarts."""
        counts = [w.count_of(t)[0] + 1 for w in self.windows if isinstance(w, Grid)]
        return counts[0] if counts else None

    def init(self) -> list[float]:
        """The state before the first tick, in units of the lattice: the sum of all releases, that
        since the last restart, and the last releases."""
        return [0.0] * (2 + self._remembered)

    def step(
        self, state: Sequence[float], t: int, released: Sequence[float]
    ) -> tuple[list[float], list[float]]:
        """The state after a tick, and its numbers; as for `CombinedViews`."""
        (value,), (total, restarted, *before) = released, state
        units = float(round(value / self.each.grid))  # sums of whole numbers are exact
        begins = any(isinstance(w, Grid) and w.count_of(t)[1] == 1 for w in self.windows)
        restarted = units if begins else restarted + units
        after = [total + units, restarted, *before, units]
        numbers = [self.each.grid * self._sum(window, after) for window in self.windows]
        del after[2 : len(after) - self._remembered]
        return after, numbers

    @staticmethod
    def _sum(window: int | Grid | None, state: Sequence[float]) -> float:
        if isinstance(window, int):
            return sum(state[2:][-window:])
        return state[0 if window is None else 1]

    @cached_property
    def _remembered(self) -> int:
        return max(window for window in self.windows if isinstance(window, int)) - 1


@lru_cache(maxsize=1 << 16)
def _half_width(counter: Counter, t: int, level: float) -> float:
    """Once there are no more draws in it, it stays the same."""
    same = counter.mechanism.row_norm2(t) == counter.mechanism.max_row_norm2()
    return largest_half_width(counter, level) if same else half_width(counter, t, level)


def can_sum(each: object) -> bool:
    """Whether releases of this counter can be added up."""
    return (
        isinstance(each, Counter)
        and isinstance(each.mechanism, SingleSteps)
        and each.dimension is None
        and each.share == 1
    )
