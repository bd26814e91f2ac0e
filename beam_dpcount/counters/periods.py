"""Public periods of a clock, such as days: one person's events of any one of them are protected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property

import numpy as np

from beam_dpcount.budget.account import AccountPeriods, InWords
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.clock import Clock
from beam_dpcount.counters.days import (
    check_day_start,
    day_starts,
    last_year,
    local_time,
    moment_of,
)
from beam_dpcount.counters.grid import Grid, Runs, grid_of
from beam_dpcount.counters.moments import duration_of, instant, seconds, zone_of
from beam_dpcount.counters.people import period_name
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.times import local_days

_TRIED = 1 << 17  # periods that are looked at one by one


@dataclass(frozen=True)
class Periods(InWords):
    """The periods of a clock, each of whole ticks; the first may have begun before the clock.

    Args:
      grid: the ticks, with the periods as the windows in which a count would start anew.
      word: what one of them is called.
      lateness: for how long after its end events of a period still count in a stream, in
        microseconds; 0: for as long as it was itself.
      is_endless: whether the clock has no end.
    """

    grid: Grid
    word: str
    lateness: int = field(default=0, compare=False)
    is_endless: bool = field(default=False, compare=False)

    @cached_property
    def starts(self) -> Runs:
        """When they begin, in microseconds."""
        return Runs.of(self.grid.origins())

    def of(self, micros: int) -> int:
        """The number of the period that a time lies in, from 0."""
        return self.starts.rank(micros) - 1

    def __getstate__(self) -> dict[str, object]:
        return {one.name: getattr(self, one.name) for one in fields(self)}  # no caches

    def closes(self, number: int) -> int | None:
        """When a stream closes a period, in whole milliseconds; None: there is no such period.

        The time is public. What people did in a closed period is forgotten, and no event of it
        counts any more.
        """
        if number >= len(self):
            return None
        start: int = self.starts[number]
        end = self.grid.closing(start)
        return -(-(end + (self.lateness or end - start)) // 1000) * 1000

    @property
    def closing(self) -> str:
        """Until when events of a period count in a stream, in words."""
        after = f"{seconds(self.lateness)} after" if self.lateness else "as long as it was after"
        return f"events of each {self.word} count until {after} its end, and then it is forgotten"

    @property
    def fingerprint(self) -> str:
        """All that what a stream remembers of periods depends on."""
        return f"{self.grid.fingerprint}, {self.lateness}"

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def _lengths(self) -> IntArray:
        """In ticks. The last is as long as the others: the clock may end within it."""
        if len(self.starts.runs) == 1:
            return np.array([self.grid.steps])
        starts = np.array([*self.starts, self.grid.closing(self.starts[-1])], dtype=np.int64)
        first = self.grid.origins()[0]
        passed = np.array([self.grid.passed_at(int(at)) for at in starts[:-1]])
        last = self.grid.passed_at(int(starts[-2])) + self.grid.steps_of(int(starts[-2]))
        return np.diff(np.append(passed - self.grid.passed_at(first), last))

    @property
    def longest(self) -> int:
        """In ticks: at the end of summer time a day of hours has 25."""
        return int(self._lengths.max())

    @property
    def shortest(self) -> int:
        """The same of the shortest that lies between two others; 1 if none does."""
        between = self._lengths if len(self._lengths) == 1 else self._lengths[1:-1]
        return int(between.min()) if len(between) else 1

    def such_as(self, others: AccountPeriods) -> Periods:
        """Those of an account, as far as this clock goes."""
        bounds = _bounds(others, self.grid.start, self.grid.stop, self.is_endless)
        grid = grid_of(bounds[0], bounds[-1], bounds, bounds[:-1], others.word)
        return Periods(grid, others.word, is_endless=self.is_endless)

    def met_by(self, start: int, stop: int) -> int:
        """How many of them lie in [start, stop) at least in part."""
        return self.starts.rank(stop - 1) - max(self.starts.rank(start), 1) + 1

    def most_met(self, others: Periods) -> int:
        """How many of them one of the other periods meets, at most."""
        if self._begin_with(others):
            return 1
        mine, theirs = self.starts.runs, others.starts.runs
        even = len(mine) == 1 and len(theirs) == 1 and min(len(self), len(others)) > 1
        if even or len(others) > _TRIED:  # those of equal lengths, or a bound
            length, other = self._shortest_micros, others.starts.longest
            inside = not other % length and others._begin_with(self)
            return other // length if inside else -(-other // length) + 1
        borders = [*others.starts, others.grid.closing(others.starts[-1])]
        return max(map(self.met_by, borders[:-1], borders[1:]))

    def starts_in(self, others: Periods) -> bool:
        """Whether each that starts within the others' clock starts where one of them does, and the
        last does not end amid one of them.

        Then each of the others lies within one of these, or outside of all.
        """
        end, clock = self.grid.closing(self.starts[-1]), others.grid
        amid = clock.start < end < clock.stop and end not in others.starts
        return self._begin_with(others) and not amid

    def _begin_with(self, others: Periods) -> bool:
        """Whether each that starts within the others' clock starts where one of them does."""
        mine, theirs = self.starts, others.starts
        if len(mine.runs) == 1 and len(theirs.runs) == 1 and min(len(mine), len(theirs)) > 1:
            (first, step, _), (start, each, _) = mine.runs[0], theirs.runs[0]
            return not step % each and not (first - start) % each
        start, stop = others.grid.start, others.grid.stop
        return len(mine) <= _TRIED and all(at in theirs for at in mine if start < at < stop)

    @property
    def span(self) -> int:
        """The length of the clock."""
        return self.grid.stop - self.grid.start

    @property
    def _shortest_micros(self) -> int:
        steps = [step for _, step, count in self.starts.runs if count > 1]
        return min(steps) if len(self.starts.runs) == 1 else self.grid.tick

    def restarts(self, counts: Grid) -> tuple[int, int]:
        """How many windows one period meets, and how many periods one window meets, at most.

        Args:
          counts: the clock, with the windows in which a count starts anew.
        """
        windows = Periods(counts, "window")
        return windows.most_met(self), self.most_met(windows)

    def describe(self) -> str:
        """In words, with where they begin."""
        ticks = f"{self.shortest} to {self.longest}" if self.shortest < self.longest else ""
        many = f", of {ticks} ticks" * (bool(ticks) and len(self._lengths) > 3)
        return f"{len(self):,} {self.plural} from {instant(self.starts[0])}{many}"


