"""--check: what of the rows would not count as the user may think; a private look at them.

Nothing is counted, drawn from, spent or written. What is said is computed from the rows without
noise, and goes to standard output alone.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
import sys
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.commands.app import say
from beam_dpcount.commands.files.formats import Event, InputError, Source
from beam_dpcount.commands.files.read import all_events
from beam_dpcount.commands.report import many, most_rows
from beam_dpcount.counters.clock import UNLISTED
from beam_dpcount.times import is_number

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

HEADING = (
    "PRIVATE: computed from the rows, without noise. Nothing was counted, spent or written. Do not "
    "publish this. Options that are chosen by it, for rows that are then counted with them, are "
    "outside the guarantee: take made-up rows, or those of another period."
)
_NO_PERSON = "has no person"
_SHOWN = 5  # names, of each kind
_LIKELY = dt.datetime(1990, 1, 1), dt.datetime(2100, 1, 1)  # of times, where there is no clock
_FIRST, _LAST = (int(moment.timestamp()) * 10**6 for moment in _LIKELY)
_UNITS = {"seconds": 10**6, "milliseconds": 10**3, "microseconds": 1}  # in microseconds
_FORMATS = {"seconds": "unix", "milliseconds": "unix-ms"}
_NANOSECONDS = "nanoseconds"
_BETWEEN = ("[, ]+", ";", r"\|", "/", r"\s+")  # of a text that may have been meant as several


@dataclass
class Found:
    """What is said: facts, and what looks wrong."""

    facts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        looks = [f"LOOKS WRONG: {line}" for line in self.wrong]
        return [HEADING, "", *self.facts, *(looks or ["nothing looks wrong"])]


def look(task: Task, source: Source, transform: Any) -> None:
    """Print what is found; exit with status 1 if something looks wrong."""
    found = findings(task, source, transform)
    say(found.lines())
    if found.wrong:
        sys.exit(1)


def findings(task: Task, source: Source, transform: Any) -> Found:
    """What a command would make of the rows of a source."""
    found, parse = Found(), _Parse(source)
    source = replace(source)
    object.__setattr__(source, "parse", parse)
    rows, unread = _Rows(task, transform), Unread()
    try:
        for element in all_events(source, unread if source.per_tick else None):
            timed = hasattr(element, "timestamp")
            key, event = element.value if timed else element
            micros = element.timestamp.micros if timed else None
            rows.add(key, event, None if parse.failed else micros, parse.failed)
    except InputError as error:
        found.wrong.append(f"reading stopped: {error}")
    if source.per_tick:
        unread.add(" and ".join(source.times), parse.reasons)
        found.wrong += unread.lines()
    if not rows.number:
        found.wrong.append("there are no rows" if not unread.reasons else "no row can be read")
        return found
    _keys_and_rows(task, rows, found)
    _names(rows, found)
    _times(task, rows, transform, parse, found)
    _values(task, rows, found)
    _limits(task, rows, transform, found)
    if not rows.counted:
        found.wrong.append("no row counts")
    return found


class Unread:
    """Counts the rows that cannot be read at a clock, by column and reason."""

    def __init__(self) -> None:
        self.reasons: Tally[tuple[str | None, str]] = Tally()

    def __call__(self, row: int, column: str | None, problem: str) -> None:
        self.reasons[column, problem] += 1

    def add(self, column: str | None, reasons: Tally[str]) -> None:
        self.reasons.update({(column, reason): n for reason, n in reasons.items()})

    def lines(self) -> list[str]:
        return [
            f"{many(n, 'row')} cannot be read and count{'s' * (n == 1)} nothing: "
            f"{'' if column is None else f'column {column!r}: '}{reason}"
            for (column, reason), n in self.reasons.most_common()
        ]


class _Parse:
    """Reads times as a source does, but notes those that it cannot read."""

    def __init__(self, source: Source) -> None:
        self._parse, self.failed = source.parse, False
        self.reasons: Tally[str] = Tally()
        self.numbers: list[float] = []  # some that cannot be read

    def __call__(self, cell: object) -> int:
        self.failed = False
        try:
            return self._parse(cell)
        except ValueError as error:
            self.failed = True
            self.reasons[str(error)] += 1
            if isinstance(cell, str) and is_number(cell):
                cell = float(cell)
            if isinstance(cell, Real) and len(self.numbers) < 1000:
                self.numbers.append(float(cell))
            return 0


class _Rows:
    """What is kept of the rows."""

    def __init__(self, task: Task, transform: Any) -> None:
        self._task, self._transform = task, transform
        self.listed = task.listed()
        self.number = self.counted = self.nobody = self.beyond = 0
        self.open = 0  # rows in ticks that have not ended
        self._is_open = getattr(task.engine, "lies_in_open_tick", lambda _: False)
        self.keys: Tally[str] = Tally()
        self.names: Tally[str] = Tally()
        self.problems: Tally[str] = Tally()
        self.micros: list[int] = []
        self.ones = 0  # rows that count something
        self.numbers: list[float] = []
        self.events: list[tuple[str, str, int | None, Any]] = []  # person, key, time, value

    def add(self, key: str, event: Event, micros: int | None, failed: bool) -> None:
        task = self._task
        self.number += 1
        self.keys[key] += 1
        if micros is not None:
            self.micros.append(micros)
        if self.listed is not None:
            names = list(dict.fromkeys(self.listed.of(key, event)))
            self.names.update(names)
            known = set(self.listed.names)
            most = self.listed.most
            self.beyond += most is not None and sum(name in known for name in names) > most
        if isinstance(event.value, int | float) and not isinstance(event.value, bool):
            self.numbers.append(float(event.value))
            self.ones += event.value != 0
        elif event.value is not None:  # the fields of a row where a condition holds
            self.ones += 1
        self.nobody += task.options.user is not None and not event.person
        if failed:
            return
        if micros is not None and self._is_open(micros):
            self.open += 1
            return
        split = task.keys_of((key, event))
        if not split:
            self.problems[UNLISTED] += 1
        reasons = [self._transform.problem(one, micros) for one in split]
        if reasons and all(map(_matters, reasons)):
            self.problems[str(reasons[0])] += 1
        counts = [self._task.row_counts(self._transform, one, micros) for one in split]
        stays = [
            one
            for one, why, known in zip(split, reasons, counts, strict=True)
            if (_still_counts(why) if known is None else known)
        ]
        self.counted += bool(stays)
        self.events += [(event.person, name, micros, event.value) for name, _ in stays]


def _matters(problem: str | None) -> bool:
    """Whether it is to be said: of nobody's rows it is said apart."""
    return problem is not None and _NO_PERSON not in problem


