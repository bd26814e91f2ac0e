"""The plan of vectors at the ticks of a clock, and what metrics say of all ticks of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from math import log
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from beam_dpcount.counters.counter import Counter, LatticeCounter
from beam_dpcount.counters.errors import chernoffs, half_width_of_draws
from beam_dpcount.counters.grid import Grid
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.entropy import Draws
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.states.wire import pack_sums
from beam_dpcount.statistics.metrics.joint import Joint

_NO_NOISE = 1e6  # standard deviations: more than this is less than a step of the lattice
_AT_ONCE = 1 << 12  # ticks that metrics are made of at a time
TOO_SMALL, JUST_SHOWN = "too small", "just shown"


class TickRow(NamedTuple):
    """What is released of a key at a tick: the fields of a TickRelease, without Beam's coder."""

    key: str
    step: int
    start: int
    timestamp: int
    restart: int | None
    names: Sequence[str]
    values: Mapping[str, float | None]
    stddevs: Mapping[str, float | None]
    lows: Mapping[str, float | None]
    highs: Mapping[str, float | None]
    notes: Mapping[str, str]


@dataclass(frozen=True)
class OfVectors:
    """What is added to a plan, which has a counter and a clock, where vectors are counted.

    Args:
      joint: the metrics, whose sums the counter counts.
      caps: a tick's sums are clipped to +-these.
      level: of confidence intervals.
    """

    _: KW_ONLY
    joint: Joint
    caps: tuple[int, ...]
    level: float

    @cached_property
    def limits(self) -> IntArray:
        """`caps` as an array."""
        return np.array(self.caps, dtype=np.int64)

    @cached_property
    def reading(self) -> Reading:
        """What makes rows of vectors."""
        plan: Any = self
        how = {"names": plan.names, "numbered": plan.numbered}
        return Reading(plan.counter, self.joint, self.level, plan.clock, **how)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class AggregatePlan(OfVectors, TickPlan):
    """A TickPlan of vectors."""

    def history_of(self, step: int, x: IntArray) -> bytes:
        return said_of(step, x)


class Reading:
    """Makes rows of noisy vectors.

    Args:
      counter: of the vectors, or of one of their coordinates.
      joint: the metrics.
      level: of confidence intervals.
      clock: the ticks.
      names: the columns, if not those of the metrics. Columns of metrics beyond are not released.
      numbered: as for TickPlan.
    """

    def __init__(
        self,
        counter: Counter,
        joint: Joint,
        level: float,
        clock: Grid,
        names: Sequence[str] | None = None,
        numbered: bool = False,
    ) -> None:
        self._counter, self._joint, self._level, self._clock = counter, joint, level, clock
        self._names, self._numbered = list(joint.columns if names is None else names), numbered

    def rows(
        self, key: str, first: int, values: FloatArray, stddevs: FloatArray, fresh: int
    ) -> Iterator[TickRow]:
        """What is released of ticks one after the other.

        Args:
          key: whose they are.
          first: the first tick, numbered over the whole clock.
          values: noisy sums, shape (n, width).
          stddevs: of their noise, shape (n,).
          fresh: how many of them come just after the key was shown.
        """
        borders, names = self._clock.borders(first, len(values)), self._names
        for at in range(0, len(values), _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            errors = self.multiples(stddevs[some]), self.of_one(stddevs[some])
            made = self._joint.measure(values[some], stddevs[some], *errors, self._level)
            rows = zip(*(_optional(each) for each in made), strict=True)
            for place, (numbers, errors, lows, highs) in enumerate(rows, start=at):
                notes = ["" if number is not None else TOO_SMALL for number in numbers]
                if place < fresh:
                    lows = highs = [None] * len(notes)
                    notes = [note or JUST_SHOWN for note in notes]
                step = first + place
                restart = self._clock.count_of(step)[0] + 1 if self._numbered else None
                columns = (numbers, errors, lows, highs, notes)
                yield TickRow(
                    *(key, step, borders[place], borders[place + 1], restart, names),
                    *(dict(zip(names, column, strict=False)) for column in columns),
                )

    def half_width(self, stddev: float) -> float:
        """Half of the interval of one number with noise of this standard deviation."""
        return stddev * float(self.of_one(np.array([stddev]))(self._level)[0])

    def multiples(self, stddevs: FloatArray) -> Callable[[float], FloatArray]:
        """As for `Errors`: exact for normal noise; of Laplace noise by Chernoff's bound, which
        holds for sums of any draws, and is the wider the fewer there are."""
        law, grid = self._counter.law, self._counter.grid
        safe = np.where(stddevs > 0, stddevs, 1.0)

        def multiples(level: float) -> FloatArray:
            if isinstance(law, DiscreteLaplace):
                norms2 = np.square(safe / grid) / (law.variance or 1.0)
                bounds = chernoffs(law, norms2, log(2 / (1 - level))) * grid
            else:
                bounds = NormalDist().inv_cdf((1 + level) / 2) * safe + grid / 2
            return np.minimum(bounds / safe, _NO_NOISE)

        return multiples

    def of_one(self, stddevs: FloatArray) -> Callable[[float], FloatArray]:
        """As for `Errors`: from the exact law of so many draws where each has the weight 1."""
        counter, most = self._counter, self.multiples(stddevs)
        one = counter.law.variance * counter.grid**2
        if not isinstance(counter.law, DiscreteLaplace) or not one:
            return most
        draws = np.square(stddevs) / one
        many, places = np.unique(np.round(draws), return_inverse=True)

        def of_one(level: float) -> FloatArray:
            halves = [half_width_of_draws(counter, int(n), level) for n in many.tolist()]
            if None in halves or not np.allclose(draws, np.round(draws), rtol=1e-9):
                return most(level)
            exact = np.array(halves, dtype=np.float64)[places]
            return np.divide(exact, stddevs, out=np.zeros_like(stddevs), where=stddevs > 0)

        return of_one


def _optional(numbers: FloatArray) -> list[list[float | None]]:
    """Rows of numbers; None for NaN."""
    rows: list[list[float | None]] = numbers.tolist()
    for place in np.flatnonzero(np.isnan(numbers).any(axis=1)).tolist():
        row = rows[place]
        row[:] = [None if number != number else number for number in row]
    return rows


def said_of(step: int, x: IntArray) -> bytes:
    """What a tick adds to the history of a key."""
    return pack_sums({step: 0}) + x.astype("<i8").tobytes()


def vectors_of(
    counter: LatticeCounter, draws: Draws, key: str, window: object, xs: IntArray
) -> FloatArray:
    """As `all_ticks.values_of`, of vectors: what each tick counts has shape (ticks, width)."""
    if not draws.digest_size:
        whole: FloatArray = counter.release_lattice(xs, draws.noise(key, window, b""))
        return whole
    digest, state, values = draws.begin(key, window), counter.init(), []
    for step, x in enumerate(xs, start=1):
        digest = draws.follow(digest, NO_ID, said_of(step, x))
        state, value = counter.step_lattice(state, x, draws.noise(key, window, digest))
        values.append(value)
    return np.stack(values)
