"""Tries a transform's functions out on public rows, before it runs on private ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from apache_beam.transforms.window import TimestampedValue


class CheckError(ValueError):
    """A row stopped `check`: a function raised, or the transform does not take such rows."""


class Checked(NamedTuple):
    """What `check` found.

    Fields:
      rows: how many rows there were.
      problems: by reason, how many rows would not count as they are: rejected, clipped, or unknown.
        A row has at most one problem, the first that is met.
    """

    rows: int
    problems: Mapping[str, int]

    def __str__(self) -> str:
        fine = self.rows - sum(self.problems.values())
        lines = [f"{fine:,} of {self.rows:,} rows count as they are"]
        return "\n".join([*lines, *(f"{n:,}: {reason}" for reason, n in self.problems.items())])


def check(transform: Any, rows: Iterable[Any]) -> Checked:
    """What a transform would make of rows, without a pipeline, a budget or noise.

    In a pipeline, an element for which `value` raises ValueError, TypeError, ArithmeticError or
    LookupError counts 0: data can cause them, and stopping would show that they did. So a mistyped
    name such as `lambda e: e["purchse"]` goes unseen. Here it is an error.

    **Only for rows that you declare public**, such as made-up ones: results and errors tell of them
    without any noise.

    Args:
      transform: any that counts: PrefixCount, Histogram, TickCount, LocalMedian, ...
      rows: its elements. At a clock, a `beam.window.TimestampedValue` has its time looked at, too.

    Raises:
      CheckError: a function that you gave the transform raised, or it does not take such rows. The
        message has the number of the row, from 1, and the exception's type and words.
      TypeError: the transform counts nothing.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.PrefixCount(dp.PureDP(1.0), 100, value=lambda e: e["paid"], bounds=(0, 50))
      >>> rows = [("/home", {"paid": 3}), ("/home", {"paid": 70}), ("/cart", {"paid": None})]
      >>> print(dp.check(count, rows))
      1 of 3 rows count as they are
      1: the value lies outside the bounds (0, 50) and is clipped
      1: the value is not a number
    """
    problem = getattr(transform, "problem", None)
    if problem is None:
        raise TypeError(
            f"check takes a transform that counts elements, such as PrefixCount, got {transform!r}"
        )
    problems: Counter[str] = Counter()
    number = 0
    for number, row in enumerate(rows, start=1):
        timed = isinstance(row, TimestampedValue)
        try:
            found = problem(row.value, row.timestamp.micros) if timed else problem(row)
        except Exception as error:
            raise CheckError(f"row {number}: {type(error).__name__}: {error}") from error
        if found is not None:
            problems[found] += 1
    return Checked(number, dict(problems))