def _still_counts(problem: str | None) -> bool:
    return not _matters(problem) or "clipped" in str(problem)


def _keys_and_rows(task: Task, rows: _Rows, found: Found) -> None:
    found.facts.append(f"{many(rows.number, 'row')} in {many(len(rows.keys), 'key')}")
    if not task.people_are_public:
        return
    horizon = task.options.horizon
    key, most = rows.keys.most_common(1)[0]
    found.facts.append(f"the largest key, {key!r}, has {many(most, 'row')} (--horizon {horizon:,})")
    late = sum(max(0, n - horizon) for n in rows.keys.values())
    if late:
        found.wrong.append(
            f"{many(late, 'row')} would have no release, beyond --horizon {horizon:,}: give "
            f"{most:,} or more, by what you know beforehand"
        )


def _names(rows: _Rows, found: Found) -> None:
    """Listed texts that never occur, and others that do."""
    if rows.listed is None:
        return
    option, known = rows.listed.option, set(rows.listed.names)
    never = [name for name in rows.listed.names if not rows.names[name]]
    others = Tally({name: n for name, n in rows.names.items() if name not in known})
    if never:
        hints = [hint for name in never if (hint := _meant(name, others, option))]
        shown = ", ".join(map(repr, never[:_SHOWN])) + ", ..." * (len(never) > _SHOWN)
        of = f"{len(never):,} of {len(known):,} in {option} never occur"
        found.wrong.append("; ".join([f"{of}: {shown}", *hints[:_SHOWN]]))
    if others:
        some = ", ".join(f"{name!r} ({n:,})" for name, n in others.most_common(_SHOWN))
        found.facts.append(
            f"{many(len(others), 'text')} not in {option}, {sum(others.values()):,} times: {some}"
            + ", ..." * (len(others) > _SHOWN)
        )
    if rows.beyond:
        said = f"{many(rows.beyond, 'row')} with more than --max-items {rows.listed.most:,}"
        found.facts.append(f"{said}: the rest of them is left out")


