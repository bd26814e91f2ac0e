"""Tries a transform's functions out on public rows, before it runs on private ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from apache_beam.transforms.window import TimestampedValue

from beam_dpcount.counters.people import Seen, Users
from beam_dpcount.errors import CheckError
from beam_dpcount.reading import FunctionError, fields_of

_REMEDY = (
    "it must depend on the event alone, or one person's events could decide whose events count: "
    "do look-ups before the transform"
)
_NO_FIELD = "the event has no person: it has no"
_FIELDS_SHOWN = 20


class RowCheck(NamedTuple):
    """How a transform counts one row.

    Fields:
      problem: why the row does not count as it is.
      keys: the keys that it has, as given; None if the transform has no keys.
      names: the keys under which it counts.
      person: its person, "" if it has none; None if the transform protects events.
      counted: what is counted.
      identity: its public id, if any.
    """

    problem: str | None
    keys: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    person: str | None = None
    counted: Any = None
    identity: Any = None


def examine_person(
    users: Users | None, payload: object, problem: str | None
) -> tuple[str | None, str | None]:
    """The first problem of a row, and its person; None if the transform protects events.

    If there is a problem already, an error of `by` is not reported as another one.
    """
    if users is None:
        return problem, None
    if problem is not None:
        return problem, users.person(payload)
    problem, person = users.examine(payload)
    if isinstance(users.by, str) and users.by not in (fields := fields_of(payload)):
        return _lacking(users.by, fields), person
    return problem, person


def _lacking(name: str, fields: Sequence[str]) -> str:
    """Why an event without the field of people has no person."""
    if not fields:
        return f"{_NO_FIELD} fields"
    problem = f"{_NO_FIELD} field {name!r}, but {', '.join(map(repr, fields[:_FIELDS_SHOWN]))}"
    problem += ", ..." * (len(fields) > _FIELDS_SHOWN)
    first, *rest = name.split(".")
    if rest and first in fields:
        path = "".join(f"[{part!r}]" for part in (first, *rest))
        remedy = f"give a function, such as by=lambda event: event{path}"
        problem += f"; for a field within another {remedy}"
    return problem


class Checked(NamedTuple):
    """What `check` found.

    Fields:
      rows: how many rows there were.
      problems: by reason, how many rows would not count as they are: rejected, clipped, or unknown.
        A row has at most one problem, the first that is met.
      keys: how many distinct keys the rows have; None if the transform has no keys.
      people: how many distinct people; None if the transform protects events.
      within: how many rows the bound on each person lets count; None if there is no bound.
    """

    rows: int
    problems: Mapping[str, int]
    keys: int | None = None
    people: int | None = None
    within: int | None = None

    def __str__(self) -> str:
        fine = self.rows - sum(self.problems.values())
        lines = [f"{fine:,} of {self.rows:,} rows count as they are"]
        if self.people is not None:
            lines.append(
                f"{_many(self.people, 'person', 'people')}: the bound on each lets {self.within:,} "
                f"of {self.rows:,} rows count"
            )
        if self.keys is not None:
            lines.append(_many(self.keys, "key", "keys"))
        return "\n".join([*lines, *(f"{n:,}: {reason}" for reason, n in self.problems.items())])


def _many(n: int, one: str, several: str) -> str:
    return f"{n:,} {one if n == 1 else several}"


def check(transform: object, rows: Iterable[object]) -> Checked:
    """What a transform would make of rows, without a pipeline, a budget or noise.

    In a pipeline, an element for which `value` or `users.by` raises an error counts 0: data can
    cause it, and stopping would show that they did. So a mistyped name such as
    `lambda e: e["purchse"]` goes unnoticed. Here it is an error.

    Every function is called twice for each row: for all rows in their order, and again in reverse.
    Whether an event counts, and for whom, must depend on the event alone. If it depends on earlier
    events, on a cache or on a look-up that may fail, one person's events decide whose events count,
    and the guarantee does not hold. A different result is an error here. A cache that returns the
    same result again is not detected.

    Look at the number of people and keys, too: a wrong `by` is valid, and bounds the wrong people.
    If `by` names a field that no row has, that is an error here.

    **Only for rows that you declare public**, such as made-up ones: results and errors tell of them
    without any noise.

    Args:
      transform: any that counts: PrefixCount, Histogram, TickCount, LocalMedian, ...
      rows: its elements. At a clock, a `beam.window.TimestampedValue` has its time looked at, too.

    Raises:
      CheckError: a function that you gave the transform raised an error, or returned something else
        when called again, or the transform does not take such rows. The message has the number of
        the row, from 1, and the exception's type and words.
      TypeError: the transform counts nothing.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.PrefixCount(dp.PureDP(1.0), 100, value=lambda e: e["paid"], bounds=(0, 50))
      >>> rows = [("/home", {"paid": 3}), ("/home", {"paid": 70}), ("/cart", {"paid": None})]
      >>> print(dp.check(count, rows))
      1 of 3 rows count as they are
      2 keys
      1: the value lies outside the bounds (0, 50) and is clipped
      1: the value is not a number

      A `by` that forgets that it gets the payload alone: from ("/home", "ann") it takes the "n".

      >>> wrong = dp.Users(lambda pair: pair[1], events=2)
      >>> clock = dp.Clock("1m", start=0, ticks=10)
      >>> count = dp.TickCount(dp.PureDP(1.0), clock, keys=["/home"], users=wrong)
      >>> print(dp.check(count, [("/home", name) for name in ("ann", "anton", "inge", "ines")]))
      4 of 4 rows count as they are
      1 person: the bound on each lets 2 of 4 rows count
      1 key
    """
    check_row = getattr(transform, "check_row", None)
    if check_row is None:
        raise TypeError(
            f"check takes a transform that counts elements, such as PrefixCount, got {transform!r}"
        )
    numbered = list(enumerate(rows, start=1))
    results = [_checked(check_row, number, row) for number, row in numbered]
    for (number, row), before in zip(reversed(numbered), reversed(results), strict=True):
        again = _checked(check_row, number, row, f", when called again: {_REMEDY}")
        if again != before:
            raise CheckError(f"row {number}: {_changed(before, again)}: {_REMEDY}")
    _check_field(results)
    problems = Counter(result.problem for result in results if result.problem is not None)
    users = getattr(transform, "users", None)
    return Checked(
        len(results),
        dict(problems),
        _distinct(name for result in results for name in result.keys or ())
        if all(result.keys is not None for result in results)
        else None,
        None if users is None else _distinct(result.person for result in results if result.person),
        None if users is None else _within(transform, users, [row for _, row in numbered], results),
    )


def _checked(check_row: Any, number: int, row: Any, again: str = "") -> RowCheck:
    """What becomes of a row, or a CheckError with its number.

    Args:
      again: what the message says if the functions are called again.
    """
    element, micros = _timed(row)
    try:
        result: RowCheck = check_row(element, micros)
    except FunctionError as error:
        hint = again or _hint(element, error.payload)
        raise CheckError(f"row {number}: {error}{hint}") from error.__cause__
    except Exception as error:
        raise CheckError(f"row {number}: {type(error).__name__}: {error}{again}") from error
    return result


def _hint(element: object, payload: object) -> str:
    """What a function was given, if it may have expected the pair."""
    if isinstance(element, tuple) and len(element) == 2 and payload is element[1]:
        return "; it is given the value of the (key, value) pair, not the pair"
    return ""


def _check_field(results: Sequence[RowCheck]) -> None:
    """Raise a CheckError if no row has the field of people: its name is misspelt."""
    lacking = [
        (number, result.problem)
        for number, result in enumerate(results, start=1)
        if result.person == "" and str(result.problem).startswith(_NO_FIELD)
    ]
    nobody = sum(result.person == "" for result in results)
    if lacking and len(lacking) == nobody == sum(r.person is not None for r in results):
        number, problem = lacking[0]
        raise CheckError(f"row {number}: {problem}")


def _timed(row: object) -> tuple[Any, int | None]:
    """An element, and its time in microseconds if it is known."""
    if isinstance(row, TimestampedValue):
        return row.value, row.timestamp.micros
    return row, None


def _changed(before: RowCheck, again: RowCheck) -> str:
    """Which function returned another result."""
    if before.person != again.person:
        return "users.by gave another person when it was called again"
    if before.identity != again.identity:
        return "element_id gave another id when it was called again"
    return "what is counted differed when it was read again"


def _distinct(items: Iterable[object]) -> int:
    return len(set(items))


def _within(
    transform: object, users: Users, rows: Sequence[object], results: Sequence[RowCheck]
) -> int:
    """How many rows the bound on each person lets count, by time if all have one."""
    times = [_timed(row)[1] for row in rows]
    bound = users.bound()
    if None in times:
        bound = replace(bound, gap=0)
    people: dict[tuple[str | None, int], Seen] = defaultdict(Seen)
    periods = getattr(transform, "_periods", None)

    def period(micros: int) -> int:
        return 0 if periods is None or None in times else int(periods.of(micros))

    by_time = sorted(zip((micros or 0 for micros in times), range(len(results)), strict=True))
    return sum(
        bool(bound.take(people[results[row].person, period(micros)], results[row].names, micros))
        for micros, row in by_time
        if results[row].person
    )
