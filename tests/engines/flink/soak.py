"""The soak on a real Flink: `python -m tests.engines.flink.soak`.

A cluster of this machine and its Python workers; two files of events, as fast as they go, a
streaming count, and behind it a counter of releases. Checkpoints go to disk. What grows here, and
not in the soak without an engine, is Beam's or Flink's.

The count is a `PrefixCount`, or with `--count` a `TickCount` of all keys, or one of twenty keys
that counts one event of each person, of whom there are as many as `--keys` says; or, beside it,
without privacy, the first event of each person, counted by key and tick.

CPU time is that of the Python workers and of Flink's TaskManager. Memory goes up and down with the
bundles, so each row has the median since the row above. Status 1 if that of the Python workers grew
in the second half, or releases are missing; 2 if there is no Flink, or no sample. The JVM's memory
is bounded by its flags, and is only shown.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.metrics.metric import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.jobs import FLAT, order, resident
from engines.cache import UnavailableError
from engines.servers import wait
from tests.crash.flink import Read, Watched
from tests.crash.subjects import PARTITIONS
from tests.engines.flink import install
from tests.engines.flink.cluster import Cluster, Workers
from tests.engines.flink.runner import Lines, OnFlink

RELEASES = ("soak", "releases")
EVERY = 0.5  # seconds between samples
KEYS = 20  # of a count of people
# The C library keeps what is freed, in each of many arenas, and gRPC's threads use them all: for
# millions of events the workers' memory grows by that alone. With one arena, growth is a leak.
MALLOC = {"MALLOC_ARENA_MAX": "1"}


class Sample(NamedTuple):
    """Releases so far, seconds, MB of the Python workers and of the JVM, bytes of state, and CPU
    seconds of both."""

    releases: int
    seconds: float
    python: float
    java: float
    state: int
    cpu: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Load:
    """What is counted.

    Fields:
      transform: the count.
      element: makes its elements of an event's key and (value, row).
      releases: how many there must be.
    """

    transform: Any
    element: Callable[[str, tuple[int, int]], tuple[str, Any]]
    releases: int


def loads(options: Namespace) -> Load:
    """The one that the options name."""
    budget = dp.ApproxDP(1.0, 1e-6)
    if options.count == "elements":
        count = dp.PrefixCount(budget, options.events, path="streaming")
        return Load(count, lambda key, pair: (key, pair[0]), options.events)
    last = options.events // options.rate
    tick = max(1, last // options.ticks // 1000) * 1000  # Beam keeps whole milliseconds
    keys = [f"key{n}" for n in range(options.keys if options.count == "ticks" else KEYS)]
    more: dict[str, Any] = {"value": lambda pair: 1}
    if options.count == "people":
        more["users"] = dp.Users(lambda pair: pair[1], events=1, people=options.keys)
    horizon = last // tick + 1
    clock = {"horizon": horizon, "keys": keys, "path": "streaming"}
    ticks = TickNumbers(budget, tick / 1e6, 0, **clock, **more)
    if options.count == "ticks":
        return Load(ticks, lambda key, pair: (key, pair), horizon * len(keys))
    if options.count == "plain-people":
        plain = PlainPeople(tick / 1e6)
        return Load(plain, lambda key, pair: (key, keys[pair[1] % KEYS]), horizon * KEYS)
    # The event's key says who it is; it counts under another one.
    return Load(ticks, lambda key, pair: (keys[pair[1] % KEYS], (pair[0], key)), horizon * KEYS)


class First(beam.DoFn):
    """The first event of each person, who is a key of its own."""

    STATE = ReadModifyWriteStateSpec("person", BytesCoder())

    def process(
        self, element: tuple[str, str], cell: Any = beam.DoFn.StateParam(STATE)
    ) -> Iterator[tuple[str, int]]:
        if cell.read() is None:
            cell.write(b"1")
            yield element[1], 1


class PlainPeople(beam.PTransform[Any, Any]):
    """Counts the first event of each person, by key and tick, without privacy."""

    def __init__(self, tick: float) -> None:
        super().__init__()
        self._tick = tick

    def expand(self, events: Any) -> Any:
        first: Any = beam.ParDo(First()).with_output_types(tuple[str, int])
        windows = beam.WindowInto(FixedWindows(self._tick))
        return events | "First" >> first | windows | beam.CombinePerKey(sum)


def write(directory: Path, options: Namespace) -> None:
    """The events, each key's in one file."""
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        paths = [directory / f"{number}.csv" for number in range(PARTITIONS)]
        files = [stack.enter_context(path.open("w")) for path in paths]
        for row, key in enumerate(order(options.events, options.keys, options.skewed)):
            files[key % PARTITIONS].write(f"key{key},{row & 1},{row // options.rate},{row}\n")