def _meant(name: str, others: Tally[str], option: str) -> str:
    """What a text that never occurs may have meant."""
    for between in _BETWEEN:
        parts = [part for part in re.split(between, name) if part]
        if len(parts) > 1 and any(part in others for part in parts):
            return f"{name!r} is one text: give {option} {' '.join(parts)}, with spaces between"
    folded = {other.strip().casefold(): other for other in others}
    near = difflib.get_close_matches(name.strip().casefold(), folded, 1)
    return f"{name!r} may be {folded[near[0]]!r}, which occurs" if near else ""


def _times(task: Task, rows: _Rows, transform: Any, parse: _Parse, found: Found) -> None:
    if parse.reasons and task.people_are_public:
        (reason, _), *_ = parse.reasons.most_common(1)
        n = sum(parse.reasons.values())
        found.wrong.append(f"{many(n, 'time')} cannot be read, and the first stops a run: {reason}")
    clock = getattr(task, "grid", None)
    first, last = (_FIRST, _LAST) if clock is None else (clock.start, clock.stop)
    if rows.micros:
        low, high = min(rows.micros), max(rows.micros)
        found.facts.append(f"times from {_instant(low)} to {_instant(high)}")
        before = sum(micros < first for micros in rows.micros)
        after = sum(micros >= last for micros in rows.micros)
        if clock is not None and (before or after):
            found.facts.append(
                f"outside the clock: {many(before, 'row')} before --start, {after:,} at or after "
                "its end"
            )
        if clock is not None and rows.open:
            _open_ticks(rows, task.engine.cutoff, found)
        if 2 * (before + after) <= len(rows.micros):
            return
        where = "the years 1990 to 2100" if clock is None else "the clock"
        found.wrong.append(
            f"most times lie outside {where}" + _unit(task, rows.micros, first, last)
        )
    elif parse.numbers and (hint := _unit(task, parse.numbers, first, last, raw=True)):
        found.wrong.append(f"the times{hint}")


def _open_ticks(rows: _Rows, until: str, found: Found) -> None:
    """Rows in ticks that have not ended."""
    lie, do = ("lies", "does") if rows.open == 1 else ("lie", "do")
    what = f"{lie} in ticks that have not ended by {until} (--until), and {do} not count"
    if rows.open == rows.number:
        found.wrong.append(f"all rows, {rows.number:,}, {what}")
    else:
        found.facts.append(f"{many(rows.open, 'row')} {what}")


def _unit(task: Task, numbers: Sequence[float], first: int, last: int, raw: bool = False) -> str:
    """A guess at the unit of times that were read in another; empty where none fits."""
    given = task.options.timestamp_format
    read = {None: "seconds", "unix": "seconds", "unix-ms": "milliseconds"}.get(given)
    if read is None:
        return ""
    for unit, scale in (*_UNITS.items(), (_NANOSECONDS, 1e-3)):
        by = scale if raw else scale / _UNITS[read]
        inside = sum(first <= number * by < last for number in numbers)
        if unit != read and 2 * inside > len(numbers):
            remedy = "divide them: no --timestamp-format reads these"
            if unit in _FORMATS:
                remedy = f"give --timestamp-format {_FORMATS[unit]}"
            named = "" if given is None else f" ({given})"
            return f": they look like {unit}, and are read as {read}{named}: {remedy}"
    return ""


def _instant(micros: int) -> str:
    return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)).isoformat(" ") + " UTC"


def _values(task: Task, rows: _Rows, found: Found) -> None:
    options = task.options
    if getattr(options, "value", None) is not None and rows.numbers:
        low, high = min(rows.numbers), max(rows.numbers)
        found.facts.append(f"{options.value} from {low:g} to {high:g}")
    if getattr(options, "where", None) is not None:
        found.facts.append(f"{many(rows.ones, 'row')} with {options.where}")
        if not rows.ones:
            found.wrong.append(f"no row has {options.where}: is its spelling right?")
    found.wrong += task.never(value for *_, value in rows.events)
    for reason, n in rows.problems.most_common():
        found.facts.append(f"{many(n, 'row')} ({n / rows.number:.1%}): {reason}")
        if "not a number" in reason or 2 * n > rows.number:
            found.wrong.append(f"{many(n, 'row')} of {rows.number:,}: {reason}")


