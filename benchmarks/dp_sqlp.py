"""Keys that nobody listed, of ten million people, as a closed system's authors tried theirs.

The benchmark is that of *Differentially Private Stream Processing at Scale*, section 5.1. Each
person has min(Z, 32) events, Z of a ZipfMandelbrot(10^5, 26, 6.738); each has a key of a
ZipfMandelbrot(10^6, 1000, 1.4), and one of the ticks at random. Epsilon is 6, delta 1e-9, for all
events of any one person. The truth counts all events; ours at most one of a person in a key, so
that what is left out is a part of its errors, as are keys that stay hidden, which count as 0.
Beside it stands what an open replica of that system gives, which is not run here.

Data are drawn by NumPy from a seed; noise is the library's own, from the operating system.
`--scale 10` has a tenth of the people, and as many keys. Its figures compare with each other, from
arrays and from a pipeline, but not with those of the full size.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.counters.columns import Sums, all_ticks
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.entropy import SystemEntropy
from beam_dpcount.states.all_shards import SIDE_BY_SIDE
from benchmarks.timing import peak

PEOPLE, KEYS, MOST = 10_000_000, 1_000_000, 32
BUDGET = dp.ApproxDP(6.0, 1e-9)
TICKS = (100, 1000)
_PARTED = 100_000  # people whose events are drawn together
_SECOND = 1_000_000
_WINDOW = GlobalWindow()


class Figures(NamedTuple):
    """What is left of the truth at the last tick; errors are over all keys."""

    shown: int
    largest: float
    l1: float
    l2: float

    def __str__(self) -> str:
        l1 = f"{self.l1 / 1e6:.2f}M" if self.l1 >= 1e6 else f"{self.l1:,.0f}"
        return f"{self.shown:,} | {self.largest:,.0f} | {l1} | {self.l2:,.0f}"


REPLICA = {
    100: Figures(32_146, 1_094, 16.9e6, 44_538),
    1000: Figures(24_407, 1_611, 19.7e6, 59_033),
}


class Events(NamedTuple):
    """Some people's events: arrays of one length, from 0 but for ticks."""

    people: IntArray
    keys: IntArray
    ticks: IntArray


def _zipf_mandelbrot(n: int, q: float, s: float) -> FloatArray:
    """Its cumulative distribution."""
    totals = np.cumsum((np.arange(1, n + 1) + q) ** -s)
    return np.asarray(totals / totals[-1])


class Data(NamedTuple):
    """What is drawn: keys of a smaller domain have the law of the large one, compressed."""

    people: int
    ticks: int
    keys: int = KEYS
    seed: int = 1

    def events(self) -> Iterator[Events]:
        """The events of all people, some people at a time."""
        numbers = _zipf_mandelbrot(100_000, 26, 6.738)
        keys = _zipf_mandelbrot(self.keys, 1000 * self.keys / KEYS, 1.4)
        for first in range(0, self.people, _PARTED):
            rng = np.random.default_rng([self.seed, first])
            people = np.arange(first, min(first + _PARTED, self.people))
            each = np.minimum(1 + np.searchsorted(numbers, rng.random(len(people))), MOST)
            n = int(each.sum())
            places = np.searchsorted(keys, rng.random(n))
            yield Events(np.repeat(people, each), places, rng.integers(1, self.ticks + 1, n))


def first_of_each(events: Events, keys: int) -> Events:
    """The first event of each person in each key."""
    pairs = events.people * keys + events.keys
    order = np.lexsort((events.ticks, pairs))
    _, first = np.unique(pairs[order], return_index=True)
    kept = order[first]
    return Events(*(array[kept] for array in events))


def count_of(ticks: int, **options: Any) -> dp.TickCount:
    """At most 32 events of a person, and one in a key; ticks of a second."""
    clock, users = dp.Clock(1, start=0, ticks=ticks), dp.Users(_person, MOST, per_key=1)
    return dp.TickCount(BUDGET, clock, keys=dp.SelectKeys(), users=users, path="bounded", **options)


def _person(value: str) -> str:
    return value


def figures(truth: IntArray, last: FloatArray) -> Figures:
    """Of the last releases, NaN where there is none."""
    shown = ~np.isnan(last)
    errors = np.where(shown, last, 0.0) - truth
    largest, l1 = float(np.abs(errors).max()), float(np.abs(errors).sum())
    return Figures(int(shown.sum()), largest, l1, math.sqrt(float(errors @ errors)))