def periods_of(clock: Clock, per: object, lateness: int = 0) -> Periods:
    """The periods of this length, from the start of a clock on; with its zone, local days.

    Args:
      clock, per: of what, and how long.
      lateness: as for Periods.

    Raises:
      ValueError, TypeError: they are not whole ticks, or longer than the clock.
    """
    try:
        grid = clock.restart(per).grid
    except ParameterError as error:
        remedy = "give a shorter {per}, of whole ticks of the clock" if error.whole else ""
        problem = f"= {per!r} does not fit the clock: {error.problem}"
        raise ParameterError("per", problem, remedy or error.remedy) from None
    local = clock.zone is not None and isinstance(per, str) and per.strip()[-1:] in ("d", "w")
    word = f"{period_name(per)} in {clock.zone}" if local else period_name(per)
    return Periods(grid, word, lateness, clock.is_endless)


def time_columns(time: str | Sequence[str]) -> tuple[str, ...]:
    """The columns of a time: one, or several that are read as one text."""
    return (time,) if isinstance(time, str) else tuple(time)


_MONDAY = "1970-01-05"


def account_periods(
    per: str, time: str | Sequence[str], zone: str | None = None, start: object = None
) -> AccountPeriods:
    """The periods of an account, without an end.

    Args:
      per: how long, as text with a unit; with a zone, days and weeks are local ones.
      time: the columns of the time by which rows lie in them.
      zone: an IANA name.
      start: when one of them begins; default: a Monday's midnight, in the zone, or UTC.

    Raises:
      ValueError, TypeError: they are no such periods.
    """
    length, place = duration_of(per, "per"), zone_of(zone or "UTC")
    if per.strip().isdecimal() or length % 1000:
        problem = f"must be a length with a unit, of whole milliseconds, got {per!r}"
        raise ParameterError("per", problem, "give e.g. {per=}1d")
    begin = moment_of(_MONDAY if start is None else start, "start", place)
    local = zone is not None and per.strip()[-1:] in ("d", "w")
    if local and local_days(per.strip()) < 1:
        problem = f"is {per!r}, which is not a whole number of days of {zone}"
        raise ParameterError("per", problem, "give days, or leave {zone} out")
    if local:
        check_day_start(begin, place)
    elif begin % 1000:
        raise ParameterError("start", "must be a whole millisecond", "give e.g. {start=}2026-01-01")
    word = f"{period_name(per)} in {zone}" if local else period_name(per)
    return AccountPeriods(per.strip(), begin, zone if local else None, time_columns(time), word)


def _bounds(of: AccountPeriods, start: int, stop: int, endless: bool) -> Sequence[int]:
    """When periods begin, from the one on in which a clock starts, and the last one ends."""
    if of.zone is None:
        length = duration_of(of.per)
        first = start - (start - of.start) % length
        return range(first, first + -(-(stop - first) // length) * length + 1, length)
    zone, days = zone_of(of.zone), local_days(of.per)
    stop = min(stop, last_year(start)) if endless else stop
    begin, day = local_time(of.start, zone).date(), local_time(start, zone).date()
    bounds = []
    for at in day_starts(day - timedelta((day - begin).days % days), days, zone):
        bounds.append(at)
        if at >= stop:
            break
    return Runs.of(bounds)
