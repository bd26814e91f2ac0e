"""The soak on a real Flink: `python -m benchmarks.soak --engine flink`.

A cluster of this machine and its Python workers; two files of events, as fast as they go, the
streaming `PrefixCount`, and behind it a counter of releases. Checkpoints go to disk. What grows
here, and not in the soak without an engine, is Beam's or Flink's.

Memory goes up and down with the bundles, so each row has the median since the row above. Status 1
if that of the Python workers grew in the second half, or releases are missing; 2 if there is no
Flink, or no sample. The JVM's memory is bounded by its flags, and is only shown.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics.metric import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

import beam_dpcount as dp
from benchmarks.engine_flink import Read, Watched
from benchmarks.jobs import FLAT, order, resident
from benchmarks.subjects import PARTITIONS
from engines.cache import UnavailableError
from engines.flink import install
from engines.flink.cluster import Cluster, Workers, wait
from engines.flink.runner import Lines, OnFlink

RELEASES = ("soak", "releases")
EVERY = 0.5  # seconds between samples
# A worker asks for a key's state once a bundle, which takes longer than to count many events. So
# bundles are large, and the watermark, which ends them, moves only every so many events.
BUNDLE = 20_000
PER_MICROSECOND = 100
# The C library keeps what is freed, in each of many arenas, and gRPC's threads use them all: for
# millions of events the workers' memory grows by that alone. With one arena, growth is a leak.
MALLOC = {"MALLOC_ARENA_MAX": "1"}


class Sample(NamedTuple):
    """Releases so far, seconds, MB of the Python workers and of the JVM, and bytes of state."""

    releases: int
    seconds: float
    python: float
    java: float
    state: int


def write(directory: Path, options: Namespace) -> None:
    """The events, each key's in one file."""
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        paths = [directory / f"{number}.csv" for number in range(PARTITIONS)]
        files = [stack.enter_context(path.open("w")) for path in paths]
        for row, key in enumerate(order(options.events, options.keys, options.skewed)):
            files[key % PARTITIONS].write(f"key{key},{row & 1},{row // PER_MICROSECOND},{row}\n")


class Seen(beam.DoFn):
    """Counts releases, and drops them."""

    def setup(self) -> None:
        self._releases = Metrics.counter(*RELEASES)

    def process(self, _: Any) -> None:
        self._releases.inc()


def submit(options: Namespace, count: dp.PrefixCount, files: Path, *flags: str) -> Any:
    """Start the job."""
    words = [
        *("--streaming", f"--parallelism={PARTITIONS}", *flags),
        f"--checkpointing_interval={options.checkpoint}",
        "--finish_bundle_before_checkpointing",
        f"--max_bundle_size={max(1, min(BUNDLE, options.events // 40))}",
        f"--max_bundle_time_mills={options.checkpoint}",
    ]
    pipeline = beam.Pipeline(runner=OnFlink(), options=PipelineOptions(words))
    event, number = tuple[str, tuple[int, int]], tuple[str, int]
    _ = (
        pipeline
        | Lines(files, late=0, pace=0)
        | "Read" >> beam.ParDo(Read()).with_output_types(event)
        | "Number" >> beam.MapTuple(lambda key, pair: (key, pair[0])).with_output_types(number)
        | count
        | "Seen" >> beam.ParDo(Seen())
    )
    return pipeline.run()


class Watch(Watched):
    """What is sampled while a job runs."""

    def __init__(self, cluster: Cluster, running: Any, workers: Workers) -> None:
        super().__init__(cluster, running)
        self._java, self._workers = cluster.task_managers[-1].pid, workers

    def samples(self) -> Iterator[Sample]:
        """From the first releases on, while there are workers."""
        begun = time.perf_counter()
        while self.state() in ("CREATED", "STARTING", "RUNNING"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a worker has ended
                python = sum(map(resident, self._workers.pids()))
                java, releases = resident(self._java), self._releases()
                last = self._get("/checkpoints")["latest"]["completed"]
                if releases and python:
                    seconds, state = time.perf_counter() - begun, last["state_size"] if last else 0
                    yield Sample(releases, seconds, python, java, state)
            time.sleep(EVERY)

    def _releases(self) -> int:
        """As of the last heartbeat, and of whole bundles."""
        found = self._get("/accumulators")["user-task-accumulators"]
        return sum(int(each["value"]) for each in found if each["name"] == " ".join(RELEASES))


def rows(samples: Iterable[Sample], events: int) -> Iterator[Sample]:
    """One for each tenth of the events: its last sample, but with the median of memory."""
    for _, group in groupby(samples, lambda sample: min(9, sample.releases * 10 // events)):
        each = list(group)
        python, java = (median(getattr(one, name) for one in each) for name in ("python", "java"))
        yield each[-1]._replace(python=python, java=java)


def report(samples: Iterable[Sample], options: Namespace) -> list[Sample]:
    """Print the rows as they come."""
    print(
        f"{'events':>12}{'seconds':>9}{'us/event':>10}"
        f"{'Python, MB':>12}{'JVM, MB':>9}{'checkpoint, bytes a key':>25}"
    )
    found, n, seconds = [], 0, 0.0
    for row in rows(samples, options.events):
        each = (row.seconds - seconds) / max(1, row.releases - n) * 1e6
        print(
            f"{row.releases:>12,}{row.seconds:>9.0f}{each:>10.1f}"
            f"{row.python:>12.1f}{row.java:>9.1f}{row.state / options.keys:>25.0f}",
            flush=True,
        )
        n, seconds = row.releases, row.seconds
        found.append(row)
    return found


def soak(options: Namespace, count: dp.PrefixCount, work: Path) -> tuple[list[Sample], int]:
    """The rows, and how many releases there were."""
    files = work / "files"
    write(files, options)
    with Workers(work, MALLOC) as workers, Cluster(work, restarts=0) as cluster:
        master = f"--flink_master=localhost:{cluster.rest}"
        running = submit(options, count, files, master, *workers.flags)
        try:
            watch = Watch(cluster, running, workers)
            wait(watch.is_known, (workers, cluster.job_manager), "the job's submission")
            found = report(watch.samples(), options)
            running.wait_until_finish(60_000)
        finally:
            running.cancel()
        (releases,) = running.metrics().query()["counters"]
    return found, int(releases.result)


def main(options: Namespace, count: dp.PrefixCount) -> int:
    """Run it, and say how it went."""
    try:
        print(install.versions(), flush=True)
        with tempfile.TemporaryDirectory(prefix="soak-") as directory:
            found, releases = soak(options, count, Path(directory))
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
    print(f"memory from {half.releases:,} events on: {', '.join(changes)}")
    print(f"releases: {releases:,} of {options.events:,}")
    return int(last.python > half.python * (1 + FLAT) or releases != options.events)
