"""Whom to protect, and which of one person's events count: a rule, without Beam."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from beam_dpcount.checks import ParameterError, check_flag, check_whole
from beam_dpcount.counters.moments import duration_of, seconds
from beam_dpcount.reading import Field, Function, call, read, text_of

_FEWEST, _MOST = 64, 1 << 16  # shards of people
_OF_A_SHARD = 1 << 17  # events that count, in each: a state of 2 to 5 MB

NOBODY = ""  # the person of an event without one
UNCAPPED = 1 << 62  # events of a person, where their activity alone is bounded
NO_PERIOD = ("is of periods, and there are none", "give {per=}'1d' too, or leave {lateness} out")
_PERIODS = {"1h": "hour", "1d": "day", "1w": "week"}


@dataclass(frozen=True)
class Users:
    """Whom to protect: all events of one person, or those of any one day, of which so many count.

    An event counts if fewer than `events` of its person's count so far, fewer than `per_key` in its
    key, its key is one of the first `keys` that count, and no event that counts is less than `gap`
    away. On bounded input events are taken by time, ties by what the event itself holds; streaming,
    as they arrive. The two agree where events arrive in their order.

    Args:
      by: the name of the field that holds the person's id, or a function that returns the id. Both
        read what `value=` gets: the payload of a (key, payload) pair, or the whole event if events
        are not pairs. So `lambda pair: pair[1]` is a mistake: from the pair ("/home", "ann") it
        takes the letter "n". A field is an item of a mapping, or a field of a
        beam.Row, NamedTuple or dataclass; for a field within another, give a function. An id is a
        text or a whole number, which is taken as its decimal text: 7 and "7" are one person. Events
        with any other id (None, an empty text, 7.0, True, a text with lone surrogates) do not
        count, and neither do events for which the function raises an error. It must be a function
        of the event alone (docs/reliability.md, "Poison messages"). `beam_dpcount.check` says how
        many people there are, and why events have none.
      events: k, the most events of one person that count, in all keys together. Not needed for
        `People()` alone, with `changes`, or with `per` and `keys`. For `People()` of each tick or
        of the last ones, more events in a tick and key in which the person counts take nothing.
      keys: the most keys of one person; default: as many as there are events.
      per_key: the most events of one person in one key. Default: as many as there are events, for
        counts and sums; for `People`, each of whom counts once a key, 1. With per_key=1 any count
        is one of people, and has the least noise.
      gap: the least time between two events of a person, in seconds or as a timedelta: one at 12:00
        and one at 13:00 are an hour apart. With several events a key, a gap of many ticks takes
        far less noise; with one, or a gap below a tick, it lowers none. Streaming, it needs
        late="drop".
      asserted: True: your word that no person has more than that, `keys` and `per_key` included;
        nothing is left out, and nothing is enforced. The guarantee says so.
      per: at a clock, the period in which all of this holds: text such as "1d", a timedelta, or a
        number of ticks. Periods are whole ticks, one after the other from the start of the clock;
        with the clock's zone, days and weeks are local ones, of 23 to 25 hours. Rules read only
        events of their own period, so that a gap is not kept across its border.
      lateness: with `per`, if the input is a stream: for how long after the end of a period events
        of it still count, as seconds, text such as "6h", or a timedelta. Then the period is closed
        and forgotten. Default: for as long as the period itself.
      changes: for `People()` at `clock.last(n)`: how often a person may become active, or stop, in
        the whole stream and all keys; even. In place of `events`.
      people: about how many people there will be in all, if the input is a stream; with `per`, in
        two periods; a public guess.
        What counts of them is kept in `shards` public shards, so many that a shard stays small:
        64, or more from some 8 million events that count on. A stream that is resumed takes the
        same. Where there are more people than that, it is slower, and no less private.

    Raises:
      ValueError, TypeError: an argument is outside its range; the message says what to pass.

    Example:
      >>> import beam_dpcount as dp
      >>> people = dp.Users("user", events=5)
      >>> print(people)
      at most 5 events a person (field 'user'), in 5 keys, 5 a key
      >>> hours = dp.Clock("1h", start=0, ticks=1000)
      >>> count = dp.TickCount(dp.ApproxDP(1.0, 1e-6), hours, keys=["a", "b"], users=people)
      >>> round(count.counter.l2_sensitivity, 2)  # all five events may fall into one counter
      5.0
    """

    by: str | Callable[[Any], Any]
    events: int | None = None
    keys: int | None = None
    per_key: int | None = None
    gap: Any = None
    asserted: bool = False
    per: Any = None
    changes: int | None = None
    people: int | None = None
    lateness: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.by, str) and self.by:
            object.__setattr__(self, "by", str.__str__(self.by))
        elif not callable(self.by):
            raise TypeError(
                "by must be the name of the field that holds a person's id, or a function that "
                f'returns it, got {self.by!r}: e.g. by="user", or by=lambda event: event["user"]'
            )
        for name in ("events", "keys", "per_key", "changes", "people"):
            given = getattr(self, name)
            if given is not None or (name == "events" and not self._counts_activity):
                object.__setattr__(self, name, check_whole(name, given))
        if self.changes is not None:
            self._check_changes(self.changes)
        check_flag("asserted", self.asserted)
        if self.gap is not None:
            duration_of(self.gap, "gap")
        self._check_period()

    @property
    def _counts_activity(self) -> bool:
        """Whether no cap on events is needed, as activity is counted."""
        return self.changes is not None or (self.per is not None and self.keys is not None)

    def _check_changes(self, changes: int) -> None:
        if changes % 2:
            problem = f"must be even, got {changes}: nobody is to stay active for ever"
            raise ParameterError("changes", problem, f"give {{changes=}}{changes + 1}")
        given = ("events", "per_key", "gap", "per")
        if self.asserted or any(getattr(self, name) is not None for name in given):
            problem = "caps how often a person becomes active, or stops, in the whole stream"
            remedy = "leave events, per_key, gap, per and asserted out"
            raise ParameterError("changes", problem, remedy)

    def _check_period(self) -> None:
        if isinstance(self.per, str) and not self.per.strip().isdecimal():
            duration_of(self.per, "per")
        elif self.per is not None and not hasattr(self.per, "days"):
            object.__setattr__(self, "per", check_whole("per", self.per, unit="ticks"))
        if self.lateness is not None:
            duration_of(self.lateness, "lateness")
            if self.per is None:
                raise ParameterError("lateness", *NO_PERIOD)

    @property
    def late_micros(self) -> int:
        """The lateness in microseconds; 0: as long as a period."""
        return 0 if self.lateness is None else duration_of(self.lateness, "lateness")

    @property
    def micros(self) -> int:
        """The gap in microseconds; 0: there is none."""
        return 0 if self.gap is None else duration_of(self.gap, "gap")

    @property
    def shards(self) -> int:
        """Over how many shards people are spread in a stream."""
        shards = -(-(self.people or 1) * (self.events or 1) // _OF_A_SHARD)
        return min(max(_FEWEST, 1 << (shards - 1).bit_length()), _MOST)

    def bound(self, items: int = 1) -> Bound:
        """The rule, for events of so many items, each of which is a key."""
        events = UNCAPPED if self.events is None else self.events
        keys = events * items if self.keys is None else self.keys
        per_key = events if self.per_key is None else min(self.per_key, events)
        return Bound(events, keys, per_key, self.micros)

    @property
    def person_of(self) -> Function:
        """The function that returns an event's person."""
        return Field(self.by) if isinstance(self.by, str) else self.by

    def has_same_people(self, other: Users) -> bool:
        """Whether both read the person in the same way."""
        return self.by is other.by or (isinstance(self.by, str) and self.by == other.by)

    def person(self, payload: object) -> str:
        """The person of an event; an empty text if it has none."""
        return person_from(self.person_of, payload)

    def examine(self, payload: object) -> tuple[str | None, str]:
        """Why an event has no person (None if it has one), and its person.

        `by` is called once; if it raises an error, that is a FunctionError.
        """
        person = text_of(call("users.by", self.person_of, payload)) or NOBODY
        return (None if person else self._no_person), person

    @property
    def _no_person(self) -> str:
        by_field = isinstance(self.by, str)
        problem = f"field {self.by!r} does not hold" if by_field else "users.by did not return"
        return f"the event has no person: {problem} a whole number, or a text that is not empty"

    def __str__(self) -> str:
        bound = self.bound()
        keys = "one key" if bound.keys == 1 else f"{min(bound.keys, bound.events):,} keys"
        apart = f", {seconds(self.micros)} apart" if self.micros else ""
        asserted = ", by your word" if self.asserted else ""
        field = f" (field {self.by!r})" if isinstance(self.by, str) else ""
        each = "" if self.per is None else f" in each {period_name(self.per)}"
        if self.changes is not None:
            many = "" if self.keys is None else f", in {keys}"
            return f"at most {self.changes} changes of a person's activity{field}{many}"
        if self.events is None:
            return f"all events of a person{field}{each}, in {keys}"
        return (
            f"at most {bound.events} events a person{field}{each}, in {keys}, {bound.per_key} a key"
            f"{apart}{asserted}"
        )


