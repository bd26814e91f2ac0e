"""The options of a public clock, and of lengths of time."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fractions import Fraction

from beam_dpcount.arguments import timestamps as times
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.times import duration as exact_duration
from beam_dpcount.times import is_number


def add_clock(parser: opt.Parser) -> opt.Group:
    """Returns their group."""
    table = """
        --tick TIME: the time between releases: seconds, or with a unit (s, m, h, d, w) as in 10m
        --start TIME: seconds since 1970, or ISO 8601 such as 2024-01-31T00:00:00Z (without an
          offset: in --timezone)
        --stop TIME: rows at or after it do not count
        --horizon N: the number of ticks, in place of --stop
    """
    length = {"type": duration("--tick 10m"), "required": True}
    group = parser.add_argument_group("clock (public)")
    opt.add(group, table, tick=length, start=opt.REQUIRED)
    return group


def add_until(group: opt.Group) -> None:
    table = """
        --until TIME: write only ticks that have ended by then (default now; not a later time); rows
          of later ticks have no influence. All ticks of the clock are charged, whatever TIME is
    """
    opt.add(group, table)


def until(options: argparse.Namespace) -> Fraction | None:
    """--until in seconds, or an InputError."""
    if options.until is None:
        return None
    return moment("--until", options.until, options.timezone)


def limits(options: argparse.Namespace) -> tuple[Fraction, Fraction | None]:
    """--start and --stop in seconds, or an InputError."""
    if options.stop is None and options.horizon is None:
        raise InputError("give --stop, the time of the end, or --horizon, the number of ticks")
    start = moment("--start", options.start, options.timezone)
    stop = None if options.stop is None else moment("--stop", options.stop, options.timezone)
    if stop is not None and stop <= start:
        remedy = "give a later --stop, or --horizon, the number of ticks, in its place"
        got = f"{options.stop!r} and {options.start!r}"
        raise InputError(f"--stop must be after --start, got {got}: {remedy}")
    return start, stop


def moment(name: str, text: str, timezone: str) -> Fraction:
    """A time in seconds since 1970, given as such or in ISO 8601; an InputError for others."""
    number = is_number(text)
    try:
        return Fraction(times.parser("unix" if number else "iso", timezone)(text), 10**6)
    except ValueError:
        wrong = "lies outside the years 1 to 9999" if number else "is not a time"
        remedy = "give seconds since 1970, or ISO 8601 such as 2024-01-31T00:00:00Z"
        remedy = f"milliseconds? {remedy}" if number else remedy
        raise InputError(f"{name} {wrong}, got {text!r}: {remedy}") from None


def duration(example: str) -> Callable[[str], Fraction]:
    """A type for argparse: a length of time in seconds; the error gives this example."""

    def parsed(text: str) -> Fraction:
        try:
            return exact_duration(text)
        except ValueError:
            wrong = f"must be a positive time of whole microseconds, got {text!r}"
            remedy = f"give seconds, or a unit (s, m, h, d, w), e.g. {example}"
            raise argparse.ArgumentTypeError(f"{wrong}: {remedy}") from None

    return parsed
