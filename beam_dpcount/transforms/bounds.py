"""suggest_bounds: what bounds on each person leave out, beside the noise that they need."""

from __future__ import annotations

import itertools
import math
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.moments import seconds, time_of_event
from beam_dpcount.counters.people import Seen, Users
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.errors import NotANumberError
from beam_dpcount.plans.values import Ones
from beam_dpcount.reading import text_of
from beam_dpcount.transforms.counts import PrefixCount
from beam_dpcount.transforms.elements import NO_PERIODS
from beam_dpcount.transforms.histograms import Histogram
from beam_dpcount.transforms.ticks import TickNumbers

_PRIVATE = (
    "PRIVATE: computed from the rows, without noise. Do not publish it. Bounds that are chosen by "
    "it for the rows that it is of are outside the guarantee: take public rows, or those of "
    "another period."
)
MONTHS = (1, 3, 12)  # of which it is said how much still counts
_OF_MONTHS = (
    "month 1, 3, 12: which share of the events of the first, third and twelfth 30 days counts; a "
    "bound over the whole clock leaves ever less of people who come back"
)
_OF_PERIODS = (
    "per: bounds of each such period by itself protect one person's events of any one of them, not "
    "a person with all events"
)
_DAY = 86_400_000_000
_EVENTS = (1, 2, 5, 10, 20, 50, 100)

Row = Sequence[Any]
_Event = tuple[int, Any, int, int]  # microseconds, what decides ties, the key, what it counts


@dataclass(frozen=True)
class BoundRow:
    """One bound in a table of `suggest_bounds`: private, but for `stddev`.

    Fields:
      users: the bound; give it your `by`: `dataclasses.replace(row.users, by=...)`.
      events, people, keys: shares of what is left out: of the events; of the people, of whom an
        event is; of the keys, of which all events are.
      kept_events, kept_keys: how many count; how many keys have one that does.
      bias: the root mean square over keys of what the last count of each lacks.
      stddev: the largest standard deviation of a release.
      months: which share of the events of the first, third and twelfth 30 days of the clock counts;
        None: there are none. Without a clock: nothing.
    """

    users: Users
    events: float
    people: float
    keys: float
    kept_events: int
    kept_keys: int
    bias: float
    stddev: float
    months: tuple[float | None, ...] = ()

    @property
    def error(self) -> float:
        """The root of bias^2 + stddev^2, by which bounds are compared."""
        return math.hypot(self.bias, self.stddev)

    def __repr__(self) -> str:
        return f"BoundRow({self.users}; the rest is private)"


@dataclass(frozen=True)
class SuggestedBounds:
    """Bounds on each person, best first, and what they are of; private (`print` it to see it).

    Fields:
      rows: a BoundRow for each bound.
      events, people, keys: how many there are; people without those whose rows do not count.
      nobody: how many of the events have no person: no bound lets them count.
    """

    rows: tuple[BoundRow, ...]
    events: int
    people: int
    keys: int
    nobody: int

    @property
    def best(self) -> BoundRow:
        return self.rows[0]

    def __repr__(self) -> str:
        return f"SuggestedBounds(of {len(self.rows)} bounds; private, print it to see it)"

    def __str__(self) -> str:
        periods = any(row.users.per is not None for row in self.rows)
        months = MONTHS if any(row.months for row in self.rows) else ()
        head = f"{'events':>8}{'keys':>8}{'per key':>9}{'gap':>12}" + f"{'per':>9}" * periods
        head += f"{'events out':>12}{'people cut':>12}{'keys out':>10}"
        head += "".join(f"{f'month {month}':>10}" for month in months)
        lines = [f"{head}{'bias':>11}{'noise':>11}{'both':>11}"]
        for row in self.rows:
            users = row.users
            keys = users.events if users.keys is None else users.keys
            gap = seconds(users.micros) if users.micros else "-"
            per = f"{'-' if users.per is None else users.per!s:>9}" * periods
            counted = "".join(f"{'-' if x is None else f'{x:.1%}':>10}" for x in row.months)
            lines.append(
                f"{users.events:>8,}{keys:>8,}{users.per_key:>9,}{gap:>12}{per}"
                f"{row.events:>12.1%}{row.people:>12.1%}{row.keys:>10.1%}{counted}"
                f"{row.bias:>11.4g}{row.stddev:>11.4g}{row.error:>11.4g}"
            )
        return "\n".join(
            [
                _PRIVATE,
                "",
                f"{self.events - self.nobody:,} events of {self.people:,} people in {self.keys:,} "
                f"keys, and {self.nobody:,} of nobody, which never count, and so are out as well",
                *lines,
                "out, cut: the shares of events that do not count, of people who have such, and of "
                "keys that have no others",
                *[_OF_MONTHS] * bool(months),
                *[_OF_PERIODS] * periods,
                "bias: the root mean square over keys of what the last count lacks; noise: the "
                "largest standard deviation; both: the root of the sum of squares; best first",
            ]
        )


