"""Local calendar days: when they begin. The only place that asks the time zone database.

What it answers is computed once, where a clock is made, and travels as data: workers may have
another database.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Iterator

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.moments import LAST, SECOND, datetime_of, instant, micros_of

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)


def local_time(micros: int, zone: dt.tzinfo) -> dt.datetime:
    """What clocks in a zone show at a time."""
    return (_EPOCH + micros * _MICROSECOND).astimezone(zone)


def day_start(day: dt.date, zone: dt.tzinfo) -> int:
    """The first time at which clocks in a zone show this day, or a later one.

    That is midnight, unless clocks are set forward over it, or back: then the first midnight. A day
    that a zone left out begins where the next one does.
    """
    midnight = dt.datetime(day.year, day.month, day.day, tzinfo=zone)
    first = (midnight - _EPOCH) // _MICROSECOND
    again = (midnight.replace(fold=1) - _EPOCH) // _MICROSECOND
    if again >= first:
        return first
    # No clock shows this midnight. Between the two readings of it, clocks are set forward.
    before, after = again // SECOND, first // SECOND
    while before < after:
        half = (before + after) // 2
        if local_time(half * SECOND, zone).date() >= day:
            after = half
        else:
            before = half + 1
    return after * SECOND


def day_starts(first: dt.date, days: int, zone: dt.tzinfo) -> Iterator[int]:
    """When the first day begins, and the one `days` later, and so on; no time comes twice.

    It ends with the year 9999.
    """
    last, day = None, first
    while True:
        begin = day_start(day, zone)
        if begin != last:
            yield begin
        last = begin
        if day.toordinal() + days >= dt.date.max.toordinal():
            return
        day += dt.timedelta(days=days)


def moment_of(given: object, name: str, zone: dt.tzinfo | None) -> int:
    """A public point in time, the parameter `name`, in microseconds: as `micros_of`.

    With a zone, also a date, which is the begin of that day, and a time without an offset, which is
    what clocks there show.

    Raises:
      ValueError, TypeError: as `micros_of`; or clocks in the zone never show it, or show it twice.
    """
    local = None if zone is None else _local(given, name)
    if local is None or zone is None:
        return micros_of(given, name)
    if not isinstance(local, dt.datetime):
        begin = day_start(local, zone)
        if local_time(begin, zone).date() != local:
            remedy = f"give {{{name}=}}{local_time(begin, zone).date().isoformat()!r}"
            raise ParameterError(name, f"is {local}, a day that {zone} left out", remedy)
        return begin
    times = [(local.replace(tzinfo=zone, fold=fold) - _EPOCH) // _MICROSECOND for fold in (0, 1)]
    if times[0] == times[1]:
        return times[0]
    shown = [local_time(micros, zone).isoformat() for micros in times]
    clocks = "never show" if times[1] < times[0] else "show twice"
    problem = f"is {given!r}, a time that clocks in {zone} {clocks}"
    raise ParameterError(name, problem, f"give {{{name}=}}{shown[0]!r} or {shown[1]!r}")


def _local(given: object, name: str) -> dt.date | None:
    """A date, or a time without an offset; None for anything else."""
    if isinstance(given, str):
        if re.fullmatch(r"\d{4}-\d\d-\d\d", given):
            with contextlib.suppress(ValueError):
                return dt.date.fromisoformat(given)
        given = datetime_of(given, name)
    if isinstance(given, dt.datetime):
        return given if given.tzinfo is None else None
    return given if isinstance(given, dt.date) else None


def check_day_start(micros: int, zone: dt.tzinfo) -> dt.date:
    """The day that begins at a time.

    Raises:
      ParameterError: none does.
    """
    day = local_time(micros, zone).date()
    begin = day_start(day, zone)
    if begin != micros:
        raise ParameterError(
            "start",
            f"is {instant(micros)}, not a local midnight in {zone}, at which days begin",
            f"give {{start=}}{day.isoformat()!r} ({instant(begin)}), or leave {{zone}} out",
        )
    return day


def last_year(micros: int) -> int:
    """The end of a clock without an end that follows local days: a hundred years after a time."""
    return min(micros + 36_525 * 86_400 * SECOND, LAST)
