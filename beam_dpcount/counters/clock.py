"""Clock and its views: the public ticks at which a count is released, and what it counts at each.

Nothing here knows of Beam. The arithmetic of ticks is in grid.py, local days are in days.py.
"""

from __future__ import annotations

import datetime as dt
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.days import (
    check_day_start,
    day_starts,
    last_year,
    local_time,
    moment_of,
)
from beam_dpcount.counters.grid import Grid, grid_of
from beam_dpcount.counters.moments import (
    LAST,
    SECOND,
    duration_of,
    instant,
    micros_of,
    seconds,
    zone_of,
)
from beam_dpcount.counters.total import ALL, Total
from beam_dpcount.mechanisms.base import check_horizon
from beam_dpcount.times import is_number, local_days

LATE = ("fold", "drop")
ENDLESS = 2**30  # ticks of a clock without an end: 34 years of seconds; what SlidingBLT takes
LARGEST = 2**62  # sums that fit 64 bits with room to spare
_DAY = 86_400 * SECOND
NO_END = "give stop, the end of the count, or horizon, the number of ticks"
# Why an event does not count.
OUTSIDE = "the time lies outside [start, stop)"
UNLISTED = "the key is not among keys"


@dataclass(frozen=True, repr=False)
class Clock:
    """The public ticks of a count: a release at the end of each.

    A clock is data: all ticks are computed when it is made, with the time zone database of this
    machine. Workers get them, and ask no database.

    A count at the clock itself is of all events so far: release i counts those before the end of
    tick i. Its views count otherwise: `each()`, `last(n)`, `restart(n)`. Their n is a number of
    ticks, or a duration ("1d", a timedelta) that is a whole number of them.

    Args:
      tick: the time between releases: seconds, text with a unit (s, m, h, d, w) such as "1h", or a
        timedelta.
      start: when the first tick begins: seconds since 1970, a Timestamp, an aware datetime, or ISO
        8601 text with an offset. With `zone` also a date, or a time without an offset.
      ticks: how many there are. Default: as many as reach `stop`.
      stop: events at or after it do not count. As for `start`. With neither ticks nor stop the
        clock has no end, which views take: each, last and restart. It stops after 2^30 ticks (34
        years of seconds), or with the year 9999.
      zone: an IANA name such as "Europe/Paris". Days and weeks ("1d", "2w") are then days of its
        calendar, of 23 to 25 hours where clocks are changed: as ticks, which start at local
        midnight, and in `restart("1d")`, which starts anew at each. "24h" is always 24 hours. A day
        begins at its first midnight, or when clocks first show it. A day that a zone left out has
        no tick. Without an end, such a clock goes on for a hundred years.

    Attributes:
      is_endless: whether it has no end.
      grid: all ticks, as data.

    Raises:
      ValueError, TypeError: an argument is outside its range; start is not a local midnight, though
        ticks are days; or clocks in the zone never show start or stop, or show it twice.

    Example:
      >>> import beam_dpcount as dp
      >>> hours = dp.Clock("1h", start="2026-01-15T00:00:00Z", ticks=48)
      >>> [view.name for view in (hours, hours.each(), hours.last("7h"), hours.restart("1d"))]
      ['so far', 'each', 'last 7', 'restart 24']
      >>> days = dp.Clock("1d", start="2026-03-28", ticks=3, zone="Europe/Paris")
      >>> [(days.end_of(tick) - days.end_of(tick - 1)) // 3_600_000_000 for tick in (1, 2, 3)]
      [24, 23, 24]
    """

    tick: Any = field(compare=False)
    start: Any = field(compare=False)
    ticks: int | None = field(default=None, compare=False)
    stop: Any = field(default=None, compare=False)
    zone: str | None = None
    is_endless: bool = field(init=False)
    grid: Grid = field(init=False)

    name = "so far"
    suffix = ""

    def __post_init__(self) -> None:
        zone = None if self.zone is None else zone_of(self.zone)
        first = moment_of(self.start, "start", zone)
        stop = None if self.stop is None else moment_of(self.stop, "stop", zone)
        ticks = None if self.ticks is None else check_whole("ticks", self.ticks)
        if self.days:
            grid = _day_grid(self, first, stop)
        else:
            length = duration_of(self.tick)
            _check_first(self.tick, first, length)
            if stop is None and ticks is None:
                ticks = min((LAST - first) // length, ENDLESS)
            start = self.start, first
            grid = _even_grid(length, start, (self.stop, stop), ticks, "ticks")
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "is_endless", self.ticks is None and self.stop is None)

    @property
    def clock(self) -> Clock:
        """Itself, as of a view."""
        return self

    @property
    def horizon(self) -> int | None:
        """How many ticks there are; None: there is no end."""
        return None if self.is_endless else self.grid.steps

    @property
    def days(self) -> int:
        """How many local calendar days a tick is; 0: ticks are equally long."""
        return self._local_days(self.tick, "tick")

    def end_of(self, tick: int) -> int:
        """When a tick ends, in microseconds since 1970. 0: when the first tick, 1, begins."""
        return self.grid.end(self.grid.origins()[0], tick)

    def tick_of(self, micros: Any) -> Any:
        """The tick, from 1, of a time in microseconds since 1970; 0: none. Or those of an array."""
        many = isinstance(micros, np.ndarray)
        return self.grid.ticks_of(micros) if many else self.grid.tick_of(micros)

    def each(self) -> Each:
        """The view of each tick alone."""
        return Each(self)

    def last(self, n: object) -> Last:
        """The view of the last n ticks, at each of them."""
        return Last(self, n)

    def restart(self, n: object) -> Restart:
        """The view of all events since the count started anew, as it does every n ticks.

        A clock that ends within a window of n ticks goes on to the end of that window.
        """
        return Restart(self, n)

    def ticks_in(self, length: object, name: str) -> int:
        """How many ticks a length is, the parameter `name`: the one rule of units.

        A whole number, or text of one, is a number of ticks. Text with a unit and timedeltas are
        durations.

        Raises:
          ValueError, TypeError: it is neither, or not a whole number of ticks.
        """
        if not _is_duration(length):
            whole = int(length) if isinstance(length, str) and length.isdecimal() else length
            try:
                return check_whole(name, whole, unit="ticks")
            except ParameterError as error:
                remedy = f'{{{name}=}}7, or as a duration such as {{{name}=}}"1d"'
                raise ParameterError(name, error.problem, f"give {remedy}") from None
        days, own = self._local_days(length, name), self.days
        if days and not own:
            problem = f"is {length!r}, days of {self.zone}, not all of which have as many ticks"
            remedy = f'give a number of ticks, or hours: {{{name}=}}"{24 * days}h"'
            raise ParameterError(name, problem, remedy)
        if own and not days:
            problem = f"is {length!r}, but ticks are days of {self.zone}, of 23 to 25 hours"
            raise ParameterError(name, problem, f'give a number of ticks, or {{{name}=}}"{own}d"')
        given, tick = (days, own) if own else (duration_of(length, name), self.grid.tick)
        whole, rest = divmod(given, tick)
        if rest or not whole:
            problem = f"is {length!r}, which is not a whole number of ticks of {self.length}"
            raise ParameterError(name, problem, "give a number of ticks, or a multiple of tick")
        return whole

    def _local_days(self, length: object, name: str) -> int:
        """How many days of the zone's calendar a length is; 0: it is time that passes."""
        if self.zone is None:
            return 0
        if not isinstance(length, str):
            if duration_of(length, name) % _DAY:
                return 0
            problem = f"is {length!r}: days of 24 hours, or of {self.zone}?"
            raise ParameterError(name, problem, f'give text: {{{name}=}}"1d" or {{{name}=}}"24h"')
        if length.strip()[-1:] not in ("d", "w"):
            return 0
        days = local_days(length.strip())
        if days < 1:
            problem = f"is {length!r}, which is not a whole number of days of {self.zone}"
            raise ParameterError(name, problem, f'give days or hours: {{{name}=}}"1d" or "36h"')
        return days

    @property
    def length(self) -> str:
        """Of a tick, in words."""
        if self.days:
            return f"{self.days}d in {self.zone}"
        return self.tick if isinstance(self.tick, str) else seconds(self.grid.tick)

    def __repr__(self) -> str:
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        shown = (f"{name}={value!r}" for name, value in given.items() if value is not None)
        return f"Clock({', '.join(shown)})"


