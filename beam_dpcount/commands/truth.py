"""Exact running counts for --show-truth. PRIVATE: they are the data, without noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np

import beam_dpcount as dp
from beam_dpcount.commands.files.formats import Event, Places
from beam_dpcount.commands.report import LEVEL
from beam_dpcount.counters.clock import Clock, Last, Restart, View
from beam_dpcount.counters.counter import Counter
from beam_dpcount.statistics.metrics import Metric, People
from beam_dpcount.statistics.metrics.base import Errors


def of_elements(
    events: Iterable[Any], places: Places, counter: Counter, by_time: bool
) -> dict[str, list[float]]:
    """The running count after each event of a key.

    The grouped path counts by time; the streaming one in the order of the files.
    """
    steps: dict[str, list[Any]] = {}
    for element in events:
        timed = hasattr(element, "timestamp")
        key, event = element.value if timed else element
        micros = element.timestamp.micros if timed and by_time else 0
        steps.setdefault(key, []).append((micros, places(event), event.value))
    truth = {}
    for key in sorted(steps):
        ordered = sorted(steps[key], key=lambda step: step[:2])[: counter.mechanism.horizon]
        totals = accumulate(_quantised(counter, value) for *_, value in ordered)
        truth[key] = [total * counter.unit for total in totals]
    return truth


def _quantised(counter: Counter, value: object) -> int:
    try:
        return int(counter.quantise(value))
    except dp.errors.NotANumberError:
        return 0


def fields_of(event: Event) -> Mapping[str, object]:
    """What metrics read of an event."""
    return event.value if isinstance(event.value, Mapping) else {}


class Truth:
    """What a metric says of rows themselves, in a view. PRIVATE."""

    def __init__(self, metric: Metric, view: Clock | View, ticks: int, most: int) -> None:
        """`most`: of a key and tick so many events count; of vectors all do."""
        self._metric, self._view, self._ticks = metric, view, ticks
        self._most = most * max(metric.limits) if metric.width == 1 else math.inf
        self._sums: dict[str, np.ndarray] = {}
        self._people: dict[tuple[str, int], set[str]] = {}

    def add(self, key: str, step: int, event: Event) -> None:
        """Count a row."""
        if isinstance(self._metric, People):
            self._people.setdefault((key, step), set()).add(event.person)
            return
        if key not in self._sums:
            self._sums[key] = np.zeros((self._ticks, self._metric.width))
        for place, amount in self._metric.additions(fields_of(event)):
            self._sums[key][step - 1, place] += amount

    def _first(self, step: int) -> int:
        """The first tick that a release is of."""
        if isinstance(self._view, Clock):
            return 1
        if isinstance(self._view, Last):
            return max(1, step - int(self._view.ticks) + 1)
        if isinstance(self._view, Restart):
            return step - self._view.grid.count_of(step)[1] + 1
        return step

    def at(self, key: str, step: int) -> float:
        """What there is at the end of a tick; NaN if nothing can be said."""
        first = self._first(step)
        if isinstance(self._metric, People):
            some = (self._people.get((key, one), set()) for one in range(first, step + 1))
            return float(len(set().union(*some) - {""}))
        if key not in self._sums:
            sums = np.zeros((1, self._metric.width))
        else:
            each = np.clip(self._sums[key][first - 1 : step], -self._most, self._most)
            sums = each.sum(axis=0)[None, :]
        errors = Errors(np.zeros_like(sums), lambda level: np.zeros(1))
        return float(self._metric.measure(sums, errors, LEVEL).values[0, 0])