class Seen(beam.DoFn):
    """Counts releases, and drops them."""

    def setup(self) -> None:
        self._releases = Metrics.counter(*RELEASES)

    def process(self, _: Any) -> None:
        self._releases.inc()


def submit(options: Namespace, load: Load, files: Path, *flags: str) -> Any:
    """Start the job."""
    words = [
        *("--streaming", f"--parallelism={options.parallelism}", *flags),
        f"--checkpointing_interval={options.checkpoint}",
        "--finish_bundle_before_checkpointing",
        f"--max_bundle_size={options.bundle or max(1, min(20_000, options.events // 40))}",
        f"--max_bundle_time_mills={options.checkpoint}",
    ]
    pipeline = beam.Pipeline(runner=OnFlink(), options=PipelineOptions(words))
    event, element = tuple[str, tuple[int, int]], tuple[str, Any]
    if options.count == "elements":
        element = tuple[str, int]
    _ = (
        pipeline
        | Lines(files, late=0, pace=0)
        | "Read" >> beam.ParDo(Read()).with_output_types(event)
        | "Element" >> beam.MapTuple(load.element).with_output_types(element)
        | load.transform
        | "Seen" >> beam.ParDo(Seen())
    )
    return pipeline.run()


class Watch(Watched):
    """What is sampled while a job runs."""

    def __init__(self, cluster: Cluster, running: Any, workers: Workers) -> None:
        super().__init__(cluster, running)
        self._java, self._workers = cluster.task_managers[-1].pid, workers
        self._spent: dict[int, float] = {}  # CPU seconds, as last seen, of workers that ended, too

    def samples(self) -> Iterator[Sample]:
        """From the first releases on, while there are workers; and the last, with all releases.

        Those of a watermark that passes the last tick come at once, and the job ends with them.
        """
        begun, last = time.perf_counter(), None
        while self.state() in ("CREATED", "STARTING", "RUNNING"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a worker has ended
                python = sum(map(resident, self._workers.pids()))
                java, releases = resident(self._java), self._releases()
                done = self._get("/checkpoints")["latest"]["completed"]
                if python:
                    seconds, state = time.perf_counter() - begun, done["state_size"] if done else 0
                    self._spent |= {pid: _cpu(pid) for pid in self._workers.pids()}
                    cpu = sum(self._spent.values()), _cpu(self._java)
                    last = Sample(releases, seconds, python, java, state, cpu)
                    if releases:
                        yield last
            time.sleep(EVERY)
        if last is not None and (releases := self._releases()):
            yield last._replace(releases=releases)

    def _releases(self) -> int:
        """As of the last heartbeat, and of whole bundles."""
        found = self._get("/accumulators")["user-task-accumulators"]
        return sum(int(each["value"]) for each in found if each["name"] == " ".join(RELEASES))


def _cpu(pid: int) -> float:
    """The CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def rows(samples: Iterable[Sample], releases: int) -> Iterator[Sample]:
    """One for each tenth of the releases: its last sample, but with the median of memory."""
    for _, group in groupby(samples, lambda sample: min(9, sample.releases * 10 // releases)):
        each = list(group)
        python, java = (median(getattr(one, name) for one in each) for name in ("python", "java"))
        yield each[-1]._replace(python=python, java=java)


HEAD = (
    *("releases", "seconds", "Python CPU, us", "JVM CPU, us"),
    *("Python, MB", "JVM, MB", "checkpoint, bytes a key"),
)


def report(samples: Iterable[Sample], options: Namespace, load: Load) -> list[Sample]:
    """Print the rows as they come; microseconds of CPU are those of an event."""
    print("".join(f"{name:>{len(name) + 3}}" for name in HEAD))
    found, n, cpu = [], 0, (0.0, 0.0)
    for row in rows(samples, load.releases):
        # Releases come as events do: so many events for each.
        events = max(1.0, (row.releases - n) * options.events / load.releases)
        python, java = ((now - then) / events * 1e6 for now, then in zip(row.cpu, cpu, strict=True))
        cells = (
            *(f"{row.releases:,}", f"{row.seconds:.0f}", f"{python:.1f}", f"{java:.1f}"),
            *(f"{row.python:.1f}", f"{row.java:.1f}", f"{row.state / options.keys:.0f}"),
        )
        widths = (len(name) + 3 for name in HEAD)
        print("".join(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True)), flush=True)
        n, cpu = row.releases, row.cpu
        found.append(row)
    return found


def soak(options: Namespace, load: Load, work: Path) -> tuple[list[Sample], int]:
    """The rows, and how many releases there were."""
    files = work / "files"
    write(files, options)
    with (
        Workers(work, MALLOC, cache=options.cache) as workers,
        # A large heap is collected for seconds; nothing here is to die.
        Cluster(work, restarts=0, heap=options.heap, missed=60) as cluster,
    ):
        master = f"--flink_master=localhost:{cluster.rest}"
        running = submit(options, load, files, master, *workers.flags)
        try:
            watch = Watch(cluster, running, workers)
            wait(watch.is_known, (workers, cluster.job_manager), "the job's submission")
            found = report(watch.samples(), options, load)
            running.wait_until_finish(60_000)
        finally:
            running.cancel()
        (releases,) = running.metrics().query()["counters"]
    return found, int(releases.result)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.engines.flink.soak",
        description="Count millions of events on Flink, and look.",
    )
    add = parser.add_argument
    add("--count", choices=["elements", "ticks", "people", "plain-people"], default="elements")
    add("--events", type=int, default=5_000_000)
    add("--keys", type=int, default=10_000)
    add("--skewed", action="store_true", help="one key has half of the events")
    add("--ticks", type=int, default=20, help="of a TickCount")
    add("--rate", type=int, default=100, help="events a microsecond of their time")
    add("--checkpoint", type=int, default=10_000, help="milliseconds")
    # A worker asks for a key's state once a bundle, which takes longer than to count many events.
    # So bundles are large, and the watermark, which ends them, moves only every so many events.
    bundle = "events; default: 20,000, or a fortieth of all"
    add("--bundle", type=int, default=None, help=bundle)
    add("--cache", type=int, default=0, help="MB of state a worker")
    heap = "MB of the TaskManager, which holds all state"
    add("--heap", type=int, default=512, help=heap)
    add("--parallelism", type=int, default=2)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run it, and say how it went."""
    options = arguments().parse_args(argv)
    load = loads(options)
    counter = getattr(load.transform, "counter", None)
    name = f"{counter.mechanism.name}, {counter.mechanism.horizon:,} steps" if counter else "plain"
    print(f"{options.count}: {name}, {options.keys:,} keys")
    try:
        print(install.versions(), flush=True)
        with tempfile.TemporaryDirectory(prefix="soak-") as directory:
            found, releases = soak(options, load, Path(directory))
    except UnavailableError as missing:
        print(f"no result: {missing}", file=sys.stderr)
        return 2
    if not found:
        print("no result: all was done before the first sample", file=sys.stderr)
        return 2
    half, last = found[(len(found) - 1) // 2], found[-1]
    changes = [
        f"{name} {after - before:+.1f} MB ({after / before - 1:+.1%})"
        for name, before, after in (
            ("Python", half.python, last.python),
            ("JVM", half.java, last.java),
        )
    ]
    print(f"memory from {half.releases:,} releases on: {', '.join(changes)}")
    print(f"CPU of all: {sum(last.cpu) / options.events * 1e6:.0f} us an event, the start included")
    print(f"releases: {releases:,} of {load.releases:,}")
    return int(last.python > half.python * (1 + FLAT) or releases != load.releases)


if __name__ == "__main__":
    sys.exit(main())
