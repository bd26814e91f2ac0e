"""The columns of what a TickCount releases, as tables and rows with a schema have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from beam_dpcount.counters.clock import Restart
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.errors import half_width
from beam_dpcount.counters.grid import Grid
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.plans.sentence import TickCountPlan
from beam_dpcount.statistics.metrics.base import Errors, Metric

if TYPE_CHECKING:
    from beam_dpcount.dofns.releases import Release, TickRelease

PLACED = ("key", "step", "start", "timestamp")
LEVEL = 0.95
Number = float | None


class Cells(NamedTuple):
    """What a release says in one column; None: nothing."""

    value: Number
    stddev: Number
    low: Number
    high: Number


class TickColumn(NamedTuple):
    """A metric in a view.

    Fields:
      name: of the column.
      public: whether the standard deviations of its noise are public.
    """

    name: str
    public: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of its value, standard deviation if it is public, and interval."""
        ends = ("", "_stddev", "_low", "_high") if self.public else ("", "_low", "_high")
        return tuple(f"{self.name}{end}" for end in ends)

    def numbers(self, cells: Cells) -> tuple[Number, ...]:
        """What stands in them."""
        return cells if self.public else (cells.value, cells.low, cells.high)


@dataclass(frozen=True)
class TickColumns:
    """From a release of a TickCount to its cells. Picklable.

    Args:
      clock: the ticks, and when the count starts anew.
      columns: of metrics and views.
      numbered: whether a count starts anew, so that there is a column `restart`.
      counter: of releases that are one number each, and bring no intervals; None: they bring them.
      level: of these intervals.
    """

    clock: Grid
    columns: tuple[TickColumn, ...]
    numbered: bool
    counter: Counter | None
    level: float = LEVEL

    @property
    def names(self) -> tuple[str, ...]:
        """All columns. Those of a place come first."""
        some = (name for column in self.columns for name in column.names)
        return (*PLACED, *(["restart"] * self.numbered), *some)

    def start(self, release: Release | TickRelease) -> int:
        """When the tick of a release begins, in microseconds."""
        return self.clock.borders(release.step, 1)[0]

    def cells(self, release: Release | TickRelease) -> Iterator[tuple[TickColumn, Cells]]:
        """What a release says, by column."""
        if self.counter is not None:
            # Not by its class: workers may decode it as one of their own.
            one = cast("Release", release)
            # Within its count: one that starts anew has the errors of its first ticks again.
            half = _half_width(self.counter, self.clock.count_of(one.step)[1], self.level)
            ends = one.value - half, one.value + half
            yield self.columns[0], Cells(one.value, one.stddev, *ends)
            return
        several = cast("TickRelease", release)
        found = several.values, several.stddevs, several.lows, several.highs
        for column in self.columns:
            yield column, Cells(*(numbers[column.name] for numbers in found))


def columns_of(count: TickCountPlan) -> TickColumns:
    """The columns of a count."""
    public = [is_public(m) for _ in count._views for m in count._metrics for _ in m.columns]
    columns = tuple(map(TickColumn, count.columns, public))
    numbered = any(isinstance(view, Restart) for view in count._views)
    engine = count._parts[0].engine
    counter = engine.counter if count.engine is not None and engine.is_number else None
    clock = engine._restarts or engine.clock
    return TickColumns(clock, columns, numbered, counter, count.confidence)


def is_public(metric: Metric) -> bool:
    """Whether the standard deviations of a metric's columns are public."""
    metric = metric.planned(pure=False)
    ones = np.ones((1, metric.width))
    found = metric.measure(ones, Errors(ones, lambda level: np.ones(1)), LEVEL)
    return not bool(np.isnan(found.stddevs).any())


@lru_cache(maxsize=1 << 16)
def _half_width(counter: Counter, step: int, level: float) -> float:
    """Within what of the truth a release is."""
    if isinstance(counter.mechanism, SingleSteps) and step > 1:
        return _half_width(counter, 1, level)
    return half_width(counter, step, level)