def check_users(users: object) -> Users:
    """`users`, or a TypeError that says what to pass."""
    if not isinstance(users, Users):
        raise TypeError(
            f'users must be Users(by, events), got {users!r}: e.g. users=Users("user", events=5)'
        )
    return users


def period_name(per: object) -> str:
    """What a period is called, of a clock without a zone."""
    if isinstance(per, str) and not per.strip().isdecimal():
        return _PERIODS.get(per.strip(), f"period of {per.strip()}")
    if isinstance(per, dt.timedelta):
        return f"period of {per}"
    return "tick" if int(str(per)) == 1 else f"period of {per} ticks"


def remaining(events: int, daily: float, days: int) -> float:
    """Which share of a person's events of the last 30 days before a day still counts.

    Of someone who has `daily` events every day, under a bound on the events of the whole stream.

    Args:
      events: how many count.
      daily: how many there are a day.
      days: how many days have passed, from 30.
    """
    last = daily * days
    return max(0.0, min(events, last) - min(events, last - 30 * daily)) / (30 * daily)


def person_from(by: Function, payload: object) -> str:
    """The person of an event; an empty text if it has none."""
    return text_of(read(by, payload)) or NOBODY


@dataclass(slots=True)
class Seen:
    """What counts of one person so far.

    Fields:
      events: how many events.
      names: how many of them in each key, by its name: in state, by a digest of it.
      times: those of the events, ascending; kept only for a gap.
    """

    events: int = 0
    names: dict[Hashable, int] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Bound:
    """Which of one person's events count; see `Users`. `gap` in microseconds, 0 is none."""

    events: int
    keys: int
    per_key: int
    gap: int

    @property
    def most(self) -> int:
        """The most events of a person that count, each in one key."""
        return min(self.events, self.keys * self.per_key)

    def is_full(self, events: int) -> bool:
        """Whether no more events count where so many do."""
        return events >= self.events

    def take(self, seen: Seen, names: Sequence[Hashable], micros: int) -> list[int]:
        """The places of the names under which an event counts, and note it in `seen`.

        Args:
          seen: what counts of the person so far; it is changed.
          names: the keys of the event: one, or one an item.
          micros: its time.
        """
        if self.is_full(seen.events) or (self.gap and not self._is_apart(seen.times, micros)):
            return []
        kept, counted = [], seen.names
        for place, name in enumerate(names):
            n = counted.get(name, 0)
            if n < self.per_key and (n or len(counted) < self.keys):
                counted[name] = n + 1
                kept.append(place)
        if kept:
            seen.events += 1
            if self.gap:
                insort(seen.times, micros)
        return kept

    def _is_apart(self, times: Sequence[int], micros: int) -> bool:
        at = bisect_left(times, micros)
        return all(abs(micros - time) >= self.gap for time in times[max(at - 1, 0) : at + 1])
