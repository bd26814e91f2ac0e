"""`make scale`: what keys that nobody listed cost, at sizes up to a million. Figures, no test.

Keys have min(U^(-1/1.3), 5000) events, three of four no more than two, at ticks at random.
Bounded: a TickCount with SelectKeys, beside a GroupByKey of the same events, and beside the noise
of the keys that are tested, drawn and nothing else. Streaming: its shards, beside those of a
TickCount with listed keys. Whole pipelines on the local FnApiRunner, its state cache off, each in
a process of its own, by CPU time; events are made up inside a DoFn.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.states.all_shards import SIDE_BY_SIDE
from benchmarks.plain import Sink, WithTime
from benchmarks.timing import peak

BUDGET = dp.ApproxDP(1.0, 1e-6)
LARGE = dp.ZCDP(1e6)  # its thresholds are so low that a key is shown by its second event
_SECOND = 1_000_000
_BEYOND = 1.3  # a key has n events or more with probability n^-1.3
_MOST = 5000
_WINDOW = GlobalWindow()


class Cost(NamedTuple):
    """Seconds of CPU time, and the largest resident memory, in MB."""

    seconds: float
    memory: float


def events_of(keys: int, seed: int = 5) -> IntArray:
    """How many events each key has."""
    uniform = 1 - np.random.default_rng(seed).random(keys)
    return np.minimum((uniform ** (-1 / _BEYOND)).astype(np.int64), _MOST)


class Sizes(beam.DoFn):
    """Looks at everything in a group."""

    def process(self, group: Any) -> Iterator[dp.Release]:
        yield dp.Release(group[0], len([*group[1]]), 0, 0.0, 0.0)


class Events(beam.DoFn):
    """All events, as (key, tick), at their times, in no order."""

    def __init__(self, keys: int, ticks: int) -> None:
        self._keys, self._ticks = keys, ticks

    def process(self, _: bytes) -> Iterator[Any]:
        rng = np.random.default_rng(6)
        places = rng.permutation(np.repeat(np.arange(self._keys), events_of(self._keys)))
        ticks = rng.integers(0, self._ticks, len(places))
        for first in range(0, len(places), _MOST):
            some = slice(first, first + _MOST)
            for place, tick in zip(places[some].tolist(), ticks[some].tolist(), strict=True):
                element = f"key-{place}", tick
                yield windowed_value.create(element, tick * _SECOND, (_WINDOW,))


class Grouped(beam.PTransform[Any, Any]):
    """The least that any count at ticks has to do: events with their times, by key."""

    def __init__(self, timed: bool) -> None:
        super().__init__()
        self._timed = timed

    def expand(self, events: Any) -> Any:
        if self._timed:
            with_time = beam.ParDo(WithTime())
            events = events | with_time.with_output_types(tuple[str, tuple[int, int]])
        return events | beam.GroupByKey() | beam.ParDo(Sizes())


def count_of(ticks: int, path: str, keys: Any, budget: Any = BUDGET) -> dp.TickCount:
    """Events at ticks of a second."""
    return dp.TickCount(budget, dp.Clock(1, start=0, ticks=ticks), keys=keys, path=path)


def _grouped(keys: int, ticks: int, at_least: int) -> Any:
    return Grouped(timed=False)


def _timed(keys: int, ticks: int, at_least: int) -> Any:
    return Grouped(timed=True)


def _bounded(keys: int, ticks: int, at_least: int) -> Any:
    return count_of(ticks, "bounded", dp.SelectKeys(at_least=at_least))


def _shards(keys: int, ticks: int, at_least: int) -> Any:
    return count_of(ticks, "streaming", dp.SelectKeys(at_least=at_least))


def _listed(keys: int, ticks: int, at_least: int) -> Any:
    return count_of(ticks, "streaming", [f"key-{place}" for place in range(keys)])


def _all_shown(keys: int, ticks: int, at_least: int) -> Any:
    return count_of(ticks, "streaming", dp.SelectKeys(delta=1e-6), LARGE)


PIPELINES: dict[str, Callable[[int, int, int], Any]] = {
    "grouped": _grouped,
    "timed": _timed,
    "bounded": _bounded,
    "shards": _shards,
    "listed": _listed,
    "all_shown": _all_shown,
}


def run(way: str, keys: int, ticks: int, at_least: int) -> Cost:
    """One pipeline, or "noise": the draws alone."""
    if way == "noise":
        return draw(keys, ticks, at_least)
    worker_handlers.STATE_CACHE_SIZE_MB = 0
    pipeline = beam.Pipeline(runner=FnApiRunner())
    source = beam.ParDo(Events(keys, ticks)).with_output_types(tuple[str, int])
    found = pipeline | beam.Impulse() | source | PIPELINES[way](keys, ticks, at_least)
    _ = found | beam.ParDo(Sink())
    before = time.process_time()
    pipeline.run().wait_until_finish()
    return Cost(time.process_time() - before, peak())


def draw(keys: int, ticks: int, at_least: int) -> Cost:
    """The noise of all ticks of the keys with so many events, drawn as the bounded path does."""
    law = count_of(ticks, "bounded", dp.SelectKeys()).counter.law
    tested = int(np.count_nonzero(events_of(keys) >= at_least))
    law.sample(1)  # makes its tables
    before = time.process_time()
    for first in range(0, tested, SIDE_BY_SIDE):
        for _ in range(ticks):
            law.sample(min(SIDE_BY_SIDE, tested - first))
    return Cost(time.process_time() - before, peak())


def measure(way: str, keys: int, ticks: int, at_least: int) -> Cost:
    """`run`, in a process of its own."""
    numbers = ["--keys", str(keys), "--ticks", str(ticks), "--at-least", str(at_least)]
    command = [sys.executable, "-m", "benchmarks.keys", "--way", way, *numbers]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Cost(*map(float, said.split()))


BOUNDED = ("grouped", "timed", "noise", "bounded")


def compare(keys: int, ticks: int, at_least: int, rounds: int) -> dict[str, Cost]:
    """The least cost of each way; they take turns."""
    turns = [{way: measure(way, keys, ticks, at_least) for way in BOUNDED} for _ in range(rounds)]
    return {way: min(turn[way] for turn in turns) for way in BOUNDED}


def show_bounded(sizes: Sequence[tuple[int, int]], at_least: int, rounds: int) -> None:
    """A table of the bounded path, a row a (keys, ticks)."""
    print(
        "\n| keys | ticks | tested | noise, s | GroupByKey, s | MB | with times, s | MB |", end=""
    )
    print(" SelectKeys, s | MB | net of GroupByKey / noise | net of times too |")
    print("|" + "---|" * 12)
    net = list[float]()
    for keys, ticks in sizes:
        found = compare(keys, ticks, at_least, rounds)
        tested = int(np.count_nonzero(events_of(keys) >= at_least))
        noise, ours = found["noise"].seconds, found["bounded"].seconds
        cells = [f"{keys:,}", f"{ticks:,}", f"{tested:,}", f"{noise:.2f}"]
        for way in ("grouped", "timed", "bounded"):
            cells += [f"{found[way].seconds:.1f}", f"{found[way].memory:,.0f}"]
        for way in ("grouped", "timed"):
            cells.append(f"{(ours - found[way].seconds) / noise:.2f}")
        print(f"| {' | '.join(cells)} |", flush=True)
        net.append(ours)
    print(f"\nSelectKeys grows by these powers of the size, row by row: {slopes(sizes, net)}.")


def slopes(sizes: Sequence[tuple[int, int]], net: Sequence[float]) -> str:
    """By which power of the size costs grow from one row to the next."""
    found = []
    for i in range(1, len(sizes)):
        more = math.prod(sizes[i]) / math.prod(sizes[i - 1])
        found.append(f"{math.log(max(net[i], 1e-9) / max(net[i - 1], 1e-9)) / math.log(more):.2f}")
    return ", ".join(found) or "none"


STREAMING = (
    ("listed", 1000, "listed keys, in a shard"),
    ("all_shown", 1000, "shards, keys shown by their second event"),
    ("shards", 1000, "shards"),
    ("shards", 20_000, "shards"),
)


def show_streaming(ticks: int) -> None:
    """The table of the streaming path."""
    print("\n| streaming | keys | ticks | CPU, s | us a key-tick | ratio | MB |")
    print("|---|---|---|---|---|---|---|")
    listed = None
    for way, keys, said in STREAMING:
        cost = measure(way, keys, ticks, 1)
        each = cost.seconds / keys / ticks * 1e6
        listed = each if listed is None else listed
        cells = f"{cost.seconds:.1f} | {each:.1f} | {each / listed:.3f} | {cost.memory:,.0f}"
        print(f"| {said} | {keys:,} | {ticks:,} | {cells} |", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keys", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000, help="the most of them")
    parser.add_argument("--ticks", type=int, default=1000)
    parser.add_argument("--at-least", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1, help="of which the best counts, bounded")
    parser.add_argument("--way", choices=[*PIPELINES, "noise"], help="one: CPU seconds, and MB")
    options = parser.parse_args(argv)
    keys, ticks, at_least = options.keys, options.ticks, options.at_least
    if options.way is not None:
        print(*run(options.way, keys, ticks, at_least))
        return 0
    show_bounded([(keys // n, ticks) for n in (100, 10, 1)], at_least, options.rounds)
    sizes = [(keys // 10, n) for n in (ticks // 10, ticks, 10 * ticks)]
    show_bounded(sizes, at_least, options.rounds)
    show_streaming(50)
    return 0


if __name__ == "__main__":
    sys.exit(main())
