"""`errors` of metrics and views: how far off each would be of made-up rows, before any data."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import beam_dpcount as dp
from beam_dpcount.arguments import texts
from beam_dpcount.arguments.metrics import metrics_of, needs_end, views_of
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.report import LEVEL, many
from beam_dpcount.counters.views import CombinedColumns
from beam_dpcount.plans.expected import ExpectedColumn
from beam_dpcount.plans.sentence import Part
from beam_dpcount.statistics.metrics import Metric, People, Sum
from beam_dpcount.transforms.sentence import TickCount
from beam_dpcount.transforms.vectors import TickVectors

_MOST = 10**7  # rows that are tried
_LARGEST = 1e6  # no budget beyond it is tried
_PERSON = "person"
Event = dict[str, object]  # made up
Columns = Sequence[ExpectedColumn]


class Row(NamedTuple):
    """What is said of a column."""

    name: str
    value: float | None
    half: float | None  # of its interval
    part: float | None  # half of the interval, of what it is measured by


class Sizing:
    """Made-up rows under options."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.metrics = metrics_of(options.metric)
        self.events, self.people = options.events, options.people
        self._check()

    def _check(self) -> None:
        options = self.options
        if self.events is None:
            raise InputError(
                "--metric and --view need --events N, how many rows a release is of (with --people "
                "P: rows of each person), as you expect them"
            )
        if min(self.events, self.people or 1) < 1:
            raise InputError("--events and --people must be whole numbers from 1")
        if options.per_user is None:
            if self.people is not None:
                raise InputError("--people needs --per-user K, the most rows of a person")
            if any(isinstance(metric, People) for metric in self.metrics):
                raise InputError("--metric people needs --per-user K, the most rows of a person")
        for name in ("horizon", "visible", "plot", "bounds", "unit", "max_items"):
            if name in options.given:
                raise InputError(
                    f"{opt.option(name)} is of a plain count: leave it out beside --metric, --view "
                    "and --want"
                )
        if options.ticks is None and needs_end(options.view):
            raise InputError("give --ticks N, the number of ticks: all rows so far have an end")
        for view in options.view or ():
            length = texts.view(view).length
            if length is not None and not length.isdecimal():
                raise InputError(
                    f"--view {view!r}: give a number of ticks, as no tick has a length here"
                )

    def count(self, budget: Budget, prefer: str | None = None) -> TickCount:
        """The transform that would count."""
        options = self.options
        clock = dp.Clock("1h", start=0, ticks=options.ticks)
        several = [f"key {i}" for i in range(options.keys)]
        users = None
        if options.per_user is not None:
            users = dp.Users(_PERSON, options.per_user, options.max_keys, options.per_key)
        return TickCount(
            budget,
            views_of(options.view, clock),
            self.metrics,
            keys=several if options.keys > 1 else dp.TOTAL,
            users=users,
            mechanism=options.mechanism,
            relation=options.relation or "add_remove",
            max_per_tick=options.max_per_tick,
            path="streaming" if options.replays else "auto",
            prefer=prefer or options.prefer,
        )

    def rows(self, budget: Budget, scale: float = 1.0) -> list[Row]:
        """What is said of each column; `scale` times as many rows, or people."""
        count, found = self.count(budget), {}
        events = list(self._made_up(scale))
        combined = count.combined
        for part in count._parts:
            measures = [metric for metric in part.metrics for _ in metric.columns]
            columns = _columns(part, events, count.users)
            if combined is not None and part.names[0] in combined.names:
                ((column,), measures) = columns, measures * len(part.names)
                columns = [_combined(replace(column, name=name), combined) for name in part.names]
            for name, metric, column in zip(part.names, measures, columns, strict=False):
                found[name] = _row(name, metric, column)
        return [found[name] for name in count.columns]

    def _made_up(self, scale: float) -> Iterator[Event]:
        people = 1 if self.people is None else max(1, round(self.people * scale))
        each = self.events if self.people is not None else max(1, round(self.events * scale))
        for number in range(people * each):
            event: Event = {}
            for metric in self.metrics:
                event |= metric.invented(number)
            event[_PERSON] = number // each if self.people is not None else number
            yield event

    def enough(self, budget: Budget, want: float, scale: float = 1.0) -> bool:
        """Whether all columns are within a share."""
        return all(row.part is not None and row.part <= want for row in self.rows(budget, scale))

    def needed(self, budget: Budget, want: float) -> float | None:
        """How many times as many rows, or people, bring all columns within a share.

        At most 4 % above the least; None: no number up to `_MOST` does.
        """
        rows = self.events * (self.people or 1)
        return _least(lambda scale: self.enough(budget, want, scale), _MOST / rows)

    def said(self, scale: float = 1.0) -> str:
        """How many made-up rows there are."""
        if self.people is None:
            return many(max(1, round(self.events * scale)), "row")
        people = max(1, round(self.people * scale))
        each = many(self.events, "row")
        return f"{people:,} {'person' if people == 1 else 'people'} with {each} each"