def suggest_bounds(
    rows: Iterable[Row],
    count: TickNumbers | PrefixCount | Histogram,
    *,
    events: Sequence[int] = _EVENTS,
    keys: Sequence[int | None] = (None,),
    per_key: Sequence[int | None] = (1, None),
    gap: Sequence[object] = (None,),
    per: Sequence[object] = (None,),
    sample: float = 1,
) -> SuggestedBounds:
    """What several bounds on each person leave out of a count, and the noise that they need.

    **Its result is private**: it is computed from the rows without noise, and tells of single
    people. Do not publish it. Nor is a count protected whose bounds were chosen by it on the rows
    that are then counted: take public rows, or those of another period, and people who gave them
    for this. Nothing is spent, drawn or logged, and no pipeline runs.

    Bounds are compared by the root of bias^2 + noise^2: the root mean square, over the keys, of
    what the last count of each lacks; and the largest standard deviation of a release. With one
    error of this size all keys are as wrong at the end as with the bound.

    Args:
      rows: (person, key, time) or (person, key, time, value), e.g. `zip(people, keys, times)` of
        arrays. The person is a text or a whole number, as for `Users`. Rows whose person is None or
        an empty text never count. The time is as for `Clock.start`; after every element it may be
        None everywhere, and rows are in order. The value is a number, and of no use in a histogram;
        default 1.
      count: the count that the bound is for: a TickCount, PrefixCount or Histogram, with its keys,
        clock, budget, bounds and mechanism. After every element the keys are those of the rows.
        Its own `users` are put aside. For `Items` give a TickCount whose keys are the items.
      events, keys, per_key, gap, per: the values to try, each as for `Users`, in all combinations.
        per_key=None: as many as `events`. per=None is the whole clock; periods protect less.
      sample: the share of all people whose rows these are; what is left out is divided by it.
        (A sample must be of people, with all their rows, and not of rows.)

    Raises:
      ValueError, TypeError: an argument is out of range, or a row cannot be read; the message has
        the number of the row, from 1, and never what it holds.

    Example:
      >>> import beam_dpcount as dp
      >>> minutes = dp.Clock("1m", start=0, ticks=10)
      >>> count = dp.TickCount(dp.ApproxDP(1.0, 1e-6), minutes, keys=["a", "b"])
      >>> visits = [("ann", "a", 5), ("ann", "a", 70), ("bob", "b", 70), ("ann", "b", 500)]
      >>> found = dp.suggest_bounds(visits, count, events=[1, 3], per_key=[1])
      >>> found
      SuggestedBounds(of 2 bounds; private, print it to see it)
      >>> for row in found.rows:
      ...     print(row.users.events, row.kept_events, f"{row.bias:.3f}", round(row.stddev, 1))
      1 2 1.000 4.3
      3 3 0.707 8.9
    """
    count = getattr(count, "numbers", None) or count
    if not isinstance(count, TickNumbers | PrefixCount | Histogram):
        raise TypeError(
            f"count must be a TickCount, PrefixCount or Histogram, got {type(count).__name__}: for "
            "Items give a TickCount whose keys are its items"
        )
    if isinstance(count, TickNumbers) and isinstance(count.keys, SelectKeys):
        raise ValueError(
            "bounds are compared for keys that are listed: give the sample's, e.g. keys=[...]"
        )
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 < sample <= 1:
        problem = f"must be a number above 0, up to 1, got {sample!r}"
        raise ParameterError("sample", problem, "give the share of people, e.g. {sample=}0.01")
    tried = _combined(events=events, keys=keys, per_key=per_key, gap=gap, per=per)
    if not isinstance(count, TickNumbers) and any(users.per is not None for users in tried):
        raise ParameterError("per", *NO_PERIODS)
    if not tried:
        raise ValueError("there is no bound to try: give events, keys, per_key, gap and per values")
    log = _Log(count)
    for number, row in enumerate(rows, start=1):
        log.add(number, row)
    log.sort()
    made = [log.tried(users, sample) for users in tried]
    ranked = tuple(sorted(made, key=lambda row: row.error))
    return SuggestedBounds(ranked, log.events, len(log.people), log.keys, len(log.nobody))


def _nobody(_: object) -> str:
    return ""


