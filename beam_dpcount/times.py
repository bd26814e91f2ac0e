"""Lengths of time given as text: one parser for transforms, rows and commands."""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST_TEXT = 300
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_LONGEST = 10**12  # seconds
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def is_number(text: str) -> bool:
    """Whether text is a decimal number, as seconds since 1970 are."""
    return len(text) <= LONGEST_TEXT and bool(NUMBER.fullmatch(text))


def duration(text: str) -> Fraction:
    """The seconds in 90, 0.5s, 1h or 1w; a ValueError unless positive and of whole microseconds."""
    unit = _UNITS.get(text[-1:])
    number = text[:-1] if unit else text
    if not is_number(number):
        raise ValueError("not a length of time")
    exact = Fraction(number) * (unit or 1)
    if not 0 < exact <= _LONGEST or (exact * 10**6).denominator != 1:
        raise ValueError("not positive, not whole microseconds, or beyond the calendar")
    return exact


def local_days(text: str) -> int:
    """The days in 1d or 2w, which with a time zone are days of its calendar; 0: text of others."""
    unit = {"d": 1, "w": 7}.get(text[-1:], 0)
    number = Fraction(text[:-1]) * unit if unit and is_number(text[:-1]) else Fraction(0)
    return number.numerator if number.denominator == 1 else 0


def every(length: Fraction) -> str:
    """How often, in words: every day, every 10 min, every 90 s."""
    for name, unit in (("week", 604_800), ("day", 86_400), ("hour", 3600), ("min", 60)):
        count = length / unit
        if count == 1:
            return f"every {'minute' if name == 'min' else name}"
        if count.denominator == 1:
            return f"every {count.numerator:,} {name}" + "s" * (name != "min")
    return "every second" if length == 1 else f"every {float(length):,.10g} s"