def lines(options: argparse.Namespace, budget: Budget) -> list[str]:
    """What `errors` says of metrics and views."""
    sizing = Sizing(options)
    rows = sizing.rows(budget)
    table = [("column", "value", "95 % within ±", "that is")]
    table += [(row.name, _shown(row.value), _shown(row.half), _percent(row)) for row in rows]
    wide = [max(map(len, column)) for column in zip(*table, strict=True)]
    found = [
        "  ".join(
            f"{cell:{'<' if place == 0 else '>'}{width}}"
            for place, (cell, width) in enumerate(zip(cells, wide, strict=True))
        )
        for cells in table
    ]
    keys = f" of one of {options.keys:,} keys" if options.keys > 1 else ""
    found.append(
        f"{budget}: of {sizing.said()}{keys}, made up (numbers spread evenly between their bounds, "
        "half of a rate), at the noisiest tick. Shares of counts and sums are of their value, of "
        "others of the range between their bounds."
    )
    if options.per_user is not None:
        found.append(f"People: at most {many(options.per_user, 'row')} of a person count.")
    found += _trade(sizing, budget)
    if options.want is not None:
        found += _wanted(sizing, budget, options.want)
    return found


def _trade(sizing: Sizing, budget: Budget) -> list[str]:
    """What combined views are within, for each that may be preferred."""
    count = sizing.count(budget)
    if count.combined is None:
        return []
    said = []
    for name in count.preferable:
        combined = sizing.count(budget, name).combined
        if combined is not None:
            halves = (f"{column} ± {half:.3g}" for column, (_, half) in combined.largest.items())
            said.append(f"{name}: {', '.join(halves)}")
    return [f"With --prefer {'; '.join(said)}."]


def _wanted(sizing: Sizing, budget: Budget, want: float) -> list[str]:
    """From how many rows on, and from which budget on, all columns are within a share."""

    name = "rho" if isinstance(budget, dp.ZCDP) else "epsilon"
    here, given = getattr(budget, name), f"within {100 * want:.3g} %"
    if sizing.enough(budget, want):
        return [f"All are {given} already."]
    scale = sizing.needed(budget, want)
    more = f"no number of rows up to {_MOST:,} brings all {given}"
    if scale is not None:
        more = f"all are {given} from {sizing.said(scale)} on"

    @cache
    def with_budget(times: float) -> bool:
        number = float(f"{here * times:.2g}")
        if isinstance(budget, dp.ZCDP):
            return sizing.enough(replace(budget, rho=number), want)
        return sizing.enough(replace(budget, epsilon=number), want)

    times = _least(with_budget, _LARGEST / here)
    bought = f"no {name} up to {_LARGEST:g} does"
    if times is not None:
        bought = f"from {name} = {float(f'{here * times:.2g}'):g} on"
    return [f"At this budget {more}.", f"Of these rows {bought}."]


def _least(enough: Callable[[float], bool], most: float) -> float | None:
    """A factor from 1 on at which there is enough, at most 4 % above the least; None: none is."""
    low = high = 1.0
    while not enough(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high / low > 1.04:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _columns(part: Part, events: Sequence[Event], users: dp.Users | None) -> Columns:
    """What would be said of these events, with the noise of a part."""
    engine = part.engine
    if isinstance(engine, TickVectors):
        return engine.expected(events, None).columns
    (metric,) = part.metrics
    bound = None if users is None else users.bound()
    per_person: dict[object, int] = {}
    for event in events:
        per_person[event[_PERSON]] = per_person.get(event[_PERSON], 0) + 1
    counted = sum(n if bound is None else min(n, bound.per_key) for n in per_person.values())
    if isinstance(metric, People):
        value = float(len(per_person))
    elif isinstance(metric, Sum):
        numbers: list[Any] = [event[name] for event in events for name in metric.fields]
        value = sum(numbers) * counted / len(events)
    else:
        value = float(counted)
    stddev = math.sqrt(engine.counter.max_variance())
    half = dp.largest_half_width(engine.counter, LEVEL)
    return [ExpectedColumn(part.names[0], value, stddev, value - half, value + half, "")]


def _combined(column: ExpectedColumn, combined: CombinedColumns) -> ExpectedColumn:
    """A column with the noise that is left where views are combined."""
    (stddev, half), value = combined.largest[column.name], column.value or 0.0
    return replace(column, stddev=stddev, low=value - half, high=value + half)


def _row(name: str, metric: Metric, column: ExpectedColumn) -> Row:
    if column.value is None or column.low is None or column.high is None:
        return Row(name, column.value, None, None)
    half = max(column.high - column.value, column.value - column.low)
    scale = abs(column.value) if metric.extent is None else metric.extent
    return Row(name, column.value, half, half / scale if scale else None)


def _shown(number: float | None) -> str:
    return "too few rows" if number is None else f"{number:.4g}"


def _percent(row: Row) -> str:
    return "-" if row.part is None else f"{100 * row.part:.2g} %"
