"""The DoFns that count vectors at the ticks of a clock, and say what metrics make of them.

A sum has a place, (tick - 1) * width + coordinate + 1, so that vectors of few sums travel and wait
as the sums of single ticks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from math import log
from statistics import NormalDist
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.errors import chernoffs
from beam_dpcount.counters.grid import Grid
from beam_dpcount.dofns.intake import RejectedElementError
from beam_dpcount.dofns.parcels import ReadyTicks, TickParcels
from beam_dpcount.dofns.pending_vectors import (
    add_vector,
    clipped,
    moved,
    placed,
    take_vector,
    tick_of,
)
from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.ticks import (
    GATHERED,
    CountAllTicks,
    CountEachTick,
    ReadTicks,
    SumTicks,
    TickIntake,
    origin_of,
    window_from,
)
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.reading import UNREADABLE, Function, call, read
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.states.wire import (
    PAIR,
    after_key,
    epoch_of,
    items_of,
    key_of,
    more_items,
    pack_items,
    pack_keyed,
    pack_sums,
    step_of,
)
from beam_dpcount.statistics.metrics.base import Additions
from beam_dpcount.statistics.metrics.joint import Joint

_NO_NOISE = 1e6  # standard deviations: more than this is less than a step of the lattice
_AT_ONCE = 1 << 12  # ticks that metrics are made of at a time
TOO_SMALL, JUST_SHOWN = "too small", "just shown"
NO_CONTENT = "the value is None, or cannot be read"

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_WindowedValue: Any = beam.DoFn.WindowedValueParam
_placed: Any = windowed_value.create


class AggregateIntake:
    """Makes of a value what it adds to the metrics' sums.

    Where a metric reads a field, `value` makes a mapping. What it makes nothing of adds nothing.

    Args:
      joint: the metrics.
      strict: values that add nothing for that reason are errors.
      value: makes a mapping of a value. A value for which it returns None adds nothing.
    """

    def __init__(self, joint: Joint, strict: bool = False, value: Function | None = None) -> None:
        self._joint, self._strict, self._value = joint, strict, value

    def number(self, key: str, payload: object, micros: int) -> Additions:
        """What a value adds, as `TickIntake` asks for it."""
        content = payload if self._value is None else read(self._value, payload)
        additions = self._added(content)
        if additions is None and self._strict:
            remedy = 'fix the input, or count such elements as nothing with on_reject="drop"'
            raise RejectedElementError(f"{NO_CONTENT}: {remedy}")
        return additions or ()

    def _added(self, content: object) -> Additions | None:
        """What is added; None if the content is not what metrics read, or cannot be read."""
        if content is UNREADABLE or not self._takes(content):
            return None
        additions = read(self._joint.additions, content)
        if additions is UNREADABLE:
            return None
        # Where people are counted, an event that adds nothing itself may be one's first.
        return additions or ((0, 0),) * bool(self._joint.first)

    def _takes(self, content: object) -> bool:
        """Whether a content is what metrics read."""
        if self._joint.needs_mapping:
            return read(isinstance, content, Mapping) is True
        return content is not None or self._value is None

    def examine(self, payload: object) -> tuple[str | None, Additions]:
        """Why a value does not count as it is, and what it adds.

        `value` is called once; if it raises an error, that is a FunctionError.
        """
        content = payload if self._value is None else call("value", self._value, payload)
        problem = self._joint.problem(content) if self._takes(content) else NO_CONTENT
        return problem, self._added(content) or ()


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
        """What makes releases of vectors."""
        plan: Any = self
        how = {"names": plan.names, "numbered": plan.numbered}
        return Reading(plan.counter, self.joint, self.level, plan.clock, **how)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class AggregatePlan(OfVectors, TickPlan):
    """A TickPlan of vectors."""


class Reading:
    """Makes releases of noisy vectors.

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

    def releases(
        self, key: str, first: int, values: FloatArray, stddevs: FloatArray, fresh: int
    ) -> Iterator[TickRelease]:
        """The releases of ticks one after the other.

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
            made = self._joint.measure(
                values[some], stddevs[some], self.multiples(stddevs[some]), self._level
            )
            rows = zip(*(_optional(each) for each in made), strict=True)
            for place, (numbers, errors, lows, highs) in enumerate(rows, start=at):
                notes = ["" if number is not None else TOO_SMALL for number in numbers]
                if place < fresh:
                    lows = highs = [None] * len(notes)
                    notes = [note or JUST_SHOWN for note in notes]
                step = first + place
                restart = self._clock.count_of(step)[0] + 1 if self._numbered else None
                columns = (numbers, errors, lows, highs, notes)
                yield TickRelease(
                    *(key, step, borders[place], borders[place + 1], restart, names),
                    *(dict(zip(names, column, strict=False)) for column in columns),
                )

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


def _optional(numbers: FloatArray) -> list[list[float | None]]:
    """Rows of numbers; None for NaN."""
    rows: list[list[float | None]] = numbers.tolist()
    for place in np.flatnonzero(np.isnan(numbers).any(axis=1)).tolist():
        row = rows[place]
        row[:] = [None if number != number else number for number in row]
    return rows


class ReadVectors(ReadTicks):
    """Streaming: (key, value) to (key, the sums of a tick), one a tick and bundle; as ReadTicks."""

    def __init__(self, intake: TickIntake, width: int) -> None:
        super().__init__(intake)
        self._width = width

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        windows, micros = windowed.windows, windowed.timestamp_micros
        read = self._intake.read(element, micros, windows)
        if read is None:
            return ()
        place = self._intake.origin, read[0], read[1]
        found = self._sums.get(place)
        if found is None:
            found = self._sums[place] = [windows, micros, {}]
        elif micros < found[1]:
            found[1] = micros
        add_all(found[2], read[2])
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        passed_at = self._intake.clock.passed_at
        made = [
            _placed((key, placed(sums, passed_at(origin) + step, self._width)), micros, windows)
            for (origin, key, step), (windows, micros, sums) in self._sums.items()
        ]
        self.start_bundle()
        return made


def add_all(sums: dict[int, int], additions: Any, first: int = 0) -> None:
    for coordinate, x in additions:
        place = first + coordinate
        sums[place] = sums.get(place, 0) + x


class SumVectors(SumTicks):
    """Bounded: (key, value) to (group of keys, sums of one key), as SumTicks."""

    def __init__(self, intake: TickIntake, keys: Sequence[str], alone: bool, width: int) -> None:
        super().__init__(intake, keys, alone)
        self._width = width

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        intake, windows = self._intake, windowed.windows
        read = intake.read(element, windowed.timestamp_micros, windows)
        if read is None:
            return ()
        key, step, additions = read
        _, ticks = self._sums.setdefault(intake.origin, (windows, {}))
        add_all(ticks.setdefault(key, {}), additions, (step - 1) * self._width + 1)
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()


class VectorParcels(TickParcels):
    """Events on their way to their person: the key, the tick and what they add to which sums.

    Args:
      intake, restart: as for TickParcels.
      first: what a person's first event that counts under a key adds beside it.
    """

    asks_first = True

    def __init__(self, intake: TickIntake, first: Additions, restart: Grid | None = None) -> None:
        super().__init__(intake, (), restart)
        self._first = first

    def _packed(self, step: int, epoch: int, key: str, x: Any) -> bytes:
        return pack_keyed(key, pack_items(step, epoch, x))

    def names(self, parcel: bytes) -> Sequence[bytes]:
        if self._restart is None:
            return (key_of(parcel),)
        return (epoch_of(after_key(parcel)) + key_of(parcel),)

    def unwrap_first(self, parcel: bytes, kept: Sequence[int], first: Sequence[bool]) -> list[Any]:
        (is_first,) = first
        key, data = key_of(parcel).decode("utf-8", "surrogatepass"), after_key(parcel)
        return [(key, more_items(data, self._first) if is_first else data)]


class ReadyVectors(ReadyTicks):
    """Reads what VectorParcels made, as TickIntake reads events."""

    def read(self, element: Any, micros: int, windows: Any) -> tuple[str, int, Any]:
        if windows[0] is not self._window:
            self._window, self.origin = windows[0], origin_of(self.clock, windows[0])
        return element[0], step_of(element[1]), items_of(element[1])


class CountEachVector(CountEachTick):
    """Streaming: an TickRelease of each key at each tick, as CountEachTick."""

    _plan: AggregatePlan

    def _tick_of(self, data: bytes) -> int:
        return tick_of(PAIR.unpack_from(data)[0], self._plan.joint.width)

    def _noted(self, memory: bytes, step: int, data: bytes, later: object) -> bytes:
        width = self._plan.joint.width
        if self._tick_of(data) != step:
            data = moved(data, step, width)
        return add_vector(memory, step, data, width, later)

    def _taken(self, memory: bytes, passed: int, step: int, later: Any) -> tuple[Any, bytes, bytes]:
        plan = self._plan
        x, memory = take_vector(memory, passed + step, plan.joint.width, plan.limits, later)
        return x, said_of(step, x), memory

    def _made(self, key: str, step: int, micros: int, value: Any, stddev: float) -> Any:
        (made,) = self._plan.reading.releases(key, step, value[None], np.array([stddev]), 0)
        return made


def said_of(step: int, x: IntArray) -> bytes:
    """What a tick adds to the history of a key."""
    return pack_sums({step: 0}) + x.astype("<i8").tobytes()


class CountAllVectors(CountAllTicks):
    """Bounded, after the grouping: all releases of a group's keys, as CountAllTicks."""

    _plan: AggregatePlan

    def _released(
        self, key: str, origin: int, packed: Iterable[bytes], steps: int
    ) -> Iterator[Any]:
        plan = self._plan
        clock, window = plan.clock, window_from(plan.clock, origin)
        last, windows = window.max_timestamp().micros, (GlobalWindow(),)
        values: Any
        xs = clipped(packed, steps, plan.limits)
        stddevs = np.array(self._stddevs[:steps])
        if self._draws.digest_size:
            values = np.stack(self._replayed(xs, key, window))
        else:
            noise = self._draws.noise(key, window, b"")
            values = plan.counter.release_lattice(xs, noise)
        first = clock.passed_at(origin) + 1
        for made in plan.reading.releases(key, first, values, stddevs, 0):
            yield _placed(made, min(made.timestamp, last), windows)

    def _replayed(self, xs: IntArray, key: str, window: Any) -> list[Any]:
        draws, counter = self._draws, self._plan.counter
        digest, state, values = draws.begin(key, window), counter.init(), []
        for step, x in enumerate(xs, start=1):
            digest = draws.follow(digest, NO_ID, said_of(step, x))
            state, value = counter.step_lattice(state, x, draws.noise(key, window, digest))
            values.append(value)
        return values