def _combined(**values: Sequence[Any]) -> list[Users]:
    """Different bounds, of all combinations of the values."""
    for name, several in values.items():
        if isinstance(several, str | bytes | Mapping) or not isinstance(several, Iterable):
            remedy = f"give e.g. {name}=[{several!r}]"
            raise TypeError(f"{name} must be a list of values to try, got {several!r}: {remedy}")
    made = {}
    for events, keys, per_key, gap, per in itertools.product(*values.values()):
        gap = None if events == 1 else gap  # which is apart from no other
        in_key = events if per_key is None else per_key
        users = Users(_nobody, events, keys, in_key, gap, per=per)
        bound = users.bound()
        most = None if bound.keys >= bound.events else bound.keys
        made[bound.events, most, bound.per_key, bound.gap, per] = replace(
            users, keys=most, per_key=bound.per_key
        )
    return list(made.values())


class _Log:
    """The rows that a count counts, by person, in the order in which they are taken."""

    def __init__(self, count: Any) -> None:
        self._count = count
        self._at_ticks = isinstance(count, TickNumbers)
        self._places = {key: n for n, key in enumerate(count.keys)} if self._at_ticks else {}
        self.people: dict[str, list[_Event]] = defaultdict(list)
        self.nobody: list[_Event] = []
        self.used: Tally[int] = Tally()  # how many events a key has
        self.events = 0

    @property
    def keys(self) -> int:
        return len(self._places)

    def add(self, number: int, row: Row) -> None:
        """Take a row; `number` is for messages."""
        try:
            person, key, time, *values = row
            value = values[0] if values else 1
            person_id = text_of(person) or ""
            has_id = person is None or person_id or isinstance(person, str)
            valid = len(values) < 2 and isinstance(key, str) and has_id
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise TypeError(
                f"row {number} is not (person, key, time) or (person, key, time, value), where the "
                "person is a text, a whole number or None, and the key a text"
            )
        micros = self._micros(number, time)
        place, size = self._place(key), self._size(value)
        if place is None:
            return
        tie: Any = number
        if self._at_ticks:  # as TickParcels sorts them
            if not size or not self._count._clock.step_at(micros, self._count._clock.start):
                return
            tie = place, size % 2**64
        event = micros, tie, place, size
        (self.people[person_id] if person_id else self.nobody).append(event)
        self.used[place] += 1
        self.events += 1

    def _micros(self, number: int, time: object) -> int:
        if time is None and not self._at_ticks:
            return 0
        try:
            return time_of_event(time)
        except (ValueError, TypeError):  # its message shows the time
            raise ValueError(
                f"row {number}: the time is neither seconds since 1970, nor a datetime or text "
                "with an offset"
            ) from None

    def _place(self, key: str) -> int | None:
        if not self._at_ticks:
            return self._places.setdefault(key, len(self._places))
        return self._places.get(key, self._places.get(self._count.other))

    def _size(self, value: Any) -> int:
        if isinstance(self._count, Histogram):
            return 1
        try:
            return int(self._count.counter.quantise(value))
        except NotANumberError:
            return 0

    def tried(self, users: Users, sample: float) -> BoundRow:
        """What a bound leaves out, and its noise."""
        count = replace(self._count, users=users, value=self._count.value or Ones())
        counter, bound = count.counter, users.bound()
        periods = count._periods if self._at_ticks else None
        left_out, cut = list(self.nobody), 0
        for events in self.people.values():
            mine: dict[int, Seen] = defaultdict(Seen)
            before = len(left_out)
            for e in events:
                seen = mine[0 if periods is None else periods.of(e[0])]
                if not bound.take(seen, (e[2],), e[0]):
                    left_out.append(e)
            cut += len(left_out) > before
        lacking: dict[int, int] = defaultdict(int)
        gone: Tally[int] = Tally()
        for *_, place, size in left_out:
            lacking[place] += size
            gone[place] += 1
        kept_keys = sum(n > gone[place] for place, n in self.used.items())
        unit = counter.unit / sample
        return BoundRow(
            users,
            events=len(left_out) / max(self.events, 1),
            people=cut / max(len(self.people), 1),
            keys=(len(self.used) - kept_keys) / max(len(self.used), 1),
            kept_events=self.events - len(left_out),
            kept_keys=kept_keys,
            bias=math.hypot(*(x * unit for x in lacking.values())) / math.sqrt(self.keys or 1),
            stddev=math.sqrt(counter.max_variance()),
            months=self._months(left_out),
        )

    def _months(self, left_out: Sequence[_Event]) -> tuple[float | None, ...]:
        """Which share of the events of the first, third and twelfth month counts."""
        if not self._at_ticks:
            return ()
        start, found = self._count._clock.start, []
        for month in MONTHS:
            low, high = (start + 30 * days * _DAY for days in (month - 1, month))
            every = sum(low <= e[0] < high for of in self._everybody for e in of)
            gone = sum(low <= e[0] < high for e in left_out)
            found.append(1 - gone / every if every else None)
        return tuple(found)

    @property
    def _everybody(self) -> list[list[_Event]]:
        return [*self.people.values(), self.nobody]

    def sort(self) -> None:
        for events in self.people.values():
            events.sort()
