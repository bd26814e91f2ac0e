"""Scales: the ends of an axis, its caption, and round numbers and times for its ticks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Literal

from beam_dpcount.commands.figures import texts

Ticks = list[tuple[float, str]]  # where, and what is written there

_SECOND = 10**6  # in microseconds
_MINUTE = 60 * _SECOND
_DAY = 86_400 * _SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Lengths of steps up to a fortnight, in microseconds; then in months.
_FRACTIONS = tuple(m * 10**e for e in range(6) for m in (1, 2, 5))
_CLOCK = tuple(s * _SECOND for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800))
_HOURS = tuple(h * 3600 * _SECOND for h in (1, 2, 3, 6, 12))
_STEPS = (*_FRACTIONS, *_CLOCK, *_HOURS, *(d * _DAY for d in (1, 2, 7, 14)))
_MONTH_STEPS = (1, 2, 3, 6, *(12 * m * 10**e for e in range(4) for m in (1, 2, 5)))


@dataclass(frozen=True)
class Axis:
    """An axis: a renderer asks it for as many ticks as it has room for.

    Times are in microseconds since the epoch, and written in `zone`.
    """

    low: float
    high: float
    caption: str = ""
    kind: Literal["numbers", "steps", "times"] = "numbers"
    zone: tzinfo = timezone.utc
    fixed: Ticks | None = None  # whatever the room

    def ticks(self, most: int) -> Ticks:
        """About so many round places, unless they are fixed."""
        if self.fixed is not None:
            return self.fixed
        if self.kind == "times":
            return _time_ticks(self, most)
        step = _round_step((self.high - self.low) / most, self.kind == "steps")
        places = range(math.floor(self.low / step), math.ceil(self.high / step) + 1)
        at = [k * step for k in places]
        return [(x, texts.written(x, None)) for x in at if self.low <= x <= self.high]


def numbers(low: float, high: float, caption: str = "", room: float = 0.0) -> Axis:
    """An axis of numbers, with this part of its length as room beyond ends that are not 0."""
    if low == high:
        return Axis(low - 1, high + 1, caption)
    room *= high - low
    return Axis(low - room * (low < 0), high + room * (high > 0), caption)


def steps(low: float, high: float) -> Axis:
    """An axis of steps, from the first to the last."""
    if low == high:
        return Axis(low - 1, high + 1, "step", "steps", fixed=[(low, f"{low:,.0f}")])
    return Axis(low, high, "step", "steps")


def times(low: float, high: float, zone: tzinfo) -> Axis:
    """An axis of times in microseconds since the epoch, written in a zone."""
    first, last = _days(low, high, zone)
    if first.date() == last.date():
        caption = f"time of day, {zone} ({first.date()})"
    else:
        years = dict.fromkeys((first.year, last.year))
        caption = f"time ({zone}), {'–'.join(map(str, years))}"
    if low == high:
        one = [(low, f"{first:%H:%M:%S}")]
        return Axis(low - _MINUTE, high + _MINUTE, caption, "times", zone, one)
    return Axis(low, high, caption, "times", zone)


def _days(low: float, high: float, zone: tzinfo) -> tuple[datetime, datetime]:
    """The ends of an axis on a clock; midnight at its end belongs to the day before.

    The last release of a day is often stamped with the midnight that ends it.
    """
    return local(low, zone), local(max(low, high - _MINUTE), zone)


def _time_ticks(axis: Axis, most: int) -> Ticks:
    low, high, zone = axis.low, axis.high, axis.zone
    step = next((s for s in _STEPS if (high - low) / s <= most), None)
    first, last = _days(low, high, zone)
    moments = _each(first, local(high, zone), step, (high - low) / most)
    return [
        (at, _written(moment, step, first.date() == last.date()))
        for moment in moments
        if low <= (at := _micros(moment, zone)) <= high
    ]


def _round_step(least: float, whole: bool) -> float:
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * (1 - 1e-9))
    return float(max(1, math.ceil(step))) if whole else step


def local(micros: float, zone: tzinfo) -> datetime:
    """A time on the clocks of a zone, without the zone; near the calendar's ends UTC."""
    moment = _EPOCH + timedelta(microseconds=int(micros))
    try:
        return moment.astimezone(zone).replace(tzinfo=None)
    except OverflowError:
        return moment.replace(tzinfo=None)


def when(micros: float, zone: tzinfo) -> str:
    """A time in full, without what is 0 at its end."""
    moment = local(micros, zone)
    text = f"{moment:%H:%M:%S.%f}"
    text = text.rstrip("0").rstrip(".") if moment.microsecond else text[:8].removesuffix(":00")
    return f"{moment.date()} {text}"


def _micros(moment: datetime, zone: tzinfo) -> float:
    try:
        return (moment.replace(tzinfo=zone) - _EPOCH) / timedelta(microseconds=1)
    except OverflowError:
        return math.nan  # beyond both ends of every axis


def _each(first: datetime, last: datetime, step: int | None, least: float) -> Iterator[datetime]:
    """Round times on a clock from before `first` to `last`; `least` is for steps of months."""
    if step is not None:
        # Weeks begin on Mondays, and all else at midnight.
        begin = datetime.min if step > 2 * _DAY else datetime(first.year, first.month, first.day)
        done = (first - begin) // timedelta(microseconds=step)
        moment = begin + done * timedelta(microseconds=step)
        while moment <= last:
            yield moment
            if datetime.max - moment < timedelta(microseconds=step):
                return
            moment += timedelta(microseconds=step)
        return
    months = next((m for m in _MONTH_STEPS if m * 30 * _DAY >= least), _MONTH_STEPS[-1])
    place = (12 * first.year + first.month - 1) // months * months
    while place <= 12 * last.year + last.month - 1:
        if 12 <= place < 12 * 10_000:
            yield datetime(place // 12, place % 12 + 1, 1)
        place += months


def _written(moment: datetime, step: int | None, one_day: bool) -> str:
    if step is None:
        return (
            f"{_MONTHS[moment.month - 1]} {moment.year}" if moment.month > 1 else f"{moment.year}"
        )
    if step >= _DAY or (not one_day and f"{moment:%H%M%S%f}" == "000000000000"):
        return f"{moment.day} {_MONTHS[moment.month - 1]}"
    if step >= _MINUTE:
        return f"{moment:%H:%M}"
    if step >= _SECOND:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%S.%f}".rstrip("0").rstrip(".") + " s"
