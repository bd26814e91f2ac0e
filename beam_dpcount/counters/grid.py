"""The grid of ticks that a clock computes, and its arithmetic.

Times are integers: microseconds since the epoch, UTC. Nothing here knows of Beam, or of zones.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from beam_dpcount.counters.moments import instant, seconds
from beam_dpcount.mechanisms.base import IntArray

OFF_GRID = (
    "windows of {size} from {offset} do not end on the clock's ticks of {tick} from {start}: give "
    "windows whose size is a multiple of tick, and a start that is a border of a window"
)


class Runs(Sequence[int]):
    """Increasing whole numbers, as runs of equal steps: midnights of a century are 200 runs.

    Args:
      runs: of each the first number, the step, and how many numbers there are.
    """

    def __init__(self, runs: Iterable[tuple[int, int, int]]) -> None:
        self.runs = tuple(runs)
        self._firsts = [first for first, _, _ in self.runs]
        self._before = [0, *accumulate(count for _, _, count in self.runs)]

    @classmethod
    def of(cls, numbers: Iterable[int]) -> Runs:
        """The runs of increasing numbers."""
        if isinstance(numbers, Runs):
            return numbers
        if isinstance(numbers, range):
            return cls([(numbers.start, numbers.step, len(numbers))])
        runs: list[list[int]] = []
        for number in numbers:
            first, step, count = runs[-1] if runs else (0, 0, 0)
            if count == 1:
                runs[-1] = [first, number - first, 2]
            elif count and number == first + step * count:
                runs[-1][2] += 1
            else:
                runs.append([number, 1, 1])
        return cls((first, step, count) for first, step, count in runs)

    def rank(self, x: int) -> int:
        """How many of the numbers are at most x."""
        at = bisect_right(self._firsts, x) - 1
        if at < 0:
            return 0
        first, step, count = self.runs[at]
        return self._before[at] + min((x - first) // step + 1, count)

    def ranks(self, xs: IntArray) -> IntArray:
        """`rank` of many."""
        firsts, steps, counts = np.array(self.runs, dtype=np.int64).T
        at = np.searchsorted(firsts, xs, side="right") - 1
        there = np.minimum((xs - firsts[at]) // steps[at] + 1, counts[at])
        ranks: IntArray = np.where(at < 0, 0, np.array(self._before)[at] + there)
        return ranks

    @property
    def longest(self) -> int:
        """The largest difference between a number and the next."""
        within = [step for _, step, count in self.runs if count > 1]
        lasts = [first + step * (count - 1) for first, step, count in self.runs]
        between = [first - last for first, last in zip(self._firsts[1:], lasts, strict=False)]
        return max(within + between)

    def __len__(self) -> int:
        return self._before[-1]

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError(place)
        at = bisect_right(self._before, place) - 1
        first, step, _ = self.runs[at]
        return first + (place - self._before[at]) * step

    def __iter__(self) -> Iterator[int]:
        for first, step, count in self.runs:
            yield from range(first, first + step * count, step)

    def __contains__(self, x: Any) -> bool:
        rank = self.rank(x)
        return rank > 0 and bool(self[rank - 1] == x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self.runs == other.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    def __reduce__(self) -> Any:
        return type(self), (self.runs,)

    def __repr__(self) -> str:
        return f"Runs({self.runs})"


@dataclass(frozen=True, repr=False)
class Grid:
    """A public grid of ticks: release i, from 1, counts events with origin <= ts < end(origin, i).

    Times are in microseconds. Computed by `Clock`, and all of a clock that workers know. Ticks of a
    Grid are equally long; `UnevenGrid` has others.

    Args:
      tick: its length.
      start, stop: events outside [start, stop) do not count.
      steps: the number of ticks of one count: the horizon of its counter.
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

    def in_windows(self, size: int, offset: int) -> Grid:
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

    def __repr__(self) -> str:
        # Noise is drawn under this text, so that another one would be another noise in replays.
        public = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(Grid))
        return f"Clock({', '.join(public)})"

    def origins(self) -> Sequence[int]:
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

    def place_of(self, tick: int) -> tuple[int, int] | None:
        """The origin of the count that a tick, numbered over all counts, is of, and its number
        there; None if there is no such tick."""
        if not 0 < tick <= self.ticks:
            return None
        counts, step = self.count_of(tick)
        return self.origins()[counts], step

    def count_of(self, tick: int) -> tuple[int, int]:
        """How many counts there are before that of a tick, numbered over all, and its number there.

        The tick is one of the clock's.
        """
        counts, step = divmod(tick - 1, self.steps)
        return counts, step + 1

    def steps_of(self, origin: int) -> int:
        """How many ticks the count from `origin` has: at most `steps`."""
        return self.steps

    def closing(self, origin: int) -> int:
        """When the window of a count ends."""
        return self.end(origin, self.steps_of(origin))

    def borders(self, first: int, many: int) -> Sequence[int]:
        """When so many ticks, the first numbered over all counts, begin, and the last one ends."""
        begin = self._first + (first - 1) * self.tick
        return range(begin, begin + many * self.tick + 1, self.tick)

    def tick_of(self, micros: int) -> int:
        """The tick, numbered over all counts, in which an event falls; 0 if it does not count."""
        if not self.start <= micros < self.stop:
            return 0
        return (micros - self._first) // self.tick + 1

    def ticks_of(self, micros: IntArray) -> IntArray:
        """`tick_of` many events."""
        ticks = (micros - self._first) // self.tick + 1
        return np.where((self.start <= micros) & (micros < self.stop), ticks, 0)

    @cached_property
    def _first(self) -> int:
        first: int = self.origins()[0]
        return first

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
        return micros if self.window is None else min(micros, self.closing(origin) - 1000)

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


