"""`make scale`: what it costs to bound people, beside the same work without it. Figures, no test.

Bounded: a TickCount with `users`, beside a GroupByKey of the same elements, as (person, bytes) of
the same size, and beside the count of events, unbounded. Whole pipelines on the local FnApiRunner,
each in a process of its own, in turns; people are made up inside a DoFn, so that nothing holds
them. Streaming: the DoFns themselves, without an engine, their states in a dict as bytes, as
benchmarks/soak.py has them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.dofns.ticks import CountEachTick, ReadTicks
from beam_dpcount.dofns.users import BoundArriving, SendToPeople
from benchmarks.jobs import dofns_of
from benchmarks.soak import Cell

WAYS = ("grouped", "bounded", "events")
KEYS = [f"key-{i}" for i in range(20)]
TICKS, TICK = 1000, 3600  # seconds
PARCEL = 36  # bytes in which an event travels to its person
_SPAN = TICKS * TICK * 1_000_000
_GLOBAL = (GlobalWindow(),)


def number_of(events: int, person: int, skewed: bool) -> int:
    """How many of the events are of a person: one, or `events` / 4 of the first, / 8 of the next ..

    Those that are left have one each.
    """
    return max(events >> (person + 2), 1) if skewed and person < 40 else 1


def stream(events: int, skewed: bool) -> Iterator[tuple[int, int]]:
    """(person, time in microseconds) of each event; the times are not in order."""
    person = made = 0
    while made < events:
        for _ in range(min(number_of(events, person, skewed), events - made)):
            yield person, made * 7_919_000_003 % _SPAN
            made += 1
        person += 1


class Events(beam.DoFn):
    """The events, as (key, person), at their times."""

    def __init__(self, events: int, skewed: bool) -> None:
        self._events, self._skewed = events, skewed

    def process(self, _: bytes) -> Iterator[Any]:
        for n, (person, micros) in enumerate(stream(self._events, self._skewed)):
            element = KEYS[n % len(KEYS)], f"person-{person}"
            yield windowed_value.create(element, micros, _GLOBAL)


class Sizes(beam.DoFn):
    """Looks at everything in a group."""

    def process(self, group: Any) -> Iterator[int]:
        yield sum(map(len, group[1]))


def count_of(k: int | None, path: str, keys: int | None = None) -> dp.TickCount:
    """The count of events, with at most k of a person, in all keys together; None: of all."""
    users = None if k is None else dp.Users(str, events=k, keys=keys, per_key=k)
    return dp.TickCount(
        *(dp.ApproxDP(1.0, 1e-6), TICK, 0),
        horizon=TICKS,
        keys=KEYS,
        value=_one,
        users=users,
        path=path,
    )


def _one(_: str) -> int:
    return 1


def run_bounded(way: str, events: int, skewed: bool, k: int) -> None:
    """One pipeline; prints seconds of CPU time and the largest resident memory, in MB."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    source = beam.ParDo(Events(events, skewed)).with_output_types(tuple[str, str])
    elements = pipeline | beam.Impulse() | "Events" >> source
    if way == "grouped":
        parcel = bytes(PARCEL)
        pairs = beam.Map(lambda element: (element[1], parcel)).with_output_types(tuple[str, bytes])
        _ = elements | pairs | beam.GroupByKey() | beam.ParDo(Sizes())
    else:
        _ = elements | count_of(k if way == "bounded" else None, "bounded")
    before = time.process_time()
    pipeline.run().wait_until_finish()
    print(time.process_time() - before, peak())


def peak() -> float:
    """The largest resident memory of this process so far, in MB."""
    # Not ru_maxrss, in which a child has its parent's, too.
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1.024e-3 for line in file if line.startswith("VmHWM"))


def measure(way: str, events: int, skewed: bool, k: int) -> tuple[float, float]:
    """(seconds of CPU time, MB) of `run_bounded`, in a process of its own."""
    words = [*("--way", way, "--events", str(events), "--k", str(k)), *["--skewed"] * skewed]
    command = [sys.executable, "-m", "benchmarks.people", *words]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, memory = map(float, said.split())
    return seconds, memory


def compare(
    events: int, skewed: bool, k: int, rounds: int
) -> dict[str, tuple[float, float]]:
    """The least CPU time of each way, and its memory; the ways take turns."""
    found = [{way: measure(way, events, skewed, k) for way in WAYS} for _ in range(rounds)]
    return {way: min(one[way] for one in found) for way in WAYS}


def show_bounded(events: int, k: int, rounds: int) -> None:
    """A table of both kinds of streams."""
    for skewed in (False, True):
        found = compare(events, skewed, k, rounds)
        base = found["grouped"][0]
        for way, (seconds, memory) in found.items():
            each = seconds / events * 1e6
            kind = "skewed" if skewed else "one each"
            print(f"| {events:,} | {kind} | {way} | {each:.1f} | {seconds / base:.2f} | {memory:,.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.people", description=__doc__)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--skewed", action="store_true")
    options = parser.parse_args()
    if options.way:
        run_bounded(options.way, options.events, options.skewed, options.k)
    else:
        show_bounded(options.events, options.k, 2)