def bulk(data: Data) -> tuple[Figures, float]:
    """All of it in arrays: figures, and seconds of CPU time, without those of drawing data."""
    truth, parts = np.zeros(data.keys, dtype=np.int64), []
    for events in data.events():
        truth += np.bincount(events.keys, minlength=data.keys)
        kept = first_of_each(events, data.keys)
        parts.append((kept.keys * data.ticks + kept.ticks - 1).astype(np.uint32))
    counts = np.concatenate(parts)
    del parts
    before = time.process_time()
    counts.sort()
    last = side_by_side(count_of(data.ticks).selection, counts, data)
    return figures(truth, last), time.process_time() - before


def side_by_side(selection: Any, counts: Any, data: Data) -> FloatArray:
    """The last releases, through the counters of the bounded path, many keys at a time.

    Args:
      selection: of `count_of`.
      counts: key * ticks + tick, from 0, of each event that counts, sorted.
      data: what they were drawn as.
    """
    last = np.full(data.keys, np.nan)
    draws = SystemEntropy().draws(selection.counter.law, None, "")
    for first in range(0, data.keys, SIDE_BY_SIDE):
        ends = np.searchsorted(counts, np.array([first, first + SIDE_BY_SIDE]) * data.ticks)
        pairs, xs = np.unique(counts[slice(*ends)].astype(np.int64), return_counts=True)
        there, places = np.unique(pairs // data.ticks, return_inverse=True)
        if len(there) == 0:
            continue
        sums = Sums(places, 1 + pairs % data.ticks, xs)
        noise = draws.of_keys([""] * len(there), None, b"")
        for place, _, values in all_ticks(selection, sums, len(there), noise):
            last[there[place]] = values[-1]
    return last


class Source(beam.DoFn):
    """The events, as (key, person), at their times."""

    def __init__(self, data: Data) -> None:
        self._data = data

    def process(self, _: bytes) -> Iterator[Any]:
        for events in self._data.events():
            for person, key, tick in zip(*(array.tolist() for array in events), strict=True):
                micros = (tick - 1) * _SECOND
                yield windowed_value.create((str(key), str(person)), micros, (_WINDOW,))


class LastReleases(beam.DoFn):
    """Writes the releases of the last tick into a file, and looks at the others."""

    def __init__(self, path: Path, ticks: int) -> None:
        self._path, self._ticks = path, ticks

    def process(self, release: dp.Release) -> None:
        if release.step == self._ticks:
            self._lines.append(f"{release.key} {release.value!r}\n")

    def start_bundle(self) -> None:
        self._lines: list[str] = []

    def finish_bundle(self) -> None:
        with self._path.open("a", encoding="ascii") as file:
            file.writelines(self._lines)


def through_pipeline(data: Data) -> tuple[Figures, float]:
    """A whole pipeline on the local FnApiRunner: figures, and seconds of CPU time, with all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last"
        path.touch()
        before = time.process_time()
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            source = beam.ParDo(Source(data)).with_output_types(tuple[str, str])
            released = pipeline | beam.Impulse() | source | count_of(data.ticks)
            _ = released | beam.ParDo(LastReleases(path, data.ticks))
        seconds = time.process_time() - before
        last = np.full(data.keys, np.nan)
        for line in path.read_text(encoding="ascii").splitlines():
            key, value = line.split()
            last[int(key)] = float(value)
    truth = np.zeros(data.keys, dtype=np.int64)
    for events in data.events():
        truth += np.bincount(events.keys, minlength=data.keys)
    return figures(truth, last), seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dp_sqlp", description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="one in so many of the people")
    parser.add_argument("--ticks", type=int, nargs="+", default=TICKS)
    parser.add_argument("--pipeline", action="store_true", help="through a Beam pipeline")
    parser.add_argument("--seed", type=int, default=1, help="of the data, never of noise")
    options = parser.parse_args(argv)
    way = through_pipeline if options.pipeline else bulk
    print("| ticks | | keys shown | largest error | L1 | L2 | CPU, s | memory, MB |")
    print("|---|---|---|---|---|---|---|---|")
    for ticks in options.ticks:
        if options.scale == 1 and ticks in REPLICA:
            print(f"| {ticks:,} | the replica | {REPLICA[ticks]} | | |")
        found, seconds = way(Data(PEOPLE // options.scale, ticks, seed=options.seed))
        print(f"| {ticks:,} | ours | {found} | {seconds:,.0f} | {peak():,.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