def _limits(task: Task, rows: _Rows, transform: Any, found: Found) -> None:
    """What caps and bounds on people leave out."""
    options = task.options
    if options.user is not None:
        _people(task, rows, transform, found)
    if not task.people_are_public:
        _ticks(task, rows, found)
    if getattr(options, "max_degree", None) is not None:
        _degrees(task, rows, found)


def _people(task: Task, rows: _Rows, transform: Any, found: Found) -> None:
    options = task.options
    if rows.nobody:
        found.facts.append(
            f"{many(rows.nobody, 'row')} of nobody (an empty {options.user}): they do not count"
        )
    if 2 * rows.nobody > rows.number:
        found.wrong.append(f"most rows have no {options.user}")
    events = rows.events
    if not events:
        return
    if (beyond := task.beyond_bounds(events)) is not None:
        limit = f"--per-user {options.per_user:,}" if options.per_user else most_rows(options)
        found.facts.append(
            f"{len({person for person, *_ in events} - {''}):,} people; the limit on each "
            f"({limit}) leaves out {many(beyond, 'row')} "
            f"({beyond / len(events):.1%}), those without a person among them"
        )
        if 2 * beyond > len(events) and not _once_is_enough(task):
            found.wrong.append("most rows are left out by the limit on each person")
        return
    if getattr(options, "select_keys", False):
        transform = replace(transform, keys=sorted({key for _, key, *_ in events}))
    if getattr(options, "item", None) is not None:
        events = [(*event[:3], 1) for event in events]
    timed = [
        (person, key, None if micros is None else Timestamp(micros=micros), value)
        for person, key, micros, value in events
    ]
    gap = getattr(options, "gap", None)
    suggested = dp.suggest_bounds(
        timed,
        transform,
        events=[options.per_user],
        keys=[options.max_keys],
        per_key=[options.per_key],
        gap=[gap],
    )
    row, left = suggested.best, suggested.events - suggested.best.kept_events
    found.facts.append(
        f"{suggested.people:,} people; the limit on each (--per-user {options.per_user:,}) leaves "
        f"out {many(left, 'row')} ({row.events:.1%}), those without a person among them: some rows "
        f"of {row.people:.1%} of the people, and all of {row.keys:.1%} of the keys"
    )
    if 2 * left > suggested.events and not _once_is_enough(task):
        found.wrong.append(
            "most rows are left out by the limit on each person: `beam-dpcount bounds` "
            "compares others"
        )


def _once_is_enough(task: Any) -> bool:
    """Whether further rows of a person change nothing: people are counted, and there is one key."""
    metrics = getattr(task, "metrics", ())
    return (
        bool(metrics)
        and task.options.key is None
        and all(isinstance(m, dp.People) for m in metrics)
    )


def _ticks(task: Any, rows: _Rows, found: Found) -> None:
    """What a tick has beyond --max-per-tick."""
    clock = task.grid
    rows_of = Tally((key, clock.tick_of(micros)) for _, key, micros, _ in rows.events)
    clipped = sum(n > task.most for n in rows_of.values())
    if clipped:
        found.facts.append(
            f"{clipped:,} ticks of keys have more than {task.most:,} rows (--max-per-tick)"
        )


def _degrees(task: Task, rows: _Rows, found: Found) -> None:
    """What --max-degree leaves out of graphs."""
    most, seen = task.options.max_degree, set()
    degree: Tally[tuple[str, Any]] = Tally()
    out = 0
    for _, key, _, edge in rows.events:
        u, v = sorted(map(str, edge[:2]))
        if (key, u, v) in seen:
            continue
        seen.add((key, u, v))
        degree.update([(key, u), (key, v)])
        out += max(degree[key, u], degree[key, v]) > most
    high = sum(n > most for n in degree.values())
    if not high:
        return
    said = f"{high:,} vertices have more than {most:,}"
    if task.options.asserted:
        found.wrong.append(
            f"{said} neighbours, against your word (--asserted): the guarantee would not hold"
        )
    else:
        found.facts.append(f"{said} pairs (--max-degree): {many(out, 'pair')} beyond that")
