"""The crash test on a real Flink: `python -m tests.crash --engine flink`.

A cluster of this machine, Python workers, and a streaming job with checkpoints: files of events,
the two counts, and behind each a sink that shows every release at once, so before the checkpoint
that covers it. A supervisor kills by SIGKILL, in turn, the TaskManager and one of the Python
workers, and Flink starts the job anew from its last checkpoint, until the input has ended.

The pipeline's translation to Flink is our own (tests/engines/flink), as are the files' watermarks;
checkpoints, state, timers, restarts and all that talks to Python workers are Flink's and Beam's.
"""

from __future__ import annotations

import logging
import os
import random
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from engines.cache import UnavailableError
from engines.servers import Process, tail, wait
from tests.crash.jobs import SECRET, HarnessError, Job, Lives, event, shown
from tests.crash.subjects import PARTITIONS, TICK
from tests.engines.flink import install
from tests.engines.flink.cluster import Cluster, Workers
from tests.engines.flink.runner import Lines, OnFlink

_LOG = logging.getLogger(__name__)

PLACES = ("a TaskManager", "a Python worker")
RECOVERY = 120.0  # seconds that a restart may take
SLOW = 4  # lines at the end of a file, a second each: a job must not end before its last kill


@dataclass(frozen=True)
class FlinkJob(Job):
    """On Flink: `checkpoint` is milliseconds, and `pace` between the events of a file.

    Args:
      library: a directory that workers import from before all others: with what a mutant changes.
    """

    checkpoint: int = 1000
    pace: float = 0.03
    library: str | None = None

    timeout: ClassVar[float] = 1200.0
    ordered: ClassVar[bool] = False

    @property
    def every(self) -> str:
        return f"{self.checkpoint} ms"

    @property
    def files(self) -> Path:
        return Path(self.directory, "files")

    @property
    def seconds(self) -> float:
        """That all events take."""
        return self.events / PARTITIONS * self.pace

    def supervised(self, kills: int, rng: random.Random, timeout: float, secret: str) -> Lives:
        try:
            return Supervisor(self, kills, rng, timeout, secret).run()
        except UnavailableError as missing:
            raise HarnessError(f"Flink could not be had: {missing}") from missing

    def spread(self) -> None:
        """The input in several files, each of which one subtask reads."""
        files: list[list[str]] = [[] for _ in range(PARTITIONS)]
        for row in self.rows():
            files[self.size.partition(row.key)].append(row.line)
        self.files.mkdir()
        for number, lines in enumerate(files):
            Path(self.files, f"{number}.csv").write_text("".join(lines))


# The pipeline


class Read(beam.DoFn):
    """Lines to events of a kind of count, with times to the microsecond."""

    def __init__(self, transform: str = "elements") -> None:
        self._transform = transform

    def process(self, line: bytes) -> Iterator[Any]:
        element, micros = event(line, self._transform)
        yield TimestampedValue(element, Timestamp(micros=micros))


class Show(beam.DoFn):
    """Appends releases to the sink, visible at once: nothing waits for a checkpoint."""

    def __init__(self, name: str, sink: Path) -> None:
        self._name, self._path = name, sink

    def setup(self) -> None:
        self._sink = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def process(self, release: Any) -> None:
        # A line feed first, should a worker that was killed have cut its last line short.
        os.write(self._sink, b"\n" + shown(self._name, release))

    def teardown(self) -> None:
        os.close(self._sink)


