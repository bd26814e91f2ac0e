"""Points in time, lengths of time and zones, as users give them. Times are in microseconds, UTC."""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction
from numbers import Real
from typing import Any
from zoneinfo import ZoneInfo

from beam_dpcount.checks import ParameterError
from beam_dpcount.times import duration, is_number

SECOND = 1_000_000
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
# The years 1 to 9999, as datetime has them: times beyond are mostly milliseconds by mistake.
FIRST, LAST = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND
_AS_MOMENT = 'give {} as seconds since 1970, or as text such as "2024-01-31T00:00:00Z"'


def micros_of(moment: object, name: str, zone: str | None = None) -> int:
    """A public point in time, the parameter `name`, as microseconds since the epoch, exactly.

    `moment` is in seconds since the epoch (a number), a datetime or ISO 8601 text with an offset,
    or anything with whole `micros`, such as Beam's Timestamp.

    Args:
      zone: of times without an offset; None: they are refused. Of an hour that clocks show twice
        the first is meant.

    Raises:
      ValueError, TypeError: it is none of these, has no time zone, has a fraction of a microsecond,
        or lies outside the years 1 to 9999.
    """
    remedy = _AS_MOMENT.format(name)
    if isinstance(moment, str):
        made = datetime_of(moment, name)
    elif isinstance(moment, dt.datetime):
        made = moment
    else:
        micros = _whole(moment, name, remedy)
        if not FIRST <= micros < LAST:
            problem = f"{name} lies outside the years 1 to 9999, got {moment!r}"
            raise ValueError(f"{problem}: {remedy} (not milliseconds)")
        return micros
    if made.utcoffset() is None and zone is not None:
        made = made.replace(tzinfo=zone_of(zone))
    elif made.utcoffset() is None:
        remedy = "add an offset such as Z or +02:00, or tzinfo=datetime.timezone.utc"
        raise ValueError(f"{name} has no time zone, got {moment!r}: {remedy}")
    return (made - _EPOCH) // _MICROSECOND


def time_of_event(moment: object, zone: str | None = None) -> int:
    """As `micros_of`, of an event: logs have seconds as text, too."""
    if isinstance(moment, str) and is_number(moment):
        moment = Fraction(moment)
    return micros_of(moment, "time", zone)


def duration_of(tick: Any, name: str = "tick") -> int:
    """The length of a tick in microseconds, exactly.

    `tick` is seconds (a number), text with a unit (s, m, h, d, w) such as "1h", a timedelta, or
    anything with whole `micros`: Beam's Duration.

    Raises:
      ValueError, TypeError: it is none of these, not positive, or has a fraction of a microsecond.
    """
    remedy = f"give {name} in seconds, e.g. {name}=60, as text with a unit, such as 15m or 1h, or "
    remedy += "as a timedelta"
    if isinstance(tick, str):
        try:
            return int(duration(tick.strip()) * SECOND)
        except ValueError:
            problem = f"must be a positive time of whole microseconds, got {tick!r}"
            raise ParameterError(name, problem, remedy) from None
    timed = isinstance(tick, dt.timedelta)
    micros = tick // _MICROSECOND if timed else _whole(tick, name, remedy)
    if micros <= 0:
        raise ValueError(f"{name} must be positive, got {tick!r}: {remedy}")
    return micros


def datetime_of(text: str, name: str) -> dt.datetime:
    """ISO 8601 text, the parameter `name`, with an offset or without; or a ValueError."""
    given, remedy = text, _AS_MOMENT.format(name)
    if text[-1:] in ("Z", "z"):  # Python 3.10 knows no Z
        text = text[:-1] + "+00:00"
    try:
        if re.search(r"[.,]\d{7}", text):  # later Pythons would cut it off
            raise ValueError
        return dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{name} is not an ISO 8601 time in whole microseconds, got {given!r}: {remedy}"
        ) from None


def _whole(value: object, name: str, remedy: str) -> int:
    micros = getattr(value, "micros", None)
    if isinstance(micros, int):
        return micros
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a time, got {value!r}: {remedy}")
    try:
        # A number's shortest text, not its binary value, is what was written: 0.1 is exact.
        exact = Fraction(str(value)) * SECOND
    except ValueError:
        raise ValueError(f"{name} must be finite, got {value!r}: {remedy}") from None
    if exact.denominator != 1:
        raise ValueError(f"{name} must be whole microseconds, got {value!r}: {remedy}")
    return exact.numerator


def zone_of(name: Any, parameter: str = "zone") -> dt.tzinfo:
    """The time zone of this IANA name, given as a parameter; or a ValueError."""
    if name == "UTC":  # needs no time zone database
        return dt.timezone.utc
    try:
        return ZoneInfo(name)
    except (KeyError, TypeError, ValueError, OSError):
        raise ValueError(
            f"unknown time zone {name!r}: give {parameter} a name such as UTC or Europe/Paris "
            "(where the system has no time zone database, pip install tzdata)"
        ) from None


def seconds(micros: int) -> str:
    """Microseconds as text, in seconds."""
    whole, part = divmod(abs(micros), SECOND)
    text = f"{whole}.{part:06}".rstrip("0").rstrip(".")
    return f"{'-' if micros < 0 else ''}{text} s"


def instant(micros: int) -> str:
    """Microseconds since the epoch as ISO 8601 text."""
    if micros == LAST:
        return "10000-01-01T00:00:00Z"
    return (_EPOCH + micros * _MICROSECOND).isoformat().replace("+00:00", "Z")