@dataclass(frozen=True)
class View(ABC):
    """What a count counts at the ticks of a clock: made by the clock's methods."""

    clock: Clock

    def __post_init__(self) -> None:
        clock: Any = self.clock
        if not isinstance(clock, Clock):
            kind = type(clock).__name__
            raise TypeError(f"views are of a Clock, got {kind}: give e.g. Clock(...).each()")

    @property
    @abstractmethod
    def name(self) -> str:
        """In words, as the command line has it."""

    @property
    def suffix(self) -> str:
        """Of columns."""
        return "_" + self.name.replace(" ", "_")

    @property
    def grid(self) -> Grid:
        """All ticks, as data."""
        return self.clock.grid

    def each(self) -> Each:
        """Refused: a view has no views."""
        raise self._refusal("each()")

    def last(self, n: object) -> Last:
        """Refused: a view has no views."""
        raise self._refusal(f"last({n!r})")

    def restart(self, n: object) -> Restart:
        """Refused: a view has no views."""
        raise self._refusal(f"restart({n!r})")

    def _refusal(self, call: str) -> ValueError:
        remedy = f"take each of the clock, as a list: [..., clock.{call}]"
        return ValueError(f"{self.name!r} is a view, and has no view {call}: {remedy}")

    def _check_length(self, ticks: int) -> None:
        most = self.clock.grid.steps
        if ticks > most:
            problem = f"{self.name!r} is of {ticks} ticks, but the clock has {most}"
            remedy = f"give at most {most}, or a clock of more {{ticks}}"
            raise ParameterError("n", problem, remedy, whole=True)


