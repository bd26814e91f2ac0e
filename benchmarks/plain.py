"""The same counts without privacy, which `make bench` compares with, and how pipelines are run.

In a module of its own, not in the program: workers then find the classes by name.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms import environments
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import FixedWindows, GlobalWindow, GlobalWindows
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from benchmarks.timing import cpu

START, TICK = 1_700_000_000, 60  # seconds
_MICROS = 1_000_000
_WINDOW = GlobalWindow()
_PAIR = struct.Struct("<qq")
# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_Window: Any = beam.DoFn.WindowParam
_WindowedValue: Any = beam.DoFn.WindowedValueParam
_created: Any = windowed_value.create  # TimestampedValue would assign the window anew


# Pipelines


def quiet() -> None:
    """Without a state cache, as on production runners, and without warnings."""
    worker_handlers.STATE_CACHE_SIZE_MB = 0
    logging.disable(logging.WARNING)


class Events(beam.DoFn):
    """(key, 0 or 1), in order of time, keys in turns.

    Args:
      elements, keys: how many.
      span: the microseconds over which they are spread, evenly.
    """

    def __init__(self, elements: int, keys: int, span: int) -> None:
        self._elements, self._keys, self._span = elements, keys, span

    def process(self, _: bytes) -> Iterator[Any]:
        elements, keys, span, windows = self._elements, self._keys, self._span, (_WINDOW,)
        names = [f"key-{i:05d}" for i in range(keys)]
        for i in range(elements):
            at = START * _MICROS + i * span // elements
            yield _created((names[i % keys], i & 1), at, windows)


class Sink(beam.DoFn):
    """Looks at every release and lets it go; counts them."""

    seen: ClassVar[int] = 0

    def start_bundle(self) -> None:
        self._seen = 0

    def process(self, release: Any) -> None:
        if release.step < 0:
            raise AssertionError
        self._seen += 1

    def finish_bundle(self) -> None:
        Sink.seen += self._seen


def embedded() -> FnApiRunner:
    """The worker is in this process, and talks to the runner by calls."""
    return FnApiRunner()


def over_grpc() -> FnApiRunner:
    """The worker is a thread that talks to the runner by gRPC, as in production."""
    return FnApiRunner(default_environment=environments.EmbeddedPythonGrpcEnvironment.default())


def seconds(
    elements: int,
    keys: int,
    count: Any,
    runner: Callable[[], Any] = embedded,
    releases: int | None = None,
    ticks: int = 1,
    flags: Sequence[str] = (),
) -> float:
    """CPU time of one pipeline: a source of events over so many ticks, a count, and a sink.

    `releases` is how many there must be; None: one an element. `flags` are the pipeline's.
    """
    pipeline = beam.Pipeline(runner=runner(), options=PipelineOptions(list(flags)))
    source = beam.ParDo(Events(elements, keys, ticks * TICK * _MICROS))
    events = pipeline | beam.Impulse() | source.with_output_types(tuple[str, int])
    _ = events | "Count" >> count | beam.ParDo(Sink())
    expected = Sink.seen + (elements if releases is None else releases)
    before = cpu()
    pipeline.run().wait_until_finish()
    spent = cpu() - before
    if Sink.seen != expected:
        raise AssertionError(f"{count} gave {expected - Sink.seen} releases too few")
    return spent


# After every element


class PlainCell(beam.DoFn):
    """Streaming: a cell of state with a step and a sum."""

    STATE = ReadModifyWriteStateSpec("count", BytesCoder())

    def process(
        self,
        element: tuple[str, int],
        windowed: Any = _WindowedValue,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[dp.Release]:
        key, x = element
        data = cell.read()
        step, total = (0, 0) if data is None else _PAIR.unpack(data)
        step, total = step + 1, total + x
        cell.write(_PAIR.pack(step, total))
        yield dp.Release(key, step, windowed.timestamp_micros, float(total), 0.0)


class Nothing(beam.DoFn):
    """Streaming: a state that is never asked for, and the same releases: what every count pays."""

    STATE = ReadModifyWriteStateSpec("count", BytesCoder())

    def process(
        self,
        element: tuple[str, int],
        windowed: Any = _WindowedValue,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[dp.Release]:
        key, x = element
        yield dp.Release(key, 1, windowed.timestamp_micros, float(x), 0.0)


class WithTime(beam.DoFn):
    """Releases carry their element's time, and a grouping leaves it behind."""

    def process(self, element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        key, x = element
        yield key, (timestamp.micros, x)


class RunningSum(beam.DoFn):
    """Bounded: the sums of a key's elements, in order of time."""

    def process(self, element: Any, window: Any = _Window) -> Iterator[Any]:
        key, steps = element
        windows, ordered = (window,), sorted(steps, key=itemgetter(0))
        totals = accumulate(x for _, x in ordered)
        for step, ((micros, _), total) in enumerate(zip(ordered, totals, strict=True), start=1):
            yield _created(dp.Release(key, step, micros, float(total), 0.0), micros, windows)


class PlainStreaming(beam.PTransform[Any, Any]):
    """The plain counterpart of PrefixCount on the streaming path."""

    def expand(self, events: Any) -> Any:
        return events | beam.ParDo(PlainCell()).with_output_types(dp.Release)


class Identity(beam.PTransform[Any, Any]):
    """No count at all."""

    def expand(self, events: Any) -> Any:
        return events | beam.ParDo(Nothing()).with_output_types(dp.Release)


class PlainBounded(beam.PTransform[Any, Any]):
    """The plain counterpart of PrefixCount on the bounded path."""

    def expand(self, events: Any) -> Any:
        timed = beam.ParDo(WithTime()).with_output_types(tuple[str, tuple[int, int]])
        summed = beam.ParDo(RunningSum()).with_output_types(dp.Release)
        return events | timed | beam.GroupByKey() | summed


# At every tick


def _end_of(window: Any) -> int:
    return int(window.end.micros)


class AtTick(beam.DoFn):
    """(key, sum) of a window to (key, (the window's end, sum)), for a step that knows no window."""

    def process(self, element: tuple[str, int], window: Any = _Window) -> Iterator[Any]:
        key, x = element
        yield key, (_end_of(window), x)


class TickCell(beam.DoFn):
    """Streaming: the sums of ticks, one after the other, in a cell of state."""

    STATE = ReadModifyWriteStateSpec("count", BytesCoder())

    def process(
        self,
        element: tuple[str, tuple[int, int]],
        window: Any = _Window,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[Any]:
        key, (micros, x) = element
        data = cell.read()
        step, total = (0, 0) if data is None else _PAIR.unpack(data)
        step, total = step + 1, total + x
        cell.write(_PAIR.pack(step, total))
        release = dp.Release(key, step, micros, float(total), 0.0)
        yield _created(release, micros, (window,))


class PlainTicks(beam.PTransform[Any, Any]):
    """The plain counterpart of TickCount: fixed windows, their sums, and the sums of these.

    It knows neither keys nor a clock, so that a tick without events has no release.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def expand(self, events: Any) -> Any:
        at_tick = beam.ParDo(AtTick()).with_output_types(tuple[str, tuple[int, int]])
        sums = (
            events
            | beam.WindowInto(FixedWindows(TICK, START % TICK))
            | beam.CombinePerKey(sum).with_output_types(tuple[str, int])
            | at_tick
            | "Whole" >> beam.WindowInto(GlobalWindows())
        )
        if self._path == "streaming":
            return sums | beam.ParDo(TickCell()).with_output_types(dp.Release)
        return sums | beam.GroupByKey() | beam.ParDo(RunningSum()).with_output_types(dp.Release)


def ticks_of(path: str, keys: int, ticks: int, budget: Any) -> dp.TickCount:
    """The private counterpart."""
    names: Sequence[str] = [f"key-{i:05d}" for i in range(keys)]
    clock = dp.Clock(TICK, start=START, ticks=ticks)
    return dp.TickCount(budget, clock, dp.Sum(low=0, high=1, unit=1), keys=names, path=path)
