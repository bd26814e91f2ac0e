"""Timestamps read from text, numbers or datetimes, as microseconds since the epoch, UTC."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from itertools import pairwise
from numbers import Real

from beam_dpcount.counters.moments import zone_of
from beam_dpcount.times import LONGEST_TEXT, NUMBER, is_number

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
# The years 1 to 9999, as datetime has them. Beam goes further, but times beyond are most often
# milliseconds read as seconds.
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999

_ISO = "ISO 8601 such as 2024-01-31T23:59:59Z"
_EXACT = Context(prec=2 * LONGEST_TEXT, rounding=ROUND_FLOOR)  # exact for LONGEST_TEXT characters

# What strptime accepts for its numeric directives; %L is ours.
_DIGITS = {
    "Y": r"\d{4}",
    "m": r"1[0-2]|0[1-9]|[1-9]",
    "d": r"3[01]|[12]\d|0[1-9]|[1-9]| [1-9]",
    "H": r"2[0-3]|[01]\d|\d",
    "M": r"[0-5]\d|\d",
    "S": r"6[01]|[0-5]\d|\d",
    "f": r"\d{1,6}",
    "L": r"\d{1,3}",
}


def parser(format: str | None, timezone: str) -> Callable[[object], int]:
    """A picklable function from one value to microseconds since the epoch, UTC; or a ValueError.

    It takes text in the format, datetimes and dates with any format, and numbers with ``unix``,
    ``unix-ms`` and without a format. For anything else, and outside the years 1 to 9999, it raises
    a ValueError that never shows the value.

    Args:
      format: None: numbers, also as text, are seconds, and other text is ISO 8601. Or ``unix``
        (seconds) or ``unix-ms`` (milliseconds), whole or decimal, rounded down to microseconds;
        ``iso`` (ISO 8601); or a strptime format, where ``%L`` stands for milliseconds
        without padding (``:11`` is 11 ms, which ``%f`` reads as 110 ms). A missing year is 1900.
      timezone: of times without an offset, such as ``UTC`` or ``Europe/Paris``. Where clocks repeat
        an hour, its first run is meant.
    """
    zone = zone_of(timezone, "--timezone")
    if format is None:
        return _SecondsOrIso(f"seconds since 1970, or {_ISO}", zone, digits=6)
    if format == "unix":
        return _Unix("seconds since 1970, format 'unix'", zone, digits=6)
    if format == "unix-ms":
        return _Unix("milliseconds since 1970, format 'unix-ms'", zone, digits=3)
    if format == "iso":
        return _Iso(f"{_ISO}, format 'iso'", zone)
    return _Strptime(format, zone)


class _Parser:
    def __init__(self, expected: str, zone: dt.tzinfo) -> None:
        self._expected, self._zone = expected, zone

    def __call__(self, value: object) -> int:
        if isinstance(value, str):
            if not value:
                raise self._error("the timestamp is empty")
            if len(value) > LONGEST_TEXT:
                raise self._error("the timestamp is too long")
            return self._text(value)
        if isinstance(value, dt.datetime):
            return self._micros(value)
        if isinstance(value, dt.date):
            return self._micros(dt.datetime(value.year, value.month, value.day))
        if not isinstance(value, bool) and isinstance(value, (Real, Decimal)):
            return self._number(value)
        raise self._error("the timestamp is neither text, nor a number, nor a date")

    def _text(self, text: str) -> int:
        raise NotImplementedError

    def _number(self, number: Real | Decimal) -> int:
        raise self._error("the timestamp is a number")

    def _micros(self, moment: dt.datetime) -> int:
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=self._zone)
        delta = moment - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"{problem}: expected {self._expected}; see --timestamp-format")


class _Unix(_Parser):
    def __init__(self, expected: str, zone: dt.tzinfo, digits: int) -> None:
        super().__init__(expected, zone)
        self._digits = digits
        self._scale: int = 10**digits

    def __call__(self, value: object) -> int:
        # A short cut for whole numbers, which nearly all are.
        if type(value) is int or (
            type(value) is str and value.isdigit() and value.isascii() and len(value) < 18
        ):
            micros = int(value) * self._scale
            if FIRST <= micros <= LAST:
                return micros
        return super().__call__(value)

    def _number(self, number: Real | Decimal) -> int:
        # A float's shortest text is what was written; its binary value is not.
        return self._text(str(number))

    def _text(self, text: str) -> int:
        if not NUMBER.fullmatch(text):
            raise self._error("the timestamp is not a number")
        micros = _EXACT.scaleb(_EXACT.create_decimal(text), self._digits)
        if not FIRST <= micros < LAST + 1:
            raise self._error("the timestamp lies outside the years 1 to 9999")
        return math.floor(micros)


class _Iso(_Parser):
    def _text(self, text: str) -> int:
        try:
            moment = _from_iso(text)
        except ValueError:
            raise self._error("the timestamp has another format") from None
        return self._micros(moment)


class _SecondsOrIso(_Unix, _Iso):
    def _text(self, text: str) -> int:
        kind = _Unix if NUMBER.fullmatch(text) else _Iso
        return kind._text(self, text)


def _from_iso(text: str) -> dt.datetime:
    if text[-1:] in ("Z", "z"):  # unknown to Python 3.10
        text = text[:-1] + "+00:00"
    return dt.datetime.fromisoformat(text)


class _Strptime(_Parser):
    def __init__(self, format: str, zone: dt.tzinfo) -> None:
        super().__init__(f"format {format!r}", zone)
        parts = [part for part in re.split(r"(%.)", format, flags=re.DOTALL) if part]
        names = [part[1] for part in parts if _is_directive(part)]
        self._format = "".join("%f" if part == "%L" else part for part in parts)
        self._check(format, parts, names)
        self._pattern = _pattern(parts)
        # strptime costs three times as much as reading digits. It is for the rest: names, offsets,
        # and times with a gap, such as a minute without an hour.
        self._fields = [name for name in "YmdHMS" if name in names]
        self._digits_only = (
            set(names) <= set(_DIGITS)
            and len(self._fields) >= 3
            and self._fields == list("YmdHMS"[: len(self._fields)])
        )
        self._fraction = next((name for name in "fL" if name in names), None)

    def _check(self, format: str, parts: list[str], names: list[str]) -> None:
        problem = None
        if not names:
            problem = "is neither unix, unix-ms, iso nor a strptime format like '%Y-%m-%d %H:%M:%S'"
        elif "Z" in names:
            problem = "has %Z, whose names do not tell the offset: use %z, or text and --timezone"
        elif any("%L" in pair and all(map(_is_directive, pair)) for pair in pairwise(parts)):
            problem = "has %L, of 1 to 3 digits, next to another directive: it needs a separator"
        else:
            try:
                sample = dt.datetime(2001, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc)
                dt.datetime.strptime(sample.strftime(self._format), self._format)
            except (ValueError, re.error) as error:
                problem = f"is no strptime format ({error})"
        if problem:
            raise ValueError(f"--timestamp-format {format!r} {problem}")

    def _text(self, text: str) -> int:
        try:
            if self._digits_only or self._fraction == "L":
                match = self._pattern.fullmatch(text)
                if match is None:
                    raise ValueError
                part = match[self._fraction] if self._fraction else ""
                part = part.zfill(3) if self._fraction == "L" else part
                if self._digits_only:
                    moment = dt.datetime(*map(int, match.group(*self._fields)))  # type: ignore[arg-type]
                    return self._micros(moment) + int(part.ljust(6, "0"))
                start, end = match.span("L")
                text = f"{text[:start]}{part}{text[end:]}"
            return self._micros(dt.datetime.strptime(text, self._format))
        except (ValueError, OverflowError):
            raise self._error("the timestamp has another format") from None


# The command line


def lacks_offset(text: str) -> bool:
    """Whether a time, in seconds since 1970 or ISO 8601, depends on --timezone."""
    return not is_number(text) and _from_iso(text).tzinfo is None


def _is_directive(part: str) -> bool:
    return len(part) == 2 and part[0] == "%" and part != "%%"


def _pattern(parts: list[str]) -> re.Pattern[str]:
    pattern = ""
    for part in parts:
        if not _is_directive(part):
            literal = "%" if part == "%%" else part
            pattern += r"\s+".join(map(re.escape, re.split(r"\s+", literal)))
        elif part[1] in _DIGITS:
            pattern += f"(?P<{part[1]}>{_DIGITS[part[1]]})"
        else:
            pattern += ".+?"
    return re.compile(pattern, re.IGNORECASE)
