"""The clock of a tick count, and its arithmetic.

Times are integers: microseconds since the epoch, UTC. Nothing here knows of Beam.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.total import ALL, Total
from beam_dpcount.mechanisms.base import check_horizon
from beam_dpcount.times import duration

LATE = ("fold", "drop")

_SECOND = 1_000_000
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
# The years 1 to 9999, as datetime has them: times beyond are mostly milliseconds by mistake.
_FIRST, _LAST = -62_135_596_800 * _SECOND, 253_402_300_800 * _SECOND
LARGEST = 2**62  # sums that fit 64 bits with room to spare
NO_END = "give stop, the end of the count, or horizon, the number of ticks"
OFF_GRID = (
    "windows of {size} from {offset} do not end on the clock's ticks of {tick} from {start}: give "
    "windows whose size is a multiple of tick, and a start that is a border of a window"
)
# Why an event does not count.
OUTSIDE = "the time lies outside [start, stop)"
UNLISTED = "the key is not among keys"


def micros_of(moment: object, name: str) -> int:
    """A public point in time, the parameter `name`, as microseconds since the epoch, exactly.

    `moment` is in seconds since the epoch (a number), an aware datetime, ISO 8601 text with an
    offset, or anything with whole `micros`, such as Beam's Timestamp.

    Raises:
      ValueError, TypeError: it is none of these, has no time zone, has a fraction of a microsecond,
        or lies outside the years 1 to 9999.
    """
    remedy = f'give {name} as seconds since 1970, or as text such as "2024-01-31T00:00:00Z"'
    if isinstance(moment, str):
        made = _parsed(moment, name, remedy)
    elif isinstance(moment, dt.datetime):
        made = moment
    else:
        micros = _whole(moment, name, remedy)
        if not _FIRST <= micros < _LAST:
            problem = f"{name} lies outside the years 1 to 9999, got {moment!r}"
            raise ValueError(f"{problem}: {remedy} (not milliseconds)")
        return micros
    if made.utcoffset() is None:
        remedy = "add an offset such as Z or +02:00, or tzinfo=datetime.timezone.utc"
        raise ValueError(f"{name} has no time zone, got {moment!r}: {remedy}")
    return (made - _EPOCH) // _MICROSECOND


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
            return int(duration(tick.strip()) * _SECOND)
        except ValueError:
            problem = f"must be a positive time of whole microseconds, got {tick!r}"
            raise ParameterError(name, problem, remedy) from None
    timed = isinstance(tick, dt.timedelta)
    micros = tick // _MICROSECOND if timed else _whole(tick, name, remedy)
    if micros <= 0:
        raise ValueError(f"{name} must be positive, got {tick!r}: {remedy}")
    return micros


def _parsed(text: str, name: str, remedy: str) -> dt.datetime:
    given = text
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
        exact = Fraction(str(value)) * _SECOND
    except ValueError:
        raise ValueError(f"{name} must be finite, got {value!r}: {remedy}") from None
    if exact.denominator != 1:
        raise ValueError(f"{name} must be whole microseconds, got {value!r}: {remedy}")
    return exact.numerator


@dataclass(frozen=True)
class Clock:
    """A public grid of ticks: release i, from 1, counts events with origin <= ts < end(origin, i).

    Times are in microseconds. Made by `clock_of`.

    Args:
      tick: its length.
      start, stop: events outside [start, stop) do not count.
      steps: the number of ticks of one count.
      window: the length of windows, each with a count of its own; None: one count, from `start`.
      offset: where windows start, modulo their length.
    """

    tick: int
    start: int
    stop: int
    steps: int
    window: int | None = None
    offset: int = 0

    def __getstate__(self) -> dict[str, Any]:
        # No caches: that there is one tells that an event was read.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def in_windows(self, size: int, offset: int) -> Clock:
        """The same clock, started anew in each window [offset + k size, offset + (k + 1) size).

        Raises:
          ValueError: windows do not end on ticks, or on whole milliseconds.
        """
        if size % self.tick or (offset - self.start) % self.tick:
            grid = {"tick": seconds(self.tick), "start": instant(self.start)}
            raise ValueError(OFF_GRID.format(size=seconds(size), offset=seconds(offset), **grid))
        if size % 1000 or offset % 1000:
            raise ValueError(
                f"windows of {seconds(size)} from {seconds(offset)} are cut to milliseconds when "
                "Beam encodes them: give a size and an offset of whole milliseconds"
            )
        return replace(self, steps=size // self.tick, window=size, offset=offset % size)

    def origins(self) -> range:
        """The times at which counts start: of every window with a part in [start, stop)."""
        if self.window is None:
            return range(self.start, self.start + 1)
        first = self.start - (self.start - self.offset) % self.window
        return range(first, self.stop, self.window)

    def passed_at(self, origin: int) -> int:
        """How many ticks of counts before end before the one from `origin` starts: so the ticks of
        all counts are numbered, from 1."""
        return (origin - self._first) // self.tick

    def origin_after(self, passed: int) -> int:
        """The origin of the count before which so many ticks end."""
        return self._first + passed * self.tick

    @cached_property
    def _first(self) -> int:
        return self.origins()[0]

    @property
    def ticks(self) -> int:
        """How many ticks there are, of all counts."""
        return len(self.origins()) * self.steps

    def ended(self, origin: int, until: int | None) -> int:
        """How many ticks of the count from `origin` have ended at a time; all, if it is None."""
        if until is None:
            return self.steps
        return min(max((until - origin) // self.tick, 0), self.steps)

    def all_ended(self, until: int | None) -> int:
        """The same for all counts."""
        if until is None:
            return self.ticks
        return min(max((until - self.origins()[0]) // self.tick, 0), self.ticks)

    def last_end(self, until: int) -> int:
        """When the last tick that has ended at a time did; the first start if none has."""
        return self.origins()[0] + self.all_ended(until) * self.tick

    def step_at(self, micros: int, origin: int) -> int:
        """The tick of the count from `origin` in which an event falls; 0 if it does not count."""
        return self.steps_from(origin)(micros)

    def steps_from(self, origin: int, until: int | None = None) -> Callable[[int], int]:
        """`step_at` of one count, as a quick function of the time alone.

        Events of ticks that have not ended by `until` do not count.
        """
        first, stop, tick, steps = max(self.start, origin), self.stop, self.tick, self.steps
        ended = self.ended(origin, until)

        def step_at(micros: int) -> int:
            if not first <= micros < stop:
                return 0
            # Beam cuts times to milliseconds, towards 0: before 1970 that may leave the window.
            step = min((micros - origin) // tick + 1, steps)
            return step if step <= ended else 0

        return step_at

    def end(self, origin: int, step: int) -> int:
        """When tick `step` of the count from `origin` ends: the release's timestamp."""
        return origin + step * self.tick

    def alarm(self, origin: int, step: int) -> int:
        """When to release tick `step`: at its end, in whole milliseconds, within the window.

        Beam's timers know no finer times. Rounded down, a timer could leave out events, so it is
        rounded up. Some runners refuse timers beyond the last millisecond of a window.
        """
        micros = -(-self.end(origin, step) // 1000) * 1000
        return micros if self.window is None else min(micros, origin + self.window - 1000)

    @property
    def fingerprint(self) -> str:
        """All that pending sums depend on: windows may go on beyond an earlier stop."""
        return repr((self.tick, self.start, self.window, self.offset, self.steps))

    def describe(self) -> Mapping[str, str]:
        """The public parameters, for display data and annotations."""
        return {
            "tick": seconds(self.tick),
            "start": instant(self.start),
            "stop": instant(self.stop),
            "ticks": str(self.steps),
            "window": "global" if self.window is None else f"fixed, of {seconds(self.window)}",
        }


def clock_of(tick: object, start: object, stop: object = None, horizon: object = None) -> Clock:
    """The clock of public parameters as users give them; see `duration_of` and `micros_of`.

    By default `horizon`, the number of ticks, is that of those that reach `stop`.

    Raises:
      ValueError, TypeError: an argument is out of range, or neither stop nor horizon is given; or a
        whole number as `stop` comes before the first tick ends.
    """
    length, first = duration_of(tick), micros_of(start, "start")
    if first + length > _LAST:
        problem = f"is {tick!r}, so the first one would end after the year 9999"
        raise ParameterError("tick", problem, "give a length in seconds, e.g. {tick=}3600")
    if stop is None and horizon is None:
        raise ValueError(NO_END)
    last = None if stop is None else micros_of(stop, "stop")
    if type(stop) is int and stop > 0 and horizon != 1 and (last or 0) < first + length:
        # Most likely a number of ticks, given by position.
        problem = f"is {stop}, a time before the first tick ends, {instant(first + length)}"
        remedy = f"for {stop} ticks give {{horizon=}}{stop} in its place"
        raise ParameterError("stop", problem, remedy)
    if last is not None and last <= first:
        raise ValueError(f"stop must be after start, got start={start!r} and stop={stop!r}")
    needed = 0 if last is None else -(-(last - first) // length)
    steps = check_horizon(needed if horizon is None else horizon)
    if steps < needed:
        problem = f"is {steps}, but there are {needed} ticks from start to stop"
        remedy = f"give a horizon of at least {needed}, or leave it out"
        raise ParameterError("horizon", problem, remedy)
    end = first + steps * length
    if end > _LAST:
        ticks = f"{steps} ticks of {seconds(length)} from {instant(first)}"
        raise ValueError(f"{ticks} end after the year 9999: give a smaller horizon")
    return Clock(length, first, end if last is None else last, steps)


def now() -> int:
    """The current time of this machine, in microseconds. Transforms read no other clock."""
    return time.time_ns() // 1000


def until_of(until: object) -> int:
    """The time by which ticks must have ended to be released: as the user gives it, or now.

    Raises:
      ValueError, TypeError: as `micros_of`, and for a time later than now.
    """
    present = now()
    if until is None:
        return present
    micros = micros_of(until, "until")
    if micros > present:
        problem = f"is {instant(micros)}, later than now, {instant(present)}"
        remedy = "ticks are released once they have ended: leave {until} out, or give a time before"
        raise ParameterError("until", problem, remedy)
    return micros


def check_window(window: int, clock: Clock, name: str = "window") -> None:
    """Refuse a window of more ticks than the clock has: most likely it was meant in seconds."""
    if window <= clock.steps:
        return
    remedy = f"windows are measured in ticks, here of {seconds(clock.tick)}, not in seconds: "
    meant, rest = divmod(window * _SECOND, clock.tick)
    if not rest and meant <= clock.steps:
        remedy += f"for {window} s give {{{name}=}}{meant}"
    else:
        remedy += f"give at most {{{name}=}}{clock.steps}, or a longer {{horizon}}"
    raise ParameterError(name, f"is {window} ticks, but the clock has {clock.steps}", remedy)


def ticks_left(tick: object, start: object) -> int:
    """How many ticks end before the year 10000; as users give them."""
    return (_LAST - micros_of(start, "start")) // duration_of(tick)


def seconds(micros: int) -> str:
    """Microseconds as text, in seconds."""
    whole, part = divmod(abs(micros), _SECOND)
    text = f"{whole}.{part:06}".rstrip("0").rstrip(".")
    return f"{'-' if micros < 0 else ''}{text} s"


def instant(micros: int) -> str:
    """Microseconds since the epoch as ISO 8601 text."""
    if micros == _LAST:
        return "10000-01-01T00:00:00Z"
    return (_EPOCH + micros * _MICROSECOND).isoformat().replace("+00:00", "Z")


def check_keys(keys: object) -> tuple[str, ...]:
    """The public keys as a tuple, in the order given (sets: sorted); of TOTAL its one key.

    Raises:
      ValueError, TypeError: keys are not a collection of distinct texts.
    """
    remedy = 'give all public keys, e.g. keys=["INFO", "ERROR"]'
    if isinstance(keys, Total):
        return (ALL,)
    if getattr(keys, "__name__", "") == "SelectKeys":
        raise TypeError("keys is the class SelectKeys: give keys=SelectKeys(), with brackets")
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence | AbstractSet):
        raise TypeError(f"keys must be a list of texts, got {keys!r}: {remedy}")
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"keys must be texts, got {key!r} of {type(key).__name__}: {remedy}")
    if not keys:
        raise ValueError(f"keys must not be empty: {remedy}")
    # Plain texts: a subclass may compare, or print, unlike what it encodes to.
    texts = [str.__str__(key) for key in keys]
    made = tuple(sorted(texts) if isinstance(keys, AbstractSet) else texts)
    if len(set(made)) < len(made):
        twice = next(key for key in made if made.count(key) > 1)
        raise ValueError(f"keys must be distinct, but {twice!r} is there twice: give it once")
    return made


def countable(most: int, tick: int) -> str:
    """The largest count of a tick, and what it is per second, in words."""
    rate = most * _SECOND / tick
    number = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    return f"up to {most:,} events a tick, {number} a second"
