"""`make bench`: one table of ratios, each measured within this run. Figures, not a test.

Whole pipelines on the local FnApiRunner, source and sink included, best of three, against the
same pipeline without privacy; the local runner's state cache is off in both, as on production
runners. Then microseconds a step of the vectorised release, and of the scalar step by horizon.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

import beam_dpcount as dp
from beam_dpcount.noise.entropy import SystemNoise

BUDGET = dp.ApproxDP(1.0, 1e-6)
HORIZON = 200_000


def generate(elements: int, keys: int) -> Callable[[bytes], Iterator[tuple[str, int]]]:
    names = [f"key-{i:05d}" for i in range(keys)]

    def events(_: bytes) -> Iterator[tuple[str, int]]:
        for i in range(elements):
            yield names[i % keys], i & 1

    return events


class WithTime(beam.DoFn):
    """Releases carry their element's time, so the plain counterpart must as well."""

    def process(self, element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        key, x = element
        yield key, (timestamp.micros, x)


class CumulativeSum(beam.DoFn):
    """The plain counterpart of the bounded path: the same tuples, in order of time."""

    def process(self, element: Any) -> Iterator[dp.Release]:
        key, steps = element
        ordered = sorted(steps, key=itemgetter(0))
        totals = accumulate(x for _, x in ordered)
        for step, ((micros, _), total) in enumerate(zip(ordered, totals, strict=True), start=1):
            yield dp.Release(key, step, micros, float(total), 0.0)


class TimelessSum(beam.DoFn):
    """Less than the same tuples: neither time nor order; a floor under any grouped count."""

    def process(self, element: Any) -> Iterator[dp.Release]:
        key, values = element
        for step, total in enumerate(accumulate(values), start=1):
            yield dp.Release(key, step, 0, float(total), 0.0)


class PlainCount(beam.DoFn):
    """The plain counterpart of the streaming path: as many bytes of state, no privacy."""

    STATE = ReadModifyWriteStateSpec("count", BytesCoder())

    def __init__(self, state_bytes: int) -> None:
        self._padding = bytes(state_bytes - 16)

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[dp.Release]:
        key, x = element
        data = cell.read() or bytes(16)
        step = int.from_bytes(data[:8], "little") + 1
        total = int.from_bytes(data[8:16], "little") + x
        cell.write(step.to_bytes(8, "little") + total.to_bytes(8, "little") + self._padding)
        yield dp.Release(key, step, timestamp.micros, float(total), 0.0)


class Sink(beam.DoFn):
    """Looks at every release and lets it go."""

    def process(self, release: dp.Release) -> None:
        if release.step < 0:
            raise AssertionError


def seconds(elements: int, keys: int, *steps: Any) -> float:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    typed = beam.FlatMap(generate(elements, keys)).with_output_types(tuple[str, int])
    events = pipeline | beam.Impulse() | "Source" >> typed
    for i, step in enumerate(steps):
        events = events | f"Step{i}" >> step
    _ = events | "Sink" >> beam.ParDo(Sink())
    start = time.perf_counter()
    pipeline.run().wait_until_finish()
    return time.perf_counter() - start


def compare(elements: int, keys: int, private: list[Any], plain: list[Any]) -> tuple[float, float]:
    """Best of three of each, taken in turns."""
    ours, theirs = [], []
    for _ in range(3):
        ours.append(seconds(elements, keys, *private))
        theirs.append(seconds(elements, keys, *plain))
    return min(ours), min(theirs)


def report(label: str, elements: int, keys: int, ours: float, theirs: float) -> None:
    print(
        f"{label:<12}{keys:>8,}{ours / elements * 1e6:>12.2f}{theirs / elements * 1e6:>12.2f}"
        f"{ours / theirs:>9.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=200_000)
    parser.add_argument("--keys", type=int, nargs="*", default=[1, 100, 10_000])
    parser.add_argument("--mechanisms", action="store_true", help="no pipelines")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    worker_handlers.STATE_CACHE_SIZE_MB = 0
    n = options.elements
    if options.mechanisms:
        bulk_times()
        step_times()
        return

    counter = dp.PrefixCount(BUDGET, HORIZON).counter
    print(f"{counter.mechanism.name}, {BUDGET}, horizon {HORIZON:,}, {n:,} elements")
    print(f"{'path':<12}{'keys':>8}{'us/element':>12}{'plain':>12}{'ratio':>9}")
    for keys in options.keys:
        bounded = dp.PrefixCount(BUDGET, HORIZON, path="bounded")
        timed = beam.ParDo(WithTime()).with_output_types(tuple[str, tuple[int, int]])
        plain = [timed, beam.GroupByKey(), beam.ParDo(CumulativeSum())]
        report("bounded", n, keys, *compare(n, keys, [bounded], plain))
        plain = [beam.GroupByKey(), beam.ParDo(TimelessSum())]
        report(" (no times)", n, keys, *compare(n, keys, [bounded], plain))
    state_bytes = 8 * counter.state_size + 12  # type: ignore[attr-defined]
    for keys in options.keys:
        streaming = dp.PrefixCount(BUDGET, HORIZON, path="streaming")
        plain = [beam.ParDo(PlainCount(state_bytes))]
        report("streaming", n, keys, *compare(n, keys, [streaming], plain))

    bulk_times()
    step_times()


def bulk_times() -> None:
    print(f"\n{'mechanism':<16}{'us/step, release of 2^20':>26}{'construction, ms':>18}")
    xs = np.ones(2**20, dtype=np.int64)
    for kind in dp.mechanisms.ALL:
        if kind in (dp.mechanisms.SquareRoot, dp.mechanisms.Binned):
            continue  # work of order T^2; horizons up to 2^14
        start = time.perf_counter()
        member = dp.calibrate(kind(2**20), BUDGET)
        member.max_variance()
        made = time.perf_counter() - start
        times = []
        for _ in range(3):
            start = time.perf_counter()
            member.release(xs)
            times.append(time.perf_counter() - start)
        print(f"{member.mechanism.name:<16}{min(times) / 2**20 * 1e6:>26.3f}{made * 1e3:>18.1f}")


def step_times() -> None:
    """Of single steps, calibrated and with noise, over the first 1000 to 20,000 of a stream."""
    horizons = (2**10, 2**16, 2**22)
    print("\nus/step, one by one, and numbers of state")
    print(f"{'mechanism':<16}" + "".join(f"{f'T = {T:,}':>20}" for T in horizons))
    for kind in dp.mechanisms.ALL:
        cells = []
        for T in horizons:
            try:
                member = dp.calibrate(kind(T), BUDGET)
            except ValueError:  # a horizon beyond the mechanism's reach
                cells.append("-")
                continue
            steps = min(T, 1000 if kind is dp.mechanisms.SquareRoot else 20_000)
            best = math.inf
            for _ in range(3):
                state, noise = member.init(), SystemNoise(member.law)
                start = time.perf_counter()
                for _ in range(steps):
                    state, _ = member.step(state, 1, noise)
                best = min(best, (time.perf_counter() - start) / steps)
            cells.append(f"{best * 1e6:.2f} us {member.state_size:>9,}")
        print(f"{kind.__name__:<16}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