def submit(job: FlinkJob, cluster: Cluster, workers: Workers) -> Any:
    """Start the job. The secret is none of its options: the workers' environment has it."""
    flags = [
        f"--flink_master=localhost:{cluster.rest}",
        "--environment_type=EXTERNAL",
        f"--environment_config=localhost:{workers.port}",
        "--streaming",
        f"--parallelism={PARTITIONS}",
        f"--checkpointing_interval={job.checkpoint}",
        "--finish_bundle_before_checkpointing",
    ]
    pipeline = beam.Pipeline(runner=OnFlink(), options=PipelineOptions(flags))
    pace, slow_from = round(job.pace * 1e6), job.events - SLOW * PARTITIONS
    lines = pipeline | Lines(job.files, late=TICK // 1000, pace=pace, slow_from=slow_from)
    read = beam.ParDo(Read(job.transform)).with_output_types(tuple[str, Any])
    events = lines | "Read" >> read
    for name, count in job.counts().items():
        releases = job.subject.apply(events, name, count)
        _ = releases | f"Show {name}" >> beam.ParDo(Show(name, job.sink))
    return pipeline.run()


# The supervisor


def kill(pid: int) -> bool:
    """Kill this process and no other by SIGKILL; false if it has ended otherwise."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not _is_alive(pid):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        if not select.select([handle], [], [], 10)[0]:
            raise HarnessError(f"process {pid} lives on after SIGKILL")
    finally:
        os.close(handle)
    # The last number is what it has ended of, unless its parent has asked already.
    found = _stat(pid)
    _LOG.info("killed %d: %s", pid, found[-1:])
    return not found or int(found[-1]) == signal.SIGKILL


def _is_alive(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _stat(pid: int) -> list[str]:
    """State and what follows it in the kernel's line on a process; nothing if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


class Watched:
    """What Flink says of a job."""

    def __init__(self, cluster: Cluster, running: Any) -> None:
        self._cluster, self._running = cluster, running

    def is_known(self) -> bool:
        """Whether Flink has it."""
        return self._running.job_id() is not None

    def _get(self, path: str = "") -> Any:
        return self._cluster.get(f"/jobs/{self._running.job_id()}{path}")

    def state(self) -> str:
        """RUNNING only if all of its tasks are, or have ended."""
        job = self._get()
        tasks = {vertex["status"] for vertex in job["vertices"]}
        if job["state"] == "RUNNING" and not tasks <= {"RUNNING", "FINISHED"}:
            return "STARTING"
        return str(job["state"])

    def restarts(self) -> int:
        """How often it was started anew: the attempts of its tasks, which Flink counts from 0."""
        found = [self._get(f"/vertices/{vertex['id']}") for vertex in self._get()["vertices"]]
        return max(int(task["attempt"]) for each in found for task in each["subtasks"])

    def checkpoints(self) -> int:
        """How many were completed."""
        return int(self._get("/checkpoints")["counts"]["completed"])

    def failure(self) -> str:
        """Why it was started anew the last time."""
        history = self._get("/exceptions")["exceptionHistory"]["entries"] if self.is_known() else []
        return str(history[0]["stacktrace"])[:2000] if history else "none"


class Supervisor:
    """Runs a job on a cluster of its own, and kills.

    Args:
      job: the job; its input is written.
      kills: how many times.
      rng: when and whom.
      timeout: seconds in all; beyond it HarnessError.
      secret: of the Python workers, in their environment.
    """

    def __init__(
        self, job: FlinkJob, kills: int, rng: random.Random, timeout: float, secret: str
    ) -> None:
        self._job, self._kills, self._rng, self._secret = job, kills, rng, secret
        self._deadline = time.monotonic() + timeout
        self._expected = len(job.subject.totals(job.size, job.rows()))
        self._lives = Lives(engine=install.versions())

    def run(self) -> Lives:
        self._job.spread()
        work, secret = Path(self._job.directory, "flink"), {SECRET: self._secret}
        first = [Path(self._job.library)] if self._job.library else []
        try:
            with Workers(work, secret, first) as self._workers, Cluster(work) as self._cluster:
                running = submit(self._job, self._cluster, self._workers)
                try:
                    self._follow(running)
                finally:
                    running.cancel()
        except RuntimeError as error:  # with the logs' ends
            raise HarnessError(str(error)) from error
        except Exception as error:
            logs = sorted(work.glob("*.log"), key=lambda log: log.stat().st_mtime)
            raise HarnessError("\n".join((repr(error), *map(tail, logs[-3:])))) from error
        return self._lives

    def _follow(self, running: Any) -> None:
        watched = self._watched = Watched(self._cluster, running)
        self._until(watched.is_known, "the job's submission")
        lives, rng, dying, restarts, checkpoints = self._lives, self._rng, set[int](), -1, 0
        while self._goes_on(restarts) and (done := lives.kills.total()) < self._kills:
            # Some soon, mostly before a checkpoint; the first so that releases are seen twice. The
            # last one so that there is a checkpoint to go on from.
            if not done or (done < self._kills - 1 and rng.random() < 0.5):
                time.sleep(rng.uniform(0, self._job.checkpoint / 2000))
            else:
                self._checkpointed()
                time.sleep(rng.uniform(0, 2) * self._left() / (self._kills - done + 1))
            if self._ended():
                break
            place, alive = PLACES[done % len(PLACES)], self._alive()
            before, completed = watched.restarts(), watched.checkpoints()
            if place == PLACES[0]:
                died = kill(self._cluster.task_managers[-1].pid)
                self._cluster.add_task_manager()
            else:
                # Those of the life before may linger; their death would be nobody's loss.
                died = bool(alive - dying) and kill(rng.choice(sorted(alive - dying)))
            _LOG.info("%s: %s, %d restarts, %d checkpoints", place, died, before, completed)
            if died:
                lives.kills[place] += 1
                lives.progressed += completed > checkpoints
                dying, restarts, checkpoints = alive, before, completed
        running.wait_until_finish(int(self._remaining() * 1000))
        lives.restarts, lives.checkpoints = watched.restarts(), watched.checkpoints()

    def _goes_on(self, restarts: int) -> bool:
        """Wait for more restarts than that, and then for a release; false if the job has ended."""
        watched = self._watched

        def runs() -> bool:
            return self._ended() or (watched.state() == "RUNNING" and watched.restarts() > restarts)

        self._until(runs, "the job, after a kill")
        size = self._size()
        self._until(lambda: self._ended() or self._size() > size, "the first release")
        return not self._ended()

    def _checkpointed(self) -> None:
        before = self._watched.checkpoints()
        self._until(lambda: self._ended() or self._watched.checkpoints() > before, "a checkpoint")

    def _ended(self) -> bool:
        """Whether it has; why, the submitter knows."""
        return self._watched.state() in ("FINISHED", "FAILED", "CANCELED")

    def _size(self) -> int:
        return self._job.sink.stat().st_size if self._job.sink.exists() else 0

    def _left(self) -> float:
        """Seconds that the rest of the input takes, by the releases that were seen."""
        lines = [line.split(" ")[:3] for line in self._job.sink.read_text().splitlines()]
        seen = {tuple(line) for line in lines if line[0] == "private"}
        return self._job.seconds * (1 - len(seen) / self._expected)

    def _alive(self) -> set[int]:
        """The Python workers that have not ended."""
        return {pid for pid in self._workers.pids() if _is_alive(pid)}

    def _processes(self) -> tuple[Process, ...]:
        return self._cluster.job_manager, self._cluster.task_managers[-1], self._workers

    def _until(self, ready: Callable[[], bool], what: str) -> None:
        try:
            wait(ready, self._processes(), what, min(RECOVERY, self._remaining()))
        except RuntimeError as error:
            last = self._watched.failure()
            raise HarnessError(f"{error}\nthe job's last failure: {last}") from error

    def _remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())