@dataclass(frozen=True)
class Each(View):
    """Each tick alone."""

    name = "each"


@dataclass(frozen=True)
class Last(View):
    """The last ticks, at each of them.

    Args:
      clock: whose.
      ticks: how many: as `Clock.ticks_in` reads them. At most as many as the clock has.
    """

    ticks: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        ticks = self.clock.ticks_in(self.ticks, "n")
        object.__setattr__(self, "ticks", ticks)
        self._check_length(ticks)

    @property
    def name(self) -> str:
        return f"last {self.ticks}"


@dataclass(frozen=True)
class Restart(View):
    """All events since the count last started anew: a window, of its own count.

    Args:
      clock: whose.
      ticks: after how many it starts anew: as `Clock.ticks_in` reads them, or local days; then the
        largest number of ticks of a window.

    Attributes:
      days: after how many local days it starts anew; 0: after equally many ticks. Windows of days
        end at midnights of the zone. The first starts with the clock, and may have fewer ticks.
      grid: the ticks, with the windows. The counter of a window is made for the largest number of
        ticks that one has. Windows with fewer end early.
    """

    ticks: Any
    days: int = field(init=False)

    suffix = ""  # releases have the number of the restart
    _grid: Grid = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        clock, days = self.clock, 0
        if not clock.days and _is_duration(self.ticks):
            days = clock._local_days(self.ticks, "n")
        ticks = 0 if days else clock.ticks_in(self.ticks, "n")
        for name, value in (("days", days), ("ticks", ticks)):
            object.__setattr__(self, name, value)
        self._check_length(ticks)
        grid = self._at_midnights(days) if days else self._after(ticks)
        object.__setattr__(self, "ticks", grid.steps)
        object.__setattr__(self, "_grid", grid)
        self._check_length(grid.steps)

    @property
    def name(self) -> str:
        return f"restart {self.days}d" if self.days else f"restart {self.ticks}"

    @property
    def grid(self) -> Grid:
        return self._grid

    def _after(self, ticks: int) -> Grid:
        """Windows of so many ticks each."""
        clock, grid = self.clock, self.clock.grid
        if clock.days:
            windows = -(-grid.steps // ticks)
            bounds = _day_bounds(clock, grid.start, windows * ticks)
            return grid_of(grid.start, grid.stop, bounds, bounds[:-1:ticks], clock.length)
        if clock.is_endless:  # whole windows, before the years end
            grid = replace(grid, stop=grid.start + grid.steps // ticks * ticks * grid.tick)
        return grid.in_windows(ticks * grid.tick, grid.start)

    def _at_midnights(self, days: int) -> Grid:
        """Windows of so many local days each."""
        clock, grid, zone = self.clock, self.clock.grid, zone_of(self.clock.zone)
        stop = min(grid.stop, last_year(grid.start)) if clock.is_endless else grid.stop
        first = local_time(grid.start, zone).date()
        starts = []
        for end in day_starts(first, days, zone):
            if end >= stop:
                break
            starts.append(max(end, grid.start))  # the first day may have begun before
        else:
            raise _too_late(f"windows of {self.name!r}", grid.start, "n")
        for at in (*starts, end):
            if (at - grid.start) % grid.tick:
                problem = f"{self.name!r} starts anew at {instant(at)}, midnight in {clock.zone}, "
                problem += f"which is not a border of ticks of {clock.length}"
                remedy = "give a shorter {tick}, such as 30m, or a {start} at such a border"
                raise ParameterError("n", problem, remedy, whole=True)
        bounds = range(grid.start, end + 1, grid.tick)
        return grid_of(grid.start, stop, bounds, starts, f"{days}d in {clock.zone}")


def _is_duration(length: object) -> bool:
    """Whether a length is one of time, rather than a number of ticks."""
    if isinstance(length, str):
        return not is_number(length)
    return isinstance(length, dt.timedelta) or hasattr(length, "micros")


def _even_grid(
    length: int,
    start: tuple[Any, int],
    stop: tuple[Any, int | None],
    ticks: object,
    name: str,
) -> Grid:
    """A grid of equally long ticks.

    Args:
      length: of a tick.
      start: when the first begins: as given, and in microseconds.
      stop: the same.
      ticks: how many, the parameter `name`; None: as many as reach stop.
    """
    (_, first), (given, last) = start, stop
    if type(given) is int and given > 0 and ticks != 1 and (last or 0) < first + length:
        # Most likely a number of ticks, given by position.
        problem = f"is {given}, a time before the first tick ends, {instant(first + length)}"
        remedy = f"for {given} ticks give {{{name}=}}{given} in its place"
        raise ParameterError("stop", problem, remedy)
    _check_order(first, last, start[0], given)
    needed = 0 if last is None else -(-(last - first) // length)
    steps = check_horizon(needed if ticks is None else ticks)
    _check_needed(steps, needed, name)
    end = first + steps * length
    if end > LAST:
        raise _too_late(f"{steps} ticks of {seconds(length)}", first, name)
    return Grid(length, first, end if last is None else last, steps)


def _day_grid(clock: Clock, first: int, last: int | None) -> Grid:
    """A grid of ticks of local days."""
    _check_order(first, last, clock.start, clock.stop)
    if clock.ticks is None:
        bounds = _day_bounds(clock, first, None, last_year(first) if last is None else last)
    else:
        bounds = _day_bounds(clock, first, clock.ticks)
        if bounds[-1] < (last or first):
            needed = len(_day_bounds(clock, first, None, last)) - 1
            _check_needed(clock.ticks, needed, "ticks")
    return grid_of(first, bounds[-1] if last is None else last, bounds, [first], clock.length)


def _day_bounds(clock: Clock, first: int, ticks: int | None, reach: int | None = None) -> list[int]:
    """When so many ticks of local days begin, and the last one ends; or as many as reach a time."""
    zone = zone_of(clock.zone)
    bounds = []
    for at in day_starts(check_day_start(first, zone), clock.days, zone):
        bounds.append(at)
        if len(bounds) > ticks if ticks is not None else at >= (reach or first):
            return bounds
    raise _too_late(f"ticks of {clock.length}", first, "ticks")


def _check_first(tick: object, first: int, length: int) -> None:
    if first + length > LAST:
        problem = f"is {tick!r}, so the first one would end after the year 9999"
        raise ParameterError("tick", problem, "give a length in seconds, e.g. {tick=}3600")


def _check_order(first: int, last: int | None, start: object, stop: object) -> None:
    if last is not None and last <= first:
        raise ValueError(f"stop must be after start, got start={start!r} and stop={stop!r}")


def _check_needed(ticks: int, needed: int, name: str) -> None:
    if ticks < needed:
        problem = f"is {ticks}, but there are {needed} ticks from start to stop"
        remedy = f"give {{{name}=}}{needed} or more, or leave it out"
        raise ParameterError(name, problem, remedy)


def _too_late(ticks: str, first: int, name: str) -> ValueError:
    problem = f"{ticks} from {instant(first)} end after the year 9999"
    return ValueError(f"{problem}: give a smaller {name}")


def clock_of(tick: object, start: object, stop: object = None, horizon: object = None) -> Grid:
    """The grid of public parameters as transforms take them; see `Clock`.

    By default `horizon`, the number of ticks, is that of those that reach `stop`.

    Raises:
      ValueError, TypeError: an argument is out of range, or neither stop nor horizon is given; or a
        whole number as `stop` comes before the first tick ends.
    """
    length, first = duration_of(tick), micros_of(start, "start")
    _check_first(tick, first, length)
    if stop is None and horizon is None:
        raise ValueError(NO_END)
    last = None if stop is None else micros_of(stop, "stop")
    return _even_grid(length, (start, first), (stop, last), horizon, "horizon")


def now() -> int:
    """The current time of this machine, in microseconds. Transforms read no other clock."""
    return time.time_ns() // 1000


def until_of(until: object) -> int:
    """The time by which ticks must have ended to be released: as the user gives it, or now.

    Raises:
      ValueError, TypeError: as `micros_of`, and for a time later than now.
    """
    present = now()
    if until is None:
        return present
    micros = micros_of(until, "until")
    if micros > present:
        problem = f"is {instant(micros)}, later than now, {instant(present)}"
        remedy = "ticks are released once they have ended: leave {until} out, or give a time before"
        raise ParameterError("until", problem, remedy)
    return micros


def check_keys(keys: object) -> tuple[str, ...]:
    """The public keys as a tuple, in the order given (sets: sorted); of TOTAL its one key.

    Raises:
      ValueError, TypeError: keys are not a collection of distinct texts.
    """
    remedy = 'give all public keys, e.g. keys=["INFO", "ERROR"]'
    if isinstance(keys, Total):
        return (ALL,)
    if getattr(keys, "__name__", "") == "SelectKeys":
        raise TypeError("keys is the class SelectKeys: give keys=SelectKeys(), with brackets")
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence | AbstractSet):
        raise TypeError(f"keys must be a list of texts, got {keys!r}: {remedy}")
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"keys must be texts, got {key!r} of {type(key).__name__}: {remedy}")
    if not keys:
        raise ValueError(f"keys must not be empty: {remedy}")
    # Plain texts: a subclass may compare, or print, unlike what it encodes to.
    texts = [str.__str__(key) for key in keys]
    made = tuple(sorted(texts) if isinstance(keys, AbstractSet) else texts)
    if len(set(made)) < len(made):
        twice = next(key for key in made if made.count(key) > 1)
        raise ValueError(f"keys must be distinct, but {twice!r} is there twice: give it once")
    return made


def countable(most: int, tick: int) -> str:
    """The largest count of a tick, and what it is per second, in words."""
    rate = most * SECOND / tick
    number = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    return f"up to {most:,} events a tick, {number} a second"