@dataclass(frozen=True, repr=False)
class UnevenGrid(Grid):
    """A grid whose ticks, or counts, are not equally long, as local days are not.

    It is data: whoever reads it needs no time zone database, and two databases cannot differ. A
    count of fewer ticks than `steps` ends early, so that its counter is a longer one, stopped.

    Args:
      tick: the longest length of a tick.
      steps: the largest number of ticks of a count.
      window: the longest length of a window; None: there is one count.
      bounds: when ticks begin, those of all counts, and when the last one ends.
      starts: when counts start.
      days: what is uneven, in words.
    """

    _: KW_ONLY
    bounds: Runs
    starts: Runs
    days: str = ""

    def __repr__(self) -> str:
        return f"Clock({self.fingerprint}, stop={self.stop})"  # as for Grid

    @property
    def fingerprint(self) -> str:
        runs = hashlib.sha256(repr((self.bounds.runs, self.starts.runs)).encode()).hexdigest()
        return repr((self.start, self.window is None, self.steps, runs))

    def in_windows(self, size: int, offset: int) -> Grid:
        raise ValueError(
            f"Beam's windows of {seconds(size)} do not follow {self.days}: use the global window, "
            "and a clock that restarts"
        )

    def origins(self) -> Sequence[int]:
        return self.starts

    def passed_at(self, origin: int) -> int:
        return self.bounds.rank(origin) - 1

    def origin_after(self, passed: int) -> int:
        origin: int = self.bounds[passed]
        return origin

    def count_of(self, tick: int) -> tuple[int, int]:
        counts = self.starts.rank(self.bounds[tick - 1]) - 1
        return counts, tick - self.passed_at(self.starts[counts])

    @property
    def ticks(self) -> int:
        return len(self.bounds) - 1

    def steps_of(self, origin: int) -> int:
        return self.passed_at(self.closing(origin)) - self.passed_at(origin)

    def closing(self, origin: int) -> int:
        following = self.starts.rank(origin)
        at: int = self.starts[following] if following < len(self.starts) else self.bounds[-1]
        return at

    def borders(self, first: int, many: int) -> Sequence[int]:
        bounds: Sequence[int] = self.bounds[first - 1 : first + many]
        return bounds

    def tick_of(self, micros: int) -> int:
        return self.bounds.rank(micros) if self.start <= micros < self.stop else 0

    def ticks_of(self, micros: IntArray) -> IntArray:
        inside = (self.start <= micros) & (micros < self.stop)
        return np.where(inside, self.bounds.ranks(micros), 0)

    def ended(self, origin: int, until: int | None) -> int:
        steps = self.steps_of(origin)
        if until is None:
            return steps
        return min(max(self.bounds.rank(until) - 1 - self.passed_at(origin), 0), steps)

    def all_ended(self, until: int | None) -> int:
        return self.ticks if until is None else max(self.bounds.rank(until) - 1, 0)

    def last_end(self, until: int) -> int:
        return self.origin_after(self.all_ended(until))

    def steps_from(self, origin: int, until: int | None = None) -> Callable[[int], int]:
        first, stop, rank = max(self.start, origin), self.stop, self.bounds.rank
        passed, steps, ended = (
            self.passed_at(origin),
            self.steps_of(origin),
            self.ended(origin, until),
        )

        def step_at(micros: int) -> int:
            if not first <= micros < stop:
                return 0
            step = min(rank(micros) - passed, steps)  # see Grid.steps_from
            return 0 if step > ended else step

        return step_at

    def end(self, origin: int, step: int) -> int:
        return self.origin_after(self.passed_at(origin) + step)

    def describe(self) -> Mapping[str, str]:
        described, uneven = super().describe(), len(self.bounds.runs) > 1
        window = "global" if self.window is None else f"up to {self.steps} ticks"
        return {
            **described,
            "tick": self.days if uneven else described["tick"],
            "window": window if uneven else f"{window}, {self.days}",
        }


def grid_of(start: int, stop: int, bounds: Iterable[int], starts: Iterable[int], days: str) -> Grid:
    """The grid of these ticks and counts: a plain one if all of them are equally long.

    Args:
      start, stop: events outside [start, stop) do not count.
      bounds: when ticks begin, and the last one ends.
      starts: when counts start; each of them is in `bounds`.
      days: what may be uneven, in words.

    Raises:
      ValueError: counts start anew within a millisecond.
    """
    ticks, counts = Runs.of(bounds), Runs.of(starts)
    borders = [*counts, ticks[-1]]
    ranks = [ticks.rank(at) for at in borders]
    steps = max(after - before for before, after in pairwise(ranks))
    lengths = {after - before for before, after in pairwise(borders)}
    window = None if len(counts) == 1 else max(lengths)
    if window is not None and any(at % 1000 for at in borders):
        raise ValueError(
            f"counts that start anew from {instant(start)} on are cut to milliseconds when Beam "
            "encodes their windows: give a start of whole milliseconds"
        )
    if len(ticks.runs) == 1 and len(lengths) == 1:
        plain = Grid(ticks.longest, start, stop, steps)
        return plain if window is None else plain.in_windows(window, start)
    return UnevenGrid(
        *(ticks.longest, start, stop, steps, window), bounds=ticks, starts=counts, days=days
    )
